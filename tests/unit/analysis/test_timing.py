"""time_file(): all its rows for every format; bounded, and nothing told that was not measured."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from ztensor.analysis.peers import PEERS
from ztensor.analysis.timing import Timing, time_file

TENSORS: dict[str, Any] = {
    "a": np.arange(5000, dtype=np.float32).reshape(50, 100),
    "b": np.arange(7, dtype=np.uint8),
    "c": np.zeros((0, 3), np.int16),
    "d": np.array(2.5),
}
COLD = "cold: open, first tensor", "cold: read all bytes", "cold: load mapped, sum"


def safetensors(path: Path) -> None:
    importlib.import_module("safetensors.numpy").save_file(TENSORS, path)


def hdf5(path: Path) -> None:
    with importlib.import_module("h5py").File(path, "w") as file:
        for name, array in TENSORS.items():
            file[f"group/{name}"] = array


def pt(path: Path) -> None:
    torch = importlib.import_module("torch")
    torch.save({name: torch.from_numpy(array) for name, array in TENSORS.items()}, path)


def gguf(path: Path) -> None:
    writer = importlib.import_module("gguf").GGUFWriter(path, "llama")
    writer.add_tensor("a", TENSORS["a"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


SAVED: dict[str, Callable[[Path], None]] = {
    "safetensors": safetensors,
    "npz": lambda path: np.savez(path, **TENSORS),
    "npy": lambda path: np.save(path, TENSORS["a"]),
    "pt": pt,
    "hdf5": hdf5,
    "gguf": gguf,
}


def medians(found: Timing, by: str) -> dict[str, float | None]:
    return {row.work: row.median for row in found.rows if row.by == by}


def test_our_rows_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.zt"
    ztensor.numpy.save_file(TENSORS, path)
    found = time_file(path, 5.0)
    assert (found.format, found.object_count, found.timed_count) == ("zt", 4, 4)
    assert found.nbytes == found.timed_nbytes == path.stat().st_size
    ours, plain = medians(found, "ztensor"), medians(found, "cat")
    for work in ("open", "open, names", "open, first tensor", "load owned", "verify"):
        assert ours[work] is not None
    assert plain["read all bytes"] is not None
    assert found.rounds == max(len(row.seconds) for row in found.rows) > 1
    assert {row.by for row in found.rows} == {"ztensor", "cat"}
    notes = {row.work: row.note for row in found.rows if row.note}
    assert set(notes) <= set(COLD)
    assert all(row.rate is None or row.rate > 0 for row in found.rows)


@pytest.mark.parametrize("name", SAVED)
def test_the_library_of_a_format_does_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip(PEERS[name].module)
    path = tmp_path / f"a.{name}"
    SAVED[name](path)
    found = time_file(path, 30.0)
    assert found.format == name
    theirs = medians(found, PEERS[name].module)
    assert list(theirs) == ["open, names", "open, first tensor", "load owned"]
    assert all(theirs.values()), [row.note for row in found.rows]
    alone = time_file(path, 2.0, alone=True)
    assert {row.by for row in alone.rows} == {"ztensor", "cat"}


def test_every_library_here_is_tried() -> None:
    assert SAVED.keys() == PEERS.keys()


def test_the_time_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.zt"
    ztensor.numpy.save_file({f"t{i}": np.zeros(8 << 20, np.uint8) for i in range(4)}, path)
    found = time_file(path, 1e-6)
    assert found.timed_count == 1
    late = [row.note for row in found.rows if not row.seconds]
    assert late
    assert set(late) <= {"no time was left"}


def test_a_set_and_a_damaged_file(tmp_path: Path) -> None:
    ztensor.numpy.save_file(TENSORS, tmp_path / "model.zt", max_shard_size=8)
    found = time_file(tmp_path, 3.0)
    assert found.object_count == 4
    assert medians(found, "ztensor")["verify"] is not None
    path = tmp_path / "b.zt"
    ztensor.numpy.save_file(TENSORS, path)
    data = bytearray(path.read_bytes())
    with ztensor.open(path) as reader:
        data[reader.location("a").offset] ^= 1
    path.write_bytes(data)
    notes = {row.work: row.note for row in time_file(path, 3.0).rows}
    assert "digest" in notes["load owned"]
    assert "ztensor verify" in notes["verify"]
    assert not notes["open, names"]


def test_what_a_library_raises_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **TENSORS)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("it does not like the file")

    monkeypatch.setattr(np, "load", fail)
    notes = {row.note for row in time_file(path, 3.0).rows if row.by == "numpy"}
    assert notes == {"RuntimeError: it does not like the file"}


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_seconds_are_a_positive_number(seconds: float, tmp_path: Path) -> None:
    path = tmp_path / "a.zt"
    ztensor.numpy.save_file(TENSORS, path)
    with pytest.raises(ztensor.ArgumentValueError):
        time_file(path, seconds)


def test_a_file_without_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.zt"
    ztensor.numpy.save_file({}, path)
    begun = time.perf_counter()
    found = time_file(path, 60.0)
    assert found.object_count == 0
    assert time.perf_counter() - begun < 60
    assert "open, first tensor" not in medians(found, "ztensor")
