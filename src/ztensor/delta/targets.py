"""Where `apply` writes a new state: a new file, the file of the base, or a new folder.

Each target is put in place as a whole, by a rename or by the commit of an edit.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ztensor import Editor, Writer
from ztensor.converting.atomic_folder import AtomicFolder
from ztensor.delta.applied import Applied
from ztensor.errors import NotRepresentableError, SourceError, UsageError
from ztensor.ext import (
    ALGORITHMS,
    FORMATS,
    FileObjects,
    FileSink,
    Place,
    Portable,
    Range,
    Sink,
    path_text,
    run_jobs,
    source_of,
    thread_count,
)
from ztensor.formats.ahead import Ahead
from ztensor.typing import Durable, Path, Progress

_COPY_BYTES = 8 << 20


class How(NamedTuple):
    """How files are written.

    Attributes:
        durable: as in `ztensor.typing.SaveOptions`.
        threads: how many decode; None uses the cores, at most four.
        progress: called with the number of tensors written so far and of all of them.
    """

    durable: Durable = "auto"
    threads: int | None = None
    progress: Progress | None = None

    def note(self, done: int, count: int) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(done, count)


def write_new(
    applied: Applied,
    old: FileObjects,
    target: Path,
    how: How,
    names: Collection[str] | None = None,
) -> int:
    """Write the new state as a file in the format of the base, and return its length.

    Args:
        applied: the new state.
        old: the base, or one of its files.
        target: the new file, which may be the base.
        how: how it is written.
        names: the tensors that are new in this file; all by default.

    Raises:
        ArgumentValueError: the format cannot be written.
        UsageError: the target has the suffix of another format.
        NotRepresentableError: the format cannot hold the new state.
        DeltaError: the deltas do not fit the base; an old file at the target is unchanged.
        SourceError: a file cannot be read or written.
    """
    kind, place = old.format, Place.of(target)
    names = applied.tensors.keys() if names is None else names
    FORMATS.require_written(kind, place.path)
    if FORMATS.named_as(place.path) not in (None, kind):
        error = UsageError(
            "the result has the format of the base",
            file=place.path,
            expected=f"a name that ends with {FORMATS.written()[kind][0]}",
        )
        error.hint = "`ztensor convert` converts the result"
        raise error
    new = applied.over(old, names)
    if kind == "zt":
        return _write_zt(old, new, names, place, how)
    sink = place.sink(how.durable)
    try:
        if isinstance(sink, FileSink):
            for rights in old.rights():
                sink.narrow(rights)
        is_same = not applied.attributes and old.names == new.names
        is_changed = all(applied.tensors[name].changes[0].kind == "changed" for name in names)
        if kind == "safetensors" and is_same and is_changed:
            _write_safetensors(old, new, names, sink, how)
        else:
            reader: Any = copy.copy(applied.base.reader)
            reader.objects = new
            export = FORMATS[kind].loaded().export
            export(reader, sink, lose=_lose, progress=how.progress, threads=how.threads)
        sink.commit()
    finally:
        sink.abort()
    return sink.position


def _lose(name: str | None, sentence: str) -> None:
    raise NotRepresentableError(
        f"the format of the base cannot hold the new state: {sentence}", object_name=name
    )


def _write_zt(
    old: FileObjects, new: FileObjects, names: Collection[str], place: Place, how: How
) -> int:
    with Writer(
        place.remote or place.path,
        version=Portable.version_of(old),
        attributes=new.attributes or None,
        durable=how.durable,
        threads=how.threads,
        format="zt",
    ) as writer:
        writer.copier.expect((new, name) for name in new.names if name not in names)
        _copy(writer, old, new, list(new.names), names, how)
        return writer.finish()


def _copy(
    writer: Writer,
    old: FileObjects,
    new: FileObjects,
    wanted: Collection[str],
    names: Collection[str],
    how: How,
) -> None:
    """Copy objects: the new ones decoded on threads, and compressed if the old ones are."""
    objects = old.manifest.objects
    with Ahead(_changed(new, names), how.threads, read=writer.copier.chunks) as ahead:
        writer.copier.chunks = ahead.chunks
        for done, name in enumerate(wanted, 1):
            before = objects[name].components.values() if name in names and name in objects else ()
            is_compressed = any(part.encoding != "raw" for part in before)
            writer.copy(name, new, compress=True if is_compressed else None)
            how.note(done, len(wanted))


def _changed(new: FileObjects, names: Collection[str]) -> Iterator[tuple[FileObjects, str, str]]:
    """Yield the components that are computed, in the order of the file; shared ones once."""
    seen = set()
    for name in filter(names.__contains__, new.names):
        for role, component in sorted(new.object(name).components.items()):
            if not new.is_common(component.encoding) and component.encoding not in seen:
                seen.add(component.encoding)
                yield new, name, role


def _write_safetensors(
    old: FileObjects, new: FileObjects, names: Collection[str], sink: Sink, how: How
) -> None:
    """Write a file with the header of the base, byte for byte."""
    parts = {name: old.object(name).components["data"] for name in old.names}
    ordered = sorted(parts, key=lambda name: parts[name].offset)
    sink.write(old.source.read(0, 8 + int.from_bytes(old.source.read(0, 8), "little")))
    keys = [(new, name, "data") for name in ordered if name in names]
    with Ahead(keys, how.threads) as ahead:
        for done, name in enumerate(ordered, 1):
            stored = Range(old.source, parts[name].offset, parts[name].length)
            is_new = name in names
            pieces = ahead.chunks(new, name, "data") if is_new else stored.pieces(_COPY_BYTES)
            for piece in pieces:
                sink.write(piece)
            how.note(done, len(ordered))


# --- In place -------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(path: str, kind: str, how: How) -> Iterator[Editor | None]:
    """Lock a file for one writer; yield the editor of a zTensor file.

    Raises:
        UsageError: the format cannot be changed in place.
        SourceError: the file cannot be opened for writing, or another process is writing it.
    """
    if kind == "zt":
        with Editor(path, durable=how.durable) as editor:
            try:
                yield editor
            finally:
                editor.abort()
    elif kind == "safetensors":
        with contextlib.closing(Place.of(path).locked()):
            yield None
    else:
        error = UsageError(
            "only .zt and .safetensors files can be changed in place", file=path, found=kind
        )
        error.hint = "name a new file (`-o`, in Python output=)"
        raise error


def check_all(applied: Applied, threads: int | None) -> None:
    """Compute all new tensors, and compare their ids.

    Raises:
        DeltaError: one differs, or the delta is malformed.
    """
    run_jobs((tensor.check for tensor in applied.tensors.values()), thread_count(threads))


def change(applied: Applied, file: FileObjects, editor: Editor | None, how: How) -> int:
    """Change the file of the base, and return its length.

    A zTensor file is edited if at most a third of it changes, else written anew.

    Args:
        applied: the new state.
        file: the base.
        editor: the open editor of a zTensor file.
        how: how it is written.

    Raises:
        DeltaError: the deltas do not fit the base; the file is unchanged.
        SourceError: it cannot be written; it has its old state.
    """
    path = file.paths[0]
    parts = [part for tensor in applied.tensors.values() for part in tensor.parts.values()]
    nbytes = sum(part[-1].header.nbytes for part in parts)
    has_links = os.stat(path).st_nlink > 1  # an edit would change the other names, too
    if editor is None or has_links or editor.rewritten_from or 3 * nbytes > file.nbytes:
        return write_new(applied, file, path, how)
    check_all(applied, how.threads)  # an edit that fails leaves bytes behind the old state
    editor.remove(name for name in [*applied.removed, *applied.tensors] if name in file.names)
    if applied.attributes:
        editor.set_attributes(applied.changed_attributes(file.attributes), replace=True)
    names = list(applied.tensors)
    _copy(editor, file, applied.over(file), names, names, how)
    return editor.finish()


# --- Folders --------------------------------------------------------------------------------------


def write_folder(applied: Applied, target: Path, how: How) -> int:
    """Write the new state of a set of shards as a new folder, and return the bytes of its files.

    Files that do not change are hard links.

    Raises:
        UsageError: the target exists, or the base is not in one folder on disk.
        DeltaError: the deltas do not fit the base; nothing is written.
        SourceError: a file cannot be read or written.
    """
    reader = applied.base.reader
    if reader is None or not reader.objects.is_set:
        raise UsageError("the base is not a set of files", file=applied.base.name)
    objects: Any = reader.objects
    index = objects.set.name if objects.set.weight_map is not None else None
    folder = os.path.dirname(index) if index else os.path.dirname(objects.paths[0])
    files = {path: os.path.relpath(path, folder) for path in objects.set.places}
    homes = dict(objects.homes)
    touched = {homes[name] for name in [*applied.tensors, *applied.removed] if name in homes}
    touched.update(files if applied.attributes else ())
    for name in applied.tensors:
        homes.setdefault(name, max(touched, default=[*files][-1]))
    touched.update(map(homes.__getitem__, applied.tensors))
    nbytes = 0
    is_durable = how.durable is True
    with AtomicFolder(path_text(target), overwrite=False, durable=is_durable) as new:
        for path, relative in files.items():
            place = os.path.join(new.path, relative)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if path in touched:
                names = [name for name in applied.tensors if homes[name] == path]
                nbytes += write_new(applied, objects.file(path), place, how, names)
            else:
                nbytes += _link(path, place)
        if index is not None:
            place = os.path.join(new.path, os.path.basename(index))
            names_of = {name: files[path] for name, path in homes.items()}
            written = [files[path] for path in touched]
            nbytes += _write_index(index, place, applied, names_of, written, how.durable)
        others = {os.path.realpath(path) for path in [*files, *([index] if index else [])]}
        _link_others(folder, new.path, others)
        new.commit()
    return nbytes


def _link(path: str, place: str) -> int:
    """Give a file a second name, or copy it if the system cannot; return its length."""
    source = os.path.realpath(path)
    try:
        os.link(source, place)
    except OSError:
        try:
            shutil.copy2(source, place)
        except OSError as error:
            raise SourceError.from_os(error, "cannot copy the file", path) from error
    return os.path.getsize(place)


def _link_others(folder: str, new: str, known: Collection[str]) -> None:
    """Link the other files of a model's folder, such as its configuration."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)
            if os.path.isfile(path) and os.path.realpath(path) not in known:
                place = os.path.join(new, os.path.relpath(path, folder))
                os.makedirs(os.path.dirname(place), exist_ok=True)
                _link(path, place)


