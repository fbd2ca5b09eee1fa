"""The functions, and what is sent to a worker for each: a function here, a path, plain options."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from ztensor import open as open_reader
from ztensor.converting.asking import matching
from ztensor.converting.conversion import convert_as
from ztensor.errors import ArgumentValueError, ZTensorError, counted, describe
from ztensor.ext import FORMATS, ObjectReader, OpenFolder, is_remote, path_text
from ztensor.insight.analysis.identity import combined, tensor_hashes
from ztensor.insight.analysis.spreads import Scale
from ztensor.insight.analysis.statistics import BINS, QUANTILES, StatsReport
from ztensor.insight.analysis.statistics import stats as stats_of
from ztensor.insight.fleet.naming import Naming
from ztensor.insight.fleet.running import OnError, each, listed
from ztensor.insight.text import short_repr
from ztensor.options import ConvertOptions, FleetOptions, require_options
from ztensor.typing import Path, Progress, Storage, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from typing import Unpack

    from ztensor import converting

    ConversionReport = converting.ConversionReport

_Source = TypeVar("_Source", bound="Path")


@dataclasses.dataclass(frozen=True, slots=True)
class FileHash:
    """Ids of what a file holds.

    Attributes:
        id: of all tensors, as `ztensor.content_hash` gives it.
        tensors: of each, as `ztensor.insight.tensor_hashes` gives them.
    """

    id: str
    tensors: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the id of all."""
        return short_repr("fleet.FileHash", [self.id, counted(len(self.tensors), "tensor")])


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
    # A dry run finds no folder: it is made for all files, where they are written.
    with open_reader(pair[0], mmap=False) as reader:
        return convert_as(reader, pair[1], threads=1, makes_folder=True, **options)


def _chosen(
    reader: ObjectReader, include: Sequence[str] | None, exclude: Sequence[str] | None
) -> list[str] | None:
    if include is None and exclude is None:
        return None
    return matching(reader, include, exclude)


def _patterns(patterns: Any) -> list[str] | None:
    if patterns is None:
        return None
    return [patterns] if isinstance(patterns, str) else list(patterns)


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
        sources: paths and URLs of files, indexes or folders; one after the other is taken when a
            worker is about to be free, so a generator of a million is as good as a list. The same
            goes for all functions of this module.
        include: patterns with `*`, `?` and `[...]`; only objects whose name matches one.
        exclude: likewise; no objects whose name matches one.
        deep: as for `Reader.verify`.
        options: see `ztensor.typing.FleetOptions`.

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
    require_options("verify_files", options, FleetOptions)
    how = {"include": _patterns(include), "exclude": _patterns(exclude), "deep": deep}
    return each(_verify, sources, how, **options)


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
    """Return what the values of the objects of many files are like; see `ztensor.stats`.

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
    how = {
        "include": _patterns(include),
        "exclude": _patterns(exclude),
        "quantiles": tuple(quantiles),
        "bins": bins,
        "scale": scale,
    }
    return each(_stats, sources, how, **options)


def hash_files(
    sources: Iterable[_Source],
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    attributes: bool = False,
    **options: Unpack[FleetOptions],
) -> Iterator[tuple[_Source, FileHash | ZTensorError]]:
    """Return ids of what each of many files holds; see `ztensor.content_hash`.

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
    how = {
        "include": _patterns(include),
        "exclude": _patterns(exclude),
        "attributes": attributes,
    }
    return each(_hash, sources, how, **options)


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
    """Write what each of many files holds as a file of another format; see `ztensor.convert`.

    Args:
        sources: as for `verify_files`.
        folder: where the new files go, a folder or a URL; it is made where it is not there. A new
            file has the name of its source with the suffix of its format. Two sources that would
            get one name are no two files: the second is an error.
        to: the format, as for `ztensor.convert`.
        overwrite: True replaces files that are there, but none of the sources; they are all listed
            before the first is read.
        executor: see `ztensor.typing.FleetOptions`.
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
    FORMATS.require_written(to)
    suffix = ".zt" if to == "zt" else FORMATS[to].suffixes[0]
    taken = {"to", "overwrite", "threads", "progress"}
    known = [name for name in ConvertOptions.__annotations__ if name not in taken]
    for name in options:
        if name not in known:
            raise ArgumentValueError(
                "this is no option of a conversion of many files",
                expected=f"one of {', '.join(known)}",
                found=describe(name),
            )
    target = path_text(folder, absolute=True)
    given = listed(sources)
    if overwrite:
        given = list(given)
    naming = Naming(target, suffix, given if overwrite else (), storage)
    if not is_remote(target) and not options.get("dry_run"):
        OpenFolder.make(target)
    every = {**options, "to": to, "overwrite": overwrite}
    return each(
        _convert,
        given,
        every,
        executor=executor,
        workers=workers,
        on_error=on_error,
        storage=storage,
        progress=progress,
        sent=naming,
    )
