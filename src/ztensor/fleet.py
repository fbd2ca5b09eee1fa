"""Many files at once: verified, hashed, converted, their values looked at, by any executor.

An executor is what `concurrent.futures` calls one: a pool of threads or processes, Dask's
`Client.get_executor()`, `mpi4py.futures.MPIPoolExecutor`, loky's. What it is sent is a function of
this module, a path and plain options, and what comes back is a report: no bytes of a file travel.
Each file is done by one thread, since files are what is done side by side.

    with concurrent.futures.ProcessPoolExecutor() as pool:
        for path, found in ztensor.fleet.verify_files(paths, executor=pool):
            ...
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import inspect
import os
import queue
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ztensor.analysis.identity import combined, tensor_hashes
from ztensor.analysis.statistics import BINS, QUANTILES
from ztensor.analysis.statistics import stats as stats_of
from ztensor.boundary import public
from ztensor.converting import convert
from ztensor.converting.asking import matching
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SourceError,
    UsageError,
    ZTensorError,
    describe,
    without_secrets,
)
from ztensor.model.formats import require_written, written_formats
from ztensor.model.showing import counted, short_repr
from ztensor.opening import open as open_reader
from ztensor.sharded.naming import stem_of
from ztensor.source.paths import is_path, path_text
from ztensor.source.table import absolute, is_remote
from ztensor.source.urls import Remote, with_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from ztensor.analysis.spreads import Scale
    from ztensor.analysis.statistics import StatsReport
    from ztensor.converting import ConversionReport
    from ztensor.reading.reader import ObjectReader
    from ztensor.reading.verify import VerifyReport
    from ztensor.typing import Path

    Progress = Callable[[int, int], None]
    OnError = Literal["collect", "raise"]

__all__ = ["FileHash", "convert_files", "hash_files", "stats_files", "verify_files"]

_T = TypeVar("_T")
_Source = TypeVar("_Source", bound="Path")

# Files that an executor has at a time, for each of its workers: one in work, and the next ones.
_EACH = 4
# Taken where an executor does not tell how many workers it has.
_UNKNOWN_WORKERS = 64


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


@dataclasses.dataclass(frozen=True, slots=True)
class FileHash:
    """Ids of what a file holds.

    Attributes:
        id: of all tensors, as `ztensor.content_hash` gives it.
        tensors: of each, as `ztensor.tensor_hashes` gives them.
    """

    id: str
    tensors: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the id of all."""
        return short_repr("FileHash", [self.id, counted(len(self.tensors), "tensor")])


# --- What is sent to a worker ------------------------------------------------------------------


def _verify(
    path: Any, *, include: Sequence[str] | None, exclude: Sequence[str] | None, deep: bool
) -> VerifyReport:
    with open_reader(path, mmap=False) as reader:
        names = _chosen(reader, include, exclude)
        report: VerifyReport = reader.verify(names, deep=deep, threads=1)
        return report


def _stats(
    path: Any, *, include: Sequence[str] | None, exclude: Sequence[str] | None, **options: Any
) -> StatsReport:
    with open_reader(path, mmap=False) as reader:
        return stats_of(reader, _chosen(reader, include, exclude), threads=1, **options)


def _hash(
    path: Any,
    *,
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
    attributes: bool,
) -> FileHash:
    with open_reader(path, mmap=False) as reader:
        names = _chosen(reader, include, exclude)
        ids = tensor_hashes(reader, names, attributes=attributes, threads=1)
        return FileHash(combined(ids, reader.attributes if attributes else None), ids)


def _convert(pair: tuple[Any, Any], **options: Any) -> ConversionReport:
    with open_reader(pair[0], mmap=False) as reader:
        return convert(reader, pair[1], threads=1, **options)


def _chosen(
    reader: ObjectReader, include: Sequence[str] | None, exclude: Sequence[str] | None
) -> list[str] | None:
    if include is None and exclude is None:
        return None
    return matching(reader, include, exclude)


def _tried(work: Callable[..., _T], given: Any, options: Mapping[str, Any]) -> _T | ZTensorError:
    """Return what is found of a file, or the error: an executor has nothing to raise.

    Whatever else is raised becomes one of ours at the edge of the public function that is called.
    """
    try:
        return work(given, **options)
    except ZTensorError as error:
        error.__traceback__ = None  # its frames hold what was read
        return error


