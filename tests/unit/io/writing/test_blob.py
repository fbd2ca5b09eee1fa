"""One component on its way out: what is said of it, and what its digest is of."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, ArgumentValueError
from ztensor.io.writing.blob import Compression, as_of, compression_of
from ztensor.numpy import load
from ztensor.spec.digest import ALGORITHMS, digest_of
from ztensor.spec.model.manifest import Component

NOISE = np.random.default_rng(0).integers(0, 1000, (600, 1024)).astype(np.int32)


@pytest.mark.parametrize("asked", [None, False, 0, 0.0, "none", "raw", np.int64(0)])
def test_these_ask_for_raw(asked: Any) -> None:
    assert compression_of(asked) is None


@pytest.mark.parametrize(
    ("asked", "level"),
    [(True, 3), ("zstd", 3), (1, 1), (22, 22), (-1, -1), (-(1 << 17), -(1 << 17))],
)
def test_these_ask_for_zstd(asked: Any, level: int) -> None:
    assert compression_of(asked) == Compression("zstd", level)


@pytest.mark.parametrize("asked", [23, -(1 << 17) - 1, "gzip", "", "Raw", 1.5, [1]])
def test_other_encodings_are_refused_by_naming_those_there_are(asked: Any) -> None:
    kind = ArgumentValueError if isinstance(asked, (int, str)) else ArgumentTypeError
    with pytest.raises(kind) as caught:
        compression_of(asked)
    assert caught.value.expected == "False, True, 'zstd' or a zstd level up to 22"


@pytest.mark.parametrize(
    ("placed", "said", "expected"),
    [
        (None, None, None),
        (None, {"unit": "mm"}, {"unit": "mm"}),
        (None, {"frames": [1, 1, b"old"]}, None),
        ({"frames": [2, 2, b"new"]}, None, {"frames": [2, 2, b"new"]}),
        (
            {"frames": [2, 2, b"new"]},
            {"frames": [1, 1, b"old"], "unit": "mm"},
            {"frames": [2, 2, b"new"], "unit": "mm"},
        ),
    ],
)
def test_unknown_fields_are_kept_but_not_where_frames_lay(
    placed: Mapping[str, object] | None,
    said: Mapping[str, object] | None,
    expected: Mapping[str, object] | None,
) -> None:
    found = as_of(Component("u8", 64, 9, extra=placed), Component("u8", 128, 5, extra=said))
    assert found.extra == expected
    assert (found.offset, found.length) == (64, 9)


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
        expected = checksum and digest_of(ALGORITHMS[checksum], [found.tobytes()])
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
            expected = kind and digest_of(ALGORITHMS[kind], [covered])
            assert reader.metadata(name).components["data"].digest == expected
