"""Long runs of rows as columns: the same values, the same table, the same errors as without."""

from __future__ import annotations

import io
import pickle
import random
import tracemalloc
from typing import Any

import pytest

from tests.extent import amount
from ztensor.errors import FormatError, ZTensorError
from ztensor.foreign.dcp import pickles
from ztensor.foreign.dcp.columns import Block, IrregularError
from ztensor.foreign.dcp.lanes import read_lanes
from ztensor.foreign.dcp.metadata import read_table
from ztensor.foreign.dcp.pickles import read_columns
from ztensor.foreign.dcp.table import Table
from ztensor.foreign.dcp.vocabulary import VOCABULARY, Record
from ztensor.foreign.pt.pickle_reader import read_pickle
from ztensor.foreign.pt.pickled import Call, Items, Vocabulary
from ztensor.foreign.pt.values import counts
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.model.account import Tally

_MODULE = "torch.distributed.checkpoint"


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
        f"{__name__}.Size": Call(lambda value=(): counts(value, "a size"), 0, 1, is_shape=True),
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
    """Let parts of the pickle, frames and runs be so short that there are many."""
    monkeypatch.setattr(pickle._Framer, "_FRAME_SIZE_TARGET", 700)  # type: ignore[attr-defined]
    for name, value in (
        ("_PART_BYTES", 70_000),
        ("_TAIL_BYTES", 900),
        ("_LEAST", 4),
        ("_LEAST_FRAME", 8),
    ):
        monkeypatch.setattr(pickles, name, value)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value of a pickle whose `repr` tells all of it, rows one by one."""
    if depth > 9:
        return "..."
    if isinstance(value, Record):
        return value.kind, plain(value.state, depth + 1)
    if isinstance(value, list):
        rows = [one.records() if isinstance(one, Block) else [one] for one in value]
        return [plain(one, depth + 1) for some in rows for one in some]
    if isinstance(value, tuple):
        return tuple(plain(one, depth + 1) for one in value)
    if isinstance(value, Items):
        pairs: list[object] = []
        for key, item in value.pairs:
            if isinstance(key, Block) and isinstance(item, Block):
                pairs += zip(key.records(), item.records(), strict=True)
            else:
                pairs.append((key, item))
        return "Items", [plain(pair, depth + 1) for pair in pairs]
    return value


def blocks(value: Any, depth: int = 0) -> int:
    """Return how many rows are in columns."""
    if isinstance(value, Block):
        return len(value)
    if isinstance(value, Record):
        value = value.state
    if isinstance(value, Items):
        value = [one for pair in value.pairs for one in pair]
    return (
        sum(blocks(one, depth + 1) for one in value) if isinstance(value, list) and depth < 9 else 0
    )


def told(table: Table) -> Any:
    tensors = []
    for name, entry in table.tensors.items():
        offsets, sizes = table.boxes(entry)
        places = [table.place(entry, chunk) for chunk in range(entry.count)]
        tensors.append((name, entry, offsets.tolist(), sizes.tolist(), places))
    return tensors, table.values, table.files, table.ends, table.taken, table.last


def followed(data: bytes, *, by_columns: bool) -> tuple[Any, Any, int]:
    """Return what a pickle is, what its table is, and how many rows were columns."""
    budget = Budget(DEFAULT_LIMITS, len(data))
    found: object = None
    count = 0
    try:
        read = read_columns if by_columns else read_pickle
        value, end = read(data, ROWS, budget)
        found, count = (repr(plain(value)), end), blocks(value)
        return found, told(read_table(value, budget, Tally())), count
    except ZTensorError as error:
        return found, (type(error), str(error)), count
    except IrregularError:
        return followed(data, by_columns=False)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_columns_are_what_the_rows_are(protocol: int) -> None:
    held = checkpoint(7, 60)
    data = pickled(held) if protocol == 4 else pickle.dumps(held, protocol)
    value, table, count = followed(data, by_columns=True)
    assert (count > 1000) == (protocol > 2), count
    assert (value, table, 0) == followed(data, by_columns=False)
    assert len(table[0]) == 7


def test_a_long_run_goes_over_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def noted(data: bytes, *given: Any) -> Any:
        read.append(len(data))
        return read_lanes(data, *given)

    monkeypatch.setattr(pickles, "_PART_BYTES", 30_000)
    monkeypatch.setattr(pickles, "read_lanes", noted)
    data = pickled(checkpoint(1, 700, 1)) + pickled(checkpoint(2, 700, 2))
    found = followed(data, by_columns=True)
    assert found[:2] == followed(data, by_columns=False)[:2]
    assert len(data) / 4 < sum(read) < 3 * len(data)


def test_a_record_that_is_there_again_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of a run that is got from the memo is why the pickle is read without columns."""
    held = checkpoint(2, 60)
    boxes = held.state_dict_metadata["layers.1.wéight"].chunks  # type: ignore[attr-defined]
    data = pickled([held, boxes[30]])
    with pytest.raises(IrregularError):
        read_columns(data, ROWS, Budget(DEFAULT_LIMITS, len(data)))
    assert followed(data, by_columns=True) == followed(data, by_columns=False)


