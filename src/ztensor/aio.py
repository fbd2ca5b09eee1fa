"""Asynchronous reads, for servers: readers work in threads, and the event loop goes on.

async with await ztensor.aio.open("s3://bucket/model.zt") as file:
    rows = await file.read_slice("embed.weight", slice(10, 20))
"""

from __future__ import annotations

import asyncio
import functools
import os
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from ztensor import Reader, Tensor, TensorMetadata
from ztensor import open as open_reader
from ztensor.errors import ClosedError
from ztensor.ext import Pool, is_remote, path_text, thread_count
from ztensor.numpy import load_file as load_arrays
from ztensor.options import require_options
from ztensor.typing import Array, Index, LoadOptions, Openable, OpenOptions, VerifyReport

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["AsyncReader", "load_file", "open"]

_REQUESTS = 32
_P = ParamSpec("_P")
_T = TypeVar("_T")


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


async def open(
    source: Openable, *, workers: int | None = None, **options: Unpack[OpenOptions]
) -> AsyncReader:
    """Open a source of `ztensor.open` in a thread, and return its asynchronous reader.

    Args:
        source: a path, a URL, bytes, a file object, or several paths.
        workers: the most reads at a time; further ones wait for them. By default 32 of a URL, and
            of other sources as many as there are cores, four at most.
        options: see `ztensor.typing.OpenOptions`. `mmap` is False by default: data of a map would
            be read where it is used, in the event loop.

    Raises:
        FormatError: the file is damaged.
        SourceError: it cannot be read.
    """
    require_options("open", options, OpenOptions)
    pool = Pool(_most(source) if workers is None else workers, are_alone=False)
    opened = pool.submit(open_reader, source, **{"mmap": False, **options})  # type: ignore[arg-type]
    try:
        return AsyncReader(await asyncio.wrap_future(opened), pool)
    except BaseException:
        opened.add_done_callback(_close_opened)  # it may still be opening, after a cancellation
        pool.shutdown(wait=False)
        raise


def _most(source: Openable) -> int:
    """Return how many reads wait for answers at a time, or share the cores with the event loop."""
    first = source[0] if isinstance(source, (list, tuple)) and source else source
    is_path = isinstance(first, (str, os.PathLike))
    return _REQUESTS if is_path and is_remote(path_text(first)) else thread_count()


def _close_opened(opened: concurrent.futures.Future[Reader]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


async def load_file(filename: Openable, **options: Unpack[LoadOptions]) -> dict[str, Array | Any]:
    """Load all tensors in a thread, each with memory of its own; see `ztensor.numpy.load_file`."""
    return await asyncio.to_thread(functools.partial(load_arrays, copy=True, **options), filename)


class AsyncReader:
    """A reader with coroutines; `open` returns it.

    Several tasks may read at once. A task that is cancelled stops waiting: a read that has begun
    ends in its thread, and its result is dropped.

    Args:
        reader: the reader, which it will close.
        pool: the threads for its reads, likewise.

    Attributes:
        reader: the reader. Its methods block the event loop where they read.
    """

    def __init__(self, reader: Reader, pool: Pool) -> None:
        self.reader, self._pool, self._is_closed = reader, pool, False

    async def __aenter__(self) -> Self:
        """Return the reader itself."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the reader."""
        await self.close()

    def __repr__(self) -> str:
        """Return the reader in short."""
        return f"<ztensor.aio.AsyncReader of {self.reader!r}>"

    async def close(self) -> None:
        """Wait for the reads, then close the file. May be called again."""
        self._is_closed = True
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._pool.shutdown(wait=True)
        self.reader.close()

    async def run(
        self, function: Callable[Concatenate[Reader, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Return the result of a function of the reader, such as `Reader.read_torch`.

        Args:
            function: called in a thread with the reader and the other arguments.
            args: passed on.
            kwargs: passed on.

        Raises:
            ClosedError: the reader is closed.
        """
        if self._is_closed:
            raise ClosedError("the reader is closed", file=self.reader.name)
        work = self._pool.submit(function, self.reader, *args, **kwargs)
        return await asyncio.wrap_future(work)

    def keys(self) -> list[str]:
        """Return all names, in the order of the file; nothing is read."""
        return self.reader.keys()

    async def metadata(self, name: str) -> TensorMetadata:
        """Return shape, types, attributes and components of an object."""
        return await self.run(Reader.metadata, name)

    async def read(self, name: str) -> Tensor:
        """Return an object of any layout, as `Reader.read` does."""
        return await self.run(Reader.read, name)

    async def read_numpy(self, name: str) -> Array:
        """Return a dense object as an array of its shape, as `Reader.read_numpy` does."""
        return await self.run(Reader.read_numpy, name)

    async def read_slice(self, name: str, index: Index) -> Array | Any:
        """Return the elements of an index, such as `numpy.s_[10:20, ::2]`; others are not read.

        Of a sparse or quantized object it is a `Tensor` of the rows, as for `Reader.get_slice`.
        """
        return await self.run(lambda reader: reader.get_slice(name)[index])

    async def read_slices(self, wanted: Mapping[str, Index]) -> dict[str, Array | Any]:
        """Return slices of several objects, by few requests; see `Reader.read_slices`."""
        return await self.run(Reader.read_slices, wanted)

    async def verify(
        self, names: Iterable[str] | None = None, *, deep: bool = False
    ) -> VerifyReport:
        """Check every stored byte, or the objects of some names; damage does not raise."""
        return await self.run(Reader.verify, names, deep=deep)