# --- The functions -----------------------------------------------------------------------------


@public
def verify_files(
    sources: Iterable[_Source],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    on_error: OnError = "collect",
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    deep: bool = False,
    storage: object = None,
    progress: Progress | None = None,
) -> Iterator[tuple[_Source, VerifyReport | ZTensorError]]:
    """Check every byte of many files; see `Reader.verify`.

    Args:
        sources: paths and URLs of files, indexes or folders; one after the other is taken when a
            worker is about to be free, so a generator of a million is as good as a list. The same
            goes for all functions of this module.
        executor: what does the work: any `concurrent.futures.Executor`. None does it here, one
            file for each result that is asked for. It is not shut down.
        workers: how many files the executor does at a time, where it does not say: it gets at most
            four times as many files ahead.
        on_error: "collect" gives a file's error in the place of its report; "raise" raises the
            first, and drops what has not begun.
        include: patterns with `*`, `?` and `[...]`; only objects whose name matches one.
        exclude: likewise; no objects whose name matches one.
        deep: as for `Reader.verify`.
        storage: as for `ztensor.open`, for URLs; it is sent to the workers.
        progress: called with the files that are done and those there are; where `sources` has no
            length, with those that were begun.

    Returns:
        An iterator of pairs, in the order in which files are done: the source as it was given, and
        its report or one error of ours. Damage is no error, but in the report. Each source comes
        once, whatever happens: a file that vanishes, a worker that dies, an executor that refuses.
        An iterator that is closed or dropped before its end cancels what has not begun.

    Raises:
        ArgumentTypeError: `executor` is none.
        ArgumentValueError: another argument has a value that cannot work.
        ZTensorError: with `on_error="raise"`, the first error.
    """
    options = {"include": _patterns(include), "exclude": _patterns(exclude), "deep": deep}
    return _each(_verify, sources, options, executor, workers, on_error, storage, progress)


@public
def stats_files(
    sources: Iterable[_Source],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    on_error: OnError = "collect",
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    quantiles: Sequence[float] = QUANTILES,
    bins: int = BINS,
    scale: Scale = "linear",
    storage: object = None,
    progress: Progress | None = None,
) -> Iterator[tuple[_Source, StatsReport | ZTensorError]]:
    """Return what the values of the objects of many files are like; see `ztensor.stats`.

    Args:
        sources: as for `verify_files`.
        executor: likewise.
        workers: likewise.
        on_error: likewise.
        include: likewise.
        exclude: likewise.
        quantiles: as for `ztensor.stats`.
        bins: likewise.
        scale: likewise.
        storage: as for `verify_files`.
        progress: likewise.

    Returns:
        An iterator of pairs of a source and its statistics or error, as for `verify_files`.

    Raises:
        ZTensorError: what `verify_files` raises.
    """
    options = {
        "include": _patterns(include),
        "exclude": _patterns(exclude),
        "quantiles": tuple(quantiles),
        "bins": bins,
        "scale": scale,
    }
    return _each(_stats, sources, options, executor, workers, on_error, storage, progress)


@public
def hash_files(
    sources: Iterable[_Source],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    on_error: OnError = "collect",
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    attributes: bool = False,
    storage: object = None,
    progress: Progress | None = None,
) -> Iterator[tuple[_Source, FileHash | ZTensorError]]:
    """Return ids of what each of many files holds; see `ztensor.content_hash`.

    Args:
        sources: as for `verify_files`.
        executor: likewise.
        workers: likewise.
        on_error: likewise.
        include: likewise.
        exclude: likewise.
        attributes: as for `ztensor.content_hash`.
        storage: as for `verify_files`.
        progress: likewise.

    Returns:
        An iterator of pairs of a source and its ids or error, as for `verify_files`.

    Raises:
        ZTensorError: what `verify_files` raises.
    """
    options = {
        "include": _patterns(include),
        "exclude": _patterns(exclude),
        "attributes": attributes,
    }
    return _each(_hash, sources, options, executor, workers, on_error, storage, progress)


