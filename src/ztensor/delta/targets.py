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
from ztensor.errors import NotRepresentableError, UsageError, system_call
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
    target: Path | Place,
    how: How,
    names: Collection[str] | None = None,
) -> int:
    """Write the new state as a file in the format of the base, and return its length.

    A base of a format that is only read, such as `.pt` or a distributed checkpoint, becomes a file
    of the format that the target's suffix names.

    Args:
        applied: the new state.
        old: the base, or one of its files.
        target: the new file, which may be the base.
        how: how it is written.
        names: the tensors that are new in this file; all by default.

    Raises:
        UsageError: the target has the suffix of another format, or of one that is only read.
        NotRepresentableError: the format cannot hold the new state.
        DeltaError: the deltas do not fit the base; an old file at the target is unchanged.
        SourceError: a file cannot be read or written.
    """
    place = target if isinstance(target, Place) else Place.of(target)
    names = applied.tensors.keys() if names is None else names
    kind = old.format if old.format in FORMATS.written() else FORMATS.written_as(place.path)
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
    with place.written(how.durable) as sink:
        if isinstance(sink, FileSink):
            for rights in old.rights():
                sink.narrow(rights)
        is_same = not applied.changed_attributes and old.names == new.names
        is_changed = not any(applied.tensors[name].is_whole for name in names)
        if old.format == kind == "safetensors" and is_same and is_changed:
            _write_safetensors(old, new, names, sink, how)
        else:
            reader: Any = copy.copy(applied.base.reader)
            reader.objects = new
            export = FORMATS[kind].loaded().export
            export(reader, sink, lose=_lose, progress=how.progress, threads=how.threads)
    length: int = sink.position
    return length


def _lose(name: str | None, sentence: str) -> None:
    raise NotRepresentableError(
        f"the format of the base cannot hold the new state: {sentence}", object_name=name
    )


