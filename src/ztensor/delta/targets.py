"""Where `apply` writes a new state: a new file, or the file of the base.

Each target is put in place as a whole, by a rename or by the commit of an edit.
"""

from __future__ import annotations

from collections.abc import Iterator

from ztensor import Writer, convert
from ztensor.delta.applied import Applied
from ztensor.errors import UsageError, describe
from ztensor.ext import FORMATS, FileObjects, FileSink, Place, Portable, Range
from ztensor.formats.ahead import Ahead
from ztensor.typing import Durable, Path, Progress

_COPY_BYTES = 8 << 20


def write_new(
    applied: Applied,
    target: Path,
    *,
    durable: Durable,
    threads: int | None,
    progress: Progress | None,
) -> int:
    """Write the new state as a file in the format of the base, and return its length.

    Raises:
        ArgumentValueError: the format cannot be written, or the target has another one's suffix.
        NotRepresentableError: the format cannot hold the new state.
        DeltaError: the deltas do not fit the base; an old file at the target is unchanged.
        SourceError: a file cannot be read or written.
    """
    kind = applied.file.format
    place = Place.of(target)
    FORMATS.require_written(kind, place.path)
    if FORMATS.named_as(place.path) not in (None, kind):
        error = UsageError(
            "the result has the format of the base",
            file=place.path,
            expected=kind,
            found=describe(FORMATS.named_as(place.path)),
        )
        error.hint = f"name a file with the suffix {FORMATS.written()[kind][0]}"
        raise error
    if kind == "zt":
        return _write_zt(applied, place, durable, threads, progress)
    is_same_header = applied.attributes == applied.base.attributes and not applied.removed
    is_changed = all(tensor.changes[0].kind == "changed" for tensor in applied.tensors.values())
    if kind == "safetensors" and is_same_header and is_changed:
        return _write_safetensors(applied, place, durable, threads, progress)
    report = convert(
        applied.reader(),
        target,
        to=kind,
        strict=True,
        durable=durable,
        threads=threads,
        progress=progress,
    )
    return report.nbytes


def _write_zt(
    applied: Applied,
    place: Place,
    durable: Durable,
    threads: int | None,
    progress: Progress | None,
) -> int:
    file = applied.new_file
    with (
        Writer(
            place.path if place.remote is None else place.remote,
            version=Portable.version_of(applied.file),
            attributes=applied.attributes or None,
            durable=durable,
            threads=threads,
            format="zt",
        ) as writer,
        Ahead(_changed(applied, file), threads, read=writer.copier.chunks) as ahead,
    ):
        writer.copier.chunks = ahead.chunks
        names = list(file.names)
        kept = [name for name in names if name not in applied.tensors]
        writer.copier.expect((file, name) for name in kept)
        for done, name in enumerate(names, 1):
            writer.copy(name, file, compress=_compression(applied, name))
            if progress is not None:
                progress(done, len(names))
        return writer.finish()


def _changed(applied: Applied, file: FileObjects) -> Iterator[tuple[FileObjects, str, str]]:
    """Yield the components that are computed, in the order of the file; shared ones once."""
    seen = set()
    for name in file.names:
        tensor = applied.tensors.get(name)
        for role in sorted(tensor.parts) if tensor is not None else ():
            word = file.object(name).components[role].encoding
            if word not in seen:
                seen.add(word)
                yield file, name, role


def _compression(applied: Applied, name: str) -> bool | None:
    """Return True for a new tensor in the place of a compressed one; else None."""
    if name not in applied.tensors or name not in applied.base:
        return None
    parts = applied.file.object(name).components.values()
    return True if any(part.encoding != "raw" for part in parts) else None


def _write_safetensors(
    applied: Applied,
    place: Place,
    durable: Durable,
    threads: int | None,
    progress: Progress | None,
) -> int:
    """Write a file with the header of the base, byte for byte."""
    file, old = applied.new_file, applied.file
    starts = {name: old.object(name).components["data"] for name in old.names}
    names = sorted(starts, key=lambda name: starts[name].offset)
    head = 8 + int.from_bytes(old.source.read(0, 8), "little")
    keys = [(file, name, "data") for name in names if name in applied.tensors]
    sink = place.sink(durable)
    try:
        if isinstance(sink, FileSink):
            for rights in old.rights():
                sink.narrow(rights)
        sink.write(old.source.read(0, head))
        with Ahead(keys, threads) as ahead:
            for done, name in enumerate(names, 1):
                if name in applied.tensors:
                    pieces = ahead.chunks(file, name, "data")
                else:
                    part = starts[name]
                    pieces = Range(old.source, part.offset, part.length).pieces(_COPY_BYTES)
                for piece in pieces:
                    sink.write(piece)
                if progress is not None:
                    progress(done, len(names))
        sink.commit()
    finally:
        sink.abort()
    return sink.position
