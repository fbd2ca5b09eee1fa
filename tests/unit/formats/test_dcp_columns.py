"""Long runs of rows as columns: the same values, the same table, the same errors as without."""

from __future__ import annotations

import io
import pickle
import random
from typing import Any

import pytest

from tests.extent import amount
from tests.tracing import traced
from ztensor.errors import FormatError, UnsupportedError, ZTensorError
from ztensor.formats.dcp.metadata import read_table
from ztensor.formats.dcp.pickles import Block, IrregularError, read_columns
from ztensor.formats.dcp.vocabulary import VOCABULARY, Record
from ztensor.formats.pt.pickle_reader import read_pickle
from ztensor.formats.pt.pickled import Call, Items, Vocabulary
from ztensor.formats.pt.values import counts
from ztensor.io.losses import Tally
from ztensor.limits import DEFAULT_LIMITS, Budget


class Size(tuple[int, ...]):
    __slots__ = ()

    def __reduce__(self) -> Any:
        return Size, (tuple(self),)


class Row:
    def __init__(self, **fields: object) -> None:
        vars(self).update(fields)


class Chunk(Row):
    pass


class Index(Row):
    def __hash__(self) -> int:
        return id(self)


class Info(Row):
    pass


class Tensor(Row):
    pass


class Properties(Row):
    pass


class Root(Row):
    pass


_KINDS = {
    Chunk: "ChunkStorageMetadata",
    Index: "MetadataIndex",
    Info: "_StorageInfo",
    Tensor: "TensorStorageMetadata",
    Properties: "TensorProperties",
    Root: "Metadata",
}
ROWS = Vocabulary(
    {
        **VOCABULARY.calls,
        **{
            f"{__name__}.{one.__name__}": Call(lambda kind=kind: Record(kind), 0, 0)
            for one, kind in _KINDS.items()
        },
        f"{__name__}.Size": Call(lambda value=(): counts(value, "a size"), 0, 1),
    },
    VOCABULARY.persistent,
)


def checkpoint(tensors: int, chunks: int, seed: int = 0) -> Root:
    """Return what `.metadata` has, in forms that differ from row to row."""
    draw = random.Random(seed)
    shared = Size((0, 0))
    held, places = {}, {}
    for number in range(tensors):
        name = f"layers.{number}.wéight" + "x" * (300 * (number % 3 == 2))
        rank, stride = number % 6, draw.choice([1, 300, 70_000, 1 << 33, 1 << 50])
        boxes = []
        for chunk in range(chunks if rank else 1):
            length = draw.choice([1, 3, 300, 70_000, 1 << 33, 1 << 50])
            offsets = Size((chunk * stride, *[0] * (rank - 1))[:rank])
            if rank == 2 and not chunk:
                offsets = shared
            sizes = Size([length, *[2] * (rank - 1)][:rank])
            boxes += [Chunk(offsets=offsets, sizes=sizes) for _ in range(1 + (chunk % 9 == 8))]
            if chunk % 5 == 4:
                boxes.append(Chunk(offsets=offsets, sizes=Size([0] * rank)))
            told = offsets if chunk % 2 else Size(offsets)
            own = name if chunk % 4 else "".join(name)[:1] + name[1:]
            path = f"__{chunk % 7}_0.distcp"
            places[Index(fqn=own, offset=told, index=chunk or None)] = Info(
                relative_path=path, offset=number * 1000, length=length % 1000
            )
        properties = Properties(dtype=None)  # an unknown type, which is listed
        held[name] = Tensor(properties=properties, size=Size([9] * rank), chunks=boxes)
        places[Index(fqn=f"value {number}", offset=None, index=None)] = Info(
            relative_path="__0_0.distcp", offset=1 << 40, length=number
        )
    return Root(state_dict_metadata=held, storage_data=places, planner_data=None)


