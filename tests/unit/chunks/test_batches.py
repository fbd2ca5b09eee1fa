"""Tables are held to their tensors some rows at a time: where these are cut makes no difference."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ztensor.chunks import table as tables
from ztensor.chunks.table import ChunkTable, Kind, TableFile
from ztensor.errors import FormatError

pytestmark = pytest.mark.slow

Box = tuple[tuple[int, ...], tuple[int, ...]]


def boxes_of(shape: tuple[int, ...], draw: random.Random) -> list[Box]:
    """Return boxes that fill a shape: cut along one axis, or along two."""
    whole = [((0,) * len(shape), shape)]
    for axis in draw.sample(range(len(shape)), draw.randint(0, min(2, len(shape)))):
        cut = []
        for offsets, sizes in whole:
            at = draw.randint(1, max(1, sizes[axis] - 1))
            for start, stop in ((0, at), (at, sizes[axis])):
                if stop > start:
                    begin = (*offsets[:axis], offsets[axis] + start, *offsets[axis + 1 :])
                    cut.append((begin, (*sizes[:axis], stop - start, *sizes[axis + 1 :])))
        whole = cut
    return whole


def table(draw: random.Random, harm: str) -> ChunkTable:
    shapes = [
        tuple(draw.randint(1, 5) for _ in range(draw.choice((0, 1, 2, 2, 3)))) for _ in range(9)
    ]
    rows = [(number, box) for number, shape in enumerate(shapes) for box in boxes_of(shape, draw)]
    at = draw.choice([place for place, (number, _) in enumerate(rows) if shapes[number]])
    number, (offsets, sizes) = rows[at]
    if harm == "lost":
        del rows[at]
    elif harm == "twice":
        rows.insert(at, rows[at])
    elif harm == "moved":
        rows[at] = number, ((offsets[0] + 1, *offsets[1:]), sizes)
    lengths = [4 * int(np.prod(sizes)) for _, (_, sizes) in rows]
    return ChunkTable(
        names=[f"{number}" for number in range(len(shapes))],
        kinds=[Kind("f32")],
        kind=np.zeros(len(shapes), np.uint8),
        shapes=shapes,
        files=[TableFile("00000-00000000.zt", 1 << 20)],
        encodings=["raw"],
        tensor=np.array([number for number, _ in rows], np.uint8),
        file=np.zeros(len(rows), np.uint8),
        number=None,
        encoding=None,
        offsets=np.array([one for _, (offsets, _) in rows for one in offsets], np.uint8),
        sizes=np.array([one for _, (_, sizes) in rows for one in sizes], np.uint8),
        at=np.zeros(len(rows), np.uint8),
        length=np.array(lengths, np.uint16),
    )


def told(found: ChunkTable) -> str:
    try:
        found.require_valid()
    except FormatError as error:
        return str(error)
    return "right"


@pytest.mark.parametrize("harm", ["none", "lost", "twice", "moved"])
def test_where_rows_are_cut_makes_no_difference(harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        made = table(random.Random(seed), harm)
        whole = told(made)
        assert (whole == "right") == (harm == "none"), (seed, whole)
        for batch in (1, 2, 5):
            monkeypatch.setattr(tables, "_BATCH", batch)
            monkeypatch.setattr(tables, "_FILL_BATCH", batch)
            assert told(made) == whole
            monkeypatch.undo()
