"""Components of other files: rights, digests and bytes that several of them have together."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
import pytest
import zstandard

import ztensor
from ztensor.errors import ArgumentTypeError, DigestMismatchError
from ztensor.ext import ALGORITHMS
from ztensor.numpy import load, save
from ztensor.testing.builder import draft, item, sealed
from ztensor.testing.builder_2 import File2, dense, seekable

ARRAY = np.arange(5000, dtype=np.int32)
RIGHT = ALGORITHMS["crc32c"].of([ARRAY.tobytes()])
WRONG = "crc32c:0x00000000"
UNKNOWN = "blake9:0x00000000"


def one_blob(
    *digests: str | None, stored: bytes = ARRAY.tobytes(), version: str = "1.2.0", **fields: Any
) -> bytes:
    """Return a file of objects that have their bytes together, each with a digest of its own."""
    objects = {}
    for number, digest in enumerate(digests):
        component: dict[str, Any] = {"dtype": "i32", "offset": 64, "length": len(stored)}
        component |= {"encoding": "raw", **fields} | ({} if digest is None else {"digest": digest})
        objects[f"t{number}"] = {
            "shape": [5000],
            "format": "dense",
            "components": {"data": component},
        }
    manifest = item({"version": version, "objects": objects})
    return sealed(b"ZTEN1000" + bytes(56) + stored, manifest, footer=b"ZTEN1000")


def copied(data: bytes, *, compress: bool | None = None, **options: Any) -> bytes:
    target = io.BytesIO()
    with ztensor.open(data) as reader, ztensor.Writer(target, **options) as writer:
        for name in reader:
            writer.copy(name, reader, compress=compress)
    return target.getvalue()


def parts_of(data: bytes) -> dict[str, Any]:
    with ztensor.open(data) as reader:
        assert reader.verify(deep=True).outcome in ("ok", "unchecked")
        return {name: reader.metadata(name).components["data"] for name in reader}


@pytest.mark.parametrize("compress", [None, False, True])
def test_each_digest_of_shared_bytes_is_held_to_them(compress: bool | None) -> None:
    """Each digest is checked, also if another object has the same bytes."""
    for digests in ((RIGHT, WRONG), (WRONG, RIGHT), (None, WRONG), (UNKNOWN, WRONG)):
        with pytest.raises(DigestMismatchError) as caught:
            copied(one_blob(*digests), compress=compress)
        assert caught.value.object_name == f"t{digests.index(WRONG)}"


@pytest.mark.parametrize("compress", [None, False, True])
@pytest.mark.parametrize("digests", [(RIGHT, RIGHT), (RIGHT, None), (None, RIGHT, None)], ids=str)
def test_shared_bytes_are_written_once(
    digests: tuple[str | None, ...], compress: bool | None
) -> None:
    data = copied(one_blob(*digests), compress=compress)
    parts = parts_of(data)
    assert {part.offset for part in parts.values()} == {64}
    assert all(np.array_equal(array, ARRAY) for array in load(data).values())
    assert all(part.digest is not None for part in parts.values())
    if not compress:
        assert {part.digest for part in parts.values()} == {RIGHT}


@pytest.mark.parametrize("checksum", [None, "xxh3", "sha256"])
@pytest.mark.parametrize("kept", [None, "xxh3", "sha256"])
def test_encoded_bytes_get_a_digest_of_what_they_decode_to(
    kept: str | None, checksum: str | None
) -> None:
    source = io.BytesIO()
    with ztensor.Writer(source, version="2.1", compression=True, checksum=kept) as writer:
        writer.write("w", ARRAY)
        writer.share("again", of="w")
    data = copied(source.getvalue(), version="2.1", checksum=checksum)
    word = kept or checksum
    expected = word and ALGORITHMS[word].of([ARRAY.tobytes()])
    for part in parts_of(data).values():
        assert part.encoding == "zt.zstd-seekable/1"
        assert part.digest == expected
    assert len({part.offset for part in parts_of(data).values()}) == 1


@pytest.mark.parametrize("checksum", ["xxh3", None])
def test_encoded_bytes_are_held_to_the_digest_of_what_they_decode_to(checksum: str | None) -> None:
    file, decoded = File2(), ARRAY.tobytes()
    stored = seekable([zstandard.compress(decoded)], [len(decoded)])
    part = file.packed(decoded, stored, "i32", digest=ALGORITHMS["xxh3"].of([stored]))
    data = file.seal({"objects": {"w": dense(part, [5000])}})
    with pytest.raises(DigestMismatchError):
        copied(data, version="2.1", checksum=checksum)


@pytest.mark.parametrize("covers", ["stored", "decoded", "neither"])
@pytest.mark.parametrize("compression", [False, True])
def test_a_digest_of_1_1_may_be_that_of_the_decoded_bytes(covers: str, compression: bool) -> None:
    """Its text can be read so; the copy says what all read alike."""
    stored, fields = ARRAY.tobytes(), {}
    if compression:
        fields = {"encoding": "zstd", "uncompressed_length": len(stored)}
        stored = zstandard.compress(stored)
    right = ALGORITHMS["crc32c"].of([stored])
    digest = {"stored": right, "decoded": RIGHT, "neither": WRONG}[covers]
    data = one_blob(digest, stored=stored, version="1.1.0", **fields)
    if covers == "neither":
        with pytest.raises(DigestMismatchError, match="t0"):
            copied(data)
    else:
        assert parts_of(copied(data))["t0"].digest == right


VERSIONS = {"0.1": "zstd", "1.2": "zstd", "2.1": "zt.zstd-seekable/1"}


@pytest.mark.parametrize("is_encoded", [False, True])
@pytest.mark.parametrize("target", VERSIONS)
@pytest.mark.parametrize("source", VERSIONS)
def test_a_copy_is_encoded_as_it_was_or_as_the_caller_asks(
    source: str, target: str, is_encoded: bool
) -> None:
    """The writer's compression is not for copies, in another version neither."""
    data = save({"x": ARRAY}, version=source, compression=is_encoded)
    for compression in (False, True):
        for compress in (None, False, True):
            copy = copied(data, version=target, compression=compression, compress=compress)
            expected = is_encoded if compress is None else compress
            assert parts_of(copy)["x"].encoding == (VERSIONS[target] if expected else "raw")
            assert np.array_equal(load(copy)["x"], ARRAY)
        if source == target:
            assert copied(data, version=target, compression=compression) == data