def test_what_rows_remember_is_there_when_it_is_asked_for() -> None:
    offsets = [Size((number, 7)) for number in range(60)]
    names = [f"name {number}" for number in range(60)]
    rows = [Index(fqn=name, offset=one) for name, one in zip(names, offsets, strict=True)]
    data = pickled([rows, offsets, names, [tuple(one) for one in offsets]])
    value, end = read_columns(data, ROWS, Budget(DEFAULT_LIMITS, len(data)))
    assert blocks(value) > 50
    assert value[1:3] == [offsets, names]  # type: ignore[index]
    assert end == len(data)


EDGES = [0, 1, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32]
EDGES += [(1 << bits) + more for bits in (39, 40, 47, 55, 62) for more in (-1, 0)]


@pytest.mark.parametrize(
    ("value", "is_column"),
    [(value, True) for value in [*EDGES, (1 << 63) - 1]]
    + [(-(1 << bits), False) for bits in (0, 7, 15, 31, 39, 40, 47, 63)]
    + [(value, False) for value in (1 << 63, (1 << 64) - 1, 1 << 80)],
)
@pytest.mark.parametrize("length", [1, 255, 256])
def test_numbers_and_names_of_any_length_are_in_columns(
    value: int, length: int, is_column: bool
) -> None:
    rows = [Info(relative_path="n" * length, offset=value, length=number) for number in range(40)]
    data = pickled(rows)
    found, end = read_columns(data, ROWS, Budget(DEFAULT_LIMITS, len(data)))
    assert (blocks(found) > 20) is is_column
    assert (repr(plain(found)), end) == followed(data, by_columns=False)[0]
    assert f"{value}" in repr(plain(found))


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("last", [0, 255, 256, 65536, 1 << 31, (1 << 63) - 1])
def test_sizes_of_any_rank_are_in_columns(rank: int, last: int) -> None:
    """A tuple of up to three has an instruction of its own, that of none, too."""
    rows = [Chunk(offsets=Size([7] * rank), sizes=Size([last] * rank)) for _ in range(40)]
    data = pickled(rows)
    found, end = read_columns(data, ROWS, Budget(DEFAULT_LIMITS, len(data)))
    assert blocks(found) > 20
    assert (repr(plain(found)), end) == followed(data, by_columns=False)[0]
    assert repr((last,) * rank) in repr(plain(found))


