"""Every structure of HDF5 files that is parsed here, read as h5py reads it."""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.extent import sample
from tests.hdf5_files import made
from tests.refusals import refused
from ztensor.errors import Reason
from ztensor.formats.hdf5.checksum import lookup3

h5py = pytest.importorskip("h5py", reason="h5py, which writes the files, is not installed")

VERSIONS = [
    version
    for version in ("earliest", "v108", "v110", "v112", "v114", "v200", "latest")
    if version in h5py._hl.files.libver_dict
]
STARTS = {"plain": {}, "user block": {"userblock_size": 2048}}


def require_same(data: bytes, threads: int = 1) -> list[str]:
    """Compare all datasets of a file with what h5py gives, and return their names."""
    names: list[str] = []
    with h5py.File(io.BytesIO(data)) as file, ztensor.open(data) as reader:

        def compare(name: str, item: Any) -> None:
            if not isinstance(item, h5py.Dataset):
                return
            names.append(name)
            expected = item[...]
            found = reader[name]
            assert found.dtype == expected.dtype.newbyteorder("="), name
            assert np.array_equal(found, expected, equal_nan=expected.dtype.kind in "fc"), name
            if expected.ndim and len(expected):
                part = slice(len(expected) // 3, len(expected) // 3 * 2 + 1)
                assert np.array_equal(reader.get_slice(name)[part], expected[part])
            pieces = b"".join(map(bytes, reader.decoded_chunks(name)))
            assert len(pieces) == expected.nbytes

        file.visititems(compare)
        assert sorted(reader) == sorted(names)
        assert not reader.verify(threads=threads).problems
    return names


# --- Data: layouts, indexes of chunks, filters, types ----------------------------------------

NONE = None
# Shape, chunks, maximal shape, and signatures in a file of version 1.10 or later.
INDEXES: dict[str, tuple[Any, Any, Any, tuple[bytes, ...]]] = {
    "single": ((20, 30), (20, 30), (20, 30), ()),
    "single that is larger": ((5, 3), (8, 4), (NONE, 4), ()),
    "fixed": ((20, 30), (3, 7), (20, 30), (b"FAHD",)),
    "fixed that may grow": ((20, 30), (3, 7), (50, 64), (b"FAHD",)),
    "fixed in pages": ((41, 60), (1, 1), (41, 60), (b"FAHD",)),
    "extensible": ((20, 30), (3, 7), (NONE, 30), (b"EAHD",)),
    "extensible along the second": ((6, 40), (1, 2), (8, NONE), (b"EAHD",)),
    "extensible in super blocks": ((3000,), (1,), (NONE,), (b"EAHD", b"EASB", b"EADB")),
    "tree": ((20, 30), (3, 7), (NONE, NONE), (b"BTHD",)),
    "deep tree": ((70, 60), (1, 1), (NONE, NONE), (b"BTHD", b"BTIN")),
}
FILTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "deflate": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
}


# A filter for each index in each version; all of them in the full form.
CHUNKED = sample(itertools.product(VERSIONS, INDEXES, FILTERS), 1, lambda case: case[:2])


