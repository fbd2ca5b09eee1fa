"""npy, npz and the pickles of torch: long headers, many members, pickles that build much."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable

from tests.attacks.shapes import WIDE, add, around, shape, widening
from tests.corpus.foreign.make_onnx import block as protobuf
from tests.corpus.foreign.make_onnx import varint


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


def fields(count: int) -> str:
    return "[%s]" % ",".join(f"('{i:x}','<u1')" for i in range(count))


def nested_fields(depth: int) -> str:
    return "[('a'," * depth + "'|u1'" + ")]" * depth


add(
    "npy",
    {
        "a long shape": lambda n: npy(dtype_header("'|u1'", "(%s)" % ("0," * (n // 2)))),
        "many fields": lambda n: npy(dtype_header(fields(max(n // 16, 1)))),
        "deep parentheses": lambda n: npy(dtype_header("(" * n)),
        "deep fields": lambda n: npy(dtype_header(nested_fields(max(n // 12, 1)))),
        "a long number": lambda n: npy(dtype_header("'|u1'", "(%s,)" % ("9" * n))),
    },
)


def members(
    nbytes: int, member: bytes = EMPTY, *, name: str = "", deflated: bool = False
) -> Callable[[int], bytes]:
    """Return a shape of equal members that take so many bytes of the archive each."""

    def make(length: int) -> bytes:
        most = max(1, min(length // nbytes, 65_000))
        return archive({f"{name}{i:x}.npy": member for i in range(most)}, deflated=deflated)

    return make


LONG = npy(dtype_header("'|u1'", "(%s)" % ("0," * 5000)))
RANK_64 = npy(dtype_header("'|u1'", "(%s)" % ("0," * 64)))
add(
    "npz",
    {
        "members of a letter": members(2 * 46 + 30 + 128),
        "deflated members": members(200, deflated=True),
        "members with long headers": members(len(zlib.compress(LONG)) + 140, LONG, deflated=True),
        "members of 64 dimensions": members(180, RANK_64, deflated=True),
        "members with wide names": members(2300, name=WIDE + "a" * 1000),
    },
)


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
    "floats": lambda n: PROTO + b"](" + repeated(n, b"G\1\2\3\4\5\6\7\10") + b"e.",
    "bytes": lambda n: b"\x80\x03](" + repeated(n, b"C\2ab") + b"e.",
    "quoted strings": lambda n: b"S'" + repeated(n, b"\\x41a") + b"'\n.",
    "memo with gaps": lambda n: b"N" + b"".join(
        b"r" + i.to_bytes(3, "little") + b"\x7f" for i in range(max(n // 5, 1))) + b".",
    "memo in a tuple": lambda n: b"Nq\0(" + repeated(n, b"h\0") + b"t.",
    "calls that copy": lambda n: PROTO + b"](" + b"N" * (n // 10) + b"eq\0cbuiltins\nset\nq\1"
        + repeated(n, b"h\1h\0\x85R0") + b"N.",
    "calls that copy a text": lambda n: PROTO + counted("a" * n) + b"q\0c_codecs\nencode\nq\1("
        + b"h\1h\0\x85R" * 100 + b"t.",
    "copies of a dict": lambda n: PROTO + b"}(" + b"NN" * (n // 10)
        + b"uq\0ccollections\nOrderedDict\nq\1(" + repeated(n, b"h\1h\0\x85R") + b"t.",
    "states of a dict": lambda n: PROTO + b"}(" + b"NN" * (n // 10) + b"uq\0("
        + repeated(n, b"}h\0b") + b"t.",
}  # fmt: skip

for name, make in PICKLES.items():
    shape("pt zip", name)(around(make, in_a_zip))
    shape("pt legacy", name)(around(make, legacy))


def storages(count: int) -> bytes:
    files = {"a/data.pkl": PROTO + b"}.", "a/version": b"3\n"}
    return archive({**files, **{f"a/data/{i}": b"" for i in range(count)}})


def text_many_times(half: int) -> bytes:
    text = b"X" + struct.pack("<I", half) + b"a" * half
    return in_a_zip(PROTO + text + b"q\0](" + repeated(half, b"h\0") + b"e.")


add(
    "pt zip",
    {
        # A thousand of these bytes are deflated to one; more of them take the maker too long.
        "deflated pickle": lambda n: in_a_zip(
            PROTO + b"](" + b"]" * min(n * 900, 1 << 28) + b"e.", deflated=True
        ),
        "many members": lambda n: storages(max(1, min(n // 110, 65_000))),
        "deep lists": lambda n: in_a_zip(PROTO + b"]" * n + b"a" * (n - 1) + b"."),
        "a text many times": lambda n: text_many_times(n // 2),
    },
)


# --- ONNX -------------------------------------------------------------------------------------


def onnx(graph: bytes) -> bytes:
    return b"\x08\x08" + protobuf(2, b"x") + protobuf(7, graph)


def tensor(*parts: bytes) -> bytes:
    return onnx(protobuf(5, b"".join(parts)))


def initializers(nbytes: int, name: bytes = b"") -> Callable[[int], bytes]:
    """Return a shape of initializers that take so many bytes each."""

    def make(length: int) -> bytes:
        names = (name + b"%x" % i for i in range(max(length // nbytes, 1)))
        each = (protobuf(5, b"\x08\x00\x10\x03" + protobuf(8, name)) for name in names)
        return onnx(b"".join(each))

    return make


def deep_graphs(length: int) -> bytes:
    data = b""
    for _ in range(min(length // 8, 2000)):
        data = protobuf(1, protobuf(5, protobuf(6, data)))
    return onnx(data)


NAME = protobuf(8, b"a")
add(
    "onnx",
    {
        "empty initializers": lambda n: onnx(b"\x2a\x00" * (n // 2)),
        "empty nodes": lambda n: onnx(b"\x0a\x00" * (n // 2)),
        "packed dimensions": lambda n: tensor(protobuf(1, b"\1" * n), b"\x10\x03", NAME),
        "unpacked dimensions": lambda n: tensor(b"\x08\x01" * (n // 2), b"\x10\x03", NAME),
        "packed numbers": lambda n: tensor(
            protobuf(1, varint(n)), b"\x10\x07", NAME, protobuf(7, b"\1" * n)
        ),
        "texts of nothing": lambda n: tensor(
            protobuf(1, varint(n // 2)), b"\x10\x08", NAME, b"\x32\x00" * (n // 2)
        ),
        "short initializers": initializers(12),
        "initializers with wide names": initializers(220, (WIDE + "a" * 200).encode()),
        "outputs of a node": lambda n: onnx(
            protobuf(1, protobuf(4, b"Constant") + repeated(n, protobuf(2, b"ab")))
        ),
        "metadata of nothing": lambda n: onnx(b"") + protobuf(14, b"") * (n // 2),
        "a long text that widens": lambda n: (
            onnx(b"") + protobuf(14, protobuf(1, b"a") + protobuf(2, widening(n).encode()))
        ),
        "deep graphs": deep_graphs,
        "external data": lambda n: tensor(
            NAME, b"\x70\x01", *(protobuf(13, protobuf(1, b"%x" % i)) for i in range(n // 8))
        ),
        "tensors of a node": lambda n: onnx(
            protobuf(1, protobuf(4, b"Constant") + protobuf(5, repeated(n, protobuf(5, b""))))
        ),
        "nodes": lambda n: onnx(repeated(n, protobuf(1, protobuf(4, b"Constant")))),
        "sparse initializers": lambda n: onnx(protobuf(15, repeated(n, b"\x18\x01"))),
    },
)


# --- GGUF -------------------------------------------------------------------------------------


def gguf(metadata: bytes, count: int, tensors: bytes = b"", tensor_count: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, count) + metadata + tensors


def gguf_text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf_array(kind: int, n: int, data: bytes) -> bytes:
    return gguf_text(b"a") + struct.pack("<IIQ", 9, kind, n) + data


def entries(kind: int, each: bytes) -> Callable[[int], bytes]:
    """Return a shape of one array of equal entries."""

    def make(length: int) -> bytes:
        count = max(length // len(each), 1)
        return gguf(gguf_array(kind, count, each * count), 1)

    return make


def numbered(length: int, nbytes: int, rest: bytes) -> tuple[bytes, int]:
    """Return keys or tensors of so many bytes, and their number."""
    count = max(length // nbytes, 1)
    return b"".join(gguf_text(b"%04x" % i) + rest for i in range(count)), count


def wide(length: int) -> bytes:
    return gguf_text(widening(length).encode())


NO_TENSOR = struct.pack("<IIQ", 0, 0, 0)
add(
    "gguf",
    {
        "array of empty texts": entries(8, gguf_text(b"")),
        "array of short texts": entries(8, gguf_text(b"ab")),
        "array of wide texts": entries(8, gguf_text("🎈".encode() + b"a" * 8)),
        "array of empty arrays": entries(9, struct.pack("<IQ", 0, 0)),
        "array of bytes": entries(0, b"\0"),
        "array of wide numbers": entries(2, b"\xff\x7f"),
        "array of truths": entries(7, b"\1"),
        "array of floats": entries(6, b"\1\2\3\4"),
        "array of arrays of one": entries(9, struct.pack("<IQH", 2, 1, 999)),
        "array of texts that are no UTF-8": entries(8, gguf_text(b"\xff\xfe\xfd")),
        "array of a text that widens": lambda n: gguf(gguf_array(8, 1, wide(n)), 1),
        "many keys": lambda n: gguf(*numbered(n, 17, b"\0\0\0\0\1")),
        "many tensors": lambda n: gguf(b"", 0, *numbered(n, 28, NO_TENSOR)),
        "a text that widens": lambda n: gguf(gguf_text(b"a") + b"\x08\0\0\0" + wide(n), 1),
        "a key that widens": lambda n: gguf(wide(n) + b"\0\0\0\0\1", 1),
        "a name that widens": lambda n: gguf(b"", 0, wide(n) + NO_TENSOR, 1),
        "one name": lambda n: gguf(
            b"", 0, repeated(n, gguf_text(b"a") + NO_TENSOR), max(n // 25, 1)
        ),
    },
)
