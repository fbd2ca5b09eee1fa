"""Files named by another file: beneath its folder, and through no link."""

from __future__ import annotations

from pathlib import Path

import pytest

import ztensor
from ztensor.source.beneath import open_beneath, parts_of


@pytest.mark.parametrize(
    ("location", "parts"),
    [
        ("w.bin", ("w.bin",)),
        ("./w.bin", ("w.bin",)),
        ("a/b/w.bin", ("a", "b", "w.bin")),
        ("a/./ä b", ("a", "ä b")),
    ],
)
def test_a_path_beneath(location: str, parts: tuple[str, ...]) -> None:
    assert parts_of(location) == parts


@pytest.mark.parametrize(
    "location",
    ["", ".", "/", "/w", "..", "../w", "a/../w", "a//w", "a/", "a\\w", "C:w", "w\0", "a /w", "w."],
)
def test_a_path_that_may_leave_is_refused(location: str) -> None:
    with pytest.raises(ztensor.FormatError):
        parts_of(location)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "w").write_bytes(b"abc")
    model = str(tmp_path / "model.onnx")
    source = open_beneath(model, ("w",))
    assert source.size == 3
    source.close()
    with pytest.raises(ztensor.SourceError):
        open_beneath(model, ("folder",))
    with pytest.raises(FileNotFoundError):
        open_beneath(model, ("none",))
