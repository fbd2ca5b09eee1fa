"""Checkpoints by `torch.distributed.checkpoint`, in one process; tests/distributed has several."""

from __future__ import annotations

import dataclasses
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.distributed import PartWriter, read_root
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DigestMismatchError,
    FormatError,
    NotRepresentableError,
    Reason,
    SourceError,
    SourceNotFoundError,
    UsageError,
    ZTensorError,
)

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
dcp: Any = pytest.importorskip("torch.distributed.checkpoint")
pytest.importorskip("safetensors", reason="torch's writer of safetensors is beside ours")

import ztensor.torch  # noqa: E402
from tests.distributed import values as cases  # noqa: E402

# torch warns that there is no process group, as intended, and that sparse is in beta.
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is"),
    pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]


def save(state: dict[str, Any], folder: Path | str, planner: Any = None, **options: Any) -> Any:
    writer = ztensor.torch.StorageWriter(folder, **options)
    return dcp.save(state, storage_writer=writer, planner=planner, no_dist=True)


def load(
    state: dict[str, Any], folder: Path | str, planner: Any = None, **options: Any
) -> dict[str, Any]:
    reader = ztensor.torch.StorageReader(folder, **options)
    dcp.load(state, storage_reader=reader, planner=planner, no_dist=True)
    return state


def raised(call: Callable[[], object]) -> BaseException:
    """Return the error in the exception of a call of DCP."""
    with pytest.raises(dcp.CheckpointException) as caught:
        call()
    found: BaseException = caught.value.failures[0][0]
    return found


def sample() -> dict[str, Any]:
    return {"w": torch.arange(5000.0).reshape(50, 100), "b": torch.ones(7), "step": 3}


def parts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != "checkpoint.zt")


# --- Values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.VALUES)
def test_every_value_comes_back(name: str, tmp_path: Path) -> None:
    state = cases.VALUES[name]()
    save(state, tmp_path)
    assert cases.is_same(load(cases.emptied(state), tmp_path), state)


