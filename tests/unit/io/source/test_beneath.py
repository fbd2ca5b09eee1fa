"""Files named by another file: inside its folder, and through no link out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import ztensor
from ztensor.ext import Beneath


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
    assert Beneath.parts_of(location) == parts


@pytest.mark.parametrize(
    "location",
    ["", ".", "/w", "..", "a/../w", "a//w", "a/", "..\\w", "a\\w", "C:w", "w\0", "a /w", "w."],
)
def test_a_path_that_may_leave_is_refused(location: str) -> None:
    with pytest.raises(ztensor.FormatError):
        Beneath.parts_of(location)


def linked(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    try:
        link.symlink_to(target, target_is_directory=target.is_dir())
    except OSError:
        pytest.skip("this system lets us make no links")


@pytest.mark.parametrize("parts", [("w",), ("sub", "w")], ids=["file", "folder"])
@pytest.mark.parametrize("is_cache", [False, True], ids=["plain", "linked model"])
def test_a_link_out_of_the_folder_is_refused(
    parts: tuple[str, ...], is_cache: bool, tmp_path: Path
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir()
    (outside / "w").write_bytes(b"secret")
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_bytes(b"abc")
    if is_cache:
        linked(home / "model.onnx", tmp_path / "blobs" / "1")
    linked(home / parts[0], outside / "w" if len(parts) == 1 else outside)
    with pytest.raises(ztensor.UnsupportedError, match="symbolic link"):
        Beneath.beside(str(home / "model.onnx"), parts).open()


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "w").write_bytes(b"abc")
    model = str(tmp_path / "model.onnx")
    source = Beneath.beside(model, ("w",)).open()
    assert source.size == 3
    source.close()
    with pytest.raises(ztensor.SourceError):
        Beneath.beside(model, ("folder",)).open()
    with pytest.raises(FileNotFoundError):
        Beneath.beside(model, ("none",)).open()
