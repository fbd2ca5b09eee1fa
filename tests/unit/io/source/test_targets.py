"""What may be written over, and what is said where nothing may."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ztensor.errors import (
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    UsageError,
)
from ztensor.ext import Place
from ztensor.io.source.targets import require_own_link


def test_a_link_to_nothing_is_something(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError):
        Place.of(tmp_path / "link").require_free(overwrite=False)


@pytest.mark.parametrize("makes_folder", [False, True])
def test_a_dry_run_finds_what_the_run_would(tmp_path: Path, makes_folder: bool) -> None:
    (tmp_path / "file").write_bytes(b"old")
    for there in ("file", "new"):
        sink = Place.of(tmp_path / there).dry(makes_folder=makes_folder)
        sink.write(b"bytes")
        assert (sink.name, sink.end_blobs()) == (str(tmp_path / there), 5)
        sink.commit(b"manifest")
        assert sink.position == 13
    with pytest.raises(SourceNotRegularError, match="a folder"):
        Place.of(tmp_path).dry(makes_folder=makes_folder)
    with pytest.raises(SourceError):  # a file is in the place of its folder
        Place.of(tmp_path / "file" / "m.zt").dry(makes_folder=makes_folder)
    if makes_folder:
        Place.of(tmp_path / "gone" / "m.zt").dry(makes_folder=True)
    else:
        with pytest.raises(SourceNotFoundError, match="does not exist"):
            Place.of(tmp_path / "gone" / "m.zt").dry()
    assert sorted(os.listdir(tmp_path)) == ["file"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_dry_run_refuses_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceNotRegularError, match="a device or pipe"):
        Place.of(tmp_path / "pipe").dry()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no users")
def test_own_links_are_followed_where_everyone_may_put_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    tmp_path.chmod(0o1777)
    require_own_link(str(tmp_path / "link"))
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    require_own_link(str(tmp_path / "link"))  # of who has the folder
