"""Parts of different saves, or of a part of one, never become a checkpoint, whatever wrote them."""

from __future__ import annotations

import concurrent.futures
import itertools
import pickle
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest

import ztensor
from tests.unit.distributed.saving import save
from ztensor.distributed import PartRecord, PartWriter, commit, read_root, repair
from ztensor.distributed.committing import record_from_bytes, record_to_bytes

W = np.arange(48, dtype=np.float32).reshape(12, 4)
WORLD = 3


# --- Front ends: each writes the parts of a save that dies before its root ----------------------


def _by_part_writers(folder: Path, step: int, processes: int, **options: Any) -> list[PartRecord]:
    """Write a tensor that is cut, and one that only this process has."""
    return [_part(folder, step, processes, process, **options) for process in range(processes)]


def _part(folder: Path, step: int, processes: int, process: int, **options: Any) -> PartRecord:
    rows = len(W) // processes
    with PartWriter(folder, process=process, save_id=step, processes=processes, **options) as part:
        start = process * rows
        part.add("w", W[start : start + rows] + step, shape=W.shape, offsets=(start, 0))
        part.add(f"own-{process}", np.full(3, step, np.float32))
        return part.finish()


def _by_files(folder: Path, step: int, processes: int) -> None:
    _by_part_writers(folder, step, processes, max_shard_size=32)


class _Killed(BaseException):
    """Stands for the end of a process: nothing of ours catches it."""


def _by_jax(folder: Path, step: int, processes: int) -> None:
    jax = pytest.importorskip("ztensor.jax", exc_type=ImportError)
    barrier, said = threading.Barrier(processes), [b""] * processes

    def run(process: int) -> None:
        calls = itertools.count()

        def share(own: bytes) -> Sequence[bytes]:
            if next(calls):
                raise _Killed
            said[process] = own
            barrier.wait(60)
            return list(said)

        tree = {f"own-{process}": np.full(3, step, np.float32)}
        with pytest.raises(_Killed):
            jax.save_sharded(tree, folder, process_index=process, exchange=share)

    with concurrent.futures.ThreadPoolExecutor(processes) as executor:
        list(executor.map(run, range(processes)))


def _by_torch(folder: Path, step: int, processes: int, **options: Any) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from ztensor.torch import StorageWriter

    writers = [StorageWriter(folder, **options) for _ in range(processes)]
    plans, planners = [], []
    for process, writer in enumerate(writers):
        writer.set_up_storage_writer(process == 0, rank=process, use_collectives=True)
        plan, planner = _planned(process, step, processes)
        plans.append(writer.prepare_local_plan(plan))
        planners.append(planner)
    plans = writers[0].prepare_global_plan(plans)
    for writer, plan, planner in zip(writers, plans, planners, strict=True):
        writer.write_data(plan, planner).wait()


def _planned(process: int, step: int, processes: int) -> tuple[Any, Any]:
    """Return a plan of torch for a process, and a planner that has its tensors."""
    import torch
    from torch.distributed.checkpoint import metadata, planner

    rows = len(W) // processes
    start = process * rows
    tensors = {
        "w": (torch.tensor(W[start : start + rows] + step), W.shape, (start, 0)),
        f"own-{process}": (torch.full((3,), float(step)), (3,), (0,)),
    }
    items = [
        planner.WriteItem(
            metadata.MetadataIndex(name),
            planner.WriteItemType.SHARD,
            tensor_data=planner.TensorWriteData(
                metadata.ChunkStorageMetadata(torch.Size(offsets), tensor.shape),
                metadata.TensorProperties(tensor.dtype),
                torch.Size(shape),
            ),
        )
        for name, (tensor, shape, offsets) in tensors.items()
    ]

    class Planner:
        def lookup_object(self, index: Any) -> Any:
            return tensors[index.fqn][0]

        def resolve_data(self, item: Any) -> Any:
            return self.lookup_object(item.index)

    return planner.SavePlan(items), Planner()


FRONT_ENDS: dict[str, Callable[[Path, int, int], object]] = {
    "PartWriter": _by_part_writers,
    "several files": _by_files,
    "torch": _by_torch,
    "JAX": _by_jax,
}


def _written(front_end: str, folder: Path, step: int, processes: int = WORLD) -> list[list[Path]]:
    """Have a front end write a save, and return the files of each process."""
    folder.mkdir()
    FRONT_ENDS[front_end](folder, step, processes)
    assert not (folder / "checkpoint.zt").exists()
    return [sorted(folder.glob(f"{process:05d}-*.zt")) for process in range(processes)]


def _there(folder: Path, files: Sequence[Path]) -> Path:
    folder.mkdir()
    for path in files:
        shutil.copy(path, folder)
    return folder


def _steps(folder: Path) -> set[int]:
    """Return the saves from which the elements of a checkpoint come."""
    with ztensor.open(folder) as reader:
        assert reader.verify().ok
        found = {int(reader[name].flat[0]) for name in reader if name != "w"}
        return found | (
            {*(reader["w"] - W).ravel().astype(int).tolist()} if "w" in reader else set()
        )


