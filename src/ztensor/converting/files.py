"""A conversion into one file, or into shards and their index."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from ztensor import Reader
from ztensor.converting.checking import require_sums
from ztensor.converting.copying import work_of, write_one
from ztensor.converting.losses import lost_of_file, require_some, unrepresented
from ztensor.converting.report import ConversionReport, Loss
from ztensor.converting.settings import Settings
from ztensor.converting.source import file_digest, part_of
from ztensor.errors import NotRepresentableError
from ztensor.ext import FileObjects, Place, ShardSet, path_text
from ztensor.options import shifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def write_file(
    reader: Reader,
    place: Place,
    kind: str,
    inputs: tuple[str, ...],
    settings: Settings,
    last: Callable[[], None] | None = None,
) -> ConversionReport:
    """Write objects as one file, and return the report.

    Args:
        reader: an open reader of the objects.
        place: the target.
        kind: the format.
        inputs: the paths of files that are read.
        settings: options of the conversion.
        last: called before the finished file is put in place.
    """
    source_nbytes = reader.nbytes
    lost = lost_of_file(reader, kind, settings)
    require_sums(reader)
    written = write_one(reader, place, kind, settings, lost, last)
    return _report(reader, [place.path], kind, inputs, settings, written, source_nbytes, lost)


def write_set(
    reader: Reader,
    named_after: Any,
    kind: str,
    groups: Sequence[tuple[Sequence[str], int]],
    inputs: tuple[str, ...],
    settings: Settings,
    *,
    replaces_file: bool = True,
) -> ConversionReport:
    """Write objects as shards of a format, and their index.

    Args:
        reader: an open reader of the objects.
        named_after: the file that the shards are named after, also a URL of a store.
        kind: the format.
        groups: the names in each shard, and their bytes.
        inputs: the paths of files that are read.
        settings: options of the conversion.
        replaces_file: an old file of this name is removed at the end.
    """
    source_nbytes = reader.nbytes
    lost = lost_of_file(reader, kind, settings)
    target = path_text(named_after)
    index = f"{target}.index.json"
    require_sums(reader)
    remote = Place.of(named_after).remote
    shards = ShardSet(
        named_after,
        len(groups),
        durable=settings.durable,
        sources=reader.objects.rights(),
        replaces_file=replaces_file,
    )
    work = work_of(reader, settings)
    count = nbytes = done = total_size = 0
    written: list[list[str]] = []
    try:
        for (names, _), place in zip(groups, shards.places, strict=True):
            part = part_of(reader, names)
            own = dataclasses.replace(
                settings, durable=shards.durable, progress=shifted(settings.progress, done, work)
            )
            objects, length = write_one(part, place, kind, own, lost, is_shard=True)
            done += work_of(part, settings)
            count, nbytes = count + objects, nbytes + length
            if not settings.dry_run:
                with Reader(place.remote or place.path, mmap=False) as shard:
                    written.append(list(shard))
                    total_size += sum(shard.metadata(name).nbytes for name in shard)
        # Objects of a store are not read again to be hashed: their index has no digests.
        is_hashed = remote is None and not settings.dry_run
        digests = (
            [file_digest("sha256", place.path) for place in shards.places] if is_hashed else None
        )
        if any(names for names, _ in groups):
            require_some(reader, range(count), lost, index)
        _require_unique(written, index)
    except BaseException:
        shards.abort()
        raise
    files = [*ShardSet.names(target, len(groups)), index]
    if not settings.dry_run:
        files = [*shards.commit(written, total_size, digests), index]
        nbytes += os.path.getsize(index) if remote is None else 0
    lost[:] = dict.fromkeys(lost)  # losses of the file itself repeat in each shard
    written_set = count, nbytes
    return _report(reader, files, kind, inputs, settings, written_set, source_nbytes, lost)


def _require_unique(groups: Iterable[Iterable[str]], index: str) -> None:
    """Raise if two shards hold a tensor of one name: names of components can collide."""
    seen: set[str] = set()
    for name in (name for names in groups for name in names):
        if name in seen:
            raise NotRepresentableError(
                "two shards would hold a tensor of this name", file=index, object_name=name
            )
        seen.add(name)


def _report(
    reader: Reader,
    files: Sequence[str],
    kind: str,
    inputs: tuple[str, ...],
    settings: Settings,
    written: tuple[int, int],
    source_nbytes: int,
    lost: Sequence[Loss],
) -> ConversionReport:
    """Return the report of written files, the last of which is the one to open."""
    return ConversionReport(
        files[-1],
        kind,
        settings.version if kind == "zt" else "",
        inputs,
        written[0],
        source_nbytes,
        written[1],
        tuple(lost),
        settings.is_checked,
        _unchecked(reader),
        tuple(files),
        tuple(unrepresented(reader)),
    )


def _unchecked(reader: Reader) -> tuple[str, ...]:
    """Return the objects without a digest or another checksum in the source."""
    return tuple(name for name in reader if _is_unchecked(reader.objects.part(name), name))


def _is_unchecked(file: FileObjects, name: str) -> bool:
    tensor_object = file.object(name)
    return any(
        file.is_unheld(tensor_object, component) and file.sum_over(component) is None
        for component in tensor_object.components.values()
    )
