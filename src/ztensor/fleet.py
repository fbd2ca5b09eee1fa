"""Verify, hash, convert and analyse many files at once, by any executor.

An executor implements `concurrent.futures.Executor`: a pool of threads or processes, Dask's
`Client.get_executor()`, `mpi4py.futures.MPIPoolExecutor`, loky's. It is sent a function of this
module, a path and plain options, and returns a report: no bytes of a file travel. Each file is
processed by one thread, as files are processed in parallel.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import queue
import signal
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from ztensor import Remote
from ztensor import open as open_reader
from ztensor.converting.conversion import convert_as
from ztensor.converting.settings import matching
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SourceError,
    UsageError,
    ZTensorError,
    counted,
    describe,
    without_secrets,
)
from ztensor.ext import FORMATS, ObjectReader, OpenFolder, is_remote, path_text
from ztensor.insight.analysis.identity import combined, tensor_hashes
from ztensor.insight.analysis.spreads import Scale
from ztensor.insight.analysis.statistics import BINS, QUANTILES, StatsReport
from ztensor.insight.analysis.statistics import stats as stats_of
from ztensor.insight.text import short_repr
from ztensor.options import ConvertOptions, FleetOptions, require_choice, require_options
from ztensor.typing import Path, Progress, Storage, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from typing import Unpack

    from ztensor import converting

    ConversionReport = converting.ConversionReport

__all__ = [
    "FileHash",
    "Processes",
    "convert_files",
    "hash_files",
    "stats_files",
    "verify_files",
]

OnError = Literal["collect", "raise"]
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Source = TypeVar("_Source", bound="Path")

# Files submitted at a time, for each worker of an executor: the current one and the next ones.
_EACH = 4
# Assumed if an executor does not state its number of workers.
_UNKNOWN_WORKERS = 64


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


@dataclasses.dataclass(frozen=True, slots=True)
class FileHash:
    """Ids of the contents of a file.

    Attributes:
        id: the id of all tensors, see `ztensor.content_hash`.
        tensors: the id of each tensor, see `ztensor.insight.tensor_hashes`.
    """

    id: str
    tensors: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the id of all tensors."""
        return short_repr("fleet.FileHash", [self.id, counted(len(self.tensors), "tensor")])


# --- The functions -----------------------------------------------------------------------------


def verify_files(
    sources: Iterable[_Source],
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    deep: bool = False,
    **options: Unpack[FleetOptions],
) -> Iterator[tuple[_Source, VerifyReport | ZTensorError]]:
    """Check every byte of many files; see `Reader.verify`.

    Args:
        sources: paths and URLs of files, indexes or folders. They are taken when workers are about
            to be free, so a generator of any length will do, for all functions of this module.
        include: patterns with `*`, `?` and `[...]`: only objects with a matching name.
        exclude: patterns: no objects with a matching name.
        deep: as for `Reader.verify`.
        options: see `ztensor.typing.FleetOptions`.

    Returns:
        An iterator of pairs in the order of completion: the source as given, and its report or a
        `ZTensorError`. Damage is not an error, but in the report. Each source comes exactly once,
        also if its file vanishes, its worker dies or the executor refuses it. Closing or dropping
        the iterator cancels the files that are not begun.

    Raises:
        ArgumentTypeError: `executor` has no `submit`.
        ArgumentValueError: an argument has a wrong value.
        ZTensorError: with `on_error="raise"`, the first error.
    """
    require_options("verify_files", options, FleetOptions)
    keywords = {**_chosen_by(include, exclude), "deep": deep}
    return _each(_verify, sources, keywords, **options)


def stats_files(
    sources: Iterable[_Source],
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    quantiles: Sequence[float] = QUANTILES,
    bins: int = BINS,
    scale: Scale = "linear",
    **options: Unpack[FleetOptions],
) -> Iterator[tuple[_Source, StatsReport | ZTensorError]]:
    """Return statistics of the values in many files; see `ztensor.stats`.

    Args:
        sources: as for `verify_files`.
        include: likewise.
        exclude: likewise.
        quantiles: as for `ztensor.stats`.
        bins: likewise.
        scale: likewise.
        options: see `ztensor.typing.FleetOptions`.

    Returns:
        An iterator of pairs of a source and its statistics or error, as for `verify_files`.

    Raises:
        ZTensorError: what `verify_files` raises.
    """
    require_options("stats_files", options, FleetOptions)
    keywords = {
        **_chosen_by(include, exclude),
        "quantiles": tuple(quantiles),
        "bins": bins,
        "scale": scale,
    }
    return _each(_stats, sources, keywords, **options)


