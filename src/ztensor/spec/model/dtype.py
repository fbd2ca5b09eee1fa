"""Storage types, logical types and their sizes; names only, no array library.

A storage type (`dtype`) fixes the width of an element; a logical type (`type`) gives the elements
a meaning (1.2 section 2). Storage types are a closed set of thirteen; logical types are an open
registry: `register_logical_type` adds one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ztensor.arguments import require_kind
from ztensor.errors import ArgumentValueError, describe
from ztensor.registry import Registry


class StorageType(NamedTuple):
    """One of the thirteen storage types.

    Attributes:
        name: the specification's word since 1.1, such as `f32`.
        long_name: the word of 0.1 and of array libraries, such as `float32`.
        width: bytes per element.
        kind: `f` float, `i` signed, `u` unsigned, `b` boolean.
    """

    name: str
    long_name: str
    width: int
    kind: str


STORAGE_TYPES: dict[str, StorageType] = {
    short: StorageType(short, long, width, kind)
    for short, long, width, kind in (
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
    )
}

BY_LONG_NAME = {storage.long_name: storage for storage in STORAGE_TYPES.values()}

_MOST_ELEMENTS = 1 << 80  # more than any file holds: its offsets and lengths have 64 bits


class LogicalType(NamedTuple):
    """A meaning of storage elements (1.2 section 2, Logical types).

    One logical element takes `storage_per_element / elements_per_storage` storage elements:
    1/1 for fp8, 2/1 for complex numbers, 1/2 for two 4-bit values in a byte, 3/4 for four 6-bit
    values in three bytes.

    Attributes:
        name: the specification's word, such as `f8_e4m3fn`.
        dtype: name of the storage type that the logical type is defined on.
        long_name: the word array libraries use, such as `float8_e4m3fn`.
        storage_per_element: storage elements per logical element.
        elements_per_storage: logical elements packed into `storage_per_element` storage elements of
            a byte, the first in the lowest bits; 1 if they are not packed.
    """

    name: str
    dtype: str
    long_name: str
    storage_per_element: int = 1
    elements_per_storage: int = 1

    @property
    def bits(self) -> int:
        """Return the bits of a packed element."""
        return 8 * self.storage_per_element // self.elements_per_storage

    def storage_count(self, count: int) -> int:
        """Return the number of storage elements for `count` logical ones; the last is padded."""
        return -(-count * self.storage_per_element // self.elements_per_storage)


LOGICAL_TYPES: Registry[str, LogicalType] = Registry(
    {
        logical.name: logical
        for logical in (
            # 1.2 section 2, simple types
            LogicalType("f8_e4m3fn", "u8", "float8_e4m3fn"),
            LogicalType("f8_e5m2", "u8", "float8_e5m2"),
            LogicalType("f8_e4m3fnuz", "u8", "float8_e4m3fnuz"),
            LogicalType("f8_e5m2fnuz", "u8", "float8_e5m2fnuz"),
            # 1.2 section 2, compound types
            LogicalType("complex64", "f32", "complex64", storage_per_element=2),
            LogicalType("complex128", "f64", "complex128", storage_per_element=2),
            # Open extensions, under the names later releases use.
            LogicalType("f8_e8m0", "u8", "float8_e8m0fnu"),
            LogicalType("f4_e2m1", "u8", "float4_e2m1fn", elements_per_storage=2),
            # Open extensions without a name elsewhere. 1.1 has a word f8_e4m3, for f8_e4m3fn.
            LogicalType("f8_e4m3_ieee", "u8", "float8_e4m3"),
            LogicalType("f8_e3m4", "u8", "float8_e3m4"),
            LogicalType("f6_e2m3", "u8", "float6_e2m3fn", 3, 4),
            LogicalType("f6_e3m2", "u8", "float6_e3m2fn", 3, 4),
            LogicalType("int4", "u8", "int4", elements_per_storage=2),
            LogicalType("uint4", "u8", "uint4", elements_per_storage=2),
            LogicalType("int2", "u8", "int2", elements_per_storage=4),
            LogicalType("uint2", "u8", "uint2", elements_per_storage=4),
        )
    },
    group="ztensor.logical_types",
    kind=LogicalType,
)


def register_logical_type(logical: LogicalType) -> None:
    """Add a logical type to the open registry.

    Raises:
        ArgumentValueError: the name is taken, or `dtype` is not a storage type.
    """
    require_kind("logical", logical, LogicalType, "a ztensor.LogicalType")
    if logical.name in LOGICAL_TYPES or logical.name in STORAGE_TYPES:
        raise ArgumentValueError(f"the logical type {describe(logical.name)} is already registered")
    if logical.dtype not in STORAGE_TYPES:
        raise ArgumentValueError(
            f"the logical type {describe(logical.name)} names no storage type",
            expected=f"one of {', '.join(STORAGE_TYPES)}",
            found=describe(logical.dtype),
        )
    LOGICAL_TYPES[logical.name] = logical


def element_count(shape: Sequence[int]) -> int:
    """Return the product of the dimensions; 1 for the scalar shape `()`.

    Multiplication stops at a product beyond the size of any file: the result is then too large,
    but not exact. A shape of many huge dimensions would otherwise take quadratic time.
    """
    if 0 in shape:
        return 0
    count = 1
    for dimension in shape:
        count *= dimension
        if count > _MOST_ELEMENTS:
            break
    return count


def decoded_size(dtype: str, logical: str | None, shape: Sequence[int]) -> int | None:
    """Return the size in bytes of dense elements (1.2 section 2, Computing data size).

    None for an unknown storage type, and for an unknown logical type, which may pack its elements
    in any ratio.
    """
    storage = STORAGE_TYPES.get(dtype)
    if storage is None:
        return None
    if logical is None:
        return element_count(shape) * storage.width
    known = LOGICAL_TYPES.get(logical)
    if known is None or known.dtype != dtype:
        return None
    return known.storage_count(element_count(shape)) * storage.width
