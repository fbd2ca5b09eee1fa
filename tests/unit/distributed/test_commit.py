from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.distributed.saving import save
from ztensor.distributed import PartWriter, commit, compact, read_root

W = np.arange(24.0).reshape(6, 4)


def _part(folder: Path, offsets: tuple[int, int], chunk: np.ndarray, **more: object) -> object:
    with PartWriter(folder, **more) as part:  # type: ignore[arg-type]
        part.add("w", chunk, shape=(6, 4), offsets=offsets)
        return part.finish()


def test_a_second_save_replaces_the_first_and_leaves_no_file_of_it(tmp_path: Path) -> None:
    save(tmp_path, {"w": W}, processes=4)
    before = {path.name for path in tmp_path.glob("0*.zt")}
    save(tmp_path, {"w": W + 1}, processes=2)
    after = {path.name for path in tmp_path.iterdir()}
    assert not before & after
    assert len(after) == 3
    with ztensor.open(tmp_path) as reader:
        assert (reader["w"] == W + 1).all()


@pytest.mark.slow
def test_files_of_a_killed_process_go_with_the_next_save(tmp_path: Path) -> None:
    script = (
        "import numpy, os, sys; from ztensor.distributed import PartWriter\n"
        "part = PartWriter(sys.argv[1], process=7)\n"
        "part.add('w', numpy.ones(3)); part.finish(); os._exit(1)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script, tmp_path], env=environment, check=False)
    assert len(list(tmp_path.glob("00007-*.zt"))) == 1
    save(tmp_path, {"w": W})
    assert not list(tmp_path.glob("00007-*.zt"))


def test_files_of_running_saves_and_of_users_stay(tmp_path: Path) -> None:
    ours = PartWriter(tmp_path, process=9)
    ours.add("x", np.ones(3))
    ours.finish()
    ztensor.numpy.save_file({"a": np.ones(2)}, tmp_path / "00003-deadbeef.zt")
    save(tmp_path, {"w": W})
    assert list(tmp_path.glob("00009-*.zt"))
    assert (tmp_path / "00003-deadbeef.zt").exists()


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([((0, 0), W[:3])], "do not cover"),
        ([((0, 0), W[:4]), ((3, 0), W[3:])], "overlap"),
        ([((0, 0), W[:3]), ((3, 0), W[3:].astype("f4"))], "disagree"),
        ([((0, 0), W[:, :2]), ((0, 1), W[:, 1:3])], "overlap"),
    ],
)
def test_chunks_that_do_not_make_a_tensor_are_refused_and_the_old_state_stays(
    tmp_path: Path,
    chunks: list[tuple[tuple[int, int], np.ndarray]],
    message: str,
) -> None:
    save(tmp_path, {"w": W})
    records = [_part(tmp_path, offsets, chunk) for offsets, chunk in chunks]
    with pytest.raises(ztensor.UsageError, match=message):
        commit(tmp_path, records)  # type: ignore[arg-type]
    with ztensor.open(tmp_path) as reader:
        assert (reader["w"] == W).all()


@pytest.mark.parametrize("shape", [(8,), (4, 6), (2, 4, 6)])
def test_a_root_lists_chunks_in_the_order_of_their_first_elements(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    size = (2,) * len(shape)
    boxes = [tuple(2 * n for n in box) for box in np.ndindex(*(n // 2 for n in shape))]
    records = []
    for process, own in enumerate((boxes[::-3], boxes[-2::-3], boxes[-3::-3])):
        with PartWriter(tmp_path, process=process) as part:
            for name in "vw":
                for offsets in own:
                    part.add(name, np.ones(size), shape=shape, offsets=offsets)
            records.append(part.finish())
    commit(tmp_path, records)
    table = read_root(tmp_path).table
    for tensor in (0, 1):
        assert table.boxes(tensor)[0].tolist() == [list(box) for box in boxes]


def test_a_value_no_file_can_hold_is_refused_by_name_before_anything_is_visible(
    tmp_path: Path,
) -> None:
    with PartWriter(tmp_path) as part:
        part.add("w", W)
        record = part.finish()
    with pytest.raises(ztensor.NotRepresentableError, match="scheduler"):
        commit(tmp_path, [record], {"scheduler": {"fn": lambda: 1}})
    assert not (tmp_path / "checkpoint.zt").exists()


def test_a_part_that_is_gone_before_the_root_is_written_is_an_error(tmp_path: Path) -> None:
    with PartWriter(tmp_path) as part:
        part.add("w", W)
        record = part.finish()
    os.unlink(tmp_path / record.table.files[0].name)
    with pytest.raises(ztensor.SourceError, match="missing"):
        commit(tmp_path, [record])


def test_overwrite_false_refuses_to_replace_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, {"w": W})
    record = _part(tmp_path, (0, 0), W)
    with pytest.raises(ztensor.UsageError, match="exists"):
        commit(tmp_path, [record], overwrite=False)  # type: ignore[list-item]


def test_an_aborted_part_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with PartWriter(tmp_path, max_shard_size=64) as part:
            for name in "abc":
                part.add(name, np.ones(20))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not list(tmp_path.iterdir())


def test_a_part_is_divided_into_files_of_a_size(tmp_path: Path) -> None:
    with PartWriter(tmp_path, max_shard_size="1KB") as part:
        for number in range(6):
            part.add(f"t{number}", np.full(100, number, "f4"))
        record = pickle.loads(pickle.dumps(part.finish()))
    assert len(record.table.files) == 3
    commit(tmp_path, [record])
    with ztensor.open(tmp_path) as reader:
        assert all((reader[f"t{number}"] == number).all() for number in range(6))


def test_parts_that_no_root_names_are_removed(tmp_path: Path) -> None:
    save(tmp_path, {"w": np.zeros((4, 3))})
    kept, left = set(os.listdir(tmp_path)), "00000-0123abcd.zt"
    shutil.copy(next(tmp_path.glob("00000-*.zt")), tmp_path / left)
    assert compact(tmp_path, dry_run=True) == [left]
    assert set(os.listdir(tmp_path)) == {*kept, left}
    assert compact(tmp_path) == [left]
    assert set(os.listdir(tmp_path)) == kept


def test_young_parts_stay_in_a_store() -> None:
    """No store knows whether their writer lives."""
    obstore = pytest.importorskip("obstore")
    store = obstore.store.MemoryStore()
    place, left = ztensor.Remote("memory:///run", store), "00000-0123abcd.zt"
    save(place, {"w": np.zeros((4, 3))})
    paths = [one["path"] for one in obstore.list(store).collect()]
    part = next(path for path in paths if path.startswith("run/00000-"))
    obstore.put(store, f"run/{left}", obstore.get(store, part).bytes())
    assert compact(place) == []
    assert compact(place, older_than=0) == [left]
