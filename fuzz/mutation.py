"""Cases for the fuzzer: a file of the corpus or a fresh one, damaged in its bytes or its structure.

Case number `index` of `seed` is always the same bytes, so an escape is reported by two numbers.
Bytes alone seldom get past the size field, the manifest's digest and the CBOR; so half of the
cases change the decoded manifest, or one blob, and put everything around it in order again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import ztensor
from ztensor.numpy import save
from ztensor.spec.container.framing import Container, locate
from ztensor.spec.model.dtype import BY_LONG_NAME, LOGICAL_TYPES, STORAGE_TYPES
from ztensor.spec.wire import cbor
from ztensor.testing.builder import RULES, VERSIONS, Raw, build, committed, head, item, sealed
from ztensor.testing.damage import EDGES, damaged, random_damage

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus"
SMALL = 6000  # larger files cost time and reach nothing that small ones do not
FRESH = 64  # fresh files in use at a time
BLOCK = 20_000  # cases after which they are replaced by others

# Words a manifest can hold, right or wrong in their place.
WORDS = (
    *STORAGE_TYPES, *LOGICAL_TYPES, *BY_LONG_NAME, "f8_e4m3", "i2", "raw", "zstd", "lz4", "dense",
    "sparse_csr", "sparse_coo", "quantized_group", "sparse", "data", "values", "indices", "indptr",
    "coords", "packed_weight", "scales", "zeros", "g_idx", "version", "objects", "tensors",
    "attributes", "components", "shape", "format", "layout", "dtype", "type", "offset", "length",
    "size", "encoding", "digest", "checksum", "uncompressed_length", "data_endianness", "little",
    "big", "name", "commit", "prev", "end", "bits", "group_size", "packing", "8_per_i32",
    "2_per_u8", "32_per_3_i32", "pack_axis", "group_axis", "order", "awq", "reversed", "signed",
    "zero_offset", "zeros_packed", "desc_act", "1.1.0", "1.2.0", "0.1.0", "1.0", "2.0.0",
    "crc32c:0x00000000", "crc32c:1234abcd", "sha256:" + 64 * "0", "xxh3:0000000000000000", "md5:0",
    "", "\0", "\x1b[31m", "a\nb", "\u202e", "é", "../x", "x" * 300,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, float("nan"), float("inf"), "", b"", b"\0" * 9, [], {}, [0],
    [[]], {"": 0}, [1, 2, 3], -(1 << 63), (1 << 64) - 1, -(1 << 64), cbor.UNDEFINED, cbor.Simple(7),
    cbor.Tag(2, b"\1" * 40), cbor.Tag(0, "now"), cbor.Tag(55799, {}), cbor.Pairs(((1, 2),)),
    cbor.Pairs((("a", 1), ("a", 2))), cbor.Pairs(((1, 1), (True, 2), (1.0, 3))),
    Raw(b"\xff"), Raw(b"\x1c"), Raw(b"\x9f\x01\xff"), Raw(b"\xbf\xff"), Raw(b"\x7f\x61a\xff"),
    Raw(b"\x5f\x41\x00\xff"), Raw(b"\x9b" + b"\xff" * 8), Raw(b"\x61\xff"), Raw(b"\x81" * 70),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Base:
    """A file to start from.

    Attributes:
        data: its bytes.
        container: the framing; None if the file has no framing of ours.
        blobs: its bytes up to the manifest.
        root: its decoded manifest.
    """

    data: bytes
    container: Container | None = None
    blobs: bytes = b""
    root: Any = None


def base_of(data: bytes) -> Base:
    """Return a file with its manifest decoded, as far as it has one."""
    with contextlib.suppress(ztensor.ZTensorError):
        frame = locate(data[:8], data[-40:], len(data))
        stop = frame.manifest_offset + frame.manifest_length
        root = cbor.decode(data[frame.manifest_offset : stop])
        return Base(data, frame.container, data[: frame.manifest_offset], root)
    return Base(data)


@functools.cache
def corpus() -> tuple[Base, ...]:
    """Return the small files of the corpus, and those the builder makes, good and broken."""
    files = [path.read_bytes() for path in sorted(CORPUS.rglob("*.zt"))]
    for version in VERSIONS:
        files += [build(version)] * 20
        files += [
            build(version, broken=rule.name) for rule in RULES.values() if version in rule.versions
        ]
    return tuple(base_of(data) for data in files if len(data) <= SMALL)


@functools.lru_cache(maxsize=2 * FRESH)
def fresh(seed: int, number: int) -> Base:
    """Return a file our writer makes of random tensors."""
    rng = random.Random(seed << 32 | number)
    tensors = {"": random_tensor(rng)}
    for _ in range(rng.randrange(3)):
        tensors[rng.choice(WORDS)] = random_tensor(rng)
    for version in rng.sample(VERSIONS, 3):
        with contextlib.suppress(ztensor.NotRepresentableError):
            compression = rng.choice([False, False, 1, 3, 19])
            checksum = rng.choice([None, "crc32c", "crc32c", "sha256"])
            data = save(tensors, version=version, compression=compression, checksum=checksum)
            return base_of(data)
    raise AssertionError("1.2 holds everything")


# Types of less than a byte, with their bits.
PACKED = {
    logical.long_name: logical.bits
    for logical in LOGICAL_TYPES.values()
    if logical.elements_per_storage > 1
}


def random_array(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> Any:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    count = int(np.prod(shape, dtype=np.int64))
    if kind.name == "bool":
        stored = bytes(rng.getrandbits(1) for _ in range(count))
    elif kind.name in PACKED:
        stored = bytes(rng.getrandbits(PACKED[kind.name]) for _ in range(count))
    else:
        stored = rng.randbytes(count * kind.itemsize)
    return np.frombuffer(stored, kind).reshape(shape)


def random_tensor(rng: random.Random) -> Any:
    """Return an array or a tensor of any layout and type."""
    dtype = rng.choice([*BY_LONG_NAME, *(logical.long_name for logical in LOGICAL_TYPES.values())])
    layout = rng.randrange(8)
    rows, columns = rng.randrange(1, 9), rng.randrange(1, 9)
    if layout < 4:
        shape = tuple(rng.choice([0, 1, 2, 3, 5, 8]) for _ in range(rng.randrange(5)))
        return random_array(rng, dtype, shape)
    if dtype in PACKED:  # only a dense shape implies a count
        dtype = "float32"
    if layout == 4:
        lengths = [rng.randrange(columns + 1) for _ in range(rows)]
        indptr = np.cumsum([0, *lengths])
        indices = [column for length in lengths for column in rng.sample(range(columns), length)]
        values = random_array(rng, dtype, (int(indptr[-1]),))
        return ztensor.Tensor.csr(values, np.array(indices, np.uint64), indptr, (rows, columns))
    if layout == 5:
        count = rng.randrange(6)
        axes = [[rng.randrange(size) for _ in range(count)] for size in (rows, columns, 3)]
        coords = [np.array(axis, np.uint64) for axis in axes]
        return ztensor.Tensor.coo(random_array(rng, dtype, (count,)), coords, (rows, columns, 3))
    if layout == 6:
        weights = np.array([[rng.uniform(-1, 1) for _ in range(columns)] for _ in range(rows)])
        return ztensor.Tensor.quantize(
            weights.astype(np.float32),
            bits=rng.choice([2, 3, 4, 8]),
            group_size=rng.choice([-1, 2, 4]),
            symmetric=rng.random() < 0.3,
        )
    parts = {"a": random_array(rng, dtype, (rows,)), "b": random_array(rng, "uint8", (columns,))}
    return ztensor.Tensor(parts, shape=(rows, columns), format="of_tomorrow")


# --- Cases ----------------------------------------------------------------------------------


def mutated(rng: random.Random, base: Base, seed: int, index: int) -> bytes:
    """Return a file damaged in its bytes or in its structure."""
    kind = rng.random()
    if base.container is None or kind < 0.3:
        return damaged(base.data, [random_damage(rng, len(base.data)) for _ in range(few(rng))])
    if kind < 0.35:
        other = pick(rng, seed, index).data
        cut, joint = rng.randrange(len(base.data) + 1), rng.randrange(len(other) + 1)
        return base.data[:cut] + other[joint:]
    root = copied(base.root)
    blobs = base.blobs
    if kind < 0.55:
        blobs = change_blob(rng, root, blobs)
    elif kind < 0.6:
        blobs = damaged(blobs, [random_damage(rng, len(blobs)) for _ in range(few(rng))])
    else:
        for _ in range(few(rng)):
            root = change_value(rng, root, seed, index)
    if rng.random() < 0.8:
        drop_digests(root)
    return reassembled(rng, base, blobs, root)


def few(rng: random.Random) -> int:
    return 1 if rng.random() < 0.6 else 2 + int(rng.random() * 3)


def pick(rng: random.Random, seed: int, index: int) -> Base:
    if rng.random() < 0.5:
        return corpus()[int(rng.random() * len(corpus()))]
    return fresh(seed, index // BLOCK * FRESH + int(rng.random() * FRESH))


def copied(value: Any) -> Any:
    """Return a manifest with mutable maps and arrays."""
    if type(value) is dict:
        return {key: copied(element) for key, element in value.items()}
    if type(value) is list:
        return [copied(element) for element in value]
    return value


def reassembled(rng: random.Random, base: Base, blobs: bytes, root: Any) -> bytes:
    """Return a file with this manifest, mostly in good order."""
    encode = item if rng.random() < 0.9 else functools.partial(item, head=loose_head(rng))
    is_sealed = rng.random() < 0.9
    manifest = committed(root, len(blobs), encode) if is_sealed else encode(root)
    size = None if rng.random() < 0.97 else rng.choice(EDGES)
    footer = b"ZTEN1000" if base.container is Container.V1 else b""
    return sealed(blobs, manifest, size=size, footer=footer)


def loose_head(rng: random.Random) -> Any:
    """Return an encoder of heads that are longer than they need to be."""

    def loose(major: int, argument: int) -> bytes:
        power = int(rng.random() * 6)
        if power > 3 or not 0 <= argument < 1 << (8 << power):
            return head(major, argument)
        return bytes([major << 5 | 24 + power]) + argument.to_bytes(1 << power, "big")

    return loose


def components_of(root: Any) -> list[dict[str, Any]]:
    """Return every map in a manifest that describes stored bytes."""
    found = []
    rest = [root]
    for _ in range(2000):  # repeated lists of repeated lists are huge, and the same
        if not rest:
            break
        value = rest.pop()
        if type(value) is dict:
            if type(value.get("offset")) is int:
                found.append(value)
            rest += value.values()
        elif type(value) is list:
            rest += value
    return found


def drop_digests(root: Any) -> None:
    for component in components_of(root):
        component.pop("digest", None)
        component.pop("checksum", None)


def change_blob(rng: random.Random, root: Any, blobs: bytes) -> bytes:
    """Damage the stored bytes of one component and say in the manifest where they are now."""
    components = components_of(root)
    if not components:
        return blobs
    component = rng.choice(components)
    field = "size" if "size" in component else "length"
    start, length = component["offset"], component.get(field)
    if type(length) is not int:
        return blobs
    stored = blobs[start : start + length]
    stored = damaged(stored, [random_damage(rng, len(stored)) for _ in range(few(rng))])
    blobs += bytes(-len(blobs) % 64)
    component.update({"offset": len(blobs), field: len(stored)})
    return blobs + stored


def change_value(rng: random.Random, root: Any, seed: int, index: int) -> Any:
    """Change one place of the manifest, deep ones as often as others."""
    parent: Any = [root]
    key: Any = 0
    while type(parent[key]) in (dict, list) and parent[key] and rng.random() < 0.85:
        parent = parent[key]
        key = rng.choice(list(parent)) if type(parent) is dict else rng.randrange(len(parent))
    if parent == [root]:
        return changed(rng, root, seed, index)
    parent[key] = changed(rng, parent[key], seed, index)
    return root


def any_value(rng: random.Random) -> Any:
    return copied(rng.choice(VALUES))


def changed(rng: random.Random, value: Any, seed: int, index: int) -> Any:
    """Return another value for a place, mostly of the same kind."""
    if rng.random() < 0.15:
        return any_value(rng)
    if rng.random() < 0.05:
        other = pick(rng, seed, index).root
        while type(other) in (dict, list) and other and rng.random() < 0.8:
            other = rng.choice(list(other.values()) if type(other) is dict else other)
        return copied(other)
    if type(value) is int:
        near = value + rng.choice([-65, -64, -8, -1, 1, 2, 8, 64, 65])
        return rng.choice([near, near, value * 2, value // 2, -value, rng.choice(EDGES)])
    if type(value) is str:
        return rng.choice(WORDS) if rng.random() < 0.8 else value[: len(value) // 2] + "0"
    if type(value) is list:
        return changed_list(rng, value)
    if type(value) is dict:
        return changed_map(rng, value)
    return any_value(rng)


def changed_list(rng: random.Random, value: list[Any]) -> Any:
    kind = rng.randrange(6)
    if kind == 0 or not value:
        return [*value, rng.choice(EDGES)]
    if kind == 1:
        return value[:-1]
    if kind == 2:
        return value[::-1]
    if kind == 3:
        return [*value, *value]
    if kind == 4:
        is_flat = not any(type(element) in (dict, list) for element in value)
        return value * (70 if is_flat and len(value) < 9 else 2)
    return [value]


def changed_map(rng: random.Random, value: dict[Any, Any]) -> Any:
    kind = rng.randrange(6)
    if kind == 0 or not value:
        return {**value, rng.choice(WORDS): any_value(rng)}
    key = rng.choice(list(value))
    if kind == 1:
        return {name: element for name, element in value.items() if name != key}
    if kind == 2:
        return {rng.choice(WORDS) if name == key else name: e for name, e in value.items()}
    if kind == 3:
        return cbor.Pairs((*value.items(), (key, value[key])))
    if kind == 4:
        return cbor.Pairs((*value.items(), (rng.choice(VALUES[:9]), 0)))
    other = rng.choice(list(value))
    return {**value, key: value[other], other: value[key]}