@public
def convert_files(
    sources: Iterable[_Source],
    folder: Path,
    *,
    to: str = "zt",
    overwrite: bool = False,
    executor: Executor | None = None,
    workers: int | None = None,
    on_error: OnError = "collect",
    storage: object = None,
    progress: Progress | None = None,
    **options: object,
) -> Iterator[tuple[_Source, ConversionReport | ZTensorError]]:
    """Write what each of many files holds as a file of another format; see `ztensor.convert`.

    Args:
        sources: as for `verify_files`.
        folder: where the new files go, a folder or a URL; it is made where it is not there. A new
            file has the name of its source with the suffix of its format. Two sources that would
            get one name are no two files: the second is an error.
        to: the format, as for `ztensor.convert`.
        overwrite: True replaces files that are there, but none of the sources; they are all listed
            before the first is read.
        executor: as for `verify_files`.
        workers: likewise.
        on_error: likewise.
        storage: likewise.
        progress: likewise.
        **options: others of `ztensor.convert`, such as `compression`, `dtype` and `strict`.

    Returns:
        An iterator of pairs of a source and its report or error, as for `verify_files`.

    Raises:
        SourceError: the folder cannot be made.
        ZTensorError: what `verify_files` raises.
    """
    suffix = written_formats()[require_written(to)][0]
    taken = {"source", "path", "to", "overwrite", "threads", "progress"}
    known = [name for name in inspect.signature(convert).parameters if name not in taken]
    for name in options:
        if name not in known:
            raise ArgumentValueError(
                "this is no option of a conversion of many files",
                expected=f"one of {', '.join(known)}",
                found=describe(name),
            )
    target = absolute(path_text(folder))
    given = _listed(sources)
    if overwrite:
        given = list(given)
    naming = _Naming(target, suffix, given if overwrite else (), storage)
    if not is_remote(target) and not options.get("dry_run"):
        try:
            os.makedirs(target, exist_ok=True)
        except OSError as error:
            raise SourceError.from_os(error, "cannot make the folder", target) from error
    every = {**options, "to": to, "overwrite": overwrite}
    return _each(_convert, given, every, executor, workers, on_error, storage, progress, naming)


class _Naming:
    """Gives each source the path of its new file, and none to two.

    Args:
        folder: where new files go.
        suffix: of new files.
        sources: files that are not replaced.
        storage: how the store of the folder is opened, where it is a URL.
    """

    def __init__(self, folder: str, suffix: str, sources: Iterable[Any], storage: object) -> None:
        self._folder, self._suffix = folder.rstrip("/"), suffix
        self._storage = storage if is_remote(folder) else None
        self._given = {_real(one): one for one in sources if is_path(one)}
        self._made: dict[str, Any] = {}

    def __call__(self, source: Any) -> tuple[Any, Any]:
        """Return what is sent for a source: it, and where it goes.

        Raises:
            UsageError: another has that path.
        """
        name = without_secrets(path_text(source))
        path = f"{self._folder}/{stem_of(name)}{self._suffix}"
        place = _real(path)
        if place in self._made:
            other = describe(str(self._made[place]), 200)
            raise UsageError(f"{other} has the same new file", file=str(source), found=path)
        if place in self._given:
            raise UsageError("the new file would replace a source", file=str(source), found=path)
        self._made[place] = source
        return source, with_storage(path, self._storage)


def _real(path: Any) -> str:
    text = absolute(path_text(path))
    return text if is_remote(text) else os.path.normcase(os.path.realpath(text))


# --- The loop ----------------------------------------------------------------------------------


def _each(
    work: Callable[..., _T],
    sources: Iterable[_Source],
    options: Mapping[str, Any],
    executor: Executor | None,
    workers: int | None,
    on_error: OnError,
    storage: object,
    progress: Progress | None,
    sent: Callable[[Any], Any] = lambda source: source,
) -> Iterator[tuple[_Source, _T | ZTensorError]]:
    """Check what was asked for, and return the results as they come."""
    if on_error not in ("collect", "raise"):
        raise ArgumentValueError(
            "no such way to treat errors", expected="'collect' or 'raise'", found=describe(on_error)
        )
    if workers is not None and (
        isinstance(workers, bool) or not isinstance(workers, int) or workers < 1
    ):
        raise ArgumentValueError("workers must be a positive integer", found=describe(workers, 40))
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise ArgumentTypeError(
            "this is no executor",
            expected="one of concurrent.futures, or None",
            found=describe(executor, 80),
        )
    given = _listed(sources)
    total = len(given) if hasattr(given, "__len__") else None
    jobs = _Jobs(work, dict(options), storage, sent)
    if executor is None:
        done = _here(jobs, given)
    else:
        done = _by(executor, _most(executor, workers), jobs, given)
    return _told(done, on_error, total, progress, jobs)


