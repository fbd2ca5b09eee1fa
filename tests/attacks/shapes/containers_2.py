"""Containers of 2.x: items that decode to much, broken rules, and many blobs, shards and frames."""

from __future__ import annotations

from collections.abc import Callable

from tests.attacks.shapes import around, shape
from tests.attacks.shapes.containers import ITEMS
from ztensor.ext import cbor
from ztensor.spec.digest import xxh3
from ztensor.testing.builder_2 import MAGIC, PAGE, File2, dense, footer, seekable

BLOBS = MAGIC + bytes(PAGE - len(MAGIC))
PART: dict[str, object] = {"dtype": "u8", "blob": [PAGE, 0]}
EMPTY = cbor.encode(dense(PART, [0]))


def sealed(manifest: bytes, blobs: bytes = BLOBS) -> bytes:
    blobs += bytes(-len(blobs) % PAGE)
    return blobs + manifest + footer(len(blobs), len(manifest), xxh3(manifest))


def rising(length: int, value: bytes, key: Callable[[int], bytes] | None = None) -> bytes:
    """Return a map of keys in the order that is asked for, of one length, to the same value."""
    make = key or (lambda number: cbor.encode(f"{number:08x}"))
    count = max(length // len(make(0) + value), 1)
    return cbor.head(5, count) + b"".join(make(number) + value for number in range(count))


def fields(**values: bytes) -> bytes:
    """Return a map of text keys, sorted, to items that are encoded already."""
    pairs = sorted((cbor.encode(key), value) for key, value in values.items())
    return cbor.head(5, len(pairs)) + b"".join(key + value for key, value in pairs)


def root(objects: bytes = b"\xa0", **more: bytes) -> bytes:
    return sealed(fields(objects=objects, **more))


def _blobs(length: int, place: Callable[[int], list[int]]) -> bytes:
    objects = {
        f"{number:08x}": dense({"dtype": "u8", "blob": place(number)}, [place(number)[1]])
        for number in range(max(length // 70, 2))
    }
    return sealed(cbor.encode({"objects": objects}), BLOBS + bytes(3 * PAGE))


def _needed(length: int) -> bytes:
    names = [f"{number:08x}" for number in range(max(length // 150, 1))]
    objects = {name: dense(PART | {"shard": name}, [0]) for name in names}
    shards = {name: {"size": 1 << 13, "digest": "xxh3:0"} for name in names}
    return sealed(cbor.encode({"objects": objects, "shards": shards}))


def _frames(length: int) -> bytes:
    """Return one object with a table of many empty frames."""
    file = File2()
    count = max(length // 8, 1)
    part = file.packed(b"", seekable([b""] * count, [0] * count))
    return file.seal({"objects": {"o": dense(part, [0])}})


def _number(number: int) -> bytes:
    return b"\x1a" + ((1 << 20) + number).to_bytes(4, "big")


def _parts(parts: bytes) -> bytes:
    one = fields(layout=cbor.encode("x.y/1"), parts=parts, shape=b"\x81\x00")
    return root(fields(o=one))


def _dimensions(length: int) -> bytes:
    shape = cbor.head(4, length) + bytes(length)
    return root(fields(o=fields(shape=shape, layout=cbor.encode("dense"))))


def _deep(length: int) -> bytes:
    count = length // 30
    return root(zzzzzzzzzz=cbor.head(4, count) + (b"\x81" * 29 + b"\0") * count)


WRONG = EMPTY.replace(b"u8", b"q8")
NOTED = cbor.encode(dense(PART, [0], attributes={"a": 1}))
LATER = cbor.encode({"a": 0, **dense(PART, [0]), "zzzzzzzzzz": 1})
SHARD = cbor.encode({"size": 48, "digest": "xxh3:0"})

SHAPES: dict[str, Callable[[int], bytes]] = {
    "empty objects": lambda n: root(rising(n, b"\xa0")),
    "bad objects": lambda n: root(rising(n, b"\x00")),
    "plain objects": lambda n: root(rising(n, EMPTY)),
    "plain objects, the last one bad": lambda n: root(rising(n, EMPTY)[: -len(EMPTY)] + WRONG),
    "root of keys that are no text": lambda n: sealed(rising(n, b"\x00", _number)),
    "objects of keys that are no text": lambda n: root(rising(n, b"\x00", _number)),
    "bad parts": lambda n: _parts(rising(n, b"\x00")),
    "parts": lambda n: _parts(rising(n, cbor.encode(PART))),
    "dimensions": _dimensions,
    "attributes": lambda n: root(attributes=rising(n, b"\x00")),
    "attributes of objects": lambda n: root(rising(n, NOTED)),
    "shards": lambda n: root(shards=rising(n, SHARD)),
    "shards that a part needs each": _needed,
    "bad shards": lambda n: root(shards=rising(n, b"\x00")),
    "blobs that overlap": lambda n: _blobs(n, lambda i: [PAGE * (1 + i % 2), 2 * PAGE]),
    "equal blobs": lambda n: _blobs(n, lambda _: [PAGE, PAGE]),
    "unknown fields": lambda n: root(rising(n, LATER)),
    "deep unknown fields": _deep,
    "a table of frames": _frames,
}

for name, make in ITEMS.items():  # most are of another form than the one that is taken
    shape("zt 2", name)(around(make, lambda data: root(attributes=fields(a=data))))
for name, make in SHAPES.items():
    shape("zt 2", name)(make)
