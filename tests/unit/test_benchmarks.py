"""The harness' own logic; what it measures is for `make bench`."""

from __future__ import annotations

import dataclasses
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from random import Random

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import (
    beside,
    chart,
    environments,
    foreign,
    goals,
    measuring,
    report,
    run,
    workloads,
)
from benchmarks.goals import AboveGoal, FigureGoal, RatioGoal
from benchmarks.operations import AGAIN, OPERATIONS
from benchmarks.ratios import Sample, Samples, paired_ratio, three_digits
from benchmarks.record import Run
from benchmarks.workloads import FOREIGN, WORKLOADS, Workload

SVG = "{http://www.w3.org/2000/svg}"


def sample(peer: str, wall: float, turn: int = 0, **changes: object) -> Sample:
    first = Sample("many", "keys", peer, turn, wall, cpu=2 * wall, peak=1_000_000)
    return dataclasses.replace(first, **changes)  # type: ignore[arg-type]  # fields by name


@pytest.fixture
def made_run() -> Run:
    """Three rounds in which we take half of what ztensor 1.2.3 takes, and one failure."""
    made = Run(
        mode="quick",
        date="2026-01-02 03:04 UTC",
        seed=1,
        machine={
            "cores": 2,
            "processor": "Some <CPU>",
            "memory_gb": 24,
            "system": "Linux",
            "python": "3.11.7",
            "commit": "abc1234",
            "load_at_start": 0.1,
        },
        titles={"ours": "ours", "ztensor-1": "ztensor 1.2.3", "gguf": "gguf", "torch": "torch"},
        versions={"ours": {"numpy": "2.4.6"}},
        absent={"torch": "no wheel for this Python"},
        workloads={"many": {"title": "small ones", "nbytes": 12_800_000, "tensors": 50_000}},
        files={"many": {"ours": 16_000_000}},
    )
    for turn, wall in enumerate((0.01, 0.02, 0.03)):
        made.samples.add(sample("ours", wall, turn))
        made.samples.add(sample("ztensor-1", 2 * wall, turn))
    made.note("many", "verify", "ztensor-1", "has no such function", is_error=False)
    made.note("many", "", "gguf", "wrong | bytes", is_error=True)
    return made


# --- Ratios -----------------------------------------------------------------------------------


def test_a_ratio_is_taken_within_a_round() -> None:
    """Machine ten times slower in round 2: the ratio of medians would be 1, or 10."""
    ratio = paired_ratio({0: 1.0, 1: 1.0, 2: 10.0}, {0: 2.0, 1: 2.0, 2: 20.0})
    assert ratio is not None
    assert (ratio.count, ratio.median, ratio.low, ratio.high) == (3, 0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("of", "to", "expected"),
    [
        ({0: 1.0}, {1: 1.0}, None),
        ({}, {}, None),
        ({0: 1.0, 1: 3.0}, {0: 1.0, 1: 1.0, 2: 9.0}, (2, 2.0, 1.0, 3.0)),
        ({0: 1.0, 1: 5.0}, {0: 1.0, 1: 0.0}, (1, 1.0, 1.0, 1.0)),
        (dict(enumerate((1.0, 2.0, 3.0, 4.0, 5.0))), dict.fromkeys(range(5), 1.0), (5, 3, 2, 4)),
    ],
    ids=["no common round", "nothing", "two rounds", "a clock that stood still", "quartiles"],
)
def test_rounds_that_only_one_has_do_not_count(
    of: dict[int, float], to: dict[int, float], expected: tuple[float, ...] | None
) -> None:
    ratio = paired_ratio(of, to)
    assert (ratio and dataclasses.astuple(ratio)) == expected


def test_figures_are_least_and_medians() -> None:
    samples = Samples(sample("ours", wall, turn) for turn, wall in enumerate((3.0, 1.0, 2.0)))
    figures = samples.figures("many", "keys", "ours")
    assert figures is not None
    assert dataclasses.astuple(figures) == (3, 1.0, 2.0, 4.0, 1_000_000)
    assert samples.figures("many", "keys", "gguf") is None
    assert samples.figures("many", "save", "ours") is None


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


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    (verdict,) = RatioGoal("open", "keys", ("many",), {"safetensors": 0.3}).judge(Samples())
    assert (verdict.measured, verdict.outcome) == (None, "-")