@pytest.mark.parametrize("other", [None, 5, "text", (1, "a"), [1], (True,), (-1,), (1 << 63,), 1.5])
def test_a_table_whose_columns_are_of_another_kind_is_refused_as_its_rows_are(other: Any) -> None:
    held = checkpoint(1, 1)
    for fields in (
        {"offsets": other, "sizes": Size((1,))},
        {"offsets": Size((1,)), "sizes": other},
        {"offsets": Size((1, 2)), "sizes": Size((1, 2))},
    ):
        tensor = Tensor(
            properties=Properties(dtype=None),
            size=Size([9]),
            chunks=[Chunk(**fields) for _ in range(60)],
        )
        data = pickled(Root(state_dict_metadata={"w": tensor}, storage_data={}, planner_data=None))
        fast, slow = followed(data, by_columns=True), followed(data, by_columns=False)
        assert fast[:2] == slow[:2]
    for index in (
        Index(fqn=other, offset=Size((1,)), index=1),
        Index(fqn="w", offset=other, index=1),
        Index(fqn="w", offset=Size((1,)), index=other),
    ):
        places = {
            Index(**vars(index)): Info(relative_path="f", offset=1, length=1) for _ in range(60)
        }
        vars(held)["storage_data"] = places
        data = pickled(held)
        fast, slow = followed(data, by_columns=True), followed(data, by_columns=False)
        assert fast[:2] == slow[:2]


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
    assert count > 150


@pytest.mark.parametrize("lost", ["fqn", "offset", "relative_path", "length", "nothing"])
def test_places_without_a_field(lost: str) -> None:
    """All but the first, which is in no run, as it has a field more."""
    rows = [a_row(number) for number in range(60)]
    for row in rows[0]:
        vars(row)["other"] = -1
    for index, info in rows[1:]:
        vars(index).pop(lost, None)
        vars(info).pop(lost, None)
    data = places_of(rows)
    *fast, count = followed(data, by_columns=True)
    assert fast == list(followed(data, by_columns=False)[:2])
    assert count > 150


@pytest.mark.parametrize("is_index", [True, False])
def test_places_of_another_class_are_refused(is_index: bool) -> None:
    rows: list[tuple[Row, Row]] = [a_row(number) for number in range(60)]
    for row in rows[0]:
        vars(row)["other"] = -1
    for number in range(1, 60):
        index, info = rows[number]
        rows[number] = (Chunk(**vars(index)), info) if is_index else (index, Chunk(**vars(info)))
    data = places_of(rows)
    fast, slow = followed(data, by_columns=True), followed(data, by_columns=False)
    assert fast[:2] == slow[:2]
    assert slow[1][0] is FormatError
    assert fast[2] > 150


@pytest.mark.parametrize(
    "later",
    [
        Chunk(offsets=Size((0,)), other=1),
        Chunk(sizes=Size((1,)), other=1),
        Chunk(offsets=Size((0, 0)), sizes=Size((1, 1))),
        Chunk(offsets=Size((0,)), sizes=Size((1, 1))),
        Chunk(offsets=Size(), sizes=Size()),
        Info(offsets=Size((0,)), sizes=Size((1,))),
    ],
    ids=["no size", "no offset", "another rank", "two ranks", "no rank", "another class"],
)
def test_chunks_that_are_no_boxes_behind_one_that_is(later: Row) -> None:
    boxes: list[Row] = [Chunk(offsets=Size((0,)), sizes=Size((1,)), other=-1)]
    boxes += [type(later)(**vars(later)) for _ in range(50)]
    tensor = Tensor(properties=Properties(dtype=None), size=Size([60]), chunks=boxes)
    index, info = a_row(0)  # first, so that its class is no news where rows of it come
    data = pickled(
        Root(storage_data={index: info}, state_dict_metadata={"w": tensor}, planner_data=None)
    )
    fast, slow = followed(data, by_columns=True), followed(data, by_columns=False)
    assert fast[:2] == slow[:2]
    assert slow[1][0] is FormatError
    assert fast[2] == len(boxes) - 1


