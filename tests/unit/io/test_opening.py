from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import (
    FormatError,
    NotZTensorError,
    Reason,
    UnsupportedVersionError,
    ZTensorError,
)
from ztensor.numpy import save
from ztensor.testing.builder_2 import footer

DATA = save({"w": np.arange(3)})


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path,
        str,
        lambda path: path.read_bytes(),
        lambda path: bytearray(path.read_bytes()),
        lambda path: io.BytesIO(path.read_bytes()),
    ],
    ids=["Path", "str", "bytes", "bytearray", "file object"],
)
def test_what_a_caller_may_pass(tmp_path: Path, make: Callable[[Path], Any], mapped: bool) -> None:
    (tmp_path / "m.zt").write_bytes(DATA)
    source = make(tmp_path / "m.zt")
    with ztensor.open(source, mmap=mapped) as reader:
        assert reader["w"].tolist() == [0, 1, 2]
        has_views = not isinstance(source, io.BytesIO) and (
            mapped or not isinstance(source, (str, Path))
        )
        assert np.shares_memory(reader["w"], reader["w"]) is has_views


class OddPath:
    def __fspath__(self) -> bytes:
        return b"no such file \xff.zt"


def test_a_path_of_bytes_behind_a_path_object() -> None:
    with pytest.raises(FileNotFoundError):
        ztensor.open(OddPath())  # type: ignore[arg-type]  # a name of bytes


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (b"", FormatError, Reason.TRUNCATED),
        (b"PK\x03\x04" + bytes(99), NotZTensorError, Reason.NOT_ZTENSOR),
        (DATA[:-1], FormatError, Reason.FOOTER_MAGIC),
        (
            b"\x89ZT2\r\n\x1a\n" + bytes(99) + footer(4096, 1, 0, version=3),
            UnsupportedVersionError,
            Reason.UNKNOWN_VERSION,
        ),
    ],
    ids=["empty", "zip", "cut", "3.x"],
)
def test_errors_name_the_file(
    tmp_path: Path, data: bytes, kind: type[ZTensorError], reason: Reason
) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(data)
    for thing, name in (
        (path, str(path)),
        (data, "<bytes>"),
        (io.BytesIO(data), "<BytesIO>"),
    ):
        with refused(kind, reason) as caught:
            ztensor.open(thing)
        assert caught.value.file == name
        assert str(caught.value).startswith(name)


def test_what_is_no_ztensor_file_is_refused_at_once_however_large(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: takes no space
    start = time.monotonic()
    for head in (bytes(8), b"ZTEN1000", b"ZTEN0001"):
        with path.open("r+b") as file:
            file.write(head)
        with pytest.raises(FormatError):
            ztensor.open(path)
    assert time.monotonic() - start < 5


def test_a_path_with_other_letters(tmp_path: Path) -> None:
    path = tmp_path / "modèle 模型 \U0001f600.zt"
    try:
        path.write_bytes(DATA)
    except (OSError, UnicodeError):
        pytest.skip("this system's names hold no such letters")
    with ztensor.open(path) as reader:
        assert os.path.samefile(reader.name, path)


# --- Modes, as other libraries have them ------------------------------------------------------


def test_a_mode_that_reads_is_taken(tmp_path: Path) -> None:
    (tmp_path / "m.zt").write_bytes(DATA)
    with ztensor.open(tmp_path / "m.zt", "r") as one, ztensor.open(DATA, mode="r") as other:
        assert list(one) == list(other)


@pytest.mark.parametrize(
    ("mode", "call"),
    [
        ("w", "ztensor.Writer(path)"),
        ("wb", "ztensor.Writer(path)"),
        ("x", "ztensor.Writer(path)"),
        ("a", "ztensor.Editor(path)"),
        ("r+", "ztensor.Editor(path)"),
    ],
)
def test_a_mode_that_writes_says_what_writes(tmp_path: Path, mode: str, call: str) -> None:
    (tmp_path / "m.zt").write_bytes(DATA)
    with pytest.raises(ztensor.errors.ArgumentValueError) as caught:
        ztensor.open(tmp_path / "m.zt", mode)  # type: ignore[arg-type]
    assert call in str(caught.value)
    assert (tmp_path / "m.zt").read_bytes() == DATA


@pytest.mark.parametrize("mode", [3, True, b"r", "", "rw", None])
def test_what_is_no_mode_is_refused(mode: object) -> None:
    with pytest.raises((ztensor.errors.ArgumentTypeError, ztensor.errors.ArgumentValueError)):
        ztensor.open(DATA, mode)  # type: ignore[arg-type]
