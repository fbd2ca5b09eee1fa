"""Several changes to a finished file as one commit.

The new state is appended behind the old one (`io/source/appending.py` has the orders), so a change
costs what is new, and a crash at any moment leaves the old state or the new one. With
`atomic=True` the same is done to a copy, which then takes the old file's place.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztensor.arguments import require_kind
from ztensor.errors import (
    FormatError,
    NotRepresentableError,
    ObjectNotFoundError,
    Reason,
    UsageError,
    describe,
)
from ztensor.io.attributes import kinds_of
from ztensor.io.contents import refuse_not_ours
from ztensor.io.edit.rewriting import (
    copy_objects,
    emitter_for,
    kept_alignment,
    require_manifest,
)
from ztensor.io.metadata import TensorMetadata, describe_object
from ztensor.io.opening import Reader
from ztensor.io.reading.file import FileObjects
from ztensor.io.source.appending import CommitBehind, CommitOver, LockedFile
from ztensor.io.source.paths import path_text
from ztensor.io.source.sink import FileSink
from ztensor.io.source.targets import Nowhere
from ztensor.io.writing.stream import ObjectSink
from ztensor.io.writing.writer import Writer
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.options import EditOptions, ObjectOptions, require_options
from ztensor.spec.container import EMITTERS, Emitter
from ztensor.spec.container.framing import FOOTER_2_BYTES, HEAD_BYTES, Container, Frame
from ztensor.spec.digest import writable
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.model.manifest import Manifest, TensorObject, WrittenObjects
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Unpack

    from ztensor.accepted import Durable, ElementType, Path, Progress, TensorLike

_LOG = logging.getLogger("ztensor")


class Editor(Writer):
    """Changes a finished file; all changes until `finish` are one commit.

    A `Writer` whose file already holds objects: `write`, `add`, `stream` and `copy` add some;
    `replace`, `remove`, `rename` and `set_attributes` change those there are. Leaving a `with`
    block commits, an exception leaves the file as it was.

    Args:
        path: the file.
        options: see `ztensor.typing.EditOptions`.

    Attributes:
        old_nbytes: the file's length when it was opened.
        rewritten_from: the version of a file whose container cannot be extended in place (0.1.0,
            and that of releases 1.0.0 and 1.0.1) and which becomes a 1.2.0 file; None otherwise.

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
        atomic: bool = False,
        compression: bool | int | str = False,
        checksum: str | bool | None = True,
        chunk_rows: int | None = None,
        durable: Durable = "auto",
        lock: bool = True,
        timeout: float = 0.0,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Open the file for what is changed; see `EditOptions`."""
        self.rewritten_from: str | None = None
        self._has_changed = False
        # Held to the end whatever is written to: it keeps other writers out.
        self._locked = LockedFile(
            name, durable=durable, lock=lock, timeout=timeout, dry_run=dry_run
        )
        self.old_nbytes: int = self._locked.size
        try:
            frame, manifest = _read_committed(self._locked)
            is_kept = frame.container in (Container.V1, Container.V2)
            emitter = emitter_for(manifest) if is_kept else EMITTERS.named(EMITTERS.latest)
            self._prepare(
                emitter,
                compression=compression,
                checksum=_digest_of_all(manifest, emitter) if checksum is True else checksum,
                chunk_rows=chunk_rows,
                alignment=kept_alignment(emitter, frame, manifest) if is_kept else None,
            )
            self.draft.attributes = dict(manifest.attributes or {}) or None
            self.draft.extra = manifest.extra
            if is_kept:
                self.draft.version = manifest.version
                self.draft.objects = WrittenObjects(manifest.objects)
                self.draft.shards = manifest.shards
            if is_kept and not atomic:
                self._append(frame)
            else:
                new = Nowhere(name) if dry_run else FileSink(name, durable=durable)
                self._begin_new(new, frame, manifest, progress)
        except BaseException:
            self._locked.close()
            raise
        self._old_count = len(self.draft.objects)

    def _append(self, frame: Frame) -> None:
        end = self._locked.size
        is_behind = frame.manifest_hash is None
        start = frame.manifest_offset if is_behind else end - FOOTER_2_BYTES
        guard = bytes(self._locked.read(start, end - start))
        order = CommitBehind if is_behind else CommitOver
        self._extend(order(self._locked, guard), end)

    def _begin_new(
        self,
        new: FileSink | Nowhere,
        frame: Frame,
        manifest: Manifest,
        progress: Progress | None,
    ) -> None:
        """Begin a new file with the blobs of the old one, or anew where its version is too old."""
        try:
            if frame.container not in (Container.V1, Container.V2):
                self._rewrite(new, manifest.version, progress)
                return
            length = _blobs_end(frame, manifest)
            self._extend(new, 0)
            if isinstance(new, FileSink):
                new.start_with(self._locked, length, progress=progress)
            else:
                new.position = length
        except BaseException:
            new.abort()
            raise

    def _rewrite(self, new: FileSink | Nowhere, version: str, progress: Progress | None) -> None:
        _LOG.warning(
            "%s: files of version %s cannot be extended; it becomes a %s file",
            describe(self._locked.name),
            version,
            EMITTERS.latest,
        )
        self.rewritten_from = version
        self._has_changed = True
        self._begin(new)
        with Reader(self._locked.name) as old:
            copy_objects(self, old, list(old), progress)

    # --- Changes ----------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """Return the names the file will hold."""
        return list(self.draft.objects)

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the key-value pairs the file will have."""
        return dict(with_dicts(self.draft.attributes or {}))

    def metadata(self, name: str) -> TensorMetadata:
        """Return what the file will hold under a name.

        Raises:
            ObjectNotFoundError: no object of that name.
        """
        return describe_object(name, self._require_object(name))

    def replace(self, name: str, data: TensorLike, **options: Unpack[ObjectOptions]) -> None:
        """Put other data under a name, of any shape, element type and layout.

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
        """Return a sink that takes in pieces what comes under a name, as `stream` does.

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
        """Take an object out for another one; it stays where that fails."""
        old = self._require_object(name)
        del self.draft.objects[name]
        try:
            yield old
        except BaseException:
            self.draft.objects[name] = old
            raise
        self._has_changed = True

    def remove(self, names: str | Iterable[str]) -> None:
        """Take objects out of the file; their bytes stay until it is compacted.

        Raises:
            ObjectNotFoundError: a name is not in the file; then nothing is removed.
        """
        wanted = dict.fromkeys([names] if isinstance(names, str) else names)
        for name in wanted:
            self._require_object(name)
        for name in wanted:
            del self.draft.objects[name]
        self._has_changed = self._has_changed or bool(wanted)

    def rename(self, names: Mapping[str, str]) -> None:
        """Give objects other names, all at once: two can be swapped.

        A tree in the file (see `ztensor.save_tree`) stays what it is: it has its tensors under
        their new names, in the places they had.

        Args:
            names: old names to new ones.

        Raises:
            ObjectNotFoundError: an old name is not in the file; then nothing is renamed.
            UsageError: a new name is taken.
            FormatError: the file holds a tree that is damaged.
            UnsupportedError: it holds a tree of a newer release.
        """
        require_kind("names", names, Mapping, "a mapping from old names to new ones")
        for old, new in names.items():
            self._require_object(old)
            self._require_name(new)
        entries = self.draft.objects.data
        renamed = {names.get(name, name): entry for name, entry in entries.items()}
        if len(renamed) != len(self.draft.objects):
            targets = list(names.values())
            staying = self.draft.objects.keys() - names.keys()
            taken = next(new for new in targets if new in staying or targets.count(new) > 1)
            raise UsageError(
                "the new name is taken",
                reason=Reason.DUPLICATE_WRITE,
                file=self._sink.name,
                object_name=taken,
            )
        for key, kind, value in kinds_of(self.draft.attributes):
            budget = Budget(DEFAULT_LIMITS, self.old_nbytes)
            with self._located(None):
                changed = kind.renamed(value, names, budget)
            if changed is not value:
                self.draft.attributes = {**(self.draft.attributes or {}), key: changed}
        self.draft.objects.data = renamed
        self._has_changed = self._has_changed or any(old != new for old, new in names.items())

    def set_attributes(
        self, attributes: Mapping[str, object], *, name: str | None = None, replace: bool = False
    ) -> None:
        """Set key-value pairs of the file, or of one object.

        Args:
            attributes: what to set; a value of None takes the key away.
            name: the object; None for the file.
            replace: True drops all keys that are not given.

        Raises:
            NotRepresentableError: a value cannot be stored, or the object's layout needs another.
            ObjectNotFoundError: no object of that name.
        """
        self._require_open()
        tensor_object = None if name is None else self._require_object(name)
        old = self.draft.attributes if tensor_object is None else tensor_object.attributes
        merged = {} if replace else dict(old or {})
        merged.update(attributes)
        merged = {key: value for key, value in merged.items() if value is not None}
        with self._located(name):
            if tensor_object is None or name is None:
                self.draft.emitter.require_attributes(merged)
                self.draft.attributes = merged or None
            else:
                changed = tensor_object._replace(attributes=merged or None)
                self.draft.emitter.require_object(changed)
                _require_layout(changed)
                self.draft.objects[name] = changed
        self._has_changed = True

    # --- The end ----------------------------------------------------------------------------

    def finish(self) -> int:
        """Commit all changes at once, and return the file's length in bytes.

        Where nothing changed, nothing is written.

        Raises:
            ClosedError: the editor was finished or aborted before.
            SourceError: the commit failed; the file holds its old state unless the message says
                that only the last flush failed.
        """
        self._require_open()
        if self._streamed is None:
            # Whatever else than adding objects changes the file says so.
            if not self._has_changed and len(self.draft.objects) == self._old_count:
                size = self._locked.size
                self.abort()
                self.state = "finished"
                return size
            try:
                self._locked.require_in_place()
            except BaseException:
                self.abort()
                raise
        return super().finish()

    def _release(self) -> None:
        self._locked.close()

    def _require_object(self, name: str) -> TensorObject:
        self._require_open()
        if name not in self.draft.objects:
            raise ObjectNotFoundError.named(str(name), self.draft.objects, self._sink.name)
        return self.draft.objects[name]


