"""The conformance files of deltas: each is read as `deltas.json` says, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ztensor
from tests.deltas import make
from ztensor import delta
from ztensor.delta import DeltaError, DeltaReason

FOLDER = Path(make.__file__).parent
FILES: list[dict[str, Any]] = json.loads((FOLDER / "deltas.json").read_text("utf-8"))["files"]
ACCEPTED = [each for each in FILES if each["expect"] == "accept"]
REFUSED = [each for each in FILES if each["expect"] == "reject"]


def name(entry: dict[str, Any]) -> str:
    return str(entry["path"])


def test_every_case_has_a_file() -> None:
    assert len(ACCEPTED) == len(make.STREAMS) + len(make.MADE)
    assert len(REFUSED) == len(make.REFUSED) >= 20
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.zt")}
    assert there == {name(each) for each in FILES}


@pytest.mark.parametrize("entry", ACCEPTED, ids=name)
def test_a_delta_is_read_as_listed(entry: dict[str, Any]) -> None:
    path = FOLDER / entry["path"]
    with delta.open(path) as changes:
        for key in ("ids", "base", "result", "label", "changed", "elements"):
            assert getattr(changes, key) == entry[key], key
        assert {name: old.hex() for name, old in changes.removed.items()} == entry["removed"]
        assert changes.keys() == entry["changes"].keys()
        for name, change in changes.items():
            expected = entry["changes"][name]
            assert change.kind == expected["kind"]
            assert change.new is not None
            assert change.new.hex() == expected["new"]
            assert (change.old and change.old.hex()) == expected["old"]
            parts = change.parts.items()
            assert {role: part.coding for role, part in parts} == expected["codings"]
            assert {role: part.changed for role, part in parts} == expected["changed"]
    assert make.described(path) == entry


@pytest.mark.parametrize("entry", ACCEPTED, ids=name)
def test_a_delta_gives_the_recorded_tensors(entry: dict[str, Any]) -> None:
    report = delta.verify(FOLDER / entry["path"], base=FOLDER / "base.zt")
    assert report.problems == ()
    assert report.states_checked


@pytest.mark.parametrize("profile", ["fast", "small", "new-values", "xxh3-128", "in-2.1"])
def test_a_profile_gives_the_next_state(tmp_path: Path, profile: str) -> None:
    path = FOLDER / "made" / f"{profile}.zt"
    delta.apply(path, FOLDER / "base.zt", tmp_path / "next.zt", verify="full")
    assert ztensor.diff(tmp_path / "next.zt", FOLDER / "next.zt").ok


def read(path: Path) -> None:
    with delta.open(path) as changes:
        for change in changes.values():
            change.tensor(ztensor.Tensor(make.BASE[change.name]))


@pytest.mark.parametrize("entry", REFUSED, ids=name)
def test_a_malformed_delta_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(DeltaError) as caught:
        read(FOLDER / entry["path"])
    assert caught.value.reason is DeltaReason.MALFORMED
    assert caught.value.file is not None or caught.value.object_name is not None
