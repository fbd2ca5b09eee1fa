"""Every way to one tensor gives the same array, and makes a copy only where all of them have to."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.encoding.zstd import FRAME_FIELD
from ztensor.numpy import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSIONS = ["0.1.0", "1.1.0", "1.2.0"]
TYPES = ["float32", "int8", "bool", "complex64", "bfloat16", "float8_e4m3fn", "float4_e2m1fn"]


def opened(path: Path) -> Any:
    with ztensor.open(path) as reader:
        return reader["x"]


def sliced(path: Path) -> Any:
    with ztensor.open(path) as reader:
        return reader.get_slice("x")[...]


def read(path: Path) -> Any:
    with ztensor.open(path) as reader:
        return reader.read("x").numpy()


WAYS: dict[str, Callable[[Path], Any]] = {
    "reader[name]": opened,
    "read": read,
    "load_file": lambda path: load_file(path)["x"],
    "get_slice": sliced,
}


def is_mapped(array: Any) -> bool:
    owner = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return not isinstance(owner, np.ndarray)


def tensor(name: str) -> Any:
    numbers = np.arange(64).reshape(8, 8) % 7
    known = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    return numbers.astype(known)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_way_agrees(tmp_path: Path, version: str, name: str) -> None:
    """One 0.1 float32 was a view for slices, and a copy for the reader and whole loads."""
    expected = tensor(name)
    try:
        save_file({"x": expected}, tmp_path / "m.zt", version=version)
    except ztensor.ZTensorError:
        pytest.skip(f"{version} has no {name}")
    found = {way: get(tmp_path / "m.zt") for way, get in WAYS.items()}
    for way, array in found.items():
        assert array.dtype == expected.dtype, way
        assert np.array_equal(array.view(np.uint8), expected.view(np.uint8)), way
    if (version, name) == ("0.1.0", "bool"):
        return  # any byte but 0 is true: whole reads look at all of them, slices copy
    mapped = {way: is_mapped(array) for way, array in found.items()}
    assert set(mapped.values()) == {name != "float4_e2m1fn"}, mapped  # that one is unpacked


@pytest.mark.parametrize("version", VERSIONS)
def test_filling_an_array_takes_no_other_memory(tmp_path: Path, version: str) -> None:
    """read_into of a 0.1 object made all of it twice."""
    save_file({"x": np.ones(1 << 20, np.float32)}, tmp_path / "m.zt", version=version)
    target = np.zeros(1 << 20, np.float32)
    with ztensor.open(tmp_path / "m.zt") as reader:
        reader.read_into("x", target)  # what is loaded late
        target[:] = 0
        tracemalloc.start()
        try:
            reader.read_into("x", target)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert target.all()
    assert peak < target.nbytes // 4


def test_frames_that_the_manifest_lists_as_they_are_pass_verify(tmp_path: Path) -> None:
    rows = np.arange(400_000, dtype=np.float32).reshape(-1, 100)
    save_file({"x": rows}, tmp_path / "m.zt", compression=True)
    with ztensor.open(tmp_path / "m.zt") as reader:
        listed = reader.objects.parts()[0].manifest.objects["x"].components["data"].extra
        assert listed is not None
        assert FRAME_FIELD in listed
        assert reader.verify().problems == ()
