"""A delta as a zTensor file: `docs/specification/delta.md`, section 1.

The file attribute `pyztensor.delta` has the ids of both states, and a table of the changed tensors.
Each is an object of its name, with the layout `pyztensor.delta/1`: its components are the bytes of
the differences of the tensor's components, and its shape is the length of the shortest. Releases of
2.x export an object by its shape, whatever its layout, and would read beyond the bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping
from typing import Any, Self

import numpy as np

from ztensor import Reader, Tensor, Writer
from ztensor import open as open_reader
from ztensor.delta.changes import Change, Delta, Kind, Part
from ztensor.delta.errors import malformed
from ztensor.delta.report import DeltaReport
from ztensor.delta.states import IDS, Header, headers_of, stored_form
from ztensor.delta.stream import SparseStream
from ztensor.errors import ManifestError, ZTensorError, describe
from ztensor.ext import (
    EMITTERS,
    STORAGE_TYPES,
    ObjectReader,
    cached_property,
    cbor,
    element_count,
    path_text,
)
from ztensor.limits import Budget, Limits
from ztensor.typing import Array, Openable, Path

KEY = "pyztensor.delta"
LAYOUT = "pyztensor.delta/1"
_KINDS: tuple[Kind, ...] = ("changed", "added", "replaced")
_COUNTS = ("tensors", "changed", "elements")


class SparsePart(Part):
    """A component by its changed elements; see `stream`."""

    coding = "sparse"

    def __init__(self, header: Header, blob: Array) -> None:
        self.blob = blob
        element = header.stored_dtype
        self._stream = SparseStream(blob.data, header.nbytes // element.itemsize, element)
        has_new_bits = self._stream.values == "new"
        super().__init__(
            header,
            blob.nbytes,
            self._stream.changed,
            "positions" if self._stream.needs_old else None if has_new_bits else "values",
        )

    def changes(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        """Yield the changed elements; see `Part`."""
        return self._stream.changes(old)

    def _unordered(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        return self._stream.changes(old, is_ordered=False)  # twice as fast with classes


class WholePart(Part):
    """A component as a whole."""

    coding = "raw"

    def __init__(self, header: Header, blob: Array, changed: int) -> None:
        super().__init__(header, blob.nbytes, changed)
        self.blob = blob
        if blob.nbytes != header.nbytes:
            raise malformed(
                "a whole component has another length than its type says",
                expected=f"{header.nbytes:,} bytes",
                found=f"{blob.nbytes:,}",
            )

    def apply(self, old: Array | None, out: Array) -> None:
        """Write the new elements; see `Part`."""
        del old
        out.view(np.uint8)[...] = self.blob

    def changes(self, old: Array | None) -> None:
        """Return None; see `Part`."""
        del old

    def whole(self, old: Array | None) -> Array:
        """Return all new elements, of the delta's own memory; see `Part`."""
        del old
        return self.blob.view(self.header.stored_dtype)


def whole_parts(tensor: Tensor) -> dict[str, WholePart]:
    """Return the components of a tensor, each as a whole."""
    parts = {}
    for role, header in headers_of(tensor).items():
        stored = stored_form(tensor.components[role])
        parts[role] = WholePart(header, stored.view(np.uint8), stored.size)
    return parts


def whole_change(name: str, tensor: Tensor) -> Change:
    """Return the change that replaces a tensor of any state by this one."""
    shape, attributes, parts = tuple(tensor.shape), dict(tensor.attributes), whole_parts(tensor)
    return Change(name, "replaced", shape, tensor.format, attributes, None, None, parts)


