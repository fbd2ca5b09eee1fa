"""Dry runs take every step but writing; and what verbs ask an editor besides."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import (
    ArgumentValueError,
    DigestMismatchError,
    NotRepresentableError,
    ObjectNotFoundError,
    SourceNotFoundError,
    SourceNotRegularError,
    UsageError,
)

CORPUS = Path(__file__).parents[3] / "corpus"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.zt"
    with ztensor.Writer(path, attributes={"step": 1}) as writer:
        writer.write("a", np.arange(6.0), attributes={"unit": "m"})
        writer.write("b", np.zeros((300, 1000)))
    return path


def state(path: Path) -> tuple[bytes, int, int, list[str]]:
    status = path.stat()
    return path.read_bytes(), status.st_ino, status.st_mtime_ns, sorted(os.listdir(path.parent))


def edit_all(path: Path, **options: Any) -> int:
    with ztensor.Editor(path, **options) as editor:
        editor.write("new", np.arange(3_000_000), compress=True)
        editor.write("raw", np.arange(3_000_000))
        editor.replace("a", np.zeros((2, 2), np.int8))
        editor.rename({"b": "c"})
        editor.set_attributes({"k": [1, 2]})
        return editor.finish()


OPERATIONS: dict[str, Callable[..., object]] = {
    "in place": edit_all,
    "atomic": lambda path, **options: edit_all(path, atomic=True, **options),
    "merge onto itself": lambda path, **options: ztensor.merge([path], path, **options),
}


@pytest.mark.wing
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_dry_run_returns_what_the_operation_returns(file: Path, name: str) -> None:
    before = state(file)
    expected = OPERATIONS[name](file, dry_run=True)
    assert state(file) == before
    assert OPERATIONS[name](file) == expected
    assert state(file) != before


@pytest.mark.parametrize("container", ["0.1.1", "1.0.1"])
def test_a_dry_run_of_a_rewrite(tmp_path: Path, container: str) -> None:
    path = tmp_path / "old.zt"
    shutil.copy(CORPUS / "real" / container / "torch.zt", path)
    before = state(path)
    seen: list[tuple[int, int]] = []
    with ztensor.Editor(path, dry_run=True, progress=lambda *counts: seen.append(counts)) as editor:
        assert editor.rewritten_from is not None
        editor.write("new", np.zeros(5))
        length = editor.finish()
    assert state(path) == before
    assert seen
    with ztensor.Editor(path) as editor:
        editor.write("new", np.zeros(5))
    assert path.stat().st_size == length


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.wing
def test_what_is_impossible_fails_in_a_dry_run_too(file: Path, dry_run: bool) -> None:
    before = file.read_bytes()
    with pytest.raises(NotRepresentableError), ztensor.Editor(file, dry_run=dry_run) as editor:
        editor.write("new", np.array(["text"]))
    with pytest.raises(UsageError), ztensor.Editor(file, dry_run=dry_run) as editor:
        editor.write("a", np.zeros(3))
    with pytest.raises(SourceNotFoundError):
        ztensor.merge([file], file.parent / "missing" / "m.zt", dry_run=dry_run)
    with pytest.raises(SourceNotRegularError):
        ztensor.merge([file], file.parent, dry_run=dry_run)
    damaged = bytearray(before)
    with ztensor.open(file) as reader:
        damaged[reader.location("b").offset] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(DigestMismatchError):
        ztensor.compact(file, dry_run=dry_run)
    with pytest.raises(DigestMismatchError):
        ztensor.merge([file], file.parent / "merged.zt", dry_run=dry_run)
    assert file.read_bytes() == damaged
    assert sorted(os.listdir(file.parent)) == ["m.zt"]


@pytest.mark.parametrize("change", ["repair", "atomic"])
def test_a_long_copy_shows_progress(file: Path, tmp_path: Path, change: str) -> None:
    seen: list[tuple[int, int]] = []
    if change == "repair":
        ztensor.repair(file, write=tmp_path / "out.zt", progress=lambda *done: seen.append(done))
    else:
        with ztensor.Editor(file, atomic=True, progress=lambda *done: seen.append(done)) as editor:
            editor.remove("a")
    assert seen[-1][0] == seen[-1][1] > 2_400_000
    assert all(0 < done <= total for done, total in seen)


# --- What an editor knows -------------------------------------------------------------------


def test_an_editor_knows_what_the_file_will_hold(file: Path) -> None:
    size = file.stat().st_size
    with ztensor.Editor(file) as editor:
        assert editor.old_nbytes == size
        assert editor.attributes == {"step": 1}
        editor.set_attributes({"step": None, "k": "v"})
        assert editor.attributes == {"k": "v"}
        editor.write("new", np.zeros((2, 3), np.float32))
        assert editor.metadata("new").shape == (2, 3)
        assert editor.metadata("new").stored_nbytes == 24
        assert editor.metadata("a").attributes == {"unit": "m"}
        editor.remove("a")
        with pytest.raises(ObjectNotFoundError):
            editor.metadata("a")
        editor.abort()


def test_replacing_in_pieces_keeps_attributes(file: Path) -> None:
    rows = np.arange(20.0).reshape(10, 2)
    with ztensor.Editor(file) as editor, editor.replace_stream("a", (10, 2), "float64") as sink:
        for row in rows:
            sink.write(row)
    with ztensor.open(file, verify=True) as reader:
        assert np.array_equal(reader["a"], rows)
        assert reader.metadata("a").attributes == {"unit": "m"}


def test_replacing_in_pieces_that_fails(file: Path) -> None:
    before = file.read_bytes()
    with ztensor.Editor(file) as editor:
        with pytest.raises(ObjectNotFoundError):
            editor.replace_stream("nothing", (1,), "float64")
        with pytest.raises(ArgumentValueError):
            editor.replace_stream("a", (1,), "no type")
        assert editor.keys() == ["a", "b"] or editor.keys() == ["b", "a"]
        assert editor.finish() == len(before)
    assert file.read_bytes() == before
    with (
        pytest.raises(UsageError, match="elements are missing"),
        ztensor.Editor(file) as editor,
        editor.replace_stream("a", (2,), "float64") as sink,
    ):
        sink.write(np.zeros(1))
    assert ztensor.open(file)["a"].shape == (6,)
