"""HDF5 files that are written: what comes back as it was, and what is said where it does not."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.foreign import hdf5
from ztensor.source.stream import StreamSink
from ztensor.testing.builder import draft

h5py = pytest.importorskip("h5py", reason="h5py, which writes the files, is not installed")


def export(content: bytes) -> tuple[bytes, list[tuple[str | None, str]]]:
    lost: list[tuple[str | None, str]] = []
    buffer = io.BytesIO()
    sink = StreamSink(buffer)
    hdf5.export(ztensor.open(content), sink, lose=lambda name, what: lost.append((name, what)))
    sink.commit()
    return buffer.getvalue(), lost


def with_attributes(**attributes: Any) -> bytes:
    buffer = io.BytesIO()
    with ztensor.Writer(buffer, attributes=attributes) as writer:
        writer.write("a", np.ones(2))
    return buffer.getvalue()


@pytest.mark.parametrize("value", [1.5, [1.5, -2.0], 3, [3, 4], "text", True, [[1.5], [2.5]]])
def test_an_attribute_comes_back_as_it_was(value: Any) -> None:
    data, lost = export(with_attributes(key=value))
    assert lost == []
    assert ztensor.open(data).attributes == {"key": value}


def test_bytes_that_come_back_as_text_are_said_to() -> None:
    text = "longer than a number"
    data, ((name, what),) = export(with_attributes(key=[text.encode()]))
    assert name is None
    assert what == f"the attribute 'key' becomes ['{text}']"
    assert ztensor.open(data).attributes == {"key": [text]}


@pytest.mark.parametrize("rank", [32, 33])
def test_a_dataset_has_as_many_axes_as_hdf5_allows(rank: int) -> None:
    made = draft("1.2.0")
    made.add("t", [1] * rank, {"data": ({"dtype": "f32"}, b"\0\0\xc0\x3f")})
    data, lost = export(made.to_bytes())
    with h5py.File(io.BytesIO(data)) as file:
        if rank == 32:
            assert "t" not in dict(lost)
            assert file["t"].shape == (1,) * 32
        else:
            assert "t" in dict(lost)
            assert file["t/data"][...].tolist() == [1.5]
            assert "ztensor.shape" not in file["t"].attrs


@pytest.mark.parametrize("rank", [2, 32, 33])
def test_the_shape_of_another_layout_is_kept_as_a_note(rank: int) -> None:
    made = draft("1.2.0")
    parts = {"values": ({"dtype": "f32"}, bytes(4)), "coords": ({"dtype": "u64"}, bytes(8 * rank))}
    made.add("t", [1] * rank, parts, format="sparse_coo")
    data, lost = export(made.to_bytes())
    assert "t" in dict(lost)
    with h5py.File(io.BytesIO(data)) as file:
        attributes = dict(file["t"].attrs)
        assert file["t/coords"].shape == (rank,)
    assert attributes.pop("ztensor.format") == "sparse_coo"
    assert [value.tolist() for value in attributes.values()] == ([[1] * rank] if rank < 33 else [])
