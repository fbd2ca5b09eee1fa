"""One open file and its components: padding, problems, memory, what is copied as it is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.tracing import traced
from tests.unit.io.reading.counted import far
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LayoutError,
    ManifestError,
    Reason,
    UnsupportedError,
)
from ztensor.ext import (
    ObjectReader,
    Portable,
    open_file,
)
from ztensor.numpy import save, save_file
from ztensor.spec.container.v2.emit import Emitter21
from ztensor.testing.builder import draft, stored, zstd_frame
from ztensor.testing.builder_2 import File2, dense


def test_padding_of_packed_elements_is_cut_off() -> None:
    """Two elements of four bits share a byte; the last byte of three is half empty."""
    file = File2()
    three = {**file.part(np.array([0x42, 0x05], np.uint8)), "type": "f4_e2m1"}
    index = file.part(np.array([0, 2, 1], np.uint64))
    pointers = file.part(np.array([0, 2, 3], np.uint64))
    csr = {"values": three, "indices": index, "indptr": pointers}
    coo = {"values": three, "coords": file.part(np.array([0, 1, 1, 2, 0, 1], np.uint64))}
    sparse = {"shape": [2, 3], "layout": "zt.sparse_csr/1", "parts": csr}
    points = {"shape": [2, 3], "layout": "zt.sparse_coo/1", "parts": coo}
    objects = {"sparse": sparse, "points": points, "dense": dense(three, [3])}
    with ztensor.open(file.seal({"objects": objects})) as reader:
        assert reader.verify(deep=True).outcome == "ok"
        assert reader.read("points").components["values"].tolist() == [1, 2, 3]
        assert reader.read("points").to_dense().tolist() == [[0, 0, 1], [2, 3, 0]]
        assert reader["dense"].tolist() == [1, 2, 3]
        assert reader.read("dense").components["data"].tolist() == [1, 2, 3]
        assert reader.read("sparse").components["values"].tolist() == [1, 2, 3]


def test_a_scalar_has_values_without_coordinates() -> None:
    values, coords = np.array([1, 2], ml_dtypes.float4_e2m1fn), np.zeros((0, 2), np.uint64)
    point = ztensor.Tensor({"values": values, "coords": coords}, shape=(), format="sparse_coo")
    with ztensor.open(save({"w": point}, version="1.2")) as reader:
        assert reader.verify().ok
        assert reader.read("w").components["values"].tolist() == [1, 2]
        assert reader.read("w").to_dense() == 3


def test_values_that_no_pointer_counts_are_refused() -> None:
    """Only the pointers determine the number of indices."""
    made = draft("1.2.0")
    made.objects["rows"]["components"]["indices"] = {"dtype": "u64", "encoding": "zstd"}
    made.objects["rows"]["components"]["values"] = {"dtype": "u8", "type": "f8_e4m3fn"}
    made.blobs["rows", "indices"] = zstd_frame(stored("u64", 0, 2, 2))
    for values, is_right in ((b"abc", True), (b"abcd", False)):
        made.blobs["rows", "values"] = values
        for role in ("indices", "values"):
            for field in ("offset", "length", "digest"):
                made.component("rows", role).pop(field, None)
        with ztensor.open(made.to_bytes()) as reader:
            if is_right:
                assert reader.read("rows").components["values"].size == 3
                continue
            with pytest.raises(LayoutError):
                reader.read("rows")


def test_at_most_256_wrong_objects_are_reported() -> None:
    made = draft("1.2.0")
    for number in range(300):
        parts = {"coords": ({"dtype": "f32"}, b""), "values": ({"dtype": "i32"}, stored("i32"))}
        made.add(f"odd{number}", [2, 2], parts, format="sparse_coo")
    with pytest.raises(ManifestError, match="and 255 more problems") as caught:
        ztensor.open(made.to_bytes())
    assert {problem.reason for problem in caught.value.problems} == {Reason.INDEX_DTYPE}
    assert len(caught.value.problems) == 256


MIB = 1 << 20


WAYS: dict[str, Callable[[ObjectReader], Any]] = {
    "whole": lambda reader: reader.read_numpy("w", copy=True),
    "slices": lambda reader: reader.read_slices({"w": ...})["w"],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("checksum", ["crc32c", None])
def test_long_bytes_from_far_away_are_held_to_their_digest(way: str, checksum: str | None) -> None:
    """They are fetched in several parts, each hashed in its turn."""
    value = np.arange(9 * MIB // 8)
    data = bytearray(save({"w": value}, checksum=checksum))
    assert np.array_equal(WAYS[way](far(bytes(data))[0]), value)
    data[-2 * MIB] ^= 1
    if checksum is not None:
        with pytest.raises(DigestMismatchError):
            WAYS[way](far(bytes(data))[0])
    assert np.sum(WAYS[way](far(bytes(data), verify=False)[0]) != value) == 1


@pytest.mark.parametrize("verify", [None, False])
def test_frames_that_hold_too_little_are_refused_before_memory_is_taken(
    verify: bool | None,
) -> None:
    made = draft("1.2.0")
    made.objects["packed"]["shape"] = [64 * MIB]
    made.component("packed")["uncompressed_length"] = 128 * MIB
    reader = far(made.to_bytes(), verify=verify)[0]
    with traced() as memory:
        with pytest.raises(FormatError):
            reader.read_numpy("packed", copy=True)
        _, peak = memory()
    assert peak < 8 * MIB


@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_filling_an_array_takes_no_other_memory(tmp_path: Path, version: str) -> None:
    save_file({"x": np.ones(1 << 20, np.float32)}, tmp_path / "m.zt", version=version)
    target = np.zeros(1 << 20, np.float32)
    with ztensor.open(tmp_path / "m.zt") as reader:
        reader.read_into("x", target)  # imports on first use
        target[:] = 0
        with traced() as memory:
            reader.read_into("x", target)
            peak = memory()[1]
    assert target.all()
    assert peak < target.nbytes // 4


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_a_copy_of_compressed_bytes_has_their_decoded_length(version: str) -> None:
    file = open_file(draft(version).to_bytes())
    found = Portable().stored(file, "packed")
    assert found is not None
    assert found.components["data"].decoded_length == 6
    for name in ("matrix", "scalar", "flags", "rows", "groups"):
        assert Portable().stored(file, name) == file.object(name)
        assert Portable().decoded(file, name) == file.object(name)


def test_an_unknown_encoding_is_kept_within_a_form() -> None:
    made = draft("1.2.0")
    made.component("packed")["encoding"] = "lz4"
    file = open_file(made.to_bytes())
    assert Portable().decoded(file, "packed") == file.object("packed")
    # digests of 2.x cover decoded bytes
    with refused(UnsupportedError, Reason.UNKNOWN_ENCODING):
        Portable(Emitter21.form).decoded(file, "packed")
