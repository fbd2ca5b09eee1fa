"""A delta as a zTensor file: `docs/specification/delta.md`, section 1.

The file attribute `pyztensor.delta` has the ids of both states. An object of the layout
`pyztensor.delta/1` stands for each changed tensor; its components are the differences of those of
the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ztensor import Reader, Tensor
from ztensor import open as open_reader
from ztensor.delta.changes import Change, Delta, Kind, Part
from ztensor.delta.comparing import Comparison, Encoded
from ztensor.delta.errors import DeltaError, malformed
from ztensor.delta.states import IDS, PLAIN_LAYOUTS, Header
from ztensor.delta.stream import SparseStream
from ztensor.errors import describe
from ztensor.ext import STORAGE_TYPES, element_count
from ztensor.typing import Array, Openable

KEY = "pyztensor.delta"
LAYOUT = "pyztensor.delta/1"
_KINDS: tuple[Kind, ...] = ("changed", "added", "replaced")


class SparsePart(Part):
    """A component by its changed elements; see `stream`."""

    coding = "sparse"

    def __init__(self, header: Header, blob: Array) -> None:
        element = header._replace(nbytes=0).empty().dtype
        self._stream = SparseStream(blob.data, header.nbytes // element.itemsize, element)
        has_new_bits = self._stream.values == "new"
        super().__init__(
            header,
            blob.nbytes,
            self._stream.changed,
            "positions" if self._stream.needs_old else None if has_new_bits else "values",
        )

    def apply(self, old: Array | None, out: Array) -> None:
        """Write the new elements; see `Part`."""
        if old is None:
            raise malformed("a whole component is stored as a difference")
        self._stream.apply(old, out)

    def changes(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        """Yield the changed elements; see `Part`."""
        return self._stream.changes(old)


class WholePart(Part):
    """A component as a whole."""

    coding = "raw"

    def __init__(self, header: Header, blob: Array) -> None:
        super().__init__(header, blob.nbytes)
        self._blob = blob
        if blob.nbytes != header.nbytes:
            raise malformed(
                "a whole component has another length than its type says",
                expected=f"{header.nbytes:,} bytes",
                found=f"{blob.nbytes:,}",
            )

    def apply(self, old: Array | None, out: Array) -> None:
        """Write the new elements; see `Part`."""
        del old
        out.view(np.uint8)[...] = self._blob


_CODINGS: dict[str, Callable[[Header, Array], Part]] = {"sparse": SparsePart, "raw": WholePart}


class _Changes(Mapping[str, Change]):
    """The changes of a delta file, each read when it is looked up."""

    def __init__(self, reader: Reader, ids: str) -> None:
        self._reader, self._ids = reader, ids

    def __getitem__(self, name: str) -> Change:
        if name not in self._reader:
            raise KeyError(name)
        stored = self._reader.read(name)
        try:
            return _change(name, stored, self._ids)
        except DeltaError as error:
            raise error.locate(file=self._reader.name, object_name=name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._reader)

    def __len__(self) -> int:
        return len(self._reader)


def read(path: Openable) -> Delta | None:
    """Open a delta file; None if it is a zTensor file without a delta.

    Its digests are checked as its changes are read.

    Raises:
        DeltaError: the delta's own fields are malformed.
        FormatError: the file is damaged.
        SourceError: it cannot be read.
    """
    reader = open_reader(path, verify=True)
    try:
        fields = reader.attributes.get(KEY)
        if fields is None:
            reader.close()
            return None
        return _delta(reader, fields)
    except DeltaError as error:
        reader.close()
        raise error.locate(file=reader.name) from None
    except BaseException:
        reader.close()
        raise


def _delta(reader: Reader, fields: Any) -> Delta:
    _require_map(fields, f"the attribute {KEY}")
    if fields.get("version") != 1:
        raise malformed(
            "a delta of another version",
            expected="version 1",
            found=describe(fields.get("version")),
        )
    ids = fields.get("ids")
    if ids not in IDS:
        raise malformed("unknown ids", expected=" or ".join(IDS), found=describe(ids))
    attributes = _require_map(fields.get("attributes", {}), "attributes")
    removed = _require_map(fields.get("removed", {}), "removed")
    for name, old in removed.items():
        _require_id(old, ids, f"the id of the removed tensor {describe(name)}")
    label = fields.get("label")
    if not isinstance(label, str | None):
        raise malformed("the label is not text", found=describe(label))
    changed = dict(_require_map(attributes.get("set", {}), "attributes.set"))
    gone = attributes.get("remove", [])
    if not (isinstance(gone, list) and all(isinstance(key, str) for key in gone)):
        raise malformed("attributes.remove is not a list of keys", found=describe(gone))
    return Delta(
        reader.name,
        _Changes(reader, ids),
        ids=ids,
        base=_state_id(fields.get("base"), ids),
        result=_state_id(fields.get("result"), ids),
        removed=removed,
        attributes={**changed, **dict.fromkeys(gone)},
        label=label,
        nbytes=reader.nbytes,
        close=reader.close,
    )


def _change(name: str, stored: Tensor, ids: str) -> Change:
    fields = stored.attributes
    kind, parts = fields.get("kind"), _require_map(fields.get("parts"), "parts")
    layout = fields.get("layout")
    if stored.format != LAYOUT or kind not in _KINDS or not isinstance(layout, str):
        raise malformed(
            "the object is not the change of a tensor",
            expected=f"layout {LAYOUT}, with a kind and a layout",
            found=f"{describe(stored.format)}, {describe(kind)}, {describe(layout)}",
        )
    old = None if kind == "added" else _require_id(fields.get("old"), ids, "old")
    if parts.keys() != stored.components.keys():
        raise malformed(
            "parts and components differ",
            expected=describe(sorted(parts)),
            found=describe(sorted(stored.components)),
        )
    return Change(
        name=name,
        kind=kind,
        shape=stored.shape,
        layout=layout,
        attributes=_require_map(fields.get("attributes", {}), "attributes"),
        old=old,
        new=_require_id(fields.get("new"), ids, "new"),
        parts={
            role: _part(role, parts[role], blob, kind, stored.shape if layout == "dense" else None)
            for role, blob in stored.components.items()
        },
    )


def _part(role: str, fields: Any, blob: Array, kind: str, shape: tuple[int, ...] | None) -> Part:
    _require_map(fields, "the part")
    header = Header(fields.get("dtype"), fields.get("type"), fields.get("length"))
    coding = fields.get("coding")
    is_known = header.dtype in STORAGE_TYPES and isinstance(header.type, str | None)
    if not (is_known and type(header.nbytes) is int and header.nbytes >= 0 and coding in _CODINGS):
        raise malformed("a part is malformed", component=role, found=describe(fields))
    if kind != "changed" and coding == "sparse":
        raise malformed("a whole component is stored as a difference", component=role)
    if blob.dtype != np.uint8 or blob.ndim != 1:
        raise malformed("a component is not bytes", component=role, found=str(blob.dtype))
    if shape is not None and header.nbytes != header.nbytes_of(element_count(shape)):
        raise malformed(
            "a part has another length than its shape says",
            component=role,
            expected=f"{header.nbytes_of(element_count(shape)):,} bytes",
            found=f"{header.nbytes:,}",
        )
    try:
        return _CODINGS[coding](header, blob)
    except DeltaError as error:
        raise error.locate(component=role) from None


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


def fields_of(comparison: Comparison, label: str | None) -> dict[str, object]:
    """Return the file attributes of a delta."""
    changed, gone = comparison.attributes()
    fields: dict[str, object] = {
        "version": 1,
        "ids": comparison.ids,
        "base": comparison.base_id,
        "result": comparison.result_id,
    }
    if comparison.removed:
        fields["removed"] = comparison.removed
    if changed or gone:
        fields["attributes"] = {"set": changed, "remove": gone}
    if label is not None:
        fields["label"] = label
    return {KEY: fields}


def object_of(encoded: Encoded) -> Tensor:
    """Return the object of a delta file for the difference of one tensor."""
    new = encoded.pair.new
    attributes: dict[str, object] = {"kind": encoded.kind, "layout": new.format}
    attributes["new"] = encoded.pair.ids[1]
    if encoded.pair.ids[0] is not None:
        attributes["old"] = encoded.pair.ids[0]
    if new.attributes and (encoded.kind != "changed" or new.format not in PLAIN_LAYOUTS):
        attributes["attributes"] = dict(new.attributes)
    attributes["parts"] = {
        role: {
            "dtype": header.dtype,
            **({} if header.type is None else {"type": header.type}),
            "length": header.nbytes,
            "coding": coding,
        }
        for role, (header, coding, _) in encoded.components.items()
    }
    arrays = {role: coded.data for role, coded in encoded.components.items()}
    return Tensor(arrays, shape=new.shape, format=LAYOUT, attributes=attributes)
