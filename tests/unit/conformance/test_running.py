"""Our own reader treats all 856 files as expected; wrong readers are caught."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ztensor.conformance import Answer, Ended, run_corpus
from ztensor.conformance.judging import Outcome, expected_of, judge
from ztensor.conformance.reader import read_file
from ztensor.errors import ArgumentTypeError, ArgumentValueError, FormatError, SourceError

CORPORA = Path(__file__).parents[2]
SIZES = {"corpus": 503, "corpus2": 353}


@functools.cache
def answers(corpus: str) -> list[tuple[dict[str, Any], Answer]]:
    """Return our own reader's answer for each file, read once for all tests."""
    folder = CORPORA / corpus
    entries = json.loads((folder / "corpus.json").read_text("utf-8"))["files"]
    return [(entry, read_file(str(folder / entry["path"]))) for entry in entries]


def replayed(corpus: str) -> Callable[[str], Answer]:
    """Return a reader that gives these answers again."""
    known = {str(CORPORA / corpus / entry["path"]): answer for entry, answer in answers(corpus)}
    return known.__getitem__


@pytest.mark.slow
@pytest.mark.parametrize("corpus", SIZES)
def test_our_own_reader(corpus: str) -> None:
    seen: list[tuple[int, int]] = []
    report = run_corpus(
        CORPORA / corpus, replayed(corpus), progress=lambda done, total: seen.append((done, total))
    )
    assert report.failures == ()
    assert report.ok
    assert report.counts == {
        "as expected": SIZES[corpus], "wrong": 0, "crashed": 0, "timed out": 0
    }  # fmt: skip
    assert sum(sum(counts.values()) for counts in report.sections.values()) == SIZES[corpus]
    assert seen[-1] == (SIZES[corpus], SIZES[corpus])


@pytest.mark.slow
@pytest.mark.parametrize("corpus", SIZES)
@pytest.mark.parametrize("ended", [Ended.ACCEPTED, Ended.REFUSED, Ended.CRASHED, Ended.TIMED_OUT])
def test_the_same_answer_for_every_file_is_caught(corpus: str, ended: Ended) -> None:
    report = run_corpus(CORPORA / corpus, lambda _: Answer(ended))
    expected = [expected_of(entry) for entry, _ in answers(corpus)]
    failed = {
        Ended.ACCEPTED: expected.count("reject"),
        Ended.REFUSED: expected.count("accept"),
    }.get(ended, len(expected))
    outcome = {Ended.CRASHED: Outcome.CRASHED, Ended.TIMED_OUT: Outcome.TIMED_OUT}.get(
        ended, Outcome.WRONG
    )
    assert failed > 50
    assert report.counts[outcome] == len(report.failures) == failed
    assert not report.ok


def _without_an_object(objects: dict[str, Any], name: str) -> None:
    del objects[name]


def _with_one_more(objects: dict[str, Any], name: str) -> None:
    objects[f"{name}, again"] = objects[name]


def _of_another_shape(objects: dict[str, Any], name: str) -> None:
    objects[name]["shape"] = [*objects[name]["shape"], 1]


def _with_other_elements(objects: dict[str, Any], name: str) -> None:
    objects[name]["dense_sha256"] = "0" * 64


def _with_other_bytes(objects: dict[str, Any], name: str) -> None:
    for role in objects[name]["components"]:
        objects[name]["components"][role] = "0" * 64


def _with_another_role(objects: dict[str, Any], name: str) -> None:
    objects[name]["components"]["other"] = "0" * 64


def _refused(objects: dict[str, Any], name: str) -> None:
    objects[name] = {"error": "no"}


@pytest.mark.slow
@pytest.mark.parametrize("corpus", SIZES)
@pytest.mark.parametrize(
    "change",
    [_without_an_object, _with_one_more, _of_another_shape, _with_other_elements,
     _with_other_bytes, _with_another_role, _refused],
)  # fmt: skip
def test_one_wrong_fact_is_caught(corpus: str, change: Callable[..., None]) -> None:
    """In every accepted file, for every readable object with a known fact."""
    count = 0
    for entry, answer in answers(corpus):
        if entry["expect"] != "accept" or answer.objects is None:
            continue
        for name, expected in entry.get("objects", {}).items():
            found = answer.objects[name]
            if "error" in found or expected.get("readable", True) is not True:
                continue
            if name in entry.get("may_refuse", ()) and change is _refused:
                continue
            if change is _with_other_elements and None in (
                expected["dense_sha256"], found.get("dense_sha256")
            ):  # fmt: skip
                continue
            if change is _with_other_bytes and (
                entry["spec_version"] == "0.1.0" or not expected["components"]
            ):
                continue
            wrong = {**answer.objects, name: copy.deepcopy(found)}
            change(wrong, name)
            verdict = judge(entry, Answer(answer.ended, "", wrong, answer.verified))
            assert verdict.outcome is Outcome.WRONG, (entry["path"], name)
            assert verdict.why
            count += 1
    assert count > 100


