from __future__ import annotations

import errno
import gc
import hashlib
import io
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ztensor
from tests.extent import examples
from tests.naming import shown
from tests.refusals import refused
from tests.tracing import traced
from ztensor import Tensor, Writer
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    LayoutError,
    NotRepresentableError,
    Reason,
    SourceError,
    UsageError,
    ZTensorError,
)
from ztensor.io.writing import blob
from ztensor.numpy import load, load_file, save, save_file
from ztensor.spec.layout import elements
from ztensor.testing.builder import draft

FOUR = np.arange(4, dtype=np.float32)


def written(fill: Callable[[Writer], object], **options: Any) -> bytes:
    target = io.BytesIO()
    with Writer(target, **options) as writer:
        fill(writer)
    return target.getvalue()


def same(found: Any, expected: Any) -> bool:
    """Same shape, element type and bytes; NaNs count by their bits."""
    expected = np.asarray(expected)
    native = expected.astype(expected.dtype.newbyteorder("="))
    return bool(
        found.shape == native.shape
        and found.dtype == native.dtype
        and found.tobytes() == native.tobytes()
    )


# --- Arrays of every kind -----------------------------------------------------------------------

BASE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
READ_ONLY = BASE.copy()
READ_ONLY.flags.writeable = False
EVERY_TYPE = [
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32",
    "uint16", "uint8", "bool", "complex64", "complex128",
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn,
]  # fmt: skip
KINDS: dict[str, Any] = {
    "plain": BASE,
    "0-d": np.array(3.5),
    "one": np.ones((1, 1, 1)),
    "empty": np.zeros((0, 3)),
    "empty inside": np.zeros((3, 0, 2), np.int8),
    "transposed": BASE.T,
    "Fortran": np.asfortranarray(BASE),
    "negative strides": BASE[::-1, ::-1, ::-1],
    "every second": BASE[:, ::2, 1::2],
    "broadcast": np.broadcast_to(np.array([1, 2, 3]), (4, 3)),
    "big-endian": BASE.astype(">i4"),
    "big-endian, transposed": BASE.astype(">c16").T,
    "read-only": READ_ONLY,
    "32 dimensions": np.arange(4).reshape((1,) * 15 + (2,) + (1,) * 15 + (2,)),
    "field of a record": np.zeros(3, [("a", "i4"), ("b", "f8")])["b"],
    "unaligned": np.frombuffer(b"\0" + BASE.tobytes(), np.uint8)[1:].view(np.int32),
    "no NumPy": [[1.5, 2], [3, 4]],
    "a number": 7,
    "a NumPy scalar": np.float16(2.5),
    "NaNs with payloads": np.array([0x7FC00001, 0xFFC0BEEF, 0x7F800001], "u4").view("f4"),
    "-0 and denormals": np.array([-0.0, 5e-324, -5e-324]),
    "fp4, odd": np.arange(7).astype(ml_dtypes.float4_e2m1fn),
    "fp4, odd rows transposed": np.arange(6).astype(ml_dtypes.float4_e2m1fn).reshape(2, 3).T,
    "fp4, 0-d": np.array(1.5).astype(ml_dtypes.float4_e2m1fn),
    **{np.dtype(t).name: np.array([0, 1, 2, 1, 0, 1]).astype(t) for t in EVERY_TYPE},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_an_array_comes_back(kind: str, compression: bool) -> None:
    array = KINDS[kind]
    assert same(load(save({"x": array}, compression=compression))["x"], array)


@pytest.mark.parametrize(
    ("version", "missing"),
    [
        ("1.1.0", {"float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"}),
        ("0.1.0", {"complex64", "complex128", "float8", "float4"}),
    ],
)
def test_older_versions_hold_what_they_have_a_word_for(version: str, missing: set[str]) -> None:
    for array in map(np.asarray, KINDS.values()):
        name = array.dtype.name
        if name in missing or name[:6] in missing:
            with pytest.raises(NotRepresentableError) as caught:
                save({"x": array}, version=version)
            assert caught.value.object_name == "x"
            assert "1.2.0" in str(caught.value)
        else:
            assert same(load(save({"x": array}, version=version))["x"], array)


@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    block=st.integers(1, 40),
    dtype=st.sampled_from([np.int8, np.int32, ">f8", ml_dtypes.float4_e2m1fn]),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=examples(150), deadline=None)
