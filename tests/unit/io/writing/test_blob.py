"""One component on its way out: what is said of it, and what its digest is of."""

from __future__ import annotations

import io

import numpy as np
import pytest

import ztensor
from ztensor.numpy import load
from ztensor.spec.digest import ALGORITHMS

NOISE = np.random.default_rng(0).integers(0, 1000, (600, 1024)).astype(np.int32)


@pytest.mark.parametrize(
    ("version", "compress", "is_listed"),
    [("1.2.0", True, True), ("1.2.0", False, False), ("2.1", True, False)],
)
def test_only_the_frames_of_1_x_are_listed(version: str, compress: bool, is_listed: bool) -> None:
    """Those of 2.x have a table of their own, and raw data has none."""
    target = io.BytesIO()
    with ztensor.Writer(target, version=version, compression=compress) as writer:
        writer.write("w", NOISE)
        with writer.stream("s", NOISE.shape, "int32") as sink:
            sink.write(NOISE)
    with ztensor.open(target.getvalue()) as reader:
        for name in "ws":
            component = reader.objects.part(name).object(name).components["data"]
            assert component.length > 1 << 20
            assert ("frames" in (component.extra or {})) is is_listed


@pytest.mark.parametrize("checksum", ["xxh3", None])
def test_a_stream_that_is_not_held_has_the_digest_of_what_it_decodes_to(
    checksum: str | None,
) -> None:
    target = io.BytesIO()
    piece = np.zeros(1 << 19, np.float32)
    with (
        ztensor.Writer(target, version="2.1", compression=True, checksum=checksum) as writer,
        writer.stream("w", (3 << 19,), "float32") as sink,
    ):
        for number in range(3):
            sink.write(piece + number)
    found = load(target.getvalue())["w"]
    assert np.array_equal(found.reshape(3, -1), [piece, piece + 1, piece + 2])
    with ztensor.open(target.getvalue()) as reader:
        component = reader.metadata("w").components["data"]
        assert component.encoding != "raw"
        expected = checksum and ALGORITHMS[checksum].of([found.tobytes()])
        assert component.digest == expected


@pytest.mark.parametrize("checksum", ["xxh3", None])
@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
def test_a_digest_is_of_what_its_version_says(version: str, checksum: str | None) -> None:
    """In 1.x of the stored bytes, in 2.x of those they decode to."""
    kind = checksum and ("xxh3" if version == "2.1" else "crc32c")
    target = io.BytesIO()
    array = np.zeros(1000)
    with ztensor.Writer(target, version=version, compression=True, checksum=kind) as writer:
        writer.write("w", array)
        with writer.stream("s", (1000,), "float64") as sink:
            sink.write(array)
    with ztensor.open(target.getvalue()) as reader:
        for name in "ws":
            place = reader.location(name)
            stored = target.getvalue()[place.offset : place.offset + place.length]
            assert len(stored) < 200
            covered = array.tobytes() if version == "2.1" else stored
            expected = kind and ALGORITHMS[kind].of([covered])
            assert reader.metadata(name).components["data"].digest == expected
