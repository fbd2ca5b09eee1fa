"""HDF5 as the first releases wrote it: lengths that are not said, and the old fill value."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.hdf5_files import made
from tests.refusals import refused
from ztensor.errors import Reason

h5py = pytest.importorskip("h5py", reason="h5py, which writes the files, is not installed")


def low(file: Any, name: str, kind: Any, shape: tuple[int, ...], **how: Any) -> Any:
    """Create a dataset by h5py's lower half, which can say more."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    for key, value in how.items():
        getattr(creation, f"set_{key}")(value)
    return h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape), creation)


def message_of(data: bytes, kind: int, length: int) -> int:
    """Return where the body of the only message of its kind and length begins."""
    head = struct.pack("<HH", kind, length)
    places = [at for at in range(0, len(data) - 8, 8) if data[at : at + 4] == head]
    (place,) = places
    return place + 8


def patched(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


@pytest.mark.parametrize("version", [1, 2])
def test_data_whose_length_old_files_do_not_say(version: int) -> None:
    """The first layouts have the axes in place of the length."""
    array = np.arange(6, dtype="<i2").reshape(2, 3)
    data = made(lambda file: file.create_dataset("a", data=array))
    at = message_of(data, 8, 24)
    (address,) = struct.unpack_from("<Q", data, at + 2)
    old = struct.pack("<BBB5xQII", version, 2, 1, address, 2, 3)
    changed = patched(data, at, old)
    with h5py.File(io.BytesIO(changed)) as file:
        assert np.array_equal(file["a"][...], array)
    reader = ztensor.open(changed)
    assert np.array_equal(reader["a"], array)
    assert reader.metadata("a").components["data"].encoding == "raw"


def test_compact_data_of_the_oldest_layout_may_end_with_its_message() -> None:
    """HDF5 before 1.6.3 wrote version 1: rank and class, the dimensions, the length, the data."""
    array = np.arange(2, dtype="<i4")
    data = made(lambda file: file.create_dataset("a", data=array))
    at = message_of(data, 8, 24)
    for length in (8, 9):
        compact = struct.pack("<BBB5xII", 1, 1, 0, 2, length) + array.tobytes()
        changed = patched(data, at, compact)
        if length == 8:
            assert ztensor.open(changed)["a"].tolist() == [0, 1]
        else:
            with refused(ztensor.FormatError, Reason.FIELD_VALUE):
                ztensor.open(changed)


@pytest.mark.parametrize("length", [1, 11, 13, 24])
def test_data_is_as_long_as_its_shape_needs(length: int) -> None:
    data = made(lambda file: file.create_dataset("a", data=np.arange(6, dtype="<i2")))
    at = message_of(data, 8, 24) + 10
    assert struct.unpack_from("<Q", data, at) == (12,)
    with refused(ztensor.FormatError, Reason.OUT_OF_BOUNDS):
        ztensor.open(patched(data, at, struct.pack("<Q", length)))


def test_data_ends_with_the_file_and_no_later() -> None:
    data = made(lambda file: file.create_dataset("a", data=np.arange(6, dtype="<i2")))
    at = message_of(data, 8, 24) + 2
    end = len(data) - 12
    moved = patched(data, at, struct.pack("<Q", end))
    assert ztensor.open(moved)["a"].tobytes() == moved[end:]
    with refused(ztensor.FormatError, Reason.OUT_OF_BOUNDS):
        ztensor.open(patched(data, at, struct.pack("<Q", end + 1)))


def test_the_fill_value_of_the_first_files() -> None:
    """Files of today have the same in two messages; the first ones have one of them."""

    def fill(file: Any) -> None:
        low(file, "a", h5py.h5t.STD_I32LE, (3,), fill_value=np.array(7, "<i4"))

    data = made(fill)
    new = message_of(data, 5, 16) - 8
    old = message_of(data, 4, 8) - 8
    assert data[old + 8 : old + 16] == struct.pack("<ii", 4, 7)
    without_new = patched(data, new, b"\0")
    differing = patched(data, old + 12, struct.pack("<i", 9))
    for changed, expected in ((data, 7), (without_new, 7), (differing, 7)):
        assert ztensor.open(changed)["a"].tolist() == [expected] * 3
    assert ztensor.open(patched(differing, new, b"\0"))["a"].tolist() == [9] * 3
    neither = patched(without_new, old, b"\0")
    assert ztensor.open(neither)["a"].tolist() == [0] * 3
