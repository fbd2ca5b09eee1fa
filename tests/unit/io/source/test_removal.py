"""Files are removed only if they are ours, and through no link."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from ztensor.ext import OpenFolder, remove


@pytest.fixture(params=["descriptors", "paths"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Play a system that has no calls by an open folder, such as Windows."""
    if request.param == "paths":
        monkeypatch.setattr(os, "supports_dir_fd", set())
    return str(request.param)


def is_mine(file: BinaryIO) -> bool:
    return file.read() == b"mine"


def says_yes(file: BinaryIO) -> bool:
    del file
    return True


@pytest.mark.usefixtures("system")
def test_a_file_goes_where_its_contents_say_so(tmp_path: Path) -> None:
    mine, other = tmp_path / "a.zt", tmp_path / "b.zt"
    mine.write_bytes(b"mine")
    other.write_bytes(b"other")
    assert remove(str(mine), is_mine)
    assert not remove(str(other), is_mine)
    assert not remove(str(mine), is_mine)  # gone
    assert not remove(str(tmp_path / "none" / "a.zt"), is_mine)
    assert [path.name for path in tmp_path.iterdir()] == ["b.zt"]


@pytest.mark.usefixtures("system")
def test_a_file_goes_where_it_is_the_one_that_was_made(tmp_path: Path) -> None:
    path = tmp_path / "a.zt"
    path.write_bytes(b"mine")
    stamp = os.lstat(str(path))
    (tmp_path / "b.zt").write_bytes(b"other")
    os.replace(tmp_path / "b.zt", path)
    assert not remove(str(path), stamp)
    assert path.read_bytes() == b"other"
    assert remove(str(path), os.lstat(str(path)))


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def folder(path: Path, target: Path) -> None:
    del target
    path.mkdir()


def pipe(path: Path, target: Path) -> None:
    del target
    os.mkfifo(path)


@pytest.mark.usefixtures("system")
@pytest.mark.skipif(os.name == "nt", reason="makes links and pipes")
@pytest.mark.parametrize("plant", [link, folder, pipe])
def test_what_is_no_regular_file_stays(tmp_path: Path, plant: Callable[[Path, Path], None]) -> None:
    target, path = tmp_path / "target", tmp_path / "a.zt"
    target.write_bytes(b"mine")
    plant(path, target)
    assert not remove(str(path), says_yes)
    assert not remove(str(path), os.lstat(str(target)))
    assert os.path.lexists(path)
    # A link goes by its own stamp: then the caller named the link itself.
    assert remove(str(path), os.lstat(str(path))) is (plant is link)
    assert target.read_bytes() == b"mine"


@pytest.mark.usefixtures("system")
def test_a_file_that_is_replaced_while_it_is_checked_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.zt"
    path.write_bytes(b"mine")

    def swapped(file: BinaryIO) -> bool:
        (tmp_path / "b.zt").write_bytes(b"other")
        os.replace(tmp_path / "b.zt", path)
        return is_mine(file)

    assert not remove(str(path), swapped)
    assert path.read_bytes() == b"other"


@pytest.mark.skipif(os.name == "nt", reason="makes links, and renames an open folder")
def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    mine, other = tmp_path / "run", tmp_path / "other"
    for place in (mine, other):
        place.mkdir()
        (place / "a.zt").write_bytes(b"mine")
    with OpenFolder(str(mine)) as inside:
        mine.rename(tmp_path / "moved")
        mine.symlink_to(other)
        assert inside.names() == ["a.zt"]
        assert inside.remove("a.zt", is_mine)
    assert (other / "a.zt").exists()
    assert list((tmp_path / "moved").iterdir()) == []


@pytest.mark.usefixtures("system")
@pytest.mark.skipif(os.name == "nt", reason="makes links")
def test_a_link_is_no_folder_of_ours(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "step").symlink_to(other)
    with OpenFolder(str(tmp_path)) as run:
        with pytest.raises(OSError, match="step"):
            OpenFolder("step", within=run)
        with OpenFolder("other", within=run) as inside:
            assert inside.names() == []
        assert not run.remove_folder("step")
        assert not run.remove_folder("step", whole=True)
    assert other.is_dir()


@pytest.mark.usefixtures("system")
def test_a_folder_goes_where_it_is_empty_and_the_one_that_was_made(tmp_path: Path) -> None:
    path = tmp_path / "new"
    path.mkdir()
    made = os.lstat(path)
    (path / "notes").touch()
    with OpenFolder(str(path)) as inside:
        assert not inside.remove_folder("notes", whole=True)
    with OpenFolder(str(tmp_path)) as folder:
        assert not folder.remove_folder("new", made)
        assert not folder.remove_folder("new", os.lstat(path / "notes"), whole=True)
        assert (path / "notes").exists()
        assert folder.remove_folder("new", made, whole=True)
        assert not folder.remove_folder("new", made)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_flushes_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    (tmp_path / "a").write_bytes(b"")
    with OpenFolder(str(tmp_path)) as folder:
        if number == errno.EIO:
            with pytest.raises(OSError, match="error"):
                folder.flush()
        else:
            folder.flush()
        with pytest.raises(OSError):  # noqa: PT011  # any of these
            folder.flush(["a"])
