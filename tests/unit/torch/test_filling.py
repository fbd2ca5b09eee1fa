"""`load_into` in one process: names, rules, types and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor

torch = pytest.importorskip("torch")

from ztensor.torch import Cut, Joined, load_into, save_file  # noqa: E402


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.safetensors"
    parts = {
        name: torch.full((size, 4), float(size))
        for name, size in zip("qkv", (3, 2, 1), strict=True)
    }
    state = {f"layers.{n}.{name}": part + 10 * n for n in (0, 1) for name, part in parts.items()}
    state["up"] = torch.arange(24.0).reshape(6, 4)
    state["half"] = torch.ones(3, dtype=torch.bfloat16)
    state["one"] = torch.tensor(7.0)
    save_file(state, path)
    return path


def test_a_module_is_filled_in_place(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    save_file(model.state_dict(), tmp_path / "model.zt")
    right = {name: value.clone() for name, value in model.state_dict().items()}
    weight = model[0].weight
    with torch.no_grad():
        for value in model.state_dict().values():
            value.fill_(1)
    report = load_into(tmp_path / "model.zt", model)
    assert model[0].weight is weight
    assert all(torch.equal(value, right[name]) for name, value in model.state_dict().items())
    assert (report.tensors, report.missing, report.unexpected) == (len(right), (), ())
    assert report.nbytes == report.nbytes_read == sum(value.nbytes for value in right.values())


@pytest.mark.parametrize("hole", ["*", "{layer}"])
def test_rules_rename_join_and_cut(source: Path, hole: str) -> None:
    state = {f"blocks.{n}.qkv": torch.zeros(6, 4) for n in (0, 1)}
    state |= {"gate": torch.zeros(2, 4), "columns": torch.zeros(6, 1), "scale": torch.zeros(())}
    rules: dict[str, Any] = {
        f"blocks.{hole}.qkv": Joined([f"layers.{hole}.{name}" for name in "qkv"]),
        "gate": Cut("up", 3, 5),
        "columns": Cut("up", 1, 2, dim=1),
        "scale": "one",
    }
    report = load_into(source, state, rules=rules)
    with ztensor.open(source) as reader:
        for n in (0, 1):
            parts = [reader.read_torch(f"layers.{n}.{name}") for name in "qkv"]
            assert torch.equal(state[f"blocks.{n}.qkv"], torch.cat(parts))
    assert state["gate"].tolist() == [[12, 13, 14, 15], [16, 17, 18, 19]]
    assert state["columns"].flatten().tolist() == [1, 5, 9, 13, 17, 21]
    assert state["scale"].item() == 7
    assert report.unexpected == ("half",)


def test_targets_of_any_strides_are_filled(source: Path) -> None:
    state = {"up": torch.zeros(4, 6).T}
    load_into(source, state)
    assert state["up"].flatten().tolist() == list(range(24))


def test_types_are_converted_only_if_asked(source: Path) -> None:
    state = {"half": torch.zeros(3)}
    with pytest.raises(ztensor.NotRepresentableError):
        load_into(source, state)
    load_into(source, state, cast=True)
    assert state["half"].tolist() == [1, 1, 1]


def test_rules_are_a_mapping(source: Path) -> None:
    with pytest.raises(TypeError):
        load_into(source, {}, rules=["up"])  # type: ignore[arg-type]


LOSSY = [("c8", "float32"), ("f4", "int32"), ("i8", "int32"), ("i4", "uint32"), ("u1", "bool")]


@pytest.mark.parametrize(("found", "wanted"), LOSSY)
def test_a_cast_loses_no_more_than_precision(found: str, wanted: str) -> None:
    state = {"w": torch.zeros(3, dtype=getattr(torch, wanted))}
    with pytest.raises(ztensor.NotRepresentableError):
        load_into(ztensor.numpy.save({"w": np.ones(3, found)}), state, cast=True)
    load_into(ztensor.numpy.save({"w": np.ones(3, "?")}), state, cast=True)
    assert state["w"].tolist() == [1, 1, 1]


def test_quantized_objects_are_dequantized_if_asked(tmp_path: Path) -> None:
    weights = np.linspace(-1, 1, 512, dtype=np.float32).reshape(4, 128)
    with ztensor.Writer(tmp_path / "q.zt") as writer:
        writer.write("w", ztensor.Tensor.quantize(weights, bits=8))
    state = {"w": torch.zeros(2, 128, dtype=torch.bfloat16)}
    with pytest.raises(ztensor.NotRepresentableError):
        load_into(tmp_path / "q.zt", state, rules={"w": Cut("w", 1, 3)})
    load_into(tmp_path / "q.zt", state, rules={"w": Cut("w", 1, 3)}, dequantize=True)
    assert np.allclose(state["w"].float().numpy(), weights[1:3], atol=0.02)


@pytest.mark.parametrize(
    ("state", "rules", "error"),
    [
        ({"gone": (3,)}, {}, ztensor.ObjectNotFoundError),
        ({"up": (6, 5)}, {}, ValueError),
        ({"up": (24,)}, {}, ValueError),
        ({"x": (7, 4)}, {"x": Joined(("layers.0.q", "layers.0.k"))}, ValueError),
        ({"x": (3, 4)}, {"x": Cut("up", 4, 7)}, ValueError),
        ({"x": (3, 4)}, {"x": ["up"]}, TypeError),
        ({"up": (6, 4)}, {"typo.*": "up"}, ValueError),
        ({"x": (3, 4)}, {"x": Joined(())}, TypeError),
        ({"x": (3, 4)}, {"x": Joined((Cut("up", 0, 3, dim=1),))}, TypeError),
    ],
)
def test_what_does_not_fit_fills_nothing(
    state: dict[str, tuple[int, ...]], rules: dict[str, Any], error: type, source: Path
) -> None:
    targets = {"one": torch.zeros(())} | {name: torch.zeros(size) for name, size in state.items()}
    with pytest.raises(error):
        load_into(source, targets, rules=rules)
    assert not any(value.any() for value in targets.values())


def test_without_strict_missing_tensors_stay(source: Path) -> None:
    state = {"gone": torch.ones(3), "one": torch.zeros(()), "step": 4}
    report = load_into(source, state, strict=False)
    assert report.missing == ("gone",)
    assert state["gone"].tolist() == [1, 1, 1]
    assert state["one"].item() == 7


def test_the_meta_device_has_nothing_to_fill(source: Path) -> None:
    with pytest.raises(ztensor.UsageError):
        load_into(source, {"up": torch.zeros(6, 4, device="meta")})


def test_one_name_of_tied_tensors_is_enough(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    save_file({"0.weight": torch.arange(15.0).reshape(5, 3)}, tmp_path / "one.safetensors")
    report = load_into(tmp_path / "one.safetensors", model)
    assert model[1].weight.flatten().tolist() == list(range(15))
    assert report.missing == ()


@pytest.mark.parametrize("state", [None, 3, ["up"], {"up": np.zeros((6, 4))}])
def test_what_is_no_state(state: Any, source: Path) -> None:
    with pytest.raises(TypeError):
        load_into(source, state)
