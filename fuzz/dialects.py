"""Deltas of other programs: seeds, their pieces, and two ways to apply one, which must agree.

A case is a byte for the dialect, four bytes for the length of an index, the index, and a
safetensors file. The tensors of the base are always the same.
"""

from __future__ import annotations

import functools
import io
import json
import struct
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pieces
from pieces import Pieces

import ztensor
from ztensor import delta
from ztensor.delta.changes import bound
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.states import State, stored_form
from ztensor.errors import SourceNotFoundError
from ztensor.ext import ENCODINGS, Range
from ztensor.io.source.memory import MemorySource
from ztensor.numpy import load_file, save_file
from ztensor.testing.promise import PromiseBroken

DIALECTS = ("slime", "trl", "arc")
MARK = b"\xffEND\xff"  # between the pieces of the index, the header and the stored bytes
INDEX, FILE = "model.safetensors.index.json", "model-00000-of-00001.safetensors"
REFUSED = {
    DeltaReason.MALFORMED,
    DeltaReason.DIALECT,
    DeltaReason.TENSOR,
    DeltaReason.SHAPE,
    DeltaReason.RESULT,
}


@functools.cache
def states() -> list[dict[str, Any]]:
    """Return a state, and two states that follow it."""
    dice = np.random.default_rng(9)
    old = {
        "w": dice.normal(size=900).astype(ml_dtypes.bfloat16),
        "v.b": dice.normal(size=(3, 5)).astype(ml_dtypes.bfloat16),
        "none": np.zeros((0, 2), ml_dtypes.bfloat16),
    }
    made = [old]
    for every in (70, 1):
        new = {name: array.copy() for name, array in old.items()}
        new["w"][::every] += 1
        new["v.b"][0] *= 2
        made.append(new)
    return made


def case(code: int, folder: Path) -> bytes:
    index = folder / INDEX
    text = index.read_bytes() if code == 0 else b""
    file = folder / FILE
    return struct.pack("<BI", code, len(text)) + text + file.read_bytes()


def made(folder: Path) -> list[bytes]:
    """Return deltas of each dialect, written into a folder."""
    old, *others = states()
    found = []
    for new in others:
        for values in ("difference", "new"):
            for checksum in ("xxh3-128", "adler32"):
                emptied(folder)
                how: dict[str, Any] = {"values": values, "checksum": checksum}
                delta.make(old, new, folder, dialect="slime", version=1, **how)
                found.append(case(0, folder))
        delta.make(old, new, folder / FILE, dialect="trl", version=1)
        found.append(case(1, folder))
        patch = load_file(folder / FILE, copy=True)
        for name in old:
            if f"{name}.idx" in patch:
                gaps = patch[f"{name}.idx"].astype(np.int64) + 1
                patch[f"{name}.idx"] = (np.cumsum(gaps) - 1).astype(np.int32)
        notes = {"format": "sparse_weight_patch", "version": "1", "encoding": "raw"}
        save_file(patch, folder / FILE, notes)
        found.append(case(1, folder))
        save_file(new, folder / FILE, notes | {"sparse": "False"})
        found.append(case(1, folder))
        delta.make(old, new, folder / FILE, dialect="arc")
        found.append(case(2, folder))
        for is_inner in (False, True):
            write_zlib(folder / FILE, new, is_inner=is_inner)
            found.append(case(2, folder))
    return found


def write_zlib(path: Path, new: dict[str, Any], *, is_inner: bool) -> None:
    """Write a file of arc_v1; or one of arc_v3, in which each tensor is a file of arc_v1."""
    notes, arrays = {}, {}
    for name, old in states()[0].items():
        mask = old.view(np.uint8) ^ new[name].view(np.uint8)
        digits = notes[name] = str(zlib.adler32(new[name].tobytes()))
        stored = zlib.compress(mask.tobytes())
        if is_inner:
            tensor = {"tensor": np.frombuffer(stored, np.uint8)}
            save_file(tensor, path, {"tensor": digits, "fallback_name": "arc_v1"})
            stored = path.read_bytes()
        arrays[name] = np.frombuffer(stored, np.uint8)
    save_file(arrays, path, notes)


def emptied(folder: Path) -> None:
    for name in (INDEX, FILE):
        (folder / name).unlink(missing_ok=True)


@functools.cache
def seeds(folder: Path) -> tuple[bytes, ...]:
    """Return the deltas of each dialect, and versions whose index names other places."""
    good = made(folder)
    size = struct.unpack_from("<I", good[0], 1)[0]
    index, file = json.loads(good[0][5 : 5 + size]), good[0][5 + size :]
    bad = []
    for home in (f"../{FILE}", f"/tmp/{FILE}", ".", 3):  # noqa: S108  # it is only named
        text = json.dumps(index | {"weight_map": {"w": home, "v.b": FILE}}).encode()
        bad.append(struct.pack("<BI", 0, len(text)) + text + file)
    return (*good, *bad)


