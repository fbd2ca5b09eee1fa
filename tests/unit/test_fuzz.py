"""The fuzzer's cases can be repeated and reach every stage; `make fuzz` is the long run."""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ztensor
from ztensor.testing.promise import exercise

FUZZ = Path(__file__).parents[2] / "fuzz"


@pytest.fixture(scope="module")
def mutation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_mutation", FUZZ / "mutation.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_mutation"] = module  # where its dataclasses look for it
    sys.path.insert(0, str(FUZZ))  # as for a script of that folder
    spec.loader.exec_module(module)
    sys.path.remove(str(FUZZ))
    return module


def test_a_case_is_its_two_numbers(mutation: ModuleType) -> None:
    first = [mutation.case(3, index) for index in range(100)]
    mutation.fresh.cache_clear()
    assert [mutation.case(3, index) for index in reversed(range(100))] == first[::-1]
    assert len(set(first)) > 90


def test_cases_reach_every_stage(mutation: ModuleType) -> None:
    stages: collections.Counter[str] = collections.Counter()
    limits = ztensor.Limits(decoded_bytes=1 << 20)
    for index in range(1500):
        outcome = exercise(mutation.case(1, index), limits=limits)
        stages["opened"] += outcome.opened
        stages.update(refusal.stage for refusal in outcome.refusals)
    assert stages["opened"] > 300
    assert {"open", "read", "dense", "verify"} <= set(stages)


@pytest.mark.parametrize("suffix", [".gguf", ".npy", ".npz", ".onnx", ".pt", ".safetensors"])
def test_cases_of_other_formats_get_past_their_headers(mutation: ModuleType, suffix: str) -> None:
    change = mutation.foreign.CHANGES[suffix]
    rng = random.Random(5)
    changed = set()
    for data in (data for kind, data in mutation.foreign.corpus("accept") if kind == suffix):
        for _ in range(200):
            with contextlib.suppress(*mutation.foreign.UNREADABLE):
                changed.add(change(rng, data))
    outcomes = [exercise(data, limits=ztensor.Limits(decoded_bytes=1 << 20)) for data in changed]
    assert sum(outcome.opened for outcome in outcomes) > 1
    assert sum(not outcome.opened for outcome in outcomes) > 10
