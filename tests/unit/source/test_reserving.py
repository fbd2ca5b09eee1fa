"""Room that is reserved before bytes are written: nobody sees it but the clock."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from ztensor.numpy import load_file, save_file
from ztensor.source import reserving, sink
from ztensor.source.sink import FileSink

MIB = 1 << 20
BLOCK_BYTES = 4096


def _kind(folder: Path) -> int:
    calls = reserving._calls()
    if calls is None:
        pytest.skip("not Linux")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        found = ctypes.create_string_buffer(reserving._STATFS_BYTES)
        assert calls[0](descriptor, found) == 0
        return ctypes.c_long.from_buffer(found).value
    finally:
        os.close(descriptor)


def _reserved(folder: Path, nbytes: int) -> tuple[bool, os.stat_result]:
    descriptor = os.open(folder / "file", os.O_CREAT | os.O_RDWR)
    try:
        return reserving.reserve(descriptor, 0, nbytes), os.fstat(descriptor)
    finally:
        os.close(descriptor)


def test_room_is_reserved_and_the_file_is_no_longer(tmp_path: Path) -> None:
    if _kind(tmp_path) != reserving._EXT4:
        pytest.skip("the folder for temporary files is not ext4")
    done, status = _reserved(tmp_path, 3 * MIB)
    assert done
    assert status.st_size == 0
    assert status.st_blocks * 512 >= 3 * MIB


def test_other_file_systems_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _kind(tmp_path)
    monkeypatch.setattr(reserving, "_EXT4", 1)
    done, status = _reserved(tmp_path, 3 * MIB)
    assert not done
    assert status.st_blocks * 512 < MIB


def test_a_disk_without_so_much_room_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the bytes fit all the same, as a file system may compress them, they are written."""
    _kind(tmp_path)
    asked = []

    def full(descriptor: int, flags: int, offset: int, nbytes: int) -> int:
        del descriptor, flags
        asked.append((offset, nbytes))
        ctypes.set_errno(errno.ENOSPC)
        return -1

    def ext4(descriptor: int, found: ctypes.Array[ctypes.c_char]) -> int:
        del descriptor
        ctypes.c_long.from_buffer(found).value = reserving._EXT4
        return 0

    monkeypatch.setattr(reserving, "_calls", lambda: (ext4, full))
    tensors = {f"t{number}": np.full(MIB, number, np.float32) for number in range(3)}
    save_file(tensors, tmp_path / "m.zt")
    assert len(asked) == 1  # and no second time
    loaded = load_file(tmp_path / "m.zt")
    assert all((loaded[name] == array).all() for name, array in tensors.items())


@pytest.mark.parametrize("version", ["1.2", "2.1"])
def test_a_finished_file_holds_no_room_it_does_not_use(tmp_path: Path, version: str) -> None:
    """Not behind its end, and not in the holes between tensors that lie far apart."""
    tensors = {f"t{number}": np.full(MIB // 4 + 77, number, np.float32) for number in range(5)}
    far = 65536 if version == "2.1" else None
    save_file(tensors, tmp_path / "m.zt", version=version, alignment=far, durable=True)
    used = os.stat(tmp_path / "m.zt").st_blocks * 512
    assert used <= sum(array.nbytes + 2 * BLOCK_BYTES for array in tensors.values()) + 64 * 1024


def test_what_is_asked_for_is_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def noted(descriptor: int, offset: int, nbytes: int) -> bool:
        del descriptor
        asked.append((offset, nbytes))
        return True

    monkeypatch.setattr(sink, "reserve", noted)
    target = FileSink(str(tmp_path / "file"), durable=False)
    target.write(bytes(10))  # gathered
    target.write(bytes(MIB))
    for _ in range(32):  # gathered, until 1 MiB is together
        target.write(bytes(MIB // 32))
    target.write(bytes(reserving.LEAST_BYTES - 1))
    target.commit()
    assert asked == [(10, MIB), (10 + MIB, MIB)]
