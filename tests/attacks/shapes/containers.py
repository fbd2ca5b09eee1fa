"""Containers of ours: manifests that decode to much, break many rules, or hide in torn files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice, product
from typing import Any

from tests.attacks.shapes import WIDE, add, around, shape, widening
from ztensor.testing.builder import Raw, head, item, sealed

MAGIC_0_1, MAGIC_1 = b"ZTEN0001", b"ZTEN1000"
ARRAY, MAP = 4, 5


def v0_1(index: bytes) -> bytes:
    return sealed(MAGIC_0_1, index)


def v1_0(manifest: bytes) -> bytes:
    return sealed(MAGIC_1, manifest)


def v1(manifest: bytes, blobs: bytes = MAGIC_1) -> bytes:
    return sealed(blobs, manifest, footer=MAGIC_1)


def keys(width: int = 3) -> Iterator[bytes]:
    """Yield different short texts as CBOR; as many as characters allow."""
    for letters in product(range(32, 127), repeat=width):
        yield head(3, width) + bytes(letters)


def many(length: int, one: bytes) -> bytes:
    """Return an array of the same item over and over."""
    n = max(length // len(one), 1)
    return head(ARRAY, n) + one * n


def mapped(length: int, value: bytes, key: Callable[[int], bytes] | None = None) -> bytes:
    """Return a map of different keys to the same value."""
    make = key or (lambda number: item(f"{number:x}"))
    parts, size = [], 0
    for number in count():
        parts.append(make(number) + value)
        size += len(parts[-1])
        if size >= length:
            return head(MAP, len(parts)) + b"".join(parts)
    raise AssertionError


def root(objects: bytes = b"\xa0", **fields: object) -> bytes:
    return item({"version": "1.2.0", **fields, "objects": Raw(objects)})


def component(offset: int = 64, length: int = 0, **fields: object) -> bytes:
    return item({"dtype": "u8", "offset": offset, "length": length, **fields})


def plain(component: bytes, **fields: object) -> bytes:
    parts = {"shape": [0], "format": "dense", **fields, "components": {"data": Raw(component)}}
    return item(parts)


# Single items, as the root or as a file's attribute.
ITEMS: dict[str, Callable[[int], bytes]] = {
    "array of empty arrays": lambda n: many(n, b"\x80"),
    "array of empty maps": lambda n: many(n, b"\xa0"),
    "array of open arrays": lambda n: many(n, b"\x9f\xff"),
    "array of arrays of one": lambda n: many(n, b"\x81\x00"),
    "array of maps of one": lambda n: many(n, b"\xa1\x61a\x00"),
    "array of maps of numbers": lambda n: many(n, b"\xa1\x00\x00"),
    "array of tags": lambda n: many(n, b"\xc1\x00"),
    "deep tags": lambda n: many(n, b"\xc1" * 60 + b"\x00"),
    "deep arrays": lambda n: many(n, b"\x81" * 60 + b"\x00"),
    "simple values": lambda n: many(n, b"\xe0"),
    "small numbers": lambda n: many(n, b"\x00"),
    "negative numbers": lambda n: many(n, b"\x38\xff"),
    "numbers": lambda n: many(n, b"\x19\x7f\xff"),
    "half floats": lambda n: many(n, b"\xf9\x3c\x01"),
    "texts of two": lambda n: many(n, b"\x62ab"),
    "different texts": lambda n: (lambda k: head(ARRAY, len(k)) + b"".join(k))(
        list(islice(keys(3), max(n // 4, 1)))
    ),
    "texts of one wide character": lambda n: many(n, b"\x64\xf0\x9f\x98\x80"),
    "byte strings": lambda n: many(n, b"\x42ab"),
    "chunked texts": lambda n: many(n, b"\x7f\x62ab\xff"),
    "open array": lambda n: b"\x9f" + b"\x80" * n + b"\xff",
    "open map": lambda n: (
        b"\xbf" + b"".join(item(f"{i:x}") + b"\x80" for i in range(n // 5 + 1)) + b"\xff"
    ),
    "map of short keys": lambda n: mapped(n, b"\x00"),
    "map of empty maps": lambda n: mapped(n, b"\xa0"),
    "map of numbers": lambda n: mapped(n, b"\x00", item),
    "map of arrays": lambda n: mapped(n, b"\x00", lambda i: b"\x81" + item(i)),
    "map of deep keys": lambda n: mapped(n, b"\x00", lambda i: b"\x81" * 50 + item(i)),
    "map of tags": lambda n: mapped(n, b"\xc1\x00", lambda i: b"\xc1" + item(i)),
    "a key of many numbers": lambda n: b"\xa1" + many(n, b"\x00") + b"\x00",
    "a key of many texts": lambda n: b"\xa1" + many(n, b"\x62ab") + b"\x00",
    "a key of many maps": lambda n: b"\xa1" + many(n, b"\xa1\x61a\x00") + b"\x00",
    "maps in keys": lambda n: mapped(n, b"\x00", lambda i: b"\xa1\x00" + item(i)),
    "a key twice at the end": lambda n: (
        lambda whole: head(MAP, n // 5 + 2) + whole + b"\x00\x00\x00\x00"
    )(b"".join(b"\x19" + i.to_bytes(2, "big") + b"\x00" if i < 65536 else b"\x1a"
               + i.to_bytes(4, "big") + b"\x00" for i in range(1000, 1000 + n // 5))),
    "one long text": lambda n: item("a" * n),
    "one long wide text": lambda n: item(WIDE + "a" * n),
    "one long text that widens": lambda n: item(widening(n)),
    "a text of chunks that widens": lambda n: (
        b"\x7f" + item("a" * (n - n // 16)) + item("\u20ac" + WIDE) + b"\xff"
    ),
    "a text of a chunk that widens": lambda n: b"\x7f" + item(widening(n - n // 16)) + b"\xff",
    "long wide texts": lambda n: many(n, item(WIDE + "a" * 200)),
    "a long wide key": lambda n: b"\xa1" + item(widening(n)) + b"\x00",
    "one long byte string": lambda n: item(b"a" * n),
}  # fmt: skip

for name, make in ITEMS.items():
    shape("zt 0.1", name)(around(make, v0_1))
    shape("zt 1.2", name)(around(make, lambda data: v1(root(attributes={"a": Raw(data)}))))
for name in ("array of empty arrays", "map of short keys", "map of numbers"):
    shape("zt 1.0", name)(around(ITEMS[name], v1_0))


# --- Broken rules -----------------------------------------------------------------------------

BLOB = MAGIC_1 + bytes(56)  # the header, padded to the first blob


def parts(components: bytes, layout: str = "dense", **fields: object) -> bytes:
    """Return the objects of a manifest: one with these components."""
    known = {"shape": [0], "format": layout, "components": Raw(components)}
    return item({"o": {**known, **fields}})


def entry(**fields: object) -> bytes:
    """Return a tensor of 0.1."""
    known = {"offset": 64, "size": 0, "dtype": "uint8", "shape": [0], "encoding": "raw"}
    return item({**fields, **known})


def over(blob: bytes, objects: Mapping[str, tuple[int, Mapping[str, Any]]]) -> bytes:
    """Return a file of objects over one blob, at 64: length of the shape, fields of the data."""
    whole = {"dtype": "f32", "offset": 64, "length": len(blob)}
    fields = {
        name: {"shape": [size], "format": "dense", "components": {"data": {**whole, **data}}}
        for name, (size, data) in objects.items()
    }
    return v1(root(item(fields)), MAGIC_1 + bytes(64 - len(MAGIC_1)) + blob)


def numbered(length: int) -> bytes:
    entries = [entry(name=f"{i:x}") for i in range(max(length // 58, 1))]
    return sealed(MAGIC_0_1 + bytes(56), head(ARRAY, len(entries)) + b"".join(entries))


def later_version(objects: bytes) -> bytes:
    return v1(item({"objects": Raw(objects), "version": "1.1.0"}), BLOB)


def with_shape(shape: bytes) -> dict[str, object]:
    return {"shape": Raw(shape), "format": "x", "components": {}}


PLAIN = plain(component())
NOTED = plain(component(), attributes={})
SHORTEST = item({"shape": [], "format": "dense", "components": {"data": Raw(component(64, 1))}})
RANK_8 = item({"shape": [0] * 8, "format": "dense", "components": {"data": Raw(component())}})
FAR = plain(component(offset=1 << 40))
EMPTY = item({"shape": [], "format": "x", "components": {}})

add(
    "zt 1.2",
    {
        "root is an array": lambda n: v1(many(n, b"\x80")),
        "bad objects": lambda n: v1(root(mapped(n, b"\x00"))),
        "empty objects": lambda n: v1(root(mapped(n, b"\xa0"))),
        "bad components": lambda n: v1(root(parts(mapped(n, b"\x00")))),
        "empty components": lambda n: v1(root(parts(mapped(n, b"\xa0")))),
        "components out of bounds": lambda n: v1(
            root(parts(mapped(n, component(offset=1 << 60)), "x"))
        ),
        "roles no layout has": lambda n: v1(root(parts(mapped(n, component()))), BLOB),
        "objects of no component": lambda n: v1(root(mapped(n, EMPTY))),
        "objects of wrong sizes": lambda n: v1(
            root(mapped(n, plain(component(length=64)))), MAGIC_1 + bytes(120)
        ),
        "objects with fields of their own": lambda n: v1(
            root(mapped(n, plain(component(), x=[[]]))), BLOB
        ),
        "long shapes": lambda n: v1(
            root(item({f"o{i}": with_shape(many(n // 4, b"\x00")) for i in range(4)}))
        ),
        "no version at the end": lambda n: v1(item({"objects": Raw(mapped(n, NOTED))})),
        "version after the objects": lambda n: later_version(mapped(n, NOTED)),
    },
)
add(
    "zt columns",
    {
        "plain objects": lambda n: v1(root(mapped(n, PLAIN)), BLOB),
        "wide names": lambda n: v1(
            root(mapped(n, PLAIN, lambda i: item(f"{WIDE}{'a' * 230}{i:x}"))), BLOB
        ),
        "shortest objects": lambda n: v1(root(mapped(n, SHORTEST)), MAGIC_1 + bytes(120)),
        "broken at the end": lambda n: v1(root(mapped(n, PLAIN), zzz=0)[:-1] + b"\x1c", BLOB),
        "a name twice": lambda n: v1(root(mapped(n, PLAIN, lambda i: item(f"{i // 2:x}")))),
        "an object out of bounds": lambda n: v1(root(mapped(n, PLAIN)[: -len(PLAIN)] + FAR), BLOB),
        "eight dimensions": lambda n: v1(root(mapped(n, RANK_8)), BLOB),
    },
)
add(
    "zt 0.1",
    {
        "entries that are no maps": lambda n: v0_1(many(n, b"\x00")),
        "empty entries": lambda n: v0_1(many(n, b"\xa0")),
        "one name": lambda n: v0_1(many(n, entry(name="a"))),
        "short names": numbered,
    },
)
add(
    "zt 1.0",
    {
        "bad tensors": lambda n: v1_0(item({"version": "1.0", "tensors": Raw(mapped(n, b"\x00"))})),
        "bad components of 1 0": lambda n: v1_0(
            item({"version": "1.0", "tensors": Raw(parts(mapped(n, b"\x00"), dtype="uint8"))})
        ),
    },
)


# --- Torn files -------------------------------------------------------------------------------


def footers(length: int, filler: bytes) -> bytes:
    """Return a torn file of footers, each of which claims all bytes before it as its manifest."""
    data = bytearray(BLOB + filler)
    while len(data) < length:
        data += (len(data) - 64).to_bytes(8, "little") + MAGIC_1
    return bytes(data) + b"torn"


def footers_over(length: int, manifest: bytes) -> bytes:
    """Return the same behind a manifest, for so many bytes more."""
    data = bytearray(BLOB + manifest)
    for size in range(len(manifest), len(manifest) + length - len(data), 16):
        data += size.to_bytes(8, "little") + MAGIC_1
    return bytes(data) + b"torn"


def states(length: int) -> bytes:
    manifest = root(attributes={"a": []})
    state = manifest + len(manifest).to_bytes(8, "little") + MAGIC_1
    return BLOB + state * (length // len(state)) + b"torn"


add(
    "torn",
    {
        "footers in one another": lambda n: footers(n, b""),
        "footers over bad components": lambda n: footers_over(
            n, root(parts(mapped(n // 2, b"\xa0")))
        ),
        "footers over empty arrays": lambda n: footers(n, many(n // 2, b"\x80")),
        "footers over objects": lambda n: footers(n, root(mapped(n // 2, NOTED))),
        "magics alone": lambda n: MAGIC_1 * (n // 8) + b"torn",
        "small states": states,
    },
)
