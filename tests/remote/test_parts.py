"""Checkpoints of many processes in stores: requests of a reader, and changes while it reads."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.refusals import refused
from tests.remote.range_server import RangeServer
from tests.unit.distributed.saving import save
from ztensor import Remote
from ztensor.distributed import open_divided
from ztensor.errors import LimitError, Reason, SourceError
from ztensor.ext import FileSink, source_of

obstore: Any = pytest.importorskip("obstore", reason="stores and servers are reached by obstore")
obstore_stores: Any = pytest.importorskip("obstore.store")

PROCESSES, LAYERS = 32, 11
TENSORS: dict[str, Any] = {
    f"layer.{number}": np.random.default_rng(number).random((64, 500), np.float32)
    for number in range(LAYERS)
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "step").mkdir()
    save(tmp_path / "step", TENSORS, processes=PROCESSES)
    return tmp_path


def _all(url: str) -> None:
    found = ztensor.numpy.load_file(url)
    assert all((found[name] == value).all() for name, value in TENSORS.items())


def _half(url: str) -> None:
    with open_divided(url) as checkpoint:
        found = np.empty((32, 500), np.float32)
        checkpoint.read_box("layer.3", (32, 0), (32, 500), found)
    assert (found == TENSORS["layer.3"][32:]).all()


def _by_torch(url: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    dcp: Any = pytest.importorskip("torch.distributed.checkpoint")
    import ztensor.torch

    state = {name: torch.zeros(value.shape) for name, value in TENSORS.items()}
    dcp.load(state, storage_reader=ztensor.torch.StorageReader(url), no_dist=True)
    assert all((state[name].numpy() == value).all() for name, value in TENSORS.items())


@pytest.mark.filterwarnings("ignore:torch.distributed is")
@pytest.mark.parametrize(
    ("load", "ranges"),
    [(_all, PROCESSES), (_half, PROCESSES // 2), (_by_torch, PROCESSES * LAYERS)],
)
def test_a_reader_asks_for_the_root_and_once_for_each_range_that_it_needs(
    folder: Path, load: Callable[[str], None], ranges: int
) -> None:
    with RangeServer(folder) as server:
        load(f"{server.url}/step/checkpoint.zt")
        assert len(server.record.seen) <= 2 + ranges  # head and tail of the root


@pytest.mark.parametrize("kind", [{"ranges": False}, {"suffix": False}, {"validator": None}])
@pytest.mark.parametrize("load", [_all, _half])
def test_a_server_that_knows_less_is_asked_in_other_ways(
    folder: Path, load: Callable[[str], None], kind: dict[str, Any]
) -> None:
    with RangeServer(folder, **kind) as server:
        load(f"{server.url}/step/checkpoint.zt")


@pytest.mark.parametrize("is_longer", [False, True])
@pytest.mark.parametrize("is_read_before", [False, True])
def test_an_object_whose_length_is_known_is_held_to_the_version_that_is_read_first(
    tmp_path: Path, is_longer: bool, is_read_before: bool
) -> None:
    data, (path, half) = np.arange(1 << 20, dtype=np.uint8).tobytes(), (tmp_path / "a", 1 << 19)
    path.write_bytes(data)
    memory = bytearray(half)
    with RangeServer(tmp_path) as server:
        source = source_of(Remote(f"{server.url}/a"), mapped=False, size=len(data))
        assert not server.record.seen
        if is_read_before:
            source.read_into(0, memoryview(memory))
            assert memory == data[:half]
        path.unlink()
        path.write_bytes(data[::-1] + (b"more" if is_longer else b""))
        if is_read_before or is_longer:
            with refused(SourceError, Reason.SOURCE_CHANGED):
                source.read_into(half, memoryview(memory))
        else:
            source.read_into(half, memoryview(memory))
            assert memory == data[::-1][half:]
        source.close()


def test_a_file_of_another_length_than_the_root_says_is_refused(folder: Path) -> None:
    with RangeServer(folder) as server, open_divided(f"{server.url}/step/checkpoint.zt") as found:
        for path in (folder / "step").glob("0*.zt"):
            path.write_bytes(path.read_bytes() + b"more")
        array = np.empty((1, 500), np.float32)
        with refused(SourceError, Reason.SOURCE_CHANGED):
            found.read_box("layer.0", (0, 0), (1, 500), array)


def test_a_length_that_is_only_claimed_takes_no_memory(folder: Path) -> None:
    """The root claims a tensor larger than any file of the store."""
    from ztensor.distributed.chunks.table import ChunkTable, Kind, TableFile
    from ztensor.distributed.root import encode_values, write_root

    count = 1 << 40
    one = np.zeros(1, np.int64)
    table = ChunkTable(
        names=["w"], kinds=[Kind("u8")], kind=one, shapes=[(2 * count,)],
        files=[TableFile("00000-00000000.zt", 2 * count)], encodings=["raw"],
        tensor=np.zeros(2, np.int64), file=np.zeros(2, np.int64), number=np.array([0, 1]),
        encoding=None, offsets=np.array([0, count]), sizes=np.array([count, count]),
        at=np.array([0, count]), length=np.array([count, count]),
    )  # fmt: skip
    (folder / "step" / "checkpoint.zt").unlink()
    write_root(FileSink(str(folder / "step" / "checkpoint.zt")), table, encode_values({}), "test")
    (folder / "step" / "00000-00000000.zt").write_bytes(b"short")
    with RangeServer(folder) as server, pytest.raises((SourceError, LimitError)):
        ztensor.numpy.load_file(f"{server.url}/step/checkpoint.zt")


# --- A checkpoint that is replaced while it is read ----------------------------------------------


def _on_disk(folder: Path) -> Any:
    return folder / "step", None


def _in_memory(folder: Path) -> Any:
    store = obstore_stores.MemoryStore()
    for path in (folder / "step").iterdir():
        obstore.put(store, f"step/{path.name}", io.BytesIO(path.read_bytes()))
    return "memory://step", store


@pytest.mark.parametrize("place", [_on_disk, _in_memory])
def test_a_reader_of_a_checkpoint_that_was_replaced_says_so(
    folder: Path, place: Callable[[Path], Any]
) -> None:
    where, store = place(folder)
    array = np.empty((64, 500), np.float32)
    with open_divided(where, storage=store) as old:
        save(where, TENSORS, processes=2, storage=store)
        with refused(SourceError, Reason.SOURCE_CHANGED):
            old.read_box("layer.0", (0, 0), (64, 500), array)
    with open_divided(where, storage=store) as new:
        new.read_box("layer.0", (0, 0), (64, 500), array)
    assert (array == TENSORS["layer.0"]).all()


@pytest.mark.parametrize("place", [_on_disk, _in_memory])
def test_a_file_that_is_gone_from_a_checkpoint_that_is_still_the_same_is_missing(
    folder: Path, place: Callable[[Path], Any]
) -> None:
    where, store = place(folder)
    with open_divided(where, storage=store) as checkpoint:
        for name in [file.name for file in checkpoint.root.files]:
            if store is None:
                (folder / "step" / name).unlink()
            else:
                obstore.delete(store, f"step/{name}")
        array = np.empty((64, 500), np.float32)
        with refused(SourceError, Reason.SOURCE_NOT_FOUND):
            checkpoint.read_box("layer.0", (0, 0), (64, 500), array)