def _read_committed(source: LockedFile) -> tuple[Frame, Manifest]:
    try:
        frame, manifest = FileObjects.manifest_in(source, DEFAULT_LIMITS)
    except FormatError as error:
        if error.reason is Reason.NOT_ZTENSOR:
            refuse_not_ours(source, error)
        error.hint = (
            "a damaged file is not changed: "
            f"`ztensor repair {describe(source.name, 200)}` shows what can be saved"
        )
        raise
    for _, kind, value in kinds_of(manifest.attributes):
        kind.require_changeable(value, source.name)
    require_manifest(frame, source.name)
    return frame, manifest


def _digest_of_all(manifest: Manifest, emitter: Emitter) -> str | bool:
    """Return the kind of digest that a file has, or True, for the usual, where it is not one."""
    kinds = set()
    for tensor_object in manifest.objects.values():
        for component in tensor_object.components.values():
            if component.digest is not None:
                kinds.add(component.digest.partition(":")[0].lower())
                if len(kinds) > 1:
                    return True
    return kinds.pop() if kinds and kinds <= {*(emitter.form.checksums or writable())} else True


def _blobs_end(frame: Frame, manifest: Manifest) -> int:
    """Return how much of a file its blobs need; in 2.x they may lie behind the manifest."""
    if frame.manifest_hash is None:
        return frame.manifest_offset
    parts = (part for one in manifest.objects.values() for part in one.components.values())
    return max((p.offset + p.length for p in parts if p.shard is None), default=HEAD_BYTES)


def _require_layout(tensor_object: TensorObject) -> None:
    """Raise where an object breaks a rule of its layout: then nobody would open the file.

    Raises:
        NotRepresentableError: so it does.
    """
    layout = LAYOUTS.get(tensor_object.format)
    problems = [] if layout is None else layout.check_object(tensor_object)
    if problems:
        raise NotRepresentableError(
            f"the layout {tensor_object.format} would be broken: {problems[0].message}",
            component=problems[0].component,
            section=problems[0].section,
        )


__all__ = ["Editor"]