def test_blocks_of_any_length_give_the_same_bytes(
    shape: list[int], block: int, dtype: Any, order: Any
) -> None:
    """Arrays that are rearranged are stored piece by piece."""
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    axes = list(range(array.ndim))
    order.shuffle(axes)
    turned = array.transpose(axes)[tuple(slice(None, None, order.choice([1, -1])) for _ in axes)]
    whole = save({"x": np.ascontiguousarray(turned)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elements, "BLOCK_BYTES", block)
        patch.setattr(blob, "WRITE_BYTES", max(1, block // 2))
        assert save({"x": turned}) == whole


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (np.array([object()]), "numeric type"),
        (np.array(["text"]), "as an attribute"),
        (np.array([b"text"]), "as an attribute"),
        (np.array("2026-01-01", "M8[D]"), "view('int64')"),
        (np.zeros(2, [("a", "i4"), ("b", "f4")]), "each field"),
        (np.ma.array([1, 2], mask=[False, True]), "filled()"),
        (np.array([1, 2]).astype(ml_dtypes.int4), "astype"),
        (2**70, "numeric type"),
    ],
    ids=["object", "text", "bytes", "date", "record", "masked", "int4", "huge number"],
)
def test_what_cannot_be_stored_says_what_would_work(value: Any, advice: str) -> None:
    with pytest.raises(NotRepresentableError) as caught:
        save({"fine": FOUR, "x": value})
    assert caught.value.object_name == "x"
    assert advice in str(caught.value)


@pytest.mark.parametrize("value", ["text", b"bytes", None, object(), {1, 2}, [[1], [2, 3]]])
def test_what_is_no_array(value: Any) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        save({"x": value})
    assert caught.value.object_name == "x"


def test_after_a_refusal_the_writer_goes_on() -> None:
    def fill(writer: Writer) -> None:
        writer.write("a", FOUR)
        for bad in ({"data": "text"}, np.array(["x"]), Tensor(FOUR, shape=(5,))):
            with pytest.raises(ZTensorError):
                writer.write("b", bad)
        with pytest.raises(ArgumentValueError):
            writer.write("b", FOUR, compress="brotli")
        with pytest.raises(ArgumentValueError):
            writer.write("b", FOUR, checksum="md5")
        writer.write("b", FOUR)

    assert written(fill) == save({"a": FOUR, "b": FOUR.copy()})


# --- Memory -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ones((4096, 4096), np.float32).T,
        lambda: np.ones((3, 5_592_405), np.float32, order="F"),
        lambda: np.ones(16 << 20, ">f4"),
        lambda: np.broadcast_to(np.float32(1), (4096, 4096)),
    ],
    ids=["transposed", "three long rows", "big-endian", "broadcast"],
)
@pytest.mark.parametrize("compression", [False, 1], ids=["raw", "zstd"])
def test_no_second_array_is_made(
    tmp_path: Path, make: Callable[[], Any], compression: bool | int
) -> None:
    array = make()
    with traced() as memory:
        save_file({"x": array}, tmp_path / "m.zt", compression=compression)
        _, peak = memory()
    assert peak < 0.5 * array.nbytes
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert reader["x"].shape == array.shape
        assert reader["x"].min() == reader["x"].max() == 1
        assert reader.verify().ok


# --- Names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", "a\0b", "../../etc/passwd", "\n\x1b[31m", "e\u0301", "é", "\U0001f600", "x" * 70_000],
    ids=lambda name: ascii(name[:20]),
)
@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_any_text_is_a_name(name: str, version: str) -> None:
    assert list(load(save({name: FOUR}, version=version))) == [name]


def test_composed_and_decomposed_names_are_two() -> None:
    assert len(load(save({"e\u0301": FOUR, "é": FOUR}))) == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("\ud800", NotRepresentableError),
        ("a\udcffb", NotRepresentableError),
        (b"w", ArgumentTypeError),
        (5, ArgumentTypeError),
        (None, ArgumentTypeError),
        (("a",), ArgumentTypeError),
        ([], ArgumentTypeError),
    ],
    ids=ascii,
)
def test_what_is_no_name(name: Any, kind: type[Exception]) -> None:
    def fill(writer: Writer) -> None:
        with pytest.raises(kind):
            writer.write(name, FOUR)
        with pytest.raises(kind):
            writer.stream(name, (4,), "f32")

    assert load(written(fill)) == {}


def test_a_name_is_written_once() -> None:
    def fill(writer: Writer) -> None:
        writer.write("w", FOUR)
        for again in (
            lambda: writer.write("w", FOUR),
            lambda: writer.stream("w", (1,), "f32"),
            lambda: writer.share("w", "w"),
        ):
            with refused(UsageError, Reason.DUPLICATE_WRITE):
                again()

    assert list(load(written(fill))) == ["w"]


