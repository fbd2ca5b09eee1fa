"""New bytes behind a finished file, in both orders: old ones stay, and it ends with a state.

*Behind*: the guard is manifest and footer (1.x). *Over*: it is a copy of the footer (2.x).
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.refusals import refused
from ztensor.errors import (
    ClosedError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
)
from ztensor.io.source import appending
from ztensor.io.source.appending import CommitBehind, CommitOver, LockedFile

GUARD = b"<the old footer, of exactly forty bytes>"
FOOTER = b"<the new footer, of exactly forty bytes>"
MANIFEST = b"manifest"
OLD = b"HEAD" + b"old blob" * 100 + GUARD
SECTOR = 512

RECORDED = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="records positional writes")
KINDS: dict[str, type[CommitBehind | CommitOver]] = {"behind": CommitBehind, "over": CommitOver}
BOTH = pytest.mark.parametrize("order", ["behind", "over"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(OLD)
    return file


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(appending, "_AHEAD_BYTES", 5000)


def opened(path: Path, order: str, **options: Any) -> CommitBehind | CommitOver:
    return KINDS[order](LockedFile(str(path), **options), path.read_bytes()[-40:])


def commit_all(sink: CommitBehind | CommitOver, data: bytes, manifest: bytes = MANIFEST) -> int:
    """Write all, and return where the manifest was said to lie."""
    for start in range(0, len(data), 1300):
        sink.write(data[start : start + 1300])
    at = sink.end_blobs()
    sink.commit(manifest + FOOTER)
    return at


def in_one_sector(end: int) -> bool:
    return (end - 40) // SECTOR == (end - 1) // SECTOR


class Recorded:
    """Records what is done to a file, and its content after each call."""

    def __init__(self, path: Path) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.contents: list[bytes] = []
        self._path = path

    def __enter__(self) -> Recorded:
        pwrite, fsync, ftruncate = os.pwrite, os.fsync, os.ftruncate

        def write(descriptor: int, data: Any, offset: int) -> int:
            count = pwrite(descriptor, data, offset)
            self._note("write", offset, bytes(data[:count]))
            return count

        def flush(descriptor: int) -> None:
            fsync(descriptor)
            self._note("flush")

        def cut(descriptor: int, length: int) -> None:
            ftruncate(descriptor, length)
            self._note("cut", length)

        self._patch = mock.patch.multiple(os, pwrite=write, fsync=flush, ftruncate=cut)
        self._patch.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._patch.stop()

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        self.contents.append(self._path.read_bytes())


def failing(fails: int, call: Callable[..., Any], code: int, *, forever: bool = False) -> Any:
    """Return a call that fails at one time, or from then on."""
    counter = itertools.count(1)

    def fail(*arguments: Any) -> Any:
        count = next(counter)
        if count == fails or (forever and count > fails):
            raise OSError(code, os.strerror(code))
        return call(*arguments)

    return fail


# --- The order ------------------------------------------------------------------------------


@RECORDED
def test_behind_guard_blobs_flush_commit_flush(path: Path) -> None:
    start = len(OLD)
    with Recorded(path) as record:
        sink = opened(path, "behind")
        assert sink.position == start
        sink.write(bytearray(b"blob"))
        sink.write(memoryview(b" and blob"))
        assert sink.position == start + 13
        assert commit_all(sink, b"") == start + 13 + 40
    assert record.calls == [
        ("write", start + 13, GUARD),
        ("write", start, b"blob and blob"),
        ("flush",),
        ("write", start + 53, MANIFEST + FOOTER),
        ("flush",),
    ]
    assert path.read_bytes() == OLD + b"blob and blob" + GUARD + MANIFEST + FOOTER
    assert sink.position == path.stat().st_size


@RECORDED
def test_over_guard_flush_room_flush_footer_flush(path: Path) -> None:
    with Recorded(path) as record:
        sink = opened(path, "over")
        assert sink.position == len(OLD)
        assert commit_all(sink, b"blob") == len(OLD) + 4
    end = path.stat().st_size
    assert record.calls == [
        ("write", end - 40, GUARD),
        ("flush",),
        ("write", len(OLD), b"blobmanifest"),
        ("flush",),
        ("write", end - 40, FOOTER),
        ("flush",),
    ]
    assert path.read_bytes() == OLD + b"blobmanifest" + FOOTER
    assert sink.position == end


@RECORDED
@BOTH
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(40))
def test_until_the_commit_the_file_ends_with_the_old_state(
    path: Path, order: str, seed: int
) -> None:
    dice = random.Random(seed)
    data = dice.randbytes(int(30_000 ** dice.random()))
    manifest = dice.randbytes(int(3000 ** dice.random()))
    with Recorded(path) as record:
        sink = opened(path, order, durable=dice.random() < 0.5)
        at = 0
        while at < len(data):
            count = dice.choice([1, 64, 999, 1000, 1001, 3500])
            sink.write(data[at : at + count])
            at += count
            assert sink.position == len(OLD) + min(at, len(data))
        commit_all(sink, b"", manifest)
    *before, last = record.contents if record.calls[-1][0] == "write" else record.contents[:-1]
    for content in before:
        assert content.startswith(OLD)
        assert content.endswith(GUARD)
        assert order == "behind" or in_one_sector(len(content))
    assert last == path.read_bytes()
    assert len(last) == sink.position
    assert last.endswith(FOOTER)
    if order == "behind":
        assert last == OLD + data + GUARD + manifest + FOOTER
    else:  # a room that was made too long is given back
        assert last.startswith(OLD + data + manifest)
        assert len(last) < len(OLD + data + manifest + FOOTER) + SECTOR


@RECORDED
@pytest.mark.parametrize("extra", range(0, 2 * SECTOR, 7))
def test_a_footer_is_never_in_two_sectors(path: Path, extra: int) -> None:
    with Recorded(path) as record:
        commit_all(opened(path, "over", durable=False), b"x" * extra)
    for kind, *call in record.calls:
        if kind == "write" and call[1] in (GUARD, FOOTER):
            assert in_one_sector(call[0] + 40)
    between = path.read_bytes()[len(OLD) + extra + len(MANIFEST) : -40]
    assert between == bytes(len(between))
    assert len(between) < 40


@BOTH
def test_a_commit_without_blobs_needs_no_guard_behind(path: Path, order: str) -> None:
    assert commit_all(opened(path, order), b"") == len(OLD)
    assert path.read_bytes() == OLD + MANIFEST + FOOTER


@RECORDED
@BOTH
@pytest.mark.parametrize("durable", ["auto", True, False])
def test_flushes_are_left_out_on_demand(path: Path, order: str, durable: Any) -> None:
    """A commit of names alone is flushed, too: an earlier one may not have been."""
    with Recorded(path) as record:
        commit_all(opened(path, order, durable=durable), b"")
    wanted = 2 if order == "behind" else 3
    assert record.calls.count(("flush",)) == (0 if durable is False else wanted)


@BOTH
@pytest.mark.usefixtures("small_pieces")
def test_without_positional_calls(path: Path, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pwrite", raising=False)
    monkeypatch.delattr(os, "preadv", raising=False)
    file = LockedFile(str(path))
    sink = KINDS[order](file, GUARD)
    assert file.read(4, 8) == b"old blob"
    sink.write(b"x" * 2500)
    assert file.read(0, len(OLD)) == OLD
    commit_all(sink, b"y")
    assert path.read_bytes().startswith(OLD + b"x" * 2500 + b"y")


@BOTH
@pytest.mark.usefixtures("small_pieces")
def test_a_trial_counts_and_writes_nothing(path: Path, order: str) -> None:
    for count in (0, 10, 999, 5000, 40_000):
        trial = opened(path, order, dry_run=True)
        at = commit_all(trial, b"x" * count)
        trial.abort()
        assert path.read_bytes() == OLD
        sink = opened(path, order)
        assert commit_all(sink, b"x" * count) == at
        assert sink.position == trial.position
        path.write_bytes(OLD)


@BOTH
@pytest.mark.usefixtures("small_pieces")
def test_what_an_abort_leaves(path: Path, order: str) -> None:
    """Behind nothing is cut: a reader that came meanwhile may have it mapped."""
    status = path.stat()
    sink = opened(path, order)
    sink.write(b"x" * 1500)
    sink.write(b"y" * 500)
    assert path.read_bytes().endswith(GUARD)
    sink.abort()
    sink.abort()
    if order == "behind":
        assert path.read_bytes() == OLD + b"x" * 1500 + GUARD + GUARD
        path.write_bytes(OLD)
    else:
        assert path.read_bytes() == OLD
        assert path.stat().st_mtime_ns == status.st_mtime_ns
    with pytest.raises(ClosedError, match="closed"):
        sink.write(b"x" * 2500)
    commit_all(opened(path, order), b"more")
    assert path.read_bytes().startswith(OLD + b"more")


# --- What fails -----------------------------------------------------------------------------


@RECORDED
@BOTH
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("fails", range(1, 40))
def test_a_write_that_fails_gives_the_room_back(
    path: Path, order: str, fails: int, forever: bool
) -> None:
    status = path.stat()
    sink, found = opened(path, order), None
    full = failing(fails, os.pwrite, errno.ENOSPC, forever=forever)
    try:
        with mock.patch.object(os, "pwrite", full):
            commit_all(sink, b"x" * 12_345)
    except SourceError as error:
        found = error
    if found is not None:
        assert found.errno == errno.ENOSPC
        assert "still holds its old state" in str(found)
        assert "torn" not in str(found)
        assert path.read_bytes() == OLD
        assert path.stat().st_mtime_ns == status.st_mtime_ns  # so that readers are not alarmed
    else:  # no such call
        assert path.read_bytes().endswith(FOOTER)
        assert fails > 15
    sink.abort()


@RECORDED
@BOTH
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("fails", range(1, 12))
def test_a_flush_that_fails_says_which_state_is_there(path: Path, order: str, fails: int) -> None:
    sink, found = opened(path, order), None
    try:
        with mock.patch.object(os, "fsync", failing(fails, os.fsync, errno.EIO)):
            commit_all(sink, b"x" * 12_345)
    except SourceError as error:
        found = error
    if found is not None:
        is_new = path.read_bytes().endswith(FOOTER)
        assert found.errno == errno.EIO
        assert ("is written" in str(found)) is is_new
        assert ("still holds its old state" in str(found)) is not is_new
        sink.abort()
        assert path.read_bytes().endswith(FOOTER if is_new else GUARD)
    else:
        assert fails > 2


@RECORDED
@BOTH
@pytest.mark.parametrize("is_cut", [True, False])
def test_half_a_guard_is_cut_off_or_told(path: Path, order: str, is_cut: bool) -> None:
    """Where a limit on the length of files lies within it; nothing else cuts so short a write."""
    pwrite, counter = os.pwrite, itertools.count(1)

    def halved(descriptor: int, data: Any, offset: int) -> int:
        if next(counter) > 1:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return pwrite(descriptor, memoryview(data)[:20], offset)

    refused = failing(1, os.ftruncate, errno.EIO, forever=True)
    sink = opened(path, order)
    with (
        mock.patch.object(os, "pwrite", halved),
        mock.patch.object(os, "ftruncate", os.ftruncate if is_cut else refused),
        pytest.raises(SourceError, match="holds its old state") as caught,
    ):
        commit_all(sink, b"x" * 1000)
    assert ("ztensor repair" in str(caught.value)) is not is_cut
    assert path.read_bytes().startswith(OLD)
    assert (path.read_bytes() == OLD) is is_cut


@pytest.mark.usefixtures("small_pieces")
def test_what_cannot_be_cut_is_left_behind_the_old_state(path: Path) -> None:
    refused = failing(1, os.ftruncate, errno.EIO, forever=True)
    sink = opened(path, "over")
    with (
        mock.patch.object(os, "ftruncate", refused),
        pytest.raises(SourceError, match="cannot shorten") as caught,
    ):
        commit_all(sink, b"x" * 1000)
    assert caught.value.errno == errno.EIO
    assert path.read_bytes().endswith(GUARD)


@BOTH
def test_a_close_that_fails_is_told(
    path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network file system does, which writes back then."""
    close = os.close

    def fail(number: int) -> None:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        close(number)
        if is_file:
            raise OSError(errno.EIO, "Input/output error")

    sink = opened(path, order, durable=False)
    monkeypatch.setattr(os, "close", fail)
    with pytest.raises(SourceError, match="the change is in the file, but closing it failed"):
        commit_all(sink, b"blob")
    monkeypatch.undo()
    assert path.read_bytes().endswith(FOOTER)


