"""Make the GGUF files of this corpus: `python -m tests.corpus.foreign.make_gguf`.

Every byte is fixed. The expected content of accepted files, and of blocks of every type, is what
the package `gguf` (0.19) gives, so that has to be installed; the tests do without.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.corpus.foreign.writing import as_json, by_name, write
from ztensor.quantization.gguf_blocks import BLOCK_TYPES
from ztensor.quantization.gguf_decoding import PARTS

ACCEPT = Path(__file__).parent / "accept" / "gguf"

FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U8, U32, F32, BOOL, STR, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10
HUGE = 1 << 60

# Types that we and the package dequantize, and their numbers.
EXACT = {
    block_type.name: block_type.number
    for block_type in BLOCK_TYPES
    if block_type.name in PARTS and block_type.name != "q8_k"
}


def text(value: str | bytes, order: str = "<") -> bytes:
    """Return a string: its length, and its bytes."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(data)) + data


def item(number: int, value: Any, order: str = "<") -> bytes:
    """Return a value of a type other than array."""
    return text(value, order) if number == STR else struct.pack(order + FORMS[number], value)


def array(number: int, values: Sequence[Any], order: str = "<") -> bytes:
    """Return an array; those in an array of arrays are given as bytes."""
    items = values if number == ARRAY else [item(number, value, order) for value in values]
    return struct.pack(order + "IQ", number, len(values)) + b"".join(items)


def pair(key: str | bytes, number: int, value: Any, order: str = "<") -> bytes:
    """Return a key and its value; an array is given as bytes, and so may anything else be."""
    data = value if isinstance(value, bytes) else item(number, value, order)
    return text(key, order) + struct.pack(order + "I", number) + data


def info(
    name: str | bytes, dimensions: Sequence[int], number: int, offset: int, order: str = "<"
) -> bytes:
    """Return a line of the table of tensors; the first dimension is the fastest."""
    rank = len(dimensions)
    rest = struct.pack(f"{order}I{rank}QIQ", rank, *dimensions, number, offset)
    return text(name, order) + rest


def gguf(
    pairs: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    order: str = "<",
    alignment: int = 32,
    tensors: int | None = None,
    keys: int | None = None,
) -> bytes:
    """Return a file; by default its counts are the numbers of entries and tensors."""
    tensors = len(infos) if tensors is None else tensors
    keys = len(pairs) if keys is None else keys
    head = b"GGUF" + struct.pack(order + "IQQ", version, tensors, keys)
    head += b"".join((*pairs, *infos))
    return head + bytes(-len(head) % alignment) + data if data else head


def every_pair(order: str = "<") -> list[bytes]:
    """Return a key of every type of metadata, with values at the ends of their ranges."""
    scalars = [
        (0, 255),
        (1, -128),
        (2, 65535),
        (3, -32768),
        (4, (1 << 32) - 1),
        (5, -(1 << 31)),
        (6, 0.5),
        (7, True),
        (8, "grüße"),
        (10, (1 << 64) - 1),
        (11, -(1 << 63)),
        (12, 0.1),
    ]
    pairs = [pair("general.architecture", STR, text("llama", order), order)]
    for number, value in scalars:
        pairs.append(pair(f"one.t{number}", number, item(number, value, order), order))
        values = [value, value] if number != BOOL else [True, False]
        pairs.append(pair(f"two.t{number}", ARRAY, array(number, values, order), order))
        pairs.append(pair(f"none.t{number}", ARRAY, array(number, [], order), order))
    return pairs


def plain_tensors(order: str = "<") -> tuple[list[bytes], bytes]:
    """Return table and data of a tensor of each plain type the package can read back."""
    infos, data = [], b""
    types = {0: "f4", 1: "f2", 24: "i1", 25: "i2", 26: "i4", 27: "i8", 28: "f8"}
    for number, dtype in types.items():
        infos.append(info(f"plain.{dtype}", (3, 2), number, len(data), order))
        part = np.arange(-3, 3).astype(order + dtype).tobytes()
        data += part + bytes(-len(part) % 32)
    return infos, data


