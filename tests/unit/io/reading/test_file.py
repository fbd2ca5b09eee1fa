"""One open file: its objects, padding, and words that are unknown."""

from __future__ import annotations

import numpy as np
import pytest

import ztensor
from ztensor.errors import LayoutError, ManifestError, Reason
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
