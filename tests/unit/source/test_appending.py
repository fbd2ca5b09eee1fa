"""New bytes behind a finished file: their order, and that the old ones are never touched."""

from __future__ import annotations

import errno
import os
import random
import stat
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from ztensor.errors import Reason, SourceError, SourceNotFoundError, SourceNotRegularError
from ztensor.source import guards
from ztensor.source.appending import AppendSink
from ztensor.source.base import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

OLD = b"HEAD" + b"old blob" * 100
GUARD = b"<old manifest and footer>"
COMMIT = b"<new manifest and footer>"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_bytes(OLD + GUARD)
    return file


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_PIECE_BYTES", 100)
    monkeypatch.setattr(guards, "_GUARDS_PER_PIECE", 1)


def opened(path: Path, **options: Any) -> AppendSink:
    sink = AppendSink(str(path), **options)
    sink.commit_behind(GUARD)
    return sink


def commit_all(sink: AppendSink, data: bytes) -> None:
    sink.write(data)
    sink.barrier()
    sink.write(COMMIT)
    sink.commit()


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


@pytest.mark.skipif(not hasattr(os, "pwrite"), reason="records positional writes")
def test_guard_blobs_flush_commit_flush(path: Path) -> None:
    old = path.read_bytes()
    with Recorded(path) as record:
        sink = opened(path)
        assert sink.position == len(old)
        sink.write(b"blob")
        sink.write(bytearray(b" and "))
        sink.write(memoryview(b"blob"))
        assert sink.position == len(old) + 13
        assert sink.barrier() == len(old) + 13 + len(GUARD)
        sink.write(COMMIT[:5])
        sink.write(COMMIT[5:])
        sink.commit()
    assert record.calls == [
        ("write", len(old) + 13, GUARD),
        ("write", len(old), b"blob and blob"),
        ("flush",),
        ("write", len(old) + 13 + len(GUARD), COMMIT),
        ("flush",),
    ]
    assert path.read_bytes() == old + b"blob and blob" + GUARD + COMMIT
    assert sink.position == path.stat().st_size


@pytest.mark.skipif(not hasattr(os, "pwrite"), reason="records positional writes")
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("seed", range(20))
def test_until_the_commit_the_file_ends_with_a_guard(path: Path, seed: int) -> None:
    dice = random.Random(seed)
    old = path.read_bytes()
    data = dice.randbytes(dice.randrange(1, 2000))
    with Recorded(path) as record:
        sink = opened(path, durable=False)
        at = 0
        while at < len(data):
            count = dice.choice([1, 7, 64, 99, 100, 101, 350])
            sink.write(data[at : at + count])
            at += count
        sink.barrier()
        for content in record.contents:
            assert content.startswith(old)
            assert content.endswith(GUARD)
        sink.write(COMMIT)
        sink.commit()
    assert path.read_bytes() == old + data + GUARD + COMMIT


def test_a_commit_without_blobs_needs_no_guard(path: Path) -> None:
    old = path.read_bytes()
    sink = opened(path)
    assert sink.barrier() == len(old)
    sink.write(COMMIT)
    sink.commit()
    assert path.read_bytes() == old + COMMIT


@pytest.mark.skipif(not hasattr(os, "pwrite"), reason="records positional writes")
@pytest.mark.parametrize("durable", ["auto", True, False])
def test_flushes_are_left_out_on_demand(path: Path, durable: Any) -> None:
    with Recorded(path) as record:
        sink = opened(path, durable=durable)
        sink.barrier()
        sink.write(COMMIT)
        sink.commit()
    # Also before a commit of names alone: an earlier one may not have been flushed.
    flushes = [call for call in record.calls if call == ("flush",)]
    assert len(flushes) == (0 if durable is False else 2)


@pytest.mark.usefixtures("small_pieces")
def test_without_positional_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pwrite", raising=False)
    monkeypatch.delattr(os, "preadv", raising=False)
    old = path.read_bytes()
    sink = opened(path)
    assert read_bytes(sink, 4, 8) == b"old blob"
    sink.write(b"x" * 250)
    assert read_bytes(sink, 0, len(OLD)) == OLD
    sink.barrier()
    sink.write(COMMIT)
    sink.commit()
    assert path.read_bytes() == old + b"x" * 250 + GUARD + COMMIT