# --- Options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compression", "encoding"),
    [
        (False, "raw"), (None, "raw"), ("none", "raw"), (0, "raw"),
        (True, "zstd"), ("zstd", "zstd"), (1, "zstd"), (19, "zstd"), (-5, "zstd"),
    ],
)  # fmt: skip
def test_compression(compression: Any, encoding: str) -> None:
    data = np.zeros(10_000)
    for saved in (
        save({"x": data}, compression=compression),
        written(lambda writer: writer.write("x", data, compress=compression or False)),
    ):
        with ztensor.open(saved) as reader:
            component = reader.metadata("x").components["data"]
            assert component.encoding == encoding
            assert component.uncompressed_length == (80_000 if encoding == "zstd" else None)
            assert (component.length < 1000) is (encoding == "zstd")


@pytest.mark.parametrize(
    ("checksum", "start"),
    [("crc32c", "crc32c:0x"), (True, "crc32c:0x"), ("sha256", "sha256:"), (None, ""), (False, "")],
)
def test_checksums_cover_the_stored_bytes(checksum: Any, start: str) -> None:
    for compression in (False, True):
        saved = save({"x": FOUR}, checksum=checksum, compression=compression)
        with ztensor.open(saved) as reader:
            component = reader.metadata("x").components["data"]
            assert (component.digest or "").startswith(start)
            assert (component.digest is None) is (start == "")
            if start == "sha256:":
                stored = saved[component.offset : component.offset + component.length]
                assert component.digest == start + hashlib.sha256(stored).hexdigest()


def test_an_object_may_differ_from_the_writers_options() -> None:
    some = np.zeros(99)

    def fill(writer: Writer) -> None:
        writer.write("as asked", some)
        writer.write("raw", some, compress=False)
        writer.write("bare", some, checksum=False)
        writer.add("added", some, False, "sha256")
        writer.write("sha", some, checksum="sha256")

    with ztensor.open(written(fill, compression=True)) as reader:
        found = {
            name: (part.encoding, (part.digest or "-").split(":")[0])
            for name, part in ((n, reader.metadata(n).components["data"]) for n in reader)
        }
    assert found == {
        "as asked": ("zstd", "crc32c"),
        "raw": ("raw", "crc32c"),
        "bare": ("zstd", "-"),
        "added": ("raw", "sha256"),
        "sha": ("zstd", "sha256"),
    }


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"version": "2.0.0"}, ArgumentValueError),
        ({"version": 1.2}, ArgumentValueError),
        ({"version": []}, ArgumentValueError),
        ({"compression": 23}, ArgumentValueError),
        ({"compression": "gzip"}, ArgumentValueError),
        ({"compression": 2.5}, ArgumentTypeError),
        ({"checksum": "xxh3"}, ArgumentValueError),
        ({"durable": "yes"}, ArgumentValueError),
        ({"attributes": 5}, ArgumentTypeError),
        ({"attributes": ["a"]}, ArgumentTypeError),
        ({"attributes": {1: "a"}}, NotRepresentableError),
        ({"attributes": {"a": object()}}, NotRepresentableError),
        ({"attributes": {"a": 1}, "version": "1.1.0"}, NotRepresentableError),
        ({"attributes": {"a": "b"}, "version": "0.1.0"}, NotRepresentableError),
    ],
    ids=shown,
)
def test_options_that_cannot_be(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception]
) -> None:
    target = tmp_path / "m.zt"
    target.write_bytes(b"old")
    with pytest.raises(kind):
        Writer(target, **options)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"m.zt": b"old"}


@pytest.mark.parametrize(
    "attributes", [5, ["a"], {1: "a"}, {"a": object()}, {"a": "\ud800"}, {"a": 2**64}], ids=shown
)
@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_attributes_of_an_object_that_cannot_be(attributes: Any, version: str) -> None:
    def fill(writer: Writer) -> None:
        with pytest.raises((ArgumentTypeError, NotRepresentableError)) as caught:
            writer.write("w", FOUR, attributes=attributes)
        assert caught.value.object_name == "w"
        with pytest.raises((ArgumentTypeError, NotRepresentableError)):
            writer.stream("w", (4,), "f32", attributes=attributes)

    assert load(written(fill, version=version)) == {}