@pytest.mark.parametrize(("version", "kind", "filters"), CHUNKED)
def test_every_index_of_chunks(version: str, kind: str, filters: str) -> None:
    shape, chunks, most, signs = INDEXES[kind]
    array = np.random.default_rng(1).integers(0, 9, shape).astype("<i4")

    def fill(file: Any) -> None:
        how = {"chunks": chunks, "maxshape": most, **FILTERS[filters]}
        file.create_dataset("whole", data=array, **how)
        file.create_dataset("empty", shape, "<f4", fillvalue=2.5, **how)
        part = file.create_dataset("part", shape, "<i4", fillvalue=-1, **how)
        part[len(array) // 2 : len(array) // 2 + 3] = 5
        part[-1:] = 6

    data = made(fill, libver=version)
    assert require_same(data) == ["empty", "part", "whole"]
    if version == "latest":
        assert all(sign in data for sign in signs)


@pytest.mark.slow
@pytest.mark.parametrize("filters", ["plain", "deflate"])
def test_an_extensible_array_in_pages(filters: str) -> None:
    # Its blocks have pages from some 130,000 chunks on.
    def fill(file: Any) -> None:
        part = file.create_dataset(
            "a", (300_000,), "<u4", chunks=(1,), maxshape=(None,), **FILTERS[filters]
        )
        for start in (0, 3000, 140_000, 299_980):
            part[start : start + 20] = np.arange(20)

    require_same(made(fill, libver="latest"))


def low(file: Any, name: str, kind: Any, shape: tuple[int, ...], **how: Any) -> Any:
    """Create a dataset by h5py's lower half, which can say more."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    for key, value in how.items():
        getattr(creation, f"set_{key}")(value)
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    return h5py.h5d.create(file.id, name.encode(), kind, space, creation)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("version", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("shape", [(), (5,), (4, 6)])
def test_compact_early_and_never_written_data(
    version: str, shape: tuple[int, ...], start: str
) -> None:
    early = h5py.h5d.ALLOC_TIME_EARLY
    values = np.random.default_rng(3).random(shape).astype("<f8")

    def fill(file: Any) -> None:
        kind = h5py.h5t.IEEE_F64LE
        low(file, "nothing", kind, shape, fill_value=np.array(7.5))
        low(file, "never", kind, shape, fill_time=h5py.h5d.FILL_TIME_NEVER)
        cases: dict[str, dict[str, Any]] = {
            "compact": {"layout": h5py.h5d.COMPACT},
            "early": {"alloc_time": early},
        }
        if shape:
            cases["implicit"] = {"chunk": (2,) * len(shape), "alloc_time": early}
        for name, how in cases.items():
            low(file, name, kind, shape, **how).write(h5py.h5s.ALL, h5py.h5s.ALL, values)
            low(file, f"{name} filled", kind, shape, fill_value=np.array(1.0), **how)

    data = made(fill, libver=version, **STARTS[start])
    names = require_same(data)
    assert len(names) == (8 if shape else 6)
    with ztensor.open(data) as reader:
        assert reader.metadata("compact").components["data"].encoding == "raw"


def resummed(data: bytearray, place: int) -> bytes:
    """Return data with the right checksum of the object header around a place."""
    start = data.rindex(b"OHDR", 0, place)
    flags = data[start + 5]
    prefix = start + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    end = prefix + width + int.from_bytes(data[prefix : prefix + width], "little")
    data[end : end + 4] = lookup3(data[start:end]).to_bytes(4, "little")
    return bytes(data)


def test_edges_that_are_not_filtered() -> None:
    # h5py cannot ask for it: the flag is set afterwards, and the edges are written for it.
    rows = np.arange(90, dtype="<i4").reshape(10, 9)

    def fill(file: Any) -> None:
        data = file.create_dataset("a", rows.shape, "<i4", chunks=(4, 4), compression="gzip")
        padded = np.zeros((12, 12), "<i4")
        padded[:10, :9] = rows
        for corner in itertools.product((0, 4, 8), (0, 4, 8)):
            chunk = padded[corner[0] : corner[0] + 4, corner[1] : corner[1] + 4].tobytes()
            is_edge = 8 in corner
            data.id.write_direct_chunk(corner, chunk if is_edge else zlib.compress(chunk))

    data = bytearray(made(fill, libver="latest"))
    at = data.index(bytes((2, 0, 3, 1, 4, 4, 4)))  # class, flags, rank, a width, the chunk
    data[at + 1] |= 1
    changed = resummed(data, at)
    assert require_same(changed) == ["a"]
    assert np.array_equal(ztensor.open(changed)["a"], rows)


TYPES = (
    "|b1", "|i1", "|u1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u8", ">i8", "<f2", ">f2", "<f4",
    ">f4", "<f8", ">f8", "<c8", ">c8", "<c16",
)  # fmt: skip


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_every_type(version: str) -> None:
    values = np.random.default_rng(4).integers(0, 100, (12, 5))

    def fill(file: Any) -> None:
        for dtype in TYPES:
            array = values.astype(dtype)
            file[f"{dtype}/plain"] = array
            file[f"{dtype}/scalar"] = array[0, 0]
            file[f"{dtype}/none"] = array[:0]
            file.create_dataset(f"{dtype}/chunked", data=array, chunks=(5, 2), shuffle=True)
            file.create_dataset(f"{dtype}/filled", (3,), dtype, fillvalue=array[1, 1])
        file["colours"] = np.array([2, 0, 1], h5py.enum_dtype({"r": 0, "g": 1, "b": 2}, "<i2"))

    assert len(require_same(made(fill, libver=version))) == 5 * len(TYPES) + 1


FLOATS = {  # bytes, sign, exponent (place, bits), mantissa (place, bits), bias
    "e5m2": (1, (7, 2, 5, 0, 2), 15),
    "e4m3": (1, (7, 3, 4, 0, 3), 7),
    "24 bits of 4 bytes": (4, (23, 16, 7, 0, 16), 63),
    "wide": (8, (50, 40, 10, 0, 40), 511),
}


@pytest.mark.parametrize("name", FLOATS)
def test_other_floats_become_the_next_wider_one(name: str) -> None:
    size, fields, bias = FLOATS[name]

    def fill(file: Any) -> None:
        kind = h5py.h5t.IEEE_F64LE.copy()
        precision = fields[0] + 1
        kind.set_fields(*fields)
        kind.set_precision(precision)
        kind.set_size(size)
        kind.set_ebias(bias)
        values = np.array([0, 1, -1.5, 0.25, 3, -0.0, 1e-3, np.inf, -np.inf, np.nan])
        for where, chunk in (("plain", {}), ("chunked", {"chunk": (4,)})):
            data = low(file, where, kind, values.shape, **chunk)
            data.write(h5py.h5s.ALL, h5py.h5s.ALL, values)

    assert len(require_same(made(fill))) == 2


def test_a_stored_type_is_shared() -> None:
    def fill(file: Any) -> None:
        file["kind"] = np.dtype(">f4")
        for number in range(3):
            file.create_dataset(f"{number}", data=np.arange(4), dtype=file["kind"])
            file[f"{number}"].attrs.create("a", 1.5, dtype=file["kind"])

    for version in ("earliest", "latest"):
        data = made(fill, libver=version)
        assert require_same(data) == ["0", "1", "2"]
        assert ztensor.open(data).metadata("1").attributes == {"a": 1.5}


@pytest.mark.skipif(not hasattr(h5py.h5t, "COMPLEX_IEEE_F32LE"), reason="HDF5 is before 2.0")
def test_complex_numbers_of_hdf5_itself() -> None:
    numbers = np.array([1 + 2j, -3j])

    def fill(file: Any) -> None:
        for name, dtype in (("F32LE", "<c8"), ("F64BE", ">c16")):
            kind = getattr(h5py.h5t, f"COMPLEX_IEEE_{name}")
            data = low(file, name, kind, (2,))
            data.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers.astype(dtype), kind)

    reader = ztensor.open(made(fill, libver="latest"))
    assert reader["F32LE"].dtype == np.complex64
    assert reader["F64BE"].dtype == np.complex128
    assert all(np.array_equal(reader[name], numbers) for name in reader)


def test_messages_that_objects_share_are_refused() -> None:
    data = bytearray(made(lambda file: file.attrs.create("abc", 1.5), libver="latest"))
    flags = data[data.index(b"OHDR") + 5]
    at = data.index(b"abc\0") - 9 - (6 if flags & 4 else 4)  # kind, length, flags, order
    assert data[at] == 0x0C
    data[at + 3] |= 2
    changed = resummed(data, at)
    with refused(ztensor.UnsupportedError, Reason.UNKNOWN_LAYOUT):
        ztensor.open(changed)


def test_widths_of_addresses() -> None:
    for widths in ((4, 4), (2, 4), (8, 8), (4, 8)):
        creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
        creation.set_sizes(*widths)
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_fapl_core(1 << 12, backing_store=False)
        identifier = h5py.h5f.create(b"widths", h5py.h5f.ACC_TRUNC, creation, access)
        with h5py.File(identifier) as file:
            file["a/b"] = np.arange(5)
            file.create_dataset("c", data=np.arange(100), chunks=(3,), compression="gzip")
            file.attrs["x"] = "text"
            file.flush()
            data = file.id.get_file_image()
        assert require_same(data) == ["a/b", "c"]
        assert ztensor.open(data).attributes == {"x": "text"}


# --- Names and attributes --------------------------------------------------------------------


@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("version", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("count", [3, 8, 9, 40, 700])
def test_groups_of_every_size(version: str, count: int, track_order: bool) -> None:
    names = [f"{number * 7919 % 1000:03}" + "x" * (number % 50) for number in range(count)]

    def fill(file: Any) -> None:
        for name in names:
            file[name] = len(name)

    reader = ztensor.open(made(fill, libver=version, track_order=track_order))
    assert list(reader) == (names if track_order else sorted(names))
    assert all(reader[name] == len(name) for name in names)


def test_a_group_whose_heap_has_tables_in_tables() -> None:
    def fill(file: Any) -> None:
        file["w"] = 7
        for number in range(7000):
            file[f"{number:05}" + "x" * 90] = file["w"]

    reader = ztensor.open(made(fill, libver="latest"))
    assert len(reader) == 7001
    assert reader["06999" + "x" * 90] == 7


def attributes(count: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield names, values, and these as Python has them."""
    yield "text", "äöü", "äöü"
    yield "nothing", h5py.Empty("f4"), None
    yield "long", "x" * 5000, "x" * 5000
    yield "numbers", np.arange(6, dtype=">i2").reshape(2, 3), [[0, 1, 2], [3, 4, 5]]
    yield "fixed", np.array([b"ab", b"c"], "S5"), ["ab", "c"]
    yield "flags", np.array([True, False]), [True, False]
    yield "none", np.zeros((2, 0)), [[], []]
    for number in range(count):
        yield f"n{number:04}", number / 2, number / 2


@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("version", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("count", [0, 5, 300])
def test_attributes_of_every_number(version: str, count: int, track_order: bool) -> None:
    def fill(file: Any) -> None:
        group = file.create_group("g", track_order=track_order)
        for name, value, _ in attributes(count):
            group.attrs[name] = value

    expected = {name: value for name, _, value in attributes(count)}
    found = ztensor.open(made(fill, libver=version)).attributes["/g"]
    assert found == expected
    assert list(found) == (list(expected) if track_order else sorted(expected))


def test_an_attribute_of_an_array_type() -> None:
    def fill(file: Any) -> None:
        kind = h5py.h5t.array_create(h5py.h5t.STD_I32BE, (2, 3))
        space = h5py.h5s.create_simple((2,))
        numbers = np.arange(12, dtype=">i4").reshape(2, 2, 3)
        h5py.h5a.create(file.id, b"a", kind, space).write(numbers, kind)
        file["plain"] = 1

    assert ztensor.open(made(fill)).attributes == {"a": np.arange(12).reshape(2, 2, 3).tolist()}


def test_an_attribute_longer_than_a_block_of_the_heap() -> None:
    def fill(file: Any) -> None:
        for number in range(12):
            file.attrs[f"{number}"] = np.full(20000, number, "<i4")

    found = ztensor.open(made(fill, libver="latest")).attributes
    assert {name: (len(value), value[0]) for name, value in found.items()} == {
        str(number): (20000, number) for number in range(12)
    }


@pytest.mark.parametrize("padding", ["NULLTERM", "NULLPAD", "SPACEPAD"])
def test_texts_of_a_fixed_length(padding: str) -> None:
    def fill(file: Any) -> None:
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(8)
        kind.set_strpad(getattr(h5py.h5t, f"STR_{padding}"))
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        attribute = h5py.h5a.create(file.id, b"a", kind, space)
        attribute.write(np.array(b"abc", "S8"))
        low(file, "d", kind, ()).write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(b"abc", "S8"))

    assert ztensor.open(made(fill)).attributes == {"a": "abc", "/d": "abc"}


def test_texts_of_any_length() -> None:
    texts = ["", "x", "ä" * 3000, "end"]

    def fill(file: Any) -> None:
        file.attrs["texts"] = texts
        for number, text in enumerate(texts):
            file[f"{number}"] = text
        file["not utf8"] = b"\xff"
        file.create_dataset("never", (), h5py.string_dtype())

    for version, start in itertools.product(("earliest", "latest"), STARTS):
        reader = ztensor.open(made(fill, libver=version, **STARTS[start]))
        assert reader.attributes == {
            "texts": texts,
            "/never": "",
            **{f"/{number}": text for number, text in enumerate(texts)},
        }
        assert list(reader) == ["not utf8"]


def test_links_within_and_out_of_the_file() -> None:
    def fill(file: Any) -> None:
        file["a/x"] = np.arange(3)
        file["a/self"] = file["a"]
        file["root"] = file["/"]
        file["soft"] = h5py.SoftLink("/a/x")
        file["a/relative"] = h5py.SoftLink("x")
        file["nowhere"] = h5py.SoftLink("/b")
        file["out"] = h5py.ExternalLink("other.h5", "/x")
        for number in range(20):
            file[f"hard{number:02}"] = file["a/x"]

    expected = {"a/x", "soft", "a/relative", "out", *(f"hard{n:02}" for n in range(20))}
    for version in ("earliest", "latest"):
        reader = ztensor.open(made(fill, libver=version))
        assert set(reader) == expected
        for name in expected - {"out"}:
            assert reader[name].tolist() == [0, 1, 2]


# --- As the first releases wrote --------------------------------------------------------------


def message_of(data: bytes, kind: int, length: int) -> int:
    """Return where the body of the only message of its kind and length begins."""
    head = struct.pack("<HH", kind, length)
    places = [at for at in range(0, len(data) - 8, 8) if data[at : at + 4] == head]
    (place,) = places
    return place + 8


def patched(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


@pytest.mark.parametrize("version", [1, 2])
def test_data_whose_length_old_files_do_not_say(version: int) -> None:
    """The first layouts have the axes in place of the length."""
    array = np.arange(6, dtype="<i2").reshape(2, 3)
    data = made(lambda file: file.create_dataset("a", data=array))
    at = message_of(data, 8, 24)
    (address,) = struct.unpack_from("<Q", data, at + 2)
    old = struct.pack("<BBB5xQII", version, 2, 1, address, 2, 3)
    changed = patched(data, at, old)
    with h5py.File(io.BytesIO(changed)) as file:
        assert np.array_equal(file["a"][...], array)
    reader = ztensor.open(changed)
    assert np.array_equal(reader["a"], array)
    assert reader.metadata("a").components["data"].encoding == "raw"


def test_compact_data_of_the_oldest_layout_may_end_with_its_message() -> None:
    """HDF5 before 1.6.3 wrote version 1: rank and class, the dimensions, the length, the data."""
    array = np.arange(2, dtype="<i4")
    data = made(lambda file: file.create_dataset("a", data=array))
    at = message_of(data, 8, 24)
    for length in (8, 9):
        compact = struct.pack("<BBB5xII", 1, 1, 0, 2, length) + array.tobytes()
        changed = patched(data, at, compact)
        if length == 8:
            assert ztensor.open(changed)["a"].tolist() == [0, 1]
        else:
            with refused(ztensor.FormatError, Reason.FIELD_VALUE):
                ztensor.open(changed)


@pytest.mark.parametrize("length", [1, 11, 13, 24])
def test_data_is_as_long_as_its_shape_needs(length: int) -> None:
    data = made(lambda file: file.create_dataset("a", data=np.arange(6, dtype="<i2")))
    at = message_of(data, 8, 24) + 10
    assert struct.unpack_from("<Q", data, at) == (12,)
    with refused(ztensor.FormatError, Reason.OUT_OF_BOUNDS):
        ztensor.open(patched(data, at, struct.pack("<Q", length)))


def test_data_ends_with_the_file_and_no_later() -> None:
    data = made(lambda file: file.create_dataset("a", data=np.arange(6, dtype="<i2")))
    at = message_of(data, 8, 24) + 2
    end = len(data) - 12
    moved = patched(data, at, struct.pack("<Q", end))
    assert ztensor.open(moved)["a"].tobytes() == moved[end:]
    with refused(ztensor.FormatError, Reason.OUT_OF_BOUNDS):
        ztensor.open(patched(data, at, struct.pack("<Q", end + 1)))


def test_the_fill_value_of_the_first_files() -> None:
    """Files of today have the same in two messages; the first ones have one of them."""

    def fill(file: Any) -> None:
        low(file, "a", h5py.h5t.STD_I32LE, (3,), fill_value=np.array(7, "<i4"))

    data = made(fill)
    new = message_of(data, 5, 16) - 8
    old = message_of(data, 4, 8) - 8
    assert data[old + 8 : old + 16] == struct.pack("<ii", 4, 7)
    without_new = patched(data, new, b"\0")
    differing = patched(data, old + 12, struct.pack("<i", 9))
    for changed, expected in ((data, 7), (without_new, 7), (differing, 7)):
        assert ztensor.open(changed)["a"].tolist() == [expected] * 3
    assert ztensor.open(patched(differing, new, b"\0"))["a"].tolist() == [9] * 3
    neither = patched(without_new, old, b"\0")
    assert ztensor.open(neither)["a"].tolist() == [0] * 3
