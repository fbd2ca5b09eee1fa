"""What a process wrote, object by object, as rows of a table."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor import Tensor
from ztensor.distributed.chunks.table import WHOLE_OBJECT, Chunk, ChunkTable, Kind, TableFile
from ztensor.distributed.columns import CONTENT_BYTES, columns_of
from ztensor.errors import UsageError
from ztensor.ext import ALGORITHMS, LAYOUTS, TensorObject, spell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Array = np.ndarray[Any, Any]

# Behind the name of a tensor, before the number of its second and later objects in one file.
SEPARATOR = "\x1f"
_COLUMNS = (
    "tensors/names", "tensors/name_lengths", "tensors/kind", "tensors/rank", "tensors/shape",
    "chunks/tensor", "chunks/object", "chunks/offsets",
)  # fmt: skip


def own_name(name: str, number: int) -> str:
    """Return what the objects of a tensor are called in a file."""
    return f"{name}{SEPARATOR}{number}" if number else name


class Written(NamedTuple):
    """An object of the file that is being written.

    Attributes:
        own: its name in the file.
        tensor: the number of the tensor.
        number: which of the tensor's objects in this file it is.
        offsets: where the box begins.
        sizes: how long it is.
        is_whole: only the file tells what it is made of.
        content: xxh3-128 over its decoded bytes, where that is wanted.
    """

    own: str
    tensor: int
    number: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    is_whole: bool
    content: bytes | None = None


class Tensors:
    """The tensors a process writes, each with its shape and kind."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: list[str] = []
        self.shapes: list[tuple[int, ...]] = []
        self.kinds: list[Kind] = []
        self._whole: set[str] = set()

    def number(self, name: str, shape: tuple[int, ...], kind: Kind, *, is_whole: bool) -> int:
        """Return the number of a tensor; its first chunk tells what it is.

        Raises:
            UsageError: another chunk of it said otherwise, or it was written as a whole.
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


def kind_of_tensor(tensor: Tensor) -> Kind:
    """Return the kind of a tensor: its layout, and the types of its main component."""
    layout = LAYOUTS.get(tensor.format)
    role = next(iter(tensor.components)) if layout is None else layout.main_role
    storage, logical = spell(tensor.components[role].dtype)
    return Kind(storage, logical, tensor.format)


def kind_of_object(found: TensorObject) -> Kind:
    """Return the kind of an object of a file: its layout, and the types of its main component."""
    layout = LAYOUTS.get(found.format)
    main = None if layout is None else found.components.get(layout.main_role)
    one = main or next(iter(found.components.values()))
    return Kind(one.dtype, one.type, found.format)


def row_of(written: Written, file: int, found: TensorObject) -> Chunk:
    """Return the row of an object that was written."""
    one = found.components.get("data")
    is_whole = written.is_whole or one is None
    return Chunk(
        -1,
        written.tensor,
        file,
        written.number,
        WHOLE_OBJECT if is_whole or one is None else one.encoding,
        written.offsets,
        written.sizes,
        0 if is_whole or one is None else one.offset,
        found.stored_nbytes,
        None if is_whole or one is None else one.digest,
        written.content,
    )


class FileTable(NamedTuple):
    """What a file says of its chunks beside their objects.

    Attributes:
        kinds: of its tensors.
        columns: see `ztensor/distributed/root.py`. The rest is in the manifest.
    """

    kinds: Sequence[Kind]
    columns: dict[str, Array]


def columns_of_file(
    tensors: Tensors, written: Sequence[Written], empty: Iterable[int]
) -> tuple[str, FileTable]:
    """Return the columns of the file that is being written, and what stands before their names.

    Args:
        tensors: all tensors of the part.
        written: the objects of this file.
        empty: tensors without elements, which have no object.
    """
    there = sorted({*empty, *(one.tensor for one in written)})
    own, places = Tensors(), {}
    prefix = f"{SEPARATOR}table"
    for number in there:
        name = tensors.names[number]
        while name.startswith(prefix):
            prefix += SEPARATOR
        shape, kind = tensors.shapes[number], tensors.kinds[number]
        places[number] = own.number(name, shape, kind, is_whole=False)
    rows = [
        Chunk(-1, places[one.tensor], 0, one.number, "raw", one.offsets, one.sizes, 0, 0, None)
        for one in written
    ]
    table = table_of(own, rows, [])
    columns = columns_of(table)
    return f"{prefix}/", FileTable(table.kinds, {name: columns[name] for name in _COLUMNS})


def told_digest(text: str) -> tuple[str, str]:
    """Return the algorithm and the digits of a digest that a manifest or a root has."""
    algorithm, _, digits = text.lower().partition(":")
    return algorithm, digits.removeprefix("0x")


def content_of(pieces: Iterable[memoryview]) -> bytes:
    """Return 16 bytes that are equal for equal elements: their XXH3-128."""
    import xxhash  # not for parts whose chunks are compared with none

    hasher = xxhash.xxh3_128()
    for piece in pieces:
        hasher.update(piece)
    digest: bytes = hasher.digest()
    return digest


def table_of(tensors: Tensors, rows: Sequence[Chunk], files: Sequence[TableFile]) -> ChunkTable:
    """Return rows as columns, in the order of the tensors."""
    rows = sorted(rows, key=lambda row: row.tensor)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(tensors.kinds))}
    encodings = {
        word: n for n, word in enumerate(dict.fromkeys(["raw", *(r.encoding for r in rows)]))
    }
    texts = [row.digest for row in rows if row.encoding != WHOLE_OBJECT]
    algorithm = next((told_digest(text)[0] for text in texts if text), "")
    digest = None
    if algorithm:
        width = ALGORITHMS[algorithm].digits // 2
        empty = bytes(width)
        digest = np.frombuffer(
            b"".join(
                empty if row.digest is None else bytes.fromhex(told_digest(row.digest)[1])
                for row in rows
            ),
            np.uint8,
        ).reshape(len(rows), width)

    content = None
    if rows and any(row.content is not None for row in rows):
        none = bytes(CONTENT_BYTES)
        whole = b"".join(none if row.content is None else row.content for row in rows)
        content = np.frombuffer(whole, np.uint8).reshape(len(rows), CONTENT_BYTES)

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
        digest=digest,
        algorithm=algorithm,
        content=content,
    )