FIRST = Size((1, 2))
LIST = [1]
LONG, LONGER, PLAIN = (2,) * 64, (2,) * 65, (0, (1 << 63) - 1)
BEYOND, NEGATIVE, FLAG = (1 << 63,), (-1,), (True,)
KEPT = "kept"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 0, 300], "numbers"),
        (["a", "b"], "strings"),
        ([KEPT], "strings"),
        ([KEPT, "a"], "strings"),
        ([Size((1, 2)), Size((3,)), Size()], "tuples"),
        ([None, Size((1,))], "tuples"),
        ([None], "tuples"),
        ([FIRST, Size((0,))], "tuples"),
        ([FIRST, None], "tuples"),
        ([PLAIN, LONG, Size((1,))], "tuples"),
        ([1, None], ""),
        (["a", 1], ""),
        ([KEPT, 1], ""),
        (["a", None], ""),
        (["a", Size((1,))], ""),
        ([1, Size((1,))], ""),
        ([KEPT, FIRST], ""),
        ([KEPT, Size((1,))], ""),
        ([LIST, Size((1,))], ""),
        ([LIST, "a"], ""),
        ([FIRST, 1], ""),
        ([FIRST, "a"], ""),
        ([LONGER], ""),
        ([BEYOND, FIRST], ""),
        ([NEGATIVE, FIRST], ""),
        ([FLAG, FIRST], ""),
    ],
    ids=lambda given: repr(given)[:30],
)
def test_a_column_is_of_one_kind_or_of_none(values: list[Any], kind: str) -> None:
    """Texts and tuples may be written in a row, or got from the memo."""
    told = values * 20
    rows = [Info(offset=value, length=number) for number, value in enumerate(told)]
    kept = [FIRST, LIST, LONG, LONGER, PLAIN, BEYOND, NEGATIVE, FLAG, KEPT]
    data = pickled([kept, Info(offset=0, length=0), *rows])
    found, _ = read_columns(data, ROWS, Budget(DEFAULT_LIMITS, len(data)))
    block = next(one for one in found if isinstance(one, Block))  # type: ignore[attr-defined]
    told = told[-len(block) :]
    column = block.columns["offset"]
    numbers, strings, tuples = column.numbers(), column.strings(), column.tuples()
    assert [numbers is None, strings is None, tuples is None] == [
        kind != one for one in ("numbers", "strings", "tuples")
    ]
    if numbers is not None:
        assert numbers.tolist() == told
    if strings is not None:
        assert [strings[1][one] for one in strings[0].tolist()] == told
    if tuples is not None:
        assert tuples[0].tolist() == [-1 if one is None else len(one) for one in told]
        assert tuples[1].tolist() == [axis for one in told for axis in one or ()]


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
BEHIND = 7


def row(fields: bytes, kind: bytes = b"h\2") -> bytes:
    """Return the instructions of one row, as the newest picklers write them."""
    return kind + b")\x81\x94}\x94(" + fields + b"ub"


def same(data: bytes) -> tuple[Any, Any, int]:
    """Return what a pickle is, with columns and without; how many rows were columns."""
    found = followed(data, by_columns=True)
    assert found[:2] == followed(data, by_columns=False)[:2]
    return found


def test_names_and_what_is_called_may_be_in_the_first_place() -> None:
    """What was the first to be remembered is as good as what came later."""
    name = b"\x80\x04\x8c\1n\x940"
    body = b"".join(row(b"h\0K" + bytes((number,)), b"h\1") for number in range(60))
    start = name + f"c{__name__}\nInfo\n".encode() + b"\x94)\x810]\x94("
    found, _, count = same(start + body + b"e.")
    assert count == 60
    assert "[('n', 0)]" in found[0]
    assert "[('n', 59)]" in found[0]
    sizes = b"".join(
        row(b"h\3h\0K" + bytes((one,)) + b"\x85\x94\x85\x94R\x94") for one in range(60)
    )
    assert same(HEAD + b"(" + sizes + b"e.")[2] == 60
    other = HEAD.replace(b"Size", b"Root", 1)  # whose call is given nothing
    assert same(other + b"(" + sizes + b"e.")[0] is None


