"""A new state before a guard: at every moment the file ends with the old footer or the new one."""

from __future__ import annotations

import errno
import itertools
import os
import random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from tests.unit.source.test_appending import Recorded
from ztensor.errors import ClosedError, SourceError
from ztensor.source import guards
from ztensor.source.appending import AppendSink, TrialSink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD = b"HEAD" + b"old blob" * 100
GUARD = b"<the old footer, of exactly forty bytes>"
FOOTER = b"<the new footer, of exactly forty bytes>"
SECTOR = 512

pytestmark = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="records positional writes")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(OLD + GUARD)
    return file


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(guards, "_AHEAD_BYTES", 5000)


def opened(path: Path, kind: type[AppendSink] = AppendSink, **options: Any) -> AppendSink:
    sink = kind(str(path), **options)
    sink.commit_over(GUARD)
    return sink


def commit_all(sink: AppendSink, data: bytes, manifest: bytes = b"manifest") -> int:
    """Write all in one piece, and return where the manifest was said to lie."""
    sink.write(data)
    at = sink.barrier()
    sink.write(manifest)
    sink.write(FOOTER)
    sink.commit()
    return at


def in_one_sector(end: int) -> bool:
    return (end - len(GUARD)) // SECTOR == (end - 1) // SECTOR


def test_guard_flush_room_flush_footer_flush(path: Path) -> None:
    old = path.read_bytes()
    with Recorded(path) as record:
        sink = opened(path)
        assert sink.position == len(old)
        at = commit_all(sink, b"blob")
    end = path.stat().st_size
    assert at == len(old) + 4
    assert record.calls == [
        ("write", end - len(GUARD), GUARD),
        ("flush",),
        ("write", len(old), b"blobmanifest"),
        ("flush",),
        ("write", end - len(GUARD), FOOTER),
        ("flush",),
    ]
    assert path.read_bytes() == old + b"blobmanifest" + FOOTER
    assert sink.position == end


@pytest.mark.parametrize("extra", range(0, 2 * SECTOR, 7))
def test_a_footer_never_lies_in_two_sectors(path: Path, extra: int) -> None:
    with Recorded(path) as record:
        commit_all(opened(path, durable=False), b"x" * extra)
    for kind, *call in record.calls:
        if kind == "write" and call[1] in (GUARD, FOOTER):
            assert in_one_sector(call[0] + len(GUARD))
    data = path.read_bytes()
    between = data[len(OLD + GUARD) + extra + len(b"manifest") : -len(FOOTER)]
    assert between == bytes(len(between))
    assert len(between) < len(FOOTER)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(60))
def test_after_every_call_the_file_ends_with_a_footer(path: Path, seed: int) -> None:
    dice = random.Random(seed)
    old = path.read_bytes()
    data = dice.randbytes(int(30_000 ** dice.random()))
    manifest = dice.randbytes(int(3000 ** dice.random()))
    with Recorded(path) as record:
        sink = opened(path, durable=dice.random() < 0.5)
        at = 0
        while at < len(data):
            count = dice.choice([1, 64, 999, 1000, 1001, 3500])
            sink.write(data[at : at + count])
            at += count
            assert sink.position == len(old) + min(at, len(data))
        assert sink.barrier() == len(old) + len(data)
        sink.write(manifest + FOOTER[:7])
        sink.write(FOOTER[7:])
        sink.commit()
    *before, last = record.contents if record.calls[-1][0] == "write" else record.contents[:-1]
    for content in before:
        assert content.startswith(old)
        assert content.endswith(GUARD)
        assert in_one_sector(len(content))
    assert last == path.read_bytes()
    assert last.startswith(old + data + manifest)
    assert last.endswith(FOOTER)
    # What was made too long is given back.
    assert len(last) < len(old + data + manifest + FOOTER) + SECTOR
    assert sink.position == len(last)


