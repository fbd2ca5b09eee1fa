"""npy, npz and the pickles of torch: long headers, many members, pickles that build much."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from itertools import count

from tests.attacks.shapes import WIDE, add, around, shape, widening


def npy(header: bytes, data: bytes = b"") -> bytes:
    header = header.ljust(-(-(len(header) + 13) // 64) * 64 - 13) + b"\n"
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(header)) + header + data


def dtype_header(descr: str, dims: str = "()") -> bytes:
    return ("{'descr': %s, 'fortran_order': False, 'shape': %s, }" % (descr, dims)).encode()


def archive(members: dict[str, bytes], *, deflated: bool = False) -> bytes:
    made = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return made.getvalue()


EMPTY = npy(dtype_header("'|u1'", "(0,)"))


@shape("npy")
def _many_fields(length: int) -> bytes:
    fields = ",".join(f"('{i:x}','<u1')" for i in range(max(length // 16, 1)))
    return npy(dtype_header(f"[{fields}]"))


@shape("npy")
def _deep_fields(length: int) -> bytes:
    depth = max(length // 12, 1)
    return npy(dtype_header("[('a'," * depth + "'|u1'" + ")]" * depth))


@shape("npz")
def _members_of_a_letter(length: int) -> bytes:
    most = max(1, min(length // (2 * 46 + 30 + 128), 65_000))
    return archive({f"{i:x}.npy": EMPTY for i in range(most)})


@shape("npz")
def _deflated_members(length: int) -> bytes:
    most = max(1, min(length // 200, 65_000))
    return archive({f"{i:x}.npy": EMPTY for i in range(most)}, deflated=True)


@shape("npz")
def _members_with_long_headers(length: int) -> bytes:
    long = npy(dtype_header("'|u1'", "(%s)" % ("0," * 5000)))
    packed = len(zlib.compress(long)) + 140
    most = max(1, min(length // packed, 65_000))
    return archive({f"{i:x}.npy": long for i in range(most)}, deflated=True)


@shape("npz")
def _members_of_64_dimensions(length: int) -> bytes:
    one = npy(dtype_header("'|u1'", "(%s)" % ("0," * 64)))
    most = max(1, min(length // 180, 65_000))
    return archive({f"{i:x}.npy": one for i in range(most)}, deflated=True)


def _members_with_wide_names(length: int) -> bytes:
    name = WIDE + "a" * 1000
    return archive({f"{name}{i:x}.npy": EMPTY for i in range(max(length // 2300, 1))})


shape("npz")(_members_with_wide_names)


# --- Pickles ----------------------------------------------------------------------------------


PROTO = b"\x80\x02"


def in_a_zip(pickle: bytes, *, deflated: bool = False) -> bytes:
    files = {"a/data.pkl": pickle, "a/version": b"3\n", "a/byteorder": b"little"}
    return archive(files, deflated=deflated)


def legacy(pickle: bytes) -> bytes:
    magic = PROTO + b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
    protocol = PROTO + b"M\xe9\x03."
    return magic + protocol + PROTO + b"}." + pickle + PROTO + b"]."


def repeated(length: int, one: bytes) -> bytes:
    return one * max(length // len(one), 1)


def counted(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


PICKLES: dict[str, Callable[[int], bytes]] = {
    "list of empty lists": lambda n: PROTO + b"](" + repeated(n, b"]") + b"e.",
    "list of empty dicts": lambda n: PROTO + b"](" + repeated(n, b"}") + b"e.",
    "list of empty sets": lambda n: b"\x80\x04](" + repeated(n, b"\x8f") + b"e.",
    "list of tuples of one": lambda n: PROTO + b"](" + repeated(n, b"N\x85") + b"e.",
    "tuple of tuples": lambda n: PROTO + b"N" + repeated(n, b"\x85") + b".",
    "list of numbers": lambda n: PROTO + b"](" + repeated(n, b"M\xff\x7f") + b"e.",
    "list of texts": lambda n: PROTO + b"](" + repeated(n, b"X\1\0\0\0a") + b"e.",
    "memo of many": lambda n: b"\x80\x04N" + repeated(n, b"\x94") + b".",
    "memoized lists": lambda n: b"\x80\x04](" + repeated(n, b"]\x94") + b"e.",
    "marks": lambda n: PROTO + repeated(n, b"(") + b".",
    "pushed and dropped": lambda n: PROTO + repeated(n, b"]0") + b"N.",
    "same list appended to": lambda n: PROTO + b"]q\0" + repeated(n, b"h\0Na0") + b".",
    "dict of numbers": lambda n: PROTO + b"}(" + b"".join(
        b"J" + i.to_bytes(4, "little") + b"N" for i in range(max(n // 6, 1))) + b"u.",
    "long numbers": lambda n: PROTO + b"](" + repeated(n, b"\x8a\x08" + b"\x7f" * 8) + b"e.",
    "one long number": lambda n: PROTO + b"\x8b" + struct.pack("<i", n) + b"\x7f" * n + b".",
    "one long text that widens": lambda n: PROTO + counted(widening(n)) + b".",
    "one long escaped text": lambda n: b"V" + b"a" * n + b"\\u20ac\\U0001f600\n.",
    "one long text of Python 2": lambda n: b"S'" + b"a" * n + "\u20ac\U0001f600'\n.".encode(),
    "long wide texts": lambda n: PROTO + b"](" + repeated(n, counted(WIDE + "a" * 200)) + b"e.",
    "one long wide key": lambda n: PROTO + b"}" + counted(widening(n)) + b"Ns.",
    "one long decimal": lambda n: b"I" + b"9" * n + b"\n.",
    "ordered dicts": lambda n: (
        PROTO + b"ccollections\nOrderedDict\nq\0](" + repeated(n, b"h\0)R") + b"e."
    ),
    "doubled tuples": lambda n: PROTO + b"N" + repeated(n, b"2\x86") + b".",
    "popped marks": lambda n: PROTO + repeated(n, b"(]]]1") + b"N.",
}  # fmt: skip

for name, make in PICKLES.items():
    shape("pt zip", name)(around(make, in_a_zip))
    shape("pt legacy", name)(around(make, legacy))


@shape("pt zip")
def _many_members(length: int) -> bytes:
    most = max(1, min(length // 110, 65_000))
    files = {"a/data.pkl": PROTO + b"}.", "a/version": b"3\n"}
    return archive({**files, **{f"a/data/{i}": b"" for i in range(most)}})


@shape("pt zip")
def _a_text_many_times(length: int) -> bytes:
    half = length // 2
    text = b"X" + struct.pack("<I", half) + b"a" * half
    return in_a_zip(PROTO + text + b"q\0](" + repeated(half, b"h\0") + b"e.")


def protobuf(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    made = bytearray()
    for _ in count():
        made.append(number & 0x7F | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            break
    return bytes(made)


# --- ONNX -------------------------------------------------------------------------------------


def onnx(graph: bytes) -> bytes:
    return b"\x08\x08" + protobuf(2, b"x") + protobuf(7, graph)


@shape("onnx")
def _packed_numbers(length: int) -> bytes:
    n = length
    tensor = protobuf(1, varint(n)) + b"\x10\x07" + protobuf(8, b"a") + protobuf(7, b"\1" * n)
    return onnx(protobuf(5, tensor))


@shape("onnx")
def _texts_of_nothing(length: int) -> bytes:
    n = length // 2
    tensor = protobuf(1, varint(n)) + b"\x10\x08" + protobuf(8, b"a") + b"\x32\x00" * n
    return onnx(protobuf(5, tensor))


@shape("onnx")
def _short_initializers(length: int) -> bytes:
    made = (protobuf(5, b"\x08\x00\x10\x03" + protobuf(8, b"%x" % i)) for i in range(length // 12))
    return onnx(b"".join(made))


@shape("onnx")
def _initializers_with_wide_names(length: int) -> bytes:
    name = (WIDE + "a" * 200).encode()
    count = max(length // 220, 1)
    made = (protobuf(5, b"\x08\x00\x10\x03" + protobuf(8, name + b"%x" % i)) for i in range(count))
    return onnx(b"".join(made))


@shape("onnx")
def _deep_graphs(length: int) -> bytes:
    data = b""
    for _ in range(min(length // 8, 2000)):
        data = protobuf(1, protobuf(5, protobuf(6, data)))
    return onnx(data)


# --- GGUF -------------------------------------------------------------------------------------


def gguf(metadata: bytes, count: int, tensors: bytes = b"", tensor_count: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, count) + metadata + tensors


def gguf_text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf_array(kind: int, n: int, data: bytes) -> bytes:
    return gguf_text(b"a") + struct.pack("<IIQ", 9, kind, n) + data


@shape("gguf")
def _array_of_empty_texts(length: int) -> bytes:
    n = max(length // 8, 1)
    return gguf(gguf_array(8, n, bytes(8 * n)), 1)


@shape("gguf")
def _array_of_short_texts(length: int) -> bytes:
    n = max(length // 10, 1)
    return gguf(gguf_array(8, n, gguf_text(b"ab") * n), 1)


@shape("gguf")
def _array_of_empty_arrays(length: int) -> bytes:
    n = max(length // 12, 1)
    return gguf(gguf_array(9, n, struct.pack("<IQ", 0, 0) * n), 1)


@shape("gguf")
def _array_of_wide_numbers(length: int) -> bytes:
    n = length // 2
    return gguf(gguf_array(2, n, b"\xff\x7f" * n), 1)


@shape("gguf")
def _many_keys(length: int) -> bytes:
    n = max(length // 17, 1)
    data = b"".join(gguf_text(b"%04x" % i) + b"\0\0\0\0\1" for i in range(n))
    return gguf(data, n)


@shape("gguf")
def _many_tensors(length: int) -> bytes:
    n = max(length // 28, 1)
    data = b"".join(gguf_text(b"%04x" % i) + struct.pack("<IIQ", 0, 0, 0) for i in range(n))
    return gguf(b"", 0, data, n)


@shape("gguf")
def _array_of_wide_texts(length: int) -> bytes:
    n = max(length // 20, 1)
    return gguf(gguf_array(8, n, gguf_text("🎈".encode() + b"a" * 8) * n), 1)


@shape("gguf")
def _a_text_that_widens(length: int) -> bytes:
    text = gguf_text(widening(length).encode())
    return gguf(gguf_text(b"a") + struct.pack("<I", 8) + text, 1)


@shape("gguf")
def _a_name_that_widens(length: int) -> bytes:
    name = gguf_text(widening(length).encode())
    return gguf(b"", 0, name + struct.pack("<IIQ", 0, 0, 0), 1)


@shape("gguf")
def _one_name(length: int) -> bytes:
    n = max(length // 25, 1)
    return gguf(b"", 0, (gguf_text(b"a") + struct.pack("<IIQ", 0, 0, 0)) * n, n)


add(
    "npy",
    {
        "a long shape": lambda length: npy(dtype_header("'|u1'", "(%s)" % ("0," * (length // 2)))),
        "deep parentheses": lambda length: npy(dtype_header("(" * length)),
        "a long number": lambda length: npy(dtype_header("'|u1'", "(%s,)" % ("9" * length))),
    },
)


add(
    "pt zip",
    {
        "deflated pickle": lambda length: in_a_zip(
            PROTO + b"](" + b"]" * min(length * 900, 1 << 28) + b"e.", deflated=True
        ),
        "deep lists": lambda length: in_a_zip(PROTO + b"]" * length + b"a" * (length - 1) + b"."),
    },
)


add(
    "onnx",
    {
        "empty initializers": lambda length: onnx(b"\x2a\x00" * (length // 2)),
        "empty nodes": lambda length: onnx(b"\x0a\x00" * (length // 2)),
        "packed dimensions": lambda length: onnx(
            protobuf(5, protobuf(1, b"\1" * length) + b"\x10\x03" + protobuf(8, b"a"))
        ),
        "unpacked dimensions": lambda length: onnx(
            protobuf(5, b"\x08\x01" * (length // 2) + b"\x10\x03" + protobuf(8, b"a"))
        ),
        "outputs of a node": lambda length: onnx(
            protobuf(1, protobuf(4, b"Constant") + repeated(length, protobuf(2, b"ab")))
        ),
        "metadata of nothing": lambda length: onnx(b"") + protobuf(14, b"") * (length // 2),
        "a long text that widens": lambda length: (
            onnx(b"") + protobuf(14, protobuf(1, b"a") + protobuf(2, widening(length).encode()))
        ),
    },
)


add(
    "gguf",
    {
        "array of bytes": lambda length: gguf(gguf_array(0, length, bytes(length)), 1),
        "array of truths": lambda length: gguf(gguf_array(7, length, b"\1" * length), 1),
        "array of a text that widens": lambda length: gguf(
            gguf_array(8, 1, gguf_text(widening(length).encode())), 1
        ),
        "a key that widens": lambda length: gguf(
            gguf_text(widening(length).encode()) + b"\0\0\0\0\1", 1
        ),
    },
)
