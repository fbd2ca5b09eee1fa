"""The harness' own logic; what it measures is for `make bench`."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import (
    beside,
    deltas,
    goals,
    run,
    workloads,
)
from benchmarks.goals import RatioGoal
from benchmarks.operations import OPERATIONS
from benchmarks.ratios import Sample, Samples, paired_ratio
from benchmarks.record import Run
from benchmarks.workloads import WORKLOADS


def sample(peer: str, wall: float, turn: int = 0, **changes: object) -> Sample:
    first = Sample("many", "keys", peer, turn, wall, cpu=2 * wall, peak=1_000_000)
    return dataclasses.replace(first, **changes)  # type: ignore[arg-type]  # fields by name


# --- Ratios -----------------------------------------------------------------------------------


def test_a_ratio_is_taken_within_a_round() -> None:
    """Machine ten times slower in round 2: the ratio of medians would be 1, or 10."""
    ratio = paired_ratio({0: 1.0, 1: 1.0, 2: 10.0}, {0: 2.0, 1: 2.0, 2: 20.0})
    assert ratio is not None
    assert (ratio.count, ratio.median, ratio.low, ratio.high) == (3, 0.5, 0.5, 0.5)


# --- Goals ------------------------------------------------------------------------------------


def test_a_ratio_goal_judges_the_row_it_names() -> None:
    samples = Samples(
        [sample("ours", 0.5), sample("ours-unchecked", 0.25), sample("ztensor-1", 1.0)]
    )
    checked = RatioGoal("open", "keys", ("many",), {"ztensor-1": 0.3})
    (verdict,) = checked.judge(samples)
    assert (verdict.measured, verdict.without, verdict.outcome) == (0.5, 0.25, "missed")
    (verdict,) = dataclasses.replace(checked, row="ours-unchecked").judge(samples)
    assert (verdict.measured, verdict.without, verdict.outcome) == (0.25, None, "met")


def test_every_goal_is_measured_by_a_quick_run() -> None:
    for goal in goals.GOALS:
        for name in goal.workloads:
            workload = WORKLOADS[name]
            assert workload.quick
            assert goal.operation in workload.chosen(is_full=False)
            assert goal.operation in OPERATIONS


# --- Workloads and rounds ---------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_fit_the_tables(name: str) -> None:
    workload = WORKLOADS[name]
    assert set(workload.operations + workload.full_operations) <= set(OPERATIONS)
    names = [tensor for tensor, _, _ in workload.plan(workload.full)]
    assert len(set(names)) == len(names)
    for fill_dtype in {dtype for _, dtype, _ in workload.plan(workload.full)}:
        values = workload.fill(np.random.default_rng(1), fill_dtype, 100)
        assert values.dtype == workloads.storage_dtype(fill_dtype)
        assert values.size == 100


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux' /proc"
)
@pytest.mark.parametrize("workload", ["tiny", "names-147", "singles"])
def test_a_small_run_measures_us(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json = tmp_path / "run.json"
    command = ["--peers", "ours,ours-unchecked", "--workloads", workload, "--rounds", "1", "--full"]
    status = run.main([*command, "--quiet", "--dir", str(tmp_path), "--json", str(json)])
    assert status == 0
    made = Run.from_json(json.read_text(encoding="utf-8"))
    assert made.absent == {}
    assert [note for note in made.notes if note[4]] == []
    measured = {(one.operation, one.peer) for one in made.samples}
    expected = {(name, "ours") for name in WORKLOADS[workload].chosen(is_full=True)}
    assert {pair for pair in measured if pair[1] == "ours"} == expected
    assert workload != "tiny" or ("save", "ours-unchecked") in measured
    assert all(one.wall > 0 for one in made.samples)
    assert "ours" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [json]  # the files are gone


@pytest.mark.slow
def test_the_pickle_of_a_stranger_is_opened() -> None:
    pytest.importorskip("torch", reason="writes the pickle")
    (verdict,) = beside.strangers_pickle(1)
    assert verdict.measured is not None


def test_deltas_are_measured_beside_other_formats(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("zstandard", reason="slime's format needs it")
    deltas.report("row", *deltas.synthetic(1e-6, 2, layers=1), 1, time.perf_counter)
    names = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()]
    assert {"| slime xor", "| fast", "| small", "| new bits"} <= set(names)
