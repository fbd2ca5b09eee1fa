from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor import Limits, Reader, Tensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    DigestMismatchError,
    LimitError,
    ObjectNotFoundError,
    Reason,
    SourceError,
    UsageError,
    ZTensorError,
)
from ztensor.ext import ALGORITHMS, EMITTERS, ENCODINGS, Component, Manifest, TensorObject
from ztensor.numpy import save

W = np.arange(12, dtype=np.float32).reshape(3, 4)
TENSORS: dict[str, Any] = {
    "w": W,
    "scalar": np.array(2.5),
    "half": np.arange(3).astype(ml_dtypes.bfloat16),
    "rows": Tensor.csr([1.0, 2.0], [0, 2], [0, 1, 2], (2, 3), attributes={"a": 1}),
}


def build(
    version: str, objects: dict[str, TensorObject], blobs: dict[tuple[str, str], bytes]
) -> bytes:
    """Return a file of objects; offsets and lengths come from the blobs."""
    emitter = EMITTERS[version]()
    data = bytearray(emitter.magic)
    placed = {}
    for name, item in objects.items():
        components = {}
        for role, component in item.components.items():
            data += bytes(-len(data) % 64)
            blob = blobs[name, role]
            components[role] = component._replace(offset=len(data), length=len(blob))
            data += blob
        placed[name] = item._replace(components=components)
    return bytes(data) + emitter.emit(Manifest(version, placed), len(data))