@pytest.mark.usefixtures("small_pieces")
def test_a_guard_is_on_disk_before_what_it_guards_is_written(path: Path) -> None:
    """A lost flush: else bytes could be on disk behind which no footer is."""
    with Recorded(path) as record:
        commit_all(opened(path), b"x" * 40_000)
    room = flushed = len(OLD + GUARD)
    sizes = set()
    for kind, *call in record.calls:
        if kind == "flush":
            flushed = room
        elif kind == "cut":
            room = call[0]
        else:
            offset, data = call
            if offset + len(data) > room:
                assert data == GUARD  # nothing else makes the file longer
                room = offset + len(data)
                sizes.add(room)
            elif data != FOOTER:
                assert offset + len(data) <= flushed - len(GUARD) or data == GUARD
    assert len(sizes) > 3
    assert [call[0] for call in record.calls][-2:] == ["write", "flush"]


def test_a_commit_of_names_alone(path: Path) -> None:
    old = path.read_bytes()
    commit_all(opened(path), b"")
    assert path.read_bytes() == old + b"manifest" + FOOTER


@pytest.mark.parametrize("durable", ["auto", True, False])
def test_flushes_are_left_out_on_demand(path: Path, durable: Any) -> None:
    with Recorded(path) as record:
        commit_all(opened(path, durable=durable), b"blob")
    assert record.calls.count(("flush",)) == (0 if durable is False else 3)


@pytest.mark.usefixtures("small_pieces")
def test_a_trial_counts_and_writes_nothing(path: Path) -> None:
    for count in (0, 10, 999, 5000, 40_000):
        trial = opened(path, TrialSink)
        at = commit_all(trial, b"x" * count)
        trial.close()
        assert path.read_bytes() == OLD + GUARD
        sink = opened(path)
        assert commit_all(sink, b"x" * count) == at
        assert sink.position == trial.position
        path.write_bytes(OLD + GUARD)


@pytest.mark.usefixtures("small_pieces")
def test_an_abort_gives_the_room_back(path: Path) -> None:
    status = path.stat()
    sink = opened(path)
    sink.write(b"x" * 2500)
    assert path.read_bytes().endswith(GUARD)
    assert path.stat().st_size > status.st_size
    sink.abort()
    sink.abort()
    assert path.read_bytes() == OLD + GUARD
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    with pytest.raises(ClosedError, match="closed"):
        sink.write(b"x" * 2500)
    commit_all(opened(path), b"more")
    assert path.read_bytes().startswith(OLD + GUARD + b"more")


def test_an_abort_behind_a_commit_takes_nothing_back(path: Path) -> None:
    sink = opened(path)
    failing = _failing(3, os.fsync, errno.EIO, forever=False)
    with mock.patch.object(os, "fsync", failing), pytest.raises(SourceError, match="is written"):
        commit_all(sink, b"blob")
    sink.abort()
    assert path.read_bytes().endswith(FOOTER)


# --- What fails -----------------------------------------------------------------------------


def _failing(fails: int, call: Callable[..., Any], code: int, *, forever: bool) -> Any:
    counter = itertools.count(1)

    def failing(*arguments: Any) -> Any:
        count = next(counter)
        if count == fails or (forever and count > fails):
            raise OSError(code, os.strerror(code))
        return call(*arguments)

    return failing


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("fails", range(1, 40))
def test_a_write_that_fails_leaves_a_footer_and_mostly_the_old_length(
    path: Path, fails: int, forever: bool
) -> None:
    status = path.stat()
    sink = opened(path)
    failing = _failing(fails, os.pwrite, errno.ENOSPC, forever=forever)
    found = None
    try:
        with mock.patch.object(os, "pwrite", failing):
            commit_all(sink, b"x" * 12_345)
    except SourceError as error:
        found = error
    if found is not None:
        assert found.errno == errno.ENOSPC
        assert "still holds its old state" in str(found)
        assert "torn" not in str(found)
        assert path.read_bytes() == OLD + GUARD
        assert path.stat().st_mtime_ns == status.st_mtime_ns  # so that readers are not alarmed
    else:  # room that was only made ahead, or no such call
        assert path.read_bytes().endswith(FOOTER)
        assert fails == 1 or not forever or fails > 15
    sink.abort()