def test_a_ratio_without_a_budget_is_shown_and_not_judged() -> None:
    samples = Samples([sample("ours", 0.5), sample("ztensor-1", 1.0)])
    (verdict,) = RatioGoal("open", "keys", ("many",), {"ztensor-1": None}).judge(samples)
    assert (verdict.measured, verdict.outcome) == (0.5, "-")


def test_a_process_is_judged_by_what_it_takes_above_another_of_its_round() -> None:
    """The machine is slow in the second round: medians of each would give another difference."""
    walls = {"ours": ((0.1, 0.13), (1.0, 1.03)), "safetensors": ((0.1, 0.11),)}
    samples = Samples(
        sample(peer, wall, turn, operation=operation)
        for peer, rounds in walls.items()
        for turn, pair in enumerate(rounds)
        for operation, wall in zip(("process-numpy", "process-one"), pair, strict=True)
    )
    (verdict,) = AboveGoal("open", "process-one", ("many",), 28.0).judge(samples)
    assert verdict.measured == pytest.approx(30.0)
    assert verdict.outcome == "missed"
    assert verdict.detail == "safetensors 10.0 ms"


@pytest.mark.parametrize(
    ("unit", "per", "measured"),
    [("ms", 1, 2.0), ("us", 1000, 2.0), ("MB", 1, 1.0), ("x data", 1, 0.5)],
    ids=["ms", "us each", "MB", "data"],
)
def test_a_figure_goal_is_in_its_unit(unit: str, per: int, measured: float) -> None:
    goal = FigureGoal("open", "keys", ("many",), 1.0, unit, per=per)
    (verdict,) = goal.judge(Samples([sample("ours", 0.002)]), {"many": 2_000_000})
    assert verdict.measured == pytest.approx(measured)


def test_every_goal_is_measured_by_a_quick_run() -> None:
    for goal in goals.GOALS:
        for name in goal.workloads:
            workload = WORKLOADS[name]
            assert workload.quick
            assert goal.operation in workload.chosen(is_full=False)
            assert goal.operation in OPERATIONS


def test_a_quick_run_measures_only_what_goals_ask() -> None:
    asked = {(name, goal.operation) for goal in goals.GOALS for name in goal.workloads}
    asked |= {(name, "process-numpy") for name, operation in asked if operation == "process-one"}
    measured = {
        (name, operation)
        for name, workload in WORKLOADS.items()
        if workload.quick
        for operation in workload.chosen(is_full=False)
    }
    assert measured == asked


def test_each_access_is_divided_by_how_many_there_are() -> None:
    counts = {"again": AGAIN, "each": WORKLOADS["singles"].quick}
    goals_of_one = [one for one in goals.GOALS if isinstance(one, FigureGoal) and one.unit == "us"]
    assert {goal.operation: goal.per for goal in goals_of_one} == counts


def test_every_foreign_goal_is_measured_by_a_run_with_torch() -> None:
    names = foreign.chosen(with_torch=True)
    groups = {name: foreign.groups(name, names) for name in FOREIGN}
    for goal in goals.FOREIGN_GOALS:
        assert isinstance(goal, RatioGoal | FigureGoal)
        for workload in goal.workloads:
            assert goal.operation in FOREIGN[workload].chosen(is_full=False)
            assert FOREIGN[workload].size(is_full=False)
            libraries = goal.bounds if isinstance(goal, RatioGoal) else {}
            peers = {goal.row, *libraries}
            assert any(peers <= set(group) for group in groups[workload])


