"""The directory of a zip archive, at the edge of each of its rules."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import ContainerError, Reason, UnsupportedError

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
# Offsets and types of fields in the directory's record of a member and in the end record.
METHOD, LENGTH, SIZE = (10, "<H"), (20, "<I"), (24, "<I")
DISK, HERE, COUNT = (4, "<H"), (8, "<H"), (10, "<H")


ARRAY = io.BytesIO()
np.save(ARRAY, np.arange(3, dtype="u1"))
BOTH = {"a.npy": ARRAY.getvalue(), "b.npy": ARRAY.getvalue()}


def archive(members: Mapping[str, bytes], method: int = STORED, comment: bytes = b"") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as file:
        file.comment = comment
        for name, data in members.items():
            file.writestr(name, data)
    return made.getvalue()


def changed(data: bytes, magic: bytes, field: tuple[int, str], value: int) -> bytes:
    """Return an archive with another number in a field of its last record of a kind."""
    at, form = data.rindex(magic) + field[0], field[1]
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def left_of(data: bytes) -> list[tuple[str, int | None]]:
    """Return the losses of an archive other than members."""
    with ztensor.open(data) as reader:
        found = [(one.kind, one.nbytes) for one in reader.unrepresented]
    return [one for one in found if one[0] != "member that is no array"]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_member_unpacks_to_as_much_as_deflate_can(more: int) -> None:
    data = archive({"a.npy": BOTH["a.npy"]}, DEFLATED)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        length = file.getinfo("a.npy").compress_size
    data = changed(data, b"PK\1\2", SIZE, length * 1032 + more)
    if more <= 0:
        assert ztensor.open(data).keys() == ["a"]
        return
    with refused(ContainerError, Reason.SIZE_MISMATCH):
        ztensor.open(data)


@pytest.mark.parametrize("length", [0, 1, 0xFFFE, 0xFFFF])
@pytest.mark.parametrize("looks_like_an_end", [False, True])
def test_a_comment_of_any_length_ends_an_archive(length: int, looks_like_an_end: bool) -> None:
    comment = ((b"PK\5\6" if looks_like_an_end else b"") + b"c" * 0xFFFF)[:length]
    data = archive(BOTH, comment=comment)
    assert ztensor.open(data)["a"].tolist() == [0, 1, 2]
    assert left_of(data) == ([("comment of the archive", length)] if length else [])
    with refused(ContainerError, Reason.TRUNCATED):
        ztensor.open(data + b"x")


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_member_ends_where_the_next_begins(more: int) -> None:
    data = archive({"a": b"abc", "b.npy": BOTH["b.npy"]})
    first = data.index(b"PK\1\2")
    for at in (first + LENGTH[0], first + SIZE[0]):
        data = data[:at] + struct.pack("<I", 3 + more) + data[at + 4 :]
    if more <= 0:
        assert left_of(data) == ([("bytes between members", -more)] if more else [])
        return
    with refused(ContainerError, Reason.OUT_OF_BOUNDS):
        ztensor.open(data)


@pytest.mark.parametrize(
    ("magic", "field", "value", "error"),
    [
        (b"PK\5\6", DISK, 1, UnsupportedError),
        (b"PK\5\6", HERE, 1, UnsupportedError),
        (b"PK\5\6", COUNT, 1, UnsupportedError),
        (b"PK\5\6", COUNT, 3, UnsupportedError),
        (b"PK\1\2", METHOD, 12, UnsupportedError),
        (b"PK\1\2", (8, "<H"), 1, UnsupportedError),  # encrypted
        (b"PK\1\2", (34, "<H"), 1, UnsupportedError),  # on another disk
        (b"PK\5\6", (12, "<I"), 1, ContainerError),  # the directory's length
        (b"PK\3\4", (8, "<H"), 8, ContainerError),  # the local header has another method
    ],
)
def test_what_the_records_say_is_checked(
    magic: bytes, field: tuple[int, str], value: int, error: Any
) -> None:
    with pytest.raises(error):
        ztensor.open(changed(archive(BOTH), magic, field, value))["b"]


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_members_is_that_of_the_directory(count: int) -> None:
    data = archive(BOTH)
    for field in (HERE, COUNT):
        data = changed(data, b"PK\5\6", field, count)
    with pytest.raises(ContainerError):
        ztensor.open(data)
