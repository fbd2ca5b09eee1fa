"""Columns of the file of a process, as `repair` reads them; tests/attacks has the root."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.unit.distributed.saving import save
from ztensor.distributed import PartWriter, commit, read_root, repair
from ztensor.errors import FormatError, LimitError, Reason
from ztensor.ext import open_file
from ztensor.limits import Limits

W = np.arange(24.0).reshape(6, 4)
# What stands in the place of a column of whole numbers.
NO_COLUMNS: dict[str, Any] = {
    "of two axes": np.zeros((1, 1), np.uint8),
    "without an axis": np.uint8(0),
    "of floats": np.zeros(1),
    "of a logical type": np.zeros(1, ml_dtypes.bfloat16),
    "of another layout": ztensor.Tensor(
        {"data": np.zeros(1, np.uint8)}, shape=(1,), format="zt.unknown/1"
    ),
    "without data": ztensor.Tensor.coo(np.ones(1), np.zeros((1, 1), np.int64), (1,)),
    "of negative numbers": np.full(1, -1, np.int8),
    "of too many": np.zeros(9, np.uint8),
    "of too large a number": np.full(1, 200, np.uint8),
}


def _changed(folder: Path, **columns: Any) -> Path:
    """Save one part, and write its file anew with other columns; return the folder, rootless."""
    save(folder, {"v": W, "w": W}, processes=1)
    (folder / "checkpoint.zt").unlink()
    path = next(folder.glob("00000-*.zt"))
    with contextlib.closing(open_file(path)) as file:
        objects = {name: file.tensor(name, copy=True) for name in file.names}
        attributes = dict(file.attributes)
    objects.update({f"\x1ftable/{name.replace('__', '/')}": one for name, one in columns.items()})
    path.unlink()
    with ztensor.Writer(path, attributes=attributes) as writer:
        for name, value in objects.items():
            writer.write(name, value)
    return folder


@pytest.mark.parametrize("column", ["tensors__rank", "tensors__kind", "chunks__tensor"])
@pytest.mark.parametrize("kind", NO_COLUMNS)
def test_an_object_that_is_not_a_column_of_integers_is_refused(
    tmp_path: Path, column: str, kind: str
) -> None:
    with pytest.raises(FormatError):
        repair(_changed(tmp_path, **{column: NO_COLUMNS[kind]}))


def test_a_number_is_at_most_2_to_the_62(tmp_path: Path) -> None:
    column = np.full(4, (1 << 62) + 1)
    with refused(FormatError, Reason.SHARD_INDEX) as caught:
        repair(_changed(tmp_path, chunks__offsets=column))
    assert caught.value.expected == f"at most {1 << 62}"
    assert caught.value.found == str(column[0])


@pytest.mark.parametrize(
    ("names", "reason"),
    [(b"vw", None), (b"ww", Reason.SHARD_INDEX), (b"v\xff", Reason.CBOR_UTF8)],
    ids=["as they were", "one name twice", "not UTF-8"],
)
def test_names_are_unique_text(tmp_path: Path, names: bytes, reason: Reason | None) -> None:
    folder = _changed(tmp_path, tensors__names=np.frombuffer(names, np.uint8))
    with refused(FormatError, reason) if reason else contextlib.nullcontext():
        repair(folder)


def test_names_are_charged(tmp_path: Path) -> None:
    save(tmp_path, {f"{number:0120}": W[:1] for number in range(2000)}, processes=1)
    with refused(LimitError, Reason.LIMIT_COST):
        read_root(tmp_path, limits=Limits(cost_floor=1 << 20, cost_factor=0))
    read_root(tmp_path, limits=Limits(cost_floor=1 << 21, cost_factor=0))


def test_a_tensor_may_be_called_like_the_columns(tmp_path: Path) -> None:
    names = ["\x1ftable", "\x1ftable/tensors/names", "\x1ftable\x1f/chunks/tensor", "w"]
    with PartWriter(tmp_path, processes=1) as part:
        for number, name in enumerate(names):
            part.add(name, W + number)
        commit(tmp_path, [part.finish()])
    (tmp_path / "checkpoint.zt").unlink()
    repair(tmp_path)
    with ztensor.open(tmp_path) as reader:
        assert all((reader[name] == W + number).all() for number, name in enumerate(names))


# --- Chunks that share bytes ----------------------------------------------------------------------


def test_a_chunk_shares_the_bytes_of_the_box_that_it_names(tmp_path: Path) -> None:
    boxes = {"shape": (12, 4), "offsets": (6, 0)}
    with PartWriter(tmp_path, processes=1) as part:
        part.add("a", W, shape=(12, 4), offsets=(0, 0))
        part.add("a", W + 100, **boxes)
        assert part.share("b", "a")
        assert part.share("c", "a", at=(6, 0))
        assert part.share("d", "a", at=(6, 0), shape=(12, 4), offsets=(0, 0))
        assert part.share("d", "a", at=(0, 0), **boxes)
        assert not part.share("e", "a", at=(3, 0))
        assert not part.share("e", "none")
        commit(tmp_path, [part.finish()])
    with ztensor.open(tmp_path) as reader:
        assert sorted(reader) == ["a", "b", "c", "d"]
        assert (reader["b"] == W).all()
        assert (reader["c"] == W + 100).all()
        assert (reader["d"] == np.concatenate([W + 100, W])).all()


def test_nothing_is_shared_with_a_chunk_of_another_file(tmp_path: Path) -> None:
    with PartWriter(tmp_path, processes=1, max_shard_size=W.nbytes) as part:
        part.add("a", W)
        part.add("b", W + 1)
        assert not part.share("c", "a")
        assert part.share("c", "b")
        commit(tmp_path, [part.finish()])
    with ztensor.open(tmp_path) as reader:
        assert (reader["c"] == W + 1).all()
