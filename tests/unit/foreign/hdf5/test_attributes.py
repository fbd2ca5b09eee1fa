"""Attributes and texts of HDF5, at the edges of what is kept as a note about a file."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.foreign.hdf5.parts import window_of
from ztensor.errors import FormatError, Reason, UnsupportedError
from ztensor.foreign.hdf5.attributes import shared_address

MIB = 1 << 20


def opened(fill: Callable[[Any, Any], object], **limits: int) -> ztensor.Reader:
    h5py = pytest.importorskip("h5py", reason="h5py, which writes the files, is not installed")
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver="latest") as file:
        fill(h5py, file)
    return ztensor.open(buffer.getvalue(), limits=ztensor.Limits(**limits))


@pytest.mark.parametrize("length", [MIB, MIB + 1])
def test_a_value_of_a_mebibyte_is_kept_and_a_longer_one_named(length: int) -> None:
    def fill(h5py: Any, file: Any) -> None:
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(length)
        kind.set_strpad(h5py.h5t.STR_NULLPAD)
        value = np.array(b"x" * length, f"S{length}")
        attribute = h5py.h5a.create(file.id, b"a", kind, h5py.h5s.create(h5py.h5s.SCALAR))
        attribute.write(value, kind)

    reader = opened(fill)
    named = [(one.kind, one.where) for one in reader.unrepresented]
    if length == MIB:
        assert (reader.attributes, named) == ({"a": "x" * MIB}, [])
    else:
        assert (reader.attributes, named) == ({}, [("attribute", "a")])


@pytest.mark.parametrize("inner", [(), (1,), (1, 1)])
def test_lists_nest_as_deep_as_an_array_of_hdf5(inner: tuple[int, ...]) -> None:
    """An attribute may have 32 axes, and its elements may be arrays for themselves."""

    def fill(h5py: Any, file: Any) -> None:
        kind = h5py.h5t.array_create(h5py.h5t.STD_I32LE, inner) if inner else h5py.h5t.STD_I32LE
        space = h5py.h5s.create_simple((1,) * 31)
        shape = (1,) * 31 + inner
        h5py.h5a.create(file.id, b"a", kind, space).write(np.full(shape, 7, "<i4"), kind)

    reader = opened(fill)
    if len(inner) == 2:
        assert reader.attributes == {}
        assert [(one.kind, one.where) for one in reader.unrepresented] == [("attribute", "a")]
    else:
        expected: object = 7
        for _ in range(31 + len(inner)):
            expected = [expected]
        assert reader.attributes == {"a": expected}


@pytest.mark.parametrize(("dtype", "is_cheap"), [("u1", True), ("<u2", False)])
def test_numbers_of_a_byte_cost_less_memory(dtype: str, is_cheap: bool) -> None:
    """As Python's lists have them: there is one object for each of the small numbers."""

    def fill(_: Any, file: Any) -> None:
        file.attrs["a"] = np.ones(60_000, dtype)

    if is_cheap:
        assert opened(fill, cost_floor=MIB).attributes == {"a": [1] * 60_000}
    else:
        with pytest.raises(ztensor.LimitError) as caught:
            opened(fill, cost_floor=MIB)
        assert caught.value.reason == Reason.LIMIT_COST


@pytest.mark.parametrize(
    ("padding", "data", "expected"),
    [
        ("NULLTERM", b"ab\0cd\0", "ab"),
        ("NULLTERM", b"ab  \0", "ab  "),
        ("NULLPAD", b"ab\0cd\0", "ab\0cd"),
        ("NULLPAD", b"ab  \0", "ab  "),
        ("SPACEPAD", b"ab\0cd\0", "ab\0cd\0"),
        ("SPACEPAD", b"ab cd   ", "ab cd"),
    ],
)
def test_what_is_behind_the_end_of_a_text(padding: str, data: bytes, expected: str) -> None:
    def fill(h5py: Any, file: Any) -> None:
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(len(data))
        kind.set_strpad(getattr(h5py.h5t, f"STR_{padding}"))
        attribute = h5py.h5a.create(file.id, b"a", kind, h5py.h5s.create(h5py.h5s.SCALAR))
        attribute.write(np.array(data, f"S{len(data)}"), kind)

    assert opened(fill).attributes == {"a": expected}


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_where_a_shared_message_is(version: int, kind: int) -> None:
    """Only the third version has a kind: in a heap (1), or in the header of an object (2)."""
    places = struct.pack("<6xQQ", 0, 500) if version == 1 else struct.pack("<Q", 500)
    body = bytes((version, kind)) + places
    window = window_of({}, 64)
    if version == 3 and kind != 2:
        with pytest.raises(UnsupportedError):
            shared_address(window, body)
    elif 1 <= version <= 3:
        assert shared_address(window, body) == 500
    else:
        with pytest.raises(FormatError, match="a shared message's version is unknown"):
            shared_address(window, body)