def _repaired(folder: Path) -> set[int] | None:
    """Repair a checkpoint and return its saves, None if that is refused."""
    try:
        repair(folder)
    except ztensor.UsageError:
        assert not (folder / "checkpoint.zt").exists()
        return None
    return _steps(folder)


@pytest.mark.slow
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_two_dead_saves_are_repaired_to_the_one_that_is_whole_or_not_at_all(
    tmp_path: Path, front_end: str
) -> None:
    """Of each save any processes got as far as to finish, in every combination."""
    saves = {step: _written(front_end, tmp_path / f"save-{step}", step) for step in (1, 2)}
    subsets = [
        which for size in range(WORLD + 1) for which in itertools.combinations(range(WORLD), size)
    ]
    for number, (first, second) in enumerate(itertools.product(subsets, repeat=2)):
        files = [path for process in first for path in saves[1][process]]
        files += [path for process in second for path in saves[2][process]]
        if not files:
            continue
        whole = [step for step, which in ((1, first), (2, second)) if len(which) == WORLD]
        expected = set(whole) if len(whole) == 1 else None
        assert _repaired(_there(tmp_path / str(number), files)) == expected, (first, second)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_saves_of_different_numbers_of_processes_are_never_joined(
    tmp_path: Path, front_end: str
) -> None:
    two = _written(front_end, tmp_path / "two", 1, 2)
    four = _written(front_end, tmp_path / "four", 2, 4)
    halves = [*two[0], *four[2], *four[3]]  # which fill "w"
    assert _repaired(_there(tmp_path / "halves", halves)) is None
    assert _repaired(_there(tmp_path / "more", [*two[0], *two[1], *four[2], *four[3]])) == {1}


def test_a_part_of_which_a_file_is_missing_is_no_part(tmp_path: Path) -> None:
    files = _written("several files", tmp_path / "save", 1)
    assert all(len(some) > 1 for some in files)
    every = [path for some in files for path in some]
    for number, path in enumerate(every):
        left = [other for other in every if other != path]
        assert _repaired(_there(tmp_path / str(number), left)) is None


@pytest.mark.parametrize("left", [0, 10, -1])
def test_a_damaged_root_is_replaced(tmp_path: Path, left: int) -> None:
    save(tmp_path, {"w": W})
    root = tmp_path / "checkpoint.zt"
    root.write_bytes(root.read_bytes()[:left])
    save(tmp_path, {"w": W + 1})
    with ztensor.open(tmp_path) as reader:
        assert np.array_equal(reader["w"], W + 1)


def test_of_many_files_four_are_named(tmp_path: Path) -> None:
    _by_part_writers(tmp_path, 1, 6)
    next(tmp_path.glob("00002-*.zt")).unlink()
    with pytest.raises(ztensor.UsageError) as caught:
        repair(tmp_path)
    assert caught.value.found is not None
    assert caught.value.found.count(".zt") == 4
    assert caught.value.found.endswith(", and 1 more")


def test_a_process_that_tried_again_with_the_same_id_is_noticed(tmp_path: Path) -> None:
    _by_part_writers(tmp_path, 1, WORLD)
    _part(tmp_path, 1, WORLD, 1)
    assert _repaired(tmp_path) is None


def test_files_of_two_tries_of_a_process_are_never_joined(tmp_path: Path) -> None:
    before, first, after = _written("several files", tmp_path / "first", 1)
    _, second, _ = _written("several files", tmp_path / "second", 1)
    for number, files in enumerate(itertools.combinations([*first, *second], len(first))):
        folder = _there(tmp_path / str(number), [*before, *files, *after])
        assert _repaired(folder) == ({1} if list(files) in (first, second) else None)


def test_a_save_that_took_chunks_over_is_not_made_of_its_own_files_alone(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    commit(folders[0], _by_part_writers(folders[0], 1, 2, checksum="xxh3-128"))
    commit(folders[1], _by_part_writers(folders[1], 1, 2, since=folders[0]))
    for folder in folders:
        (folder / "checkpoint.zt").unlink()
    assert _repaired(folders[1]) is None
    assert _repaired(folders[0]) == {1}


# --- Without an id nothing is known ---------------------------------------------------------------


def _unmarked(folder: Path, step: int, which: Sequence[int]) -> None:
    for process in which:
        with PartWriter(folder, process=process) as part:
            part.add(
                "w",
                W[process * 4 : process * 4 + 4] + step,
                shape=W.shape,
                offsets=(process * 4, 0),
            )
            part.finish()


def test_parts_without_a_save_id_are_joined_if_the_caller_vouches_for_them(
    tmp_path: Path,
) -> None:
    for name, steps in {"mixed": (1, 2, 2), "one": (1, 1, 1)}.items():
        (tmp_path / name).mkdir()
        for process, step in enumerate(steps):
            _unmarked(tmp_path / name, step, [process])
        assert _repaired(tmp_path / name) is None
    report = repair(tmp_path / "one", one_save=True)
    assert report.written is not None
    with ztensor.open(tmp_path / "one") as reader:
        assert (reader["w"] == W + 1).all()
        assert reader.verify().ok


def test_vouching_does_not_join_parts_of_several_saves(tmp_path: Path) -> None:
    _part(tmp_path, 1, WORLD, 0)
    _unmarked(tmp_path, 2, [1, 2])
    with pytest.raises(ztensor.UsageError):
        repair(tmp_path, one_save=True)
    assert not (tmp_path / "checkpoint.zt").exists()


# --- commit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "send",
    [
        lambda one: one,
        lambda one: pickle.loads(pickle.dumps(one)),
        lambda one: record_from_bytes(record_to_bytes(one)),
    ],
)
def test_records_of_several_saves_or_of_a_part_of_one_are_not_committed(
    tmp_path: Path, send: Callable[[PartRecord], PartRecord]
) -> None:
    first, second = (list(map(send, _by_part_writers(tmp_path, step, WORLD))) for step in (1, 2))
    fewer = send(_part(tmp_path, 2, 2, 1))
    unmarked = PartWriter(tmp_path, process=2)
    wrong = [
        [first[0], second[1], second[2]],
        [second[0], second[1]],
        [*second, second[2]],
        [second[0], fewer],
        [second[0], second[1], unmarked.finish()],
    ]
    for records in wrong:
        with pytest.raises(ztensor.UsageError):
            commit(tmp_path, records)
        assert not (tmp_path / "checkpoint.zt").exists()
    commit(tmp_path, second)
    assert _steps(tmp_path) == {2}
    root = read_root(tmp_path)
    assert (root.save_id, root.processes) == ("2", WORLD)


