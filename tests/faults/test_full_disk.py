"""A disk that is really full."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.faults.judge import read_state
from tests.faults.worker import tensors
from ztensor import edit
from ztensor.numpy import save_file

VERSIONS = pytest.mark.parametrize("version", ["1.2.0", "2.1"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 2 MiB of its own."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a file system of its own can be mounted by root on Linux only")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs is not allowed here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


LARGE = np.arange(3 << 18, dtype=np.int32)  # 3 MiB: more than the disk


def _append(path: Path, **options: Any) -> None:
    with ztensor.Editor(path, **options) as writer:
        writer.write("small", np.arange(10))
        writer.write("large", LARGE)


def _append_pieces(path: Path) -> None:
    with (
        ztensor.Editor(path) as writer,
        writer.stream("large", LARGE.shape, LARGE.dtype) as sink,
    ):
        for start in range(0, LARGE.size, 1 << 16):
            sink.write(LARGE[start : start + (1 << 16)])


@pytest.mark.parametrize(
    "change",
    [
        lambda path: save_file({"large": LARGE}, path),
        lambda path: save_file({"large": LARGE}, path.with_name("new.zt")),
        _append,
        _append_pieces,
        lambda path: _append(path, atomic=True),
        lambda path: edit.replace_tensor(path, "t0", LARGE),
        lambda path: edit.merge([path, path.with_name("large.zt")], path, on_conflict="last"),
    ],
    ids=["save over", "save new", "append", "append pieces", "atomic", "replace", "merge"],
)
@VERSIONS
def test_a_full_disk_keeps_the_old_state(
    change: Any, version: str, small_disk: Path, tmp_path: Path
) -> None:
    path = small_disk / "model.zt"
    save_file(tensors(1), path, version=version)
    save_file({"large": LARGE}, tmp_path / "large.zt")
    (small_disk / "large.zt").symlink_to(tmp_path / "large.zt")
    before = path.read_bytes()
    names = sorted(entry.name for entry in small_disk.iterdir())
    free = shutil.disk_usage(small_disk).free
    with pytest.raises(ztensor.SourceError) as caught:
        change(path)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in small_disk.iterdir()) == names
    assert shutil.disk_usage(small_disk).free == free  # nothing is left, not even room taken
    save_file(tensors(2), path)


@VERSIONS
def test_a_disk_too_full_for_a_manifest(version: str, small_disk: Path) -> None:
    path = small_disk / "model.zt"
    with ztensor.Writer(path, version=version) as writer:
        writer.write("name 0", np.arange(3))
        for number in range(1, 300):
            writer.share(f"name {number}", "name 0")
    ballast = os.open(small_disk / "ballast", os.O_CREAT | os.O_WRONLY)
    while True:
        try:
            os.write(ballast, bytes(4096))
        except OSError:
            break
    os.close(ballast)
    before = path.read_bytes()
    old = read_state(path)
    changes: list[Any] = [
        lambda: edit.remove_tensors(path, names="name 7"),
        lambda: edit.rename_tensors(path, {"name 7": "name 7 with a longer name"}),
        lambda: edit.set_attributes(path, {"a": "b" * 5000}),
    ]
    for change in changes:
        with pytest.raises(ztensor.SourceError) as caught:
            change()
        assert caught.value.errno == errno.ENOSPC
        assert path.read_bytes() == before
    assert read_state(path) == old
    (small_disk / "ballast").unlink()
    changes[0]()
    assert len(read_state(path)["objects"]) == 299
