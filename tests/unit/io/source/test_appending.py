"""New bytes behind a finished file, in both orders: old ones stay, and it ends with a state.

*Behind*: the guard is manifest and footer (1.x). *Over*: it is a copy of the footer (2.x).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.faults.calls import SECTOR, Calls, Fault, within_a_sector
from tests.refusals import refused
from ztensor.errors import ClosedError, Reason, SourceError, SourceNotFoundError
from ztensor.io.source.appending import CommitBehind, CommitOver, LockedFile

GUARD = b"<the old footer, of exactly forty bytes>"
FOOTER = b"<the new footer, of exactly forty bytes>"
MANIFEST = b"manifest"
OLD = b"HEAD" + b"old blob" * 100 + GUARD
DATA = b"x" * 12_345

RECORDED = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="records positional writes")
KINDS: dict[str, type[CommitBehind | CommitOver]] = {"behind": CommitBehind, "over": CommitOver}
BOTH = pytest.mark.parametrize("order", KINDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(OLD)
    return file


def opened(path: Path, order: str, **options: Any) -> CommitBehind | CommitOver:
    """Return a sink that gathers chunks of 1,000 bytes."""
    sink = KINDS[order](LockedFile(str(path), **options), path.read_bytes()[-40:])
    sink.small_bytes = sink.most_bytes = 1000
    return sink


def commit_all(sink: CommitBehind | CommitOver, data: bytes, manifest: bytes = MANIFEST) -> int:
    """Write everything, and return the offset that the sink gave for the manifest."""
    for start in range(0, len(data), 1300):
        sink.write(data[start : start + 1300])
    at = sink.end_blobs()
    sink.commit(manifest + FOOTER)
    return at


# --- The order ------------------------------------------------------------------------------


@RECORDED
@pytest.mark.parametrize("durable", ["auto", True, False])
@BOTH
def test_the_order_of_writes_and_flushes(path: Path, order: str, durable: Any) -> None:
    start = len(OLD)
    with Calls(path.parent) as calls:
        sink = opened(path, order, durable=durable)
        assert sink.position == start
        sink.write(bytearray(b"blob"))
        sink.write(memoryview(b" and blob"))
        assert sink.position == start + 13
        assert commit_all(sink, b"") == start + (53 if order == "behind" else 13)
    end = path.stat().st_size
    assert sink.position == end
    wanted: list[tuple[Any, ...]]
    if order == "behind":
        wanted = [
            ("write", start + 13, GUARD),
            ("write", start, b"blob and blob"),
            ("flush", 0, b""),
            ("write", start + 53, MANIFEST + FOOTER),
            ("flush", 0, b""),
        ]
    else:
        wanted = [
            ("write", end - 40, GUARD),
            ("flush", 0, b""),
            ("write", start, b"blob and blob" + MANIFEST),
            ("flush", 0, b""),
            ("write", end - 40, FOOTER),
            ("flush", 0, b""),
        ]
    found = [(call.kind, call.offset, call.data) for call in calls.log]
    assert found == [one for one in wanted if durable or one[0] != "flush"]


@RECORDED
def test_a_footer_is_never_in_two_sectors(path: Path) -> None:
    for extra in range(0, 2 * SECTOR, 7):
        path.write_bytes(OLD)
        with Calls(path.parent) as calls:
            commit_all(opened(path, "over", durable=False), b"x" * extra)
        for call in calls.log:
            if call.data in (GUARD, FOOTER):
                assert within_a_sector(call.offset, 40)
        between = path.read_bytes()[len(OLD) + extra + len(MANIFEST) : -40]
        assert between == bytes(len(between))
        assert len(between) < 40


@BOTH
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
def test_an_abort_leaves_the_old_state(path: Path, order: str) -> None:
    """In the order behind nothing is cut: a reader that came meanwhile may have it mapped."""
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
    with pytest.raises(ClosedError):
        sink.write(b"x" * 2500)
    commit_all(opened(path, order), b"more")
    assert path.read_bytes().startswith(OLD + b"more")


# --- Calls that fail ------------------------------------------------------------------------


def committed_with(path: Path, order: str, *faults: Fault) -> SourceError | None:
    """Commit under faults; return the error, or None if the fault did not strike."""
    with Calls(path.parent, faults=faults, whole_sectors=True) as calls:
        sink = opened(path, order)
        try:
            commit_all(sink, DATA)
        except SourceError as error:
            assert calls.has_struck
            return error
        finally:
            sink.abort()
    assert not calls.has_struck
    return None


@RECORDED
@BOTH
@pytest.mark.parametrize("how", ["error", "full"])
def test_a_write_that_fails_gives_the_room_back(path: Path, order: str, how: str) -> None:
    status = path.stat()
    number = 1
    while error := committed_with(path, order, Fault("write", number, how, errno.ENOSPC)):
        assert error.errno == errno.ENOSPC
        assert "old state" in str(error)
        assert "repair" not in str(error)
        assert path.read_bytes() == OLD
        assert path.stat().st_mtime_ns == status.st_mtime_ns  # so that readers are not alarmed
        number += 1
    assert path.read_bytes().endswith(FOOTER)
    assert number > 15


@RECORDED
@BOTH
def test_a_flush_that_fails_says_which_state_the_file_has(path: Path, order: str) -> None:
    number = 1
    while error := committed_with(path, order, Fault("flush", number)):
        is_new = path.read_bytes().endswith(FOOTER)
        assert error.errno == errno.EIO
        assert ("is written" in str(error)) is is_new
        assert ("old state" in str(error)) is not is_new
        assert path.read_bytes().endswith(FOOTER if is_new else GUARD)
        path.write_bytes(OLD)
        number += 1
    assert number > 2


@RECORDED
@BOTH
@pytest.mark.parametrize("is_cut", [True, False])
def test_half_a_guard_is_cut_off_or_reported(path: Path, order: str, is_cut: bool) -> None:
    """A limit on the length of files may be inside it; no other cause cuts so short a write."""
    faults = [Fault("write", 1, "full", errno.EFBIG), Fault("cut", 1)]
    with Calls(path.parent, faults=faults[: 2 - is_cut]):
        sink = opened(path, order)
        with pytest.raises(SourceError) as caught:
            commit_all(sink, b"x" * 1000)
    assert ("ztensor repair" in str(caught.value)) is not is_cut
    assert path.read_bytes().startswith(OLD)
    assert (path.read_bytes() == OLD) is is_cut


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
    with refused(SourceError, Reason.SOURCE_CHANGED):
        sink.require_in_place()
    sink.close()
