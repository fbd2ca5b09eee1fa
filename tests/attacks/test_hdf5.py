"""HDF5 files made to do harm: no bytes reach libhdf5, memory and time stay in proportion.

Files are written by h5py, and then some bytes of them are changed, with the checksums above them
corrected: the parser is tested, not the checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.attacks.peaks import calls_of, peak_of
from tests.hdf5_files import made
from tests.refusals import refused
from ztensor.errors import Reason
from ztensor.formats.hdf5.checksum import lookup3
from ztensor.testing.promise import exercise

h5py = pytest.importorskip("h5py", reason="h5py, which writes the files, is not installed")

MIB = 1 << 20
LIMITS = ztensor.Limits(decoded_bytes=MIB)
UNDEFINED = 2**64 - 1


def patched(data: bytes, place: int, form: str, *values: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(f"<{form}", changed, place, *values)
    return bytes(changed)


def summed(data: bytes, start: int, stop: int) -> bytes:
    """Return data with the right checksum at the end of a structure."""
    return patched(data, stop - 4, "I", lookup3(data[start : stop - 4]))


def header_of(data: bytes, place: int) -> tuple[int, int]:
    """Return where the version 2 object header around a place begins and ends."""
    start = data.rindex(b"OHDR", 0, place)
    flags = data[start + 5]
    prefix = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    length = int.from_bytes(data[start + prefix : start + prefix + width], "little")
    return start, start + prefix + width + length + 4


def refusal(data: bytes) -> ztensor.ZTensorError:
    """Return the error on opening, which may take no more memory than is promised."""
    error = peak_of(lambda: ztensor.open(data))[1]  # imports and caches are not costs of this file
    assert isinstance(error, ztensor.ZTensorError)
    assert peak_of(lambda: ztensor.open(data))[0] < 64 * MIB + 4 * len(data)
    return error


def require_linear(make: Callable[[int], bytes], few: int, many: int) -> list[ztensor.Reader]:
    """Open files of two sizes, and require work in proportion to their lengths."""
    readers, costs = [], []
    for count in (few, few, many):  # the first imports the lazy modules
        data = make(count)
        costs.append(calls_of(lambda: readers.append(ztensor.open(data))) / len(data))  # noqa: B023
    assert costs[2] < 2 * costs[1]
    return readers[1:]


# --- Chunks ----------------------------------------------------------------------------------

CHUNK = np.arange(6, dtype="<i4")  # 24 bytes


@pytest.mark.parametrize("start", [0, 512])
@pytest.mark.parametrize("how", [{}, {"compression": "gzip"}, {"compression": "lzf"}])
@pytest.mark.parametrize("length", [0, 23, 25, 4096, 1 << 20, 2**31, 2**32 - 1])
def test_a_chunk_that_its_index_calls_longer(start: int, how: Any, length: int) -> None:
    """An index says a 24-byte chunk is longer: libhdf5 overwrote the heap from the file."""
    data = made(
        lambda file: file.create_dataset("a", data=CHUNK, chunks=(6,), **how),
        userblock_size=start,
    )
    node = data.index(b"TREE\1")
    data = patched(data, node + 24, "I", length)
    data += bytes(1 << 21)
    if length > len(data):
        assert refusal(data).reason == Reason.OUT_OF_BOUNDS
        return
    outcome = exercise(data, keep=True)
    # Deflate says itself where it ends: what is behind that is not looked at.
    if not (outcome.verified and how == {"compression": "gzip"} and 25 <= length <= 4096):
        assert {one.family for one in outcome.refusals} == {"FormatError"}
    assert all(np.array_equal(array, CHUNK) for array in outcome.arrays.values())


def test_chunks_that_overlap() -> None:
    """Every chunk of an index is one and the same bytes: decoded once for each, quadratic."""
    rows = np.zeros((64, 4096), "<f8")
    data = made(lambda file: file.create_dataset("a", data=rows, chunks=(1, 4096)))
    node = data.index(b"TREE\1\0")
    places = [
        node + 24 + 40 * number for number in range(struct.unpack_from("<H", data, node + 6)[0])
    ]
    first = struct.unpack_from("<Q", data, places[0] + 32)[0]
    for place in places:
        data = patched(data, place + 32, "Q", first)
    end = first + rows[0].nbytes  # the other chunks were behind it
    data = patched(data[:end], 40, "Q", end)
    assert max(node + 24 + 40 * len(places), first) < len(data)
    assert refusal(data).reason == Reason.OUT_OF_BOUNDS


@pytest.mark.slow
def test_a_chunk_that_inflates_to_far_more() -> None:
    """Deflate gives 1000 bytes for one: 64 kB that inflate to 64 MiB for a chunk of 24 bytes."""
    bomb = zlib.compress(bytes(64 * MIB), 9)

    def fill(file: Any) -> None:
        file.create_dataset("a", (6,), "<i4", chunks=(6,), compression="gzip")
        file["a"].id.write_direct_chunk((0,), bomb[:4000] + bomb[-40:])

    data = made(fill)

    def read() -> ztensor.Tensor:
        return ztensor.open(data).read("a")

    assert isinstance(peak_of(read)[1], ztensor.FormatError)
    assert peak_of(read)[0] < 2 * MIB


def test_shapes_far_larger_than_the_stored_bytes() -> None:
    """Shapes and chunks of 2^40 bytes with next to nothing stored: allocated and filled up."""

    def fill(file: Any) -> None:
        file.create_dataset("rows", (1 << 40,), "f8", chunks=(1024,))
        file.create_dataset("chunk", (1 << 28,), "f8", chunks=(1 << 28,), compression="gzip")
        file.create_dataset("plain", (1 << 40,), "f8")
        how = {"chunks": (1, 1 << 22), "maxshape": (300, None), "compression": "gzip"}
        file.create_dataset("wide", (300, 1), "i1", **how)[0] = 1

    for version in ("earliest", "latest"):
        data = made(fill, libver=version)
        reader = ztensor.open(data, limits=LIMITS)
        for name in reader:
            with refused(ztensor.LimitError, Reason.LIMIT_DECODED):
                reader.read(name)


# The shape that may grow, and the length of the header, by the sign of the index.
ARRAYS: dict[bytes, tuple[Any, int]] = {
    b"FAHD": (None, 28),
    b"EAHD": ((None, 5), 72),
    b"BTHD": ((None, None), 38),
}


@pytest.mark.slow
@pytest.mark.parametrize("sign", ARRAYS)
def test_an_index_that_claims_more_than_there_is(sign: bytes) -> None:
    """Counts of 2^40 in the header of an index of chunks: as much memory was asked for."""
    most, length = ARRAYS[sign]
    data = made(
        lambda file: file.create_dataset("a", data=np.zeros((40, 5)), chunks=(3, 3), maxshape=most),
        libver="latest",
    )
    start = data.index(sign)
    for number in (255, 1 << 16, 1 << 40, 2**63, UNDEFINED):
        for at in range(6, length - 12):
            changed = patched(data, start + at, "Q", number)
            outcome = exercise(summed(changed, start, start + length), limits=LIMITS)
            assert outcome.largest < MIB


# --- Headers ---------------------------------------------------------------------------------


def continued() -> tuple[bytes, int]:
    """Return a file with a header that goes on elsewhere, and where that is said."""

    def fill(file: Any) -> None:
        for number in range(30):
            file.attrs[f"name {number}"] = number

    data = made(fill)
    for at in range(0, len(data) - 24, 8):
        kind, length, _, place, size = struct.unpack_from("<HHIQQ", data, at)
        if (kind, length) == (0x10, 16) and place + size <= len(data) and size:
            return data, at + 8
    raise AssertionError("no header goes on")


@pytest.mark.parametrize(
    ("place", "length"),
    [
        (2**64 - 16, 2**63),
        (2**64 - 4096, 4096 + 800),
        (UNDEFINED, 16),
        (8, 2**64 - 8),
        (96, 10 << 30),
        (2**63, 2**63),
    ],
)
def test_a_header_that_goes_on_around_the_end_of_numbers(place: int, length: int) -> None:
    """A continuation that wraps around 2^64: 10 GiB on open for 6 kB."""
    data, at = continued()
    error = refusal(patched(data, at, "QQ", place, length))
    assert error.reason == Reason.OUT_OF_BOUNDS


def test_a_header_that_goes_on_in_itself() -> None:
    """A continuation that leads to the block it is in, or to the one before, without an end."""
    data, at = continued()
    (place,) = struct.unpack_from("<Q", data, at)
    for where in (at - 8, 96, place):
        inner = patched(data, at, "QQ", where, 24)
        # The block it leads to begins with the same continuation.
        inner = inner[:where] + struct.pack("<HHIQQ", 0x10, 16, 0, where, 24) + inner[where + 24 :]
        assert refusal(inner).reason in (Reason.FIELD_VALUE, Reason.OUT_OF_BOUNDS)


def test_messages_that_say_nothing() -> None:
    """A header of nothing but empty messages: each step is charged, and none is kept."""

    def make(count: int) -> bytes:
        data = made(lambda file: file.attrs.create("a", 1))
        head = 96
        assert data[head] == 1
        body = struct.pack("<HHI", 0, 0, 0) * count
        symbol = struct.pack("<HHIQQ", 0x11, 16, 0, *struct.unpack_from("<QQ", data, 80))
        block = symbol + body
        data = patched(data, head, "BxHII", 1, min(count + 1, 65535), 1, 24)
        more = struct.pack("<HHIQQ", 0x10, 16, 0, len(data), len(block))
        data = data[: head + 16] + more + data[head + 40 :] + block
        return patched(data, 40, "Q", len(data))

    require_linear(make, 10_000, 40_000)


# --- Texts -----------------------------------------------------------------------------------


def texts(count: int) -> bytes:
    def fill(file: Any) -> None:
        file.attrs["texts"] = [f"{number:06}" for number in range(count)]

    return made(fill, libver="latest")


@pytest.mark.parametrize("length", [7, 4096, 2**31, 2**32 - 1])
def test_a_text_that_says_it_is_longer(length: int) -> None:
    """A text of six bytes says it has 4 GiB: libhdf5 took them."""
    data = made(lambda file: file.attrs.create("a", "abcdef"))
    heap = data.index(b"GCOL")
    at = data.index(struct.pack("<IQI", 6, heap, 1))
    assert refusal(patched(data, at, "I", length)).reason == Reason.FIELD_VALUE


def test_a_heap_of_many_texts_is_looked_through_once() -> None:
    """A heap was scanned again for each block that was read: 648 kB took 8 s."""
    few, many = require_linear(texts, 2000, 8000)
    assert len(many.attributes["texts"]) == 8000
    assert few.attributes["texts"][-1] == "001999"


@pytest.mark.slow
def test_many_texts_that_are_one() -> None:
    """Each of many texts is one and the same long one: a short file became very much text."""

    def fill(file: Any) -> None:
        file.attrs["long"] = "x" * 60_000
        for number in range(30):
            file.create_group(f"{number}").attrs["texts"] = ["x"] * 200

    data = made(fill)
    long = data.index(struct.pack("<I", 60_000))
    entry = data[long : long + 16]
    short = struct.pack("<I", 1)
    at = 0
    while (at := data.find(short, at)) >= 0:
        place, number = struct.unpack_from("<QI", data, at + 4)
        if data[place : place + 4] == b"GCOL" and number:
            data = data[:at] + entry + data[at + 16 :]
        at += 4
    assert refusal(data).reason == Reason.LIMIT_COST


def test_attributes_with_very_many_empty_lists() -> None:
    """An attribute of shape (2^40, 0) has no byte: as lists in lists it takes all memory."""
    data = made(lambda file: file.attrs.create("a", np.zeros((3, 0))))
    at = data.index(struct.pack("<QQ", 3, 0))
    data = patched(data, at, "Q", 1 << 40)
    at = data.index(struct.pack("<QQ", 3, 0))  # what it may grow to
    assert refusal(patched(data, at, "Q", 1 << 40)).reason == Reason.LIMIT_COST


# --- Groups, trees and links -----------------------------------------------------------------


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_very_many_links_to_one_dataset(version: str) -> None:
    """Each name of one dataset was read and kept anew."""

    def make(count: int) -> bytes:
        def fill(file: Any) -> None:
            data = file.create_dataset("a", data=CHUNK)
            data.attrs["text"] = "t" * 400
            for number in range(count):
                file[f"{number}"] = data

        return made(fill, libver=version)

    _, many = require_linear(make, 1000, 4000)
    assert len(many) == 4001
    assert many.metadata("7").attributes is not None


def test_groups_that_contain_themselves() -> None:
    """Groups that lead back to one another were walked for ever."""

    def fill(file: Any) -> None:
        file["a/b/c/x"] = 1
        for path in ("a", "a/b", "a/b/c"):
            for number in range(10):
                file[f"{path}/up{number}"] = file["/a" if number % 2 else "/"]

    for version in ("earliest", "latest"):
        assert list(ztensor.open(made(fill, libver=version))) == ["a/b/c/x"]


def test_nodes_that_lead_back() -> None:
    """A node of a tree that has itself, its root or one leaf many times below it."""
    data = made(lambda file: [file.create_group(f"{n:05}") for n in range(600)])
    nodes = []
    at = -1
    while (at := data.find(b"TREE\0", at + 1)) >= 0:
        nodes.append(at)
    root = max(nodes, key=lambda node: struct.unpack_from("<BH", data, node + 5))
    count = struct.unpack_from("<H", data, root + 6)[0]
    assert count > 2
    children = [root + 24 + 8 + 16 * number for number in range(count)]
    first = struct.unpack_from("<Q", data, children[0])[0]
    for target in (root, first, *nodes[:3]):
        changed = data
        for child in children[1:]:
            changed = patched(changed, child, "Q", target)
        assert refusal(changed).reason == Reason.FIELD_VALUE


def test_structures_that_overlap() -> None:
    """Tables of symbols that begin in one another: each byte would be parsed many times."""
    data = made(lambda file: [file.create_group(f"{n:05}") for n in range(600)])
    place = len(data)
    table = struct.pack("<4sBxH", b"SNOD", 1, 0x4E53)
    data += table * 2000 + bytes(1 << 20)
    node = max(
        (at for at in range(place) if data[at : at + 6] == b"TREE\0\0"),
        key=lambda at: struct.unpack_from("<H", data, at + 6),
    )
    count = struct.unpack_from("<H", data, node + 6)[0]
    assert count > 10
    for number in range(count):
        data = patched(data, node + 24 + 8 + 16 * number, "Q", place + 8 * number)
    assert refusal(patched(data, 40, "Q", len(data))).reason == Reason.FIELD_VALUE


@pytest.mark.slow
def test_names_that_are_the_ends_of_one() -> None:
    """Thousands of names in one long text, each a byte shorter: 100 kB became 240 MB."""
    count = 3000

    def fill(file: Any) -> None:
        file["x" * 60_000] = 1
        for number in range(count):
            file.create_group(f"n{number:05}")

    data = bytearray(made(fill))
    heap = data.index(b"HEAP")
    start = struct.unpack_from("<Q", data, heap + 24)[0]
    long = data.index(b"x" * 1000, start) - start
    at = -1
    number = 1
    while (at := data.find(b"SNOD\1", at + 1)) >= 0:
        for entry in range(struct.unpack_from("<H", data, at + 6)[0]):
            struct.pack_into("<Q", data, at + 8 + 40 * entry, long + number)
            number += 1
    assert refusal(bytes(data)).reason in (Reason.LIMIT_COST, Reason.DUPLICATE_NAME)


@pytest.mark.slow
def test_paths_that_grow_with_their_depth() -> None:
    """Long names of groups in groups: each path has all names above it."""

    def fill(file: Any) -> None:
        group = file
        for _ in range(20):
            group = group.create_group("g" * 60_000)
        for number in range(200):
            group.create_group(f"{number}")

    assert refusal(made(fill)).reason == Reason.LIMIT_COST


def test_groups_nested_deeper_than_the_limit() -> None:
    """Groups in groups without an end."""
    for version in ("earliest", "latest"):
        error = refusal(made(lambda file: file.create_group("/".join("g" * 80)), libver=version))
        assert error.reason == Reason.LIMIT_DEPTH


# --- Types and shapes ------------------------------------------------------------------------


def test_types_in_types() -> None:
    """A type of lists of lists of lists: as deep as a message is long."""
    number = struct.pack("<BBHIHH", 0x10, 8, 0, 4, 0, 32)
    fields = np.zeros(1, [(f"f{place}", "<i4") for place in range(400)])
    data = made(lambda file: file.attrs.create("a", fields))
    at = data.index(b"a" + bytes(7)) + 8
    for count in (40, 1000):
        lists = struct.pack("<BBHI", 0x19, 0, 0, 16) * count + number
        assert refusal(data[:at] + lists + data[at + len(lists) :]).reason == Reason.FIELD_VALUE


@pytest.mark.parametrize("count", [0, 33, 64, 255])
@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_a_rank_that_cannot_be(version: str, count: int) -> None:
    """A shape of 255 dimensions, or one less than its chunks have."""
    data = made(
        lambda file: file.create_dataset("a", data=np.zeros((7, 9)), chunks=(7, 9)), libver=version
    )
    at = data.index(struct.pack("<QQ", 7, 9)) - (8 if version == "earliest" else 4)
    data = patched(data, at + 1, "B", count)
    if version == "latest":
        data = summed(data, *header_of(data, at))
    refusal(data)
