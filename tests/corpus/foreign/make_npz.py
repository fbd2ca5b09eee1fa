"""Write the .npy and .npz files of this corpus; run it to make them anew, byte for byte."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.corpus.foreign.writing import as_json, write


def npy(text: str | bytes, data: bytes = b"", version: int = 1, length: int | None = None) -> bytes:
    """Return a .npy file; `length` is the claimed length of its header."""
    raw = text if isinstance(text, bytes) else text.encode("latin-1")
    size = len(raw) if length is None else length
    code = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(code, size) + raw + data


def header(descr: str = "'|u1'", order: str = "False", shape: str = "(4,)") -> str:
    """Return a header as NumPy writes it, with the given fields changed."""
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


class Member(NamedTuple):
    """A member of an archive; a field of None gets its right value."""

    name: bytes
    data: bytes
    deflated: bool = False
    packed: bytes | None = None
    crc: int | None = None
    size: int | None = None
    length: int | None = None
    flags: int = 0
    method: int | None = None
    local_name: bytes | None = None
    offset: int | None = None
    extra: bytes = b""


def archive(
    *members: Member,
    count: int | None = None,
    before: bytes = b"",
    gap: bytes = b"",
    behind: bytes = b"",
    disk: int = 0,
    edit: Callable[[bytes], bytes] = bytes,
) -> bytes:
    """Return a zip archive, wrong wherever an argument says so.

    Args:
        members: the members of the archive.
        count: how many members the end record claims.
        before: bytes before the first member, which offsets do not count.
        gap: bytes between directory and end record.
        behind: bytes behind the end record.
        disk: the number of the file among several.
        edit: changes the directory.
    """
    body, directory = b"", b""
    for member in members:
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
        stored = member.data
        if member.deflated:
            stored = deflater.compress(member.data) + deflater.flush()
        stored = stored if member.packed is None else member.packed
        crc = zlib.crc32(member.data) if member.crc is None else member.crc
        size = len(member.data) if member.size is None else member.size
        length = len(stored) if member.length is None else member.length
        method = 8 * member.deflated if member.method is None else member.method
        offset = len(body) if member.offset is None else member.offset
        local = member.name if member.local_name is None else member.local_name
        common = 20, member.flags, method, 0, 33, crc, length, size
        body += struct.pack("<4s5H3I2H", b"PK\3\4", *common, len(local), 0) + local + stored
        lengths = len(member.name), len(member.extra), 0, 0, 0, 0
        directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, *common, *lengths, offset)
        directory += member.name + member.extra
    directory = edit(directory)
    number = len(members) if count is None else count
    end = struct.pack(
        "<4s4H2IH", b"PK\5\6", disk, disk, number, number, len(directory), len(body), 0
    )
    return before + body + directory + gap + end + behind


ARRAY = npy(header(), b"abcd")
A, B = Member(b"a.npy", ARRAY), Member(b"b.npy", ARRAY)
PACKED = A._replace(deflated=True)
BOMB = npy(header(shape="(100000000,)"))
HUGE = npy(header(shape="(400000000000,)"))


def _deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(data) + deflater.flush()


# File name: bytes, and why they are refused when the file is opened.
REJECT_NPY: dict[str, tuple[bytes, str]] = {
    "version": (npy(header(), b"abcd", version=4), "field_value"),
    "no_version": (b"\x93NUMPY", "field_value"),
    "header_cut": (npy(header(), length=200), "truncated"),
    "header_long": (npy(header(), b" " * 20_000, version=2, length=10_001), "manifest_size"),
    "header_huge": (npy(header(), version=2, length=(1 << 32) - 1), "manifest_size"),
    "not_utf8": (npy(b"{'descr': '\xff'}", version=3), "field_value"),
    "empty_header": (npy(""), "field_value"),
    "no_dict": (npy("('|u1', False, (4,))", b"abcd"), "field_value"),
    "call": (npy("__import__('os').getpid()"), "field_value"),
    "expression": (npy(header(shape="(2*2,)"), b"abcd"), "field_value"),
    "set": (npy("{'descr'}"), "field_value"),
    "behind": (npy(header() + "1", b"abcd"), "field_value"),
    "deep": (npy("{'descr': " + "(" * 9_000), "field_value"),
    "minus_signs": (npy("{'shape': " + "-" * 9_000 + "1}"), "field_value"),
    "field_missing": (npy("{'descr': '|u1', 'shape': (4,)}", b"abcd"), "field_value"),
    "field_more": (npy(header().replace("}", "'x': 1}"), b"abcd"), "field_value"),
    "field_twice": (npy(header().replace("}", "'descr': '|u1'}"), b"abcd"), "field_value"),
    "commas": (npy(header(shape="(4,,)"), b"abcd"), "field_value"),
    "no_comma": (npy(header(shape="(2 2)"), b"abcd"), "field_value"),
    "unclosed": (npy("{'descr': '|u1"), "field_value"),
    "order_number": (npy(header(order="0"), b"abcd"), "field_type"),
    "shape_number": (npy(header(shape="4"), b"abcd"), "field_type"),
    "shape_list": (npy(header(shape="[4]"), b"abcd"), "field_type"),
    "shape_negative": (npy(header(shape="(-4,)"), b"abcd"), "field_value"),
    "shape_bool": (npy(header(shape="(True,)"), b"a"), "field_type"),
    "shape_huge": (npy(header(shape="(99999999999999999999,)"), b"abcd"), "field_type"),
    "shape_long": (npy(header(shape="(" + "9" * 5000 + ",)"), b"abcd"), "field_value"),
    "data_cut": (npy(header(), b"abc"), "truncated"),
    "data_claimed": (HUGE, "truncated"),
    "two_arrays": (ARRAY + ARRAY, "size_mismatch"),
}
REJECT_NPZ: dict[str, tuple[bytes, str]] = {
    "no_end": (archive(A)[:-1], "truncated"),
    "behind_end": (archive(A, behind=b"x"), "truncated"),
    "before": (archive(A, before=archive(B)), "out_of_bounds"),
    "gap": (archive(A, gap=b"x"), "out_of_bounds"),
    "first_not_listed": (
        archive(A, B, count=1, edit=lambda data: data[len(data) // 2 :]),
        "out_of_bounds",
    ),
    "count_more": (archive(A, count=2), "truncated"),
    "count_less": (archive(A, B, count=1), "field_value"),
    "directory_magic": (
        archive(A, edit=lambda data: data.replace(b"PK\1\2", b"PK\1\3")),
        "field_value",
    ),
    "overlap": (archive(A._replace(data=archive(B)), B._replace(offset=35)), "out_of_bounds"),
    "other_place": (archive(A, B._replace(offset=0)), "out_of_bounds"),
    "same_place": (
        archive(A, A._replace(name=b"b.npy", local_name=b"a.npy", offset=0)),
        "out_of_bounds",
    ),
    "in_directory": (archive(A._replace(length=200, size=200)), "out_of_bounds"),
    "beyond_end": (archive(A, B._replace(offset=1 << 30)), "out_of_bounds"),
    "duplicate": (archive(A, A), "duplicate_name"),
    "nul_in_name": (archive(A, A._replace(name=b"b\0.npy")), "field_value"),
    "name_not_utf8": (archive(A, A._replace(name=b"\xff.npy", flags=1 << 11)), "field_value"),
    "encrypted": (archive(A._replace(flags=1)), "unknown_encoding"),
    "patch": (archive(A._replace(flags=1 << 5)), "unknown_encoding"),
    "bzip2": (archive(A._replace(method=12)), "unknown_encoding"),
    "several_files": (archive(A, disk=1), "unknown_encoding"),
    "stored_sizes": (archive(A._replace(size=4)), "size_mismatch"),
    "ratio": (archive(PACKED._replace(data=BOMB, size=len(BOMB) + 100_000_000)), "size_mismatch"),
    "ratio_terabytes": (
        archive(
            PACKED._replace(
                data=HUGE,
                size=0xFFFFFFFF,
                extra=struct.pack("<2HQ", 1, 8, len(HUGE) + 400_000_000_000),
            )
        ),
        "size_mismatch",
    ),
    "zip64_cut": (archive(A, count=0xFFFF), "truncated"),
}
# Opened and listed; refused when `a` is read.
REJECT_READ: dict[str, tuple[bytes, str]] = {
    "crc": (archive(PACKED._replace(crc=1)), "digest_mismatch"),
    "crc_fortran": (
        archive(A._replace(data=npy(header(order="True", shape="(2, 2)"), b"abcd"), crc=1)),
        "digest_mismatch",
    ),
    "deflate_short": (
        archive(PACKED._replace(packed=_deflate(ARRAY[:-1]))),
        "decoded_short",
    ),
    "deflate_long": (archive(PACKED._replace(packed=_deflate(ARRAY + b"x"))), "decoded_long"),
    "deflate_bomb": (
        archive(PACKED._replace(packed=_deflate(ARRAY + bytes(1 << 20)))),
        "decoded_long",
    ),
    "deflate_cut": (archive(PACKED._replace(packed=_deflate(ARRAY)[:-3])), "encoding_truncated"),
    "deflate_behind": (
        archive(PACKED._replace(packed=_deflate(ARRAY) + b"x")),
        "encoding_malformed",
    ),
    "other_name": (archive(A._replace(local_name=b"b.npy")), "field_value"),
    "shape_larger": (archive(A._replace(data=HUGE)), "truncated"),
    "shape_larger_deflated": (archive(PACKED._replace(data=HUGE)), "truncated"),
    "shape_smaller": (archive(PACKED._replace(data=ARRAY + b"x")), "size_mismatch"),
    "no_array": (archive(A._replace(data=b"hello, I am no array")), "field_value"),
    "not_deflate": (archive(PACKED._replace(packed=b"\xff" * 60)), "encoding_malformed"),
    "objects": (archive(A._replace(data=npy(header("'|O'"), b"\x80\4."))), "unknown_dtype"),
    "records": (
        archive(
            A._replace(data=npy(header("[('x', '|u1'), ('y\\'s', '|u1')]", shape="(2,)"), b"abcd"))
        ),
        "unknown_dtype",
    ),
}

GOOD = (
    Member(b"stored.npy", npy(header("'<i2'", shape="(2, 1)"), b"\1\0\2\0")),
    Member(b"deflated.npy", npy(header("'>f4'", shape="(2,)"), struct.pack(">2f", 0.5, -3)), True),
    Member(
        "f/ö.npy".encode(), npy(header(order="True", shape="(2, 3)"), b"\1\4\2\5\3\6"), flags=2048
    ),
    Member(b"scalar.npy", npy(header("'|b1'", shape="()"), b"\1", version=2)),
    Member(b"note.txt", b"not an array"),
)
EXPECTED = {
    "stored": {"shape": [2, 1], "values": [1, 2]},
    "deflated": {"shape": [2], "values": [0.5, -3.0]},
    "f/ö": {"shape": [2, 3], "values": [1, 2, 3, 4, 5, 6]},
    "scalar": {"shape": [], "values": [True]},
}


def files() -> dict[Path, bytes]:
    single = npy(header("'<c8'", shape="(1,)"), struct.pack("<2f", 1, 2), version=3)
    result = {
        Path("accept/npz/small.npz"): archive(*GOOD),
        Path("accept/npz/small.json"): as_json(EXPECTED),
        Path("accept/npz/complex.npy"): single,
    }
    expected = {}
    for stage, suffix, cases in (
        ("open", "npy", REJECT_NPY),
        ("open", "npz", REJECT_NPZ),
        ("read", "npz", REJECT_READ),
    ):
        for name, (data, reason) in cases.items():
            result[Path(f"reject/npz/{name}.{suffix}")] = data
            expected[f"{name}.{suffix}"] = [stage, reason]
    result[Path("reject/npz/expected.json")] = as_json(expected)
    return result


if __name__ == "__main__":
    write(files())