def test_the_caller_may_change_everything_afterwards() -> None:
    inner: list[Any] = [1]
    data = FOUR.copy()
    attributes: dict[str, Any] = {"a": inner}

    def fill(writer: Writer) -> None:
        writer.write("w", data, attributes=attributes)
        data[:] = 9
        with writer.stream("s", (1,), "f32", attributes=attributes) as sink:
            inner.append(object())  # which could not be stored
            attributes["b"] = 2
            sink.write(np.zeros(1, np.float32))

    with ztensor.open(written(fill, attributes=dict(attributes))) as reader:
        assert reader["w"].tolist() == [0, 1, 2, 3]
        assert reader.attributes == {"a": [1]}
        assert [reader.metadata(name).attributes for name in reader] == [{"a": [1]}] * 2


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_large_data_may_be_changed_too(compression: bool) -> None:
    """Hashing and compressing on other threads must not look at it later."""
    data = np.arange(3_000_000)

    def fill(writer: Writer) -> None:
        writer.write("w", data)
        data[:] = 9
        with writer.stream("s", data.shape, data.dtype) as sink:
            sink.write(data)
            data[:] = 8

    with ztensor.open(written(fill, compression=compression, threads=4)) as reader:
        assert reader.verify().ok
        assert reader["w"][2_999_999] == 2_999_999
        assert reader["s"].max() == 9


@pytest.mark.slow
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_the_number_of_threads_does_not_matter(
    compression: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = np.random.default_rng(0).normal(size=(1500, 1000))
    given = {"plain": data, "turned": data.T, "swapped": data.astype(">f8"), "small": FOUR}
    saved = set()
    for threads in ("1", "2", "4"):
        monkeypatch.setenv("ZTENSOR_NUM_THREADS", threads)
        saved.add(save(given, compression=compression))
    assert len(saved) == 1
    assert same(load(saved.pop())["turned"], data.T)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_a_number_of_threads_that_cannot_be(threads: Any) -> None:
    with pytest.raises(ArgumentValueError):
        Writer(io.BytesIO(), threads=threads)


def test_a_tensors_own_attributes_are_written_unless_others_are_given() -> None:
    tensor = Tensor(FOUR, attributes={"own": 1})

    def fill(writer: Writer) -> None:
        writer.write("a", tensor)
        writer.write("b", tensor, attributes={"other": 2})
        writer.write("c", tensor, attributes={})

    with ztensor.open(written(fill)) as reader:
        assert [dict(reader.metadata(name).attributes) for name in "abc"] == [
            {"own": 1},
            {"other": 2},
            {},
        ]


# --- Sparse and shared --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.uint64, ">i4"])
def test_indices_are_written_as_u64(dtype: Any) -> None:
    """1.2 section 3 orders it."""
    arrays = {
        "values": np.ones(2),
        "indices": np.array([0, 2], dtype),
        "indptr": np.array([0, 1, 2], dtype),
    }
    saved = save({"s": Tensor(arrays, shape=(2, 3), format="sparse_csr")})
    with ztensor.open(saved) as reader:
        parts = reader.metadata("s").components
        assert parts["indices"].dtype == parts["indptr"].dtype == "uint64"
        assert reader.read("s").to_dense().tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("indices", "reason"),
    [
        ([0.0, 2.0], Reason.INDEX_DTYPE),
        ([0.5, 2.0], Reason.INDEX_DTYPE),
        ([False, True], Reason.INDEX_DTYPE),
        ([0, -1], Reason.INDEX_RANGE),
        ([0, 3], Reason.INDEX_RANGE),
    ],
)
def test_what_is_no_index_is_not_rounded_to_one(indices: Any, reason: Reason) -> None:
    arrays = {"values": np.ones(2), "indices": np.array(indices), "indptr": np.array([0, 1, 2])}
    with pytest.raises(LayoutError) as caught:
        save({"s": Tensor(arrays, shape=(2, 3), format="sparse_csr")})
    assert (caught.value.reason, caught.value.component) == (reason, "indices")


