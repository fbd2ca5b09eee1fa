"""The loop: a few files at a time to an executor, and each file's result or error, once."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import queue
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ztensor import Remote
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SourceError,
    ZTensorError,
    describe,
)
from ztensor.ext import is_remote, path_text
from ztensor.options import require_choice
from ztensor.typing import Path, Progress, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Executor, Future


OnError = Literal["collect", "raise"]
_T = TypeVar("_T")
_Source = TypeVar("_Source", bound="Path")

# Files that an executor has at a time, for each of its workers: one in work, and the next ones.
_EACH = 4
# Taken where an executor does not tell how many workers it has.
_UNKNOWN_WORKERS = 64


def each(
    work: Callable[..., _T],
    sources: Iterable[_Source],
    options: Mapping[str, Any],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    on_error: OnError = "collect",
    storage: Storage | None = None,
    progress: Progress | None = None,
    sent: Callable[[Any], Any] = lambda source: source,
) -> Iterator[tuple[_Source, _T | ZTensorError]]:
    """Check what was asked for, and return the results as they come; see `FleetOptions`."""
    require_choice("on_error", on_error, ("collect", "raise"))
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
    given = listed(sources)
    total = len(given) if hasattr(given, "__len__") else None
    jobs = _Jobs(work, dict(options), storage, sent)
    if executor is None:
        done = _here(jobs, given)
    else:
        done = _by(executor, _most(executor, workers), jobs, given)
    return _told(done, on_error, total, progress, jobs)


def listed(sources: Any) -> Any:
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
        storage: Any,
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
            path = path_text(source, absolute=True)  # a worker may have another folder
            has_storage = self._storage is not None and is_remote(path)
            source = Remote(path, self._storage) if has_storage else path
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
    pending: dict[Future[Any], tuple[Any, Callable[[], Any]]] = {}
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
                    job = jobs.of(source)
                    future = executor.submit(job)
                except ZTensorError as error:
                    yield source, error
                except Exception as error:  # noqa: BLE001  # of the executor's code
                    yield source, _of_executor(error, source)
                else:
                    pending[future] = source, job
                    future.add_done_callback(done.put)
            if not pending:
                return
            future = done.get()
            source, job = pending.pop(future)
            try:
                try:
                    found = future.result()
                except concurrent.futures.BrokenExecutor:
                    # Nothing tells which file took the worker down, but that it does so alone.
                    if not hasattr(executor, "alone"):
                        raise
                    found = executor.alone(job)
            except Exception as error:  # noqa: BLE001  # of the executor's code
                found = _of_executor(error, source, was_alone=hasattr(executor, "alone"))
            yield source, found
    finally:
        for future in pending:
            future.cancel()


def _of_executor(error: Exception, source: Any, *, was_alone: bool = False) -> SourceError:
    """Return the error for a file that an executor did not bring to an end."""
    name = path_text(source)
    if isinstance(error, concurrent.futures.BrokenExecutor):
        how = ", twice, the second time with nothing else" if was_alone else ", or one beside it"
        told = SourceError(f"the worker that had this file died{how}", file=name)
        told.hint = "if memory ran out, use fewer workers; then go on with the files that are left"
    elif isinstance(error, concurrent.futures.CancelledError):
        told = SourceError("the executor dropped this file", file=name)
    else:
        told = SourceError("the executor did not bring this file to an end", file=name)
    told.found = f"{type(error).__name__} {describe(str(error), 200)}"
    told.__cause__ = error
    return told


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


def _tried(work: Callable[..., _T], given: Any, options: Mapping[str, Any]) -> _T | ZTensorError:
    """Return what is found of a file, or the error: an executor has nothing to raise.

    Whatever else is raised becomes one of ours at the edge of the public function that is called.
    """
    try:
        return work(given, **options)
    except ZTensorError as error:
        error.__traceback__ = None  # its frames hold what was read
        return error
