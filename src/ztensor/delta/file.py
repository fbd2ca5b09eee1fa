"""A delta as a zTensor file: `docs/specification/delta.md`, section 1.

The file attribute `pyztensor.delta` has the ids of both states, and a table of the changed tensors.
Each is an object of its name, with the layout `pyztensor.delta/1`: its components are the bytes of
the differences of the tensor's components, and its shape is the length of the shortest. Releases of
2.x export an object by its shape, whatever its layout, and would read beyond the bytes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, Self

import numpy as np

from ztensor import Reader, Tensor, Writer
from ztensor import open as open_reader
from ztensor.delta.changes import Change, Delta, Kind, Part
from ztensor.delta.errors import malformed, require
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
        is_fit = blob.nbytes == header.nbytes
        require(is_fit, f"a whole component does not have {header.nbytes:,} bytes", blob.nbytes)
        self.whole = blob.view(header.stored_dtype)


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
            is_whole = len(table) == self._count
            require(is_whole, f"the table does not have {self._count:,} tensors", len(table))
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
            require(name in self._reader, "the object of a change is missing", name)
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
    version, ids, label = (fields.get(key) for key in ("version", "ids", "label"))
    require(_is_count(version) and version == 1, "a delta of another version than 1", version)
    require(_is_word(ids, IDS), f"ids are not {' or '.join(IDS)}", ids)
    removed = _require_map(fields.get("removed", {}), "removed")
    for name, old in removed.items():
        _require_id(old, ids, f"the id of the removed tensor {describe(name)}")
    require(isinstance(label, str | None), "the label is not text", label)
    count, changed, elements, table = (fields.get(key) for key in (*_COUNTS, "changes"))
    are_counts = all(map(_is_count, (count, changed, elements)))
    require(are_counts, "a number of the delta is malformed", [count, changed, elements])
    require(isinstance(table, bytes), "the table of changes is not bytes", table)
    attributes = _require_map(fields.get("attributes", {}), "attributes")
    new, gone = attributes.get("set", {}), attributes.get("remove", [])
    are_keys = isinstance(gone, list) and all(isinstance(key, str) for key in gone)
    require(are_keys, "attributes.remove is not a list of keys", gone)
    return Delta(
        reader.name,
        _Changes(reader, table, count, ids),
        ids=ids,
        base=_require_state(fields.get("base"), ids),
        result=_require_state(fields.get("result"), ids),
        removed=removed,
        attributes={**_require_map(new, "attributes.set"), **dict.fromkeys(gone)},
        label=label,
        changed=changed,
        elements=elements,
        nbytes=reader.nbytes,
        close=reader.close,
    )


def _change(name: str, fields: Any, ids: str, stored: Tensor) -> Change:
    _require_map(fields, "the change")
    kind, layout, shape = (fields.get(key) for key in ("kind", "layout", "shape"))
    require(_is_word(kind, _KINDS), "the kind of a change is unknown", kind)
    require(isinstance(layout, str), "the layout is not text", layout)
    is_shape = isinstance(shape, list) and all(map(_is_count, shape))
    require(is_shape, "the shape is not a list of sizes", shape)
    require(stored.format == LAYOUT, "the object has another layout", stored.format)
    parts, roles = _require_map(fields.get("parts"), "parts"), stored.components.keys()
    require(parts.keys() == roles, "parts are not those of the object", [*parts], expected=[*roles])
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
    try:
        _require_map(fields, "the part")
        header = Header(fields.get("dtype"), fields.get("type"), fields.get("length"))
        coding, changed = fields.get("coding"), fields.get("changed")
        is_known = _is_word(header.dtype, STORAGE_TYPES) and isinstance(header.type, str | None)
        is_known &= _is_word(coding, ("sparse", "raw"))
        require(is_known, "the type or coding of a part is unknown", fields)
        are_counts = _is_count(header.nbytes) and _is_count(changed)
        require(are_counts, "a number of a part is malformed", fields)
        require(blob.dtype == np.uint8 and blob.ndim == 1, "a difference is not bytes", blob.dtype)
        is_whole = kind == "changed" or coding == "raw"
        require(is_whole, "a whole component is stored as a difference", coding)
        is_fit = count is None or header.nbytes == header.nbytes_of(count)
        require(is_fit, "a part has another length than its shape says", header.nbytes)
        part = SparsePart(header, blob) if coding == "sparse" else WholePart(header, blob, changed)
        message = "a part has another number of changes than its table says"
        require(part.changed == changed, message, part.changed, expected=changed)
    except ZTensorError as error:
        raise error.locate(component=role) from None
    return part


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_word(value: Any, words: Container[str]) -> bool:
    return isinstance(value, str) and value in words


def _require_map(value: Any, subject: str) -> Mapping[str, Any]:
    is_map = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    require(is_map, f"{subject} is not a map", value, expected="a map with names as keys")
    return value  # type: ignore[no-any-return]  # it was checked


def _require_id(value: Any, ids: str, subject: str) -> bytes:
    is_id = isinstance(value, bytes) and len(value) == IDS[ids]
    require(is_id, f"{subject} is not an id", value, expected=f"{IDS[ids]} bytes")
    return value  # type: ignore[no-any-return]  # it was checked


def _require_state(value: Any, ids: str) -> str:
    pattern = f"{ids}:[0-9a-f]{{{2 * IDS[ids]}}}"
    is_id = isinstance(value, str) and re.fullmatch(pattern, value) is not None
    require(is_id, f"the id of a state is not {ids}:<digits>", value)
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
            "removed": dict(removed) or None,
            "label": label,
        }
        if attributes:
            new = {key: value for key, value in attributes.items() if value is not None}
            fields["attributes"] = {"set": new, "remove": [k for k in attributes if k not in new]}
        fields = {key: value for key, value in fields.items() if value is not None}
        self._writer.draft.set_attributes({KEY: fields})
        nbytes = self._writer.finish()
        tensors = len(self._table) + len(removed)
        return DeltaReport(self.name, *ids, tensors, self._changed, nbytes)


def _fields(change: Change) -> dict[str, object]:
    """Return the entry of a changed tensor in the table."""
    parts: dict[str, object] = {}
    for role, part in change.parts.items():
        words = zip(("dtype", "type", "length"), part.header, strict=True)
        known = {word: value for word, value in words if value is not None}
        parts[role] = {**known, "coding": part.coding, "changed": part.changed}
    entry: dict[str, object] = {"kind": change.kind, "layout": change.layout}
    entry |= {"shape": list(change.shape), "old": change.old, "new": change.new, "parts": parts}
    entry["attributes"] = dict(change.attributes) or None
    return {word: value for word, value in entry.items() if value is not None}
