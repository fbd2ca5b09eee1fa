from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.divided.saving import save
from ztensor.divided import open_divided

FROZEN = np.arange(4000.0).reshape(40, 100)
HEAD = np.arange(60.0, dtype="f4").reshape(6, 10)


def _tensors(step: int) -> dict[str, Any]:
    return {"frozen": FROZEN, "head": HEAD + step, "step": np.int64(step)}


def _written(folder: Path, before: Path) -> int:
    """Return the bytes of files that only one folder has."""
    old = {path.stat().st_ino for path in before.iterdir()}
    return sum(path.stat().st_size for path in folder.iterdir() if path.stat().st_ino not in old)


@pytest.mark.parametrize("compression", [False, True])
def test_only_what_changed_is_written_and_the_old_step_may_go(
    tmp_path: Path, compression: bool
) -> None:
    folders = [tmp_path / f"step-{number}" for number in range(3)]
    for step, folder in enumerate(folders):
        folder.mkdir()
        since = {"since": folders[step - 1]} if step else {"checksum": "xxh3-128"}
        save(folder, _tensors(step), compression=compression, **since)
        if step:
            assert _written(folder, folders[step - 1]) < 12_000
            shutil.rmtree(folders[step - 1])
        with ztensor.open(folder) as reader:
            assert all((reader[name] == value).all() for name, value in _tensors(step).items())
            assert reader.verify().ok


def test_a_step_is_saved_over_the_one_before_in_one_folder(tmp_path: Path) -> None:
    save(tmp_path, _tensors(0), checksum="xxh3-128")
    before = {path.name for path in tmp_path.glob("0*.zt")}
    save(tmp_path, _tensors(1), since=tmp_path)
    assert before < {path.name for path in tmp_path.glob("0*.zt")}
    with ztensor.open(tmp_path) as reader:
        assert (reader["head"] == HEAD + 1).all()
        assert reader.verify().ok


def test_of_a_file_that_is_hardly_used_the_chunks_are_copied(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for step, folder in enumerate(folders):
        folder.mkdir()
        since = {"since": folders[0]} if step else {"checksum": "xxh3-128"}
        save(folder, {"large": FROZEN + step, "small": HEAD}, **since)
    assert not {p.name for p in folders[0].glob("0*.zt")} & {p.name for p in folders[1].iterdir()}
    with open_divided(folders[1]) as checkpoint:
        assert checkpoint.root.table.content is not None
        assert (checkpoint.objects.array("small", copy=True) == HEAD).all()


def test_without_strong_digests_nothing_is_taken_for_equal(tmp_path: Path) -> None:
    steps: dict[str, dict[str, Any]] = {
        "a": {},
        "b": {"since": tmp_path / "a"},
        "c": {"since": tmp_path / "b"},
    }
    for name, more in steps.items():
        (tmp_path / name).mkdir()
        save(tmp_path / name, _tensors(0), **more)
    assert _written(tmp_path / "b", tmp_path / "a") > FROZEN.nbytes
    assert _written(tmp_path / "c", tmp_path / "b") < 12_000


def test_equal_crc32c_is_no_equality(tmp_path: Path) -> None:
    from ztensor.digest import ALGORITHMS, digest_of

    first = np.arange(64, dtype=np.uint8)
    # XOR with a multiple of the polynomial keeps the sum: 1 + x^... found by adding it bitwise.
    second = first.copy()
    polynomial = (1 << 32) | 0x1EDC6F41
    for bit in range(33):
        if polynomial >> (32 - bit) & 1:
            second[20 + bit // 8] ^= 1 << (bit % 8)
    crc = ALGORITHMS["crc32c"]
    assert digest_of(crc, [first.data]) == digest_of(crc, [second.data])
    steps: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("a", first, {"checksum": "xxh3-128"}),
        ("b", second, {"since": tmp_path / "a"}),
    )
    for name, value, more in steps:
        (tmp_path / name).mkdir()
        save(tmp_path / name, {"w": value}, processes=1, **more)
    with ztensor.open(tmp_path / "b") as reader:
        assert (reader["w"] == second).all()


def test_a_store_copies_what_is_unchanged(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    obstore = pytest.importorskip("obstore")
    for step in range(2):
        more: dict[str, Any] = (
            {"since": "memory://run/step-0"} if step else {"checksum": "xxh3-128"}
        )
        save(f"memory://run/step-{step}", _tensors(step), storage=store, **more)
    for found in obstore.list(store).collect():
        if found["path"].startswith("run/step-0"):
            obstore.delete(store, found["path"])
    with ztensor.open("memory://run/step-1", storage=store) as reader:
        assert (reader["frozen"] == FROZEN).all()
        assert (reader["head"] == HEAD + 1).all()


def test_an_aborted_part_takes_its_links_away(tmp_path: Path) -> None:
    from ztensor.divided import PartWriter

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    save(tmp_path / "a", _tensors(0), checksum="xxh3-128", processes=1)
    part = PartWriter(tmp_path / "b", since=tmp_path / "a")
    part.add("frozen", FROZEN)
    part.abort()
    assert not os.listdir(tmp_path / "b")
    with ztensor.open(tmp_path / "a") as reader:
        assert reader.verify().ok
