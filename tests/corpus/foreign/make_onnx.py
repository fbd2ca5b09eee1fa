"""Make the ONNX files of this corpus: `python -m tests.corpus.foreign.make_onnx`.

Every byte is fixed; no library is needed. The names are from `onnx.proto`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from tests.corpus.foreign.writing import as_json, by_name, to_refuse, write

FLOAT, UINT8, INT8, INT64, STRING, FLOAT16, INT4 = 1, 2, 3, 7, 8, 10, 22


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it; negative ones as 64 bits."""
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes | str) -> bytes:
    """Return a field that is bytes, text or a message."""
    raw = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def tensor(name: str | bytes, code: int, dims: list[int], *data: bytes) -> bytes:
    text = name if isinstance(name, bytes) else name.encode()
    fields = (number(1, dim) for dim in dims)
    return b"".join(fields) + number(2, code) + block(8, text) + b"".join(data)


def raw(data: bytes) -> bytes:
    return block(9, data)


def external(**entries: str) -> bytes:
    pairs = (block(13, block(1, key) + block(2, value)) for key, value in entries.items())
    return b"".join(pairs) + number(14, 1)


def node(kind: str, output: str | None, *attributes: bytes) -> bytes:
    """Return a `NodeProto` without inputs."""
    named = b"" if output is None else block(2, output)
    return named + block(4, kind) + b"".join(block(5, one) for one in attributes)


def model(
    *initializers: bytes,
    sparse: bytes | None = None,
    more: bytes = b"",
    nodes: tuple[bytes, ...] = (),
) -> bytes:
    graph = b"".join(block(1, one) for one in nodes)
    graph += block(2, "main") + b"".join(block(5, one) for one in initializers)
    if sparse is not None:
        graph += block(15, sparse)
    opset = block(8, block(1, "") + number(2, 21))
    return number(1, 10) + block(2, "made") + block(7, graph) + opset + more


F32 = struct.pack("<6f", *range(6))
GOOD = tensor("good", FLOAT, [2, 3], raw(F32))
SPARSE = (
    block(1, tensor("sparse", FLOAT, [2], raw(F32[4:12])))
    + block(2, tensor("", INT64, [2], raw(struct.pack("<2q", 1, 7))))
    + number(3, 3)
    + number(3, 4)
)

VALUE = block(1, "value") + block(5, tensor("", FLOAT, [2, 3], raw(F32))) + number(20, 4)

# Name, bytes, and content of the object.
ACCEPT: dict[str, tuple[bytes, dict[str, Any]]] = {
    "typed.onnx": (
        model(
            GOOD,
            tensor("scalar", FLOAT, [], block(4, F32[4:8])),
            tensor("int64", INT64, [3], block(7, b"".join(map(varint, (-1, 300, 0))))),
            tensor("int8", INT8, [2], block(5, varint(-128) + varint(127))),
            tensor("half", FLOAT16, [2], block(5, varint(0x3C00) + varint(0xC000))),
            tensor("int4", INT4, [3], raw(b"\x8f\x07")),
            tensor("none", FLOAT, [0, 2]),
            sparse=SPARSE,
            more=block(14, block(1, "key") + block(2, "value")),
        ),
        {
            "good": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
            "scalar": 1.0,
            "int64": [-1, 300, 0],
            "int8": [-128, 127],
            "half": [1.0, -2.0],
            "int4": [-1, -8, 7],
            "none": [],
            "sparse": [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]],
        },
    ),
    "constants.onnx": (
        model(
            GOOD,
            nodes=(
                node("Relu", "nothing"),
                node("Constant", "dense", VALUE),
                node("Constant", "sparse", block(1, "sparse_value") + block(22, SPARSE)),
                node("Constant", "number", block(1, "value_int") + number(3, 7)),
                node("ConstantOfShape", "filled", VALUE),
            ),
        ),
        {
            "dense": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
            "sparse": [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]],
            "good": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
            "filled.value": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
        },
    ),
    "packed_dims.onnx": (
        model(block(1, b"\x02\x03") + number(2, FLOAT) + block(8, "good") + raw(F32)),
        {"good": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]},
    ),
}

