"""The objects of a reader into one new file, of any format that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor import Reader, Remote, Writer
from ztensor.converting.checking import require_equal
from ztensor.converting.losses import require_lossless, require_some
from ztensor.converting.report import Loss
from ztensor.converting.target import How, RemoteTarget, Target
from ztensor.converting.trees import without_tree
from ztensor.converting.versions import extra_of, sayable, sayable_objects
from ztensor.errors import UnsupportedError
from ztensor.ext import EMITTERS, FORMATS, FileObjects, FileSink, Place, Portable, Sink
from ztensor.formats.ahead import Ahead
from ztensor.options import shifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def write_one(
    reader: Reader,
    place: Place,
    kind: str,
    how: How,
    lost: list[Loss],
    last: Callable[[], None] | None = None,
    *,
    is_shard: bool = False,
) -> tuple[int, int]:
    """Write one file, add to `lost` what it cannot say, and return how many objects and bytes."""
    target = place.path
    check = how.is_checked
    reader, values = without_tree(reader, how.version if kind == "zt" else None)
    lost += values
    stored = sum(found.stored_nbytes for found in reader.metadata(list(reader)))
    total = work_of(reader, how)
    attributes: dict[str, Any] | None = None  # what the new file has to have, where that is plain

    def written(count: int) -> None:
        if how.progress is not None:
            how.progress(min(count, stored), total)

    def look(temporary: str | Remote) -> None:
        if how.strict:
            require_lossless(lost, target)
        if check:
            compared = shifted(how.progress, stored, total)
            require_equal(reader, temporary, target, attributes, lost, how.threads, compared)
        if last is not None:
            last()

    sink = _sink_at(place, how, max(stored, reader.nbytes), look, written)
    try:
        if isinstance(sink, FileSink):
            for rights in reader.objects.rights():
                sink.narrow(rights)
        if kind == "zt":
            chosen, attributes = _chosen(reader, target, how, lost, is_shard=is_shard)
            _copy(chosen, sink, attributes, extra_of(reader, how.version), how)
            count = len(chosen)
        else:
            if how.strict:  # before the work: what is lost already
                require_lossless(lost, target)
            export = FORMATS[kind].loaded().export
            count = export(
                reader,
                sink,
                lose=lambda name, sentence: lost.append(Loss(name, sentence)),
                progress=lambda done, whole: written(done * stored // max(whole, 1)),
                threads=how.threads,
            )
            if how.strict:
                require_lossless(lost, target)
            sink.commit()
    except BaseException:
        sink.abort()
        raise
    return count, sink.position


def _sink_at(
    place: Place,
    how: How,
    nbytes: int,
    look: Callable[[Any], None],
    written: Callable[[int], None],
) -> Sink:
    """Return what writes one file, of about so many bytes; see `Target`."""
    if how.dry_run:
        return place.dry(makes_folder=how.makes_folder)
    if place.remote is None:
        return Target(place, durable=how.durable, look=look, written=written)
    return RemoteTarget(
        place._replace(expected=nbytes + nbytes // 16),
        place.remote,
        look=look,
        written=written,
        reads_back=how.is_checked,
    )


def _chosen(
    reader: Reader, target: str, how: How, lost: list[Loss], *, is_shard: bool
) -> tuple[Mapping[str, FileObjects], dict[str, Any]]:
    """Return the objects that a version can hold, and the attributes; add the others to `lost`.

    Raises:
        NotRepresentableError: there are others, and nothing may be lost, or all is.
    """
    emitter = EMITTERS.named(how.version)
    attributes, unsaid = sayable(emitter.require_attributes, reader.attributes, None)
    chosen, of_objects = sayable_objects(reader, how.version)
    if how.keeps_all:
        require_lossless([*unsaid, *of_objects], target)
    lost += [*unsaid, *of_objects]
    if how.strict:  # before the work, not after it
        require_lossless(lost, target)
    if not is_shard:
        require_some(reader, chosen, lost, target)
    return chosen, attributes


def _copy(
    chosen: Mapping[str, FileObjects],
    sink: Sink,
    attributes: Mapping[str, object],
    extra: Mapping[str, object] | None,
    how: How,
) -> None:
    portable = Portable(EMITTERS.named(how.version).form)
    with (
        Writer(
            sink,
            version=how.version,
            checksum=how.checksum,
            attributes=attributes or None,
            threads=how.threads,
            chunk_rows=how.chunk_rows,
            alignment=how.alignment,
            canonical=how.canonical,
        ) as writer,
        Ahead(
            () if how.canonical else _decoded(chosen, portable, is_kept=how.compression is None),
            how.threads,
            read=portable.chunks,
        ) as ahead,
    ):
        writer.draft.extra = extra
        writer.copier.chunks = ahead.chunks
        if how.compression is None:
            writer.copier.expect((file, name) for name, file in chosen.items())
        for name, file in sorted(chosen.items()) if how.canonical else chosen.items():
            try:
                writer.copy(name, file, compress=how.compression)
            except UnsupportedError as error:
                error.hint = error.hint or "exclude the object to write the others"
                raise
        writer.finish()


def _decoded(
    chosen: Mapping[str, FileObjects], portable: Portable, *, is_kept: bool
) -> Iterator[tuple[FileObjects, str, str]]:
    """Yield what a writer decodes of the objects it copies, in its order."""
    seen: set[tuple[FileObjects, int, int]] = set()
    for name, file in chosen.items():
        if is_kept and portable.stored(file, name) is not None:
            continue
        for role, component in file.object(name).components.items():
            place = file, component.offset, component.length
            if not file.is_common(component.encoding) or place not in seen:
                seen.add(place)
                yield file, name, role


def work_of(reader: Reader, how: How) -> int:
    """Return the bytes to be done: written once, then two files are hashed."""
    stored = sum(found.stored_nbytes for found in reader.metadata(list(reader)))
    return stored * (3 if how.is_checked else 1)
