"""Files with planes: the same tensors in every way of reading, copying and comparing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ztensor
import ztensor.numpy as znumpy
from tests.planes import slow
from tests.refusals import refused
from ztensor.errors import (
    ArgumentValueError,
    EncodingError,
    FormatError,
    Reason,
    UnsupportedError,
)
from ztensor.testing.builder import draft

PLANES = "pyztensor.planes/1"
VERSIONS = ["1.2.0", "2.1"]
CHANCE = np.random.default_rng(11)


def weights(shape: tuple[int, ...], dtype: Any = ml_dtypes.bfloat16) -> Any:
    return CHANCE.normal(0, 0.02, shape).astype("f4").astype(dtype)


TENSORS: dict[str, Any] = {
    "matrix": weights((600, 512)),
    "float32": weights((70, 2000), "f4"),
    "float16": weights((64, 64), "f2"),
    "double": weights((3, 50_000), "f8"),
    "vector": weights((140_000,)),
    "long rows": weights((2, 3, 140_000)),
    "counts": np.arange(70_000).reshape(7, 10_000),
    "complex": weights((100, 100, 2), "f4").view("c8")[..., 0],
    "fp8": weights((100, 100), "f4").astype(ml_dtypes.float8_e4m3fn),
    "zeros": np.zeros((300, 1000), "f4"),
    "flags": np.arange(100_000) % 977 == 0,
    "noise": CHANCE.integers(0, 256, (100, 100), "u1"),
    "scalar": np.float32(3),
    "empty": np.zeros((0, 5), "f4"),
}
RAW = {"noise", "scalar", "empty"}  # planes save less than 3 % of these


@pytest.fixture(scope="module", params=VERSIONS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planes") / f"{request.param}.zt"
    znumpy.save_file(TENSORS, path, compression="planes", version=request.param)
    return path


def is_same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def encodings(path: Path) -> dict[str, str]:
    with ztensor.open(path) as reader:
        assert {reader.metadata(name).format for name in reader} == {"dense"}
        return {name: reader.metadata(name).components["data"].encoding for name in reader}


# --- Reading ----------------------------------------------------------------------------------


def test_tensors_come_back_dense_and_smaller(path: Path) -> None:
    found = znumpy.load_file(path)
    assert all(is_same(found[name], array) for name, array in TENSORS.items())
    assert encodings(path) == {name: "raw" if name in RAW else PLANES for name in TENSORS}
    with ztensor.open(path) as reader:
        assert reader.verify().ok
        part = reader.metadata("matrix").components["data"]
        assert part.length < 0.67 * TENSORS["matrix"].nbytes
        assert part.uncompressed_length == TENSORS["matrix"].nbytes


def test_without_a_map_and_with_all_digests(path: Path) -> None:
    for reader in (ztensor.open(path.read_bytes(), verify=True), ztensor.open(path, mmap=False)):
        with reader:
            assert all(is_same(reader[name], array) for name, array in TENSORS.items())


@given(st.data())
@settings(max_examples=40)
def test_slices_are_those_of_the_whole(path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in TENSORS if name not in ("scalar", "empty")]))
    array = TENSORS[name]
    first = data.draw(st.integers(0, len(array) - 1))
    last = data.draw(st.integers(first + 1, len(array)))
    step = data.draw(st.sampled_from([1, 1, 2, 7]))
    key: tuple[slice, ...] = (slice(first, last, step),)
    if array.ndim > 1 and data.draw(st.booleans()):
        key += (slice(data.draw(st.integers(0, array.shape[1] - 1)), None),)
    with ztensor.open(path) as reader:
        assert is_same(reader.get_slice(name)[key], array[key])
        assert is_same(reader.get_slice(name)[key[0]], array[key[0]])


def test_threads_change_nothing(tmp_path: Path) -> None:
    big = {"w": weights((3000, 1024)), "v": weights((1100, 1024), "f4")}
    files = []
    for threads in (1, 3):
        path = tmp_path / f"{threads}.zt"
        with ztensor.Writer(path, compression="planes", threads=threads) as writer:
            for name, array in big.items():
                writer.write(name, array)
        files.append(path.read_bytes())
        found = znumpy.load_file(path, threads=threads)
        assert all(is_same(found[name], array) for name, array in big.items())
    assert files[0] == files[1]


def test_damage_is_found(path: Path, tmp_path: Path) -> None:
    with ztensor.open(path) as reader:
        part = reader.metadata("matrix").components["data"]
    data = bytearray(path.read_bytes())
    data[part.offset + 5000] ^= 1
    with ztensor.open(bytes(data)) as reader:
        assert not reader.verify().ok
        with pytest.raises(FormatError):
            reader["matrix"]
        assert is_same(reader["float32"], TENSORS["float32"])


# --- Writing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.1", "1.1"])
def test_versions_without_planes_refuse_them(tmp_path: Path, version: str) -> None:
    with pytest.raises(ArgumentValueError, match=r"version 1\.2 or 2\.1"):
        znumpy.save_file(TENSORS, tmp_path / "x.zt", compression="planes", version=version)


def test_the_canonical_form_refuses_them(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError):
        znumpy.save_file(
            TENSORS, tmp_path / "x.zt", compression="planes", version="2.1", canonical=True
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_and_pieces_of_any_length(tmp_path: Path, version: str) -> None:
    array = weights((3000, 1024))
    path = tmp_path / "x.zt"
    with ztensor.Writer(path, compression="planes", version=version) as writer:
        with writer.stream("w", array.shape, "bfloat16") as sink:
            for start, stop in ((0, 1), (1, 800), (800, 2999), (2999, 3000)):
                sink.write(array[start:stop])
        writer.write("w again", array)
    with ztensor.open(path) as reader:
        assert is_same(reader["w"], array)
        one, other = (reader.metadata(name).components["data"] for name in ("w", "w again"))
        assert (one.length, one.digest) == (other.length, other.digest)


def test_rows_of_a_block(tmp_path: Path) -> None:
    """`chunk_rows` decides how much is decoded for a row, from 4,096 to 2^22 elements."""
    array = weights((600, 512))
    for rows, stored_rows in ((1, 8), (9, 9), (600, 600)):
        with ztensor.Writer(tmp_path / "x.zt", compression="planes") as writer:
            writer.write("w", array, chunk_rows=rows)
        stored = (tmp_path / "x.zt").read_bytes()
        with ztensor.open(stored) as reader:
            assert is_same(reader["w"], array)
            part = reader.metadata("w").components["data"]
        assert stored[part.offset + part.length - 16 :][:4] == (stored_rows * 512).to_bytes(
            4, "little"
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_only_dense_tensors_have_planes(tmp_path: Path, version: str) -> None:
    """Others are stored raw: in 1.2 the layout of an object has one word."""
    indptr, indices = np.arange(301), np.arange(300)
    sparse = ztensor.Tensor.csr(np.ones(300, "f4"), indices, indptr, (300, 300))
    with ztensor.Writer(tmp_path / "x.zt", compression="planes", version=version) as writer:
        writer.write("sparse", sparse)
        writer.write("named", weights((100, 100)), attributes={"dtype": "mine"})
        writer.write("kept", weights((100, 100)), attributes={"unit": "m"})
    with ztensor.open(tmp_path / "x.zt") as reader:
        parts = [
            part
            for name in ("sparse", "named")
            for part in reader.metadata(name).components.values()
        ]
        assert {part.encoding for part in parts} == {"raw"}
        assert reader.metadata("named").attributes == {"dtype": "mine"}
        assert reader.metadata("kept").attributes == {"unit": "m"}
        assert reader.metadata("kept").components["data"].encoding == PLANES


# --- Copies, ids, differences -----------------------------------------------------------------


@pytest.mark.parametrize("target", ["1.1", "1.2", "2.1"])
def test_copies_into_each_version(path: Path, tmp_path: Path, target: str) -> None:
    """1.1 gets the tensors raw; the others keep planes."""
    names = [name for name in TENSORS if target != "1.1" or name != "fp8"]
    copy = tmp_path / "copy.zt"
    ztensor.convert(path, copy, version=target)
    found = znumpy.load_file(copy)
    assert all(is_same(found[name], TENSORS[name]) for name in names)
    assert encodings(copy)["matrix"] == ("raw" if target == "1.1" else PLANES)


def test_converted_there_and_back(tmp_path: Path) -> None:
    arrays = {name: TENSORS[name] for name in ("matrix", "float32", "double")}
    znumpy.save_file(arrays, tmp_path / "raw.zt")
    ztensor.convert(tmp_path / "raw.zt", tmp_path / "planes.zt", compression="planes")
    assert set(encodings(tmp_path / "planes.zt").values()) == {PLANES}
    ztensor.convert(tmp_path / "planes.zt", tmp_path / "back.zt", compression=False)
    assert (tmp_path / "back.zt").read_bytes() == (tmp_path / "raw.zt").read_bytes()


def test_rewritten_merged_and_in_trees(tmp_path: Path) -> None:
    matrix = TENSORS["matrix"]
    one, other, both = (tmp_path / name for name in ("one.zt", "other.zt", "both.zt"))
    znumpy.save_file({"w": matrix}, one)
    ztensor.migrate(one, compression="planes")
    ztensor.migrate(one, version="2.1")
    ztensor.save_tree({"layer": {"v": matrix}, "step": 3}, other, compression="planes")
    assert ztensor.load_tree(other)["step"] == 3
    assert is_same(ztensor.load_tree(other)["layer"]["v"], matrix)
    ztensor.merge([one, other], both)
    found = encodings(both)
    assert list(found.values()).count(PLANES) == 2
    assert is_same(znumpy.load_file(both)["w"], matrix)


def test_the_name_is_in_the_message_for_unknown_ones(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="'planes'"):
        znumpy.save_file(TENSORS, tmp_path / "x.zt", compression="plane")


def test_the_id_is_that_of_the_tensors(path: Path, tmp_path: Path) -> None:
    znumpy.save_file(TENSORS, tmp_path / "raw.zt")
    assert ztensor.content_hash(path) == ztensor.content_hash(tmp_path / "raw.zt")
    assert ztensor.diff(path, tmp_path / "raw.zt").ok


def test_a_file_with_planes_is_appended_to(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "x.zt"
    copy.write_bytes(path.read_bytes())
    if path.stem == "2.1":
        pytest.skip("files of 2.x are not edited")
    with ztensor.Editor(copy) as editor:
        editor.write("more", weights((200, 200)), compress="planes")
        editor.remove("zeros")
    found = encodings(copy)
    assert found["more"] == found["matrix"] == PLANES
    assert "zeros" not in found
    assert is_same(znumpy.load_file(copy)["matrix"], TENSORS["matrix"])


# --- Objects of 1.2 that are malformed --------------------------------------------------------

DATA = weights((10, 10), "f4")
STORED = slow.write(DATA.tobytes(), slow.FLOAT, 4, 60)
U8 = {"dtype": "u8"}
Object = tuple[dict[str, Any], dict[str, Any]]  # attributes, components
UNKNOWN: dict[str, Object] = {
    "unknown dtype": ({"dtype": "f31"}, {"data": (U8, STORED)}),
    "unknown type": ({"dtype": "f32", "type": "twisted"}, {"data": (U8, STORED)}),
    "type of another dtype": ({"dtype": "f32", "type": "f8_e5m2"}, {"data": (U8, STORED)}),
}
MALFORMED: dict[str, Object] = {
    "no dtype": ({}, {"data": (U8, STORED)}),
    "dtype of no text": ({"dtype": 3}, {"data": (U8, STORED)}),
    "stored as f32": (
        {"dtype": "f32"},
        {"data": ({"dtype": "f32"}, STORED + bytes(-len(STORED) % 4))},
    ),
    "two components": ({"dtype": "f32"}, {"data": (U8, STORED), "more": (U8, b"")}),
    "no data": ({"dtype": "f32"}, {"values": (U8, STORED)}),
}


def file_of(attributes: dict[str, Any], parts: dict[str, Any], shape: list[int]) -> bytes:
    new = draft("1.2.0")
    new.add("w", shape, parts, format=PLANES, attributes=attributes)
    return new.to_bytes()


def test_an_object_made_by_hand_is_dense() -> None:
    data = file_of({"dtype": "f32", "own": 1}, {"data": (U8, STORED)}, [10, 10])
    with ztensor.open(data) as reader:
        assert is_same(reader["w"], DATA)
        assert reader.metadata("w").attributes == {"own": 1}
        assert reader.verify().ok


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_object_of_an_unknown_type_is_refused_alone(case: str) -> None:
    with ztensor.open(file_of(*UNKNOWN[case], [10, 10])) as reader:
        assert reader["matrix"].shape == (2, 3)
        assert reader.metadata("w").format == PLANES
        with refused(UnsupportedError, Reason.UNKNOWN_TYPE):
            reader.read("w").to_dense()
        assert reader.read("w").components["data"].tobytes() == STORED


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_object_breaks_a_rule_of_the_manifest(case: str) -> None:
    missing = case == "no data"
    with refused(FormatError, Reason.COMPONENT_MISSING if missing else Reason.FIELD_VALUE):
        ztensor.open(file_of(*MALFORMED[case], [10, 10]))


@pytest.mark.parametrize("shape", [[10, 9], [10, 11], [1 << 30, 1 << 10]])
def test_another_shape_is_refused(shape: list[int]) -> None:
    data = file_of({"dtype": "f32"}, {"data": (U8, STORED)}, shape)
    with ztensor.open(data) as reader, pytest.raises(ztensor.ZTensorError) as caught:
        reader["w"]
    assert caught.value.reason in (Reason.ENCODING_MALFORMED, Reason.LIMIT_DECODED)


def test_elements_of_another_width_are_refused() -> None:
    """Also of small tensors, which are otherwise read many at a time."""
    new = draft("1.2.0")
    for number in range(40):
        kind = {"dtype": "bf16" if number == 30 else "f32"}
        shape = [20, 10] if number == 30 else [10, 10]
        new.add(f"w{number}", shape, {"data": (U8, STORED)}, format=PLANES, attributes=kind)
    data = new.to_bytes()
    with refused(EncodingError, Reason.ENCODING_MALFORMED) as caught:
        znumpy.load(data)
    assert caught.value.object_name == "w30"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", ["bf16", "f4", "f8", "i8"])
def test_nothing_is_stored_above_its_size(tmp_path: Path, version: str, dtype: str) -> None:
    """The index of very short blocks counts, too."""
    kind = ml_dtypes.bfloat16 if dtype == "bf16" else np.dtype(dtype)
    array = weights((20_000,), kind) if dtype != "i8" else np.arange(20_000)
    for rows in (1, 2, 9, 40, 1000):
        znumpy.save_file(
            {"w": array}, tmp_path / "x.zt", compression="planes", version=version, chunk_rows=rows
        )
        with ztensor.open(tmp_path / "x.zt") as reader:
            assert reader.metadata("w").components["data"].length <= array.nbytes
            assert is_same(reader["w"], array)
    noise = np.frombuffer(CHANCE.bytes(5 << 20), kind)  # a stream is not looked at before
    with (
        ztensor.Writer(
            tmp_path / "x.zt", compression="planes", chunk_rows=1, version=version
        ) as writer,
        writer.stream("w", noise.shape, noise.dtype) as sink,
    ):
        sink.write(noise)
    assert (tmp_path / "x.zt").stat().st_size <= 1.001 * noise.nbytes + (1 << 17)
