from __future__ import annotations

import pytest

from ztensor.model.dtype import LOGICAL_TYPES
from ztensor.model.manifest import Component, TensorObject, WrittenObjects

LIKE = TensorObject(
    (4, 16), "dense", {"data": Component("f32", 0, 256, digest="crc32c:0x00000000")}
)
OTHER = TensorObject((2,), "dense", {"data": Component("i8", 64, 2)})


def written(*names: str) -> WrittenObjects:
    objects = WrittenObjects()
    objects.rows.likes.append(LIKE)
    for name in names:
        add_row(objects, name)
    return objects


def add_row(objects: WrittenObjects, name: str) -> None:
    rows = objects.rows
    rows.names.append(name)
    rows.kinds.append(0)
    rows.offsets.append(64 * len(rows.names))
    rows.digests.append(f"crc32c:0x{len(rows.names):08X}")


def test_a_row_is_an_object_like_its_like() -> None:
    found = written("a", "b")["b"]
    assert (found.shape, found.format) == (LIKE.shape, "dense")
    assert found.components["data"] == Component("f32", 128, 256, digest="crc32c:0x00000002")


def test_the_order_is_that_of_writing() -> None:
    objects = written("z", "y")
    objects["m"] = OTHER
    add_row(objects, "a")
    objects["b"] = OTHER
    assert list(objects) == ["z", "y", "m", "a", "b"]
    assert len(objects) == 5
    assert [objects.row_of(name) for name in objects] == [0, 1, None, 2, None]


def test_names_are_found_as_they_come() -> None:
    objects = written("a")
    assert "a" in objects
    assert "b" not in objects
    assert not objects.__contains__(3)
    add_row(objects, "b")
    assert "b" in objects
    with pytest.raises(KeyError):
        objects["c"]


def test_what_is_no_row_can_go_again() -> None:
    objects = written("a")
    objects["m"] = OTHER
    objects["m"] = LIKE
    assert objects["m"] is LIKE
    del objects["m"]
    assert list(objects) == ["a"]


def test_a_row_stays_as_it_is() -> None:
    objects = written("a")
    with pytest.raises(KeyError):
        objects["a"] = OTHER
    with pytest.raises(KeyError):
        del objects["a"]


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
