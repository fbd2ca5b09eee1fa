"""Files of 2.x: seeds, changes of their structure, and both ways to read their manifests.

A change is sealed again: the hash of the manifest is right, or nothing behind it would be reached.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pieces
from pieces import Pieces

import ztensor
from ztensor.ext import FileObjects
from ztensor.io.source.memory import MemorySource
from ztensor.limits import Budget
from ztensor.spec.container import walk
from ztensor.spec.container.framing import LOOK_BYTES, Container, Frame, locate
from ztensor.spec.digest import xxh3
from ztensor.spec.model.manifest import TensorObject
from ztensor.spec.wire import cbor
from ztensor.testing.builder_2 import PAGE, File2, dense, footer
from ztensor.testing.promise import PromiseBroken

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus2"
MOST = 40 << 10  # bytes of a seed
WORDS = (
    *("objects", "attributes", "shards", "shape", "layout", "parts", "data", "blob", "dtype"),
    *("type", "shard", "encoding", "decoded_length", "digest", "size", "dense", "f32", "u8", "u64"),
    *("zt.zstd-seekable/1", "zt.sparse_csr/1", "zt.sparse_coo/1", "zt.quant_group/1", "zt.mx/1"),
    *("gguf.q8_0/1", "values", "indices", "indptr", "coords", "scales", "zeros", "bool", "f4_e2m1"),
    *("xxh3:0123456789abcdef", "base", ""),
)
NUMBERS = (0, 1, 2, 3, 8, 23, 24, 40, 255, 256, 4095, 4096, 8192, 65536, 1 << 32, (1 << 64) - 1)


@functools.cache
def seeds() -> tuple[bytes, ...]:
    """Return the small files of the corpus: all right ones, and every third of the others."""
    found = []
    for number, path in enumerate(sorted(CORPUS.rglob("*.zt"))):
        if path.stat().st_size <= MOST and ("reject" not in path.parts or number % 3 == 0):
            found.append(path.read_bytes())
    return (*found, _many())


def _many() -> bytes:
    """Return a file of many plain objects over one blob."""
    file = File2()
    part = file.part([1.0, 2.0])
    return file.seal({"objects": {f"w{number}": dense(part, [2]) for number in range(60)}})


def frame_of(data: bytes) -> Frame | None:
    """Return the extent of a file's manifest; None if it has no manifest."""
    try:
        frame = locate(data[:8], data[-LOOK_BYTES:], len(data))
    except ztensor.ZTensorError:
        return None
    return frame if frame.container is Container.V2 and frame.manifest_length else None


def sealed(blobs: bytes, manifest: bytes) -> bytes:
    """Return blobs with a manifest behind them."""
    blobs += bytes(-len(blobs) % PAGE)
    return blobs + manifest + footer(len(blobs), len(manifest), xxh3(manifest))


def cut(data: bytes) -> Pieces | None:
    """Cut the manifest into its items."""
    frame = frame_of(data)
    if frame is None:
        return None
    manifest = data[frame.manifest_offset :][: frame.manifest_length]
    blobs = data[: frame.manifest_offset] if len(data) < MOST else data[:MOST]

    def join(parts: list[bytes]) -> bytes:
        return sealed(blobs, b"".join(parts))

    words = tuple(cbor.encode(word) for word in (*WORDS, *NUMBERS))
    return Pieces(pieces.heads(manifest), join, words, (b"\x83", b"", b""))


def change(rng: Random, data: bytes) -> bytes:
    """Change values of the manifest, and put it together again in its one form."""
    frame = frame_of(data)
    if frame is None:
        return data
    try:
        root: Any = cbor.decode(data[frame.manifest_offset :][: frame.manifest_length])
    except ztensor.ZTensorError:
        return data
    for _ in range(rng.choice((1, 1, 2, 4))):
        root = _changed(rng, root, 0)
    try:
        return sealed(data[: frame.manifest_offset], cbor.encode(root))
    except ztensor.ZTensorError:
        return data


