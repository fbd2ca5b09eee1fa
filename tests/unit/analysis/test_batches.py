"""Small tensors looked at together give what each gives by itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.analysis.test_channels import FLOATS
from ztensor.analysis import batches, statistics
from ztensor.numpy import save_file

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(5)
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.int64, np.uint64]
SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (2, 2), (65, 9), (3, 4, 5), (1, 4)]


def values(dtype: Any, shape: tuple[int, ...], kind: int) -> Any:
    wide = RNG.normal(0, 3, shape)
    if kind == 1:
        wide = np.zeros(shape)
    elif kind == 2:
        wide = np.full(shape, 2.0)
    elif kind == 3:
        wide = np.round(wide) * 2
    elif kind == 4 and wide.ndim:
        wide[0] = 0
    elif kind == 5:
        wide = wide * 1e30
    array = wide.astype(dtype) if dtype not in (np.uint8, np.uint64) else np.abs(wide).astype(dtype)
    if kind >= 6 and np.dtype(dtype) not in map(np.dtype, INTEGERS) and array.size:
        array = array.copy()
        array.reshape(-1)[array.size // 2] = [np.nan, np.inf, -np.inf][kind - 6]
    return array


def model() -> dict[str, Any]:
    return {
        f"{np.dtype(dtype).name}.{'x'.join(map(str, shape))}.{kind}": values(dtype, shape, kind)
        for dtype in [*FLOATS, *INTEGERS]
        for shape in SHAPES
        for kind in range(9)
    }


def fields_of(one: Any) -> dict[str, Any]:
    """Return every number there is, flat."""
    found: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                walk(f"{path}.{field.name}", getattr(value, field.name))
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(f"{path}.{key}", item)
        elif isinstance(value, (tuple, list)) or type(value).__name__ == "array":
            for at, item in enumerate(value):
                walk(f"{path}.{at}", item)
        else:
            found[path] = value

    walk("", one)
    return found


@pytest.mark.parametrize("compression", [False, True])
def test_the_same_as_each_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: bool
) -> None:
    path = tmp_path / "model.zt"
    with np.errstate(all="ignore"):
        tensors = model()
    save_file(tensors, path, compression=compression)
    batched: list[str] = []

    def counting(block: Any, *rest: Any) -> Any:
        for fields in batches.looked_at(block, *rest):
            batched.append("" if fields is None else "once")
            yield fields

    monkeypatch.setattr(statistics, "looked_at", counting)
    together = ztensor.stats(path, channels=(4, 8))
    assert len(batched) >= len(tensors)
    assert batched.count("once") >= len(tensors) * 0.6
    monkeypatch.setattr(statistics, "MOST_ELEMENTS", 0)
    alone = ztensor.stats(path, channels=(4, 8))
    assert list(together) == list(alone)
    for name, one in together.items():
        ours, theirs = fields_of(one), fields_of(alone[name])
        assert ours.keys() == theirs.keys(), name
        for field, value in ours.items():
            other = theirs[field]
            assert type(value) is type(other), (name, field)
            if field.startswith((".channels", ".kurtosis")) and isinstance(value, float):
                assert value == pytest.approx(other, rel=2e-5, abs=1e-30), (name, field)
            else:
                assert value == other or (value != value and other != other), (name, field)


def test_findings_are_the_same_and_damage_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zt"
    tensors = {f"h.{i}.w": RNG.normal(0, 1, (64, 64)).astype(np.float32) for i in range(12)}
    tensors["h.3.w"][5] = 0
    tensors["h.4.w"][3, 3] = np.nan
    tensors["h.5.w"] *= 8
    tensors["h.6.w"] = tensors["h.7.w"]
    save_file(tensors, path)
    with ztensor.open(path) as reader:
        at = reader.location("h.9.w").offset
    data = bytearray(path.read_bytes())
    data[at + 5] ^= 1
    path.write_bytes(data)
    together = ztensor.examine(path)
    monkeypatch.setattr(statistics, "MOST_ELEMENTS", 0)
    alone = ztensor.examine(path)
    assert together.findings == alone.findings
    assert {one.rule for one in together.findings} == {
        "damaged", "nan", "layer", "dead-channel", "same-content"
    }  # fmt: skip


def test_bytes_of_several_tensors_are_within_the_budget(tmp_path: Path) -> None:
    """Objects over one another's bytes are left to what counts how often that is."""
    one = np.arange(64, dtype=np.float32)
    save_file({"a": one, "b": one, "c": one.view(np.int32)}, tmp_path / "tied.zt")
    found = ztensor.stats(tmp_path / "tied.zt")
    assert found["a"].max == found["b"].max == 63
    assert found["c"].dtype == "int32"


def test_types_of_8_bits_count_values_at_their_limit(tmp_path: Path) -> None:
    full = np.full((4, 4), 448).astype(ml_dtypes.float8_e4m3fn)
    save_file({"a": full, "b": np.full((4, 4), 127, np.int8)}, tmp_path / "a.zt")
    found = ztensor.stats(tmp_path / "a.zt")
    assert (found["a"].at_limit, found["b"].at_limit) == (16, 0)
