"""`fold`: one delta for several gives the same state, and says the same of it."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ztensor
from tests.extent import examples
from tests.refusals import refused
from tests.unit.delta.chains import State, publish, same, walk
from ztensor import delta
from ztensor.delta import DeltaError, DeltaReason

STATES = walk(5)
FAST: dict[str, Any] = {}
SMALL: dict[str, Any] = {"effort": "small"}
NEW: dict[str, Any] = {"values": "new"}


def applied(path: Path, base: State) -> State:
    """Return the state after a delta, computed tensor by tensor."""
    state = {name: ztensor.Tensor(array) for name, array in base.items()}
    with delta.open(path) as changes:
        for name in changes.removed:
            del state[name]
        for name, change in changes.items():
            assert (change.kind == "added") == (name not in state)
            state[name] = change.tensor(state.get(name))
            assert change.is_result(state[name], changes.ids)
    return {name: tensor.numpy() for name, tensor in state.items()}


def described(path: Path) -> dict[str, Any]:
    """Return ids, kinds and removed tensors of a delta."""
    with delta.open(path) as changes:
        kinds = {name: (change.kind, change.old, change.new) for name, change in changes.items()}
        return {
            "states": (changes.base, changes.result, changes.elements),
            "kinds": kinds,
            "removed": dict(changes.removed),
        }


# --- Several links --------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["sha256", "xxh3-128"])
@pytest.mark.parametrize("values", ["difference", "new"])
def test_a_chain_folds_without_its_base(tmp_path: Path, ids: Any, values: Any) -> None:
    publish(tmp_path, STATES, ids=ids, values=values)
    report = delta.fold(tmp_path, tmp_path / "fold.zt")
    whole = delta.make(STATES[0], STATES[-1], tmp_path / "whole.zt", ids=ids, values=values)
    assert applied(tmp_path / "fold.zt", STATES[0]).keys() == STATES[-1].keys()
    assert described(tmp_path / "fold.zt") == described(tmp_path / "whole.zt")
    assert (report.base, report.result, report.tensors) == (whole.base, whole.result, 3)
    if values == "difference":  # elements that came back are gone
        assert (report.changed, report.nbytes) == (whole.changed, whole.nbytes + len("step 4") + 7)


@pytest.mark.parametrize(("first", "second"), list(itertools.product([FAST, SMALL, NEW], repeat=2)))
def test_with_the_base_any_links_fold(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    a, b, c = STATES[:3]
    delta.make(a, b, tmp_path / "1.zt", **first)
    delta.make(b, c, tmp_path / "2.zt", **second)
    delta.make(a, c, tmp_path / "whole.zt")
    for effort in (None, "fast", "small"):
        path = tmp_path / f"{effort}.fold.zt"
        delta.fold([tmp_path / "2.zt", tmp_path / "1.zt"], path, base=a, effort=effort)
        assert described(path) == described(tmp_path / "whole.zt")
        assert applied(path, a).keys() == c.keys()


@pytest.mark.parametrize("is_changed", [True, False], ids=["tensors, too", "attributes only"])
def test_attributes_of_files_fold(tmp_path: Path, is_changed: bool) -> None:
    attributes: list[dict[str, Any]] = [
        {"epoch": 1, "name": "a"},
        {"epoch": 2, "name": "a"},
        {"epoch": 3, "extra": True},
    ]
    for number, own in enumerate(attributes):
        with ztensor.Writer(tmp_path / f"{number}.zt", attributes=own) as writer:
            writer.write("w", np.arange(9) + number * is_changed)
    links = [tmp_path / "0.delta.zt", tmp_path / "1.delta.zt"]
    for number, link in enumerate(links):
        delta.make(tmp_path / f"{number}.zt", tmp_path / f"{number + 1}.zt", link)
    for base in (None, tmp_path / "0.zt"):
        delta.fold(links, tmp_path / "fold.zt", base=base)
        delta.apply(tmp_path / "fold.zt", tmp_path / "0.zt", tmp_path / "new.zt")
        with ztensor.open(tmp_path / "new.zt") as reader:
            assert reader.attributes == attributes[2]
            assert np.array_equal(reader["w"], np.arange(9) + 2 * is_changed)


# --- Every kind of change, by every other ---------------------------------------------------------

W = np.arange(100, dtype=np.float32)
X, Y, Z = (W.copy() for _ in range(3))
X[3] = Y[3] = Z[3] = -1
Y[7] = -2
Z[3], Z[50] = 5, -3
OTHER = np.arange(12).reshape(3, 4)
# The tensor in three states; None where it is absent.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "absent, changed": (W, W, X),
    "changed, absent": (W, X, X),
    "changed, changed": (W, X, Y),
    "changed, changed where it was": (W, X, Z),
    "changed, changed back": (W, X, W),
    "changed, replaced": (W, X, OTHER),
    "changed, removed": (W, X, None),
    "added, absent": (None, W, W),
    "added, changed": (None, W, X),
    "added, replaced": (None, W, OTHER),
    "added, removed": (None, W, None),
    "replaced, changed": (OTHER, W, X),
    "replaced, replaced": (OTHER, W, OTHER[0]),
    "replaced, replaced back": (OTHER, W, OTHER),
    "replaced, removed": (OTHER, W, None),
    "removed, absent": (W, None, None),
    "removed, added": (OTHER, None, W),
    "removed, added again": (W, None, W),
    "absent, added": (None, None, W),
    "absent, removed": (W, W, None),
}


@pytest.mark.parametrize("values", ["difference", "new"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_change(tmp_path: Path, kind: str, values: Any) -> None:
    states: list[State] = []
    for number, tensor in enumerate(KINDS[kind]):
        states.append({"other": np.arange(5) + number})
        if tensor is not None:
            states[-1]["w"] = tensor
    a, b, c = states
    delta.make(a, b, tmp_path / "1.zt", values=values)
    delta.make(b, c, tmp_path / "2.zt", values=values)
    delta.make(a, c, tmp_path / "whole.zt", values=values)
    for base in (None, a):
        delta.fold([tmp_path / "1.zt", tmp_path / "2.zt"], tmp_path / "fold.zt", base=base)
        assert same(applied(tmp_path / "fold.zt", a), c)
        assert described(tmp_path / "fold.zt") == described(tmp_path / "whole.zt")


DTYPES = ["f4", "u1", "i8", "?", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]


@st.composite
def three_states(draw: st.DrawFn) -> list[State]:
    """Draw states of four names, each absent or with one of few arrays: they meet and part."""
    dice = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    states: list[State] = [{}, {}, {}]
    for name in "abcd":
        dtype = np.dtype(draw(st.sampled_from(DTYPES)))
        first = dice.integers(0, 2, draw(st.integers(0, 300))).astype(dtype)
        second = np.where(dice.random(first.size) < 0.1, dice.permutation(first), first)
        third = np.where(dice.random(first.size) < 0.1, dice.permutation(second), second)
        choices = [None, first, second, third, first[:5], first.astype("f8")]
        for state in states:
            array = draw(st.sampled_from(choices))
            if array is not None:
                state[name] = array
    return states


@settings(max_examples=examples(60), deadline=None)
@given(states=three_states(), values=st.sampled_from(["difference", "new"]))
def test_a_fold_gives_the_last_state(states: list[State], values: Any) -> None:
    a, b, c = states
    contents = [{n: (v.dtype, v.tobytes()) for n, v in state.items()} for state in states]
    assume(contents[0] == contents[1] or contents[0] != contents[2])  # a circle has no start
    with tempfile.TemporaryDirectory() as folder:
        one, two, fold = (Path(folder) / f"{name}.zt" for name in ("1", "2", "fold"))
        delta.make(a, b, one, values=values)
        delta.make(b, c, two, values=values)
        delta.fold([one, two], fold)
        assert same(applied(fold, a), c)


def test_new_bits_cover_differences(tmp_path: Path) -> None:
    """Each changed element has a new value in one of the links: no base is needed."""
    a, b, c = {"w": W}, {"w": X}, {"w": Z}
    for first, second in ((FAST, NEW), (NEW, FAST)):
        delta.make(a, b, tmp_path / "1.zt", **first)
        last = {"w": np.where(np.arange(100) == 3, c["w"], b["w"])}
        delta.make(b, last, tmp_path / "2.zt", **second)
        delta.fold([tmp_path / "1.zt", tmp_path / "2.zt"], tmp_path / "fold.zt")
        assert applied(tmp_path / "fold.zt", a)["w"].tobytes() == last["w"].tobytes()
        with delta.open(tmp_path / "fold.zt") as folded:
            assert folded["w"].parts["data"].needs_old is None


def at_the_border(count: int) -> list[State]:
    """Return states that differ at the ends of segments."""
    states = [{"w": np.zeros(count, np.uint8)}]
    for places in ([0, count - 1], [count - 2, count - 1], [0, 1 << 21]):
        states.append({"w": states[-1]["w"].copy()})
        states[-1]["w"][places] += 1
    return states


def of_several_sizes() -> list[State]:
    """Return states with segments of 2^22, and of 2^20 where more than 5 percent changed."""
    dice = np.random.default_rng(1)
    states = [{"w": np.zeros((1 << 22) + 999, np.uint16)}]
    for share in (0.001, 0.3, 0.01):
        states.append({"w": states[-1]["w"] + (dice.random(states[-1]["w"].size) < share)})
    return states


def test_segments_fold(tmp_path: Path) -> None:
    chains = at_the_border((1 << 22) - 1), at_the_border((1 << 22) + 1), of_several_sizes()
    for number, states in enumerate(chains):
        (tmp_path / str(number)).mkdir()
        publish(tmp_path / str(number), states)
        delta.fold(tmp_path / str(number), tmp_path / "fold.zt")
        assert same(applied(tmp_path / "fold.zt", states[0]), states[-1])


# --- What is refused ------------------------------------------------------------------------------


def exponents(count: int) -> tuple[Any, Any]:
    """Return two arrays of which small elements differ: their classes are stored apart."""
    old = np.random.default_rng(0).normal(size=count).astype(np.float32)
    return old, np.where(np.abs(old) < 0.1, old + np.float32(1e-3), old)


def test_links_that_need_the_base_are_refused_without_it(tmp_path: Path) -> None:
    old, new = exponents(1 << 16)
    delta.make({"w": old}, {"w": new}, tmp_path / "classes.zt", effort="small")
    delta.make({"w": W}, {"w": X}, tmp_path / "1.zt")
    delta.make({"w": X}, {"w": Y}, tmp_path / "2.zt", values="new")
    both = [tmp_path / "1.zt", tmp_path / "2.zt"]
    for links, effort in (([tmp_path / "classes.zt"], None), (both, None), (both[:1], "small")):
        with refused(DeltaError, DeltaReason.NEEDS_BASE):
            delta.fold(links, tmp_path / "fold.zt", effort=effort)  # type: ignore[arg-type]
        assert not (tmp_path / "fold.zt").exists()
    delta.fold([tmp_path / "classes.zt"], tmp_path / "fold.zt", base={"w": old})
    assert applied(tmp_path / "fold.zt", {"w": old})["w"].tobytes() == new.tobytes()


def test_another_base_and_a_gap_are_refused(tmp_path: Path) -> None:
    paths = publish(tmp_path, STATES)
    with refused(DeltaError, DeltaReason.BASE):
        delta.fold(tmp_path, tmp_path / "fold.zt", base={**STATES[0], "fixed": np.ones(7)})
    with refused(DeltaError, DeltaReason.CHAIN):
        delta.fold([paths[0], paths[2]], tmp_path / "fold.zt")