def test_shared_bytes_are_stored_once() -> None:
    def fill(writer: Writer) -> None:
        writer.write("a", FOUR)
        writer.share("b", "a")
        writer.share("c", "b")
        assert writer.shared == {"b": "a", "c": "a"}
        with pytest.raises(UsageError):
            writer.share("d", "no such")

    with ztensor.open(written(fill)) as reader:
        assert len({reader.location(name) for name in "abc"}) == 1
        assert reader["c"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_copies_are_as_stored_and_checked(compression: bool) -> None:
    source = save({"w": FOUR, "v": FOUR[::-1]}, compression=compression)
    with ztensor.open(source) as reader:
        offset = reader.location("w").offset

        def fill(writer: Writer) -> None:
            for name in reader:
                writer.copy(name, reader)

        assert written(fill) == source
    damaged = bytearray(source)
    damaged[offset] ^= 1
    with ztensor.open(damaged) as reader, pytest.raises(ztensor.DigestMismatchError) as caught:
        written(lambda writer: writer.copy("w", reader))
    assert caught.value.object_name == "w"


def test_copies_of_what_the_version_spells_otherwise_are_decoded() -> None:
    made = draft("0.1.0")
    made.component("matrix")["data_endianness"] = "big"
    made.blobs["flags", "data"] = b"\x00\x01\x02\xff"
    with ztensor.open(made.to_bytes()) as reader:

        def fill(writer: Writer) -> None:
            for name in reader:
                writer.copy(f"new {name}", reader, name)

        copied = written(fill)
        expected = {f"new {name}": reader[name].tolist() for name in reader}
    with ztensor.open(copied) as reader:
        assert {name: reader[name].tolist() for name in reader} == expected
        assert expected["new flags"] == [False, True, True, True]
        assert expected["new matrix"][0][0] == 1 << 24
        assert reader.verify().ok


# --- The same tensors, the same bytes -----------------------------------------------------------


@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_the_order_of_a_dict_does_not_matter(version: str) -> None:
    names = ["b", "a", "\U0001f600", "\uffff", "", "é"]
    forward = {name: FOUR + index for index, name in enumerate(names)}
    backward = dict(reversed(forward.items()))
    assert save(forward, version=version) == save(backward, version=version)


PROGRAM = """
import hashlib, sys
import numpy as np
from ztensor import Tensor
from ztensor.numpy import save
tensors = {name: np.arange(9.0) for name in {"a", "b", "c", "d"}}
tensors["s"] = Tensor.csr([1.0], [0], [0, 1], (1, 3), attributes={"k": 1, "j": [2]})
print(hashlib.sha256(save(tensors, {"x": "y", "b": 1}, compression=True)).hexdigest())
"""


@pytest.mark.slow
def test_the_seed_of_hashes_does_not_matter() -> None:
    seeds = ("0", "1", "424242")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
        )
        for seed in seeds
    ]
    answers = {process.communicate()[0] for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(answers) == 1


# --- Streams ------------------------------------------------------------------------------------


def chunks_of(data: Any, sizes: Iterator[int]) -> Iterator[Any]:
    start = 0
    while start < data.size:
        size = next(sizes)
        yield data.reshape(-1)[start : start + size]
        start += size


@given(
    count=st.integers(0, 300),
    sizes=st.lists(st.integers(0, 90), min_size=1, max_size=9).filter(any),
    dtype=st.sampled_from(["f32", "int8", ml_dtypes.bfloat16, ml_dtypes.float4_e2m1fn]),
    compression=st.booleans(),
)
@settings(max_examples=examples(150), deadline=None)
def test_pieces_of_any_size_give_the_file_of_write(
    count: int, sizes: list[int], dtype: Any, compression: bool
) -> None:
    array = (np.arange(count) % 7).astype("f4" if isinstance(dtype, str) else dtype)
    if dtype == "int8":
        array = array.astype(np.int8)
    if dtype is ml_dtypes.float4_e2m1fn:
        sizes = [size * 2 for size in sizes]

    def fill(writer: Writer) -> None:
        with writer.stream("x", (count,), dtype) as sink:
            for piece in chunks_of(array, itertools.cycle(sizes)):
                sink.write(piece)

    how: dict[str, Any] = {"compression": compression, "chunk_rows": 16}  # several frames
    assert written(fill, **how) == save({"x": array}, **how)


@pytest.mark.parametrize(
    "dtype", ["f32", "float32", "f4", np.float32, np.dtype("<f4"), ">f4"], ids=str
)
def test_an_element_type_may_be_named_in_any_way(dtype: Any) -> None:
    def fill(writer: Writer) -> None:
        sink = writer.stream("x", [2, 2], dtype)
        assert (sink.name, sink.shape, sink.dtype) == ("x", (2, 2), np.dtype("f4"))
        sink.write(FOUR.reshape(2, 2)[:1])
        sink.write(FOUR.astype(">f4")[2:].reshape(1, 2))  # of whatever byte order
        sink.close()

    assert written(fill) == save({"x": FOUR.reshape(2, 2)})


@pytest.mark.parametrize(
    ("dtype", "storage", "logical"),
    [
        ("complex64", "float32", "complex64"),
        ("f8_e5m2", "uint8", "f8_e5m2"),
        ("bf16", "bfloat16", None),
    ],
)
def test_streams_of_other_types(dtype: str, storage: str, logical: str | None) -> None:
    def fill(writer: Writer) -> None:
        with writer.stream("x", (0, 7), dtype):
            pass

    with ztensor.open(written(fill)) as reader:
        found = reader.metadata("x")
        assert (found.shape, found.dtype, found.type) == ((0, 7), storage, logical)


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        (np.zeros(5, np.float32), ArgumentValueError),
        (np.zeros(2), ArgumentTypeError),
        (np.zeros(2, np.int32), ArgumentTypeError),
        (["a"], ArgumentTypeError),
        (None, ArgumentTypeError),
    ],
    ids=["too many", "double", "integers", "text", "nothing"],
)
def test_a_piece_that_does_not_fit_changes_nothing(piece: Any, kind: type[Exception]) -> None:
    def fill(writer: Writer) -> None:
        with writer.stream("x", (4,), "f32") as sink:
            with pytest.raises(kind) as caught:
                sink.write(piece)
            assert isinstance(caught.value, ZTensorError)
            sink.write(FOUR)
            with pytest.raises(ArgumentValueError):
                sink.write(FOUR[:1])

    assert written(fill) == save({"x": FOUR})