@pytest.mark.parametrize("name", cases.REFUSED)
def test_unsupported_values_are_refused_by_name(name: str, tmp_path: Path) -> None:
    save(sample(), tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    error = raised(lambda: save(cases.REFUSED[name](), tmp_path))
    assert isinstance(error, NotRepresentableError)
    assert error.object_name in ("x", "schedule.thing", "schedule.lr_lambda")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert load({"step": 0}, tmp_path) == {"step": 3}


def test_tied_tensors_are_stored_once(tmp_path: Path) -> None:
    weight = torch.arange(100_000.0)
    save({"in": weight, "out": weight}, tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1.1 * weight.nbytes
    found = load({"in": torch.zeros(100_000), "out": torch.zeros(100_000)}, tmp_path)
    assert torch.equal(found["in"], weight)
    assert torch.equal(found["out"], weight)


def test_temporary_tensors_of_a_save_are_not_tied(tmp_path: Path) -> None:
    # Each is resolved into new memory, mostly at the address of the one before.
    state = {str(n): torch.full((1000,), n * 1j).conj() for n in range(20)}
    save(state, tmp_path)
    found = load({name: torch.zeros_like(one) for name, one in state.items()}, tmp_path)
    assert all(torch.equal(found[name], one) for name, one in state.items())


def test_a_checkpoint_is_files_of_ours_and_no_pickle(tmp_path: Path) -> None:
    save({**sample(), "schedule": {"milestones": (1, 2)}}, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".zt"}
    assert (tmp_path / "checkpoint.zt").exists()
    with ztensor.open(tmp_path) as reader:
        assert np.array_equal(reader["w"], np.arange(5000, dtype=np.float32).reshape(50, 100))
        assert reader.verify().ok


def test_nothing_of_a_file_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The planner gets a pickle of the decoded values, which this process made in memory.
    save({"step": 3, "names": ["a"]}, tmp_path)
    read: list[bytes] = []
    stock = torch.load

    def noted(file: Any, **options: Any) -> Any:
        read.append(file.getvalue())
        return stock(file, **options)

    monkeypatch.setattr(torch, "load", noted)
    assert load({"step": 0, "names": []}, tmp_path) == {"step": 3, "names": ["a"]}
    assert len(read) == 2
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(pickled in held for pickled in read)


def test_classes_come_back_if_they_are_passed(tmp_path: Path) -> None:
    save({"x": cases.Point(1, 2.5)}, tmp_path)
    assert load({"x": None}, tmp_path)["x"] == ztensor.training.Record(
        f"{cases.Point.__module__}.Point", {"x": 1, "y": 2.5}
    )
    assert load({"x": None}, tmp_path, types=[cases.Point])["x"] == cases.Point(1, 2.5)


# --- Planners -------------------------------------------------------------------------------


def test_a_cached_plan_never_brings_back_an_older_save(tmp_path: Path) -> None:
    cache = dcp.SavePlanner
    ids = []
    for step in range(3):
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        folder = tmp_path / str(step)
        save({"w": torch.full((4,), float(step)), "step": step}, folder, planner)
        found = load({"w": torch.zeros(4), "step": None}, folder)
        assert (found["w"].tolist(), found["step"]) == ([float(step)] * 4, step)
        ids += [one for one in [read_root(folder).save_id] if one is not None]
    assert len(set(ids)) == len(ids)
    assert cache._cached_final_save_plan, "the plan was not cached"
    for held in (
        cache._cached_save_plan, cache._cached_all_plans, cache._cached_global_plan,
        cache._cached_metadata, cache._cached_final_save_plan,
    ):  # fmt: skip
        held.clear()


def test_a_planner_that_changes_objects_is_heard(tmp_path: Path) -> None:
    class Halving(dcp.DefaultSavePlanner):  # type: ignore[misc]
        def transform_object(self, write_item: Any, object: Any) -> Any:
            if isinstance(object, int):
                object //= 2
            return super().transform_object(write_item, object)

    save({"step": 6}, tmp_path, Halving())
    assert load({"step": None}, tmp_path) == {"step": 3}


def test_a_planner_that_pickles_an_object_is_refused(tmp_path: Path) -> None:
    class Pickling(dcp.DefaultSavePlanner):  # type: ignore[misc]
        def transform_object(self, write_item: Any, object: Any) -> Any:
            return super().transform_object(write_item, Path("p") if object == 3 else object)

    error = raised(lambda: save({"step": 3}, tmp_path, Pickling()))
    assert isinstance(error, NotRepresentableError)
    assert error.object_name == "step"


@pytest.mark.parametrize("is_async", [False, True], ids=["save", "async_save"])
def test_a_planner_that_makes_its_own_pickles_may_have_a_buffer_in_them(
    is_async: bool, tmp_path: Path
) -> None:
    class Own(dcp.DefaultSavePlanner):  # type: ignore[misc]
        def transform_object(self, write_item: Any, object: Any) -> Any:
            return super().transform_object(write_item, object)

    state = {"losses": io.BytesIO(b"1 2 3"), "t": torch.ones(1)}
    writer = ztensor.torch.StorageWriter(tmp_path)
    if is_async:
        dcp.async_save(state, storage_writer=writer, planner=Own(), no_dist=True).result(60)
    else:
        save(state, tmp_path, Own())
    found = load({"losses": io.BytesIO(), "t": torch.zeros(1)}, tmp_path)
    assert type(found["losses"]) is io.BytesIO
    assert found["losses"].read() == b"1 2 3"


def test_a_planner_that_fails_is_the_callers(tmp_path: Path) -> None:
    class Failing(dcp.DefaultSavePlanner):  # type: ignore[misc]
        def resolve_data(self, write_item: Any) -> Any:
            raise RuntimeError("no memory of that")

    error = raised(lambda: save({"w": torch.ones(3)}, tmp_path, Failing()))
    assert type(error) is UsageError
    assert "no memory of that" in str(error)
    assert not list(tmp_path.iterdir())


def test_nested_states_come_back_without_a_state_to_fill(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

    state = {"model": {"a.b": torch.arange(3.0)}, "list": [torch.ones(2), {"c": 3}], "step": 1}
    save(state, tmp_path)
    found = _load_state_dict_from_keys(storage_reader=ztensor.torch.StorageReader(tmp_path))
    assert cases.is_same(found, state)


def test_a_target_of_another_type_or_order_is_filled(tmp_path: Path) -> None:
    save({"w": torch.arange(12.0).reshape(3, 4), "b": torch.arange(6).to(torch.bfloat16)}, tmp_path)
    state = {"w": torch.zeros(4, 3).t(), "b": torch.zeros(6, dtype=torch.float64)}
    load(state, tmp_path)
    assert state["w"].tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert state["b"].tolist() == list(range(6))


def test_a_target_whose_elements_share_memory_is_refused(tmp_path: Path) -> None:
    save({"w": torch.arange(3.0)}, tmp_path)
    error = raised(lambda: load({"w": torch.zeros(1).expand(3)}, tmp_path))
    assert isinstance(error, UsageError)
    assert error.object_name == "w"


def test_a_sparse_tensor_fills_one_with_other_entries_and_a_dense_one(tmp_path: Path) -> None:
    state = {"coo": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr()}
    save(state, tmp_path)
    full = {
        "coo": torch.ones(3, 3).to_sparse(),
        "csr": torch.ones(3, 3).to_sparse_csr(),
    }
    assert cases.is_same(load(full, tmp_path), state)
    dense = load({name: torch.ones(3, 3) for name in state}, tmp_path)
    assert all(torch.equal(one, torch.eye(3)) for one in dense.values())


# --- Options --------------------------------------------------------------------------------


def test_a_folder_with_a_checkpoint_is_not_overwritten_unasked(tmp_path: Path) -> None:
    save(sample(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    error = raised(lambda: save({"step": 9}, tmp_path, overwrite=False))
    assert isinstance(error, UsageError)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_compression_digests_and_sizes_of_files_can_be_chosen(tmp_path: Path) -> None:
    state = {str(n): torch.zeros(100, 100) for n in range(8)}
    save(state, tmp_path / "zstd", compression=True, checksum="sha256", threads=2)
    assert sum(path.stat().st_size for path in (tmp_path / "zstd").iterdir()) < 20_000
    save(state, tmp_path / "split", max_shard_size=100_000)
    assert len(parts(tmp_path / "split")) > 1
    for folder in ("zstd", "split"):
        found = {name: torch.ones(100, 100) for name in state}
        assert cases.is_same(load(found, tmp_path / folder, verify=True, threads=2), state)


def test_unchanged_tensors_are_not_written_again(tmp_path: Path) -> None:
    frozen = torch.rand(100, 1000)
    save({"frozen": frozen, "w": torch.ones(10)}, tmp_path / "1", checksum="xxh3-128")
    save({"frozen": frozen, "w": torch.zeros(10)}, tmp_path / "2", since=tmp_path / "1")
    names = [{path.name for path in parts(tmp_path / step)} for step in "12"]
    assert names[0] < names[1]
    found = load({"frozen": torch.zeros(100, 1000), "w": torch.ones(10)}, tmp_path / "2")
    assert torch.equal(found["frozen"], frozen)
    assert not found["w"].any()


def test_one_writer_and_one_reader_serve_many_checkpoints(tmp_path: Path) -> None:
    writer = ztensor.torch.StorageWriter(tmp_path / "no")
    reader = ztensor.torch.StorageReader(tmp_path / "no")
    for step in range(2):
        folder = tmp_path / str(step)
        writer.reset(folder)
        dcp.save({"step": step}, storage_writer=writer, no_dist=True)
        assert writer.checkpoint_id == str(folder)
    for step in range(2):
        state = {"step": None}
        reader.reset(tmp_path / str(step))
        dcp.load(state, storage_reader=reader, no_dist=True)
        assert state == {"step": step}
    assert not (tmp_path / "no").exists()


def test_an_asynchronous_save_ends(tmp_path: Path) -> None:
    writer = ztensor.torch.StorageWriter(tmp_path)
    future = dcp.async_save(sample(), storage_writer=writer, no_dist=True)
    future.result(60)
    assert cases.is_same(load(cases.emptied(sample()), tmp_path), sample())


def test_both_classes_pickle(tmp_path: Path) -> None:
    writer = pickle.loads(pickle.dumps(ztensor.torch.StorageWriter(tmp_path, compression=3)))
    dcp.save(sample(), storage_writer=writer, no_dist=True)
    reader = ztensor.torch.StorageReader(tmp_path)
    reader.read_metadata()
    reader = pickle.loads(pickle.dumps(reader))
    state = cases.emptied(sample())
    dcp.load(state, storage_reader=reader, no_dist=True)
    assert cases.is_same(state, sample())


@pytest.mark.slow
def test_torchs_part_is_imported_when_the_classes_are_used() -> None:
    code = (
        "import sys, ztensor.torch; assert 'StorageWriter' in dir(ztensor.torch);"
        "print('torch.distributed.checkpoint' in sys.modules);"
        "ztensor.torch.StorageWriter; print('torch.distributed.checkpoint' in sys.modules)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("kind", ["StorageWriter", "StorageReader"])
def test_a_value_that_is_not_a_path_is_refused(kind: str) -> None:
    made = getattr(ztensor.torch, kind)
    with pytest.raises(ArgumentTypeError):
        made(3)


# --- What torch's own writer and reader have, too -------------------------------------------


@pytest.mark.parametrize("kind", ["StorageWriter", "StorageReader"])
@pytest.mark.parametrize(
    ("place", "is_one"),
    [
        ("folder", True),
        (Path("folder"), True),
        ("s3://bucket/step", True),
        ("file:///step", True),
        ("abc://bucket/step", False),
        (3, False),
    ],
)
def test_a_checkpoint_may_be_at_a_path_or_a_known_url(kind: str, place: Any, is_one: bool) -> None:
    assert getattr(ztensor.torch, kind).validate_checkpoint_id(place) is is_one


def test_no_url_of_another_scheme_becomes_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentValueError):
        PartWriter("abc://bucket/step", process=0)
    for error in (
        raised(lambda: save(sample(), "abc://bucket/step")),
        raised(lambda: load(sample(), "abc://bucket/step")),
    ):
        assert isinstance(error, ArgumentValueError)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_at_a_file_url_is_that_at_the_path(tmp_path: Path) -> None:
    save(sample(), tmp_path.as_uri())
    assert cases.is_same(load(cases.emptied(sample()), tmp_path), sample())
    assert cases.is_same(load(cases.emptied(sample()), tmp_path.as_uri()), sample())


@pytest.mark.parametrize("kind", ["StorageWriter", "StorageReader"])
def test_the_id_of_a_checkpoint_has_no_secret_of_its_url(kind: str) -> None:
    signed = "s3://bucket/step?X-Amz-Signature=abc"
    made = getattr(ztensor.torch, kind)(signed)
    assert made.checkpoint_id == "s3://bucket/step"
    made.reset(signed.replace("step", "other"))
    assert made.checkpoint_id == "s3://bucket/other"


def test_the_id_of_a_save_is_no_value_of_the_state(tmp_path: Path) -> None:
    writer = ztensor.torch.StorageWriter(tmp_path)
    returned = dcp.save(sample(), storage_writer=writer, no_dist=True)
    assert returned.storage_meta.save_id == writer.save_id
    with ztensor.open(tmp_path) as opened:
        assert writer.save_id not in str(opened.attributes)
        assert "save_id" not in str(opened.attributes)
        assert not any("save_id" in name for name in opened)


# --- Damage ---------------------------------------------------------------------------------


def test_a_missing_checkpoint_is_an_error_of_ours(tmp_path: Path) -> None:
    error = raised(lambda: load(sample(), tmp_path / "none"))
    assert isinstance(error, SourceNotFoundError)
    reader = ztensor.torch.StorageReader(tmp_path / "none")
    with pytest.raises(SourceNotFoundError):
        len(reader.read_metadata().state_dict_metadata)


@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
@pytest.mark.parametrize("which", ["the root", "a part"])
def test_damage_is_an_error_of_ours(which: str, how: str, tmp_path: Path) -> None:
    save(sample(), tmp_path)
    path = tmp_path / "checkpoint.zt" if which == "the root" else parts(tmp_path)[0]
    data = bytearray(path.read_bytes())
    path.unlink()
    if how == "flipped":
        data[len(data) // 3] ^= 1
        path.write_bytes(data)
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    state = cases.emptied(sample())
    error = raised(lambda: load(state, tmp_path))
    assert isinstance(error, (FormatError, SourceError))
    assert path.name in str(error)
    if how == "flipped" and which == "a part":
        assert isinstance(error, DigestMismatchError)
        assert error.object_name == "w"


def test_unchecked_means_unchecked(tmp_path: Path) -> None:
    save({"w": torch.zeros(10_000)}, tmp_path)
    data = bytearray(parts(tmp_path)[0].read_bytes())
    data[len(data) // 2] ^= 1
    parts(tmp_path)[0].write_bytes(data)
    assert load({"w": torch.ones(10_000)}, tmp_path, verify=False)["w"].count_nonzero() == 1


def test_processes_that_opened_two_checkpoints_raise(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.planner import LoadPlan

    plans = []
    for step in range(2):
        save({"step": step}, tmp_path)
        reader = ztensor.torch.StorageReader(tmp_path)
        reader.read_metadata()
        plans.append(reader.prepare_local_plan(LoadPlan([])))
    elsewhere = dataclasses.replace(
        plans[0], storage_data=plans[0].storage_data._replace(host="another machine")
    )
    taken = reader.prepare_global_plan([plans[0], elsewhere, plans[0]])
    assert [plan.items for plan in taken] == [[], [], []]
    assert [plan.storage_data for plan in taken] == [2, 1, 2]  # processes on the same machine
    with refused(SourceError, Reason.SOURCE_CHANGED):
        reader.prepare_global_plan(plans)


def test_entries_are_made_when_they_are_asked_for(tmp_path: Path) -> None:
    save({"a": torch.ones(3, 4), "b": torch.ones(2, dtype=torch.bfloat16), "step": 3}, tmp_path)
    reader = ztensor.torch.StorageReader(tmp_path)
    entries = reader.read_metadata().state_dict_metadata
    assert list(entries) == ["a", "b", "step"]
    assert len(entries) == 3
    assert "a" in entries
    assert "c" not in entries
    assert entries["a"].size == torch.Size([3, 4])
    assert entries["b"].properties.dtype is torch.bfloat16
    with pytest.raises(KeyError):
        entries["c"]
    reader.reset()


def test_a_missing_tensor_is_an_error_of_torch(tmp_path: Path) -> None:
    save({"a": torch.ones(3)}, tmp_path)
    error = raised(lambda: load({"a": torch.ones(3), "b": torch.ones(3)}, tmp_path))
    assert not isinstance(error, ZTensorError)
    assert "Missing key" in str(error)