def test_values_that_the_version_stores_otherwise_are_decoded() -> None:
    """Numbers of 0.1 may be big-endian, and its bools any byte."""
    made = draft("0.1.0")
    made.component("matrix")["data_endianness"] = "big"
    made.blobs["flags", "data"] = b"\x00\x01\x02\xff"
    source = made.to_bytes()
    copy = load(copied(source))
    assert {name: copy[name].tolist() for name in copy} == {
        name: array.tolist() for name, array in load(source).items()
    }
    assert copy["flags"].tolist() == [False, True, True, True]
    assert copy["matrix"][0][0] == 1 << 24
    assert parts_of(copied(source))


def test_what_the_other_version_makes_no_smaller_is_raw_there() -> None:
    """Frames of 2.x have a table, which takes what zstd saved of little data."""
    array = np.concatenate([np.frombuffer(os.urandom(100), np.uint8), np.zeros(40, np.uint8)])
    data = save({"x": array}, compression=True)
    assert parts_of(data)["x"].encoding == "zstd"
    other = copied(data, version="2.1")
    assert (parts_of(other)["x"].encoding, parts_of(other)["x"].length) == ("raw", array.nbytes)
    assert np.array_equal(load(other)["x"], array)


# --- Encodings of values that are written -----------------------------------------------------


@pytest.mark.wing
def test_values_of_other_libraries_are_written_as_what_they_are() -> None:
    scipy = pytest.importorskip("scipy", reason="SciPy is optional")
    sparse = scipy.sparse.csr_matrix(np.eye(3))
    target = io.BytesIO()
    with ztensor.Writer(target) as writer:
        writer.write("sparse", sparse)
        writer.write("with attributes", sparse, attributes={"unit": "mm"})
        writer.write("list", [[1.0, 2.0]])
    with ztensor.open(target.getvalue()) as reader:
        for name in ("sparse", "with attributes"):
            tensor: Any = reader[name]
            assert tensor.format == "sparse_csr"
            assert np.array_equal(tensor.to_dense(), np.eye(3))
        assert reader.metadata("with attributes").attributes == {"unit": "mm"}
        assert reader["list"].tolist() == [[1.0, 2.0]]


def test_a_dict_is_a_tensor_only_by_its_data() -> None:
    target = io.BytesIO()
    with ztensor.Writer(target) as writer:
        writer.write("w", {"data": ARRAY, "more": np.ones(3)})
        for nested in ({"inner": ARRAY}, {}):
            with pytest.raises(ArgumentTypeError, match="not dicts") as caught:
                writer.write("nested", nested)
            assert caught.value.object_name == "nested"
    with ztensor.open(target.getvalue()) as reader:
        assert list(reader) == ["w"]
        assert set(reader.metadata("w").components) == {"data", "more"}
