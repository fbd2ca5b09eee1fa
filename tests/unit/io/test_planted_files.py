"""What every verb that replaces or cleans leaves alone: files of others, and what links lead to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.distributed.saving import save
from tests.unit.planting import MODEL, TEXT, Area
from ztensor.distributed import PartWriter, commit, compact
from ztensor.errors import UsageError
from ztensor.numpy import load_file, save_file

ON_POSIX = pytest.mark.skipif(os.name == "nt", reason="makes links")


@pytest.fixture(params=["disk", "store"])
def area(request: pytest.FixtureRequest, tmp_path: Path) -> Area:
    return Area(tmp_path / "area" if request.param == "disk" else None)


def require_untouched(area: Area, planted: dict[str, bytes]) -> None:
    tree = area.tree()
    assert {name: tree.get(name) for name in planted} == planted


# --- Shard sets -----------------------------------------------------------------------------


def tensors(value: float = 0.0) -> dict[str, np.ndarray[Any, Any]]:
    return {f"w{number}": np.full(1000, number + value, np.float32) for number in range(3)}


def save_one(area: Area) -> None:
    save_file(tensors(1), area.where("m.zt"), max_shard_size="5GB")


def save_others(area: Area) -> None:
    save_file(tensors(1), area.where("m.zt"), max_shard_size="9KB")


def convert_over(area: Area) -> None:
    other = Area(None)
    save_file(tensors(1), other.where("x.zt"))
    ztensor.convert(other.where("x.zt"), area.where("m.zt"), overwrite=True, max_shard_size="1GB")


@pytest.mark.parametrize("replace", [save_one, save_others, convert_over])
@pytest.mark.parametrize("body", [MODEL, TEXT, b""])
def test_a_save_over_a_shard_set_removes_only_shards_that_hold_what_the_index_says(
    area: Area, replace: Callable[[Area], None], body: bytes
) -> None:
    save_file(tensors(), area.where("m.zt"), max_shard_size="4KB")
    if body == b"" and area.folder is not None:
        pytest.skip("a power cut leaves empty shards on a disk")
    planted = {"m-00002-of-00003.zt": body, "m-00001-of-00009.zt": MODEL, "m.txt": TEXT}
    for name, one in planted.items():
        area.put(name, one)
    replace(area)
    require_untouched(area, planted)
    assert "m-00001-of-00003.zt" not in area.tree()
    assert (load_file(area.where("m.zt"))["w2"] == 3).all()


def test_a_file_of_an_indexs_name_that_is_none_stays(area: Area) -> None:
    planted = {"m.zt.index.json": json.dumps({"notes": "mine"}).encode()}
    area.put(*next(iter(planted.items())))
    save_one(area)
    require_untouched(area, planted)


def test_a_set_that_fails_takes_back_only_what_it_wrote(area: Area) -> None:
    """In a store without an index shards have plain names, under which a user may have a file."""
    if area.folder is None:
        area.put("m-00004-of-00004.zt", MODEL)
    before = area.tree()
    bad = {**tensors(), "w9": np.array(["text"])}
    with pytest.raises(ztensor.NotRepresentableError):
        save_file(bad, area.where("m.zt"), max_shard_size="4KB")
    assert area.tree() == before


@pytest.mark.parametrize("root", [False, True])
def test_a_split_that_fails_takes_back_only_what_it_wrote(tmp_path: Path, root: bool) -> None:
    area = Area(tmp_path / "area")
    save_file(tensors(), tmp_path / "m.zt", version="2.1" if root else "1.2.0")
    planted: dict[str, bytes] = {}

    def replaced(*_: int) -> None:
        for name in area.tree():
            (tmp_path / "mine").write_bytes(MODEL)
            os.replace(tmp_path / "mine", area.where(name))
            planted[name] = MODEL
        if planted:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ztensor.split(
            tmp_path / "m.zt", area.folder, max_shard_size="4KB", progress=replaced, root=root
        )
    assert planted
    assert area.tree() == planted


@ON_POSIX
def test_shards_and_temporaries_behind_links_stay(tmp_path: Path) -> None:
    area, other = Area(tmp_path / "area"), Area(tmp_path / "other")
    save_file(tensors(), area.where("m.zt"), max_shard_size="4KB")
    for number, name in enumerate(("m-00002-of-00003.zt", "m-00002-of-00003.0123abcd.zt")):
        other.put(f"{number}.zt", area.tree()["m-00001-of-00003.zt"])
        area.where(name).unlink(missing_ok=True)
        area.where(name).symlink_to(other.where(f"{number}.zt"))
    area.where(".m.zt.0123456789abcdef.tmp").symlink_to(other.where("0.zt"))
    before = other.tree()
    save_others(area)
    save_one(area)
    assert other.tree() == before


# --- Checkpoints of several processes -------------------------------------------------------


def parts_of(area: Area) -> list[str]:
    return sorted(name for name in area.tree() if name[:5].isdigit())


def save_again(area: Area) -> None:
    save(area.where(), {"w": np.ones((4, 3))})


def compact_now(area: Area) -> None:
    compact(area.where(), older_than=0)


PLANTED = {"00000-0123abcd.zt": MODEL, "00001-0123abcd.zt": TEXT, "n.txt": TEXT, "c.json": b"{}"}


@pytest.mark.parametrize("verb", [save_again, compact_now])
def test_cleaning_a_checkpoint_leaves_files_of_others(
    area: Area, verb: Callable[[Area], None]
) -> None:
    save(area.where(), {"w": np.zeros((4, 3))})
    for name, body in PLANTED.items():
        area.put(name, body)
    verb(area)
    require_untouched(area, PLANTED)
    with ztensor.open(area.where()) as reader:
        assert reader["w"].shape == (4, 3)


def test_a_file_in_the_place_of_one_that_the_old_root_names_stays(area: Area) -> None:
    save(area.where(), {"w": np.zeros((4, 3))})
    mine, *others = parts_of(area)
    area.put(mine, MODEL)
    save_again(area)
    require_untouched(area, {mine: MODEL})
    assert not set(others) & set(parts_of(area))


def test_a_part_that_is_given_up_takes_back_only_what_it_wrote(area: Area) -> None:
    part = PartWriter(area.where(), process=0, max_shard_size="4KB")
    for name in ("a", "b"):
        part.add(name, np.ones(1000, np.float32))
    (mine,) = parts_of(area)
    area.put(mine, MODEL)
    part.abort()
    assert area.tree() == {mine: MODEL}


def test_a_checkpoint_does_not_replace_a_file_that_is_no_root(area: Area) -> None:
    area.put("checkpoint.zt", MODEL)
    with PartWriter(area.where(), process=0) as part:
        part.add("w", np.ones(3))
        records = [part.finish()]
    with pytest.raises(UsageError):
        commit(area.where(), records)
    require_untouched(area, {"checkpoint.zt": MODEL})


@ON_POSIX
@pytest.mark.parametrize("verb", [save_again, compact_now])
def test_parts_behind_links_stay(tmp_path: Path, verb: Callable[[Area], None]) -> None:
    area, other = Area(tmp_path / "area"), Area(tmp_path / "other")
    save(area.where(), {"w": np.zeros((4, 3))})
    save(other.where(), {"w": np.zeros((4, 3))})
    before = other.tree()
    name = parts_of(other)[0]
    area.where(name).symlink_to(other.where(name))
    area.where("00007-0123abcd.zt").symlink_to(other.folder or "", target_is_directory=True)
    area.where(".checkpoint.zt.0123456789abcdef.tmp").symlink_to(other.where(name))
    verb(area)
    assert other.tree() == before
    assert area.where(name).is_symlink()


# --- Folders as a whole ---------------------------------------------------------------------


def model_folder(path: Path) -> Path:
    path.mkdir()
    save_file(tensors(), path / "model.safetensors")
    (path / "config.json").write_text("{}")
    return path


@ON_POSIX
def test_a_folder_that_is_replaced_as_a_whole_takes_nothing_behind_links(tmp_path: Path) -> None:
    source, out = model_folder(tmp_path / "in"), model_folder(tmp_path / "out")
    other = Area(tmp_path / "other")
    other.put("deep/notes.txt", TEXT)
    (out / "deep").symlink_to(other.where("deep"))
    (out / "notes.txt").symlink_to(other.where("deep/notes.txt"))
    before = other.tree()
    ztensor.convert_folder(source, out, overwrite=True, durable=False)
    assert other.tree() == before
    assert sorted(os.listdir(out)) == ["config.json", "model.zt"]


@ON_POSIX
def test_a_folder_behind_a_link_is_not_replaced(tmp_path: Path) -> None:
    source, other = model_folder(tmp_path / "in"), Area(tmp_path / "other")
    other.put("notes.txt", TEXT)
    (tmp_path / "out").symlink_to(other.folder or "")
    with pytest.raises(UsageError):
        ztensor.convert_folder(source, tmp_path / "out", overwrite=True, durable=False)
    assert other.tree() == {"notes.txt": TEXT}


@ON_POSIX
def test_folders_that_no_dead_process_left_stay(tmp_path: Path) -> None:
    """Litter of a process has a lock file beside it."""
    area = Area(tmp_path / "area")
    source = model_folder(tmp_path / "in")
    planted = {".out.0123456789abcdef.new/n.txt": TEXT, ".out.0123456789abcdef.old/n.txt": TEXT}
    for name, body in planted.items():
        area.put(name, body)
    area.where(".out.00000000000000ff.lock").symlink_to(area.where("lock"))
    ztensor.convert_folder(source, area.where("out"), durable=False)
    require_untouched(area, planted)
    assert area.where(".out.00000000000000ff.lock").is_symlink()
