"""Write the safetensors files of this corpus; run it to make them anew, byte for byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from tests.corpus.foreign.writing import as_json, by_name, to_refuse, write


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

# Files to refuse, by reason and name.
REASONS = {
    "truncated": {
        "length_beyond_end": file("{}", length=3),
        "data_cut": file(f'{{"a":{entry("U8", [4], 0, 4)}}}', b"xxx"),
    },
    "manifest_size": {
        "length_huge": file("{}", length=100_000_001),
    },
    "field_value": {
        "not_utf8": file(b'{"\xff":' + NONE.encode() + b"}"),
        "not_json": file('{"a"'),
        "behind_json": file(f'{{"a":{NONE}}}x'),
        "nul_padding": file(f'{{"a":{NONE}}}\0'),
        "missing_comma": file(f'{{"a":{NONE}"b":{NONE}}}'),
        "two_commas": file(f'{{"a":{NONE},,"b":{NONE}}}'),
        "trailing_comma": file(f'{{"a":{NONE},}}'),
        "closed_early": file(f'{{"a":{NONE}}}"b":{NONE}}}'),
        "shape_comma": file('{"a":{"dtype":"U8","shape":[0,],"data_offsets":[0,0]}}'),
        "leading_zero": file('{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', b"x"),
        "nan": file('{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,0]}}'),
        "control_in_name": file(f'{{"a\n":{NONE}}}'),
        "half_a_pair": file(f'{{"\\ud800":{NONE}}}'),
        "half_a_pair_in_metadata": file('{"__metadata__":{"a":"\\udc00"}}'),
        "huge_number": file(
            '{"a":{"dtype":"U8","shape":[' + "9" * 5000 + '],"data_offsets":[0,0]}}'
        ),
        "half_a_pair_unread": file(UNREAD % '"\\udc00"'),
        "number_out_of_range": file(UNREAD % "-1e400"),
    },
    "field_type": {
        "minus_zero": file('{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}'),
        "shape_beyond_64_bits": file(
            '{"a":{"dtype":"U8","shape":[0,18446744073709551616],"data_offsets":[0,0]}}'
        ),
        "metadata_tensor": file(f'{{"__metadata__":{NONE}}}'),
        "metadata_number": file('{"__metadata__":{"a":1}}'),
        "metadata_list": file('{"__metadata__":[]}'),
        "tensor_number": file('{"a":1}'),
        "no_dtype": file('{"a":{"shape":[0],"data_offsets":[0,0]}}'),
        "no_shape": file('{"a":{"dtype":"U8","data_offsets":[0,0]}}'),
        "no_offsets": file('{"a":{"dtype":"U8","shape":[0]}}'),
        "dtype_number": file('{"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}}'),
        "shape_float": file('{"a":{"dtype":"U8","shape":[0.0],"data_offsets":[0,0]}}'),
        "shape_bool": file('{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', b"x"),
        "shape_negative": file('{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}'),
        "shape_number": file('{"a":{"dtype":"U8","shape":0,"data_offsets":[0,0]}}'),
        "offsets_three": file('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}}'),
        "offset_beyond_64_bits": file(
            '{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,99999999999999999999]}}'
        ),
    },
    "limit_depth": {
        "deep_unread": file(UNREAD % ("[" * 126 + "]" * 126)),
        "deep": file('{"a":' + "[" * 20_000),
    },
    "duplicate_name": {
        "duplicate_name": file(f'{{"a":{NONE},"a":{NONE}}}'),
        "duplicate_name_escaped": file(f'{{"a":{NONE},"\\u0061":{NONE}}}'),
        "duplicate_field": file(
            '{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
        ),
        "duplicate_metadata": file('{"__metadata__":{},"__metadata__":{}}'),
        "duplicate_metadata_key": file('{"__metadata__":{"a":"","a":""}}'),
        "metadata_later": file(f'{{"__metadata__":{{}},"__metadata__":{NONE}}}'),
    },
    "size_mismatch": {
        "size_short": file(f'{{"a":{entry("U16", [1], 0, 1)}}}', b"x"),
        "size_long": file(f'{{"a":{entry("U8", [1], 0, 2)}}}', b"xx"),
        "size_overflow": file(f'{{"a":{entry("F64", [1 << 32, 1 << 32, 0], 0, 0)}}}'),
        "size_wraps": file(f'{{"a":{entry("U8", [(1 << 32), (1 << 32)], 0, 0)}}}'),
        "half_a_byte": file(f'{{"a":{entry("F4", [3], 0, 2)}}}', b"xx"),
        "backwards": file(f'{{"a":{entry("X", [], 0, 9)},"b":{entry("X", [], 9, 1)}}}', b"x"),
    },
    "out_of_bounds": {
        "hole_before": file(f'{{"a":{entry("U8", [1], 1, 2)}}}', b"xx"),
        "hole_between": file(f'{{"a":{ONE},"b":{entry("U8", [1], 2, 3)}}}', b"xxx"),
        "overlap": file(f'{{"a":{ONE},"b":{ONE}}}', b"x"),
        "empty_far": file(f'{{"a":{ONE},"b":{entry("U8", [0], 7, 7)}}}', b"x"),
        "behind_the_last": file(f'{{"a":{ONE}}}', b"xx"),
        "data_without_tensors": file("{}", b"x"),
    },
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
    accepted = {
        Path("accept/safetensors/small.safetensors"): good,
        Path("accept/safetensors/small.json"): as_json(expected),
    }
    return accepted | to_refuse("safetensors", "safetensors", by_name(REASONS))


if __name__ == "__main__":
    write(files())
