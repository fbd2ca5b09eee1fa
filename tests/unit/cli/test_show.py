from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import Run
from ztensor.numpy import save_file

DTYPES = [
    *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "float4_e2m1fn",
]


def dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


def values(run: Run, path: Path, name: str) -> Any:
    ended = run("show", path, name, "--json")
    assert ended.code == 0
    return ended.json["values"]


@pytest.mark.parametrize("name", DTYPES)
def test_summary_of_every_type(run: Run, tmp_path: Path, name: str) -> None:
    numbers = np.arange(1, 1000) % 5 + 1
    array = numbers.astype(np.float32).astype(dtype(name))
    path = tmp_path / "types.zt"
    save_file({"w": array}, path)
    found = values(run, path, "w")
    exact = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    assert found["of"] == "elements"
    assert found["count"] == 999
    assert len(found["first"]) == 8
    if array.dtype.kind == "c":
        assert (found["min"], found["max"], found["mean"]) == (None, None, None)
        assert found["nan_count"] == 0
        assert found["first"][0] == [2, 0]
        assert "first   2+0j, 3+0j, " in run("show", path, "w").out
    elif name == "bool":
        assert found["true_count"] == 999
        assert found["first"] == [True] * 8
    else:
        assert (found["min"], found["max"]) == (exact.min(), exact.max())
        assert found["mean"] == pytest.approx(exact.mean())
        assert found["first"] == exact[:8].tolist()
        floats = array.dtype.kind not in "iu"
        assert found["nan_count"] == (0 if floats else None)


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_nans_and_infinities_are_counted_and_left_out(run: Run, tmp_path: Path, name: str) -> None:
    array = np.array([np.nan, -np.inf, 2, 4, np.inf, np.nan], np.float32).astype(dtype(name))
    path = tmp_path / "nans.zt"
    save_file({"w": array, "only": array[:2]}, path)
    found = values(run, path, "w")
    assert (found["nan_count"], found["inf_count"]) == (2, 2)
    assert (found["min"], found["max"], found["mean"]) == (2, 4, 3)
    assert found["first"][:2] == [{"$float": "nan"}, {"$float": "-inf"}]
    found = values(run, path, "only")
    assert (found["min"], found["max"], found["mean"]) == (None, None, None)
    assert "first   nan, -inf\n" in run("show", path, "only").out


def test_json(run: Run, model: Path) -> None:
    found = run("show", model, "h.10.fp8", "--json", "--no-values").json
    assert found["file"] == str(model)
    assert found["name"] == "h.10.fp8"
    assert found["shape"] == [64, 32]
    assert (found["dtype"], found["type"], found["format"]) == ("uint8", "f8_e4m3fn", "dense")
    assert (found["nbytes"], found["stored_nbytes"]) == (2048, 2048)
    assert found["values"] is None
    assert run("show", model, "int4", "--json").json["attributes"]["group_size"] == 32
    assert "group_size  32" in run("show", model, "int4").out
    with ztensor.open(model) as reader:
        part = reader.metadata("h.10.fp8").components["data"]
    assert found["components"] == {"data": {field: part[field] for field in part}}


def test_damaged_values_are_an_error_after_the_description(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "damaged.zt"
    save_file({"w": np.arange(1000)}, path, compression=True)
    with ztensor.open(path) as reader:
        place = reader.location("w")
    data = bytearray(path.read_bytes())
    data[place.offset : place.offset + 8] = bytes(8)
    path.write_bytes(data)
    ended = run("show", path, "w")
    assert ended.code == 4
    assert "shape   [1000]" in ended.out
    assert "'w'" in ended.err
    found = run("show", path, "w", "--json").json
    assert found["shape"] == [1000]
    assert found["error"]["reason"] == "digest_mismatch"