def single(shape: tuple[int, ...], data: bytes, version: str = "1.2.0", **component: Any) -> bytes:
    """Return a file of one dense object `w`."""
    part = Component(**{"dtype": "f32", "offset": 0, "length": 0, **component})
    return build(
        version, {"w": TensorObject(shape, "dense", {"data": part})}, {("w", "data"): data}
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "m.zt"
    made.write_bytes(save(TENSORS, {"by": "us", "n": [1]}))
    return made


# --- A mapping ----------------------------------------------------------------------------------


def test_a_reader_is_a_mapping(path: Path) -> None:
    with ztensor.open(path) as reader:
        assert reader.keys() == list(reader) == sorted(TENSORS)
        assert len(reader) == 4
        assert "w" in reader
        assert "v" not in reader
        assert 5 not in reader  # type: ignore[comparison-overlap]
        assert reader["w"].tolist() == W.tolist()
        assert [name for name, _ in reader.items()] == list(reader)
        assert {type(value) for value in reader.values()} == {np.ndarray, Tensor}
        assert reader.get("v") is None
        assert reader.get("v", 7) == 7
        assert dict(reader).keys() == set(TENSORS)
        assert isinstance(reader["rows"], Tensor)
        with ztensor.open(path) as other:
            assert len({reader, other}) == 2  # compared by identity, not by all values


def test_what_the_file_says_of_itself(path: Path) -> None:
    with ztensor.open(path) as reader:
        assert (reader.format, reader.version) == ("zt", "1.2.0")
        assert reader.attributes == {"by": "us", "n": [1]}
        assert reader.name == str(path)
        assert reader.nbytes == path.stat().st_size
        assert str(path) in repr(reader)
        assert len(repr(reader)) < len(str(path)) + 100


def test_a_closed_reader(path: Path) -> None:
    reader = ztensor.open(path)
    part = reader.get_slice("w")
    reader.close()
    reader.close()
    uses: list[Callable[[], object]] = [
        lambda: reader["w"],
        lambda: reader.read("w"),
        lambda: reader.read_numpy(["w"]),
        lambda: reader.read_into("w", W.copy()),
        lambda: reader.metadata("w"),
        lambda: reader.location("w"),
        lambda: reader.get_slice("w"),
        lambda: part[0],
        reader.verify,
        reader.__enter__,
        lambda: pickle.dumps(reader),
    ]
    for use in uses:
        with refused(ClosedError, Reason.CLOSED) as caught:
            use()
        assert isinstance(caught.value, RuntimeError)
    assert "closed" in repr(reader)


def test_unknown_names_and_similar_ones(path: Path) -> None:
    with ztensor.open(path) as reader:
        for use in (reader.read, reader.metadata, reader.__getitem__, reader.get_slice):
            with pytest.raises(KeyError) as caught:
                use("row")
            error = caught.value
            assert isinstance(error, ObjectNotFoundError)
            assert error.reason is Reason.OBJECT_NOT_FOUND
            assert "'rows'" in str(error)
            assert str(path) in str(error)
        with pytest.raises(ObjectNotFoundError, match="'data'"):
            reader.location("w", "values")
        name: Any
        for name in (5, None, ["w"], b"w"):
            for use in (reader.__getitem__, reader.get_slice):
                with pytest.raises(ArgumentTypeError):
                    use(name)


@pytest.mark.slow
def test_a_hostile_name_is_no_trouble_to_the_search() -> None:
    """Suggestions cost little, whatever the names in the file."""
    with ztensor.open(
        save({"x" * 1_000_000: W, **{f"{i}" * 50: W for i in range(3000)}})
    ) as reader:
        with pytest.raises(ObjectNotFoundError) as caught:
            reader["y" * 1_000_000]
        assert len(str(caught.value)) < 1000


# --- Metadata -----------------------------------------------------------------------------------


def test_metadata_by_attribute_and_by_key(path: Path) -> None:
    with ztensor.open(path) as reader:
        found = reader.metadata("w")
        assert (found.name, found.shape, found.dtype, found.type) == ("w", (3, 4), "float32", None)
        assert (found.format, found.nbytes, found.stored_nbytes) == ("dense", 48, 48)
        part = found.components["data"]
        assert part.dtype == part["dtype"] == part.get("dtype") == "float32"
        assert (part["offset"], part["length"]) == (part.offset, part.length)
        assert part["encoding"] == "raw"
        assert part["digest"] == part.digest
        assert {**dict(part), "shard": None} == dataclasses.asdict(part)  # 1.x has no shards
        assert (len(part), list(part.keys())) == (len(dict(part)), list(part))
        assert part.get("no such", 3) == 3
        with pytest.raises(KeyError):
            part["no such"]
        rows = reader.metadata("rows")
        assert (rows.dtype, rows.attributes) == ("float64", {"a": 1})
        assert (rows.nbytes, set(rows.components)) == (56, {"values", "indices", "indptr"})
        assert [one.name for one in reader.metadata(["w", "rows"])] == ["w", "rows"]
        assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("version", ["0.1", "1.1", "1.2", "2.1"])
@pytest.mark.parametrize("compression", [False, True])
def test_metadata_of_an_object_in_a_table_is_that_of_the_object(
    version: str, compression: bool
) -> None:
    tensors: dict[str, Any] = {
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.int16),
        "bytes": np.zeros(5000, np.uint8),
        "flags": np.ones((2, 3), np.bool_),
    }
    if version != "0.1":
        tensors["logical"] = np.arange(9).astype(ml_dtypes.float8_e5m2)
        tensors["complex"] = np.ones((2, 2), np.complex64)
    tensors |= {f"{number}": np.arange(number + 1.0) for number in range(99)}
    data = save(tensors, version=version, compression=compression)
    with ztensor.open(data) as reader:
        found = reader.metadata(list(tensors))
        assert found == [reader.metadata(name) for name in tensors]
        for metadata, (name, tensor) in zip(found, tensors.items(), strict=True):
            assert (metadata.name, metadata.shape) == (name, tensor.shape)
            assert (metadata.nbytes, metadata.attributes) == (tensor.nbytes, {})


def test_a_location_is_where_the_bytes_are(path: Path) -> None:
    with ztensor.open(path) as reader:
        where = reader.location("w")
        assert (where.path, where.length) == (str(path), 48)
        with open(where.path or "", "rb") as file:
            file.seek(where.offset)
            assert np.frombuffer(file.read(where.length), np.float32).tolist() == list(range(12))
        assert reader.location("rows", "indptr").length == 24
    with ztensor.open(path.read_bytes()) as reader:
        assert reader.location("w").path is None


# --- Values -------------------------------------------------------------------------------------

