"""`apply` to a file: the result is the new state bit for bit, and wrong deltas change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.delta.applying import apply
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.making import make
from ztensor.delta.states import IDS, State
from ztensor.numpy import save_file

_TYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn,
]  # fmt: skip
_SHAPES = [(), (0,), (1,), (3, 5), (70, 40)]


def of_bits(dice: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of random bits: also of NaNs with payloads, and of -0.0."""
    kind, count = np.dtype(dtype), int(np.prod(shape))
    most = {"bool": 2, "float4_e2m1fn": 16}.get(kind.name)
    if most is not None:
        return dice.integers(0, most, count, np.uint8).view(kind).reshape(shape)
    return np.frombuffer(dice.bytes(count * kind.itemsize), kind).reshape(shape)


def some_changed(dice: np.random.Generator, array: Any, share: float) -> Any:
    """Return an array with other bits in a share of its elements."""
    other = of_bits(dice, array.dtype, array.shape)
    return np.where(dice.random(array.shape) < share, other, array).astype(array.dtype)


def two_states(share: float) -> tuple[dict[str, Any], dict[str, Any]]:
    dice = np.random.default_rng(7)
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for dtype in _TYPES:
        for shape in _SHAPES:
            name = f"{np.dtype(dtype).name} {shape}"
            old[name] = of_bits(dice, dtype, shape)
            new[name] = some_changed(dice, old[name], share)
    old["zero"], new["zero"] = np.zeros(9, np.float32), np.full(9, -0.0, np.float32)
    return old, new


def bits(path: Path) -> dict[str, Any]:
    """Return all a file holds, bit for bit."""
    with ztensor.open(path) as reader:
        objects = {
            name: (
                tensor.format,
                tuple(tensor.shape),
                tensor.type,
                {role: (str(a.dtype), a.tobytes()) for role, a in tensor.components.items()},
                dict(tensor.attributes),
            )
            for name, tensor in reader.read(list(reader)).items()
        }
        return {"objects": objects, "attributes": reader.attributes}


@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.9])
@pytest.mark.parametrize(
    ("effort", "values"), [("fast", "difference"), ("small", "difference"), ("fast", "new")]
)
def test_apply_gives_the_new_state(
    tmp_path: Path, version: str, ids: Any, share: float, effort: Any, values: Any
) -> None:
    old, new = two_states(share)
    a, b, delta, result = (tmp_path / name for name in ("a.zt", "b.zt", "d.zt", "r.zt"))
    save_file(old, a, version=version)
    save_file(new, b, version=version)
    make(a, b, delta, effort=effort, values=values, ids=ids)
    report = apply(delta, a, result)
    assert bits(result)["objects"] == bits(b)["objects"]
    with State(result) as state:
        assert report.result is not None
        state.ids(ids)
    with ztensor.open(result) as reader:
        assert reader.version == ztensor.open(a).version
    assert (report.tensors > 0) is (share > 0 or values is not None)


def test_a_wrong_base_is_refused_and_the_target_stays(tmp_path: Path) -> None:
    old, new = two_states(0.1)
    a, b, delta, result = (tmp_path / name for name in ("a.zt", "b.zt", "d.zt", "r.zt"))
    save_file(old, a)
    save_file(new, b)
    make(a, b, delta)
    result.write_bytes(b"before")
    with pytest.raises(DeltaError) as caught:
        apply(delta, b, result)
    assert caught.value.reason is DeltaReason.APPLIED
    assert result.read_bytes() == b"before"
    apply(delta, b, result, if_applied="skip")
    assert bits(result) == bits(b)
