"""New files out of finished ones: compact and merge. Stored bytes are copied, not decoded."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Literal

from ztensor.arguments import require_choice
from ztensor.errors import (
    Reason,
    UsageError,
)
from ztensor.io.attributes import ATTRIBUTES, merged_attributes
from ztensor.io.contents import only_ours_change
from ztensor.io.edit.editor import kept_alignment, require_manifest
from ztensor.io.edit.versions import version_of
from ztensor.io.opening import Reader
from ztensor.io.opening import open as open_files
from ztensor.io.source.appending import AppendSink
from ztensor.io.source.paths import is_path, path_text
from ztensor.io.source.stores import is_remote
from ztensor.io.source.targets import Nowhere, require_free
from ztensor.io.writing.writer import Writer
from ztensor.options import WriteOptions, require_options
from ztensor.spec.container import emitter_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from ztensor.accepted import Durable, Path, Progress


def compact(
    path: Path,
    *,
    canonical: bool = False,
    durable: Durable = "auto",
    lock: bool = True,
    timeout: float = 0.0,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> int:
    """Rewrite a file without the bytes nothing refers to, and return how many that saved.

    The new file replaces the old one as a whole; version, alignment, attributes, encodings,
    digests and unknown fields stay, and of a 2.x file what lies in other files. Containers that
    are only read become 1.2.0.

    Args:
        path: the file.
        canonical: of 2.x: True gives it the form in which the same tensors are always the same
            bytes; what lies in other files is taken in.
        durable: see `ztensor.typing.EditOptions`, like the next two.
        lock: likewise.
        timeout: likewise.
        dry_run: True takes every step but writing.
        progress: called with the stored bytes copied so far and those to copy in all.

    Raises:
        ArgumentValueError: of a file of 1.x or 0.1, a canonical form was asked for.
        NotRepresentableError: a name is not in NFC, as a canonical file asks.
        FormatError: the file is damaged; it is left as it is.
        UsageError: it is a file of another format, or a data shard of 2.x.
        SourceError: it cannot be read or written, or another process is writing it; it is left as
            it is.
    """
    name = path_text(path)
    locked = AppendSink(name, lock=lock, timeout=timeout)  # keeps other writers out
    with (
        contextlib.closing(locked),
        _own(name) as reader,
        Writer(
            Nowhere(name) if dry_run else name,
            version=version_of(reader),
            attributes=reader.attributes or None,
            durable=durable,
            format="zt",
            alignment=None if canonical else _alignment(reader),
            canonical=canonical,
        ) as writer,
    ):
        manifest = reader.objects.parts()[0].manifest
        writer.draft.extra = manifest.extra
        names = sorted(reader) if canonical else reader
        if not canonical:
            writer.draft.shards = manifest.shards
        _copy_all(writer, [(one, reader, one) for one in names], progress)
        locked.require_in_place()
        after = writer.finish()
    return locked.size - after


def merge(
    inputs: Path | Iterable[Path],
    output: Path,
    *,
    on_conflict: Literal["error", "first", "last"] = "error",
    keep: Callable[[str], bool] | None = None,
    attributes: Mapping[str, object] | None = None,
    durable: Durable = "auto",
    dry_run: bool = False,
    overwrite: bool = True,
    progress: Progress | None = None,
    **options: Unpack[WriteOptions],
) -> int:
    """Write the objects of several files into one, and return its length in bytes.

    Stored bytes are copied as they are, checked against their digests, with bounded memory.

    Args:
        inputs: the files, or one of them, of any format; also indexes and folders of shards. The
            array of a `.npy`, or of a file of SciPy's, has no name of its own, and is called as
            its file.
        output: the new file; it may be one of the inputs.
        on_conflict: what happens to a name two files have: an error, the first or the last wins.
        keep: says of a name whether the object is written; all are by default.
        attributes: its attributes; by default those of all inputs, later ones winning. Of trees
            (see `ztensor.save_tree`) that is refused where they differ.
        durable: see `ztensor.typing.SaveOptions`.
        dry_run: True takes every step but writing.
        overwrite: False refuses to replace a file that is there.
        progress: called with the stored bytes copied so far and those to copy in all.
        options: see `ztensor.typing.WriteOptions`.

    Raises:
        UsageError: there is a file and `overwrite` is False, or a name is in two files, and
            `on_conflict` is "error"; or two hold different trees. No file appears.
        NotRepresentableError: the version cannot hold an object. No file appears.
        FormatError: an input is damaged. No file appears.
        SourceError: a file cannot be read or written. No file appears.
    """
    require_options("merge", options, WriteOptions)
    require_choice("on_conflict", on_conflict, ("error", "first", "last"))
    require_free(output, overwrite=overwrite)
    with contextlib.ExitStack() as stack:
        several: Any = [inputs] if is_path(inputs) else inputs
        readers = [stack.enter_context(open_files(path)) for path in several]
        chosen: dict[str, tuple[Reader, str]] = {}
        for reader in readers:
            for name, own in names_in(reader).items():
                if keep is not None and not keep(name):
                    continue
                if name in chosen and on_conflict == "error":
                    raise UsageError(
                        "two files hold an object of that name; pass on_conflict='first' or 'last'",
                        reason=Reason.DUPLICATE_WRITE,
                        file=reader.name,
                        object_name=name,
                        found=f"also in {chosen[name][0].name}",
                    )
                if name not in chosen or on_conflict == "last":
                    chosen[name] = reader, own
        if attributes is None:
            attributes = _merged(readers) or None
        target: Any = Nowhere(output) if dry_run else output
        with Writer(target, attributes=attributes, durable=durable, **options) as writer:
            ordered = sorted(chosen.items()) if options.get("canonical") else chosen.items()
            _copy_all(writer, [(name, *where) for name, where in ordered], progress)
            return writer.finish()


def _merged(readers: Sequence[Reader]) -> dict[str, object]:
    """Return the attributes of all files.

    Raises:
        UsageError: two hold different trees.
    """
    merged, differing = merged_attributes([reader.attributes for reader in readers])
    if differing is not None:
        name, one, other = differing
        raise ATTRIBUTES[name].conflict(readers[one].name, readers[other].name)
    return merged


def names_in(reader: Reader) -> dict[str, str]:
    """Return what the objects of one of several sources are called, and their names there.

    The array of a `.npy` has no name, and gets that of its file; so does a sparse one of SciPy's.
    """
    is_nameless = reader.format == "npy" or (
        reader.format == "npz" and any(reader.metadata(name).format != "dense" for name in reader)
    )
    is_named = os.path.isfile(reader.name) or is_remote(reader.name)
    if is_nameless and len(reader) == 1 and is_named:
        return {os.path.splitext(os.path.basename(reader.name))[0]: next(iter(reader))}
    return {name: name for name in reader}


def _own(name: str) -> Reader:
    reader = Reader(name)
    if reader.format != "zt":
        reader.close()
        raise only_ours_change(name, reader.format)
    try:
        for file in reader.objects.parts():
            require_manifest(file.frame, name)
    except UsageError:
        reader.close()
        raise
    return reader


def _alignment(reader: Reader) -> int | None:
    """Return what the blobs of a file begin at multiples of; None where its version has no say."""
    (file,) = reader.objects.parts()
    if file.frame is None:
        return None
    return kept_alignment(emitter_of(version_of(reader)), file.frame, file.manifest)


def _stored(reader: Reader, name: str) -> int:
    return reader.metadata(name).stored_nbytes


class _Progress:
    def __init__(self, report: Progress | None, total: int) -> None:
        self._report = report
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        if self._report is not None:
            self._report(min(self._done, self._total), self._total)


def _copy_all(
    writer: Writer, objects: Sequence[tuple[str, Reader, str]], progress: Progress | None
) -> None:
    copied = _Progress(progress, sum(_stored(reader, name) for _, reader, name in objects))
    writer.copier.expect((reader.objects, name) for _, reader, name in objects)
    for new, reader, name in objects:
        writer.copy(new, reader, name)
        copied.add(_stored(reader, name))