class _Changes(Mapping[str, Change]):
    """The changes of a delta file; the table is decoded once, a stream when it is looked up."""

    def __init__(self, reader: Reader, table: bytes, count: int, ids: str) -> None:
        self._reader, self._encoded, self._count, self._ids = reader, table, count, ids

    @cached_property
    def _table(self) -> Mapping[str, Any]:
        try:
            budget = Budget(Limits(), len(self._encoded))
            table = _require_map(cbor.decode(self._encoded, budget=budget), "the table of changes")
            if len(table) != self._count:
                raise malformed(
                    "the table has another number of tensors than its file says",
                    expected=f"{self._count:,}",
                    found=f"{len(table):,}",
                )
        except ManifestError as error:
            raise malformed(
                "the table of changes is not CBOR", file=self._reader.name, found=error.message
            ) from error
        except ZTensorError as error:
            raise error.locate(file=self._reader.name) from None
        return table

    def __getitem__(self, name: str) -> Change:
        fields = self._table[name]
        try:
            if name not in self._reader:
                raise malformed("the object of a change is missing")
            return _change(name, fields, self._ids, self._reader.read(name))
        except ZTensorError as error:
            raise error.locate(file=self._reader.name, object_name=name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return self._count


def read(path: Openable) -> Delta | None:
    """Open a delta file; None if it is a zTensor file without a delta.

    Its digests are checked as its changes are read.

    Raises:
        DeltaError: the delta's own fields are malformed.
        FormatError: the file is damaged.
        SourceError: it cannot be read.
    """
    reader = open_reader(path, verify=True)
    with closed_on_error(reader, reader.name):
        fields = reader.attributes.get(KEY)
        if fields is not None:
            return _delta(reader, fields)
    reader.close()
    return None


@contextlib.contextmanager
def closed_on_error(reader: ObjectReader, path: str) -> Iterator[None]:
    """Close a reader if an error is raised, and locate the library's errors in a path."""
    try:
        yield
    except BaseException as error:
        reader.close()
        if isinstance(error, ZTensorError):
            error.locate(file=path)
        raise


def _delta(reader: Reader, fields: Any) -> Delta:
    _require_map(fields, f"the attribute {KEY}")
    if fields.get("version") != 1 or not _is_count(fields.get("version")):
        raise malformed(
            "a delta of another version",
            expected="version 1",
            found=describe(fields.get("version")),
        )
    ids = fields.get("ids")
    if not _is_word(ids, IDS):
        raise malformed("unknown ids", expected=" or ".join(IDS), found=describe(ids))
    attributes = _require_map(fields.get("attributes", {}), "attributes")
    removed = _require_map(fields.get("removed", {}), "removed")
    for name, old in removed.items():
        _require_id(old, ids, f"the id of the removed tensor {describe(name)}")
    label, table = fields.get("label"), fields.get("changes")
    if not isinstance(label, str | None):
        raise malformed("the label is not text", found=describe(label))
    counts = [fields.get(word) for word in _COUNTS]
    if not (all(map(_is_count, counts)) and isinstance(table, bytes)):
        raise malformed("the table of changes or a number is malformed", found=describe(counts))
    changed = dict(_require_map(attributes.get("set", {}), "attributes.set"))
    gone = attributes.get("remove", [])
    if not (isinstance(gone, list) and all(isinstance(key, str) for key in gone)):
        raise malformed("attributes.remove is not a list of keys", found=describe(gone))
    return Delta(
        reader.name,
        _Changes(reader, table, counts[0], ids),
        ids=ids,
        base=_state_id(fields.get("base"), ids),
        result=_state_id(fields.get("result"), ids),
        removed=removed,
        attributes={**changed, **dict.fromkeys(gone)},
        label=label,
        changed=counts[1],
        elements=counts[2],
        nbytes=reader.nbytes,
        close=reader.close,
    )


def _change(name: str, fields: Any, ids: str, stored: Tensor) -> Change:
    _require_map(fields, "the change")
    kind, layout = fields.get("kind"), fields.get("layout")
    shape = fields.get("shape")
    is_shape = isinstance(shape, list) and all(map(_is_count, shape))
    is_known = kind in _KINDS and isinstance(layout, str) and is_shape
    if not (is_known and stored.format == LAYOUT):
        raise malformed(
            "the change of a tensor is malformed",
            expected=f"a kind, a layout and a shape, and an object of the layout {LAYOUT}",
            found=", ".join(map(describe, (kind, layout, shape, stored.format))),
        )
    parts = _require_map(fields.get("parts"), "parts")
    if parts.keys() != stored.components.keys():
        raise malformed(
            "the table has other components than the object",
            expected=describe(sorted(parts)),
            found=describe(sorted(stored.components)),
        )
    whole = element_count(shape) if layout == "dense" else None
    return Change(
        name=name,
        kind=kind,
        shape=tuple(shape),
        layout=layout,
        attributes=_require_map(fields.get("attributes", {}), "attributes"),
        old=None if kind == "added" else _require_id(fields.get("old"), ids, "old"),
        new=_require_id(fields.get("new"), ids, "new"),
        parts={
            role: _part(role, each, stored.components[role], kind, whole)
            for role, each in parts.items()
        },
    )


def _part(role: str, fields: Any, blob: Array, kind: str, count: int | None) -> Part:
    _require_map(fields, "the part")
    if blob.dtype != np.uint8 or blob.ndim != 1:
        raise malformed("a difference is not bytes", component=role, found=str(blob.dtype))
    header = Header(fields.get("dtype"), fields.get("type"), fields.get("length"))
    coding = fields.get("coding")
    is_known = _is_word(header.dtype, STORAGE_TYPES) and isinstance(header.type, str | None)
    if not (is_known and _is_count(header.nbytes) and _is_word(coding, ("sparse", "raw"))):
        raise malformed("a part is malformed", component=role, found=describe(fields))
    if kind != "changed" and coding == "sparse":
        raise malformed("a whole component is stored as a difference", component=role)
    if count is not None and header.nbytes != header.nbytes_of(count):
        raise malformed(
            "a part has another length than its shape says",
            component=role,
            expected=f"{header.nbytes_of(count):,} bytes",
            found=f"{header.nbytes:,}",
        )
    changed = fields.get("changed")
    try:
        is_sparse = coding == "sparse"
        part = SparsePart(header, blob) if is_sparse else WholePart(header, blob, changed)
        if part.changed != changed or not _is_count(changed):
            raise malformed(
                "a part has another number of changes than its table says",
                expected=describe(changed),
                found=describe(part.changed),
            )
    except ZTensorError as error:
        raise error.locate(component=role) from None
    return part


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_word(value: Any, words: Container[str]) -> bool:
    return isinstance(value, str) and value in words


def _require_map(value: Any, what: str) -> Mapping[str, Any]:
    if not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        raise malformed(f"{what} is not a map with names as keys", found=describe(value))
    return value


def _require_id(value: Any, ids: str, what: str) -> bytes:
    if not (isinstance(value, bytes) and len(value) == IDS[ids]):
        raise malformed(f"{what} is not an id", expected=f"{IDS[ids]} bytes", found=describe(value))
    return value


def _state_id(value: Any, ids: str) -> str:
    digits = value.removeprefix(f"{ids}:") if isinstance(value, str) else ""
    if len(digits) != 2 * IDS[ids] or set(digits) - set("0123456789abcdef"):
        raise malformed(
            "the id of a state is malformed", expected=f"{ids}:<digits>", found=describe(value)
        )
    return str(value)


# --- Writing ----------------------------------------------------------------------------------


class DeltaWriter:
    """Writes a delta file: a context, which keeps the file only if `finish` was called.

    Args:
        path: the new file.
        version: as in `ztensor.typing.WriteOptions`.
        options: of `ztensor.Writer`.
    """

    def __init__(self, path: Path, version: str = EMITTERS.latest, **options: Any) -> None:
        alignment = EMITTERS.named(version).form.alignments[0]  # 64 KiB for each would be a waste
        self._writer = Writer(path, version=version, alignment=alignment, **options)
        self.name = path_text(path)
        self._table: dict[str, dict[str, object]] = {}
        self._equal: dict[object, str] = {}
        self._changed = 0

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the file if it is not finished."""
        self._writer.abort()

    def add(self, change: Change) -> None:
        """Write the difference of a tensor. Tied or equal tensors share its bytes.

        Args:
            change: its parts are `SparsePart` or `WholePart`.
        """
        same = self._equal.setdefault((change.kind, change.old, change.new), change.name)
        if same != change.name:
            self._writer.share(change.name, same)
            self._table[change.name] = self._table[same]
        else:
            parts: Mapping[str, Any] = change.parts
            arrays = {role: part.blob for role, part in parts.items()}
            shape = [min(array.size for array in arrays.values())]
            self._writer.write(change.name, Tensor(arrays, shape=shape, format=LAYOUT))
            self._table[change.name] = _fields(change)
        self._changed += change.changed or 0

    def finish(
        self,
        ids: tuple[str, str],
        elements: int,
        removed: Mapping[str, bytes],
        attributes: Mapping[str, Any],
        label: str | None,
    ) -> DeltaReport:
        """Write the table and finish the file.

        Args:
            ids: of the states before and after.
            elements: of the state after.
            removed: name to id of each removed tensor.
            attributes: key to new value of each changed attribute of the file; None removes it.
            label: the caller's text.
        """
        fields: dict[str, object] = {
            "version": 1,
            "ids": ids[0].partition(":")[0],
            "base": ids[0],
            "result": ids[1],
            "tensors": len(self._table),
            "changed": self._changed,
            "elements": elements,
            "changes": cbor.encode(self._table),
        }
        if removed:
            fields["removed"] = dict(removed)
        if attributes:
            changed = {key: value for key, value in attributes.items() if value is not None}
            gone = [key for key in attributes if key not in changed]
            fields["attributes"] = {"set": changed, "remove": gone}
        if label is not None:
            fields["label"] = label
        self._writer.draft.set_attributes({KEY: fields})
        nbytes = self._writer.finish()
        tensors = len(self._table) + len(removed)
        return DeltaReport(self.name, *ids, tensors, self._changed, nbytes)


def _fields(change: Change) -> dict[str, object]:
    """Return the entry of a changed tensor in the table."""
    parts: dict[str, object] = {}
    for role, part in change.parts.items():
        dtype, type_, nbytes = part.header
        words = {"dtype": dtype, **({} if type_ is None else {"type": type_}), "length": nbytes}
        parts[role] = {**words, "coding": part.coding, "changed": part.changed}
    entry: dict[str, object] = {"kind": change.kind, "layout": change.layout}
    entry |= {"shape": list(change.shape), "new": change.new, "parts": parts}
    if change.old is not None:
        entry["old"] = change.old
    if change.attributes:
        entry["attributes"] = dict(change.attributes)
    return entry