def test_a_process_that_writes_nothing_still_counts(tmp_path: Path) -> None:
    save: dict[str, Any] = {"save_id": "a", "processes": 2}
    records = []
    for process in range(2):
        with PartWriter(tmp_path, process=process, **save) as part:
            if process == 0:
                part.add("w", W)
            records.append(part.finish())
    commit(tmp_path, records)
    (tmp_path / "checkpoint.zt").unlink()
    assert repair(tmp_path).tensors == 1


@pytest.mark.parametrize(
    "arguments",
    [{"save_id": ""}, {"save_id": 1.5}, {"save_id": "x" * 201}, {"save_id": True},
     {"processes": 0}, {"processes": 1, "process": 1}, {"processes": "2"}, {"processes": True}],
)  # fmt: skip
def test_a_wrong_save_id_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ztensor.UsageError):
        PartWriter(tmp_path, **arguments)
    assert not list(tmp_path.iterdir())


def test_an_exchange_that_gives_the_record_of_an_older_save_is_noticed(tmp_path: Path) -> None:
    jax = pytest.importorskip("ztensor.jax", exc_type=ImportError)
    said: list[bytes] = []

    def as_process_1(own: bytes) -> Sequence[bytes]:
        said.append(own)
        if len(said) > 1:
            return [b"\1", own]
        token, digest, *_ = cbor2.loads(own[1:])
        return [b"\1" + cbor2.dumps([token, digest]), own]  # process 0 has no arrays

    def as_process_0(own: bytes) -> Sequence[bytes]:
        return [own, next(older)]

    jax.save_sharded({"b": W}, tmp_path, process_index=1, exchange=as_process_1)
    older = iter(said)
    with pytest.raises(ztensor.UsageError):
        jax.save_sharded({"a": W}, tmp_path, process_index=0, exchange=as_process_0)
    assert not (tmp_path / "checkpoint.zt").exists()


# --- torch ----------------------------------------------------------------------------------------


def _alone(home: Path, step: int, rank: int, processes: int, save_id: Any) -> None:
    """Save as one process of those that do not talk."""
    from torch.distributed.checkpoint import metadata

    from ztensor.torch import StorageWriter

    writer = StorageWriter(home, save_id=save_id)
    writer.set_up_storage_writer(True, rank=rank, use_collectives=False)
    plan, planner = _planned(rank, step, processes)
    (plan,) = writer.prepare_global_plan([writer.prepare_local_plan(plan)])
    written = writer.write_data(plan, planner).wait()
    writer.finish(metadata.Metadata({}), [written])


@pytest.mark.filterwarnings("ignore:torch.distributed is")
@pytest.mark.parametrize(
    ("ids", "is_joined"),
    [(("a", "a"), True), (("a", "b"), False), (("a", None), False), ((None, None), True)],
)
def test_folders_of_processes_without_collectives_are_joined_if_they_are_of_one_save(
    tmp_path: Path, ids: tuple[object, object], is_joined: bool
) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    dcp: Any = pytest.importorskip("torch.distributed.checkpoint")
    from ztensor.torch import StorageReader

    for rank, save_id in enumerate(ids):
        _alone(tmp_path, 1, rank, 2, save_id)
    state, reader = {"w": torch.zeros(W.shape)}, StorageReader(tmp_path)
    if is_joined:
        dcp.load(state, storage_reader=reader, no_dist=True)
        assert (state["w"].numpy() == W + 1).all()
        return
    with pytest.raises(dcp.CheckpointException) as caught:
        dcp.load(state, storage_reader=reader, no_dist=True)
    error = caught.value.failures[0][0]
    assert isinstance(error, ztensor.FormatError)
    assert error.reason is ztensor.Reason.SHARD_INDEX