def test_old_bytes_are_read_under_the_lock(path: Path) -> None:
    sink = opened(path)
    assert sink.size == len(OLD + GUARD)
    assert sink.path == str(path)
    assert read_bytes(sink, 0, sink.size) == OLD + GUARD
    assert sink.view() is sink.held() is None
    sink.require_unchanged()
    os.truncate(path, 10)
    with pytest.raises(SourceError) as caught:
        read_bytes(sink, 5, 10)
    assert caught.value.reason is Reason.SOURCE_CHANGED
    sink.close()


def test_what_was_not_committed_is_nothing(path: Path) -> None:
    for end in ("abort", "close"):
        sink = opened(path)
        sink.write(b"blob")
        getattr(sink, end)()
        getattr(sink, end)()
        assert path.read_bytes() == OLD + GUARD


@pytest.mark.usefixtures("small_pieces")
def test_what_an_abort_leaves_ends_with_a_guard(path: Path) -> None:
    """It is not cut: a reader that came meanwhile may have it mapped."""
    sink = opened(path)
    sink.write(b"x" * 150)
    sink.abort()
    assert path.read_bytes() == OLD + GUARD + b"x" * 100 + GUARD
    again = opened(path)
    again.barrier()
    again.write(COMMIT)
    again.commit()
    assert path.read_bytes().endswith(GUARD + COMMIT)


@pytest.mark.skipif(not hasattr(os, "pwrite"), reason="fails positional writes")
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("fails", range(1, 8))
@pytest.mark.parametrize("written", [0, 1, 20])
def test_a_write_that_fails_gives_the_room_back(path: Path, fails: int, written: int) -> None:
    status = path.stat()
    pwrite, count = os.pwrite, 0

    def failing(descriptor: int, data: Any, offset: int) -> int:
        nonlocal count
        count += 1
        if count == fails and written:
            return pwrite(descriptor, data[:written], offset)
        if count >= fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data, offset)

    sink = opened(path)
    with (
        mock.patch.object(os, "pwrite", failing),
        pytest.raises(SourceError, match="still holds its old state") as caught,
    ):
        commit_all(sink, b"x" * 250)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == OLD + GUARD
    assert path.stat().st_mtime_ns == status.st_mtime_ns  # so that readers are not alarmed
    sink.abort()


@pytest.mark.skipif(not hasattr(os, "pwrite"), reason="fails positional writes")
def test_room_that_cannot_be_given_back_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    sink = opened(path)
    sink.barrier()
    sink.write(COMMIT)
    monkeypatch.setattr(os, "pwrite", refuse)
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(SourceError, match="ztensor repair"):
        sink.commit()
    sink.abort()


@pytest.mark.parametrize(("which", "words"), [(1, "still holds its old state"), (2, "is written")])
def test_a_flush_that_fails_says_which_state_is_there(
    path: Path, which: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    def failing(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count == which:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    sink = opened(path)
    with pytest.raises(SourceError, match=words) as caught:
        commit_all(sink, b"blob")
    assert caught.value.errno == errno.EIO
    assert path.read_bytes().endswith(COMMIT) is (which == 2)
    sink.abort()


def test_the_file_is_cut_to_a_state(path: Path) -> None:
    sink = opened(path)
    sink.cut(4)
    sink.close()
    assert path.read_bytes() == b"HEAD"


# --- The place ------------------------------------------------------------------------------


def test_a_file_that_was_replaced_is_noticed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = AppendSink("file")
    sink.require_in_place()
    monkeypatch.chdir("/")
    sink.require_in_place()
    os.replace(path, tmp_path / "moved")
    with pytest.raises(SourceNotFoundError):
        sink.require_in_place()
    path.write_bytes(b"another")
    with pytest.raises(SourceError, match="new file in its place") as caught:
        sink.require_in_place()
    assert caught.value.reason is Reason.SOURCE_CHANGED
    sink.close()


def test_only_regular_files_are_appended_to(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError):
        AppendSink(str(tmp_path / "missing"))
    with pytest.raises(SourceError):
        AppendSink(str(tmp_path))
    if os.path.exists("/dev/null"):
        with pytest.raises(SourceNotRegularError):
            AppendSink("/dev/null")


def test_a_close_that_fails_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a network file system does, which writes back then."""
    close = os.close

    def failing(number: int) -> None:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        close(number)
        if is_file:
            raise OSError(errno.EIO, "Input/output error")

    sink = opened(path, durable=False)
    monkeypatch.setattr(os, "close", failing)
    with pytest.raises(SourceError, match="the change is in the file, but closing it failed"):
        commit_all(sink, b"blob")
    monkeypatch.undo()
    assert path.read_bytes().endswith(COMMIT)
