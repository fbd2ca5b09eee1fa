from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.distributed.saving import save
from ztensor.distributed.chunks.table import ChunkTable, Kind, TableFile
from ztensor.distributed.place import require_plain
from ztensor.distributed.root import encode_values, read_root, write_root
from ztensor.io.source.sink import FileSink


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


@pytest.mark.parametrize(
    "name",
    [
        "../x.zt",
        "a/b.zt",
        "/etc/passwd",
        "s3://b/x.zt",
        "http://h/x.zt",
        "..",
        ".",
        "",
        ".x.zt",
        "C:\\x.zt",
        "a\\b.zt",
        "checkpoint.zt",
        "x\0.zt",
        "x" * 300,
        3,
        None,
    ],
)
def test_names_of_files_lead_nowhere_else(name: Any) -> None:
    with pytest.raises(ztensor.FormatError):
        require_plain(name)


def test_a_root_says_what_its_tensors_are(tmp_path: Path) -> None:
    save(tmp_path, {"w": np.ones((4, 2), "f4"), "s": np.int64(3)}, processes=2)
    root = read_root(tmp_path)
    assert list(root.names) == ["w", "s"]
    assert list(root.shapes) == [(4, 2), ()]
    assert root.dtypes == ["f32", "i64"]
    assert root.layouts == ["dense", "dense"]
    assert len(root.files) == 2
