"""The objects that a process writes, as rows of a table."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import Tensor
from ztensor.distributed.chunks.table import WHOLE_OBJECT, Chunk, ChunkTable, Kind, TableFile
from ztensor.distributed.columns import CONTENT_BYTES, columns_of
from ztensor.errors import UsageError
from ztensor.ext import ALGORITHMS, LAYOUTS, TensorObject, spell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Array = np.ndarray[Any, Any]

# Between the name of a tensor and the number of its second and later objects in one file.
SEPARATOR = "\x1f"
# Columns by which a part describes its chunks. The rest is in its manifest.
_COLUMNS = (
    "tensors/names", "tensors/name_lengths", "tensors/kind", "tensors/rank", "tensors/shape",
    "chunks/tensor", "chunks/object", "chunks/offsets",
)  # fmt: skip


def own_name(name: str, number: int) -> str:
    """Return the name of an object of a tensor in a part."""
    return f"{name}{SEPARATOR}{number}" if number else name


class Tensors:
    """The tensors a process writes, each with its shape and kind."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: list[str] = []
        self.shapes: list[tuple[int, ...]] = []
        self.kinds: list[Kind] = []
        self._whole: set[str] = set()

    def number(self, name: str, shape: tuple[int, ...], kind: Kind, *, is_whole: bool) -> int:
        """Return the number of a tensor; its first chunk sets shape and kind.

        Raises:
            UsageError: an earlier chunk has another shape or kind, or was the whole tensor.
        """
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.shapes)
            self.names.append(name)
            self.shapes.append(shape)
            self.kinds.append(kind)
            if is_whole:
                self._whole.add(name)
            return number
        if is_whole or name in self._whole:
            raise UsageError("the whole tensor was written before", object_name=name)
        if self.shapes[number] != shape or self.kinds[number] != kind:
            raise UsageError(
                "the chunks of a tensor differ in shape or type",
                object_name=name,
                expected=f"{self.kinds[number]} of shape {self.shapes[number]}",
                found=f"{kind} of shape {shape}",
            )
        return number


def kind_of(found: Tensor | TensorObject) -> Kind:
    """Return the kind of a tensor or an object: its layout, the types of its main component."""
    layout, components = LAYOUTS.get(found.format), found.components
    role = layout.main_role if layout is not None else ""
    main = components[role if role in components else next(iter(components))]
    if isinstance(main, np.ndarray):
        return Kind(*spell(main.dtype), found.format)
    return Kind(main.dtype, main.type, found.format)


def stored_as(chunk: Chunk, file: int, found: TensorObject) -> Chunk:
    """Return the row of a chunk that was written as an object of a file."""
    data = found.components.get("data")
    if chunk.encoding == WHOLE_OBJECT or data is None:
        return chunk._replace(file=file, encoding=WHOLE_OBJECT, length=found.stored_nbytes)
    return chunk._replace(
        file=file,
        encoding=data.encoding,
        at=data.offset,
        length=found.stored_nbytes,
        digest=data.digest,
    )


def columns_of_file(
    tensors: Tensors, written: Sequence[Chunk], empty: Iterable[int]
) -> tuple[str, Sequence[Kind], dict[str, Array]]:
    """Return prefix, kinds and columns by which a part describes its chunks.

    Args:
        tensors: all tensors of the part.
        written: the chunks in this file.
        empty: tensors without elements, which have no chunk.
    """
    own, places = Tensors(), {}
    prefix = f"{SEPARATOR}table"
    for number in sorted({*empty, *(one.tensor for one in written)}):
        name = tensors.names[number]
        while name.startswith(prefix):
            prefix += SEPARATOR
        shape, kind = tensors.shapes[number], tensors.kinds[number]
        places[number] = own.number(name, shape, kind, is_whole=False)
    rows = [
        one._replace(tensor=places[one.tensor], encoding="raw", content=None) for one in written
    ]
    table = table_of(own, rows, [])
    columns = columns_of(table)
    return f"{prefix}/", table.kinds, {name: columns[name] for name in _COLUMNS}


def content_of(pieces: Iterable[memoryview]) -> bytes:
    """Return the XXH3-128 of elements, by which equal chunks are recognized."""
    import xxhash  # only for parts with `since` or strong digests

    hasher = xxhash.xxh3_128()
    for piece in pieces:
        hasher.update(piece)
    digest: bytes = hasher.digest()
    return digest


def table_of(tensors: Tensors, rows: Sequence[Chunk], files: Sequence[TableFile]) -> ChunkTable:
    """Return rows as columns, in the order of the tensors."""
    rows = sorted(rows, key=lambda row: row.tensor)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(tensors.kinds))}
    words = dict.fromkeys(["raw", *(row.encoding for row in rows)])
    encodings = {word: number for number, word in enumerate(words)}
    texts = [(row.digest or "").lower() for row in rows]
    algorithm = next((text.partition(":")[0] for text in texts if text), "")
    digests = [bytes.fromhex(text.rpartition(":")[2].removeprefix("0x")) for text in texts]

    def column(values: Iterable[int]) -> Array:
        return np.fromiter(values, np.int64)

    return ChunkTable(
        names=list(tensors.numbers),
        kinds=list(kinds),
        kind=column(kinds[kind] for kind in tensors.kinds),
        shapes=list(tensors.shapes),
        files=list(files),
        encodings=list(encodings),
        tensor=column(row.tensor for row in rows),
        file=column(row.file for row in rows),
        number=column(row.number for row in rows),
        encoding=column(encodings[row.encoding] for row in rows),
        offsets=column(itertools.chain.from_iterable(row.offsets for row in rows)),
        sizes=column(itertools.chain.from_iterable(row.sizes for row in rows)),
        at=column(row.at for row in rows),
        length=column(row.length for row in rows),
        digest=_in_rows(digests, ALGORITHMS[algorithm].digits // 2) if algorithm else None,
        algorithm=algorithm,
        content=_in_rows([row.content or b"" for row in rows], CONTENT_BYTES),
    )


def _in_rows(every: Sequence[bytes], width: int) -> Array | None:
    """Return bytes of one width as rows, zeros for empty ones; None if all are empty."""
    if not any(every):
        return None
    return np.frombuffer(b"".join(one or bytes(width) for one in every), np.uint8).reshape(
        -1, width
    )