def _write_index(
    index: str,
    place: str,
    applied: Applied,
    files: dict[str, str],
    touched: Collection[str],
    durable: Durable,
) -> int:
    """Write the index of the new folder, or link the old one if it would be the same.

    Args:
        index: the index of the base.
        place: the new one.
        applied: the new state.
        files: name of each tensor to its file, relative to the folder.
        touched: the files that were written.
        durable: as in `How`.
    """
    with contextlib.closing(source_of(index, mapped=False)) as source:
        document = json.loads(bytes(source.read(0, source.size)))
    metadata: dict[str, Any] = document.get("metadata") or {}
    digests = metadata.get("digests") or {}
    whole = [name for name, tensor in applied.tensors.items() if tensor.old() is None]
    if not (whole or applied.removed or digests):
        return _link(index, place)
    reader = applied.base.reader
    if reader is not None and "total_size" in metadata:
        gone = [name for name in [*whole, *applied.removed] if name in reader]
        metadata["total_size"] -= sum(each.nbytes for each in reader.metadata(gone))
        parts = (part for name in whole for part in applied.tensors[name].parts.values())
        metadata["total_size"] += sum(part[-1].header.nbytes for part in parts)
    for file in filter(digests.__contains__, touched):
        written = os.path.join(os.path.dirname(place), file)
        with contextlib.closing(source_of(written, mapped=False)) as source:
            digests[file] = ALGORITHMS["sha256"].of(Range(source, 0, source.size).pieces())
    document["weight_map"] = {
        name: files[name] for name in sorted(files) if name not in applied.removed
    }
    sink = Place.of(place).sink(durable)
    sink.commit(f"{json.dumps(document, indent=2)}\n".encode())
    return sink.position