def _changed(rng: Random, value: Any, depth: int) -> Any:
    if isinstance(value, dict) and value and (depth < 2 or rng.random() < 0.8):
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.08:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.16:
            return {**value, rng.choice(WORDS): value[key]}
        if kind < 0.24:
            return {**value, key: value[rng.choice(list(value))]}
        return {**value, key: _changed(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], _changed(rng, value[place], depth + 1), *value[place + 1 :]]
    if type(value) is int and rng.random() < 0.7:
        return max(0, value + rng.choice((-4096, -8, -1, 1, 8, 4096)))
    return rng.choice((*WORDS, *NUMBERS, None, True, -1, 1.5, b"x", [], {}, [1, 2], {"a": 1}))


def both_ways(parse: Any, limits: ztensor.Limits, data: bytes) -> bool:
    """Read a manifest as kinds, from one object on, and in general; both must come to the same."""
    ends = []
    last = None
    for least in (1, 1 << 60):
        try:
            frame = locate(data[:8], data[-LOOK_BYTES:], len(data), limits)
            part = data[frame.manifest_offset :][: frame.manifest_length]
            with mock.patch.object(walk, "LEAST_OBJECTS", least):
                manifest = parse(part, frame, Budget(limits, len(data)))
            ends.append((None, list(manifest.objects.items())[:50], manifest.attributes))
        except ztensor.ZTensorError as error:
            ends.append((error.reason, None, None))
            last = error
    if len(set(map(repr, ends))) > 1:
        raise PromiseBroken(f"read as kinds, and in general: {ends}")
    if last is not None:
        raise last
    return True


# --- Changed --------------------------------------------------------------------------------------


@functools.cache
def torn() -> tuple[bytes, ...]:
    """Return files with bytes behind their last state, or without their end."""
    found = []
    for data in seeds()[::7]:
        found += [data + b"torn", data + data[PAGE:-3], data[:-1], data + bytes(900) + data[-40:]]
    return tuple(found)


def ends(data: bytes) -> Pieces:
    """Cut a file at what looks like the end of a state."""
    return Pieces(re.split(rb"(.{32}\x89ZT2\r\n\x1a\n)", data, flags=re.DOTALL), b"".join)


def _placed(one: TensorObject) -> TensorObject:
    """Return an object with its places counted from its own shard, which a longer root moves."""
    components = {
        role: part
        if part.shard is None
        else part._replace(
            offset=part.offset - (part.shard.start or 0), shard=part.shard._replace(start=None)
        )
        for role, part in one.components.items()
    }
    return one._replace(components=components)


def changed(limits: ztensor.Limits, folder: Path, data: bytes) -> bool:
    """Change a file that opens: other objects stay, and a refused change changes nothing.

    Args:
        limits: with which it has to open, before and behind.
        folder: where it is written.
        data: the file.
    """
    frame, manifest = FileObjects.manifest_in(MemorySource(data), limits)
    if not frame.manifest_length:  # a data shard of 2.x, in which there is nothing to change
        return False
    before = manifest.objects
    path = folder / "changed.zt"
    path.write_bytes(data)
    name, first = "one more", next(iter(before), None)
    try:
        with ztensor.Editor(path, durable=False, lock=False) as editor:
            if name not in before:
                editor.write(name, np.arange(3, dtype=np.float32))
            if first is not None:
                swapped = {"renamed": first} if "renamed" in before else {}
                editor.rename({first: "renamed", **swapped})
            editor.set_attributes({"mine": 1})
    except ztensor.ZTensorError:
        if path.read_bytes() != data:
            raise PromiseBroken("a change that is refused changed the file") from None
        raise
    new = path.read_bytes()
    if not new.startswith(data):
        raise PromiseBroken("the old state was written to")
    after = dict(FileObjects.manifest_in(MemorySource(new), ztensor.Limits())[1].objects)
    kept = [one for one in before if one not in (first, "renamed", name)]
    if any(repr(_placed(after[one])) != repr(_placed(before[one])) for one in kept):
        raise PromiseBroken("an unchanged object is another")
    return True
