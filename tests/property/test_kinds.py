"""Manifests parsed in bulk and one by one: the same content, or the same refusal.

The corpora, and regular manifests with random changes; `tests/unit/spec/container/test_bulk.py` has
manifests by hand.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.extent import amount, sample
from tests.unit.spec.container.parsing import BULK, GENERAL, REFUSED, frame_of
from tests.unit.spec.container.parsing import compare as compare_frame
from ztensor.errors import ZTensorError
from ztensor.ext import LOGICAL_TYPES, STORAGE_TYPES, element_count
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.container import framing
from ztensor.testing.builder import Raw, item
from ztensor.testing.builder import head as shortest_head
from ztensor.testing.damage import EDGES, damaged, random_damage

TESTS = Path(__file__).parents[1]


def compare(data: bytes, limits: Limits = DEFAULT_LIMITS) -> str:
    """Parse a manifest of 1.x both ways; blobs may be anywhere."""
    return compare_frame(data, frame_of("1", data, 1 << 50), limits)


# --- The corpus -----------------------------------------------------------------------------


def manifests_of_the_corpora() -> Iterator[tuple[str, tuple[bytes, framing.Frame]]]:
    for corpus in ("corpus", "corpus2"):
        for path in sorted((TESTS / corpus).rglob("*.zt")):
            file = path.read_bytes()
            try:
                frame = framing.locate(file[:8], file[-40:], len(file))
            except ZTensorError:
                continue
            if frame.container.value in ("1", "2"):
                stop = frame.manifest_offset + frame.manifest_length
                yield (
                    path.relative_to(TESTS).as_posix(),
                    (file[frame.manifest_offset : stop], frame),
                )


MANIFESTS = dict(manifests_of_the_corpora())


@pytest.mark.parametrize("path", MANIFESTS)
def test_a_file_of_the_corpora(path: str) -> None:
    data, frame = MANIFESTS[path]
    compare_frame(data, frame)


# --- Regular files, damaged -----------------------------------------------------------------

DIGESTS = (None, "crc32c:0x0A1B2C3D", "crc32c:0xabcdef09", "sha256:" + "3f" * 32)


def plain_entry(rng: Random) -> dict[str, Any]:
    """Return an object as released writers put it into a manifest."""
    shape = [rng.choice((1, 2, 3, 8, 64, 300)) for _ in range(rng.randrange(5))]
    logical = rng.choice(tuple(LOGICAL_TYPES.values())) if rng.random() < 0.3 else None
    dtype = logical.dtype if logical is not None else rng.choice(tuple(STORAGE_TYPES))
    count = element_count(shape)
    size = (count if logical is None else logical.storage_count(count)) * STORAGE_TYPES[dtype].width
    data: dict[str, Any] = {"dtype": dtype}
    if logical is not None:
        data["type"] = logical.name
    elif rng.random() < 0.1:
        data["type"] = dtype
    data["offset"] = 64 * rng.randrange(1, 1 << rng.choice((1, 8, 20, 33)))
    data["length"] = size
    if rng.random() < 0.3:
        data["length"] = rng.randrange(1 << 20)
        if rng.random() < 0.8:
            data["uncompressed_length"] = size
        data["encoding"] = "zstd"
    elif rng.random() < 0.1:
        data["encoding"] = "raw"
    digest = rng.choice(DIGESTS)
    if digest is not None:
        data["digest"] = digest
    return {"shape": shape, "format": "dense", "components": {"data": data}}


def other_entry(rng: Random) -> dict[str, Any]:
    blob = {"dtype": "u64", "offset": 64, "length": 16}
    values = {"dtype": "f32", "offset": 128, "length": 4}
    return rng.choice(
        [
            {
                "shape": [1, 1],
                "format": "sparse_csr",
                "components": {"indices": {**blob, "length": 8}, "indptr": blob, "values": values},
            },
            {**plain_entry(rng), "attributes": {"scale": 0.5, "shape": [1]}},
            {"shape": [], "format": "of_tomorrow", "components": {}},
            {"shape": [1], "format": "dense", "components": {"data": values, "mask": values}},
        ]
    )


NAMES = ("", "w", "layer.7.weight", "ü" * 15, "重み", "a\0b", "digest", "\U0001f9ff", "é" * 300)


def regular_root(rng: Random, count: int = 12) -> dict[str, Any]:
    names = sorted({*rng.sample(NAMES, 4), *(f"model.layers.{n}.w" for n in range(count - 4))})
    if rng.random() < 0.3:
        rng.shuffle(names)
    objects = {name: other_entry(rng) if rng.random() < 0.1 else plain_entry(rng) for name in names}
    root: dict[str, Any] = {"version": rng.choice(("1.1.0", "1.2.0"))}
    if rng.random() < 0.3:
        root["attributes"] = {"origin": "test", "numbers": [1, 2.5, None]}
    root["objects"] = objects
    if rng.random() < 0.3:
        root["commit"] = {"prev": 0, "end": 1234, "digest": "crc32c:0x00000000"}
        root["generator"] = "x"  # behind it: then the record is not checked
    return root


def long_head(rng: Random) -> Callable[[int, int], bytes]:
    """Return heads that are now and then longer than they need to be: of numbers and long texts."""

    def head(major: int, argument: int) -> bytes:
        width = rng.choice((0, 1, 2, 4, 8))
        if argument >> 8 * width or major > 3 or (major == 3 and argument < 24):
            return shortest_head(major, argument)
        return bytes([major << 5 | 23 + width.bit_length()]) + argument.to_bytes(width, "big")

    return head


WORDS = tuple(
    item(word)
    for word in (
        "shape", "format", "dense", "components", "data", "dtype", "type", "offset", "length",
        "uncompressed_length", "encoding", "digest", "raw", "zstd", "lz4", "f32", "u8", "f8_e4m3",
        "complex64", "f8_e4m3fn", "f4_e2m1", "objects", "version", "commit", "attributes", "sparse",
    )
)  # fmt: skip
ITEMS = (
    b"\xf6", b"\xf5", b"\x20", b"\x80", b"\xa0", b"\x9f\xff", b"\xbf\xff", b"\x7f\x61a\xff",
    b"\xf9\0\0", b"\xc1\x01", b"\x40", b"\xff", b"\x1c", b"\xa1\x01\x02", *map(item, EDGES),
)  # fmt: skip


def by_bytes(rng: Random, root: dict[str, Any]) -> bytes:
    data = item(root)
    return damaged(data, [random_damage(rng, len(data)) for _ in range(rng.choice((1, 1, 2)))])


def by_words(rng: Random, root: dict[str, Any]) -> bytes:
    """Put another word, or another item, where one word stands."""
    data = item(root)
    places = [
        (at, len(word)) for word in WORDS for at in range(len(data)) if data.startswith(word, at)
    ]
    at, length = rng.choice(places)
    return data[:at] + rng.choice((*WORDS, *ITEMS)) + data[at + length :]


def maps_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from maps_in(inner)


def by_fields(rng: Random, root: dict[str, Any]) -> bytes:
    """Take away, add, reorder, rename or change a field of one map."""
    target = rng.choice(list(maps_in(root)))
    keys = list(target)
    kind = rng.randrange(5)
    key = rng.choice(keys) if keys else ""
    if kind == 0:
        target.pop(key, None)
    elif kind == 1:
        target[rng.choice(("note", "type", "digest", "attributes", "encoding"))] = rng.choice(
            VALUES
        )
    elif kind == 2:
        rng.shuffle(keys)
        reordered = {key: target[key] for key in keys}
        target.clear()
        target.update(reordered)
    elif kind == 3:
        renamed = {rng.choice((key, "x")) if old == key else old: target[old] for old in keys}
        target.clear()
        target.update(renamed)
    else:
        target[key] = rng.choice(VALUES)
    return item(root)


VALUES: tuple[Any, ...] = (
    None, True, 0, 1, 63, 64, 65, -1, 1.0, "", "raw", "f32", "f8_e4m3fn", "f64", [], {}, [0], [-1],
    [1 << 63, 4, 0], [2, 2, 2, 2], [1] * 9, [0] * 70, "md5:00", "crc32c:0x0A1B2C3", b"x",
    "sha256:0x" + "0" * 64, "CRC32C:0x00000000", "crc32c:00000000", Raw(b"\xff"), *EDGES,
)  # fmt: skip


def by_heads(rng: Random, root: dict[str, Any]) -> bytes:
    return item(root, long_head(rng))


def by_counts(rng: Random, root: dict[str, Any]) -> bytes:
    """Let one array or map say another count; often it is the map of all objects."""
    count = len(root["objects"])
    place = None if rng.random() < 0.3 else rng.randrange(60)
    containers = itertools.count()

    def head(major: int, argument: int) -> bytes:
        if major > 3 and (argument == count if place is None else next(containers) == place):
            argument += rng.choice((-2, -1, 1, 2))
        return shortest_head(major, argument)

    return item(root, head)


def by_repeating(rng: Random, root: dict[str, Any]) -> bytes:
    """Put an object of the file into it once more: in a name, in an attribute, under its name."""
    objects = root["objects"]
    name = rng.choice(list(objects))
    again = item(name) + item(objects[name])
    place = rng.randrange(4)
    if place == 0:
        root["attributes"] = {"copy": again}
    elif place == 1:
        more = copy.deepcopy(objects[rng.choice(list(objects))])
        objects[name]["attributes"] = {"copy": again, "more": more}
    elif place == 2:
        objects["\ud800" if rng.random() < 0.2 else item("shape").decode() + "x"] = objects[name]
    else:
        data = item(root)
        at = data.index(again) + rng.choice((0, len(again)))
        return data[:at] + again + data[at:]
    return item(root)


CHANGES: Mapping[str, Callable[[Random, dict[str, Any]], bytes]] = {
    "nothing": lambda _, root: item(root),
    "bytes": by_bytes,
    "words": by_words,
    "fields": by_fields,
    "heads": by_heads,
    "counts": by_counts,
    "repeating": by_repeating,
}


CASES = amount(12, full=1000)


@pytest.mark.parametrize("change", CHANGES)
def test_a_regular_file_with_something_changed(change: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(CASES):
        rng = Random(f"{change} {seed}")
        counts[compare(CHANGES[change](rng, regular_root(rng)))] += 1
    if change in ("nothing", "heads"):
        assert counts[REFUSED] == 0
        assert counts[BULK] > CASES // 2
    else:
        assert min(counts[BULK], counts[REFUSED]) >= CASES // 60


def test_every_cut() -> None:
    data = item(regular_root(Random(6), 5))
    assert compare(data) == BULK
    for length in sample(range(len(data)), 50):
        assert compare(data[:length]) == REFUSED


@pytest.mark.parametrize("depth", range(8))
def test_every_cap_on_depth(depth: int) -> None:
    rng = Random(7)
    entry = plain_entry(rng)
    deep = {**plain_entry(rng), "attributes": {"deep": [[[]]]}}
    for objects in ({"a": entry}, {"a": entry, "b": deep}, {"a": {**entry, "shape": []}}):
        compare(item({"version": "1.2.0", "objects": objects}), limits=Limits(depth=depth))


# --- Hostile files --------------------------------------------------------------------------

MARKER = b"\xa3" + item("shape")
COUNT = 300
ENTRY = item(plain_entry(Random(8)))
OTHER = item({**plain_entry(Random(8)), "attributes": {"a": 1}})
NUMBERS = [item(f"{number:04}") for number in range(COUNT)]


def each(entry: bytes, names: list[bytes] = NUMBERS) -> bytes:
    return b"".join(name + entry for name in names)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "the last byte": (each(ENTRY)[:-1] + b"\xff", REFUSED),
    "the last name again": (each(ENTRY, NUMBERS[:-1]) + NUMBERS[0] + ENTRY, REFUSED),
    "only first bytes of markers": (b"\xa3" * 9000, REFUSED),
    "only markers": (MARKER * 3000, REFUSED),
    "markers and nothing else": ((MARKER + b"\x80" + bytes(60)) * COUNT, REFUSED),
    "markers in names": (each(ENTRY, [MARKER[1:] + name for name in NUMBERS]), REFUSED),
    "names with markers": (
        each(ENTRY, [item("\x65shape" * 3 + f"{number:04}") for number in range(COUNT)]),
        BULK,
    ),
    "first bytes of markers in names": (
        each(ENTRY, [item("\u00e3" * 9 + f"{number:04}") for number in range(COUNT)]),
        BULK,
    ),
    "names in chunks": (
        each(ENTRY, [b"\x7f" + name + b"\x60\xff" for name in NUMBERS]),
        BULK,
    ),
    "too many others": (each(ENTRY, NUMBERS[:100]) + each(OTHER, NUMBERS[100:]), GENERAL),
    "others and markers": (
        each(OTHER, NUMBERS[:250]) + each(ENTRY, NUMBERS[250:]),
        GENERAL,
    ),
    "rank beyond all": (each(MARKER + b"\x9b" + b"\xff" * 8 + ENTRY[8:]), REFUSED),
    "names beyond all": (each(ENTRY, [b"\x7b" + b"\x7f" * 8] * COUNT), REFUSED),
    "nested": (NUMBERS[0] + ENTRY + NUMBERS[1] + b"\x81" * 9000 + each(ENTRY), REFUSED),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file(name: str) -> None:
    objects, expected = HOSTILE[name]
    start = b"\xa2" + item("version") + item("1.2.0") + item("objects")
    assert compare(start + shortest_head(5, COUNT) + objects) == expected