def hash_files(
    sources: Iterable[_Source],
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    attributes: bool = False,
    **options: Unpack[FleetOptions],
) -> Iterator[tuple[_Source, FileHash | ZTensorError]]:
    """Return ids of the contents of many files; see `ztensor.content_hash`.

    Args:
        sources: as for `verify_files`.
        include: likewise.
        exclude: likewise.
        attributes: as for `ztensor.content_hash`.
        options: see `ztensor.typing.FleetOptions`.

    Returns:
        An iterator of pairs of a source and its ids or error, as for `verify_files`.

    Raises:
        ZTensorError: what `verify_files` raises.
    """
    require_options("hash_files", options, FleetOptions)
    keywords = {
        **_chosen_by(include, exclude),
        "attributes": attributes,
    }
    return _each(_hash, sources, keywords, **options)


def convert_files(
    sources: Iterable[_Source],
    folder: Path,
    *,
    to: str = "zt",
    overwrite: bool = False,
    executor: Executor | None = None,
    workers: int | None = None,
    on_error: OnError = "collect",
    storage: Storage | None = None,
    progress: Progress | None = None,
    **options: object,
) -> Iterator[tuple[_Source, ConversionReport | ZTensorError]]:
    """Convert each of many files to another format; see `ztensor.convert`.

    Args:
        sources: as for `verify_files`.
        folder: the folder or URL of the new files, created if missing. A new file has the name of
            its source with the suffix of its format. If two sources would get the same name, the
            second is an error.
        to: the format, as for `ztensor.convert`.
        overwrite: True replaces existing files, except the sources, which are all listed before the
            first is read.
        executor: see `ztensor.typing.FleetOptions`.
        workers: likewise.
        on_error: likewise.
        storage: likewise.
        progress: likewise.
        **options: other options of `ztensor.convert`, such as `compression`, `dtype` and `strict`.

    Returns:
        An iterator of pairs of a source and its report or error, as for `verify_files`.

    Raises:
        SourceError: the folder cannot be made.
        ZTensorError: what `verify_files` raises.
    """
    FORMATS.require_written(to)
    suffix = ".zt" if to == "zt" else FORMATS[to].suffixes[0]
    known = ConvertOptions.__annotations__.keys() - {"to", "overwrite", "threads", "progress"}
    for name in options:
        if name not in known:
            raise ArgumentValueError(
                "unknown option of convert_files",
                expected=f"one of {', '.join(sorted(known))}",
                found=describe(name),
            )
    target = path_text(folder, absolute=True)
    given = _listed(sources)
    if overwrite:
        given = list(given)
    kept = {_place_of(one): one for one in given if _is_path(one)} if overwrite else {}
    if not is_remote(target) and not options.get("dry_run"):
        OpenFolder.make(target)
    return _each(
        _convert,
        given,
        {**options, "to": to, "overwrite": overwrite},
        executor=executor,
        workers=workers,
        on_error=on_error,
        storage=storage,
        progress=progress,
        sent=_Targets(target, suffix, kept, storage),
    )


def _chosen_by(include: Any, exclude: Any) -> dict[str, list[str] | None]:
    """Return the patterns as lists, or None."""
    patterns = {"include": include, "exclude": exclude}
    return {
        key: [value] if isinstance(value, str) else None if value is None else list(value)
        for key, value in patterns.items()
    }


# --- Functions of a worker ---------------------------------------------------------------------


def _names(reader: ObjectReader, include: Any, exclude: Any) -> list[str] | None:
    if include is None and exclude is None:
        return None
    return matching(reader, include, exclude)


def _verify(path: Any, *, include: Any, exclude: Any, deep: bool) -> VerifyReport:
    with open_reader(path, mmap=False) as reader:
        names = _names(reader, include, exclude)
        report: VerifyReport = reader.verify(names, deep=deep, threads=1)
        return report


def _stats(path: Any, *, include: Any, exclude: Any, **options: Any) -> StatsReport:
    with open_reader(path, mmap=False) as reader:
        return stats_of(reader, _names(reader, include, exclude), threads=1, **options)


def _hash(path: Any, *, include: Any, exclude: Any, attributes: bool) -> FileHash:
    with open_reader(path, mmap=False) as reader:
        names = _names(reader, include, exclude)
        ids = tensor_hashes(reader, names, attributes=attributes, threads=1)
        return FileHash(combined(ids, reader.attributes if attributes else None), ids)


