"""Write the safetensors files of this corpus; run it to make them anew, byte for byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path

HERE = Path(__file__).parent


def file(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """Return a file of a header and data; `length` is the claimed length of the header."""
    raw = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: str, shape: object, start: int, stop: int) -> str:
    """Return a header's entry of a tensor."""
    fields = {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}
    return json.dumps(fields, separators=(",", ":"))


ONE = entry("U8", [1], 0, 1)
NONE = entry("U8", [0], 0, 0)
UNREAD = '{"a":{"new":%s,"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'

# File name: bytes, and why they are refused.
REJECT: dict[str, tuple[bytes, str]] = {
    "length_beyond_end": (file("{}", length=3), "truncated"),
    "length_huge": (file("{}", length=100_000_001), "manifest_size"),
    "not_utf8": (file(b'{"\xff":' + NONE.encode() + b"}"), "field_value"),
    "not_json": (file('{"a"'), "field_value"),
    "behind_json": (file(f'{{"a":{NONE}}}x'), "field_value"),
    "nul_padding": (file(f'{{"a":{NONE}}}\0'), "field_value"),
    "missing_comma": (file(f'{{"a":{NONE}"b":{NONE}}}'), "field_value"),
    "two_commas": (file(f'{{"a":{NONE},,"b":{NONE}}}'), "field_value"),
    "trailing_comma": (file(f'{{"a":{NONE},}}'), "field_value"),
    "closed_early": (file(f'{{"a":{NONE}}}"b":{NONE}}}'), "field_value"),
    "shape_comma": (file('{"a":{"dtype":"U8","shape":[0,],"data_offsets":[0,0]}}'), "field_value"),
    "leading_zero": (
        file('{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', b"x"),
        "field_value",
    ),
    "nan": (file('{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,0]}}'), "field_value"),
    "control_in_name": (file(f'{{"a\n":{NONE}}}'), "field_value"),
    "half_a_pair": (file(f'{{"\\ud800":{NONE}}}'), "field_value"),
    "half_a_pair_in_metadata": (file('{"__metadata__":{"a":"\\udc00"}}'), "field_value"),
    "huge_number": (
        file('{"a":{"dtype":"U8","shape":[' + "9" * 5000 + '],"data_offsets":[0,0]}}'),
        "field_value",
    ),
    "half_a_pair_unread": (file(UNREAD % '"\\udc00"'), "field_value"),
    "number_out_of_range": (file(UNREAD % "-1e400"), "field_value"),
    "minus_zero": (file('{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}'), "field_type"),
    "shape_beyond_64_bits": (
        file('{"a":{"dtype":"U8","shape":[0,18446744073709551616],"data_offsets":[0,0]}}'),
        "field_type",
    ),
    "deep_unread": (file(UNREAD % ("[" * 126 + "]" * 126)), "limit_depth"),
    "deep": (file('{"a":' + "[" * 20_000), "limit_depth"),
    "duplicate_name": (file(f'{{"a":{NONE},"a":{NONE}}}'), "duplicate_name"),
    "duplicate_name_escaped": (file(f'{{"a":{NONE},"\\u0061":{NONE}}}'), "duplicate_name"),
    "duplicate_field": (
        file('{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
        "duplicate_name",
    ),
    "duplicate_metadata": (file('{"__metadata__":{},"__metadata__":{}}'), "duplicate_name"),
    "duplicate_metadata_key": (file('{"__metadata__":{"a":"","a":""}}'), "duplicate_name"),
    "metadata_later": (file(f'{{"__metadata__":{{}},"__metadata__":{NONE}}}'), "duplicate_name"),
    "metadata_tensor": (file(f'{{"__metadata__":{NONE}}}'), "field_type"),
    "metadata_number": (file('{"__metadata__":{"a":1}}'), "field_type"),
    "metadata_list": (file('{"__metadata__":[]}'), "field_type"),
    "tensor_number": (file('{"a":1}'), "field_type"),
    "no_dtype": (file('{"a":{"shape":[0],"data_offsets":[0,0]}}'), "field_type"),
    "no_shape": (file('{"a":{"dtype":"U8","data_offsets":[0,0]}}'), "field_type"),
    "no_offsets": (file('{"a":{"dtype":"U8","shape":[0]}}'), "field_type"),
    "dtype_number": (file('{"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}}'), "field_type"),
    "shape_float": (file('{"a":{"dtype":"U8","shape":[0.0],"data_offsets":[0,0]}}'), "field_type"),
    "shape_bool": (
        file('{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', b"x"),
        "field_type",
    ),
    "shape_negative": (
        file('{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}'),
        "field_type",
    ),
    "shape_number": (file('{"a":{"dtype":"U8","shape":0,"data_offsets":[0,0]}}'), "field_type"),
    "offsets_three": (
        file('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}}'),
        "field_type",
    ),
    "offset_beyond_64_bits": (
        file('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,99999999999999999999]}}'),
        "field_type",
    ),
    "size_short": (file(f'{{"a":{entry("U16", [1], 0, 1)}}}', b"x"), "size_mismatch"),
    "size_long": (file(f'{{"a":{entry("U8", [1], 0, 2)}}}', b"xx"), "size_mismatch"),
    "size_overflow": (
        file(f'{{"a":{entry("F64", [1 << 32, 1 << 32, 0], 0, 0)}}}'),
        "size_mismatch",
    ),
    "size_wraps": (file(f'{{"a":{entry("U8", [(1 << 32), (1 << 32)], 0, 0)}}}'), "size_mismatch"),
    "half_a_byte": (file(f'{{"a":{entry("F4", [3], 0, 2)}}}', b"xx"), "size_mismatch"),
    "backwards": (
        file(f'{{"a":{entry("X", [], 0, 9)},"b":{entry("X", [], 9, 1)}}}', b"x"),
        "size_mismatch",
    ),
    "hole_before": (file(f'{{"a":{entry("U8", [1], 1, 2)}}}', b"xx"), "out_of_bounds"),
    "hole_between": (file(f'{{"a":{ONE},"b":{entry("U8", [1], 2, 3)}}}', b"xxx"), "out_of_bounds"),
    "overlap": (file(f'{{"a":{ONE},"b":{ONE}}}', b"x"), "out_of_bounds"),
    "empty_far": (file(f'{{"a":{ONE},"b":{entry("U8", [0], 7, 7)}}}', b"x"), "out_of_bounds"),
    "behind_the_last": (file(f'{{"a":{ONE}}}', b"xx"), "out_of_bounds"),
    "data_without_tensors": (file("{}", b"x"), "out_of_bounds"),
    "data_cut": (file(f'{{"a":{entry("U8", [4], 0, 4)}}}', b"xxx"), "truncated"),
}

_VALUES: dict[str, tuple[list[int], str, list[float]]] = {
    "F64": ([2], "<d", [1.5, -2.0]),
    "F32": ([], "<f", [0.25]),
    "I64": ([1, 2], "<q", [-1, 1 << 40]),
    "U16": ([2], "<H", [7, 65535]),
    "BOOL": ([3], "<?", [True, False, True]),
}


def golden() -> tuple[bytes, dict[str, object]]:
    """Return a small good file, and what it holds."""
    header: dict[str, object] = {"__metadata__": {"format": "np", "äöü \U0001f600": "\n"}}
    data, expected = b"", dict[str, object]()
    for dtype, (shape, code, values) in _VALUES.items():
        start = len(data)
        data += b"".join(struct.pack(code, value) for value in values)
        header[dtype.lower()] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [start, len(data)],
        }
        expected[dtype.lower()] = {"shape": shape, "values": values}
    text = json.dumps(header)  # with blanks and escapes: not as writers write it
    return file(text + " " * (-len(text) % 8), data), expected


def files() -> dict[Path, bytes]:
    good, expected = golden()
    result = {
        Path("accept/safetensors/small.safetensors"): good,
        Path("accept/safetensors/small.json"): _text(expected),
        Path("reject/safetensors/expected.json"): _text(
            {f"{name}.safetensors": reason for name, (_, reason) in REJECT.items()}
        ),
    }
    for name, (data, _) in REJECT.items():
        result[Path(f"reject/safetensors/{name}.safetensors")] = data
    return result


def _text(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


if __name__ == "__main__":
    for path, content in files().items():
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_bytes(content)