def _listed(sources: Any) -> Any:
    """Return sources as they can be gone through; a path is one, not its letters."""
    if isinstance(sources, (str, bytes, os.PathLike)):
        return [sources]
    try:
        iter(sources)
    except TypeError:
        raise ArgumentTypeError(
            "these are no paths", expected="several of them", found=describe(sources, 80)
        ) from None
    return sources


def _patterns(patterns: Any) -> list[str] | None:
    if patterns is None:
        return None
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _most(executor: Any, workers: int | None) -> int:
    """Return how many files an executor is given ahead."""
    if workers is None:
        # What the standard library's pools, loky's and others keep it as; no method tells.
        workers = getattr(executor, "_max_workers", None)
    if not isinstance(workers, int) or workers < 1:
        workers = _UNKNOWN_WORKERS
    return _EACH * workers


class _Jobs:
    """What is called for each source.

    Args:
        work: a function of this module.
        options: what it takes beside the source, plain values.
        storage: how stores of URLs are opened.
        sent: makes of a source what the function takes.

    Attributes:
        begun: how many files were.
    """

    def __init__(
        self,
        work: Callable[..., Any],
        options: dict[str, Any],
        storage: object,
        sent: Callable[[Any], Any],
    ) -> None:
        self._work, self._options = work, options
        self._storage, self._sent = storage, sent
        self.begun = 0

    def of(self, source: Any) -> Callable[[], Any]:
        """Return what does the work for a source, wherever it is called.

        Raises:
            ZTensorError: the source is no path.
        """
        self.begun += 1
        if not isinstance(source, Remote):
            path = absolute(path_text(source))  # a worker may have another folder
            source = with_storage(path, self._storage) if is_remote(path) else path
        return functools.partial(_tried, self._work, self._sent(source), self._options)


def _here(jobs: _Jobs, sources: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for source in sources:
        try:
            job = jobs.of(source)
        except ZTensorError as error:
            yield source, error
        else:
            yield source, job()


def _by(
    executor: Executor, most: int, jobs: _Jobs, sources: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
    left = iter(sources)
    pending: dict[Future[Any], Any] = {}
    done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    is_end = False
    try:
        while True:
            while not is_end and len(pending) < most:
                try:
                    source = next(left)
                except StopIteration:
                    is_end = True
                    break
                try:
                    future = executor.submit(jobs.of(source))
                except ZTensorError as error:
                    yield source, error
                except Exception as error:  # noqa: BLE001  # of the executor's code
                    yield source, _of_executor(error, source)
                else:
                    pending[future] = source
                    future.add_done_callback(done.put)
            if not pending:
                return
            future = done.get()
            source = pending.pop(future)
            try:
                found = future.result()
            except Exception as error:  # noqa: BLE001  # of the executor's code
                found = _of_executor(error, source)
            yield source, found
    finally:
        for future in pending:
            future.cancel()


def _of_executor(error: Exception, source: Any) -> SourceError:
    """Return the error for a file that an executor did not bring to an end."""
    name = path_text(source)
    if isinstance(error, concurrent.futures.BrokenExecutor):
        told = SourceError("the worker that had this file died, or one beside it", file=name)
        told.hint = "if memory ran out, use fewer workers; then go on with the files that are left"
    elif isinstance(error, concurrent.futures.CancelledError):
        told = SourceError("the executor dropped this file", file=name)
    else:
        told = SourceError("the executor did not bring this file to an end", file=name)
    told.found = f"{type(error).__name__} {describe(str(error), 200)}"
    told.__cause__ = error
    return told


@public
def _told(
    done: Iterator[tuple[Any, Any]],
    on_error: OnError,
    total: int | None,
    progress: Progress | None,
    jobs: _Jobs,
) -> Iterator[tuple[Any, Any]]:
    """Yield pairs, say how far it is, and raise where that is asked for."""
    try:
        for count, (source, found) in enumerate(done, 1):
            if progress is not None:
                progress(count, jobs.begun if total is None else total)
            if on_error == "raise" and isinstance(found, ZTensorError):
                raise found
            yield source, found
    finally:
        close = getattr(done, "close", None)
        if close is not None:
            close()
