"""What is flushed to disk, by path."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ztensor.io.source.paths import flush_file, flush_folder


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_flushes_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    if number == errno.EIO:
        with pytest.raises(OSError, match="error"):
            flush_folder(str(tmp_path))
    else:
        flush_folder(str(tmp_path))
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError):  # noqa: PT011  # any of these
        flush_file(str(tmp_path / "a"))