@pytest.mark.usefixtures("small_pieces")
def test_files_that_may_not_become_much_longer_take_what_fits(path: Path) -> None:
    most = len(OLD + GUARD) + 12_345 + 600
    pwrite = os.pwrite

    def limited(descriptor: int, data: Any, offset: int) -> int:
        count = min(memoryview(data).nbytes, most - offset)
        if count <= 0:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return pwrite(descriptor, memoryview(data)[:count], offset)

    with mock.patch.object(os, "pwrite", limited):
        commit_all(opened(path), b"x" * 12_345)
        assert path.read_bytes().endswith(FOOTER)
        before = path.read_bytes()
        sink = AppendSink(str(path))
        sink.commit_over(FOOTER)
        with pytest.raises(SourceError) as caught:
            commit_all(sink, b"x" * 12_345)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("fails", range(1, 12))
def test_a_flush_that_fails_says_which_state_is_there(path: Path, fails: int) -> None:
    sink = opened(path)
    failing = _failing(fails, os.fsync, errno.EIO, forever=False)
    found = None
    try:
        with mock.patch.object(os, "fsync", failing):
            commit_all(sink, b"x" * 12_345)
    except SourceError as error:
        found = str(error)
    if found is not None:
        is_new = path.read_bytes().endswith(FOOTER)
        assert ("is written" in found) is is_new
        assert ("still holds its old state" in found) is not is_new
        assert is_new or path.read_bytes().endswith(GUARD)
    else:
        assert fails > 4
    sink.abort()


@pytest.mark.usefixtures("small_pieces")
def test_what_cannot_be_cut_is_left_behind_the_old_state(path: Path) -> None:
    sink = opened(path)
    failing = _failing(1, os.ftruncate, errno.EIO, forever=True)
    with (
        mock.patch.object(os, "ftruncate", failing),
        pytest.raises(SourceError, match="cannot shorten") as caught,
    ):
        commit_all(sink, b"x" * 1000)
    assert caught.value.errno == errno.EIO
    assert path.read_bytes().endswith(GUARD)
    sink.abort()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("is_cut", [True, False])
def test_half_a_guard_is_cut_off_or_told(path: Path, is_cut: bool) -> None:
    """Where a limit on the length of files lies within it; nothing else cuts so short a write."""
    pwrite, counter = os.pwrite, itertools.count(1)

    def halved(descriptor: int, data: Any, offset: int) -> int:
        count = next(counter)
        if count > 1:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return pwrite(descriptor, memoryview(data)[:20], offset)

    failing = _failing(1, os.ftruncate, errno.EIO, forever=True)
    sink = opened(path)
    with (
        mock.patch.object(os, "pwrite", halved),
        mock.patch.object(os, "ftruncate", os.ftruncate if is_cut else failing),
        pytest.raises(SourceError, match="holds its old state") as caught,
    ):
        commit_all(sink, b"x" * 1000)
    assert ("ztensor repair" in str(caught.value)) is not is_cut
    assert path.read_bytes().startswith(OLD + GUARD)
    assert (path.read_bytes() == OLD + GUARD) is is_cut
    sink.abort()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("count", [526, 527, 528, 529, 530])
def test_room_for_a_sector_more_is_given_back(path: Path, count: int) -> None:
    sink = opened(path, durable=False)
    start = sink.position
    commit_all(sink, b"x" * 1000, b"m" * count)
    end = start + 1000 + count + len(FOOTER)
    assert end <= path.stat().st_size < end + SECTOR
    assert path.read_bytes().endswith(FOOTER)