def blocks_of(name: str, count: int = 1) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return blocks of a type, any bytes with finite scales."""
    (block_type,) = (one for one in BLOCK_TYPES if one.name == name)
    rng = np.random.default_rng(block_type.number)
    blocks = rng.integers(0, 256, (count, block_type.nbytes), dtype=np.uint8)
    halves: dict[str, tuple[int, ...]] = {"q2_k": (80, 82), "q3_k": (108,), "q6_k": (208,)}
    halves |= {"tq1_0": (52,), "tq2_0": (64,)}
    halves |= {"nvfp4": ()}
    halves |= dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (0, 2))
    if name == "q8_k":
        blocks[:, :4] = np.linspace(0.5, 2, count, dtype="<f4").reshape(-1, 1).view(np.uint8)
    elif name == "iq1_m":
        blocks[:, 55] &= 0xBF  # a half-precision number other than infinity and NaN
    elif name != "mxfp4":
        for at in halves.get(name, (0,)):
            values = rng.uniform(-2, 2, (count, 1)).astype("<f2")
            blocks[:, at : at + 2] = values.view(np.uint8)
    return blocks


def quantized_tensors() -> tuple[list[bytes], bytes]:
    """Return table and data of matrices of two rows, quantized in several ways."""
    infos, data = [], b""
    for block_type in BLOCK_TYPES:
        if block_type.name in ("q4_0", "q5_1", "q8_0", "q4_k", "q6_k", "iq2_xs", "mxfp4"):
            shape = (block_type.elements, 2)
            infos.append(info(f"blk.{block_type.name}", shape, block_type.number, len(data)))
            part = blocks_of(block_type.name, 2).tobytes()
            data += part + bytes(-len(part) % 32)
    return infos, data


def accepted() -> dict[str, bytes]:
    """Return good files by name."""
    return {
        "metadata": gguf(every_pair()),
        "plain": gguf(every_pair()[:4], *plain_tensors()),
        "quantized": gguf([pair("general.architecture", STR, "llama")], *quantized_tensors()),
        "version_2": gguf(every_pair()[:4], *plain_tensors(), version=2),
        "big_endian": gguf(every_pair(">"), *plain_tensors(">"), order=">"),
        "alignment_64": gguf(
            [pair("general.alignment", U32, 64)],
            [info("a", (3,), 24, 0), info("b", (3,), 24, 64)],
            b"abc" + bytes(61) + b"def",
            alignment=64,
        ),
    }


def refused() -> dict[str, tuple[bytes, str]]:
    """Return bad files by name, each wrong in one place, and the reason code expected."""
    good = accepted()["plain"]
    one = info("a", (8,), 0, 0)
    floats = bytes(32)
    deep = array(U8, [])
    for _ in range(70):
        deep = array(ARRAY, [deep])
    reasons = {
        "unknown_version": {
            "version_1": gguf(version=1),
            "version_4": gguf(version=4),
        },
        "truncated": {
            "magic_only": b"GGUF",
            "cut_in_counts": good[:20],
            "cut_in_keys": good[:60],
            "cut_in_table": gguf((), [one])[:-1],
            "keys_count": gguf(keys=HUGE),
            "tensors_count": gguf(tensors=HUGE),
            "keys_most": gguf(keys=(1 << 64) - 1),
            "key_length": gguf([struct.pack("<Q", HUGE) + bytes(40)]),
            "string_length": gguf([pair("a", STR, struct.pack("<Q", HUGE)) + bytes(40)]),
            "string_in_array_length": gguf(
                [pair("a", ARRAY, struct.pack("<IQQ", STR, 1, HUGE)) + bytes(40)]
            ),
            "array_count": gguf([pair("a", ARRAY, struct.pack("<IQ", U64, HUGE)) + bytes(40)]),
            "strings_count": gguf([pair("a", ARRAY, struct.pack("<IQ", STR, HUGE)) + bytes(40)]),
            "arrays_count": gguf([pair("a", ARRAY, struct.pack("<IQ", ARRAY, HUGE)) + bytes(40)]),
        },
        "out_of_bounds": {
            "cut_in_data": good[:-24],
            "product_wraps": gguf((), [info("a", (1 << 32,) * 2, 0, 0)], floats),
            "product_wraps_to_8": gguf((), [info("a", ((1 << 62) + 2, 4), 0, 0)], floats),
            "offset_outside": gguf((), [info("a", (8,), 0, 64)], floats),
            "offset_huge": gguf((), [info("a", (8,), 0, 1 << 63)], floats),
            "overlap": gguf((), [info("a", (16,), 0, 0), info("b", (8,), 0, 32)], bytes(64)),
            "same_place": gguf((), [one, info("b", (8,), 0, 0)], floats),
            "unknown_type_outside": gguf((), [info("a", (8,), 77, 96)], floats),
            "alignment_huge": gguf([pair("general.alignment", U32, 1 << 31)], [one], floats),
        },
        "limit_depth": {
            "arrays_deep": gguf([pair("a", ARRAY, deep)]),
        },
        "field_type": {
            "value_type": gguf([pair("a", 13, b"\0") + bytes(20)]),
            "item_type": gguf([pair("a", ARRAY, struct.pack("<IQ", 99, 0))]),
            "alignment_u64": gguf([pair("general.alignment", U64, 32)], [one], floats),
        },
        "bool_value": {
            "bool_value": gguf([pair("a", BOOL, b"\2")]),
            "bool_in_array": gguf([pair("a", ARRAY, array(U8, [1, 3]).replace(b"\0", b"\7", 1))]),
        },
        "duplicate_name": {
            "key_twice": gguf([pair("a", U8, 1), pair("a", U8, 2)]),
            "name_twice": gguf((), [one, info("a", (8,), 0, 32)], bytes(64)),
        },
        "field_value": {
            "key_not_utf8": gguf([pair(b"\xff\xfe", U8, 1)]),
            "key_of_ours": gguf([pair("GGUF.types", U8, 1)]),
            "name_not_utf8": gguf((), [info(b"\xff", (8,), 0, 0)], floats),
            "rank_5": gguf((), [info("a", (1,) * 5, 0, 0)], floats),
            "rank_huge": gguf((), [text("a") + struct.pack("<I", 0xFFFFFFFF) + bytes(12)], floats),
            "dimension_huge": gguf((), [info("a", (1 << 63,), 0, 0)], floats),
            "alignment_0": gguf([pair("general.alignment", U32, 0)], [one], floats),
            "alignment_24": gguf([pair("general.alignment", U32, 24)], [one], floats),
        },
        "size_mismatch": {
            "rows_cut_blocks": gguf((), [info("a", (33,), 2, 0)], floats),
        },
        "offset_alignment": {
            "offset_unaligned": gguf((), [info("a", (4,), 0, 8)], floats),
        },
    }
    return by_name(reasons)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _expected(path: Path) -> dict[str, Any]:
    """Return the content of a file as the package `gguf` reads it."""
    import gguf as package

    reader = package.GGUFReader(path)
    tensors = {}
    for tensor in reader.tensors:
        data: Any = tensor.data
        shape = data.shape
        if tensor.name.startswith("blk."):
            known = tensor.name[4:] in EXACT
            data = package.quants.dequantize(data, tensor.tensor_type) if known else None
            shape = tensor.shape[::-1].tolist()
        floats = None if data is None else data.astype(data.dtype.newbyteorder("<"))
        tensors[tensor.name] = {
            "shape": list(shape),
            "dtype": None if data is None else data.dtype.name,
            "values": None if floats is None else _base64(floats.tobytes()),
        }
    attributes = {
        key: field.contents()
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.") and field.data  # it has no contents of empty arrays
    }
    return {"attributes": attributes, "tensors": tensors}


def _blocks() -> dict[str, dict[str, str]]:
    """Return a block of each type we and the package dequantize, and the floats it gives."""
    import gguf as package

    found = {}
    for name, number in EXACT.items():
        blocks = blocks_of(name)
        floats = package.quants.dequantize(blocks, package.GGMLQuantizationType(number))
        found[name] = {
            "blocks": _base64(blocks.tobytes()),
            "floats": _base64(floats.astype("<f4").tobytes()),
        }
    return found


def main() -> None:
    good, bad = accepted(), refused()
    write({Path(f"accept/gguf/{name}.gguf"): data for name, data in good.items()})
    expected = {name: _expected(ACCEPT / f"{name}.gguf") for name in good}
    made = {Path(f"reject/gguf/{name}.gguf"): data for name, (data, _) in bad.items()}
    made[Path("accept/gguf/expected.json")] = as_json(expected)
    made[Path("accept/gguf/blocks.json")] = as_json(_blocks())
    made[Path("reject/gguf/expected.json")] = as_json({name: bad[name][1] for name in bad})
    write(made)


if __name__ == "__main__":
    main()
