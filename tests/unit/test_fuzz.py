"""The fuzzer's cases can be repeated and reach every stage; `make fuzz` is the long run."""

from __future__ import annotations

import collections
import importlib.util
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
    spec.loader.exec_module(module)
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
