"""prefetch() and evict(): the calls of the system for every kind of file, without a map."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.unit.io.reading.test_shards import root_of, shard_of

TENSORS: dict[str, Any] = {
    "a": np.arange(3 << 18, dtype=np.int64),  # 6 MiB: several requests
    "b": np.arange(1000, dtype=np.float32),
    "c": np.zeros((4, 0), np.int8),
    "d": np.arange(1 << 16, dtype=np.uint8),
}

Call = tuple[str, int, int, int]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Record the calls of the system in order: file, offset, length, advice."""
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("this system cannot be asked")
    found: list[Call] = []

    def fake(number: int, offset: int, length: int, advice: int) -> None:
        found.append((os.readlink(f"/proc/self/fd/{number}"), offset, length, advice))

    monkeypatch.setattr(os, "posix_fadvise", fake)
    return found


def zt(folder: Path) -> Path:
    ztensor.numpy.save_file(TENSORS, folder / "a.zt")
    return folder / "a.zt"


def npz(folder: Path) -> Path:
    np.savez(folder / "a.npz", **TENSORS)
    return folder / "a.npz"


def deflated(folder: Path) -> Path:
    np.savez_compressed(folder / "a.npz", **TENSORS)
    return folder / "a.npz"


def shards(folder: Path) -> Path:
    ztensor.numpy.save_file(TENSORS, folder / "model.zt", max_shard_size=1 << 20)
    return folder


FILES: dict[str, Callable[[Path], Path]] = {
    "zt": zt, "npz": npz, "deflated": deflated, "shards": shards,
}  # fmt: skip


@pytest.mark.wing
@pytest.mark.parametrize("made", FILES.values(), ids=list(FILES))
def test_the_bytes_of_objects_are_asked_for(
    made: Callable[[Path], Path], tmp_path: Path, calls: list[Call]
) -> None:
    with ztensor.open(made(tmp_path)) as reader:
        place, small = reader.location("a"), reader.location("b")
        asked = reader.prefetch(["a", "c", "b"])
        assert asked == sum(length for _, _, length, _ in calls)
        for one in (place, small):
            covered = sum(
                max(0, min(offset + length, one.offset + one.length) - max(offset, one.offset))
                for path, offset, length, _ in calls
                if path == one.path
            )
            assert covered == one.length
        assert place.length + small.length <= asked <= place.length + small.length + (64 << 10)
        assert {advice for *_, advice in calls} == {os.POSIX_FADV_WILLNEED}
        assert max(length for _, _, length, _ in calls) <= 1 << 20
        calls.clear()
        assert reader.evict("b") == small.length
        assert calls == [(small.path, small.offset, small.length, os.POSIX_FADV_DONTNEED)]
        calls.clear()
        whole = sum(part.source.size for part in reader.objects.parts())
        assert reader.prefetch() == reader.evict() == whole
        assert reader.prefetch("c") == reader.location("c").length  # deflated, a few bytes
        assert reader.prefetch([]) == 0


def test_the_shards_of_2x_are_asked_each(tmp_path: Path, calls: list[Call]) -> None:
    shard = shard_of()
    path = tmp_path / "m.zt"
    path.write_bytes(root_of(shard)[0])
    (tmp_path / "m-s.zt").write_bytes(shard)
    with ztensor.open(path) as reader:
        for name in reader:
            place = reader.location(name)
            calls.clear()
            assert reader.prefetch(name) == place.length
            assert [call[:3] for call in calls] == [(place.path, place.offset, place.length)]
        calls.clear()
        assert reader.prefetch() == sum(os.path.getsize(file) for file in {c[0] for c in calls})
        assert len({call[0] for call in calls}) > 1


def test_sources_without_a_page_cache_do_nothing(calls: list[Call]) -> None:
    data = ztensor.numpy.save({"a": TENSORS["a"]})
    for source in (data, io.BytesIO(data)):
        with ztensor.open(source) as reader:
            assert reader.prefetch() == reader.evict() == reader.prefetch("a") == 0
    assert not calls


def test_a_system_that_has_no_such_call_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zt(tmp_path)
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with ztensor.open(path) as reader:
        assert reader.prefetch() == reader.evict() == 0
        assert np.array_equal(reader.read_numpy("a", copy=True), TENSORS["a"])


def test_a_file_system_that_refuses_a_hint_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(22, "refused")

    monkeypatch.setattr(os, "posix_fadvise", refuse, raising=False)
    path = zt(tmp_path)
    with ztensor.open(path) as reader:
        assert reader.prefetch() == reader.evict("a") == 0
    loaded = ztensor.numpy.load_file(path, copy=True)
    assert all(np.array_equal(loaded[name], array) for name, array in TENSORS.items())


def test_what_is_evicted_is_read_again(tmp_path: Path) -> None:
    """With the real system."""
    path = zt(tmp_path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    with ztensor.open(path) as reader:
        reader.evict()
        reader.prefetch()
        assert np.array_equal(reader["a"], TENSORS["a"])
        reader.evict()  # pages of views stay as they are
        assert np.array_equal(reader["a"], TENSORS["a"])


def test_names_and_closed_readers_are_refused(tmp_path: Path) -> None:
    reader = ztensor.open(zt(tmp_path))
    for call in (reader.prefetch, reader.evict):
        with pytest.raises(ztensor.ObjectNotFoundError):
            call("nothing")
        with pytest.raises(TypeError):
            call(5)  # type: ignore[arg-type]  # refused here
    reader.close()
    for call in (reader.prefetch, reader.evict):
        with pytest.raises(ztensor.errors.ClosedError):
            call()
