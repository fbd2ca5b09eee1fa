"""Slices of several objects at once: over a network all bytes are asked for before any is read."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, describe
from ztensor.io.reading.slices import slice_of
from ztensor.io.reading.stored_array import StoredArray
from ztensor.io.source.base import AtOnce
from ztensor.threads.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.objects import Objects

_MOST_FILES = 8  # that are read from side by side


def slices(objects: Objects, wanted: Any) -> dict[str, Any] | list[Any]:
    """Return parts of objects; see `Reader.read_slices`."""
    pairs = list(wanted.items()) if isinstance(wanted, Mapping) else _pairs(wanted, objects.name)
    found: list[Any] = [None] * len(pairs)
    waiting: dict[FileObjects, AtOnce] = {}
    parts: dict[str, Callable[[Any, Callable[[Any], None]], None]] = {}
    for number, (name, key) in enumerate(pairs):
        if name not in parts:
            parts[name] = _asking(objects.part(name), name, waiting)
        parts[name](key, functools.partial(found.__setitem__, number))
    if len(waiting) > 1:
        with Pool(min(_MOST_FILES, len(waiting))) as pool:
            for job in [pool.submit(at_once.end) for at_once in waiting.values()]:
                job.result()
    for at_once in waiting.values():
        at_once.end()  # what has not ended
    if isinstance(wanted, Mapping):
        return {name: part for (name, _), part in zip(pairs, found, strict=True)}
    return found


def _asking(
    file: FileObjects, name: str, waiting: dict[FileObjects, AtOnce]
) -> Callable[[Any, Callable[[Any], None]], None]:
    """Return what asks for a part of an object, and calls with it now, or when reads have ended.

    Args:
        file: where it is.
        name: its name.
        waiting: takes what gathers the reads of a file that is far away.
    """
    if not file.source.prefers_long_reads or file.object(name).format != "dense":
        part = slice_of(file, name)
        return lambda key, put: put(part[key])
    found = file.require_dense(name)
    with file.located(name, "data"):
        array = StoredArray(file, name, found, "data", found.shape)
    at_once = waiting.setdefault(file, AtOnce(file.source.exact()))
    return lambda key, put: array.ask(key, at_once, put)


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
