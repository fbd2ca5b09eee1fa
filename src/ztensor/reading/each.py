"""Objects that cannot be laid over what was read: compressed, sparse, quantized, unusual ones.

They are read one by one, several at a time. Dense ones that are only encoded are decoded straight
into memory they share with their neighbours, since memory costs as much as decoding where each has
its own; large ones have their own, and are decoded by several threads.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.buffers import aligned
from ztensor.model.dtype import element_count
from ztensor.model.rules import align
from ztensor.reading.component import lengths_of
from ztensor.reading.plain import PlainTypes
from ztensor.threads import at_most, run_jobs, worth

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ztensor.layout.base import Array
    from ztensor.reading.file import FileObjects

    Job = Callable[[], None]

# From here on a tensor gets an array of its own; below, neighbours share one slab.
OWN_BYTES = 4 << 20
SLAB_BYTES = 64 << 20


class _Encoded(NamedTuple):
    """A dense tensor whose decoded bytes are its elements as NumPy has them."""

    dtype: np.dtype[Any]
    nbytes: int


def read_each(
    file: FileObjects,
    names: Collection[str],
    workers: int,
    result: dict[str, Any],
    *,
    copy: bool,
    separate: bool,
) -> None:
    """Read objects by several threads.

    Args:
        file: an open file.
        names: the objects.
        workers: how many threads to use where they pay.
        result: where the values go, by name.
        copy: as `FileObjects.value` takes it.
        separate: whether each gets memory of its own.

    Raises:
        FormatError: stored bytes are damaged.
        UnsupportedError: a type, encoding or layout is unknown.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    if workers > 1:
        workers = worth(workers, lengths_of(file, map(file.object, names)))
    each = _Each(file, result, copy=copy, separate=separate)
    with at_most(workers):
        run_jobs(each.jobs(names), workers)


class _Each:
    def __init__(
        self, file: FileObjects, result: dict[str, Any], *, copy: bool, separate: bool
    ) -> None:
        self._file = file
        self._result = result
        self._copy = copy
        self._separate = separate
        self._types = PlainTypes()

    def jobs(self, names: Collection[str]) -> Iterator[Job]:
        """Yield what reads the objects."""
        found = {name: self._encoded(name) for name in names}
        sizes = (one.nbytes for one in found.values() if one is not None)
        left = 0 if self._separate else sum(size for size in sizes if size < OWN_BYTES)
        slab, place = aligned(0), 0
        for name, one in found.items():
            if one is None:
                yield functools.partial(self._read, name)
            elif one.nbytes >= OWN_BYTES:
                yield from self._shared_out(name, one)
            elif self._separate:
                yield functools.partial(self._decode, name, one, None)
            else:
                if place + one.nbytes > len(slab):
                    slab, place = aligned(max(one.nbytes, min(left, SLAB_BYTES))), 0
                memory = slab[place : place + one.nbytes]
                yield functools.partial(self._decode, name, one, memory)
                place += align(one.nbytes)
                left -= one.nbytes

    def _encoded(self, name: str) -> _Encoded | None:
        """Return what an encoded tensor decodes to, None for all that takes more."""
        found = self._file.object(name)
        dtype = self._types.decoded(found)
        is_raw = dtype is None or found.components["data"].encoding == "raw"
        if dtype is None or is_raw or len(found.shape) > self._file.limits.rank:
            return None
        nbytes = element_count(found.shape) * dtype.itemsize
        return _Encoded(dtype, nbytes) if nbytes else None

    def _read(self, name: str) -> None:
        self._result[name] = self._file.value(name, copy=self._copy)

    def _decode(self, name: str, one: _Encoded, memory: Array | None) -> None:
        """Decode a tensor into its part of a slab, or new memory."""
        memory, jobs = self._begun(name, one, memory)
        for job in jobs:
            self._located(name, job)
        self._lay(name, one, memory)

    def _shared_out(self, name: str, one: _Encoded) -> Iterator[Job]:
        """Yield what decodes a large tensor."""
        memory, jobs = self._begun(name, one, None)
        self._lay(name, one, memory)
        for job in jobs:
            yield functools.partial(self._located, name, job)

    def _begun(
        self, name: str, one: _Encoded, memory: Array | None
    ) -> tuple[Array, Collection[Job]]:
        with self._file.located(name, "data"):
            component = self._file.object(name).components["data"]
            return self._file.stored(component).decoding(one.nbytes, memory)

    def _located(self, name: str, job: Job) -> None:
        with self._file.located(name, "data"):
            job()

    def _lay(self, name: str, one: _Encoded, memory: Array) -> None:
        try:
            shape = self._file.object(name).shape
            self._result[name] = np.ndarray(shape, one.dtype, memory)
        except (ValueError, TypeError):  # more than NumPy can hold
            self._read(name)
