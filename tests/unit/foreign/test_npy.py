""".npy at the edges of its header's numbers, and every element type by NumPy's name for it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.corpus.foreign.make_npz import header, npy
from tests.unit.foreign.exported import exported
from ztensor.errors import FormatError, Reason
from ztensor.foreign import npy as module
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.source.memory import MemorySource

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture
def anew() -> ModuleType:
    """The module as it is when it has just been read, its tables made at that moment."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


READ = {
    "|b1": ("bool", None),
    "|i1": ("i8", None),
    "<i1": ("i8", None),
    "|u1": ("u8", None),
    "<i2": ("i16", None),
    "<u2": ("u16", None),
    "<f2": ("f16", None),
    "<i4": ("i32", None),
    "<u4": ("u32", None),
    "<f4": ("f32", None),
    "<i8": ("i64", None),
    "<u8": ("u64", None),
    "<f8": ("f64", None),
    "<c8": ("f32", "complex64"),
    "<c16": ("f64", "complex128"),
    "<b2": ("<b2", None),
    "bfloat16": ("bf16", None),
    "float8_e4m3fn": ("u8", "f8_e4m3fn"),
    "float8_e5m2": ("u8", "f8_e5m2"),
    "float8_e8m0fnu": ("u8", "f8_e8m0"),
    "complex64": ("complex64", None),  # NumPy has its own word
    "float4_e2m1fn": ("float4_e2m1fn", None),  # nothing tells whether they are packed
}


def test_every_element_type_is_read(anew: ModuleType) -> None:
    found = {}
    for descr in READ:
        one = anew.parse_header(memoryview(npy(header(f"'{descr}'"))))
        found[descr] = one.dtype, one.type
    assert found == READ


WRITTEN = {
    "bool": "|b1",
    "int8": "|i1",
    "uint8": "|u1",
    "int16": "<i2",
    "uint16": "<u2",
    "float16": "<f2",
    "int32": "<i4",
    "uint32": "<u4",
    "float32": "<f4",
    "int64": "<i8",
    "uint64": "<u8",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
}


def test_every_element_type_is_written(anew: ModuleType) -> None:
    found = {}
    for dtype in WRITTEN:
        with ztensor.open(ztensor.numpy.save({"array": np.zeros(3, dtype)})) as reader:
            written, lost = exported(reader, anew)
        assert lost == []
        found[dtype] = written[10:].split(b"'")[3].decode()
    assert found == WRITTEN
    with ztensor.open(ztensor.numpy.save({"array": np.zeros(3, ml_dtypes.bfloat16)})) as reader:
        written, lost = exported(reader, anew)
    assert b"'<u2'" in written
    assert len(lost) == 1


@pytest.mark.parametrize("more", [0, 1])
def test_a_header_has_ten_thousand_bytes_at_most(more: int) -> None:
    text = header().rstrip("\n").ljust(10_000 + more - 1) + "\n"
    data = npy(text, b"abcd")
    if not more:
        with ztensor.open(data) as reader:
            assert reader["array"].tolist() == [97, 98, 99, 100]
        return
    with pytest.raises(FormatError) as caught:
        ztensor.open(data)
    assert caught.value.reason is Reason.MANIFEST_SIZE


@pytest.mark.parametrize("more", [-1, 0])
def test_a_dimension_has_63_bits(more: int) -> None:
    """Also beside one of 0, where no byte is needed."""
    largest = (1 << 63) + more
    data = npy(header(shape=f"(0, {largest})"))
    if more < 0:
        with ztensor.open(data) as reader:
            assert reader.metadata("array").shape == (0, largest)
        return
    with pytest.raises(FormatError) as caught:
        ztensor.open(data)
    assert caught.value.reason is Reason.FIELD_TYPE


@pytest.mark.parametrize(
    ("shape", "encoding"),
    [((), "raw"), ((4,), "raw"), ((1, 4), "raw"), ((4, 1, 1), "raw"), ((2, 2), "fortran")],
)
def test_only_what_lies_in_another_order_is_put_into_ours(
    shape: tuple[int, ...], encoding: str
) -> None:
    """Along one axis both orders are the same: such an array is mapped."""
    size = int(np.prod(shape))
    data = npy(header(order="True", shape=str(shape)), bytes(range(size)))
    told = module.project(MemorySource(data), Budget(DEFAULT_LIMITS, len(data))).manifest
    component = told.objects["array"].components["data"]
    assert (component.encoding, component.known_decoded_length) == (encoding, size)
    assert component.decoded_length == (None if encoding == "raw" else size)
    with ztensor.open(data) as reader:
        expected = np.arange(size, dtype=np.uint8).reshape(shape, order="F")
        np.testing.assert_array_equal(reader["array"], expected)


@pytest.mark.parametrize("rank", [64, 65])
def test_numpy_has_64_dimensions(rank: int) -> None:
    shape = (*[1] * (rank - 1), 4)
    with ztensor.open(npy(header(shape=str(shape)), b"abcd")) as reader:
        written, lost = exported(reader, module)
    with ztensor.open(written) as again:
        assert again.metadata("array").shape == (shape if rank == 64 else (4,))
    assert lost == ([] if rank == 64 else ["NumPy has no 65 dimensions: it is written flat"])