VALUES: dict[str, tuple[bytes, Any]] = {
    "scalar": (single((), b"\0\0\x80\x3f"), np.array(1, np.float32)),
    "fp8": (
        single((2,), b"\x38\xc0", dtype="u8", type="f8_e4m3fn"),
        np.array([1, -2]).astype(ml_dtypes.float8_e4m3fn),
    ),
    "fp4": (
        single((3,), b"\x71\x02", dtype="u8", type="f4_e2m1"),
        np.array([0.5, 6, 1]).astype(ml_dtypes.float4_e2m1fn),
    ),
    "big-endian": (
        single((2,), b"\0\0\x01\x02\0\0\0\x03", "0.1.0", dtype="i32", byte_order="big"),
        np.array([258, 3], np.int32),
    ),
    "any non-zero is true in 0.1": (
        single((3,), b"\x00\x02\x01", "0.1.0", dtype="bool"),
        np.array([False, True, True]),
    ),
    "empty": (single((0, 5), b""), np.zeros((0, 5), np.float32)),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
def test_values(kind: str, mmap: bool, tmp_path: Path) -> None:
    data, expected = VALUES[kind]
    (tmp_path / "m.zt").write_bytes(data)
    filled = np.zeros(expected.shape, expected.dtype)
    with ztensor.open(tmp_path / "m.zt", mmap=mmap) as reader:
        reader.read_into("w", filled)
        for found in (
            reader["w"],
            reader.read_numpy("w"),
            reader.read_numpy("w", copy=True),
            reader.read("w").numpy(),
            reader.read("w", copy=True).numpy(),
            reader.get_slice("w")[...],
            filled,
        ):
            assert type(found) is np.ndarray
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert found.dtype.isnative
            assert found.tobytes() == expected.tobytes()
            assert found.flags.writeable


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
def test_views_and_copies(path: Path, mmap: bool, copy: bool) -> None:
    with ztensor.open(path, mmap=mmap) as reader:
        first, second = (reader.read_numpy("w", copy=copy) for _ in range(2))
        assert np.shares_memory(first, second) is (mmap and not copy)
        one, other = (reader.read("rows", copy=copy).components["values"] for _ in range(2))
        assert np.shares_memory(one, other) is (mmap and not copy)


# --- Into arrays of the caller ------------------------------------------------------------------


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((3, 4), np.float32),
        lambda: np.zeros((4, 3), np.float32).T,
        lambda: np.zeros((6, 8), np.float32)[::2, ::-2],
        lambda: np.zeros((3, 4), ">f4"),
        lambda: np.zeros(13, np.float32)[1:].reshape(3, 4),
    ],
    ids=["plain", "transposed", "strided", "big-endian", "unaligned to a vector"],
)
def test_read_into(make: Callable[[], Any], compression: bool) -> None:
    with ztensor.open(save({"w": W}, compression=compression)) as reader:
        target = make()
        reader.read_into("w", target)
        assert target.tolist() == W.tolist()
        target[...] = 0
        reader.read_into({"w": target})
        assert target.tolist() == W.tolist()


def locked() -> Any:
    array = np.zeros((3, 4), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (np.zeros((4, 3), np.float32), ArgumentValueError),
        (np.zeros(12, np.float32), ArgumentValueError),
        (np.zeros((3, 4)), ArgumentTypeError),
        (np.zeros((3, 4), np.int32), ArgumentTypeError),
        (locked(), ArgumentValueError),
        (np.broadcast_to(np.float32(0), (3, 4)), ArgumentValueError),
        ([[0] * 4] * 3, ArgumentTypeError),
        (bytearray(48), ArgumentTypeError),
        (None, ArgumentTypeError),
    ],
    ids=["shape", "flat", "double", "integers", "locked", "broadcast", "list", "bytes", "nothing"],
)
def test_a_target_that_does_not_fit(target: Any, kind: type[ZTensorError]) -> None:
    with ztensor.open(save({"w": W})) as reader, pytest.raises(kind) as caught:
        reader.read_into("w", target)
    assert caught.value.object_name == "w"


