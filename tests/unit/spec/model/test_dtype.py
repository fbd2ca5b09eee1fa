from __future__ import annotations

import numpy as np
import pytest

from tests.refusals import refused
from ztensor import LogicalType, register_logical_type
from ztensor.errors import ArgumentValueError, Reason
from ztensor.ext import BY_LONG_NAME, LOGICAL_TYPES, STORAGE_TYPES, element_count, numpy_dtype


@pytest.mark.parametrize(
    ("name", "long_name", "width", "kind"),
    [
        ("f64", "float64", 8, "f"),
        ("f32", "float32", 4, "f"),
        ("f16", "float16", 2, "f"),
        ("bf16", "bfloat16", 2, "f"),
        ("i64", "int64", 8, "i"),
        ("i32", "int32", 4, "i"),
        ("i16", "int16", 2, "i"),
        ("i8", "int8", 1, "i"),
        ("u64", "uint64", 8, "u"),
        ("u32", "uint32", 4, "u"),
        ("u16", "uint16", 2, "u"),
        ("u8", "uint8", 1, "u"),
        ("bool", "bool", 1, "b"),
    ],
)
def test_storage_types(name: str, long_name: str, width: int, kind: str) -> None:
    storage = STORAGE_TYPES[name]
    assert (storage.name, storage.long_name) == (name, long_name)
    assert (storage.width, storage.kind) == (width, kind)
    assert BY_LONG_NAME[long_name] is storage
    assert numpy_dtype(long_name).itemsize == width


@pytest.mark.parametrize(
    ("name", "dtype", "counts"),
    [
        ("f8_e4m3fn", "u8", {0: 0, 1: 1, 7: 7}),
        ("f8_e5m2", "u8", {3: 3}),
        ("f8_e4m3fnuz", "u8", {3: 3}),
        ("f8_e5m2fnuz", "u8", {3: 3}),
        ("f8_e8m0", "u8", {3: 3}),
        ("f4_e2m1", "u8", {0: 0, 1: 1, 2: 1, 3: 2, 2**70: 2**69}),
        ("complex64", "f32", {0: 0, 3: 6}),
        ("complex128", "f64", {3: 6}),
    ],
)
def test_logical_types(name: str, dtype: str, counts: dict[int, int]) -> None:
    logical = LOGICAL_TYPES[name]
    assert logical.dtype == dtype
    assert {count: logical.storage_count(count) for count in counts} == counts
    bits = 8 * numpy_dtype(logical.long_name).itemsize
    storage_bits = 8 * STORAGE_TYPES[dtype].width * logical.storage_per_element
    assert bits in (storage_bits, storage_bits * logical.elements_per_storage)


@pytest.mark.usefixtures("registry")
def test_a_type_can_be_registered_once() -> None:
    mine = LogicalType("my_int16", "i16", "int16")
    register_logical_type(mine)
    assert LOGICAL_TYPES["my_int16"] is mine
    with pytest.raises(ArgumentValueError):
        register_logical_type(mine)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    "logical",
    [
        LogicalType("complex64", "f32", "complex64"),
        LogicalType("f32", "f32", "float32"),
        LogicalType("mine", "float32", "float32"),
        LogicalType("mine", "f128", "float32"),
    ],
    ids=["taken", "a storage type's name", "long name of the storage type", "no storage type"],
)
def test_an_invalid_logical_type_is_not_registered(logical: LogicalType) -> None:
    before = dict(LOGICAL_TYPES)
    with refused(ArgumentValueError, Reason.ARGUMENT):
        register_logical_type(logical)
    assert before == LOGICAL_TYPES


@pytest.mark.parametrize(
    ("shape", "count"),
    [((), 1), ((0,), 0), ((2, 3), 6), ((5, 0, 7), 0), ((2**63, 2**63), 2**126), ([2, 2], 4)],
)
def test_element_count(shape: tuple[int, ...], count: int) -> None:
    assert element_count(shape) == count
    if count < 100:
        assert element_count(shape) == np.empty(shape).size
