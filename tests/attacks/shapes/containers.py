"""Containers of ours: manifests that decode to much, break many rules, or hide in torn files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice, product

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


@shape("zt 1.2")
def _bad_components(length: int) -> bytes:
    parts = Raw(mapped(length, b"\x00"))
    return v1(root(item({"o": {"shape": [0], "format": "dense", "components": parts}})))


@shape("zt 1.2")
def _empty_components(length: int) -> bytes:
    parts = Raw(mapped(length, b"\xa0"))
    return v1(root(item({"o": {"shape": [0], "format": "dense", "components": parts}})))


@shape("zt 1.2")
def _components_out_of_bounds(length: int) -> bytes:
    parts = Raw(mapped(length, component(offset=1 << 60)))
    return v1(root(item({"o": {"shape": [0], "format": "x", "components": parts}})))


@shape("zt 1.2")
def _roles_no_layout_has(length: int) -> bytes:
    parts = Raw(mapped(length, component(), lambda i: item(f"{i:x}")))
    return v1(
        root(item({"o": {"shape": [0], "format": "dense", "components": parts}})),
        MAGIC_1 + bytes(56),
    )


@shape("zt 1.2")
def _long_shapes(length: int) -> bytes:
    dims = Raw(many(length // 4, b"\x00"))
    one = item({"shape": dims, "format": "x", "components": {}})
    return v1(root(item({f"o{i}": Raw(one) for i in range(4)})))


@shape("zt 1.2")
def _version_after_the_objects(length: int) -> bytes:
    objects = Raw(mapped(length, plain(component(), attributes={})))
    return v1(item({"objects": objects, "version": "1.1.0"}), MAGIC_1 + bytes(56))


@shape("zt columns")
def _wide_names(length: int) -> bytes:
    name = WIDE + "a" * 230
    objects = mapped(length, plain(component()), lambda i: item(f"{name}{i:x}"))
    return v1(root(objects), MAGIC_1 + bytes(56))


@shape("zt columns")
def _shortest_objects(length: int) -> bytes:
    one = item({"shape": [], "format": "dense", "components": {"data": Raw(component(64, 1))}})
    return v1(root(mapped(length, one)), MAGIC_1 + bytes(120))


@shape("zt columns")
def _broken_at_the_end(length: int) -> bytes:
    whole = mapped(length, plain(component()))
    return v1(root(whole, zzz=0)[:-1] + b"\x1c", MAGIC_1 + bytes(56))


@shape("zt columns")
def _an_object_out_of_bounds(length: int) -> bytes:
    good, bad = plain(component()), plain(component(offset=1 << 40))
    objects = mapped(length, good)
    return v1(root(objects[: -len(good)] + bad), MAGIC_1 + bytes(56))


@shape("zt columns")
def _eight_dimensions(length: int) -> bytes:
    one = item({"shape": [0] * 8, "format": "dense", "components": {"data": Raw(component())}})
    return v1(root(mapped(length, one)), MAGIC_1 + bytes(56))


@shape("zt 0.1")
def _one_name(length: int) -> bytes:
    entry = {"name": "a", "offset": 64, "size": 0, "dtype": "uint8", "shape": [0]}
    return v0_1(many(length, item({**entry, "encoding": "raw"})))


@shape("zt 0.1")
def _short_names(length: int) -> bytes:
    entry = {"offset": 64, "size": 0, "dtype": "uint8", "shape": [0], "encoding": "raw"}
    one = [item({"name": f"{i:x}", **entry}) for i in range(max(length // 58, 1))]
    return sealed(MAGIC_0_1 + bytes(56), head(ARRAY, len(one)) + b"".join(one))


@shape("zt 1.0")
def _bad_components_of_1_0(length: int) -> bytes:
    parts = Raw(mapped(length, b"\x00"))
    tensor = {"dtype": "uint8", "shape": [0], "format": "dense", "components": parts}
    return v1_0(item({"version": "1.0", "tensors": {"a": tensor}}))


# --- Torn files -------------------------------------------------------------------------------


def _footers(length: int, step: int, filler: bytes) -> bytes:
    """Return a file of footers that each claim all that is before them as their manifest."""
    data = bytearray(MAGIC_1 + bytes(56))
    data += filler
    while len(data) < length:
        data += bytes(max(step - 16, 0)) + (len(data) - 64 + max(step - 16, 0)).to_bytes(
            8, "little"
        )
        data += MAGIC_1
    return bytes(data) + b"torn"


@shape("torn")
def _footers_over_bad_components(length: int) -> bytes:
    parts = Raw(mapped(length // 2, b"\xa0"))
    bad = root(item({"o": {"shape": [0], "format": "dense", "components": parts}}))
    data = bytearray(MAGIC_1 + bytes(56) + bad)
    for size in range(len(bad), len(bad) + length - len(data), 16):  # each over the one before it
        data += size.to_bytes(8, "little") + MAGIC_1
    return bytes(data) + b"torn"


@shape("torn")
def _footers_over_objects(length: int) -> bytes:
    objects = root(mapped(length // 2, plain(component(), attributes={})))
    return _footers(length, 16, objects)


@shape("torn")
def _small_states(length: int) -> bytes:
    one = root(attributes={"a": []})
    state = one + len(one).to_bytes(8, "little") + MAGIC_1
    return MAGIC_1 + bytes(56) + state * (length // len(state)) + b"torn"


add(
    "zt 1.2",
    {
        "root is an array": lambda length: v1(many(length, b"\x80")),
        "bad objects": lambda length: v1(root(mapped(length, b"\x00"))),
        "empty objects": lambda length: v1(root(mapped(length, b"\xa0"))),
        "objects of no component": lambda length: v1(
            root(mapped(length, item({"shape": [], "format": "x", "components": {}})))
        ),
        "objects of wrong sizes": lambda length: v1(
            root(mapped(length, plain(component(length=64)))), MAGIC_1 + bytes(120)
        ),
        "objects with fields of their own": lambda length: v1(
            root(mapped(length, plain(component(), x=[[]]))), MAGIC_1 + bytes(56)
        ),
        "no version at the end": lambda length: v1(
            item({"objects": Raw(mapped(length, plain(component(), attributes={})))})
        ),
    },
)


add(
    "zt columns",
    {
        "plain objects": lambda length: v1(
            root(mapped(length, plain(component()))), MAGIC_1 + bytes(56)
        ),
        "a name twice": lambda length: v1(
            root(mapped(length, plain(component()), lambda i: item(f"{i // 2:x}")))
        ),
    },
)


add(
    "zt 0.1",
    {
        "entries that are no maps": lambda length: v0_1(many(length, b"\x00")),
        "empty entries": lambda length: v0_1(many(length, b"\xa0")),
    },
)


add(
    "zt 1.0",
    {
        "bad tensors": lambda length: v1_0(
            item({"version": "1.0", "tensors": Raw(mapped(length, b"\x00"))})
        ),
    },
)


add(
    "torn",
    {
        "footers in one another": lambda length: _footers(length, 16, b""),
        "footers over empty arrays": lambda length: _footers(
            length, 16, many(length // 2, b"\x80")
        ),
        "magics alone": lambda length: MAGIC_1 * (length // 8) + b"torn",
    },
)
