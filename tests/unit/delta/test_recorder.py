"""`Recorder`: the chain of a training loop, which a kill at any moment leaves complete."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.delta import killed
from tests.unit.delta.chains import State, same, walk
from ztensor import delta
from ztensor.numpy import load_file, save_file

STATES = walk(8)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_file_begins_and_follows_every_so_many_deltas(tmp_path: Path) -> None:
    recorder = delta.Recorder(STATES[0], tmp_path / "run", full_every=3)
    paths = [recorder.publish(state, step) for step, state in enumerate(STATES[1:], 1)]
    deltas = [f"{number:06}.delta.zt" for number in range(1, 8)]
    fulls = [f"{number:06}.full.zt" for number in (0, 3, 6)]
    assert names(tmp_path / "run") == sorted(deltas + fulls)
    assert paths == [str(tmp_path / "run" / name) for name in deltas]
    chain = delta.log(tmp_path / "run")
    assert chain.ok
    assert [link.label for link in chain.links] == [str(step) for step in range(1, 8)]
    for number in (0, 3, 6):
        full = tmp_path / "run" / f"{number:06}.full.zt"
        assert same(load_file(full), STATES[number])
        delta.apply(tmp_path / "run", full, tmp_path / "new.zt")
        assert same(load_file(tmp_path / "new.zt"), STATES[7])


def test_old_files_may_be_deleted(tmp_path: Path) -> None:
    recorder = delta.Recorder(STATES[0], tmp_path, full_every=2)
    for state in STATES[1:6]:
        recorder.publish(state)
    for path in tmp_path.iterdir():
        if path.name < "000004" or path.name == "000004.delta.zt":
            path.unlink()
    assert names(tmp_path) == ["000004.full.zt", "000005.delta.zt"]
    assert delta.verify(tmp_path, base=STATES[4], new=STATES[5]).ok
    delta.Recorder({}, tmp_path).publish(STATES[6])
    assert delta.verify(tmp_path, base=STATES[4], new=STATES[6]).ok


def test_the_state_is_copied(tmp_path: Path) -> None:
    state = {"w": np.zeros(100, np.float32)}
    recorder = delta.Recorder(state, tmp_path)
    for step in range(1, 4):
        state["w"][step] = step  # the arrays of the loop change in place
        recorder.publish(state, step)
    assert delta.verify(tmp_path, base={"w": np.zeros(100, np.float32)}, new=state).ok
    assert [link.changed for link in delta.log(tmp_path).links] == [1, 1, 1]


@pytest.mark.parametrize(
    "options",
    [{"ids": "xxh3-128"}, {"effort": "small"}, {"values": "new"}, {"version": "2.1"},
     {"exclude": "fixed", "threads": 1}],
    ids=str,
)  # fmt: skip
def test_options_are_those_of_make(tmp_path: Path, options: Any) -> None:
    recorder = delta.Recorder(STATES[0], tmp_path, full_every=2, **options)
    recorder.publish(STATES[1])
    resumed = delta.Recorder({}, tmp_path, full_every=2, **options)
    for state in STATES[2:4]:
        resumed.publish(state)
    assert delta.verify(tmp_path, base=STATES[0], new=STATES[3]).ok
    assert same(load_file(tmp_path / "000002.full.zt"), STATES[2])


def test_tensors_come_and_go(tmp_path: Path) -> None:
    first, second = {"a": np.ones(3), "b": np.ones(3)}, {"b": np.ones((3, 1)), "c": np.zeros(2)}
    others: list[State] = [second, first, {"a": np.zeros(0)}, {}]
    recorder = delta.Recorder(first, tmp_path, full_every=1)
    for number, state in enumerate(others, 1):
        recorder.publish(state)
        assert same(load_file(tmp_path / f"{number:06}.full.zt"), state)
    assert delta.verify(tmp_path, base=first, new={}).ok


def test_states_that_come_back_are_continued(tmp_path: Path) -> None:
    for state in (*STATES[:2], STATES[0], STATES[0], STATES[1]):
        delta.Recorder(STATES[0], tmp_path).publish(state)
    delta.Recorder({}, tmp_path).publish(STATES[2], "last")
    delta.apply(tmp_path, tmp_path / "000000.full.zt", tmp_path / "new.zt", to="last")
    assert same(load_file(tmp_path / "new.zt"), STATES[2])


@pytest.mark.parametrize(
    ("options", "error"),
    [({"full_every": value}, ztensor.UsageError) for value in (0, -1, 2.0, "30", True)]
    + [({"dialect": "slime"}, ztensor.UsageError)]
    + [({option: "x"}, TypeError) for option in ("label", "efort", "base")],
)
def test_wrong_options_are_refused_at_once(tmp_path: Path, options: Any, error: Any) -> None:
    with pytest.raises(error):
        delta.Recorder(STATES[0], tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_two_recorders_of_a_folder_are_refused(tmp_path: Path) -> None:
    first = delta.Recorder(STATES[0], tmp_path)
    second = delta.Recorder(STATES[0], tmp_path)
    first.publish(STATES[1])
    with pytest.raises(ztensor.UsageError):
        second.publish(STATES[2])
    first.publish(STATES[3])
    assert delta.verify(tmp_path, base=STATES[0], new=STATES[3]).ok


def test_a_chain_keeps_its_ids(tmp_path: Path) -> None:
    delta.Recorder(STATES[0], tmp_path).publish(STATES[1])
    with pytest.raises(ztensor.UsageError):
        delta.Recorder({}, tmp_path, ids="xxh3-128")


def test_a_full_file_that_fails_leaves_the_delta(tmp_path: Path) -> None:
    recorder = delta.Recorder(STATES[0], tmp_path, full_every=2)
    recorder.publish(STATES[1])
    (tmp_path / "000002.full.zt").mkdir()  # in its way
    with pytest.raises(ztensor.SourceError):
        recorder.publish(STATES[2])
    recorder.publish(STATES[3])
    assert delta.verify(tmp_path / "000001.delta.zt").ok
    links = sorted(tmp_path.glob("*.delta.zt"))
    assert delta.verify(links, base=STATES[0], new=STATES[3]).ok


def test_a_failed_publish_can_be_repeated(tmp_path: Path) -> None:
    recorder = delta.Recorder(STATES[0], tmp_path)
    with pytest.raises(ztensor.UsageError):
        recorder.publish({"w": object()})
    assert names(tmp_path) == ["000000.full.zt"]
    recorder.publish(STATES[1])
    assert delta.verify(tmp_path, base=STATES[0], new=STATES[1]).ok


@pytest.mark.wing
def test_tensors_of_torch_are_published(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    recorder = delta.Recorder(model.state_dict(), tmp_path)
    with torch.no_grad():
        model.weight[0, 0] += 1
    recorder.publish(model.state_dict(), 1)
    assert delta.log(tmp_path).links[0].changed == 1
    assert delta.verify(tmp_path, new=model.state_dict()).ok


# --- Kills ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_at_any_call_leaves_a_chain(tmp_path: Path) -> None:
    script = Path(killed.__file__)
    root = script.parents[3]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit.delta.killed", str(tmp_path)],
        cwd=root, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    runs = [line.split() for line in ended.stdout.splitlines()]
    assert len(runs) > 5
    assert {status for _, status in runs[:-1]} == {"9"}
    assert runs[-1][1] == "0"
    published = []
    for point, _ in runs:
        folder = tmp_path / f"{int(point):03}"
        chain = delta.log(folder)
        assert chain.ok
        published.append(len(chain.links))
        full = folder / "000000.full.zt"
        delta.apply(folder, full, tmp_path / "new.zt")
        assert same(load_file(tmp_path / "new.zt"), killed.state(len(chain.links)))
        killed.publish(folder, 3)
        delta.apply(folder, full, tmp_path / "new.zt")
        assert same(load_file(tmp_path / "new.zt"), killed.state(3))
        assert all(name.endswith((".full.zt", ".delta.zt")) for name in names(folder))
    assert published == sorted(published)
    assert {published[0], published[-1]} == {1, 2}


# --- A long chain ---------------------------------------------------------------------------------


def test_a_chain_of_128_links(tmp_path: Path) -> None:
    states = walk(129)
    recorder = delta.Recorder(states[0], tmp_path / "run", full_every=30)
    for step, state in enumerate(states[1:], 1):
        recorder.publish(state, step)
    began = time.perf_counter()
    chain = delta.log(tmp_path / "run")
    assert time.perf_counter() - began < 1
    assert chain.ok
    for step in range(1, 129, 9):
        save_file(states[step], tmp_path / "state.zt")
        expected = ztensor.content_hash(tmp_path / "state.zt")
        assert chain.links[step - 1].result == f"sha256:{expected}"
    report = delta.verify(tmp_path / "run", base=states[0], new=states[-1])
    assert (report.ok, report.deltas) == (True, 128)
    delta.fold(tmp_path / "run", tmp_path / "fold.zt")
    assert delta.verify(tmp_path / "fold.zt", base=states[0], new=states[-1]).ok
    whole = (tmp_path / "run" / "000000.full.zt").stat().st_size
    assert sum(link.nbytes for link in chain.links) < 128 * whole / 4


def test_only_tied_tensors_share_bytes_in_a_full_file(tmp_path: Path) -> None:
    """Equal ones change apart: a state that is loaded from the file goes on."""
    tied, equal = np.zeros(30), np.zeros(30)
    state = {"a": tied, "b": tied, "c": equal}
    recorder = delta.Recorder(state, tmp_path / "run", full_every=None)
    loaded = load_file(tmp_path / "run" / "000000.full.zt", copy=True)
    assert np.shares_memory(loaded["a"], loaded["b"])
    assert not np.shares_memory(loaded["a"], loaded["c"])
    equal += 1
    recorder.publish(state, label=7)
    delta.apply_to(loaded, tmp_path / "run", to="7")
    assert loaded["c"].tolist() == [1] * 30
