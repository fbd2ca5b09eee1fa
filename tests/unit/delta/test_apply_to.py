"""`apply_to`: all tensors of a state in memory are changed in place, or no tensor is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.unit.delta.test_apply import Files, some_changed, three_states, two_states
from ztensor.delta import DeltaError, DeltaReason, apply_to, make
from ztensor.errors import ArgumentTypeError, ArgumentValueError
from ztensor.ext import FRAMEWORKS
from ztensor.numpy import save


def as_numpy(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy; arrays that are shared stay shared."""
    copies = {id(array): array.copy() for array in state.values()}
    return {name: copies[id(array)] for name, array in state.items()}


def as_torch(state: dict[str, Any]) -> dict[str, Any]:
    pytest.importorskip("torch")
    with ztensor.open(save(as_numpy(state))) as reader:
        tensors = {name: reader.read_torch(name, copy=True) for name in reader}
    first: dict[int, str] = {}
    return {name: tensors[first.setdefault(id(array), name)] for name, array in state.items()}


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "numpy": as_numpy,
    "torch": as_torch,
}


def bits_of(state: dict[str, Any]) -> dict[str, bytes]:
    arrays = {
        name: value if isinstance(value, np.ndarray) else FRAMEWORKS["torch"].loaded().stored(value)
        for name, value in state.items()
    }
    return {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("effort", "values"), [("fast", "difference"), ("small", "difference"), ("fast", "new")]
)
@pytest.mark.parametrize("share", [0.01, 0.9])
def test_every_type_is_changed_in_place(
    tmp_path: Path, kind: str, effort: Any, values: Any, share: float
) -> None:
    old, new = two_states(share)
    if kind == "torch":  # it has no such type of its own; 4-bit elements have another shape
        for name in [name for name in old if "float4" in name]:
            del old[name], new[name]
    make(old, new, tmp_path / "d.zt", effort=effort, values=values)
    state = KINDS[kind](old)
    before = {name: id(value) for name, value in state.items()}
    report = apply_to(state, tmp_path / "d.zt")
    assert bits_of(state) == bits_of(KINDS[kind](new))
    assert {name: id(value) for name, value in state.items()} == before
    assert report.tensors > 0
    if values == "difference":  # new values may be written again
        with refused(DeltaError, DeltaReason.APPLIED):
            apply_to(state, tmp_path / "d.zt")
    assert apply_to(state, tmp_path / "d.zt", if_applied="skip").result == report.result
    assert bits_of(state) == bits_of(KINDS[kind](new))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("effort", ["fast", "small"])
def test_a_chain_is_applied_and_shared_memory_changed_once(
    tmp_path: Path, kind: str, effort: Any
) -> None:
    dice = np.random.default_rng(0)
    states = [{"big": dice.standard_normal((80, 60)).astype(ml_dtypes.bfloat16)}]
    for _ in range(3):
        states.append({"big": some_changed(dice, states[-1]["big"], 0.02)})
    states = [each | {"tied": each["big"]} for each in states]
    for number in range(3):
        make(states[number], states[number + 1], tmp_path / f"d{number}.zt", effort=effort)
    state = KINDS[kind](states[0])
    assert apply_to(state, tmp_path).tensors == 2
    assert bits_of(state) == bits_of(KINDS[kind](states[3]))


def test_quantized_tensors_are_changed_in_their_components(tmp_path: Path) -> None:
    def quantized(codes: Any) -> ztensor.Tensor:
        scales = np.full((4, 1), 0.5, np.float32)
        return ztensor.Tensor(
            {"packed_weight": codes, "scales": scales},
            shape=(4, 32),
            format="quantized_group",
            attributes={"bits": 4, "group_size": 32, "axis": 1, "symmetric": True, "packing": "x"},
        )

    codes = np.arange(64, dtype=np.uint8).reshape(4, 16)
    changed = codes.copy()
    changed[2, 3] ^= 7
    make({"q": quantized(codes)}, {"q": quantized(changed)}, tmp_path / "d.zt")
    apply_to({"q": quantized(codes)}, tmp_path / "d.zt")
    assert np.array_equal(codes, changed)


