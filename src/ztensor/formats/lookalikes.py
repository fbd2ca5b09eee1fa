"""Names of files that hold no model, by their first bytes: one line each."""

from __future__ import annotations

import re
from typing import NamedTuple

from ztensor.formats.table import SAVED_MODEL

_HEAD_BYTES = 512


class Lookalike(NamedTuple):
    """A kind of file that is mistaken for a model, or downloaded instead of one.

    Attributes:
        name: its name, to follow "this is".
        begins: the pattern of its first bytes.
        advice: how to get the model; None if unknown.
    """

    name: str
    begins: re.Pattern[bytes]
    advice: str | None = None


def _of(name: str, begins: bytes, advice: str | None = None) -> Lookalike:
    return Lookalike(name, re.compile(begins, re.DOTALL), advice)


_UNPACK = "unpack it, and open the files in it"

LOOKALIKES = [
    _of(
        "a pointer of Git LFS, not the file it stands for",
        rb"version https://git-lfs\.github\.com/spec/",
        "`git lfs pull` fetches the file",
    ),
    _of(
        "a web page (HTML)",
        rb"(?i:(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<(!doctype html|html|head)\b)",
        "the download gave a page of the site: fetch the file itself",
    ),
    Lookalike(
        "a SavedModel of TensorFlow",
        SAVED_MODEL,
        "its values are in the folder `variables` beside it, which is not read here",
    ),
    _of("a model of TensorFlow Lite", rb".{4}TFL3"),
    _of(
        "a model of GGML from before GGUF", rb"lmgg|fmgg|tjgg|algg", "llama.cpp converts it to GGUF"
    ),
    _of("a zip archive without a model", rb"PK\x03\x04|PK\x05\x06", _UNPACK),
    _of("a tar archive without a model", rb".{257}ustar", _UNPACK),
    _of("a gzip file", rb"\x1f\x8b", _UNPACK),
    _of("an xz file", rb"\xfd7zXZ\0", _UNPACK),
    _of("a bzip2 file", rb"BZh[1-9]1AY&SY", _UNPACK),
    _of("a zstd file", rb"\x28\xb5\x2f\xfd", _UNPACK),
    _of("a 7z archive", rb"7z\xbc\xaf\x27\x1c", _UNPACK),
    _of("a PNG image", rb"\x89PNG\r\n"),
    _of("a JPEG image", rb"\xff\xd8\xff"),
    _of("a GIF image", rb"GIF8"),
    _of("a PDF", rb"%PDF-"),
    _of("a Parquet file", rb"PAR1"),
    _of("an Arrow file", rb"ARROW1"),
    _of("a SQLite database", rb"SQLite format 3\0"),
    _of("a program", rb"\x7fELF|MZ.{0,510}This program"),
]

_JSON = re.compile(rb'(\xef\xbb\xbf)?\s*[\[{]\s*(["\]}\[{0-9-]|true|false|null)')


def lookalike(head: bytes) -> Lookalike | None:
    """Return the kind of a file of no known format, or None if it is unknown.

    Args:
        head: the file's first bytes.
    """
    head = head[:_HEAD_BYTES]
    for kind in LOOKALIKES:
        if kind.begins.match(head):
            return kind
    if not head:
        return None
    if _JSON.match(head):
        return Lookalike("a text in JSON", _JSON)
    try:
        text = head.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        if len(head) < _HEAD_BYTES or error.start < len(head) - 3:  # a letter may be cut at the end
            return None
        text = head[: error.start].decode("utf-8")
    if all(letter.isprintable() or letter.isspace() for letter in text):
        return Lookalike("a text", _JSON)
    return None