@pytest.mark.parametrize("ahead", range(4))
def test_rows_cannot_be_made_of_what_is_not_yet_there(ahead: int) -> None:
    """A place of the memo behind those that are there, as a class, a name and a value."""
    place = b"h" + bytes((BEHIND + ahead,))
    for one in (row(b"h\3K\1", place), row(place + b"K\1"), row(b"h\3" + place)):
        same(HEAD + b"(" + 20 * one + b"e.")


@pytest.mark.parametrize(
    "fields",
    [
        b"h\3K\1",
        b"h\3h\0K\1\x85\x94\x85\x94R\x94",
        b"h\3h\0)\x85\x94R\x94h\4h\0(K\1t\x94\x85\x94R\x94",
        b"h\3h\0(t\x94\x85\x94R\x94",
    ],
)
@pytest.mark.parametrize("more", [b"", b"N" + b"\x94" * 300], ids=["alone", "with more behind"])
def test_each_place_that_rows_take_is_what_it_is_without_columns(
    fields: bytes, more: bytes
) -> None:
    """Those of records are why the pickle is read again, also the first and the last."""
    rows = HEAD + b"(" + 20 * row(fields) + b"e"
    taken = 20 * (2 + fields.count(b"\x94"))
    for number in (*range(7), *range(taken - 4, taken + 2)):
        place = b"j" + (BEHIND + number).to_bytes(4, "little")
        asked = (rows + more + b"0" * bool(more) + place) + b"\x86N0N0N0N0."
        same(asked)
        fast, slow = (followed(asked, by_columns=by_columns)[0] for by_columns in (True, False))
        assert (slow is None) == (number >= taken and not more)
        assert fast == slow


@pytest.mark.parametrize("count", range(7))
def test_a_tuple_has_as_many_numbers_as_its_instruction_takes(count: int) -> None:
    for code in range(0x84, 0x8A):
        sizes = b"h\0" + b"K\1" * count + bytes((code,)) + b"\x94\x85\x94R\x94"
        found, _, taken = same(HEAD + b"(" + 20 * row(b"h\3" + sizes) + b"e.")
        assert (taken > 0) == (found is not None) == (1 <= count <= 3 and code == 0x84 + count)


@pytest.mark.parametrize("first", [0, 1, 10])
def test_a_frame_may_begin_anywhere(first: int) -> None:
    """Also in the midst of an instruction, which then has what the frame begins with in it."""
    one = row(b"h\3J\1\0\0\0h\4h\0K\1\x85\x94\x85\x94R\x94h\5\x8c\1x\x94")
    body = HEAD[2:] + b"(" + 20 * one + b"e."
    begin = len(HEAD) - 1 + first * len(one)
    for cut in range(begin, begin + len(one) + 1):
        frames = [
            b"\x95" + len(part).to_bytes(8, "little") + part for part in (body[:cut], body[cut:])
        ]
        found = same(HEAD[:2] + b"".join(frames))
        assert (found[0] is None) == (found[2] == 0)


def test_what_is_no_row_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read by its instructions; the rows behind it are columns again."""
    monkeypatch.setattr(pickles, "_PART_BYTES", 2000)
    rows, lone = 20 * row(b"h\3K\1"), b"h\2)\x81"
    lists = (b"]\x94(" + lone + rows + b"e" + b"]\x94(" + rows + lone + b"e") * 12
    _, _, count = same(HEAD + b"(" + lists + b"e.")
    assert count == 240
    assert same(HEAD + b"(" + (rows + lone + row(b"h\3J\xff\xff\xff\xff")) * 12 + b"e.")[2] == 0


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
    tracemalloc.start()
    try:
        value, _ = read_columns(data, ROWS, budget)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
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
