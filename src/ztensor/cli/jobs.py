"""Several files at once: the executors of `--jobs` and `--scheduler`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli.verb import STDIN
from ztensor.errors import MissingDependencyError, SourceError, UsageError, describe

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

_PATIENCE_SECONDS = 10


def are_asked(options: Namespace) -> bool:
    """Return whether files are processed concurrently."""
    return options.jobs is not None or options.scheduler is not None


@contextlib.contextmanager
def executing(options: Namespace, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Give the arguments of a function of `ztensor.fleet`: an executor and its number of workers.

    Raises:
        UsageError: standard input is among the files, or both options are given.
        MissingDependencyError: `distributed` is not installed.
        SourceError: no scheduler answers.
    """
    if STDIN in files:
        raise UsageError("standard input is read by this process alone: leave out --jobs")
    if options.scheduler is not None and options.jobs is not None:
        raise UsageError("give --jobs or --scheduler: a scheduler has workers of its own")
    if options.scheduler is not None:
        yield from _of_scheduler(options.scheduler)
        return
    count = min(options.jobs or 1, len(files))
    if count < 2:
        yield {}
        return
    with ztensor.fleet.Processes(count) as pool:
        yield {"executor": pool}


def _of_scheduler(address: str) -> Iterator[dict[str, Any]]:
    try:
        import distributed
    except ImportError as error:
        raise MissingDependencyError(
            "--scheduler needs Dask's scheduler", install="distributed"
        ) from error
    try:
        client = distributed.Client(address, timeout=_PATIENCE_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        raise SourceError(
            "no scheduler answers there", file=address, found=describe(str(error), 200)
        ) from error
    with client:
        workers = sum(client.nthreads().values())
        yield {"executor": client.get_executor(), "workers": max(1, workers)}
