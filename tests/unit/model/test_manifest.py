from __future__ import annotations

import pytest

from ztensor.model.dtype import LOGICAL_TYPES
from ztensor.model.manifest import Component, TensorObject, WrittenObjects

KIND = TensorObject(
    (4, 16), "dense", {"data": Component("f32", 0, 256, digest="crc32c:0x00000000")}
)
OTHER = TensorObject((2,), "dense", {"data": Component("i8", 64, 2)})


def test_an_object_of_a_kind_has_its_own_place_and_digest() -> None:
    objects = WrittenObjects({"m": OTHER})
    objects.kinds.append(KIND)
    objects.entries["b"] = 0, 128, "crc32c:0x00000002"
    objects["a"] = OTHER
    assert list(objects) == ["m", "b", "a"]
    assert (len(objects), "b" in objects, "c" in objects) == (3, True, False)
    found = objects["b"]
    assert (found.shape, found.format) == (KIND.shape, "dense")
    assert found.components["data"] == Component("f32", 128, 256, digest="crc32c:0x00000002")
    del objects["b"]
    assert dict(objects) == {"m": OTHER, "a": OTHER}
    with pytest.raises(KeyError):
        objects["b"]


@pytest.mark.parametrize("dtype", ["bool", "u8", "f32"])
@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("any_is_true", [False, True])
def test_only_bools_are_looked_at(dtype: str, is_exact: bool, any_is_true: bool) -> None:
    one = Component(dtype, 0, 4, is_exact=is_exact, nonzero_is_true=any_is_true)
    assert one.has_checked_bools is (dtype == "bool" and is_exact)
    assert one.has_free_bools is (dtype == "bool" and any_is_true)


@pytest.mark.parametrize(
    ("encoding", "told", "known"),
    [("raw", None, 256), ("raw", 9, 256), ("zstd", None, None), ("zstd", 9, 9), ("zstd", 0, 0)],
)
def test_the_decoded_length_of_raw_bytes_is_their_length(
    encoding: str, told: int | None, known: int | None
) -> None:
    one = Component("f32", 0, 256, encoding=encoding, decoded_length=told)
    assert one.known_decoded_length == known


def test_a_logical_type_is_that_of_its_name() -> None:
    assert Component("f32", 0, 8).logical is None
    assert Component("f32", 0, 8, "complex64").logical is LOGICAL_TYPES["complex64"]
    assert Component("f32", 0, 8, "unheard of").logical is None