def _write_zt(
    old: FileObjects, new: FileObjects, names: Collection[str], place: Place, how: How
) -> int:
    target: Any = place  # as the library's own packages pass it
    with Writer(
        target,
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
            is_compressed = any(
                part.encoding != "raw" and old.is_common(part.encoding) for part in before
            )
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


def locked(path: str, kind: str) -> Any:
    """Return the file of the base, locked for one writer; the caller closes it.

    Raises:
        UsageError: the format cannot be changed in place.
        SourceError: the file cannot be opened for writing, or another process is writing it.
    """
    if kind not in ("zt", "safetensors"):
        error = UsageError(
            "only .zt and .safetensors files can be changed in place", file=path, found=kind
        )
        error.hint = "name a new file (`-o`, in Python output=)"
        raise error
    return Place.of(path).locked()


def check_all(applied: Applied, threads: int | None) -> None:
    """Compute all new tensors, and compare their ids.

    Raises:
        DeltaError: one differs, or the delta is malformed.
    """
    run_jobs((tensor.check for tensor in applied.tensors.values()), thread_count(threads))


def change(applied: Applied, file: FileObjects, lock: Any, how: How) -> int:
    """Change the file of the base, and return its length.

    A zTensor file is edited if at most a third of it changes, else written anew.

    Args:
        applied: the new state.
        file: the base.
        lock: its file, from `locked`.
        how: how it is written.

    Raises:
        DeltaError: the deltas do not fit the base; the file is unchanged.
        SourceError: it cannot be written; it has its old state.
    """
    path, names = file.paths[0], list(applied.tensors)
    parts = [part for tensor in applied.tensors.values() for part in tensor.parts.values()]
    nbytes = sum(part[-1].header.nbytes for part in parts)
    has_links = os.stat(path).st_nlink > 1  # an edit would change the other names, too
    if file.format != "zt" or has_links or 3 * nbytes > file.nbytes:
        place = Place(path, check=lambda _: lock.require_in_place())
        return write_new(applied, file, place, how)
    check_all(applied, how.threads)  # an edit that fails leaves bytes behind the old state
    with Editor(path, durable=how.durable, lock=False) as editor:
        editor.remove(name for name in [*applied.removed, *names] if name in file.names)
        if applied.changed_attributes:
            editor.set_attributes(applied.attributes_of(file.attributes), replace=True)
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
    objects: Any = None if reader is None else reader.objects
    folder = os.path.dirname(os.path.abspath(next(iter(objects.paths), "")))
    files = {os.path.relpath(file, folder): file for file in objects.set.places}
    if not {*map(os.path.abspath, objects.set.places)} <= {*map(os.path.abspath, objects.paths)}:
        raise UsageError("the base is not on disk", file=objects.name)
    if any(path.startswith(os.pardir) for path in files):
        raise UsageError("the files of the base are in several folders", file=objects.name)
    if FORMATS.named_as(path_text(target)) is not None:
        raise UsageError("the base is a set of files: name a new folder", file=path_text(target))
    homes = dict(objects.homes)
    touched = {homes[name] for name in [*applied.tensors, *applied.removed] if name in homes}
    touched.update(objects.set.places if applied.changed_attributes else ())
    last = max(touched or objects.set.places)
    for name in applied.tensors:
        touched.add(homes.setdefault(name, last))
    index = os.path.relpath(objects.name, folder) if objects.set.weight_map else None
    nbytes, is_durable = 0, how.durable is True
    with AtomicFolder(path_text(target), overwrite=False, durable=is_durable) as new:
        for path in _files_in(folder):
            place, file = os.path.join(new.path, path), files.get(path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if file in touched:
                names = [name for name in applied.tensors if homes[name] == file]
                nbytes += write_new(applied, objects.file(file), place, how, names)
            elif path != index:
                nbytes += _link(os.path.join(folder, path), place)
        if index is not None:
            own = {name: os.path.relpath(file, folder) for name, file in homes.items()}
            nbytes += _write_index(applied, objects, own, new.path, how)
        new.commit()
    return nbytes


def _files_in(folder: str) -> Iterator[str]:
    """Yield the files of a folder and its subfolders except hidden ones, relative to it."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (os.path.join(parent, name) for name in names)
        yield from (os.path.relpath(path, folder) for path in paths if os.path.isfile(path))


def _link(path: str, place: str) -> int:
    """Give a file a second name, or copy it if the system cannot; return its length."""
    source = os.path.realpath(path)
    with system_call("cannot copy the file", path):
        try:
            os.link(source, place)
        except OSError:
            shutil.copy2(source, place)
        return os.path.getsize(place)


def _write_index(
    applied: Applied, objects: Any, homes: dict[str, str], folder: str, how: How
) -> int:
    """Write the index of a new folder, and return its length.

    Args:
        applied: the new state.
        objects: the base.
        homes: name of each tensor to its file, relative to the folder.
        folder: the new folder, which has the files.
        how: how it is written.
    """
    metadata = dict(objects.set.metadata)
    whole = [tensor for tensor in applied.tensors.values() if tensor.is_whole]
    if "total_size" in metadata and applied.base.reader is not None:
        names = (*(tensor.name for tensor in whole), *applied.removed)
        old = applied.base.reader.metadata(name for name in names if name in objects.homes)
        metadata["total_size"] -= sum(each.nbytes for each in old)
        parts = (part for tensor in whole for part in tensor.parts.values())
        metadata["total_size"] += sum(part[-1].header.nbytes for part in parts)
    for file in {homes[name] for name in (*applied.tensors, *applied.removed)}:
        if file in metadata.get("digests", ()):
            with contextlib.closing(source_of(os.path.join(folder, file), mapped=False)) as source:
                digest = ALGORITHMS["sha256"].of(Range(source, 0, source.size).pieces())
            metadata["digests"] = {**metadata["digests"], file: digest}
    kept = {name: homes[name] for name in sorted(homes) if name not in applied.removed}
    text = json.dumps({"metadata": metadata, "weight_map": kept}, indent=2)
    sink = Place.of(os.path.join(folder, os.path.basename(objects.name))).sink(how.durable)
    sink.commit(f"{text}\n".encode("ascii"))
    return sink.position