GRID = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


@pytest.mark.parametrize(
    "pieces",
    [
        [GRID],
        [GRID[:1], GRID[1:]],
        [GRID[0], GRID[1:3], GRID[3]],  # one row has one dimension less
        [GRID[:0], GRID],
        [np.asfortranarray(GRID[:2]), GRID[2:]],
    ],
    ids=["whole", "rows", "single rows", "none", "other memory order"],
)
def test_pieces_are_runs_of_rows(pieces: list[Any]) -> None:
    def fill(writer: Writer) -> None:
        with writer.stream("x", GRID.shape, "f32") as sink:
            for piece in pieces:
                sink.write(piece)

    assert written(fill) == save({"x": GRID})


@pytest.mark.parametrize(
    "shape",
    [(2, 2, 3), (6, 2), (12,), (2, 6), (1, 2, 3, 2), (2, 3), (), (0,), (4, 3, 1)],
    ids=str,
)
def test_a_piece_that_would_scramble_rows_is_refused(shape: tuple[int, ...]) -> None:
    def fill(writer: Writer) -> None:
        with writer.stream("x", GRID.shape, "f32") as sink:
            with pytest.raises(ArgumentValueError):
                sink.write(np.zeros(shape, np.float32))
            sink.write(GRID)

    assert written(fill) == save({"x": GRID})


def test_flat_pieces_are_asked_for_and_end_at_a_row_before_rows_come() -> None:
    def fill(writer: Writer) -> None:
        with writer.stream("x", GRID.shape, "f32") as sink:
            sink.write(GRID.reshape(-1)[:7], flat=True)
            with pytest.raises(ArgumentValueError):
                sink.write(GRID[1:])
            sink.write(GRID.reshape(-1)[7:12].reshape(5, 1), flat=True)
            sink.write(GRID[2:])

    assert written(fill) == save({"x": GRID})


def test_a_scalar_is_its_one_row() -> None:
    def fill(writer: Writer) -> None:
        with writer.stream("x", (), "f32") as sink:
            sink.write(np.float32(3))

    assert written(fill) == save({"x": np.array(3, np.float32)})


def test_packed_elements_come_in_whole_bytes() -> None:
    def fill(writer: Writer) -> None:
        with writer.stream("x", (5,), "f4_e2m1") as sink:
            piece = np.zeros(5).astype(ml_dtypes.float4_e2m1fn)
            with pytest.raises(ArgumentValueError):
                sink.write(piece[:3])
            sink.write(piece[:2])
            sink.write(piece[2:])

    assert len(load(written(fill))["x"]) == 5


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ((-1,), "f32", ArgumentValueError),
        (("a",), "f32", ArgumentTypeError),
        ((1.5,), "f32", ArgumentTypeError),
        (5, "f32", ArgumentTypeError),
        ((2**64,), "f32", NotRepresentableError),
        ((1,), "no such", ArgumentValueError),
        ((1,), object, NotRepresentableError),
        ((1,), "int4", NotRepresentableError),
    ],
    ids=str,
)
def test_a_stream_that_cannot_be(shape: Any, dtype: Any, kind: type[Exception]) -> None:
    def fill(writer: Writer) -> None:
        with pytest.raises(kind):
            writer.stream("x", shape, dtype)
        writer.write("x", FOUR)

    assert list(load(written(fill))) == ["x"]


def test_one_thing_at_a_time() -> None:
    def fill(writer: Writer) -> None:
        sink = writer.stream("x", (4,), "f32")
        for other in (
            lambda: writer.write("y", FOUR),
            lambda: writer.stream("y", (1,), "f32"),
            lambda: writer.share("y", "x"),
            writer.finish,
            sink.close,  # elements are missing
        ):
            with pytest.raises(UsageError):
                other()
        sink.write(FOUR)
        sink.close()
        for closed in (sink.close, lambda: sink.write(FOUR[:0])):
            with pytest.raises(ClosedError):
                closed()
        writer.write("y", FOUR)

    assert written(fill) == save({"x": FOUR, "y": FOUR.copy()})