def test_read_into_takes_a_name_with_an_array_or_a_mapping(path: Path) -> None:
    with ztensor.open(path) as reader:
        names: Any
        for names in (5, ["w"], None):
            with pytest.raises(ArgumentTypeError):
                reader.read_into(names)
        with pytest.raises(UsageError) as caught:  # not dense
            reader.read_into("rows", np.zeros((2, 3)))
        assert caught.value.object_name == "rows"
        with pytest.raises(UsageError):
            reader.read_numpy("rows")


def test_a_large_target_of_a_subclass_is_filled_to_its_end() -> None:
    """A numpy.matrix is never flat: pieces of it are rows."""

    class NeverFlat(np.ndarray[Any, Any]):
        def reshape(self, *_: Any, **__: Any) -> Any:
            return self

    array = np.arange(3 << 20, dtype=np.float32).reshape(3, -1)
    target = np.zeros_like(array)
    with ztensor.open(save({"w": array})) as reader:
        reader.read_into("w", target.view(NeverFlat))
    assert np.array_equal(target, array)


# --- Digests ------------------------------------------------------------------------------------


def damaged(compression: bool = False, checksum: str | None = "crc32c") -> bytes:
    """Return a file of one tensor with a flipped bit."""
    w = np.zeros_like(W) if compression else W  # what zstd makes smaller
    data = bytearray(save({"w": w}, compression=compression, checksum=checksum))
    with ztensor.open(bytes(data)) as reader:
        where = reader.location("w")
    data[where.offset + where.length - 1] ^= 1
    return bytes(data)


VIEWS: dict[str, Callable[[Reader], Any]] = {
    "item": lambda reader: reader["w"],
    "read": lambda reader: reader.read("w").numpy(),
    "slice": lambda reader: reader.get_slice("w")[1:],
}
COPIES: dict[str, Callable[[Reader], Any]] = {
    "read_numpy": lambda reader: reader.read_numpy("w", copy=True),
    "read": lambda reader: reader.read("w", copy=True).numpy(),
    "read_into": lambda reader: reader.read_into("w", np.zeros((3, 4), np.float32)),
    "read_into, transposed": lambda r: r.read_into("w", np.zeros((4, 3), np.float32).T),
}


@pytest.mark.parametrize("checksum", ["crc32c", "sha256"])
@pytest.mark.parametrize("verify", [None, True, False])
@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
def test_when_digests_of_raw_data_are_checked(
    tmp_path: Path, mmap: bool, verify: bool | None, checksum: str
) -> None:
    """None: where a copy is made; True: also before a view is handed out; False: never."""
    (tmp_path / "m.zt").write_bytes(damaged(checksum=checksum))
    with ztensor.open(tmp_path / "m.zt", mmap=mmap, verify=verify) as reader:
        for uses, checks in (
            (VIEWS, verify is True or (verify is None and not mmap)),
            (COPIES, verify is not False),
        ):
            for kind, use in uses.items():
                if kind == "slice" and not mmap and verify is None:
                    use(reader)  # a part of the data cannot be checked
                elif checks:
                    for _ in range(2):  # a mismatch does not count as checked
                        with refused(DigestMismatchError, Reason.DIGEST_MISMATCH) as caught:
                            use(reader)
                        assert (caught.value.object_name, caught.value.component) == ("w", "data")
                else:
                    use(reader)


@pytest.mark.parametrize("compression", [False, True], ids=["views: once", "copies: each time"])
def test_how_often_a_digest_is_checked(compression: bool) -> None:
    data = bytearray(save({"w": np.zeros_like(W)}, compression=compression))
    with ztensor.open(data, verify=True) as reader:
        assert reader["w"].shape == (3, 4)
        where = reader.location("w")
        data[where.offset + where.length - 1] ^= 1
        with pytest.raises(DigestMismatchError) if compression else contextlib.nullcontext():
            reader["w"]