# --- Tables and chart -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (99.96, "100"),
        (12.34, "12.3"),
        (9.996, "10.0"),
        (1.234, "1.23"),
        (0.0123, "0.012"),
        (0.0, "0.00"),
        (-0.5, "-0.50"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_tables_hold_what_was_measured(made_run: Run) -> None:
    assert report.wall_table(made_run) == (
        ["workload", "operation", "ours", "ztensor 1.2.3", "gguf"],
        [["many", "open, list the names", "10.0 / 20.0", "20.0 / 40.0", "-"]],
    )
    assert report.ratio_table(made_run)[1] == [["many", "open, list the names", "0.50", "-"]]
    assert report.size_table(made_run)[1] == [["many", "50,000", "12.8", "1.250", "-", "-"]]
    rows = report.goal_table(made_run)[1]
    assert ["open it again", "many", "ztensor 1.2.3", "-", "0.50", "", "", "-"] in [
        row[:8] for row in rows
    ]
    assert {row[1] for row in rows} == {"many"}


def test_another_checkout_of_ours_is_shown_beside(made_run: Run) -> None:
    samples = Samples(
        [sample("ours", 0.02), sample("ours-before", 0.03), sample("ztensor-1", 0.04)]
    )
    run = dataclasses.replace(made_run, samples=samples)
    rows = report.goal_table(run)[1]
    shown = [row[4:6] for row in rows if row[:3] == ["open it again", "many", "ztensor 1.2.3"]]
    assert shown == [["0.50", "0.75"]]


def test_every_gap_has_its_reason(made_run: Run) -> None:
    assert report.reasons(made_run) == [
        "torch: not measured: no wheel for this Python",
        "ztensor 1.2.3: check every byte: has no such function",
        "gguf: everything of many failed: wrong | bytes",
    ]
    text = report.terminal(made_run, with_figures=True)
    assert all(reason in text for reason in report.reasons(made_run))


def test_a_plain_table_is_aligned() -> None:
    assert report.plain((["a", "long"], [["wide cell", "1"]])) == (
        "a          long\n---------  ----\nwide cell  1"
    )


def test_a_markdown_table_escapes_and_aligns() -> None:
    table = (["what", "ms"], [["a | <b>", "1.5 / 2"], ["c", "-"]])
    assert report.markdown(table).splitlines() == [
        "| what | ms |",
        "| --- | ---: |",
        "| a \\| &lt;b> | 1.5 / 2 |",
        "| c | - |",
    ]


def test_the_page_keeps_what_a_person_wrote(made_run: Run, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Mine\n\n{report.BEGIN}\nold\n{report.END}\n\nMine too.\n", encoding="utf-8")
    report.write_docs(made_run, tmp_path)
    once = page.read_text(encoding="utf-8")
    assert once.startswith("# Mine\n")
    assert once.endswith("Mine too.\n")
    assert "old" not in once
    assert "2026-01-02 03:04 UTC" in once
    report.write_docs(made_run, tmp_path)
    assert page.read_text(encoding="utf-8") == once
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="has no"):
        report.write_docs(made_run, tmp_path)


@pytest.fixture
def foreign_run(made_run: Run) -> Run:
    """One round in which we read h5py's file in half its time."""
    titles = {"h5py": "h5py", "ours-h5py": "ours"}
    samples = Samples([sample("h5py", 0.02), sample("ours-h5py", 0.01)])
    return dataclasses.replace(
        made_run, titles=titles, absent={}, notes=[], samples=samples, is_foreign=True
    )


def test_files_of_others_are_judged_and_shown_in_pairs(foreign_run: Run) -> None:
    judged = [row for row in report.goal_table(foreign_run)[1] if row[4] != "-"]
    assert [row[:8] for row in judged] == [
        ["hdf5: open, list the names", "many", "h5py", "1", "0.50", "", "", "met"]
    ]
    assert report.foreign_table(foreign_run)[1] == [
        ["hdf5", "many", "open, list the names", "20.0 / 20.0", "10.0 / 10.0", "1.00", "1.00"]
    ]
    assert "10.0 / 10.0" in report.terminal(foreign_run, with_figures=True)


def test_files_of_others_have_a_part_of_the_page_to_themselves(
    made_run: Run, foreign_run: Run, tmp_path: Path
) -> None:
    page = tmp_path / "benchmarks.md"
    parts = (report.BEGIN, "old", report.END, report.FOREIGN_BEGIN, "older", report.FOREIGN_END)
    page.write_text("\n".join(parts), encoding="utf-8")
    report.write_docs(foreign_run, tmp_path)
    assert list(tmp_path.iterdir()) == [page]  # no chart
    text = page.read_text(encoding="utf-8")
    assert f"{report.BEGIN}\nold\n{report.END}" in text
    assert "older" not in text
    _, _, written = text.partition(report.FOREIGN_BEGIN)
    report.write_docs(made_run, tmp_path)
    assert page.read_text(encoding="utf-8").partition(report.FOREIGN_BEGIN)[2] == written


def test_a_run_survives_json(made_run: Run) -> None:
    again = Run.from_json(made_run.to_json())
    assert list(again.samples) == list(made_run.samples)
    assert dataclasses.replace(again, samples=made_run.samples) == made_run
    with pytest.raises(ValueError, match="release"):
        Run.from_json("{}")


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  # our own


def test_the_chart_shows_each_multiple_once(made_run: Run) -> None:
    (row,) = chart.rows(made_run)
    assert (row.ours, row.times) == (0.02, {"ztensor-1": 2.0})
    root = parsed(chart.draw(made_run))
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    for expected in ("many: small ones", "open, list the names", "ztensor 1.2.3", "20 ms", "1x"):
        assert texts.count(expected) == 1
    assert "gguf" not in texts
    assert len(list(root.iter(f"{SVG}polygon"))) == 2  # one in the legend, one on the row


def test_the_chart_of_nothing_is_well_formed() -> None:
    empty = Run("quick", "now", 1, {})
    assert parsed(chart.draw(empty)).tag == f"{SVG}svg"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 2.0], [0.5, 1, 2]),
        ([0.01, 100.0], [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100]),
        ([1e-4, 1e5], [10.0**power for power in range(-4, 6)]),
    ],
    ids=["narrow", "wide", "very wide"],
)
def test_an_axis_has_few_round_numbers(values: list[float], expected: list[float]) -> None:
    axis = chart.Axis.holding(values)
    assert axis.ticks() == pytest.approx(expected)
    places = [axis.place(value) for value in values]
    assert chart.LEFT < places[0] < places[1] < chart.WIDTH - chart.RIGHT