# --- Refused --------------------------------------------------------------------------------------


def within(state: dict[str, Any], stack: Any) -> dict[str, Any]:
    rows = stack([state["half"]] * 3)
    return {"all": rows, "half": rows[1], "first row": rows[0][:1]}


# Case to the values that differ from the base (None: none of that name), and the refusal.
SPOILED: dict[str, tuple[Callable[[dict[str, Any], Any], dict[str, Any]], Any]] = {
    "not contiguous": (
        lambda state, stack: {"half": stack([state["half"]] * 2, 1)[:, 0]}, ArgumentValueError,
    ),
    "another element": (lambda state, stack: {"big": state["big"] + 1}, DeltaReason.BASE),
    "missing": (lambda state, stack: {"half": None}, DeltaReason.TENSOR),
    "another shape": (lambda state, stack: {"half": state["half"].reshape(-1)}, DeltaReason.SHAPE),
    "one of two names": (lambda state, stack: {"same": state["big"]}, DeltaReason.TENSOR),
    "overlapping": (lambda state, stack: {"extra": state["big"][1:]}, DeltaReason.TENSOR),
    "within another": (within, DeltaReason.TENSOR),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", SPOILED)
def test_what_does_not_fit_is_refused_before_anything_changes(
    tmp_path: Path, kind: str, case: str
) -> None:
    files, (spoil, reason) = Files(tmp_path), SPOILED[case]
    state = KINDS[kind](three_states()[0])
    stack = np.stack if kind == "numpy" else pytest.importorskip("torch").stack
    state = {n: v for n, v in (state | spoil(state, stack)).items() if v is not None}
    before = bits_of(state)
    expected: Any = DeltaError if isinstance(reason, DeltaReason) else reason
    with pytest.raises(expected) as caught:
        apply_to(state, files.deltas[0])
    assert reason in (type(caught.value), caught.value.reason)
    assert bits_of(state) == before


@pytest.mark.parametrize("number", [0, 1])
def test_only_elements_of_known_tensors_change(tmp_path: Path, number: int) -> None:
    files, states = Files(tmp_path), three_states()
    state = as_numpy(states[number])
    if number:  # tensors are added, removed and replaced
        with pytest.raises(DeltaError) as caught:
            apply_to(state, files.deltas[1])
        assert caught.value.reason in (DeltaReason.TENSOR, DeltaReason.SHAPE)
        assert bits_of(state) == bits_of(states[1])
        state = {"big": state["big"]}
    else:
        del state["half"]
    apply_to(state, files.deltas[number], strict=False)
    assert bits_of(state) == {name: bits_of(states[number + 1])[name] for name in state}


def test_values_that_cannot_change_are_refused(tmp_path: Path) -> None:
    files = Files(tmp_path)
    read_only = as_numpy(three_states()[0])
    read_only["half"].flags.writeable = False
    with pytest.raises(ArgumentValueError):
        apply_to(read_only, files.deltas[0])
    torch = pytest.importorskip("torch")
    without_memory = as_numpy(three_states()[0])
    without_memory["half"] = torch.empty((60, 40), dtype=torch.bfloat16, device="meta")
    with pytest.raises(ArgumentValueError):
        apply_to(without_memory, files.deltas[0])
    jax = pytest.importorskip("jax")
    state = as_numpy(three_states()[0])
    state["half"] = jax.numpy.asarray(state["half"])
    with pytest.raises(ArgumentTypeError):
        apply_to(state, files.deltas[0])
    with pytest.raises(ArgumentTypeError):
        apply_to({"half": [1, 2]}, files.deltas[0], strict=False, verify=None)
    assert bits_of(read_only) == bits_of(three_states()[0])
