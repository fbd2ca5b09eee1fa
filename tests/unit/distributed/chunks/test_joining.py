"""Whatever joins boxes refuses boxes that do not tile their tensor, wherever among them that is."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.unit.formats.test_dcp import RECORD, boxed
from tests.unit.formats.test_dcp_edges import shard
from ztensor.distributed import PartWriter, commit, read_root, repair
from ztensor.distributed.chunks.table import ChunkTable, Kind, TableFile
from ztensor.distributed.root import BOXES, encode_values, write_root
from ztensor.errors import FormatError, LimitError, Reason, UsageError
from ztensor.ext import FileSink
from ztensor.limits import Limits

ROWS = 4200
AT = 2050  # the box that is wrong


def starts(harm: str) -> list[int]:
    """Return where boxes of two rows begin: in order, or one a row too early."""
    rows = list(range(0, ROWS, 2))
    if harm == "overlap and gap":
        rows[AT] -= 1
    return rows


def write_parts(folder: Path, rows: list[int]) -> list[Any]:
    """Write all boxes as files of two processes; return their records."""
    folder.mkdir(exist_ok=True)
    records = []
    for process in (0, 1):
        with PartWriter(folder, process=process, save_id="one", processes=2) as part:
            for row in rows[process::2]:
                part.add("w", np.full((2, 3), row, "f4"), shape=(ROWS, 3), offsets=(row, 0))
            records.append(part.finish())
    return records


def committed(folder: Path, rows: list[int]) -> None:
    commit(folder, write_parts(folder, rows))


def repaired(folder: Path, rows: list[int]) -> None:
    write_parts(folder, rows)
    repair(folder)


def root(folder: Path, rows: list[int]) -> None:
    """Write a root as no commit would, over the files of one that is right."""
    committed(folder, starts("none"))
    table = read_root(folder).table
    order = np.searchsorted(table.offsets[::2], [row // 2 * 2 for row in rows])
    table = dataclasses.replace(
        table,
        tensor=table.tensor[: len(rows)],
        offsets=np.array([(row, 0) for row in rows]).reshape(-1),
        sizes=table.sizes[: 2 * len(rows)],
        **{
            name: getattr(table, name)[order]
            for name in ("file", "number", "encoding", "at", "length", "digest")
            if getattr(table, name) is not None
        },
    )
    write_root(FileSink(str(folder / "checkpoint.zt")), table, encode_values({}), "test")


def opened_root(folder: Path, rows: list[int]) -> None:
    root(folder, rows)
    with ztensor.open(folder) as reader:
        reader["w"]


def by_jax(folder: Path, rows: list[int]) -> None:
    load_file = pytest.importorskip("ztensor.jax", exc_type=ImportError).load_file
    root(folder, rows)
    load_file(folder)


def by_torch(folder: Path, rows: list[int]) -> None:
    root(folder, rows)
    _load(folder)


def alone(folder: Path, rows: list[int]) -> None:
    """Write two checkpoints of processes that do not talk, and load these as one."""
    for process in (0, 1):
        home = folder / f"{process:05d}"
        home.mkdir(parents=True)
        boxes: dict[str, object] = {}
        with PartWriter(home, process=process) as part:
            for row in rows[process::2]:
                own = f"w {len(boxes)}"
                boxes[own] = ("w", (ROWS, 3), (row, 0))
                part.add(own, np.full((2, 3), row, "f4"))
            record = part.finish()
        commit(home, [record], {BOXES: boxes}, writer="torch")
    _load(folder)


def _load(folder: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    dcp: Any = pytest.importorskip("torch.distributed.checkpoint")
    reader = pytest.importorskip("ztensor.torch", exc_type=ImportError).StorageReader(folder)
    try:
        dcp.load({"w": torch.zeros(ROWS, 3)}, storage_reader=reader, no_dist=True)
    except dcp.CheckpointException as error:
        raise error.failures[0][0] from None


def stock(folder: Path, rows: list[int]) -> None:
    """Write what torch's own writer writes; each box is the same record again."""
    folder.mkdir()
    boxes = [((row, 0), (2, 3)) for row in rows]
    (folder / ".metadata").write_bytes(boxed((ROWS, 3), *boxes))
    (folder / "a.distcp").write_bytes(len(rows) * RECORD)
    with ztensor.open(folder) as reader:
        reader["w"]