def test_every_peer_has_a_mark_of_its_own() -> None:
    marks = [chart.mark(name, 0, 0) for name in environments.PEERS if name != "ours"]
    assert len(set(marks)) == len(marks)


# --- Workloads and rounds ---------------------------------------------------------------------


def test_a_source_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = [("a", "bfloat16", (3, 5)), ("b", "float32", (7,))]
    workload = Workload("w", "two", lambda _: iter(plan), 1, 1, ("keys",))
    written = workloads.write_source(workload, 1, tmp_path, seed=3)
    first = (tmp_path / "source.bin").read_bytes()
    read = workloads.read_source(tmp_path)
    assert read == written
    assert read.nbytes == 3 * 5 * 2 + 7 * 4
    bits, other = read.tensors(), read.tensors(np.dtype(ml_dtypes.bfloat16))
    assert bits["a"].dtype == np.dtype(np.uint16)
    assert other["a"].dtype == np.dtype(ml_dtypes.bfloat16)
    assert bits["a"].shape == (3, 5)
    assert bits["a"].tobytes() == other["a"].tobytes() == first[:30]
    assert measuring.one_percent(read) == {"a": (1, 2), "b": (3, 4)}
    workloads.write_source(workload, 1, tmp_path, seed=3)
    assert (tmp_path / "source.bin").read_bytes() == first
    del bits, other  # a map keeps the file from being written on some systems
    workloads.write_source(workload, 1, tmp_path, seed=4)
    assert (tmp_path / "source.bin").read_bytes() != first


def test_llama_has_its_tensors() -> None:
    workload = WORKLOADS["llama"]
    assert len(list(workload.plan(workload.full))) == 147
    assert workloads.stored_bytes(workload.plan(workload.full)) == 2 * 1_498_482_688


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


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_word_sum_sees_every_byte(dtype: str) -> None:
    array = np.arange(24).astype(dtype).reshape(2, 12)
    total = measuring.word_sum([array])
    for index in range(array.nbytes):
        changed = array.copy()
        changed.reshape(-1).view(np.uint8)[index] ^= 1
        assert measuring.word_sum([changed]) != total
    assert measuring.word_sum([array, array]) == 2 * total % (1 << 64)


