"""Slices of several objects at once: over a network all bytes are asked for before any is read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, describe
from ztensor.reading.row_slices import slice_of
from ztensor.reading.stored_array import StoredArray
from ztensor.source.at_once import AtOnce
from ztensor.threads.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ztensor.reading.file import FileObjects
    from ztensor.reading.objects import Objects
    from ztensor.reading.slices import TensorSlice

_MOST_FILES = 8  # that are read from side by side


def slices(objects: Objects, wanted: Any) -> dict[str, Any] | list[Any]:
    """Return parts of objects; see `Reader.read_slices`."""
    pairs = list(wanted.items()) if isinstance(wanted, Mapping) else _pairs(wanted, objects.name)
    found: list[Any] = [None] * len(pairs)
    asking = _Asking(objects)
    for number, (name, key) in enumerate(pairs):
        asking.ask(name, key, functools.partial(found.__setitem__, number))
    asking.end()
    if isinstance(wanted, Mapping):
        return {name: part for (name, _), part in zip(pairs, found, strict=True)}
    return found


def _pairs(wanted: Iterable[Any], file: str) -> list[tuple[str, Any]]:
    if isinstance(wanted, (str, bytes)) or not hasattr(wanted, "__iter__"):
        raise _no_pairs(file, wanted)
    pairs = list(wanted)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise _no_pairs(file, pair)
    return pairs


def _no_pairs(file: str, found: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        "read_slices takes a mapping from names to indices, or pairs of a name and an index",
        file=file,
        found=describe(found, 40),
    )


class _Asking:
    """Asks for parts; each of a file that is far away waits for the others."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._slices: dict[str, TensorSlice] = {}
        self._arrays: dict[str, StoredArray] = {}
        self._of_file: dict[FileObjects, AtOnce] = {}

    def ask(self, name: str, key: Any, put: Callable[[Any], None]) -> None:
        """Have `put` called with a part, now or by `end`."""
        file = self._objects.part(name)
        if not file.source.prefers_long_reads or file.object(name).format != "dense":
            if name not in self._slices:
                self._slices[name] = slice_of(file, name)
            put(self._slices[name][key])
            return
        if name not in self._arrays:
            found = file.require_dense(name)
            with file.located(name, "data"):
                self._arrays[name] = StoredArray(file, name, found, "data", found.shape)
        if file not in self._of_file:
            self._of_file[file] = AtOnce(file.source.exact())
        self._arrays[name].ask(key, self._of_file[file], put)

    def end(self) -> None:
        """Read what was asked for: of each file by requests of its own."""
        if len(self._of_file) < 2:
            for at_once in self._of_file.values():
                at_once.end()
            return
        with Pool(min(_MOST_FILES, len(self._of_file))) as pool:
            for job in [pool.submit(at_once.end) for at_once in self._of_file.values()]:
                job.result()
