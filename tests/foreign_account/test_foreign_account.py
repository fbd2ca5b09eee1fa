"""Every reader of another format gives a value, or names it in the loss report of its file.

`cases.py` has the files and their loss reports.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.foreign_account.cases import CASES, Case, safetensors_everything
from ztensor.cli.main import main
from ztensor.errors import NotRepresentableError
from ztensor.ext import Tally


def code_of(*words: object) -> object:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def require_libraries(case: Case) -> None:
    for library in case.libraries:
        pytest.importorskip(library)


@pytest.fixture
def everything(case: Case, tmp_path: Path) -> Path:
    require_libraries(case)
    path = tmp_path / f"everything.{case.name}"
    case.everything(path)
    return path


@pytest.fixture
def plain(case: Case, tmp_path: Path) -> Path:
    require_libraries(case)
    path = tmp_path / f"plain.{case.name}"
    case.plain(path)
    return path


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_loss_report_is_complete(case: Case, everything: Path) -> None:
    with ztensor.open(everything) as reader:
        found = {(one.kind, one.where): one.count for one in reader.unrepresented}
        assert found == dict(case.left)
        assert set(case.names) <= set(reader)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_unread_objects_are_listed_and_refused(case: Case, everything: Path) -> None:
    with ztensor.open(everything) as reader:
        unread = {where for kind, where in case.left if kind.startswith("unread ")}
        for name in unread:
            with pytest.raises(ztensor.UnsupportedError):
                reader.read(name)
        for name in set(reader) - unread:
            reader.read(name)
        report = reader.verify()
        assert not report.problems
        assert {problem.object_name for problem in report.unsupported} == unread


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_loss_report_of_weights_is_empty(case: Case, plain: Path) -> None:
    with ztensor.open(plain) as reader:
        assert reader.unrepresented == ()
        assert len(reader)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_input_is_deleted_only_where_nothing_of_it_is_left(
    case: Case, everything: Path, plain: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made.zt"
    with pytest.raises(NotRepresentableError):
        ztensor.convert(everything, made, strict=True)
    assert code_of("convert", everything, made, "--delete-input") != 0
    assert everything.exists()
    assert not made.exists()
    assert code_of("convert", plain, made, "--delete-input") == 0
    assert made.exists()
    assert not plain.exists()


@pytest.mark.parametrize("verb", ["merge", "split", "append"])
def test_verbs_that_copy_report_losses(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = tmp_path / "in.safetensors", tmp_path / "out.zt"
    safetensors_everything(source)
    with ztensor.Writer(made) as writer:
        writer.write("other", np.zeros(1))
    words = {
        "merge": ["merge", source, "-o", made, "--force", "--include", "a"],
        "split": ["split", source, "--include", "a"],
        "append": ["append", made, source, "--include", "a"],
    }[verb]
    assert code_of(*words, "--dry-run", "--json") == 0
    assert {
        "file": str(source),
        "kind": "unknown field",
        "where": "a",
        "count": 2,
        "nbytes": None,
    } in json.loads(capsys.readouterr().out)["unrepresented"]
    assert code_of(*words) == 0
    assert "unknown field 'a'" in capsys.readouterr().err


def test_a_tally_takes_bounded_memory() -> None:
    tally = Tally()
    for number in range(100_000):
        tally.add("text", str(number) * 1000 if number < 9 else str(number), nbytes=2)
    found = tally()
    assert len(found) < 2000
    assert max(len(one.where) for one in found) < 1000
    assert sum(one.count for one in found) == 100_000
    assert sum(one.nbytes or 0 for one in found) == 200_000
