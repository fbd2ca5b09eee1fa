"""The error for a file without a model names the kind of file."""

from __future__ import annotations

import pytest

import ztensor
from ztensor.errors import NotZTensorError

HEADS = {
    "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\n",
    "a web page": b"\xef\xbb\xbf\n<!doctype HTML>\n<html>",
    "a SavedModel": b"\x08\x01\x12\x90\x02\x0a\x0e\x12\x03abc",
    "a model of TensorFlow Lite": b"\x1c\0\0\0TFL3",
    "a model of GGML": b"tjgg\x03\0\0\0",
    "a zip archive": b"PK\x03\x04" + bytes(60),
    "a tar archive": b"a.txt" + bytes(252) + b"ustar\0",
    "a gzip file": b"\x1f\x8b\x08\0",
    "an xz file": b"\xfd7zXZ\0",
    "a bzip2 file": b"BZh91AY&SY",
    "a zstd file": b"\x28\xb5\x2f\xfd",
    "a 7z archive": b"7z\xbc\xaf\x27\x1c",
    "a PNG image": b"\x89PNG\r\n\x1a\n",
    "a JPEG image": b"\xff\xd8\xff\xe0",
    "a GIF image": b"GIF89a",
    "a PDF": b"%PDF-1.7",
    "a Parquet file": b"PAR1\x15\x04",
    "an Arrow file": b"ARROW1\0\0",
    "a SQLite database": b"SQLite format 3\0",
    "a program": b"\x7fELF\x02\x01",
    "a text in JSON": b'\n{ "a": 1}',
    "a text": "Grüße an alle".encode(),
}


def said_of(data: bytes) -> str:
    with pytest.raises(NotZTensorError) as caught:
        ztensor.open(data)
    return caught.value.message


@pytest.mark.parametrize("name", HEADS)
def test_the_message_names_the_kind_of_file(name: str) -> None:
    assert said_of(HEADS[name]).startswith(f"this is {name}")


def test_a_text_may_be_cut_in_a_letter() -> None:
    assert said_of(b"a" + "é".encode() * 400) == "this is a text"


@pytest.mark.parametrize(("before", "is_text"), [(508, False), (509, True), (511, True)])
def test_a_letter_is_cut_only_at_the_end(before: int, is_text: bool) -> None:
    """512 bytes are looked at, and no letter has more than four."""
    found = said_of(b"a" * before + b"\xf0\x9f\x98" + b"a" * 9)
    assert (found == "this is a text") is is_text


@pytest.mark.parametrize("data", [b"\0" * 600, b"\xff\xfe", b"abc\x01", b"a" * 400 + b"\xff" * 200])
def test_other_bytes_have_no_name(data: bytes) -> None:
    assert "this is" not in said_of(data)
