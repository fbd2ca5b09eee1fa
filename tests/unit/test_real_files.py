"""What `make suite SUITE=real-files` does: it notices what is wrong, and its pins are whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.flipping import flip
from tests.real import checking, healthy
from tests.real.archives import joined, packages, read_pins
from tests.real.checking import check

A = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.npz"
    np.savez(path, a=A, b=A + 1, text=np.array(["x"]))
    return path


def theirs(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """Have the library say something else."""

    def read(kind: str, path: Path) -> Iterator[tuple[str, Any]]:
        yield from {"a": A, "b": A + 1, "text": None, **values}.items()

    monkeypatch.setattr(checking, "theirs", read)


def test_a_good_file_has_no_faults(path: Path) -> None:
    row = check(path, "package", "a.npz")
    assert row.faults == []
    assert (row.format, row.objects, row.equal, row.reason) == ("npz", 3, 2, "")
    assert (dict(row.unread), row.value_nbytes) == ({"<U1": 1}, 2 * A.nbytes)
    assert [one.name for one in path.parent.iterdir()] == ["a.npz"]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"a": A + 1}, "'a' differs"),
        ({"a": A.astype(np.float64)}, "'a' differs"),
        ({"a": A.reshape(-1)}, "'a' differs"),
        ({"c": A}, "'c' is in the file, and not listed"),
        ({"c": None}, "'c' is in the file, and in no account"),
    ],
    ids=["value", "type", "shape", "dropped", "dropped text"],
)
def test_what_a_library_reads_otherwise_is_a_fault(
    values: dict[str, Any], fault: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs(monkeypatch, **values)
    assert check(path, "package", "a.npz").faults[0].startswith(fault)


def test_a_damaged_file_is_a_fault(path: Path) -> None:
    flip(path, path.read_bytes().index(A.tobytes()))
    assert check(path, "package", "a.npz").faults


def test_a_refused_file_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"{}")
    row = check(tmp_path / "a.npz", "package", "a.npz")
    assert (row.reason, row.format, row.faults) == ("not_ztensor", "refused", [])
    np.save(tmp_path / "b.npy", np.array([{}], object), allow_pickle=True)
    row = check(tmp_path / "b.npy", "package", "b.npy")
    assert (row.reason, row.faults) == ("not_representable", [])


def test_everything_is_pinned() -> None:
    known, pins = {package.name for package in packages()}, read_pins()
    assert set(pins.archives) == known
    assert {entry["package"] for entry in pins.files} <= known
    assert all(len(entry["sha256"]) == 64 for entry in pins.files)
    read = [entry for entry in pins.files if "reason" not in entry]
    assert len(read) >= 150
    assert len({entry["format"] for entry in read}) >= 9
    assert len({package.program for package in packages()}) >= 13
    assert all(package in known for parts in joined().values() for package, _ in parts)


def test_the_table_of_healthy_models_is_on_its_page() -> None:
    page = (healthy.ROOT / healthy.PAGE).read_text("utf-8")
    table = page.split(healthy.MARKS[0])[1].split(healthy.MARKS[1])[0]
    rows = [line for line in table.splitlines() if " | `" in line]
    weights = {package.name for package in packages() if package.has_weights}
    wanted = sum(
        entry["package"] in weights and "reason" not in entry for entry in read_pins().files
    )
    assert len(rows) == wanted + 1  # and the one that is installed
    assert healthy.written(page, table.strip() + "\n") == page
