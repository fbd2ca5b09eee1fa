"""A weight iterator: all tensors of a model in file order, prefetched by threads.

Few tensors are in memory at a time. Other threads read and check the next ones.
"""

from __future__ import annotations

import collections
import contextlib
from typing import TYPE_CHECKING, Any

from ztensor import Reader, Tensor
from ztensor import open as open_files
from ztensor.errors import UsageError
from ztensor.ext import FRAMEWORKS, FileObjects, Pool, thread_count
from ztensor.handle import device_of, framework_of
from ztensor.options import OpenOptions, keeps, parse_size, require_options
from ztensor.typing import JaxDevice, Openable, TorchDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from typing import Unpack

    Make = Callable[[Any], Any]

__all__ = ["iterate"]


def iterate(
    source: Openable,
    framework: str = "numpy",
    device: TorchDevice | JaxDevice | None = "cpu",
    *,
    only: str | Iterable[str] | None = None,
    ahead: int | str = "256MiB",
    threads: int | None = None,
    **options: Unpack[OpenOptions],
) -> Iterator[tuple[str, Any]]:
    """Iterate over all tensors of a model in file order, with few of them in memory at a time.

        model.load_weights(ztensor.iterate("s3://bucket/model/", "pt"))

    Threads read the next tensors while one is used. Each has memory of its own, to which the
    iterator keeps no reference, and is checked against its digest.

    Args:
        source: a file, a folder or index of shards, a URL, or another source of `ztensor.open`, of
            any format.
        framework: framework of the tensors, as for `ztensor.safe_open`: "numpy", "pt" or "jax".
        device: device of the tensors, as for `ztensor.safe_open`; each is moved when it is
            requested.
        only: a pattern, or several, with `*`, `?` and `[...]`: only these names are read.
        ahead: most bytes of prefetched tensors: a number or text such as `"1GB"`. A larger tensor
            is read when no other waits. Of a URL, up to 96 MiB of stored bytes are held besides.
        threads: how many read and decompress. Over a network it is 1: the source fetches several
            ranges concurrently.
        options: see `ztensor.typing.OpenOptions`.

    Returns:
        An iterator of pairs of a name and a tensor; quantized objects, and for NumPy sparse ones,
        are `ztensor.Tensor`. It closes the files at its end, or by its `close()`.

    Raises:
        ArgumentValueError: the framework or device is unknown, or `ahead` is not a size.
        MissingDependencyError: the framework is not installed.
        FormatError: a file is damaged; for a tensor's bytes, when that tensor is requested.
        UnsupportedError: a type or encoding is unknown here or to the framework.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    require_options("iterate", options, OpenOptions)
    home = framework_of(framework)
    make = _maker(home, device_of(home, device))
    most = parse_size(ahead)
    workers = thread_count(threads)
    keep = None if only is None else keeps([only] if isinstance(only, str) else only)
    reader = open_files(source, **options)
    return _tensors(reader, keep, make, most, workers)


def _maker(framework: str, device: Any) -> Make:
    """Return a function from an array or a `Tensor` to a value of the framework."""
    if framework == "numpy":
        return lambda value: value
    home = FRAMEWORKS[framework].loaded()

    def make(value: Any) -> Any:
        tensor = value if isinstance(value, Tensor) else Tensor(value)
        if tensor.format == "dense":
            return home.value_of(tensor, device=device)
        with contextlib.suppress(UsageError):  # the framework has no such layout
            return home.value_of(tensor, device=device)
        return tensor

    return make


def _tensors(
    reader: Reader, keep: Callable[[str], bool] | None, make: Make, most: int, workers: int
) -> Iterator[tuple[str, Any]]:
    with reader:
        for file in reader.objects.parts():
            chosen = [name for name in file.names if keep is None or keep(name)]
            if reader.objects.is_set:  # a file may have more than the index takes from it
                names = reader.objects.names
                chosen = [n for n in chosen if n in names and reader.objects.part(n) is file]
            with file.walked() if keep is None else contextlib.nullcontext():
                for name, value in _read(file, _in_order(file, chosen), most, workers):
                    with file.located(name):
                        made = make(value)
                    del value
                    yield name, made
                    del made  # so that the caller can free it


def _in_order(file: FileObjects, names: list[str]) -> list[str]:
    """Return names in the order of their bytes."""
    if file.source.prefers_long_reads:
        return file.in_file_order(names)

    def place(name: str) -> int:
        components = file.object(name).components.values()
        return min((component.offset for component in components), default=0)

    return sorted(names, key=place)


def _read(
    file: FileObjects, names: Iterable[str], most: int, workers: int
) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a file, prefetched by threads."""
    pool = Pool(min(workers, file.thread_count(workers)))
    waiting: collections.deque[tuple[str, int, Future[Any]]] = collections.deque()
    remaining = ((name, _length(file, name, most)) for name in names)
    following = next(remaining, None)
    held = 0
    try:
        while waiting or following is not None:
            while following is not None and (not waiting or held + following[1] <= most):
                name, nbytes = following
                waiting.append((name, nbytes, pool.submit(file.value, name, copy=True)))
                held += nbytes
                following = next(remaining, None)
            name, nbytes, future = waiting.popleft()
            value = future.result()
            del future
            held -= nbytes
            yield name, value
            del value
    finally:
        pool.close()


def _length(file: FileObjects, name: str, unknown: int) -> int:
    """Return the bytes of an object in memory; `unknown` if only reading it reveals them."""
    lengths = [file.known_length(name, role) for role in file.object(name).components]
    return sum(unknown if length is None else length for length in lengths)
