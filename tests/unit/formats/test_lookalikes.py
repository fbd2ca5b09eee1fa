"""What is no model is told for what it is, and no model is taken for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ztensor.formats.lookalikes import LOOKALIKES, lookalike
from ztensor.io.formats import recognised
from ztensor.io.source.memory import MemorySource

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


@pytest.mark.parametrize("name", HEADS)
def test_what_it_is(name: str) -> None:
    kind = lookalike(HEADS[name])
    assert kind is not None
    assert kind.name.startswith(name)
    assert recognised(MemorySource(HEADS[name])) is None


def test_every_line_of_the_table_has_its_case() -> None:
    for kind in LOOKALIKES:
        assert any(kind.name.startswith(name) for name in HEADS), kind.name


def test_a_text_may_be_cut_in_a_letter() -> None:
    kind = lookalike(b"a" + "é".encode() * 400)
    assert kind is not None
    assert kind.name == "a text"


@pytest.mark.parametrize(("before", "is_text"), [(508, False), (509, True), (511, True)])
def test_a_letter_is_cut_only_at_the_end(before: int, is_text: bool) -> None:
    """512 bytes are looked at, and no letter has more than four."""
    found = lookalike(b"a" * before + b"\xf0\x9f\x98" + b"a" * 9)
    assert (found is not None) is is_text


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 600, b"\xff\xfe", b"abc\x01", b"a" * 400 + b"\xff" * 200]
)
def test_what_nobody_knows(data: bytes) -> None:
    assert lookalike(data) is None


def test_no_file_of_the_corpus_is_taken_for_one() -> None:
    corpus = Path(__file__).parents[2] / "corpus" / "foreign"
    for path in corpus.rglob("*.onnx"):
        kind = lookalike(path.read_bytes()[:512])
        assert kind is None or "SavedModel" not in kind.name
