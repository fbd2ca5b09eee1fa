"""Sheets of readers, handles, slices and descriptions of objects."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ztensor import TensorMetadata, TensorSlice
from ztensor.distributed import DividedCheckpoint
from ztensor.errors import counted, describe, without_secrets
from ztensor.ext import ObjectReader
from ztensor.handle import HandleSlice, safe_open
from ztensor.insight.notebook.sheet import FileText, Number, Sheet, Table, number
from ztensor.insight.text import element_text, shape_text, size_text
from ztensor.typing import ShardedReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_ATTRIBUTES = 20
_TALLIED = 1000  # most objects whose types are counted
_CLOSED = "closed; open the file again"
_COLUMNS = ("name", "shape", "type", "format", "encoding", "size")


def of_reader(reader: ObjectReader) -> Sheet:
    """Return the sheet of a reader, open or closed."""
    return _of_objects(f"ztensor.{type(reader).__name__}", reader, "reader")


def of_set(reader: ShardedReader) -> Sheet:
    """Return the sheet of a set of files; it opens no remote file."""
    return _of_objects("ztensor.io.ShardedReader", reader, "reader")


def of_handle(handle: safe_open[Any]) -> Sheet:
    """Return the sheet of a handle: its reader and its framework."""
    sheet = _of_objects("ztensor.safe_open", handle.reader, "handle")
    return sheet._replace(
        facts=[*sheet.facts, ("framework", handle.framework)], ways="handle.get_tensor(name)"
    )


def of_divided(checkpoint: DividedCheckpoint) -> Sheet:
    """Return the sheet of a distributed checkpoint, from its root."""
    root, is_closed = checkpoint.root, checkpoint.objects.is_closed
    count = len(root.names)
    facts = [
        ("tensors", f"{count:,} in {counted(len(root.table), 'chunk')}"),
        ("files", f"{len(root.files):,}"),
    ]
    rows = (
        (FileText(name), shape_text(shape), FileText(logical or dtype), FileText(layout))
        for name, shape, dtype, logical, layout in zip(
            root.names, root.shapes, root.dtypes, root.types, root.layouts, strict=True
        )
    )
    return Sheet(
        "ztensor.distributed.DividedCheckpoint",
        without_secrets(checkpoint.objects.name),
        [*facts, ("state", _CLOSED)] if is_closed else facts,
        [] if is_closed else [Table(counted(count, "tensor"), _COLUMNS[:4], rows, count)],
        "ztensor.open(folder) reads it as one file",
    )


def _of_objects(kind: str, reader: ObjectReader, word: str) -> Sheet:
    objects = reader.objects
    names = objects.names
    facts: list[tuple[str, str]] = [("objects", f"{len(names):,}")]
    of = without_secrets(objects.name)
    if objects.is_closed:
        return Sheet(kind, of, [*facts, ("state", _CLOSED)])
    attributes: Mapping[str, object]
    if objects.is_set:
        facts.append(("files", f"{len(reader.files):,}"))  # type: ignore[attr-defined]
        attributes = reader.index_metadata  # type: ignore[attr-defined]
    else:
        version = "" if objects.version in ("", "unknown") else f" {objects.version}"
        facts.append(("format", FileText(f"{objects.format}{version}")))
        facts.append(("file", size_text(objects.nbytes)))
        attributes = objects.attributes
    known = None
    if len(names) <= _TALLIED and all(map(objects.is_known, names)) and not objects.is_set:
        known = [reader.metadata(name) for name in names]
        facts += _types(known)
    facts += _attributes(attributes)
    return Sheet(kind, of, facts, [_names(reader, known)], f"{word}.keys(), {word}.metadata(name)")


def _types(known: Sequence[TensorMetadata]) -> list[tuple[str, str]]:
    counts: dict[str, list[int]] = {}
    for metadata in known:
        tally = counts.setdefault(element_text(metadata), [0, 0])
        tally[0] += 1
        tally[1] += metadata.stored_nbytes
    order = sorted(counts, key=lambda word: -counts[word][1])
    shown = [f"{counts[one][0]:,} {one} ({size_text(counts[one][1])})" for one in order[:8]]
    more = [counted(len(order) - 8, "more type")] if len(order) > 8 else []
    return [("types", FileText(", ".join(shown + more)))] if order else []


def _attributes(attributes: Mapping[str, object]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in itertools.islice(attributes.items(), _ATTRIBUTES):
        found.append((f"attribute {describe(key, 60)}", FileText(describe(value, 120))))
    left = len(attributes) - len(found)
    return [*found, ("attributes", f"{left:,} more")] if left else found


def _names(reader: ObjectReader, known: Sequence[TensorMetadata] | None) -> Table:
    names, is_known = reader.objects.names, reader.objects.is_known

    def rows() -> Iterator[Sequence[str]]:
        if known is not None:
            yield from map(_row, known)
            return
        for name in names:
            if is_known(name):
                yield _row(reader.metadata(name))
            else:
                yield (FileText(name), "not read yet", "", "", "", "")

    return Table(counted(len(names), "object"), _COLUMNS, rows(), len(names))


def _row(metadata: TensorMetadata) -> Sequence[str]:
    encodings = " + ".join(sorted({part.encoding for part in metadata.components.values()}))
    return (
        FileText(metadata.name),
        shape_text(metadata.shape),
        FileText(element_text(metadata)),
        FileText(metadata.format),
        FileText(encodings),
        Number(size_text(metadata.stored_nbytes)),
    )


def of_metadata(metadata: TensorMetadata) -> Sheet:
    """Return the sheet of a description."""
    facts = [
        ("shape", shape_text(metadata.shape)),
        ("type", FileText(element_text(metadata))),
        ("format", FileText(metadata.format)),
        (
            "size",
            f"{size_text(metadata.stored_nbytes)} stored, {size_text(metadata.nbytes)} decoded",
        ),
        *_attributes(metadata.attributes),
    ]
    rows = [
        (
            FileText(role),
            FileText(part.type or part.dtype),
            FileText(part.encoding),
            number(part.offset),
            number(part.length),
            FileText(part.digest or "none"),
        )
        for role, part in metadata.components.items()
    ]
    columns = ("component", "type", "encoding", "offset", "length", "digest")
    table = Table(counted(len(rows), "component"), columns, rows, len(rows))
    return Sheet("ztensor.TensorMetadata", metadata.name, facts, [table])


def of_slice(lazy: TensorSlice) -> Sheet:
    """Return the sheet of a lazy object."""
    facts = [
        ("shape", shape_text(lazy.shape)),
        ("type", FileText(lazy.dtype.name)),
        ("size", size_text(lazy.nbytes)),
        ("data", "read when it is indexed: [10:20, ::2]"),
    ]
    return Sheet("ztensor.TensorSlice", lazy.name, facts)


def of_handle_slice(lazy: HandleSlice[Any]) -> Sheet:
    """Return the sheet of a lazy tensor of a handle."""
    facts = [
        ("shape", shape_text(lazy.get_shape())),
        ("type", lazy.get_dtype()),
        ("data", f"read when it is indexed, as a tensor of {lazy.framework}"),
    ]
    return Sheet("HandleSlice", lazy.lazy.name, facts)