def _convert(pair: tuple[Any, Any], **options: Any) -> ConversionReport:
    # A dry run creates no folder.
    with open_reader(pair[0], mmap=False) as reader:
        return convert_as(reader, pair[1], threads=1, makes_folder=True, **options)


def _tried(work: Callable[..., _T], given: Any, options: Mapping[str, Any]) -> _T | ZTensorError:
    """Return the report on a file, or the error: it must not be raised in the worker."""
    try:
        return work(given, **options)
    except ZTensorError as error:
        error.__traceback__ = None  # its frames reference the data
        return error


class _Targets:
    """Assigns each source the path of its new file, and no path twice.

    Args:
        folder: the folder of the new files.
        suffix: the suffix of the new files.
        kept: files that must not be replaced, by `_place_of`.
        storage: options of the store if the folder is a URL.
    """

    def __init__(self, folder: str, suffix: str, kept: Mapping[str, Any], storage: Any) -> None:
        self._folder, self._suffix, self._kept = folder.rstrip("/"), suffix, kept
        self._storage = storage if is_remote(folder) else None
        self._made: dict[str, Any] = {}

    def __call__(self, source: Any) -> tuple[Any, Any]:
        """Return a source and the place of its new file.

        Raises:
            UsageError: another source has the same path.
        """
        path = f"{self._folder}/{_stem(without_secrets(path_text(source)))}{self._suffix}"
        place = _place_of(path)
        if place in self._made:
            other = describe(without_secrets(path_text(self._made[place])), 200)
            raise UsageError(f"{other} has the same new file", file=str(source), found=path)
        if place in self._kept:
            raise UsageError("the new file would replace a source", file=str(source), found=path)
        self._made[place] = source
        return source, path if self._storage is None else Remote(path, self._storage)


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, bytes, os.PathLike))


def _place_of(path: Any) -> str:
    """Return a key that is equal for all spellings of a path."""
    text = path_text(path, absolute=True)
    return text if is_remote(text) else os.path.normcase(os.path.realpath(text))


def _stem(path: str) -> str:
    """Return the name of a model: a file's without suffix, a folder's, or an index's model."""
    name = os.path.basename(path.rstrip("/" + os.sep))
    if os.path.isdir(path):
        return name
    return os.path.splitext(name.removesuffix(".index.json"))[0]


# --- Submission and results --------------------------------------------------------------------


def _each(
    work: Callable[..., _T],
    sources: Iterable[_Source],
    keywords: Mapping[str, Any],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    on_error: OnError = "collect",
    storage: Storage | None = None,
    progress: Progress | None = None,
    sent: Callable[[Any], Any] = lambda source: source,
) -> Iterator[tuple[_Source, _T | ZTensorError]]:
    """Check the options, and return an iterator of results; see `FleetOptions`."""
    require_choice("on_error", on_error, ("collect", "raise"))
    if workers is not None and (
        isinstance(workers, bool) or not isinstance(workers, int) or workers < 1
    ):
        raise ArgumentValueError("workers must be a positive integer", found=describe(workers, 40))
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise ArgumentTypeError(
            "executor must have a method submit",
            expected="one of concurrent.futures, or None",
            found=describe(executor, 80),
        )

    def job_of(source: Any) -> Callable[[], Any]:
        """Return a picklable function that processes a source."""
        if not isinstance(source, Remote):
            path = path_text(source, absolute=True)  # a worker may have another working directory
            has_storage = storage is not None and is_remote(path)
            source = Remote(path, storage) if has_storage else path
        return functools.partial(_tried, work, sent(source), keywords)

    return _results(executor, workers, job_of, _listed(sources), on_error, progress)


def _listed(sources: Any) -> Any:
    """Return the sources as an iterable; a single path is one source."""
    if _is_path(sources):
        return [sources]
    try:
        iter(sources)
    except TypeError:
        raise ArgumentTypeError(
            "sources must be paths", expected="several of them", found=describe(sources, 80)
        ) from None
    return sources


def _results(
    executor: Executor | None,
    workers: int | None,
    job_of: Callable[[Any], Callable[[], Any]],
    sources: Any,
    on_error: OnError,
    progress: Progress | None,
) -> Iterator[tuple[Any, Any]]:
    """Yield pairs and report progress; raise the first error with `on_error="raise"`."""
    begun = 0

    def jobs() -> Iterator[tuple[Any, Callable[[], Any] | ZTensorError]]:
        nonlocal begun
        for source in sources:
            begun += 1
            try:
                yield source, job_of(source)
            except ZTensorError as error:
                yield source, error

    if executor is None:
        done = ((source, job() if callable(job) else job) for source, job in jobs())
    else:
        done = _by(executor, workers, jobs())
    try:
        for count, (source, report) in enumerate(done, 1):
            if progress is not None:
                progress(count, len(sources) if hasattr(sources, "__len__") else begun)
            if on_error == "raise" and isinstance(report, ZTensorError):
                raise report
            yield source, report
    finally:
        done.close()