def pickled(value: object) -> bytes:
    """Return a pickle in frames so short that they cut many rows."""
    target = io.BytesIO()
    pickle._Pickler(target, 4).dump(value)
    return target.getvalue()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let frames be so short that they cut many rows."""
    monkeypatch.setattr(pickle._Framer, "_FRAME_SIZE_TARGET", 700)  # type: ignore[attr-defined]


def records(block: Block) -> list[Record]:
    """Return the rows of a block one by one."""
    found = []
    for row in range(block.count):
        record = Record(block.kind)
        flat: list[object] = []
        for name, column in block.columns.items():
            flat += name, column[row]
        record.build(Items(flat))
        found.append(record)
    return found


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value of a pickle whose `repr` tells all of it, rows one by one."""
    if depth > 9:
        return "..."
    if isinstance(value, Record):
        return value.kind, plain(value.state, depth + 1)
    if isinstance(value, list):
        rows = [records(one) if isinstance(one, Block) else [one] for one in value]
        return [plain(one, depth + 1) for some in rows for one in some]
    if isinstance(value, tuple):
        return tuple(plain(one, depth + 1) for one in value)
    if isinstance(value, Items):
        pairs: list[object] = []
        for key, item in value.pairs:
            if isinstance(key, Block) and isinstance(item, Block):
                pairs += zip(records(key), records(item), strict=True)
            else:
                pairs.append((key, item))
        return "Items", [plain(pair, depth + 1) for pair in pairs]
    return value


def blocks(value: Any, depth: int = 0) -> int:
    """Return how many rows are in columns."""
    if isinstance(value, Block):
        return value.count
    if isinstance(value, Record):
        value = value.state
    if isinstance(value, Items):
        value = [one for pair in value.pairs for one in pair]
    return (
        sum(blocks(one, depth + 1) for one in value) if isinstance(value, list) and depth < 9 else 0
    )


def followed(data: bytes, *, by_columns: bool) -> tuple[Any, Any, int]:
    """Return what a pickle is, what its table is, and how many rows were columns."""
    budget = Budget(DEFAULT_LIMITS, len(data))
    found: object = None
    try:
        read = read_columns if by_columns else read_pickle
        value, end = read(data, ROWS, budget)
        found = repr(plain(value)), end
        table = read_table(value, budget, Tally())
        chunks = table.chunks
        entries = [
            table.elements,
            *(chunks.names, chunks.shapes),
            [chunks.chunk(row) for row in range(len(chunks))],
        ]
        return found, (entries, table.values, table.files), blocks(value)
    except (IrregularError, FormatError, UnsupportedError) as error:
        if by_columns:
            return followed(data, by_columns=False)
        return found, (type(error), str(error)), 0
    except ZTensorError as error:
        return found, (type(error), str(error)), 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_columns_are_what_the_rows_are(protocol: int) -> None:
    held = checkpoint(7, 60)
    data = pickled(held) if protocol == 4 else pickle.dumps(held, protocol)
    value, table, count = followed(data, by_columns=True)
    assert (count > 500) == (protocol > 2), count
    assert (value, table, 0) == followed(data, by_columns=False)
    assert len(table[0][1]) == 7


EDGES = [0, 1, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32]
EDGES += [(1 << bits) + more for bits in (39, 40, 47, 55, 62) for more in (-1, 0)]


@pytest.mark.parametrize(
    ("value", "is_column"),
    [(value, True) for value in [*EDGES, (1 << 63) - 1]]
    + [(-(1 << bits), True) for bits in (0, 7, 15, 31, 39, 40, 47, 63)]
    + [(value, False) for value in (1 << 63, (1 << 64) - 1, 1 << 80)],
)
@pytest.mark.parametrize("length", [1, 255, 256])
def test_numbers_and_names_of_any_length_are_in_columns(
    value: int, length: int, is_column: bool
) -> None:
    rows = [Info(relative_path="n" * length, offset=value, length=number) for number in range(40)]
    data = pickled(rows)
    found, end = read_columns(data, ROWS, Budget(DEFAULT_LIMITS, len(data)))
    assert (blocks(found) > 20) is (is_column and length < 256)
    assert (repr(plain(found)), end) == followed(data, by_columns=False)[0]
    assert f"{value}" in repr(plain(found))


def places_of(rows: list[tuple[Row, Row]]) -> bytes:
    """Return a pickle of places for 60 chunks of a tensor, those rows among them."""
    boxes = [Chunk(offsets=Size((n,)), sizes=Size((1,))) for n in range(60)]
    tensor = Tensor(properties=Properties(dtype=None), size=Size([60]), chunks=boxes)
    return pickled(
        Root(state_dict_metadata={"w": tensor}, storage_data=dict(rows), planner_data=None)
    )


def a_row(number: int, **changed: object) -> tuple[Row, Row]:
    index = {"fqn": "w", "offset": Size((number,)), "index": number}
    info = {"relative_path": "f", "offset": number, "length": 1}
    for name, value in changed.items():
        part, _, field = name.partition("_")
        (index if part == "index" else info)[field] = value
    return Index(**index), Info(**info)


