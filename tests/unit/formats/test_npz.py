""".npy and .npz: what NumPy writes is read, nothing evaluated or unpickled; NumPy reads ours."""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.corpus.foreign import make_npz, make_pt
from tests.counting import CountedFile
from tests.refusals import refused
from tests.unit.formats.exporting import exported
from ztensor.errors import Reason
from ztensor.testing.promise import exercise

CORPUS = Path(__file__).parents[2] / "corpus" / "foreign"
SAVE = {"stored": np.savez, "deflated": np.savez_compressed}


def saved(how: str, arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    SAVE[how](buffer, **arrays)
    return buffer.getvalue()


def saved_npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


_BASE = np.arange(24).reshape(2, 3, 4)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    **{code: _BASE.astype(code) for code in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")},
    **{code: _BASE.astype(code) for code in ("f2", "f4", "f8", "c8", "c16")},
    **{f"big_{code}": _BASE.astype(f">{code}") for code in ("i2", "u4", "f8", "c16")},
    **{
        f"fortran_{code}": np.asfortranarray(_BASE.astype(code))
        for code in ("u1", "<f2", ">f4", "<i8", ">c16")
    },
    "fortran_row": np.asfortranarray(np.arange(3.0).reshape(1, 3)),
    "scalar": np.array(1.5),
    "empty": np.zeros((3, 0), np.float32),
    "fortran_empty": np.zeros((3, 0, 2), np.float32, order="F"),
    "names/are opaque é": np.arange(3),
}


# --- Reading --------------------------------------------------------------------------------


def test_a_golden_archive() -> None:
    expected = json.loads((CORPUS / "accept/npz/small.json").read_text("utf-8"))
    with ztensor.open(CORPUS / "accept/npz/small.npz") as reader:
        assert (reader.format, reader.version) == ("npz", "")
        assert reader.attributes == {"other_members": ["note.txt"]}
        assert {
            name: {"shape": list(reader[name].shape), "values": reader[name].reshape(-1).tolist()}
            for name in reader
        } == expected
        assert reader.verify().ok


def test_a_golden_array() -> None:
    with ztensor.open(CORPUS / "accept/npz/complex.npy") as reader:
        assert reader.format == "npy"
        assert reader.keys() == ["array"]
        assert reader["array"].tolist() == [1 + 2j]


@pytest.mark.parametrize("how", SAVE)
@pytest.mark.parametrize("name", ARRAYS)
def test_what_numpy_saved_is_read(name: str, how: str) -> None:
    array = ARRAYS[name]
    data = saved(how, {"before": np.zeros(1), name: array})
    with ztensor.open(data) as reader:
        for copy in (False, True):
            got = reader.read_numpy(name, copy=copy)
            assert got.dtype == array.dtype.newbyteorder("=")
            assert got.shape == array.shape
            np.testing.assert_array_equal(got, array)
        if array.ndim:
            np.testing.assert_array_equal(reader.get_slice(name)[1::2], array[1::2])
        target = np.empty(array.shape, array.dtype.newbyteorder("="))
        reader.read_into(name, target)
        np.testing.assert_array_equal(target, array)
        streamed = b"".join(map(bytes, reader.decoded_chunks(name)))
        assert streamed == array.astype(array.dtype.newbyteorder("<")).tobytes()
        assert reader.verify().ok


NOTATIONS = {
    "as other writers have it": '{"fortran_order":False,"descr":"<f4","shape":(2)}',
    "python 2": "{'shape': (2L,), 'fortran_order': False, 'descr': '<f4'}",
    "no blanks": "{'descr':'<f4','fortran_order':False,'shape':(2,)}",
    "newlines": "{'descr':\n'<f4',\n'fortran_order':\tFalse,'shape':(\n2,\n)}\n\n",
}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("text", NOTATIONS.values(), ids=list(NOTATIONS))
def test_headers_of_other_writers(text: str, version: int) -> None:
    text = text.replace("(2)", "(2,)")
    data = make_npz.npy(text, np.array([1, 2], np.float32).tobytes(), version=version)
    with ztensor.open(data) as reader:
        assert reader["array"].tolist() == [1, 2]


@pytest.mark.parametrize("word", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_named_extension_types(word: str) -> None:
    array = np.arange(4).astype(getattr(ml_dtypes, word))
    with ztensor.open(make_npz.npy(make_npz.header(f"'{word}'"), array.tobytes())) as reader:
        assert reader["array"].dtype == array.dtype
        assert reader["array"].tobytes() == array.tobytes()


def test_escapes_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ztensor.open(make_npz.npy(make_npz.header(r"'\d'"), b"abcd")) as reader:
            assert reader.metadata("array").dtype == r"\d"


@pytest.mark.parametrize(("version", "encoding"), [(1, "latin-1"), (2, "latin-1"), (3, "utf-8")])
def test_the_text_of_a_header_is_of_its_version(version: int, encoding: str) -> None:
    text = make_npz.header("'\u00e9'").encode(encoding)
    with ztensor.open(make_npz.npy(text, b"abcd", version)) as reader:
        assert reader.metadata("array").dtype == "\u00e9"


def test_an_empty_archive() -> None:
    with ztensor.open(saved("stored", {})) as reader:
        assert (reader.format, reader.keys()) == ("npz", [])


def test_an_archive_written_to_a_pipe_has_its_sizes_behind_the_data() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            self.data += data
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name in "ab":
            archive.writestr(f"{name}.npy", saved_npy(np.arange(3)))
    with ztensor.open(bytes(pipe.data)) as reader:
        assert reader["b"].tolist() == [0, 1, 2]


@pytest.mark.slow  # four gigabytes of zeros
@pytest.mark.skipif(sys.platform != "linux", reason="files may have no holes here")
def test_a_member_of_more_than_4_gib(tmp_path: Path) -> None:
    count, source = (4 << 30) + 3, tmp_path / "a.safetensors"
    entries = {
        "a": {"dtype": "U8", "shape": [count], "data_offsets": [0, count]},
        "b": {"dtype": "U8", "shape": [3], "data_offsets": [count, count + 3]},
    }
    header = json.dumps(entries).encode()
    source.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(source, 8 + len(header) + count + 3)
    with source.open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        file.write(b"123")
    ztensor.convert(source, tmp_path / "a.npz", durable=False)
    for archive in (ztensor.open(tmp_path / "a.npz"), np.load(tmp_path / "a.npz")):
        with archive:
            assert archive["b"].tobytes() == b"123"
    with ztensor.open(tmp_path / "a.npz") as reader:
        assert reader["a"].shape == (count,)


def test_the_order_of_elements_has_a_cap() -> None:
    data = saved("deflated", {"a": np.zeros(1000)})
    with (
        ztensor.open(data, limits=ztensor.Limits(decoded_bytes=100)) as reader,
        refused(ztensor.LimitError, Reason.LIMIT_DECODED),
    ):
        reader.read("a")


@pytest.mark.parametrize("compression", [0, 8], ids=["stored", "deflated"])
@pytest.mark.parametrize("first", ["note.txt", "x", "folder/"], ids=["text", "array", "folder"])
def test_members_are_arrays_by_their_bytes_too(first: str, compression: int) -> None:
    """As numpy.load has it: also where another member comes first, or a name lacks the suffix."""
    npy, buffer = io.BytesIO(), io.BytesIO()
    np.save(npy, _BASE)
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr(first, npy.getvalue() if first == "x" else b"hello")
        archive.writestr("a.npy", npy.getvalue())
    buffer.seek(0)
    with np.load(buffer) as theirs, ztensor.open(buffer.getvalue()) as reader:
        arrays = {name: theirs[name] for name in theirs if isinstance(theirs[name], np.ndarray)}
        assert sorted(reader) == sorted(arrays)
        for name, array in arrays.items():
            assert np.array_equal(reader[name], array)
        assert reader.attributes == ({} if first == "x" else {"other_members": [first]})


def test_an_array_without_the_suffix_does_not_take_the_name_of_another() -> None:
    npy, buffer = io.BytesIO(), io.BytesIO()
    np.save(npy, _BASE)
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", npy.getvalue())
        archive.writestr("a.npy", npy.getvalue())
    with ztensor.open(buffer.getvalue()) as reader:
        assert (list(reader), reader.attributes) == (["a"], {"other_members": ["a"]})


# --- Writing --------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_numpy_reads_what_is_written(compression: bool) -> None:
    with ztensor.open(ztensor.numpy.save(ARRAYS, compression=compression)) as reader:
        written, lost = exported("npz", reader)
    assert lost == []
    with np.load(io.BytesIO(written)) as archive:
        assert set(archive.files) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert archive[name].dtype == array.dtype.newbyteorder("<")
            assert archive[name].shape == array.shape
            np.testing.assert_array_equal(archive[name], array)
    assert zipfile.ZipFile(io.BytesIO(written)).testzip() is None
    with ztensor.open(written) as reader:
        assert all(reader.location(name).offset % 64 == 0 for name in reader)
        assert all(
            not entry.flag_bits & 8 for entry in zipfile.ZipFile(io.BytesIO(written)).filelist
        )
    assert exercise(written).verified


BITS = {
    "bfloat16": (ml_dtypes.bfloat16, np.uint16, (3,)),
    "fp8": (ml_dtypes.float8_e4m3fn, np.uint8, (3,)),
    "fp4": (ml_dtypes.float4_e2m1fn, np.uint8, (2,)),
}


@pytest.mark.parametrize(("dtype", "bits", "shape"), BITS.values(), ids=list(BITS))
def test_other_elements_are_written_as_bits(dtype: Any, bits: Any, shape: tuple[int, ...]) -> None:
    array = np.arange(3).astype(dtype)
    with ztensor.open(ztensor.numpy.save({"a": array})) as reader:
        written, lost = exported("npz", reader)
        stored = b"".join(map(bytes, reader.decoded_chunks("a")))
    got = np.load(io.BytesIO(written))["a"]
    assert (got.dtype, got.shape) == (bits, shape)
    assert got.tobytes() == stored
    assert [name for name, _ in lost] == ["a"]


def test_losses_are_reported() -> None:
    buffer = io.BytesIO()
    with ztensor.Writer(buffer, attributes={"k": 1}) as writer:
        writer.write("s", ztensor.Tensor.csr([1.5], [2], [0, 1], (1, 3)))
        writer.write("nul\0", np.zeros(1))
        writer.write("d", np.zeros(1), attributes={"unit": "m"})
    with ztensor.open(buffer.getvalue()) as reader:
        written, lost = exported("npz", reader)
    with np.load(io.BytesIO(written)) as archive:
        assert set(archive.files) == {"s.values", "s.indices", "s.indptr", "d"}
    assert {name for name, _ in lost} == {None, "s", "nul\0", "d"}


def test_more_dimensions_than_numpy_has() -> None:
    shape = f"({'1, ' * 63}2, 2)"
    data = make_npz.npy(make_npz.header("'<i2'", shape=shape), bytes(range(8)))
    with ztensor.open(data) as reader:
        assert reader.read("array").components["data"].shape == (4,)
        written, lost = exported("npz", reader)
    assert np.load(io.BytesIO(written))["array"].tolist() == [0x100, 0x302, 0x504, 0x706]
    assert "65 dimensions" in lost[0][1]
    with ztensor.open(make_npz.npy(make_npz.header("'<i2'", "True", shape), data[-8:])) as reader:
        assert reader.read("array").components["data"].tolist() == [0x100, 0x504, 0x302, 0x706]


# --- One array ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ARRAYS))
def test_one_array_is_written_as_numpy_reads_it(name: str, tmp_path: Path) -> None:
    ztensor.numpy.save_file({name: ARRAYS[name], "other": _BASE}, tmp_path / "a.zt")
    report = ztensor.convert(tmp_path / "a.zt", tmp_path / "a.npy", exclude="other", check=True)
    assert [loss.object_name for loss in report.lost] == [name]  # its name
    found = np.load(tmp_path / "a.npy")
    expected = ARRAYS[name].astype(ARRAYS[name].dtype.newbyteorder("<"))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
    again = ztensor.convert(tmp_path / "a.npy", tmp_path / "b.npy", strict=True, check=True)
    assert again.is_lossless
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"a": _BASE, "b": _BASE},
        {"a": ztensor.Tensor.csr(np.ones(1, np.float32), [1], [0, 1, 1], (2, 4))},
    ],
    ids=["none", "two", "sparse"],
)
def test_a_file_of_one_array_holds_no_other_number(tensors: Any, tmp_path: Path) -> None:
    ztensor.numpy.save_file(tensors, tmp_path / "a.zt")
    with pytest.raises(ztensor.UsageError):
        ztensor.convert(tmp_path / "a.zt", tmp_path / "a.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["a.zt"]


def test_the_digest_of_an_archive_is_not_copied(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.ones(30))
    ztensor.convert(tmp_path / "a.npz", tmp_path / "a.zt", check=True)
    with ztensor.open(tmp_path / "a.npz") as archive, ztensor.open(tmp_path / "a.zt") as ours:
        assert str(archive.metadata("w").components["data"].digest).startswith("zip-crc32:")
        assert str(ours.metadata("w").components["data"].digest).startswith("crc32c:")
    ztensor.convert(tmp_path / "a.npz", tmp_path / "bare.zt", checksum=None)
    with ztensor.open(tmp_path / "bare.zt") as ours:
        assert ours.metadata("w").components["data"].digest is None


# --- Reading on demand ------------------------------------------------------------------------


def pt_of(count: int) -> bytes:
    body = make_pt.mapping(
        **{
            f"t{i}": make_pt.tensor((4,), (1,), of=make_pt.storage(f"{i}", "torch.ByteStorage", 4))
            for i in range(count)
        }
    )
    found: bytes = make_pt.archive(body, {f"{i}": bytes([i] * 4) for i in range(count)})
    return found


def npz_of(count: int) -> bytes:
    return saved("stored", {f"t{i}": np.full(4, i, np.uint8) for i in range(count)})


def packed_of(count: int) -> bytes:
    return saved("deflated", {f"t{i}": np.full(4, i, np.uint8) for i in range(count)})


ARCHIVES = {"npz": npz_of, "deflated": packed_of, "pt": pt_of}


@pytest.mark.parametrize("made", ARCHIVES.values(), ids=list(ARCHIVES))
def test_listing_an_archive_visits_no_member_of_an_object(made: Any) -> None:
    """A remote archive costs a request for each visit, and a local one most of its listing."""
    calls = []
    for count in (3, 40):
        file = CountedFile(made(count))
        with ztensor.open(file) as reader:
            assert list(reader) == [f"t{i}" for i in range(count)]
            calls.append(file.reads)
            before = file.reads
            assert reader["t2"].tolist() == [2] * 4
            assert file.reads - before <= 3
    assert calls[0] == calls[1]


@pytest.mark.parametrize("made", ARCHIVES.values(), ids=list(ARCHIVES))
def test_a_damaged_member_hides_no_other(made: Any) -> None:
    """It is listed; reading it raises an error that names it, and verify reports it."""
    data = bytearray(made(4))
    at = -1
    for _ in range(2 if made is not pt_of else 1):  # the second member, or the first storage
        at = data.index(b"PK\3\4", at + 1) if made is not pt_of else data.index(b"archive/data/1")
    data[at + 1] ^= 0xFF
    with ztensor.open(bytes(data)) as reader:
        assert list(reader) == ["t0", "t1", "t2", "t3"]
        for call in (reader.metadata, reader.read, reader.read_numpy, reader.location):
            with pytest.raises(ztensor.FormatError) as caught:
                call("t1")
            assert (caught.value.object_name, caught.value.reason) == ("t1", "field_value")
        assert reader["t3"].tolist() == [3] * 4
        report = reader.verify()
        assert [problem.object_name for problem in report.problems] == ["t1"]
        assert (report.outcome, report.objects) == ("damaged", 4)
        with pytest.raises(ztensor.FormatError):
            ztensor.numpy.load(bytes(data))


@pytest.mark.parametrize("more", [0, 1])
def test_the_name_of_a_member_has_16_bits_of_length(more: int) -> None:
    name = "n" * (0xFFFF - len(".npy") + more)
    with ztensor.open(ztensor.numpy.save({name: np.arange(3), "b": np.zeros(1)})) as reader:
        data, lost = exported("npz", reader)
    with ztensor.open(data) as again:
        assert sorted(again) == (["b"] if more else ["b", name])
    assert [one for one, _ in lost] == [name] * more