_OUT = {"offset": "0", "length": "24"}
REASONS = {
    "field_missing": {
        "no_graph": number(1, 10) + block(2, "made"),
        "no_name": model(tensor("", FLOAT, [6], raw(F32))),
        "constant_no_name": model(nodes=(node("Constant", None, VALUE),)),
        "sparse_no_values": model(sparse=number(3, 4)),
    },
    "duplicate_name": {
        "duplicate_name": model(GOOD, GOOD),
        "constant_of_that_name": model(GOOD, nodes=(node("Constant", "good", VALUE),)),
    },
    "field_value": {
        "name_not_utf8": model(tensor(b"\xff", FLOAT, [6], raw(F32))),
        "dim_negative": model(tensor("a", FLOAT, [-1], raw(F32))),
        "field_0": number(1, 10) + block(7, b"\x02\x00"),
        "data_twice": model(tensor("a", FLOAT, [6], raw(F32), raw(F32))),
        "data_in_two_fields": model(tensor("a", FLOAT, [6], raw(F32), block(4, F32))),
        "name_twice": model(GOOD + block(8, "b")),
        **{
            f"external_{name}": model(tensor("a", FLOAT, [6], external(location=place, **_OUT)))
            for name, place in {
                "absolute": "/etc/passwd",
                "up": "../weights.bin",
                "up_within": "a/../../weights.bin",
                "backslash": "..\\weights.bin",
                "drive": "C:weights.bin",
                "empty": "",
                "nul": "a\0b",
                "this": ".",
                "two_slashes": "a//b",
            }.items()
        },
    },
    "field_type": {
        "constant_wire": model(nodes=(node("Constant", "a", block(1, "value") + number(5, 7)),)),
        "constant_attribute_wire": model(nodes=(node("Constant", "a") + number(5, 7),)),
        "node_wire": number(1, 10) + block(7, number(1, 5)),
        "dims_wire": model(b"\x0d" + bytes(4) + GOOD),
        "name_wire": model(number(8, 5) + number(2, FLOAT)),
        "raw_wire": model(tensor("a", FLOAT, [0], number(9, 5))),
        "graph_wire": number(1, 10) + block(2, "") + number(7, 5),
        "initializer_wire": number(1, 10) + block(7, number(5, 5)),
        "group": number(1, 10) + block(7, b"\x2b\x2c"),
        "wire_7": number(1, 10) + block(7, b"\x2f"),
    },
    "size_mismatch": {
        "data_short": model(tensor("a", FLOAT, [7], raw(F32))),
        "data_long": model(tensor("a", FLOAT, [5], raw(F32))),
        "data_missing": model(tensor("a", FLOAT, [5])),
        "dims_overflow": model(tensor("a", UINT8, [1 << 32, 1 << 32], raw(b""))),
        "dims_wrap_to_24": model(tensor("a", UINT8, [(1 << 62) + 6, 4], raw(F32))),
        "varints_few": model(tensor("a", INT64, [9], block(7, b"\1"))),
        "varints_bomb": model(tensor("a", INT64, [1 << 50], block(7, b"\1" * 64))),
        "packed_few": model(tensor("a", INT4, [9], raw(b"\1"))),
        "external_length": model(
            tensor("a", FLOAT, [6], external(location="w", offset="0", length="25"))
        ),
        "external_offset": model(tensor("a", FLOAT, [6], external(location="w", offset="-1"))),
        "external_and_raw": model(
            tensor("a", FLOAT, [6], raw(F32), external(location="w", **_OUT))
        ),
    },
    "limit_rank": {
        "dims_many": model(tensor("a", UINT8, [1 << 60] * 2000, raw(b""))),
    },
    "truncated": {
        "varint_long": number(1, 10) + block(7, b"\x28" + b"\xff" * 11),
        "varint_65_bits": number(1, 10) + block(7, b"\x28" + b"\xff" * 9 + b"\x02"),
        "length_huge": number(1, 10) + b"\x3a" + varint((1 << 64) - 1) + b"abc",
        "field_behind_message": number(1, 10) + block(7, b"\x2a\x40abc") + block(2, bytes(80)),
        "cut": model(GOOD)[:40],
        "nested": number(1, 10) + b"\x3a\x05" + b"\x2a\x80\x80\x80\x01" * 40,
    },
    "type_mismatch": {
        "data_in_other_field": model(tensor("a", FLOAT, [3], block(10, F32))),
    },
    "layout_count": {
        "sparse_indices": model(
            sparse=block(1, tensor("s", FLOAT, [2], raw(F32[:8])))
            + block(2, tensor("", INT64, [1], raw(bytes(8))))
            + number(3, 4)
        ),
    },
}


def files() -> dict[Path, bytes]:
    folder = Path("accept/onnx")
    made = {folder / name: data for name, (data, _) in ACCEPT.items()}
    expected = {name: values for name, (_, values) in ACCEPT.items()}
    made[folder / "expected.json"] = as_json(expected, is_sorted=False)
    return made | to_refuse("onnx", "onnx", by_name(REASONS))


if __name__ == "__main__":
    write(files())