@pytest.mark.parametrize(
    "field", ["index_fqn", "index_offset", "info_relative_path", "info_offset", "info_length"]
)
@pytest.mark.parametrize("other", [None, 5, "text", Size((7,))])
def test_one_place_of_many_that_is_of_another_kind(field: str, other: object) -> None:
    """In the middle of a run, so that rows before it are no reason to refuse it."""
    rows = [a_row(number) for number in range(60)]
    rows[30] = a_row(30, **{field: other})
    data = places_of(rows)
    *fast, count = followed(data, by_columns=True)
    assert fast == list(followed(data, by_columns=False)[:2])
    assert count > 100 or fast[1][0] is FormatError


HEAD = b"".join(
    (
        b"\x80\x04",
        f"c{__name__}\nSize\n".encode(),
        b"\x94)\x81\x940",  # places 0 and 1
        f"c{__name__}\nInfo\n".encode(),
        b"\x94)\x810",  # place 2
        b"\x8c\1a\x940\x8c\1b\x940\x8c\1c\x940",  # places 3, 4 and 5
        b"]\x94",  # place 6
    )
)


def row(fields: bytes, kind: bytes = b"h\2") -> bytes:
    """Return the instructions of one row, as the newest picklers write them."""
    return kind + b")\x81\x94}\x94(" + fields + b"ub"


def same(data: bytes) -> tuple[Any, Any, int]:
    """Return what a pickle is, with columns and without; how many rows were columns."""
    found = followed(data, by_columns=True)
    assert found[:2] == followed(data, by_columns=False)[:2]
    return found


@pytest.mark.parametrize("put", [b"q\2", b"q\7", b"q\x50", b"r\2\0\0\0", b"p2\n"])
@pytest.mark.parametrize("first", [b"e", b"Ne", b""], ids=["taken", "seen", "none"])
def test_a_place_of_the_memo_that_is_given_anew(put: bytes, first: bytes) -> None:
    """A class's, a list's, and one behind all; the rows before it are taken, or looked at."""
    rows = 20 * row(b"h\3K\1")
    before = b"]\x94(" + rows + first if first else b""
    changed = f"c{__name__}\nRoot\n".encode() + put
    found = same(HEAD + b"(" + before + changed + b"]\x94(" + rows + b"ee.")
    assert found[0] is not None


@pytest.mark.slow
@pytest.mark.parametrize("fields", [1, 2, 4])
@pytest.mark.parametrize("rows", [8, 16])
def test_what_short_runs_hold_is_charged(rows: int, fields: int) -> None:
    names = b"".join(b"\x8c\1%c\x940" % (97 + number) for number in range(fields))
    head = f"\x80\x04c{__name__}\nInfo\n".encode("latin-1") + b"\x94)\x810" + names
    one = row(b"".join(b"h%cN" % (1 + number) for number in range(fields)), b"h\0")
    data = head + b"](" + (b"](" + rows * one + b"e") * amount(300, full=3000) + b"e."
    budget = Budget(DEFAULT_LIMITS, len(data))
    left = budget.bytes_left
    with traced() as memory:
        value, _ = read_columns(data, ROWS, budget)
        held = memory()[0]
    assert blocks(value) == rows * amount(300, full=3000)
    assert held < 1.2 * (left - budget.bytes_left)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_damaged_columns_are_what_the_rows_are(seed: int) -> None:
    draw = random.Random(seed)
    good = pickled(checkpoint(3, 12, seed))
    parts = [
        b"h\0",
        b"j\0\0\0\0",
        b"N",
        b"K\1",
        b"\x8c\1a\x94",
        b"ub",
        b"(",
        b")",
        b"u",
        b"e",
        b"0",
    ]
    parts += [b"\x95" + bytes(8), b"2", b"q\5", b"h\5", b"\x94", b")\x81\x94}\x94(", b"h\x05)\x81"]
    values = taken = 0
    for _ in range(100):
        data = bytearray(good)
        for _ in range(draw.randint(1, 2)):
            at = draw.randrange(len(data))
            kind = draw.randrange(3)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                data[at:at] = draw.choice(parts)
            else:
                del data[at : at + draw.randint(1, 4)]
        *fast, count = followed(bytes(data), by_columns=True)
        assert fast == list(followed(bytes(data), by_columns=False)[:2])
        values += fast[0] is not None
        taken += count > 0
    assert values > 2
    assert taken > 2