# --- The file -------------------------------------------------------------------------------


def test_old_bytes_are_read_under_the_lock(path: Path) -> None:
    sink = LockedFile(str(path))
    assert (sink.size, sink.path) == (len(OLD), str(path))
    assert sink.read(0, sink.size) == OLD
    assert sink.view() is None
    os.truncate(path, 10)
    sink.require_unchanged()
    with refused(SourceError, Reason.SOURCE_CHANGED):
        sink.read(5, 10)
    sink.cut(4)
    sink.close()
    assert path.read_bytes() == b"HEAD"


def test_a_file_that_was_replaced_is_noticed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = LockedFile("file")
    sink.require_in_place()
    monkeypatch.chdir("/")
    sink.require_in_place()
    os.replace(path, tmp_path / "moved")
    with pytest.raises(SourceNotFoundError):
        sink.require_in_place()
    path.write_bytes(b"another")
    with refused(SourceError, Reason.SOURCE_CHANGED, match="new file in its place"):
        sink.require_in_place()
    sink.close()


def test_only_regular_files_are_appended_to(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError):
        LockedFile(str(tmp_path / "missing"))
    with pytest.raises(SourceError):
        LockedFile(str(tmp_path))
    if os.path.exists("/dev/null"):
        with pytest.raises(SourceNotRegularError):
            LockedFile("/dev/null")
