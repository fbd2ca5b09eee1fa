"""Several changes to a finished file of another format as one new file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, Unpack

from ztensor import TensorMetadata
from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    NotRepresentableError,
    ObjectNotFoundError,
    Reason,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.ext import FileObjects, Manifest, ObjectReader, Objects, Place, path_text
from ztensor.formats.editing.header import Item, parsed
from ztensor.formats.editing.indexes import require_whole_model
from ztensor.formats.editing.plan import Plan
from ztensor.formats.parts import lose_attributes
from ztensor.formats.saving import reader_of
from ztensor.options import EditOptions, require_nothing_of_zt, require_options
from ztensor.typing import Durable, Path, Progress, TensorLike

_DATA = "data"  # the name of an array in memory
Lose = Callable[[str | None, str], None]


class FormatEditor:
    """Changes a finished `.safetensors` or `.gguf` file; all changes until `finish` are one.

    It has the verbs of `ztensor.Editor`. `finish` writes a new file beside the old one and
    renames it: at every moment there is the old file or the new one, and a reader of the old file
    keeps its bytes. Bytes that do not change are copied by the system, which shares their blocks
    where it can, and compared before the rename. Leaving a `with` block commits, an exception
    leaves the file as it was.

    Args:
        path: the file.
        options: see `ztensor.typing.EditOptions`; `atomic` is always true, and options of zTensor
            files such as `compression` are refused.

    Attributes:
        format: the name of the format.
        old_nbytes: the file's length when it was opened.
        copied_nbytes, written_nbytes: after `finish`: the bytes of the new file that the old one
            has, and the others.
        rewritten_from: None; see `ztensor.Editor`.

    Raises:
        FormatError: the file is damaged.
        UsageError: it is a file of a format that cannot be changed.
        SourceError: it cannot be opened for writing, or another process is writing it.
    """

    rewritten_from: None = None
    copied_nbytes = written_nbytes = 0

    def __init__(self, path: Path, **options: Unpack[EditOptions]) -> None:
        require_options("FormatEditor", options, EditOptions)
        self._open(path_text(path), **options)

    def _open(
        self,
        name: str,
        *,
        atomic: bool = True,
        durable: Durable = "auto",
        lock: bool = True,
        timeout: float = 0.0,
        dry_run: bool = False,
        progress: Progress | None = None,
        **others: Any,
    ) -> None:
        del atomic
        self._name, self._durable, self._progress = name, durable, progress
        self._dry_run, self._is_open = dry_run, True
        self._file = Place.of(name).locked(lock=lock, timeout=timeout)
        self.old_nbytes: int = self._file.size
        try:
            self._header, self._items = parsed(self._file, are_checked=True)
            self.format = self._header.format
            require_nothing_of_zt(self.format, others)
        except BaseException:
            self.abort()
            raise
        self._was = self._state()

    def _state(self) -> object:
        return list(self._items.items()), dict(self._header.attributes)

    # --- Contents ---------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """Return the names of the tensors after the commit."""
        return list(self._items)

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the key-value pairs of the file after the commit."""
        return dict(self._header.attributes)

    def metadata(self, name: str) -> TensorMetadata:
        """Return the metadata of a tensor after the commit; its offset is the old one.

        Raises:
            ObjectNotFoundError: the file has no tensor of that name.
        """
        manifest = Manifest("", {name: self._require(name).tensor})
        return ObjectReader(FileObjects(self._file, manifest)).metadata(name)

    # --- Changes ----------------------------------------------------------------------------

    def write(self, name: str, data: TensorLike) -> None:
        """Add a tensor. The data is read by `finish`, and must not change before.

        Args:
            name: a new name.
            data: a `Tensor` or an array, of a type that the format holds.

        Raises:
            NotRepresentableError: the format cannot hold it.
            UsageError: the name is taken.
        """
        self.copy(name, reader_of({_DATA: data}), _DATA)

    def replace(self, name: str, data: TensorLike) -> None:
        """Replace a tensor by data of any shape and element type; as `write`.

        Raises:
            ObjectNotFoundError: the file has no tensor of that name.
            NotRepresentableError: the format cannot hold it.
        """
        self.copy(name, reader_of({_DATA: data}), _DATA, is_replaced=True)

    def copy(
        self,
        name: str,
        reader: ObjectReader | Objects,
        from_name: str | None = None,
        *,
        is_replaced: bool = False,
        lose: Lose | None = None,
    ) -> None:
        """Add an object of another file, which stays open until `finish` reads it.

        Args:
            name: the tensor's name here.
            reader: an open reader of the other file, or its `objects`.
            from_name: its name there, by default the same.
            is_replaced: True puts it in the place of the tensor with its name.
            lose: called with the name and a sentence if attributes of the object are lost, which by
                default is an error, as any other loss is.

        Raises:
            NotRepresentableError: the format cannot hold it.
            ObjectNotFoundError: the other file has no object of that name; or nothing is replaced.
            UsageError: a name is taken.
        """
        self._require_open()
        self._require_text(name)
        place = self._require(name).place if is_replaced else self.old_nbytes
        lost: list[tuple[str | None, str]] = []
        own: list[tuple[str | None, str]] = []  # of attributes
        source = name if from_name is None else from_name
        objects = reader.objects if isinstance(reader, ObjectReader) else reader
        attributes = ObjectReader(objects).metadata(source).attributes  # raises if it is missing
        lose_attributes(lambda *loss: own.append(loss), source, attributes)
        written = self._header.written(
            ObjectReader(objects.select([source])), lambda *loss: lost.append(loss)
        )
        grave = [loss[1] for loss in lost if lose is None or loss not in own]
        if grave or len(written) != 1:
            raise NotRepresentableError(
                f"a {self.format} file cannot hold this: {(grave or ['several tensors'])[0]}",
                file=self._name,
                object_name=name,
            )
        if lose is not None:
            for loss in lost:
                lose(*loss)
        self._require_name(name)
        if name in self._items and not is_replaced:
            raise self._taken(name)
        ((tensor, part),) = written
        self._items[name] = Item(tensor, place, part)

    def remove(self, names: str | Iterable[str]) -> None:
        """Remove tensors.

        Raises:
            ObjectNotFoundError: a name is not in the file; then nothing is removed.
        """
        wanted = dict.fromkeys([names] if isinstance(names, str) else names)
        for name in wanted:
            self._require(name)
        for name in wanted:
            del self._items[name]

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename tensors, all at once: two can be swapped.

        Args:
            names: old names to new ones.

        Raises:
            ObjectNotFoundError: an old name is not in the file; then nothing is renamed.
            NotRepresentableError: the format cannot store a name.
            UsageError: a new name is taken.
        """
        for old, new in names.items():
            self._require(old)
            self._require_name(new)
        renamed: dict[str, Item] = {}
        for name, item in self._items.items():
            new = names.get(name, name)
            if new in renamed:
                raise self._taken(new)
            renamed[new] = item
        self._items = renamed

    def set_attributes(
        self,
        attributes: Mapping[str, object],
        *,
        name: str | None = None,
        replace: bool = False,
        types: Mapping[str, str] | None = None,
    ) -> None:
        """Set key-value pairs of the file.

        Args:
            attributes: keys and values; None as a value removes the key. A GGUF key keeps its type,
                and text for a key of another type is parsed as JSON; safetensors holds text only.
            name: must be None: tensors have no attributes in these formats.
            replace: True drops all other keys.
            types: types of GGUF keys, such as `u32`, `f32`, `str`, `bool` or `[str]`; by default a
                new key has the smallest common type that fits.

        Raises:
            NotRepresentableError: a value cannot be stored.
            ArgumentValueError: no such type.
        """
        self._require_open()
        for argument in (attributes, {} if types is None else types):
            if not isinstance(argument, Mapping):
                message = "attributes and types are mappings from keys"
                raise ArgumentTypeError(message, found=describe(argument, 40))
        if name is not None:
            raise NotRepresentableError(
                f"tensors of a {self.format} file have no attributes",
                file=self._name,
                object_name=name,
            )
        old = dict.fromkeys(self._header.attributes) if replace else {}
        for key, value in {**old, **attributes}.items():
            self._require_text(key)
            with self._located():
                self._header.set(key, value, (types or {}).get(key))

    # --- The end ----------------------------------------------------------------------------

    def finish(self, progress: Progress | None = None) -> int:
        """Write the new file, put it in place, and return its length in bytes.

        Without a change nothing is written.

        Args:
            progress: called with the bytes written so far and in all; by default the option.

        Raises:
            ClosedError: the editor was finished or aborted before.
            NotRepresentableError: the header would be too long.
            FormatError: stored bytes of a new tensor are damaged.
            UsageError: an index of several files would be wrong after the change.
            SourceError: the file cannot be written; the old one is in place.
        """
        self._require_open()
        try:
            is_changed = self._state() != self._was
            self._was = None
            if not is_changed:
                return self.old_nbytes
            require_whole_model(self._name, self._header, self._items)
            plan = Plan.of(self._header, self._items)
            plan.put(
                self._file,
                Place.of(self._name),
                self._file.require_in_place,
                durable=self._durable,
                dry_run=self._dry_run,
                progress=progress or self._progress,
            )
            self.copied_nbytes = sum(piece.length for piece in plan.kept)
            self.written_nbytes = plan.nbytes - self.copied_nbytes
            return plan.nbytes
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop all changes, and close the file; nothing happens after `finish`."""
        self._is_open = False
        self._file.close()

    def __enter__(self) -> Self:
        """Return the editor itself."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Finish, or abort after an exception."""
        try:
            if kind is None and self._is_open:
                self.finish()
        finally:
            self.abort()

    # --- Checks -----------------------------------------------------------------------------

    def _require_open(self) -> None:
        if not self._is_open:
            raise ClosedError("the editor is closed", file=self._name)

    def _require(self, name: str) -> Item:
        self._require_open()
        if name not in self._items:
            raise ObjectNotFoundError.named(str(name), self._items, self._name)
        return self._items[name]

    def _require_name(self, name: str) -> None:
        self._require_text(name)
        with self._located():
            self._header.require_name(name)

    def _require_text(self, name: object) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError("a name or key is text", file=self._name, found=describe(name))

    @contextlib.contextmanager
    def _located(self) -> Iterator[None]:
        """Add the file to an error of the header."""
        try:
            yield
        except ZTensorError as error:
            error.locate(file=self._name)
            raise

    def _taken(self, name: str) -> UsageError:
        return UsageError(
            "the name is taken", reason=Reason.DUPLICATE_WRITE, file=self._name, object_name=name
        )