@pytest.mark.parametrize("covers", ["stored", "decoded", "neither"])
@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_a_digest_of_decoded_bytes_is_one_reading_of_1_1(version: str, covers: str) -> None:
    frame = b"".join(ENCODINGS["zstd"].encode(memoryview(W.tobytes()), level=3))
    text = ALGORITHMS["crc32c"].of(
        [{"stored": frame, "decoded": W.tobytes(), "neither": b""}[covers]],
    )
    data = single((3, 4), frame, version, encoding="zstd", digest=text, decoded_length=48)
    with ztensor.open(data) as reader, ztensor.open(data, verify=True) as strict:
        if covers == "stored" or (covers == "decoded" and version == "1.1.0"):
            assert reader["w"].tolist() == W.tolist()
            assert strict.get_slice("w")[1:].tolist() == W[1:].tolist()
            assert reader.verify().ok
        else:
            with pytest.raises(DigestMismatchError):
                reader["w"]
            assert not reader.verify().ok


# --- Caps ---------------------------------------------------------------------------------------


def frame_with_window(exponent: int, data: bytes) -> bytes:
    """Return a zstd frame of one raw block that demands a window of 2 to the exponent."""
    header = b"\x28\xb5\x2f\xfd\x00" + bytes([(exponent - 10) << 3])
    return header + (1 | len(data) << 3).to_bytes(3, "little") + data


DEEP = save({"w": W}, {"a": [[[[1]]]]})
WIDE = save({"w": np.zeros((1,) * 9)})
ZEROS = save({"w": np.zeros(1000)}, compression=True)
WINDOWED = single((1,), frame_with_window(22, bytes(4)), encoding="zstd", decoded_length=4)


@pytest.mark.parametrize(
    ("data", "field", "least", "reason"),
    [
        (DEEP, "manifest_bytes", int.from_bytes(DEEP[-16:-8], "little"), Reason.LIMIT_MANIFEST),
        (DEEP, "depth", 6, Reason.LIMIT_DEPTH),
        (WIDE, "rank", 9, Reason.LIMIT_RANK),
        (ZEROS, "decoded_bytes", 8000, Reason.LIMIT_DECODED),
        (WINDOWED, "window_log", 22, Reason.LIMIT_WINDOW),
    ],
    ids=["manifest", "depth", "rank", "decoded", "window"],
)
def test_every_cap_is_used_and_named(data: bytes, field: str, least: int, reason: Reason) -> None:
    with ztensor.open(data, limits=Limits(**{field: least})) as reader:
        assert reader["w"].size > 0
    uses: list[Callable[[Reader], object]] = [
        lambda reader: reader["w"],
        lambda reader: reader.read_numpy("w", copy=True),
        lambda reader: reader.get_slice("w")[...],
        lambda reader: reader.read_into("w", np.zeros_like(ztensor.open(data)["w"])),
    ]
    for use in uses:
        with refused(LimitError, reason) as caught:
            use(ztensor.open(data, limits=Limits(**{field: least - 1})))
        assert f"Limits.{field}" in str(caught.value)


def test_more_dimensions_than_numpy_has_are_still_components() -> None:
    with ztensor.open(single((1,) * 65, bytes(4))) as reader:
        with pytest.raises(LimitError):
            reader["w"]
        assert reader.read("w").components["data"].tolist() == [0]


# --- Pickling and threads -----------------------------------------------------------------------