def test_a_round_has_everything_once_and_peers_of_an_operation_in_turn() -> None:
    peers, operations = ["ours", "safetensors", "npz"], ["keys", "save"]
    first = list(run.order_of_round(Random(1), peers, operations, 0))
    assert sorted(first) == sorted((peer, what) for peer in peers for what in operations)
    assert first[0][1] == first[1][1] == first[2][1] != first[3][1]
    assert first == list(run.order_of_round(Random(1), peers, operations, 0))
    second = list(run.order_of_round(Random(1), peers, operations, 1))
    assert {peer for peer, _ in second} == {"ours", "safetensors"}  # npz comes every third time


def test_of_a_pair_both_take_part_in_every_round() -> None:
    found = [set(run.order_of_round(Random(1), ["npz", "ours-npz"], ["keys"], n)) for n in (0, 1)]
    assert found[0] == found[1] == {("npz", "keys"), ("ours-npz", "keys")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [["safetensors", "ours-safetensors"], ["npz", "ours-npz"]]),
        (["--peers", "npz,ours-npz"], [["npz", "ours-npz"]]),
        (["--peers", "npz"], []),
    ],
    ids=["all", "named", "nothing to compare with"],
)
def test_foreign_files_are_read_in_groups(arguments: list[str], expected: list[list[str]]) -> None:
    options = run.parse_arguments(["--foreign", *arguments])
    assert not any(environments.EVERYONE[name].is_large for name in options.peers)
    assert options.workloads == list(FOREIGN)
    assert foreign.groups("llama", options.peers)[:2] == expected


@pytest.mark.parametrize(
    ("arguments", "peers"),
    [
        ([], ["ours", "ours-unchecked", "safetensors", "ztensor-1"]),
        (["--peers", "ours,npz"], ["ours", "npz"]),
        (["--peers", "ours", "--torch"], ["ours", "torch", "ours-torch", "safetensors-torch"]),
        (["--full"], [name for name, peer in environments.PEERS.items() if not peer.is_large]),
    ],
    ids=["quick", "named", "torch", "full"],
)
def test_peers_are_chosen(arguments: list[str], peers: list[str]) -> None:
    options = run.parse_arguments(arguments)
    assert options.peers == peers
    assert ("llama" in options.workloads) == ("--full" in arguments)


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
def test_requests_to_a_server_are_counted() -> None:
    pytest.importorskip("obstore", reason="optional: obstore")
    pytest.importorskip("fsspec", reason="optional: fsspec")
    listing, rows = beside.requests_made()
    assert listing.measured is not None
    assert rows.measured is not None
    assert 0 < listing.measured < rows.measured < 30


@pytest.mark.slow
def test_the_pickle_of_a_stranger_is_opened() -> None:
    pytest.importorskip("torch", reason="writes the pickle")
    (verdict,) = beside.strangers_pickle(1)
    assert verdict.measured is not None


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux' /proc"
)
def test_a_small_run_reads_the_file_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = dataclasses.replace(FOREIGN["many"], full=10, quick=10)
    monkeypatch.setitem(FOREIGN, "many", few)
    here = dataclasses.replace(environments.EVERYONE["npz"], requirements=())  # no pip
    monkeypatch.setitem(environments.EVERYONE, "npz", here)
    json = tmp_path / "run.json"
    command = ["--foreign", "--peers", "npz,ours-npz", "--workloads", "many", "--rounds", "2"]
    status = run.main([*command, "--quiet", "--dir", str(tmp_path), "--json", str(json)])
    assert status == 0
    made = Run.from_json(json.read_text(encoding="utf-8"))
    assert made.is_foreign
    assert (made.absent, made.notes) == ({}, [])
    measured = {(one.operation, one.peer, one.round) for one in made.samples}
    peers = ("npz", "ours-npz")
    assert measured == {
        (what, peer, n) for what in few.operations for peer in peers for n in (0, 1)
    }
    assert list(tmp_path.iterdir()) == [json]
