"""What all exports do: the same values, the same bytes each time, progress, and losses by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.unit.formats.exporting import exported

UNKNOWN = Path(__file__).parents[2] / "corpus" / "spec" / "0.1.0" / "unknown_values.zt"
VALUES: dict[str, Any] = {
    "b": np.array([[1.5, 2]], np.float16),
    "a": np.arange(3, dtype=np.int64),
    "ü/n": np.zeros((0, 2), np.float64),
    "d": np.arange(1 << 15, dtype=np.float32),
}


@pytest.fixture(params=["safetensors", "npz", "gguf", "hdf5"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "hdf5":
        pytest.importorskip("h5py", reason="h5py, which writes HDF5, is not installed")
    return str(request.param)


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_what_is_exported_is_read_again(kind: str, compression: bool) -> None:
    counts: list[tuple[int, int]] = []
    with ztensor.open(ztensor.numpy.save(VALUES, compression=compression)) as reader:
        data, lost = exported(kind, reader, progress=lambda *now: counts.append(now))
        assert exported(kind, reader) == (data, [])
    assert lost == []
    total = sum(array.nbytes for array in VALUES.values())
    assert counts == sorted(counts)
    assert counts[-1] == (total, total)
    with ztensor.open(data) as again:
        assert again.format == kind
        assert {name: again[name].dtype for name in again} == {
            name: array.dtype for name, array in VALUES.items()
        }
        assert all(np.array_equal(again[name], array) for name, array in VALUES.items())
        assert not again.verify().problems


def test_damage_in_what_is_exported_is_met(kind: str) -> None:
    data = bytearray(ztensor.numpy.save({"a": np.arange(8, dtype=np.int8)}))
    data[data.index(bytes(range(8)))] ^= 1
    with ztensor.open(bytes(data)) as reader, pytest.raises(ztensor.FormatError):
        exported(kind, reader)


# --- Objects that are not one array ---------------------------------------------------------


def arrays(data: bytes) -> tuple[dict[str, tuple[int, ...]], list[tuple[str | None, str]]]:
    """Return the shapes of a file's arrays as npz, and the losses."""
    with ztensor.open(data) as reader:
        written, lost = exported("npz", reader)
    with ztensor.open(written) as reader:
        return {name: tuple(reader.metadata(name).shape) for name in reader}, lost


def test_components_beside_the_data_become_arrays() -> None:
    both = ztensor.Tensor(
        {"data": np.zeros((2, 3), np.int16), "mask": np.ones(6, np.uint8)}, shape=(2, 3)
    )
    shapes, lost = arrays(ztensor.numpy.save({"a": both}))
    assert shapes == {"a": (2, 3), "a.mask": (6,)}
    assert [name for name, _ in lost] == ["a"]


def test_a_component_whose_name_is_taken_is_left_out() -> None:
    """`a` has a component `b.c`, and `a.b` a component `c`."""
    tensors = {
        "a": ztensor.Tensor({"data": np.zeros(1), "b.c": np.zeros(3)}, shape=(1,)),
        "a.b": ztensor.Tensor({"data": np.zeros(1), "c": np.zeros(2)}, shape=(1,)),
    }
    shapes, lost = arrays(ztensor.numpy.save(tensors))
    assert shapes == {"a": (1,), "a.b.c": (3,), "a.b": (1,)}
    assert [name for name, what in lost if "left out" in what] == ["a.b"]


def test_unknown_layouts_types_and_encodings_are_left_out() -> None:
    shapes, lost = arrays(UNKNOWN.read_bytes())
    assert sorted(shapes) == ["good", "good2"]
    left = {name for name, what in lost if "left out" in what}
    assert left == {"odd_dtype", "odd_encoding", "odd_layout"}


def test_exported_arrays_are_views_of_the_file(kind: str, tmp_path: Path) -> None:
    with ztensor.open(ztensor.numpy.save(VALUES)) as reader:
        (tmp_path / "m").write_bytes(exported(kind, reader)[0])
    with ztensor.open(tmp_path / "m") as reader:
        place, array = reader.location("d"), reader["d"]
        array[0] = 9  # a private page, not the file
    assert array.base is not None
    raw = (tmp_path / "m").read_bytes()[place.offset :][: place.length]
    assert raw == VALUES["d"].tobytes()
