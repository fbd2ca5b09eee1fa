"""Files of other formats, damaged in their bytes or in their structure.

One token of a header, one opcode of a pickle, one field of a protobuf message, one member of an
archive or one number is changed, and the lengths and checksums around it are put in order, so that
the damage comes to where it is understood.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import pickletools
import random
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ztensor.testing.damage import EDGES, damaged, random_damage

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus" / "foreign"
SUFFIXES = (".gguf", ".h5", ".keras", ".npy", ".npz", ".onnx", ".pt", ".safetensors")
SMALL = 8000
# Errors of a hostile file's structure here; the file is then damaged blindly.
UNREADABLE = (
    ValueError, OverflowError, OSError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
TOKEN = re.compile(rb"-?[0-9]+|\"[^\"]*\"|'[^']*'|[A-Za-z]+|[][{}(),:]")
WORDS = (
    b"-1", b"1e3", b"0.5", b"null", b"true", b"None", b"True", b"[]", b"{}", b"()", b"[0]", b"(0,)",
    b'""', b"''", b'"F32"', b'"F4"', b'"BOOL"', b"'<f8'", b"'>c16'", b"'|O'", b"'<M8[s]'", b"'|V3'",
    b'"__metadata__"', b'"data_offsets"', b'"\\ud800"', b'"\xff"',
)  # fmt: skip


@functools.cache
def corpus(folder: str) -> tuple[tuple[str, bytes], ...]:
    """Return the suffix and the bytes of each small file of `accept` or `reject`."""
    files = [path for path in sorted((CORPUS / folder).rglob("*")) if path.suffix in SUFFIXES]
    return tuple((p.suffix, p.read_bytes()) for p in files if p.stat().st_size <= SMALL)


def blindly(rng: random.Random, data: bytes) -> bytes:
    return damaged(data, [random_damage(rng, len(data))])


def other_number(rng: random.Random, data: bytes) -> bytes:
    """Put a number at which something turns anywhere, aligned or not."""
    width = rng.choice([1, 2, 4, 8])
    at = rng.randrange(max(1, len(data) - width))
    number = rng.choice(EDGES) % (1 << 8 * width)
    return data[:at] + number.to_bytes(width, "little") + data[at + width :]


def other_token(rng: random.Random, text: bytes) -> bytes:
    """Replace one token of JSON or of a Python literal, drop it, or double it."""
    tokens = list(TOKEN.finditer(text))
    if not tokens:
        return text
    token = rng.choice(tokens)
    new = rng.choice(
        [b"", token[0] * 2, rng.choice(WORDS), rng.choice(tokens)[0], b"%d" % rng.choice(EDGES)]
    )
    return text[: token.start()] + new + text[token.end() :]


# --- Headers of text --------------------------------------------------------------------------


def safetensors(rng: random.Random, data: bytes) -> bytes:
    stop = 8 + int.from_bytes(data[:8], "little")
    header = other_token(rng, data[8:stop])
    if rng.random() < 0.5:
        header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[stop:]


def npy(rng: random.Random, data: bytes) -> bytes:
    width = 2 if data[6:7] == b"\1" else 4
    start = 8 + width
    stop = min(start + int.from_bytes(data[8:start], "little"), len(data))
    header = other_token(rng, data[start:stop].rstrip())
    header = header.ljust(stop - start - 1) + b"\n"
    if len(header) >= 1 << 8 * width:
        raise ValueError("the header is too long")
    return data[:8] + len(header).to_bytes(width, "little") + header + data[stop:]


# --- Pickles and archives ---------------------------------------------------------------------


def pickled(rng: random.Random, data: bytes) -> bytes:
    """Change one opcode of the first pickle there is."""
    starts = [at for _, _, at in pickletools.genops(data) if at is not None]
    if len(starts) < 2:
        return data
    operations = [data[start:stop] for start, stop in itertools.pairwise(starts)]
    at, other = rng.randrange(len(operations)), rng.randrange(len(operations))
    match rng.randrange(5):
        case 0:
            del operations[at]
        case 1:
            operations.insert(at, operations[other])
        case 2:
            operations[at], operations[other] = operations[other], operations[at]
        case 3:
            operations[at] *= rng.choice([2, 3, 70])
        case _:
            operations[at] = operations[at][:1] + blindly(rng, operations[at][1:] or b"\0")
    return b"".join(operations) + data[starts[-1] :]


def archived(rng: random.Random, data: bytes) -> bytes:
    """Change one member of an archive and write the archive anew."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = [member for member in archive.infolist() if member.file_size <= SMALL]
        members = [(member.filename, archive.read(member)) for member in found]
    if not members:
        raise ValueError("nothing in it that is small")
    at = rng.randrange(len(members))
    name, content = members[at]
    if name.endswith(".pkl") and rng.random() < 0.8:
        members[at] = (name, pickled(rng, content))
    elif name.endswith(".npy") and rng.random() < 0.8:
        members[at] = (name, npy(rng, content))
    elif name.endswith(".h5") and rng.random() < 0.8:
        members[at] = (name, other_number(rng, content))
    elif rng.random() < 0.5:
        members[at] = (name, blindly(rng, content))
    else:
        members[at] = (rng.choice(members)[0] + rng.choice(["", "/", ".npy", "\0"]), content)
    kind = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as archive:
        for number, (name, content) in enumerate(members):
            # A name may come twice, which the library warns of: written otherwise, then renamed.
            information = zipfile.ZipInfo(f"{number}")
            information.filename = name
            information.compress_type = kind
            archive.NameToInfo.clear()
            archive.writestr(information, content)
    return out.getvalue()