@pytest.mark.parametrize("corpus", SIZES)
def test_faults_that_are_not_seen_are_caught(corpus: str) -> None:
    """A reader that finds no fault in the object in question, and no damage."""
    count = 0
    for entry, answer in answers(corpus):
        if entry["expect"] != "reject" or answer.objects is None:
            continue
        whole = {
            name: {"shape": found.get("shape", []), "components": {}}
            for name, found in answer.objects.items()
        }
        blind = Answer(Ended.ACCEPTED, "", whole, verified=True)
        if expected_of(entry) == "reject":
            assert judge(entry, blind).outcome is Outcome.WRONG, entry["path"]
            count += 1
    assert count > 20


def test_a_false_alarm_is_caught() -> None:
    for entry, answer in answers("corpus2"):
        if entry["expect"] == "accept" and answer.verified:
            alarmed = Answer(answer.ended, "", answer.objects, verified=False)
            assert judge(entry, alarmed).outcome is Outcome.WRONG, entry["path"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A corpus of four files."""
    chosen = ["real/2.1.2/canonical.zt", "spec/unknown_type.zt", "reject/cut_by_1.zt"]
    source = CORPORA / "corpus2"
    entries = json.loads((source / "corpus.json").read_text("utf-8"))["files"]
    some = [entry for entry in entries if entry["path"] in chosen]
    some += [entry for entry in entries if entry.get("stage") == "read"][:1]
    for entry in some:
        path = tmp_path / "small" / entry["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((source / entry["path"]).read_bytes())
    (tmp_path / "small" / "corpus.json").write_text(json.dumps({"files": some}), "utf-8")
    return tmp_path / "small"


@pytest.mark.slow
def test_our_own_command(small: Path) -> None:
    """`python -m ztensor.conformance`, the model for other readers, answers as the function."""
    command = [sys.executable, "-m", "ztensor.conformance"]
    assert run_corpus(small, command, seconds=60, jobs=2) == run_corpus(small)
    assert run_corpus(small).counts["as expected"] == 4
    good = str(small / "real/2.1.2/canonical.zt")
    done = subprocess.run([*command, good], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout)["objects"] == read_file(good).objects
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 2


def test_a_program_that_is_wrong(small: Path) -> None:
    report = run_corpus(small, [sys.executable, "-S", "-c", "pass"], seconds=60)
    assert report.counts == {"as expected": 2, "wrong": 2, "crashed": 0, "timed out": 0}
    report = run_corpus(small, [sys.executable, "-S", "-c", "raise SystemExit(7)"], seconds=60)
    assert report.counts["crashed"] == 4
    assert {one.why for one in report.failures} == {"exit code 7"}


def test_wrong_arguments(small: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        run_corpus(small, [str(tmp_path / "no such program")])
    with pytest.raises(SourceError):
        run_corpus(tmp_path)
    for wrong in ([], [""], ["a\0b"]):
        with pytest.raises(ArgumentValueError):
            run_corpus(small, wrong)
    with pytest.raises(ArgumentTypeError):
        run_corpus(small, "reader --strict")
    for arguments in ({"seconds": 0}, {"memory": 0}, {"jobs": 0}):
        with pytest.raises(ArgumentValueError):
            run_corpus(small, ["true"], **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "listing",
    [
        b"", b"[]", b"{}", b'{"files": 3}', b"[" * 100_000, b'{"files": [{}]}',
        b'{"files": [{"path": "a", "spec_version": "2", "expect": "reject"}]}',
        b'{"files": [{"path": "../a", "spec_version": "2", "expect": "accept"}]}',
        b'{"files": [{"path": "/a", "spec_version": "2", "expect": "accept"}]}',
        b'{"files": [{"path": "a", "spec_version": "2", "expect": "accept", "objects": {"w": 1}}]}',
    ],
)  # fmt: skip
def test_a_malformed_listing(tmp_path: Path, listing: bytes) -> None:
    (tmp_path / "corpus.json").write_bytes(listing)
    with pytest.raises(FormatError):
        run_corpus(tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    listing = {"files": [{"path": "a.zt", "spec_version": "2", "expect": "accept"}]}
    (tmp_path / "corpus.json").write_text(json.dumps(listing), "utf-8")
    with pytest.raises(SourceError):
        run_corpus(tmp_path)