def test_a_stream_cut_short_never_makes_a_file(tmp_path: Path) -> None:
    def cut_short(writer: Writer) -> None:
        with writer.stream("x", (4,), "f32") as sink:
            sink.write(FOUR[:3])

    def left_open(writer: Writer) -> None:
        writer.stream("x", (4,), "f32")

    def interrupted(writer: Writer) -> None:
        with writer.stream("x", (4,), "f32"):
            raise ZeroDivisionError

    for fill, error in (
        (cut_short, UsageError),
        (left_open, UsageError),
        (interrupted, ZeroDivisionError),
    ):
        with pytest.raises(error), Writer(tmp_path / "m.zt") as writer:
            fill(writer)
    assert os.listdir(tmp_path) == []


# --- Whole or not at all ------------------------------------------------------------------------


def tensors(seed: int) -> dict[str, Any]:
    """Large enough for gathered and for direct writes."""
    random = np.random.default_rng(seed)
    return {"big": random.normal(size=200_000), "small": random.normal(size=3), "none": np.zeros(0)}


@pytest.fixture(params=["nameless", "named"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    save_file(tensors(0), tmp_path / "m.zt")
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_an_exception_leaves_the_old_file(
    folder: Path, error: type[BaseException], moment: str
) -> None:
    def fill(writer: Writer) -> None:
        for name, array in tensors(1).items():
            if moment == "before":
                raise error
            writer.write(name, array)
            if moment == "between":
                raise error
        raise error

    before = files(folder)
    with pytest.raises(error), Writer(folder / "m.zt") as writer:
        fill(writer)
    assert files(folder) == before
    assert "aborted" in repr(writer)


@pytest.mark.parametrize("call", ["write", "link", "replace", "fsync"])
def test_before_the_rename_the_old_file_is_intact(
    folder: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(folder)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, call, fail)
    if call == "link" and not hasattr(os, "O_TMPFILE"):
        pytest.skip("a temporary with a name needs no link")
    with pytest.raises(SourceError):
        save_file(tensors(1), folder / "m.zt")
    monkeypatch.undo()
    assert files(folder) == before


def test_a_failed_write_aborts_the_writer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(folder)
    writer = Writer(folder / "m.zt")

    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(SourceError):
            writer.write("w", np.zeros(100_000))
    for use in (lambda: writer.write("v", FOUR), writer.finish):
        with pytest.raises(ClosedError):
            use()
    assert files(folder) == before


def test_a_failed_end_of_a_stream_aborts_the_writer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(folder)
    writer = Writer(folder / "m.zt", compression=True)
    sink = writer.stream("w", (100_000,), "f64", chunk_rows=10**6)  # compressed at its end
    sink.write(np.random.default_rng(0).normal(size=100_000))

    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(SourceError):
            sink.close()
    with pytest.raises(ClosedError):
        writer.finish()
    assert files(folder) == before


@pytest.mark.slow
def test_a_writer_nobody_finished_leaves_nothing(folder: Path) -> None:
    before = files(folder)
    writer = Writer(folder / "m.zt")
    writer.write("w", np.zeros(100_000))
    del writer
    gc.collect()
    assert files(folder) == before


def test_the_states_of_a_writer(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "m.zt")
    assert "open" in repr(writer)
    writer.write("w", FOUR)
    length = writer.finish()
    assert length == (tmp_path / "m.zt").stat().st_size
    writer.abort()  # too late, and without effect
    assert (tmp_path / "m.zt").stat().st_size == length
    for use in (
        writer.finish,
        lambda: writer.write("v", FOUR),
        lambda: writer.stream("v", (1,), "f32"),
        writer.__enter__,
    ):
        with refused(ClosedError, Reason.CLOSED):
            use()
    with Writer(tmp_path / "n.zt") as writer:
        writer.abort()
        writer.abort()
    assert os.listdir(tmp_path) == ["m.zt"]


def test_finishing_inside_the_block_is_fine(tmp_path: Path) -> None:
    with Writer(tmp_path / "m.zt") as writer:
        writer.write("w", FOUR)
        writer.finish()
    assert load_file(tmp_path / "m.zt")["w"].tolist() == [0, 1, 2, 3]


def test_saving_onto_the_file_the_arrays_are_mapped_from(folder: Path) -> None:
    if os.name == "nt":
        pytest.skip("Windows replaces no mapped file")
    mapped = load_file(folder / "m.zt")
    mapped["small"][0] = 42
    save_file({**mapped, "more": mapped["big"][::-1]}, folder / "m.zt")
    again = load_file(folder / "m.zt")
    assert same(again["big"], tensors(0)["big"])
    assert same(again["more"], tensors(0)["big"][::-1])
    assert again["small"].tolist() == [42, *tensors(0)["small"][1:]]
    assert same(mapped["big"], tensors(0)["big"])  # still the old file's
    save_file(again, folder / "m.zt")
    assert list(files(folder)) == ["m.zt"]


# --- Other targets ------------------------------------------------------------------------------


def test_a_pipe_gets_the_same_bytes() -> None:
    reading, writing = os.pipe()
    received = bytearray()

    def drain() -> None:
        with os.fdopen(reading, "rb") as pipe:
            received.extend(pipe.read())

    thread = threading.Thread(target=drain)
    thread.start()
    with os.fdopen(writing, "wb") as pipe, Writer(pipe) as writer:
        for name, array in sorted(tensors(1).items()):
            writer.write(name, array)
    thread.join()
    assert received == save(tensors(1))


def test_an_abort_into_a_file_object_makes_no_file() -> None:
    def fill(writer: Writer) -> None:
        writer.write("w", np.zeros(100_000))
        raise ZeroDivisionError

    target = io.BytesIO()
    with pytest.raises(ZeroDivisionError), Writer(target) as writer:
        fill(writer)
    assert len(target.getvalue()) > 800_000
    with pytest.raises(ztensor.FormatError):
        ztensor.open(target.getvalue())


@pytest.mark.parametrize("convert", [str, os.fsencode, Path], ids=["str", "bytes", "Path"])
def test_paths_of_every_kind(tmp_path: Path, convert: Callable[[Path], Any]) -> None:
    with Writer(convert(tmp_path / "m.zt")) as writer:
        writer.write("w", FOUR)
    assert list(load_file(tmp_path / "m.zt")) == ["w"]


@pytest.mark.parametrize("target", [5, None, object()])
def test_what_is_no_target(target: Any) -> None:
    with pytest.raises(ArgumentTypeError):
        Writer(target)


@pytest.mark.parametrize("name", ["f8_e4m3fn", "a type of nobody"])
def test_a_logical_type_is_that_of_the_main_component_alone(name: str) -> None:
    parts = {
        "values": np.array([1, 2], np.uint8),
        "indices": np.array([3, 0], np.uint64),
        "indptr": np.array([0, 1, 2], np.uint64),
    }
    tensor = Tensor(parts, shape=(2, 4), format="sparse_csr", type=name)
    with ztensor.open(save({"m": tensor})) as reader:
        types = {role: part.type for role, part in reader.metadata("m").components.items()}
    assert types == {"values": name, "indices": None, "indptr": None}


SHAPES = {
    "65 dimensions": (1,) * 65,
    "300 dimensions": (1,) * 300,
    "2^62": (0, 1 << 62),
    "2^63": (1 << 63, 0),
    "2^64 - 1": (0, (1 << 64) - 1),
    "2^124": (0, 1 << 62, 1 << 62),
    "2^64": (0, 1 << 64),
}


@pytest.mark.parametrize("type_name", [None, "complex64", "f8_e4m3fn", "x.odd"])
@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0", "2.1"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_that_numpy_has_not_is_written_or_a_wrong_argument(
    shape: str, version: str, type_name: str | None
) -> None:
    dimensions = SHAPES[shape]
    count = 0 if 0 in dimensions else 1
    elements = {None: "f4", "complex64": "f4"}.get(type_name, "u1")
    stored = np.zeros(2 * count if type_name == "complex64" else count, elements)
    tensor = ztensor.Tensor(stored, shape=dimensions, type=type_name)
    try:
        data = save({"a": tensor}, version=version)
    except ztensor.errors.NotRepresentableError:
        assert version == "2.1" or shape == "2^64" or type_name is not None
        return
    assert shape != "2^64"
    with ztensor.open(data) as reader:
        assert reader.metadata("a").shape == dimensions
        assert not reader.verify(deep=True).problems


@pytest.mark.wing
@pytest.mark.parametrize("suffix", ["npz", "npy", "safetensors", "gguf", "h5"])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "2^64"])
def test_what_is_exported_of_such_a_shape_can_be_read(
    shape: str, suffix: str, tmp_path: Path
) -> None:
    if suffix == "h5":
        pytest.importorskip("h5py")
    dimensions = SHAPES[shape]
    tensor = ztensor.Tensor(np.zeros(0 if 0 in dimensions else 1, "f4"), shape=dimensions)
    data, target = save({"a": tensor}), tmp_path / f"new.{suffix}"
    try:
        report = ztensor.convert(data, target, check=True)
    except ztensor.errors.NotRepresentableError:
        assert suffix == "gguf"
        return
    with ztensor.open(target) as reader:
        shapes = [reader.metadata(name).shape for name in reader]
    assert shapes == [dimensions] or not report.is_lossless