def applied(folder: Path, data: bytes) -> bool:
    """Apply a delta in both ways; return whether it was accepted."""
    if len(data) < 5:
        return False
    code, size = data[0] % len(DIALECTS), struct.unpack_from("<I", data, 1)[0]
    emptied(folder)
    (folder / INDEX).write_bytes(data[5 : 5 + size])
    (folder / FILE).write_bytes(data[5 + size :])
    path = folder if code == 0 else folder / FILE
    try:
        _applied(path, DIALECTS[code])
    except SourceNotFoundError:
        return False  # the index names missing files
    except DeltaError as refusal:
        if refusal.reason not in REFUSED or not str(refusal).isprintable():
            raise
        return False
    return True


def _applied(path: Path, dialect: str) -> None:
    base = states()[0]
    live = {name: array.copy() for name, array in base.items()}
    with delta.open(path, dialect=dialect) as found, State(base) as state:
        repr(found)
        (ready,) = bound([found], state)
        news = {name: change.tensor(state.get(name)) for name, change in ready.items()}
        for name, change in ready.items():
            if not change.is_result(news[name], None):
                raise DeltaError("another result", reason=DeltaReason.RESULT)
            for role, part in change.parts.items():
                if change.kind == "changed":
                    old = stored_form(state[name].components[role])
                    _compare(part, old, stored_form(news[name].components[role]))
        if all(change.kind == "changed" for change in ready.values()):
            delta.apply_to(live, found, if_applied="skip")
            for name, new in news.items():
                if live[name].tobytes() != new.components["data"].tobytes():
                    raise PromiseBroken(f"{name} is another one in memory")


def _compare(part: Any, old: Any, new: Any) -> None:
    bits, last = old.view(f"u{old.itemsize}").copy(), -1
    for positions, values in part.changes(old):
        if positions[0] <= last or (np.diff(positions) <= 0).any():
            raise PromiseBroken("positions do not rise")
        bits[positions] = bits[positions] + values if part.needs_old else values
        last = positions[-1]
    if bits.tobytes() != new.tobytes():
        raise PromiseBroken("applied in two ways with different results")


def change(rng: Random, data: bytes) -> bytes:
    """Return a case with one other array in an intact file: a vector of bytes is packed again."""
    start = 5 + struct.unpack_from("<I", data, 1)[0]
    with ztensor.open(io.BytesIO(data[start:])) as reader:
        arrays, notes = dict(reader), dict(reader.attributes)
    name = rng.choice(list(arrays))
    array = arrays[name]
    if array.dtype != np.uint8:
        dtype = rng.choice([array.dtype, "u2", "u4", "i4", ml_dtypes.bfloat16])
        bits = pieces.blindly(rng, array.tobytes())
        arrays[name] = np.frombuffer(bits[: len(bits) // 4 * 4], dtype)
    else:
        stored = array.tobytes()
        try:
            plain = unpacked(stored)
        except (zlib.error, ztensor.ZTensorError):
            plain = rng.randbytes(30)
        for _ in range(rng.randrange(3)):
            plain = pieces.blindly(rng, plain)
        size = max(1, len(plain))
        frames = ENCODINGS["zstd"].encode(memoryview(plain), level=1, frame_bytes=size)
        packed = zlib.compress(plain) if stored[:1] == b"x" else b"".join(frames)
        arrays[name] = np.frombuffer(packed, np.uint8)
    return data[:start] + written(arrays, notes)


def unpacked(stored: bytes) -> bytes:
    if stored[:1] == b"x":
        return zlib.decompress(stored)
    source = MemorySource(stored)
    whole = Range(source, 0, len(stored))
    return b"".join(ENCODINGS["zstd"].decode_chunks(whole, None, ztensor.Limits()))


def written(arrays: dict[str, Any], notes: dict[str, Any]) -> bytes:
    """Return a safetensors file."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        save_file(arrays, file.name, notes)
        return Path(file.name).read_bytes()


def cut(words: tuple[bytes, ...], row: Any, data: bytes) -> Pieces | None:
    """Cut a case into the tokens of its index and header, and short runs of stored bytes."""
    if len(data) < 13:
        return None
    start = 5 + struct.unpack_from("<I", data, 1)[0]
    stop = start + 8 + int.from_bytes(data[start : start + 8], "little")
    if stop > len(data):
        return None
    index, header = pieces.tokens(data[5:start]), pieces.tokens(data[start + 8 : stop])
    stored = [data[at : at + 16] for at in range(stop, len(data), 16)]

    def join(parts: list[bytes]) -> bytes:
        text, head, rest = [*b"".join(parts).split(MARK, 2), b"", b""][:3]
        return (
            data[:1]
            + struct.pack("<I", len(text))
            + text
            + struct.pack("<Q", len(head))
            + head
            + rest
        )

    return Pieces([*index, MARK, *header, MARK, *stored], join, words, row)
