"""Chains: deltas in the order of ids, whatever their names; their log, and their check."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.refusals import refused
from tests.unit.delta.chains import publish, same, walk
from ztensor import delta
from ztensor.delta import DeltaError, DeltaReason
from ztensor.numpy import load_file, save_file

STATES = walk(6)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    publish(folder, STATES)
    return folder


@pytest.fixture
def folder(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "chain"))


def labels(chain: delta.Chain) -> list[int]:
    return [int((link.label or "").split()[-1]) for link in chain.links]


def test_links_are_in_the_order_of_ids(folder: Path) -> None:
    chain = delta.log(folder)
    assert chain.ok
    assert labels(chain) == [1, 2, 3, 4, 5]
    assert [link.base for link in chain.links[1:]] == [link.result for link in chain.links[:-1]]
    assert (chain.starts, chain.ends) == ((chain.links[0].base,), (chain.links[-1].result,))
    assert (chain.forks, chain.unreachable, chain.others, chain.damaged) == ({}, (), (), {})
    assert labels(delta.log(reversed([link.path for link in chain.links]))) == [1, 2, 3, 4, 5]
    link = chain.links[0]
    changed = sum(
        np.count_nonzero(STATES[0][name] != STATES[1][name]) for name in ("f32", "bf16", "codes")
    )
    assert (link.tensors, link.changed) == (3, changed)
    assert link.elements == sum(array.size for array in STATES[1].values())
    assert (link.nbytes, link.dialect) == (Path(link.path).stat().st_size, "zt")


def test_a_gap_leaves_two_starts(folder: Path) -> None:
    (folder / "49.zt").unlink()  # the second
    chain = delta.log(folder)
    assert not chain.ok
    assert labels(chain) == [3, 4, 5, 1]  # the longer piece first
    assert len(chain.starts) == len(chain.ends) == 2
    assert chain.unreachable == (str(folder / "50.zt"),)


def test_a_fork_has_the_links_that_lead_apart(folder: Path) -> None:
    other = {**STATES[2], "fixed": np.zeros(7, np.int64)}
    delta.make(STATES[1], other, folder / "other.zt", label="step 9")
    chain = delta.log(folder)
    assert not chain.ok
    assert sorted(labels(chain)) == [1, 2, 3, 4, 5, 9]
    assert set(chain.forks[chain.links[0].result or ""]) == {
        str(folder / "49.zt"), str(folder / "other.zt"),
    }  # fmt: skip
    assert len(chain.ends) == 2


def test_a_delta_that_skips_others_is_not_a_fork(folder: Path, tmp_path: Path) -> None:
    delta.fold([folder / "49.zt", folder / "48.zt"], folder / "short.zt")
    chain = delta.log(folder)
    assert chain.ok
    assert len(chain.links) == 6
    save_file(STATES[0], tmp_path / "a.zt")
    report = delta.apply(folder, tmp_path / "a.zt", tmp_path / "b.zt")
    assert [Path(path).name for path in report.deltas] == ["50.zt", "short.zt", "47.zt", "46.zt"]
    assert same(load_file(tmp_path / "b.zt"), STATES[5])


def test_other_files_and_damaged_ones_are_listed(folder: Path) -> None:
    save_file(STATES[0], folder / "full.zt")
    (folder / "notes.txt").write_text("nothing of ours", "utf-8")
    (folder / "torn.zt").write_bytes((folder / "50.zt").read_bytes()[:-20])
    chain = delta.log(folder)
    assert chain.others == (str(folder / "full.zt"),)
    assert list(chain.damaged) == [str(folder / "torn.zt")]
    assert labels(chain) == [1, 2, 3, 4, 5]
    assert not chain.ok


def test_a_folder_without_deltas_is_a_chain_without_links(tmp_path: Path) -> None:
    chain = delta.log(tmp_path)
    assert (chain.links, chain.starts, chain.ends, chain.ok) == ((), (), (), True)


def test_a_folder_may_have_more_deltas_than_files_can_be_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    state = {"w": np.zeros(50, np.float32)}
    recorder = delta.Recorder(state, tmp_path / "run", full_every=None)
    for step in range(1, 301):
        state["w"][step % 50] += 1
        recorder.publish(state, step)
        if step == 280:
            save_file(state, tmp_path / "late.zt")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (280, before[1]))
    try:
        chain = delta.log(tmp_path / "run")
        assert (len(chain.links), chain.ok) == (300, True)
        assert delta.verify(tmp_path / "run").ok
        assert delta.verify(tmp_path / "run", base=tmp_path / "late.zt", new=state).ok
        delta.apply(tmp_path / "run", tmp_path / "late.zt", tmp_path / "new.zt")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert same(load_file(tmp_path / "new.zt"), state)


def test_a_path_that_is_not_a_delta_is_an_error(tmp_path: Path) -> None:
    with refused(ztensor.SourceError, ztensor.Reason.SOURCE_NOT_FOUND):
        delta.log(tmp_path / "x")
    save_file(STATES[0], tmp_path / "x")
    with refused(DeltaError, DeltaReason.DIALECT):
        delta.log(tmp_path / "x")


# --- The order in which they are applied ----------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "to", "last"),
    [(0, None, 5), (0, "step 2", 2), (2, "step 4", 4), (3, None, 5)],
)
def test_apply_takes_a_folder_from_any_state_to_any_other(
    folder: Path, tmp_path: Path, start: int, to: str | None, last: int
) -> None:
    save_file(STATES[start], tmp_path / "a.zt")
    delta.apply(folder, tmp_path / "a.zt", tmp_path / "b.zt", to=to)
    assert same(load_file(tmp_path / "b.zt"), STATES[last])


def test_a_state_is_named_by_the_start_of_its_id(folder: Path, tmp_path: Path) -> None:
    whole = delta.log(folder).links[2].result or ""
    save_file(STATES[0], tmp_path / "a.zt")
    for to in (whole, whole[-64:], whole[-64:][:12], whole[-64:][:6]):
        delta.apply(folder, tmp_path / "a.zt", tmp_path / "b.zt", to=to)
        assert same(load_file(tmp_path / "b.zt"), STATES[3])


BROKEN: dict[str, tuple[Callable[[Path], Any], str | None]] = {
    "a gap": (lambda folder: (folder / "48.zt").unlink(), None),
    "a fork": (lambda f: delta.make(STATES[1], STATES[0] | {"x": np.ones(1)}, f / "0.zt"), None),
    "a cycle": (lambda folder: delta.make(STATES[5], STATES[0], folder / "0.zt"), None),
    "no such label": (lambda folder: None, "step 6"),
    "digits of no id": (lambda folder: None, "0123456789abcdef"),
    "two of one label": (
        lambda folder: delta.make(STATES[5], STATES[4], folder / "0.zt", label="step 2"), "step 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_links_that_are_not_one_chain_are_refused(folder: Path, tmp_path: Path, case: str) -> None:
    change, to = BROKEN[case]
    change(folder)
    save_file(STATES[0], tmp_path / "a.zt")
    with refused(DeltaError, DeltaReason.CHAIN):
        delta.apply(folder, tmp_path / "a.zt", tmp_path / "b.zt", to=to)
    assert not (tmp_path / "b.zt").exists()


# --- Their check ----------------------------------------------------------------------------------


@pytest.mark.parametrize("effort", ["fast", "small"])
def test_right_deltas_have_no_problem(tmp_path: Path, effort: Any) -> None:
    publish(tmp_path, STATES, effort=effort)
    report = delta.verify(tmp_path)
    assert (report.ok, report.deltas, report.tensors) == (True, 5, 15)
    assert not report.states_checked
    for base in (STATES[0], STATES[3]):
        report = delta.verify(tmp_path, base=base, new=STATES[5])
        assert (report.ok, report.undecoded, report.states_checked) == (True, 0, True)


def test_classes_are_not_decoded_without_the_base(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    old = dice.normal(size=1 << 16).astype(np.float32)
    new = np.where(np.abs(old) < 0.1, old + np.float32(1e-3), old)  # the small ones change
    delta.make({"w": old}, {"w": new}, tmp_path / "1.zt", effort="small")
    report = delta.verify(tmp_path / "1.zt")
    assert (report.ok, report.undecoded) == (True, 1)
    report = delta.verify(tmp_path / "1.zt", base={"w": old}, new={"w": new})
    assert (report.ok, report.undecoded) == (True, 0)


WRONG: dict[str, tuple[Callable[[Path], Any], dict[str, Any], list[Any]]] = {
    "a byte": (
        lambda folder: flip(folder / "48.zt", 200), {}, [ztensor.Reason.DIGEST_MISMATCH],
    ),
    "a manifest": (
        lambda folder: flip(folder / "48.zt", -60), {},
        [ztensor.Reason.MANIFEST_DIGEST, DeltaReason.CHAIN],
    ),
    "a gap": (lambda folder: (folder / "48.zt").unlink(), {}, [DeltaReason.CHAIN]),
    "another base": (
        lambda folder: None, {"base": {**STATES[0], "fixed": np.ones(7)}}, [DeltaReason.BASE],
    ),
    "another result": (lambda folder: None, {"new": STATES[4]}, [DeltaReason.RESULT]),
    "a gap behind the base": (
        lambda folder: (folder / "48.zt").unlink(), {"base": STATES[0]}, [DeltaReason.CHAIN],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_each_problem_is_reported(folder: Path, case: str) -> None:
    change, states, reasons = WRONG[case]
    change(folder)
    report = delta.verify(folder, **states)
    assert not report.ok
    assert [problem.reason for problem in report.problems] == reasons
