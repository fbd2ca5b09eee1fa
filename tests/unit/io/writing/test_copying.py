"""Components of other files: rights, digests and bytes that several of them have together."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import ztensor
from ztensor.errors import DigestMismatchError
from ztensor.numpy import load, save
from ztensor.spec.digest import ALGORITHMS
from ztensor.testing.builder import item, sealed
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


@pytest.mark.skipif(os.name == "nt", reason="there are no such rights")
@pytest.mark.parametrize("compress", [None, True])
def test_a_copy_grants_no_more_than_the_file_it_is_of(
    compress: bool | None, tmp_path: Path
) -> None:
    source, target = tmp_path / "a.zt", tmp_path / "b.zt"
    ztensor.numpy.save_file({"v": ARRAY, "w": ARRAY + 1}, source)
    source.chmod(0o600)
    with ztensor.open(source) as reader, ztensor.Writer(target) as writer:
        for name in reader:
            writer.copy(name, reader, compress=compress)
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("compress", [None, False, True])
def test_each_digest_of_shared_bytes_is_held_to_them(compress: bool | None) -> None:
    """What one object says of its bytes is no check of what the other one says."""
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
    told = {"stored": right, "decoded": RIGHT, "neither": WRONG}[covers]
    data = one_blob(told, stored=stored, version="1.1.0", **fields)
    if covers == "neither":
        with pytest.raises(DigestMismatchError, match="t0"):
            copied(data)
    else:
        assert parts_of(copied(data))["t0"].digest == right


@pytest.mark.parametrize("kind", [None, "zstd"])
@pytest.mark.parametrize("target", ["0.1", "1.2", "2.1"])
@pytest.mark.parametrize("source", ["0.1", "1.2", "2.1"])
def test_a_copy_keeps_how_its_object_is_stored(source: str, target: str, kind: str | None) -> None:
    """What the writer does with others is not for copies, in another version neither."""
    data = save({"x": ARRAY}, version=source, compression=kind or False)
    for compression in (False, True):
        components = parts_of(copied(data, version=target, compression=compression))
        assert (components["x"].encoding != "raw") == (kind is not None)


def test_what_the_other_version_makes_no_smaller_is_raw_there() -> None:
    """Frames of 2.x have a table, which takes what zstd saved of little data."""
    array = np.concatenate([np.frombuffer(os.urandom(100), np.uint8), np.zeros(40, np.uint8)])
    data = save({"x": array}, compression=True)
    assert parts_of(data)["x"].encoding == "zstd"
    other = copied(data, version="2.1")
    assert (parts_of(other)["x"].encoding, parts_of(other)["x"].length) == ("raw", array.nbytes)
    assert np.array_equal(load(other)["x"], array)