def safetensors(folder: Path, rows: list[int]) -> None:
    """Write what torch's writer of safetensors writes, each box by a process of its own."""
    folder.mkdir()
    for place, row in enumerate(rows, 1):
        shard(folder, place, {"w": (row, 0)}, {"w": np.full((2, 3), row, "f4")})
    with ztensor.open(folder) as reader:
        reader["w"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is")
@pytest.mark.parametrize("harm", ["none", "overlap and gap"])
@pytest.mark.parametrize(
    "join",
    [committed, repaired, opened_root, by_jax, by_torch, alone, stock, safetensors],
    ids=lambda join: join.__name__,
)
def test_boxes_that_do_not_tile_are_refused_by_every_reader_and_writer(
    join: Callable[[Path, list[int]], None], harm: str, tmp_path: Path
) -> None:
    if harm == "none":
        join(tmp_path / "x", starts(harm))
        return
    with pytest.raises((FormatError, UsageError)) as caught:
        join(tmp_path / "x", starts(harm))
    if isinstance(caught.value, FormatError):
        assert caught.value.reason is Reason.SHARD_INDEX
    assert caught.value.object_name == "w"


def table_of(tensors: int, ranks: int) -> ChunkTable:
    """Return the table of tensors that so many processes hold equal rows of."""
    count = tensors * ranks
    rows = 4
    offsets = np.zeros((count, 2), np.int64)
    offsets[:, 0] = np.tile(np.arange(ranks) * rows, tensors)
    at = np.repeat(np.arange(tensors) * rows * 64 * 4 + 64, ranks)
    return ChunkTable(
        names=[f"layers.{number}.weight" for number in range(tensors)],
        kinds=[Kind("f32")],
        kind=np.zeros(tensors, np.int64),
        shapes=[(rows * ranks, 64)] * tensors,
        files=[TableFile(f"{rank:05d}-00000000.zt", 1 << 40) for rank in range(ranks)],
        encodings=["raw"],
        tensor=np.repeat(np.arange(tensors), ranks),
        file=np.tile(np.arange(ranks), tensors),
        number=None,
        encoding=None,
        offsets=offsets.reshape(-1),
        sizes=np.tile(np.array([rows, 64]), count),
        at=at,
        length=np.full(count, rows * 64 * 4),
    )


def test_a_table_of_many_chunks_is_small_and_makes_no_object_for_each(tmp_path: Path) -> None:
    table = table_of(2000, 32)
    write_root(FileSink(str(tmp_path / "checkpoint.zt")), table, encode_values({}), "test")
    assert (tmp_path / "checkpoint.zt").stat().st_size < 60_000
    tracemalloc.start()
    root = read_root(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 << 20
    assert len(root.table) == 64_000
    assert root.table.chunk(63_999).offsets == (31 * 4, 0)
    with refused(LimitError, Reason.LIMIT_COST):
        read_root(tmp_path, limits=Limits(cost_floor=100 * 64_000, cost_factor=0))


@pytest.mark.parametrize("place", [0, 16_383, 16_384, 16_385, 39_999])
@pytest.mark.parametrize("harm", ["moved", "twice", "longer", "beyond"])
def test_a_table_names_the_tensor_whose_chunks_are_wrong(place: int, harm: str) -> None:
    table = table_of(tensors=10_000, ranks=4)
    table.require_valid()
    offsets, sizes = table.offsets.reshape(-1, 2), table.sizes.reshape(-1, 2)
    if harm == "moved":
        offsets[place, 0] += -1 if place % 4 else 1
    elif harm == "twice":
        offsets[place] = offsets[place ^ 1]
    elif harm == "longer":
        table.length[place] += 4
    else:
        sizes[place, 1] += 1
    with refused(FormatError, Reason.SHARD_INDEX) as caught:
        table.require_valid()
    assert caught.value.object_name == f"layers.{place // 4}.weight"