def test_a_reader_is_pickled_by_path_with_its_options(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    limits = Limits(rank=3)
    with ztensor.open(path.name, verify=True, mmap=False, limits=limits) as reader:
        data = pickle.dumps(reader)
    assert len(data) < 2000
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(data) as again:
        assert again["w"].tolist() == W.tolist()
        file = again.objects.parts()[0]
        assert (file.verify, file.limits, file.source.view()) == (True, limits, None)


def test_a_reader_of_bytes_is_pickled_by_value(path: Path) -> None:
    with ztensor.open(bytearray(path.read_bytes())) as reader:
        again = pickle.loads(pickle.dumps(reader))
    assert again["w"].tolist() == W.tolist()


def test_a_reader_of_a_file_object_cannot_be_pickled(path: Path) -> None:
    with path.open("rb") as file, ztensor.open(file) as reader, pytest.raises(UsageError):
        pickle.dumps(reader)


@pytest.mark.slow
@pytest.mark.parametrize("verify", [None, True])
@pytest.mark.parametrize("kind", ["mapped", "read", "bytes", "file object"])
def test_threads_share_one_reader(tmp_path: Path, kind: str, verify: bool | None) -> None:
    arrays = {f"t{i}": np.arange(i, i + 1000) for i in range(8)}
    tensors = {**arrays, "s": Tensor.csr([1.0], [0], [0, 1], (1, 3))}
    path = tmp_path / "m.zt"
    path.write_bytes(save(tensors, compression=False))
    packed = tmp_path / "z.zt"
    packed.write_bytes(save(tensors, compression=True))
    opened: Callable[[Path], Reader] = {
        "mapped": lambda p: ztensor.open(p, verify=verify),
        "read": lambda p: ztensor.open(p, mmap=False, verify=verify),
        "bytes": lambda p: ztensor.open(p.read_bytes(), verify=verify),
        "file object": lambda p: ztensor.open(io.BytesIO(p.read_bytes()), verify=verify),
    }[kind]
    readers = [opened(path), opened(packed)]
    start = threading.Barrier(6)

    def use(seed: int) -> None:
        start.wait()
        for turn in range(40):
            i = (seed * 7 + turn) % 8
            for reader in readers:
                found = reader.read_numpy(f"t{i}", copy=bool(turn % 2))
                assert found[turn] == reader.get_slice(f"t{i}")[turn] == i + turn
                reader.read("s").to_dense()
            if turn == seed:
                assert all(reader.verify().ok for reader in readers)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(use, range(6)))
    for reader in readers:
        reader.close()


# --- A file that changes ------------------------------------------------------------------------


CHANGED_USES: dict[str, Callable[[Reader], object]] = {
    "a view": lambda reader: reader["w"],
    "a copy": lambda reader: reader.read_numpy("w"),
    "a part": lambda reader: reader.get_slice("w")[1:3],
    "an empty part": lambda reader: reader.get_slice("w")[1:1],
    "a sparse tensor": lambda reader: reader["s"],
    "rows of a sparse tensor": lambda reader: reader.get_slice("s")[0:2],
    "4-bit floats": lambda reader: reader["f"],
    "a compressed tensor": lambda reader: reader["z"],
    "rows of a compressed tensor": lambda reader: reader.get_slice("z")[0],
    "stored chunks": lambda reader: list(reader.decoded_chunks("w")),
    "a check": lambda reader: reader.verify(),
}


@pytest.mark.parametrize("version", ["1.2", "2.1"])
@pytest.mark.parametrize("use", CHANGED_USES)
def test_a_file_changed_in_place_is_refused(tmp_path: Path, version: Any, use: str) -> None:
    dense = np.arange(200_000, dtype=np.float32).reshape(1000, 200)
    ones, ends = np.ones(50, np.float32), np.arange(51, dtype=np.uint64)
    path = tmp_path / "m.zt"
    with ztensor.Writer(path, version=version) as writer:
        writer.write("w", dense)
        writer.write("s", Tensor.csr(ones, ends[:50], ends, (50, 50)))
        writer.write("f", np.ones((4, 4), ml_dtypes.float4_e2m1fn))
        writer.add("z", dense, compress=True)
    with ztensor.open(path) as reader:
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
        with refused(SourceError, Reason.SOURCE_CHANGED):
            CHANGED_USES[use](reader)


@pytest.mark.parametrize("compression", [False, True])
def test_decoded_chunks_are_the_bytes(compression: bool) -> None:
    array = np.arange(1 << 18, dtype=np.float32)
    data = bytearray(save({"w": array}, compression=compression))
    with ztensor.open(bytes(data)) as reader:
        assert b"".join(reader.decoded_chunks("w")) == array.tobytes()
        place = reader.location("w")
    data[place.offset + 9] ^= 1
    with ztensor.open(bytes(data)) as reader, pytest.raises(DigestMismatchError):
        b"".join(reader.decoded_chunks("w"))


@pytest.mark.parametrize("copy", [False, True])
def test_the_component_of_a_dense_object_has_its_shape(copy: bool) -> None:
    with ztensor.open(save({"w": np.arange(6).reshape(2, 3)})) as reader:
        assert reader.read("w", copy=copy).components["data"].shape == (2, 3)
