"""Sheets of tensors, saved trees and records, without a value of a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ztensor import Tensor
from ztensor.errors import counted, describe, without_secrets
from ztensor.insight.notebook.sheet import FileText, Number, Sheet, Table
from ztensor.insight.text import shape_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor import training

_CHARACTERS = 100  # most characters of a plain value


def of_tensor(tensor: Tensor) -> Sheet:
    """Return the sheet of a tensor, without its values, which may be on disk."""
    attributes = [
        (f"attribute {describe(key, 60)}", FileText(describe(value, _CHARACTERS)))
        for (key, value), _ in zip(tensor.attributes.items(), range(20), strict=False)
    ]
    facts = [
        ("shape", shape_text(tensor.shape)),
        ("type", FileText(tensor.type or tensor.dtype or "unknown")),
        ("format", FileText(tensor.format)),
        ("size", size_text(tensor.nbytes)),
        *attributes,
    ]
    rows = [
        (
            FileText(role),
            shape_text(component.shape),
            component.dtype.name,
            Number(size_text(component.nbytes)),
        )
        for role, component in tensor.components.items()
    ]
    columns = ("component", "shape", "type", "size")
    table = Table(counted(len(rows), "component"), columns, rows, len(rows))
    return Sheet("ztensor.Tensor", "", facts, [table])


def of_tree(tree: training.LazyTree) -> Sheet:
    """Return the sheet of a saved tree; no leaf is read."""

    def rows() -> Iterator[Sequence[str]]:
        for path in tree:
            leaf = tree.metadata(path)
            if leaf is None:
                yield FileText(path), FileText(value_text(tree[path])), Number("")
            else:
                text = f"{leaf.type or leaf.dtype or 'unknown'} {shape_text(leaf.shape)}"
                yield FileText(path), FileText(text), Number(size_text(leaf.stored_nbytes))

    facts = [("values", f"{len(tree):,}")]
    if tree.is_closed:
        return Sheet(
            "ztensor.training.LazyTree",
            without_secrets(tree.name),
            [*facts, ("state", "closed; open the file again")],
        )
    table = Table(counted(len(tree), "value"), ("path", "value", "size"), rows(), len(tree))
    return Sheet(
        "ztensor.training.LazyTree", without_secrets(tree.name), facts, [table], "tree[path]"
    )


def of_record(record: training.Record) -> Sheet:
    """Return the sheet of a record, whose class was not given."""
    rows = ((FileText(str(name)), FileText(value_text(record[name]))) for name in record)
    facts = [("class", FileText(record.class_name)), ("sort", FileText(record.sort))]
    table = Table(f"{len(record):,} fields", ("field", "value"), rows, len(record))
    return Sheet("ztensor.training.Record", "", facts, [table])


def value_text(value: object) -> str:
    """Return a short text of a value of a tree; type and shape of an array."""
    kind = type(value).__name__
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return f"{describe(str(dtype), 40)[1:-1]} {shape_text(shape)}"
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return describe(value, _CHARACTERS)
    if isinstance(value, (Mapping, Sequence, set, frozenset)):
        return f"{kind} of {len(value):,}"
    return kind