def members_named(data: bytes, suffix: str) -> list[bytes]:
    """Return the contents of those members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [archive.read(name) for name in archive.namelist() if name.endswith(suffix)]


# --- Protobuf ---------------------------------------------------------------------------------

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
DEEPEST = 6


class Field(NamedTuple):
    """One field: its key's number and type, and its bytes or the message it holds."""

    number: int
    wire_type: int
    value: bytes | list[Field]


def fields_of(data: bytes, depth: int = 0) -> list[Field]:
    """Return a message's fields.

    Raises:
        ValueError: the bytes are not a message.
    """
    fields: list[Field] = []
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            stop = varint(data, at)[1]
        elif wire_type == BYTES:
            length, at = varint(data, at)
            stop = at + length
        elif wire_type in (FIXED32, FIXED64):
            stop = at + (4 if wire_type == FIXED32 else 8)
        else:
            raise ValueError("no such type")
        if stop > len(data) or not number:
            raise ValueError("outside")
        value: bytes | list[Field] = data[at:stop]
        if wire_type == BYTES and at < stop and depth < DEEPEST:
            with contextlib.suppress(ValueError):
                value = fields_of(data[at:stop], depth + 1)
        fields.append(Field(number, wire_type, value))
        at = stop
    return fields


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError("no number")


def as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(fields: list[Field]) -> bytes:
    parts = []
    for number, wire_type, value in fields:
        content = message(value) if isinstance(value, list) else value
        parts.append(as_varint(number << 3 | wire_type))
        if wire_type == BYTES:
            parts.append(as_varint(len(content)))
        parts.append(content)
    return b"".join(parts)


def onnx(rng: random.Random, data: bytes) -> bytes:
    root = fields_of(data)
    fields = root
    while True:
        at = rng.randrange(len(fields))
        number, wire_type, value = fields[at]
        if not isinstance(value, list) or rng.random() < 0.2:
            break
        fields = value
    other = rng.choice(fields)
    match rng.randrange(5):
        case 0:
            del fields[at]
        case 1:
            fields.insert(rng.randrange(len(fields) + 1), fields[at])
        case 2:
            fields[at] = Field(other.number, wire_type, value)
        case 3:
            fields[at] = Field(number, VARINT, as_varint(rng.choice(EDGES)))
        case _:
            content = message(value) if isinstance(value, list) else value
            fields[at] = Field(number, BYTES, blindly(rng, content) if content else b"\0")
    return message(root)


def torch_saved(rng: random.Random, data: bytes) -> bytes:
    return (archived if data.startswith(b"PK") else pickled)(rng, data)


CHANGES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    ".gguf": other_number,
    ".h5": other_number,
    ".keras": archived,
    ".npy": npy,
    ".npz": archived,
    ".onnx": onnx,
    ".pt": torch_saved,
    ".safetensors": safetensors,
}
