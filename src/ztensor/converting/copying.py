"""The objects of a reader into one new file, of any format that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor import Reader, Remote, Writer
from ztensor.converting.checking import require_equal
from ztensor.converting.losses import require_lossless, require_some
from ztensor.converting.report import Loss
from ztensor.converting.settings import Settings
from ztensor.converting.trees import without_tree
from ztensor.converting.versions import extra_of, representable, representable_objects
from ztensor.errors import UnsupportedError, UsageError
from ztensor.ext import (
    EMITTERS,
    FORMATS,
    FileObjects,
    FileSink,
    Place,
    Portable,
    Sink,
    Store,
    remove,
)
from ztensor.formats.ahead import Ahead
from ztensor.options import shifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def write_one(
    reader: Reader,
    place: Place,
    kind: str,
    settings: Settings,
    lost: list[Loss],
    last: Callable[[], None] | None = None,
    *,
    is_shard: bool = False,
) -> tuple[int, int]:
    """Write one file, add its losses to `lost`, and return its counts of objects and bytes."""
    target = place.path
    reader, values = without_tree(reader, settings.version if kind == "zt" else None)
    lost += values
    stored = sum(metadata.stored_nbytes for metadata in reader.metadata(list(reader)))
    total = work_of(reader, settings)
    attributes: dict[str, Any] | None = None  # of the new file; None if another format writes them

    def written(count: int) -> None:
        if settings.progress is not None:
            settings.progress(min(count, stored), total)

    def check(finished: str | Remote) -> None:
        written(stored)
        if settings.is_checked:
            compared = shifted(settings.progress, stored, total)
            threads = settings.threads
            require_equal(reader, finished, target, attributes, lost, threads, compared)
        if last is not None:
            last()

    sink = _sink_at(place, settings, max(stored, reader.nbytes), check)
    try:
        if isinstance(sink, FileSink):
            for rights in reader.objects.rights():
                sink.narrow(rights)
        if kind == "zt":
            chosen, attributes = _chosen(reader, target, settings, lost, is_shard=is_shard)
            _copy(chosen, sink, attributes, extra_of(reader, settings.version), settings, written)
            count = len(chosen)
        else:
            if settings.strict:  # before the work: losses known so far
                require_lossless(lost, target)
            export = FORMATS[kind].loaded().export
            count = export(
                reader,
                sink,
                lose=lambda name, sentence: lost.append(Loss(name, sentence)),
                progress=lambda done, whole: written(done * stored // max(whole, 1)),
                threads=settings.threads,
            )
            if settings.strict:
                require_lossless(lost, target)
            sink.commit()
    except BaseException:
        sink.abort()
        raise
    if place.remote is not None and settings.is_checked:
        try:
            check(place.remote)
        except BaseException:
            remove(place.remote)
            raise
    return count, sink.position


def _sink_at(
    place: Place, settings: Settings, nbytes: int, check: Callable[[str | Remote], None]
) -> Sink:
    """Return the sink of one file of about so many bytes.

    A file is checked before it takes its place. An object of a store appears at once: where it is
    to be checked, it may replace nothing, and the caller checks it afterwards.

    Raises:
        UsageError: there is an object, and the new one is to be checked.
        SourceError: no file can be made there, or the store cannot be asked.
    """
    if settings.dry_run:
        return place.dry(makes_folder=settings.makes_folder)
    if place.remote is None:
        return place._replace(check=check).sink(settings.durable)
    if settings.check and Store.of(place.remote.url).look(place.remote) is not None:
        error = UsageError(
            "it exists already: an upload with check is compared once it is in place, so it may "
            "not replace anything",
            file=place.remote.name,
        )
        error.hint = "write under another name, or remove this one first"
        raise error
    expected, is_new = nbytes + nbytes // 16, place.is_new or settings.check
    return place._replace(expected=expected, is_new=is_new).sink(durable=True)


def _chosen(
    reader: Reader, target: str, settings: Settings, lost: list[Loss], *, is_shard: bool
) -> tuple[Mapping[str, FileObjects], dict[str, Any]]:
    """Return the objects that a version can hold, and the attributes; add losses to `lost`.

    Raises:
        NotRepresentableError: there are losses, and none are allowed, or no object is left.
    """
    emitter = EMITTERS.named(settings.version)
    attributes, dropped = representable(emitter.require_attributes, reader.attributes, None)
    chosen, of_objects = representable_objects(reader, settings.version)
    if settings.keeps_all:
        require_lossless([*dropped, *of_objects], target)
    lost += [*dropped, *of_objects]
    if settings.strict:  # before the work, not after it
        require_lossless(lost, target)
    if not is_shard:
        require_some(reader, chosen, lost, target)
    return chosen, attributes


def _copy(
    chosen: Mapping[str, FileObjects],
    sink: Sink,
    attributes: Mapping[str, object],
    extra: Mapping[str, object] | None,
    settings: Settings,
    written: Callable[[int], None],
) -> None:
    done = 0

    def add(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        written(done)

    portable = Portable(EMITTERS.named(settings.version).form)
    is_kept = settings.compression is None
    with (
        Writer(
            sink,
            version=settings.version,
            checksum=settings.checksum,
            attributes=attributes or None,
            threads=settings.threads,
            chunk_rows=settings.chunk_rows,
            alignment=settings.alignment,
            canonical=settings.canonical,
        ) as writer,
        Ahead(
            () if settings.canonical else _decoded(chosen, portable, is_kept=is_kept),
            settings.threads,
            read=portable.chunks,
        ) as ahead,
    ):
        writer.draft.extra = extra
        writer.copier.chunks = ahead.chunks
        if is_kept:
            writer.copier.expect((file, name) for name, file in chosen.items())
        for name, file in sorted(chosen.items()) if settings.canonical else chosen.items():
            try:
                writer.copy(name, file, compress=settings.compression, progress=add)
            except UnsupportedError as error:
                error.hint = error.hint or "exclude the object to write the others"
                raise
        writer.finish()


def _decoded(
    chosen: Mapping[str, FileObjects], portable: Portable, *, is_kept: bool
) -> Iterator[tuple[FileObjects, str, str]]:
    """Yield the components that a writer decodes while it copies objects, in its order."""
    seen: set[tuple[FileObjects, int, int]] = set()
    for name, file in chosen.items():
        if is_kept and portable.stored(file, name) is not None:
            continue
        for role, component in file.object(name).components.items():
            place = file, component.offset, component.length
            if not file.is_common(component.encoding) or place not in seen:
                seen.add(place)
                yield file, name, role


def work_of(reader: Reader, settings: Settings) -> int:
    """Return the bytes to process: written once; with `check`, both files are hashed."""
    stored = sum(metadata.stored_nbytes for metadata in reader.metadata(list(reader)))
    return stored * (3 if settings.is_checked else 1)
