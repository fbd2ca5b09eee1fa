"""Several changes to a finished file as one commit.

The new state is appended behind the old one (see `io/source/appending.py`), so that a change costs
only its new bytes, and a crash at any moment leaves the old state or the new one. With
`atomic=True` a copy is changed, which then replaces the old file.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ztensor.arguments import require_kind
from ztensor.errors import ObjectNotFoundError, Reason, UsageError, describe
from ztensor.io.attributes import kinds_of
from ztensor.io.edit.keeping import (
    blobs_end,
    emitter_for,
    kept_alignment,
    kept_digest,
    read_committed,
)
from ztensor.io.metadata import TensorMetadata, describe_object
from ztensor.io.opening import Reader
from ztensor.io.reading.portable import Portable
from ztensor.io.source.appending import CommitBehind, CommitOver, LockedFile
from ztensor.io.source.paths import path_text
from ztensor.io.source.sink import FileSink, Place
from ztensor.io.writing.planning import require_layout
from ztensor.io.writing.stream import ObjectSink
from ztensor.io.writing.writer import Writer
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.options import EditOptions, ObjectOptions, require_options, summed
from ztensor.spec.container import EMITTERS, Emitter
from ztensor.spec.container.framing import FOOTER_2_BYTES, Container, Frame
from ztensor.spec.model.manifest import Manifest, TensorObject, WrittenObjects
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Unpack

    from ztensor.accepted import Durable, ElementType, Path, Progress, TensorLike

_LOG = logging.getLogger("ztensor")


class Editor(Writer):
    """Changes a finished file; all changes until `finish` are one commit.

    A `Writer` for a file that already holds objects: `write`, `add`, `stream` and `copy` add
    objects; `replace`, `remove`, `rename` and `set_attributes` change existing ones. Leaving a
    `with` block commits, an exception leaves the file as it was.

    Args:
        path: the file.
        options: see `ztensor.typing.EditOptions`.

    Attributes:
        old_nbytes: the file's length when it was opened.
        rewritten_from: the old version of a file that becomes a 1.2.0 file, since its container
            cannot be extended in place (0.1.0, and the one of releases 1.0.0 and 1.0.1); else None.

    Raises:
        FormatError: the file is damaged; the message says how to repair it.
        UsageError: it is a file of another format, or a data shard of 2.x.
        SourceError: it cannot be opened for writing, or another process is writing it.
    """

    def __init__(self, path: Path, **options: Unpack[EditOptions]) -> None:
        require_options("Editor", options, EditOptions)
        self._open(path_text(path), **options)

    def _open(
        self,
        name: str,
        *,
        is_compacted: bool = False,
        canonical: bool = False,
        atomic: bool = False,
        durable: Durable = "auto",
        lock: bool = True,
        timeout: float = 0.0,
        dry_run: bool = False,
        checksum: str | bool | None = True,
        progress: Progress | None = None,
        **how: Any,
    ) -> None:
        """Open the file to change it; see `EditOptions` and, for the first two, `compact`."""
        self.rewritten_from: str | None = None
        self._was: object = None  # objects and attributes of the file, unless it is rewritten
        # Open to the end, also for a new file: the lock keeps other writers out.
        self._locked = LockedFile(
            name, durable=durable, lock=lock, timeout=timeout, dry_run=dry_run
        )
        self.old_nbytes: int = self._locked.size
        try:
            frame, manifest = read_committed(self._locked)
            with contextlib.ExitStack() as opened:
                old = None
                if is_compacted or frame.container not in (Container.V1, Container.V2):
                    old = opened.enter_context(Reader(name))
                emitter = self._emitter(old, manifest, is_compacted=is_compacted)
                if checksum is True and not is_compacted:
                    checksum = kept_digest(emitter, manifest)
                alignment = None if canonical else kept_alignment(emitter, frame, manifest)
                self._prepare(
                    emitter, checksum=checksum, alignment=alignment, canonical=canonical, **how
                )
                self.draft.attributes = dict(manifest.attributes or {}) or None
                self.draft.extra = manifest.extra
                self.draft.shards = {} if canonical else manifest.shards
                if old is None:
                    self.draft.version = manifest.version
                    self.draft.objects = WrittenObjects(manifest.objects)
                    self._was = dict(self.draft.objects.data), self.draft.attributes
                if old is None and not atomic:
                    self._begin(self._commit(frame), self.old_nbytes)
                    return
                new = Place(name).dry() if dry_run else FileSink(name, durable=durable)
                self._sink = new
                if old is None:
                    new.start_with(self._locked, blobs_end(frame, manifest), progress=progress)
                self._begin(new)
                if old is not None:
                    self._copy_all(sorted(old) if canonical else list(old), old, progress)
        except BaseException:
            if hasattr(self, "_sink"):
                self.abort()
            self._locked.close()
            raise

    def _emitter(self, old: Reader | None, manifest: Manifest, *, is_compacted: bool) -> Emitter:
        """Return the emitter of the new manifest; `old` is None if the file is not rewritten."""
        if old is None:
            return emitter_for(manifest)
        if is_compacted:
            return EMITTERS.named(Portable.version_of(old.objects))
        _LOG.warning(
            "%s: files of version %s cannot be extended; it becomes a %s file",
            describe(self._locked.name),
            manifest.version,
            EMITTERS.latest,
        )
        self.rewritten_from = manifest.version
        return EMITTERS.named(EMITTERS.latest)

    def _copy_all(self, names: Sequence[str], old: Reader, progress: Progress | None) -> None:
        """Copy stored objects without decoding."""
        self.copier.expect((old.objects, name) for name in names)
        nbytes = {name: old.metadata(name).stored_nbytes for name in names}
        report = summed(progress, sum(nbytes.values()))
        for name in names:
            self.copy(name, old)
            report(nbytes[name])

    def _commit(self, frame: Frame) -> CommitBehind | CommitOver:
        end = self.old_nbytes
        is_behind = frame.manifest_hash is None
        start = frame.manifest_offset if is_behind else end - FOOTER_2_BYTES
        guard = bytes(self._locked.read(start, end - start))
        return (CommitBehind if is_behind else CommitOver)(self._locked, guard)

    # --- Changes ----------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """Return the names of the objects after the commit."""
        return list(self.draft.objects)

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the key-value pairs of the file after the commit."""
        return dict(with_dicts(self.draft.attributes or {}))

    def metadata(self, name: str) -> TensorMetadata:
        """Return the metadata of an object after the commit.

        Raises:
            ObjectNotFoundError: the file has no object of that name.
        """
        return describe_object(name, self._require_object(name))

    def replace(self, name: str, data: TensorLike, **options: Unpack[ObjectOptions]) -> None:
        """Replace an object by data of any shape, element type and layout.

        Args:
            name: an object of the file.
            data: as for `write`.
            options: see `ztensor.typing.ObjectOptions`; by default a plain array keeps the old
                object's attributes.

        Raises:
            ObjectNotFoundError: no object of that name.
        """
        require_options("replace", options, ObjectOptions)
        with self._instead_of(name) as old:
            if "attributes" not in options and not hasattr(data, "attributes"):
                options["attributes"] = old.attributes
            self.write(name, data, **options)

    def replace_stream(
        self,
        name: str,
        shape: Sequence[int],
        dtype: ElementType,
        **options: Unpack[ObjectOptions],
    ) -> ObjectSink:
        """Return a sink for the new elements of an object, in pieces; see `stream`.

        Args:
            name: an object of the file.
            shape: the new shape.
            dtype: the new element type.
            options: see `ztensor.typing.ObjectOptions`; by default the old object's attributes are
                kept.

        Raises:
            ObjectNotFoundError: no object of that name.
            NotRepresentableError: the version cannot hold it.
        """
        require_options("replace_stream", options, ObjectOptions)
        with self._instead_of(name) as old:
            options.setdefault("attributes", old.attributes)
            return self.stream(name, shape, dtype, **options)

    @contextlib.contextmanager
    def _instead_of(self, name: str) -> Iterator[TensorObject]:
        """Remove an object for another one; put it back if that fails."""
        old = self._require_object(name)
        del self.draft.objects[name]
        try:
            yield old
        except BaseException:
            self.draft.objects[name] = old
            raise

    def remove(self, names: str | Iterable[str]) -> None:
        """Remove objects; their bytes stay until the file is compacted.

        Raises:
            ObjectNotFoundError: a name is not in the file; then nothing is removed.
        """
        wanted = dict.fromkeys([names] if isinstance(names, str) else names)
        for name in wanted:
            self._require_object(name)
        for name in wanted:
            del self.draft.objects[name]

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename objects, all at once: two can be swapped.

        A tree in the file (see `ztensor.save_tree`) keeps its shape: it refers to its tensors by
        their new names.

        Args:
            names: old names to new ones.

        Raises:
            ObjectNotFoundError: an old name is not in the file; then nothing is renamed.
            UsageError: a new name is taken.
            FormatError: a tree in the file is damaged.
            UnsupportedError: a tree in the file is of a newer release.
        """
        require_kind("names", names, Mapping, "a mapping from old names to new ones")
        for old, new in names.items():
            self._require_object(old)
            self._require_name(new)
        renamed: dict[str, Any] = {}
        for name, entry in self.draft.objects.data.items():
            new = names.get(name, name)
            if new in renamed:
                raise UsageError(
                    "the new name is taken",
                    reason=Reason.DUPLICATE_WRITE,
                    file=self._sink.name,
                    object_name=new,
                )
            renamed[new] = entry
        for key, kind, value in kinds_of(self.draft.attributes):
            budget = Budget(DEFAULT_LIMITS, self.old_nbytes)
            with self._located(None):
                changed = kind.renamed(value, names, budget)
            if changed is not value:
                self.draft.attributes = {**(self.draft.attributes or {}), key: changed}
        self.draft.objects.data = renamed

    def set_attributes(
        self, attributes: Mapping[str, object], *, name: str | None = None, replace: bool = False
    ) -> None:
        """Set key-value pairs of the file, or of one object.

        Args:
            attributes: keys and values; None as a value removes the key.
            name: the object; None means the file.
            replace: True drops all other keys.

        Raises:
            NotRepresentableError: a value cannot be stored, or breaks a rule of the layout.
            ObjectNotFoundError: the file has no object of that name.
        """
        self._require_open()
        changed = None if name is None else self._require_object(name)
        old = self.draft.attributes if changed is None else changed.attributes
        merged = {**({} if replace else old or {}), **attributes}
        merged = {key: value for key, value in merged.items() if value is not None}
        with self._located(name):
            if name is None or changed is None:
                self.draft.emitter.require_attributes(merged)
                self.draft.attributes = merged or None
            else:
                changed = changed._replace(attributes=merged or None)
                self.draft.emitter.require_object(changed)
                require_layout(changed)
                self.draft.objects[name] = changed

    # --- The end ----------------------------------------------------------------------------

    def finish(self) -> int:
        """Commit all changes at once, and return the file's length in bytes.

        Without a change nothing is written.

        Raises:
            ClosedError: the editor was finished or aborted before.
            SourceError: the commit failed; the file has its old state, unless the message says
                that only the last flush failed.
        """
        self._require_idle()
        if (self.draft.objects.data, self.draft.attributes) == self._was:
            self.abort()
            self.state = "finished"
            return self.old_nbytes
        with self._located(None, is_last=True):
            self._locked.require_in_place()
        return super().finish()

    def _end(self, state: Literal["finished", "aborted"]) -> None:
        try:
            super()._end(state)
        finally:
            self._locked.close()

    def _require_object(self, name: str) -> TensorObject:
        self._require_open()
        if name not in self.draft.objects:
            raise ObjectNotFoundError.named(str(name), self.draft.objects, self._sink.name)
        return self.draft.objects[name]


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
    """Rewrite a file without its dead bytes, and return the number of bytes saved.

    The new file replaces the old one atomically; version, alignment, attributes, encodings, digests
    and unknown fields stay, and objects of a 2.x file in other files stay there. Containers that
    are only read become 1.2.0. Stored bytes are copied, not decoded.

    Args:
        path: the file.
        canonical: for 2.x: True writes the canonical form, in which the same tensors always give
            the same bytes; objects in other files become part of this one.
        durable: see `ztensor.typing.EditOptions`, like the next two.
        lock: likewise.
        timeout: likewise.
        dry_run: True takes every step but writing.
        progress: called with the stored bytes copied so far and those to copy in all.

    Raises:
        ArgumentValueError: `canonical` is True for a file of 1.x or 0.1.
        NotRepresentableError: a name is not in NFC, as canonical files require.
        FormatError: the file is damaged; it is left as it is.
        UsageError: it is a file of another format, or a data shard of 2.x.
        SourceError: it cannot be read or written, or another process is writing it; it stays.
    """
    editor = Editor.__new__(Editor)
    editor._open(
        path_text(path),
        is_compacted=True,
        canonical=canonical,
        durable=durable,
        lock=lock,
        timeout=timeout,
        dry_run=dry_run,
        progress=progress,
    )
    with editor:
        return editor.old_nbytes - editor.finish()


__all__ = ["Editor", "compact"]