def _by(
    executor: Any,
    workers: int | None,
    jobs: Iterator[tuple[Any, Callable[[], Any] | ZTensorError]],
) -> Generator[tuple[Any, Any], None, None]:
    """Yield pairs in the order of completion."""
    if workers is None:
        # A private attribute of the standard library's pools, loky's and others: no method returns
        # it.
        workers = getattr(executor, "_max_workers", None)
    if not isinstance(workers, int) or workers < 1:
        workers = _UNKNOWN_WORKERS
    pending: dict[Future[Any], tuple[Any, Callable[[], Any]]] = {}
    done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    try:
        while True:
            while len(pending) < _EACH * workers and (following := next(jobs, None)):
                source, job = following
                if isinstance(job, ZTensorError):
                    yield source, job
                    continue
                try:
                    future = executor.submit(job)
                except Exception as error:  # noqa: BLE001  # of the executor's code
                    yield source, _of_executor(error, source)
                    continue
                pending[future] = source, job
                future.add_done_callback(done.put)
            if not pending:
                return
            future = done.get()
            source, job = pending.pop(future)
            yield source, _result_of(executor, future, source, job)
    finally:
        for future in pending:
            future.cancel()


def _result_of(executor: Any, future: Future[Any], source: Any, job: Callable[[], Any]) -> Any:
    """Return the result of a job, or the error of an executor that did not finish it."""
    can_go_alone = hasattr(executor, "alone")
    try:
        try:
            return future.result()
        except BrokenExecutor:
            # Only a run alone shows which file kills a worker.
            if not can_go_alone:
                raise
            return executor.alone(job)
    except Exception as error:  # noqa: BLE001  # of the executor's code
        return _of_executor(error, source, was_alone=can_go_alone)


def _of_executor(error: Exception, source: Any, *, was_alone: bool = False) -> SourceError:
    """Return the error for a file that an executor did not finish."""
    name = path_text(source)
    if isinstance(error, BrokenExecutor):
        detail = (
            ", twice, the second time with this file alone"
            if was_alone
            else ", or a worker beside it"
        )
        ours = SourceError(f"the worker that had this file died{detail}", file=name)
        ours.hint = "if memory ran out, use fewer workers; then go on with the files that are left"
    elif isinstance(error, CancelledError):
        ours = SourceError("the executor dropped this file", file=name)
    else:
        ours = SourceError("the executor did not finish this file", file=name)
    ours.found = f"{type(error).__name__} {describe(str(error), 200)}"
    ours.__cause__ = error
    return ours


# --- Processes of this machine -----------------------------------------------------------------


class Processes(concurrent.futures.Executor):
    """Worker processes of this machine; the death of one costs no other file its result.

    If a worker of a `concurrent.futures.ProcessPoolExecutor` is killed, all workers end and all
    their files fail. Here new processes are started, and each of these files is processed again by
    a process of its own. Processes are spawned, so the main module must guard its work by `if
    __name__ == "__main__":`.

    Args:
        count: the number of processes; by default the number of processors.

    Raises:
        ValueError: `count` is not positive.
    """

    def __init__(self, count: int | None = None) -> None:
        self._pool = _pool(count)
        # The attribute of other executors that `_by` reads.
        self._max_workers = os.cpu_count() or 1 if count is None else count

    def submit(
        self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> concurrent.futures.Future[_T]:
        """Submit work to a process; see `concurrent.futures.Executor`."""
        try:
            return self._pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = _pool(self._max_workers)
            return self._pool.submit(fn, *args, **kwargs)

    def alone(self, job: Callable[[], _T]) -> _T:
        """Return the result of a job that runs alone in a process.

        Raises:
            BrokenProcessPool: the process died again.
            Exception: errors of the job.
        """
        with _pool(1) as pool:
            return pool.submit(job).result()

    def shutdown(  # as of the base class
        self,
        wait: bool = True,  # noqa: FBT001, FBT002
        *,
        cancel_futures: bool = False,
    ) -> None:
        """End the processes; see `concurrent.futures.Executor`."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _pool(count: int | None) -> ProcessPoolExecutor:
    # Not forked: a fork would copy held locks, but no threads.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        count, context, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
