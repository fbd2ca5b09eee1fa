from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import (
    FormatError,
    LayoutError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
)
from ztensor.ext import (
    LOGICAL_TYPES,
    Blocks,
    Component,
    numpy_dtype,
    result_dtype,
    spell,
    typed_array,
)
from ztensor.spec.layout import elements

stored_form = Blocks.whole
is_stored_as_is = elements.is_stored_as_is


def component(dtype: str, type: str | None = None, **more: Any) -> Component:
    return Component(dtype, 64, 0, type, **more)


_BITS = {
    "f8_e4m3_ieee": 8, "f8_e3m4": 8, "f6_e2m3": 6, "f6_e3m2": 6, "f4_e2m1": 4,
    "int4": 4, "uint4": 4, "int2": 2, "uint2": 2,
}  # fmt: skip


@pytest.mark.parametrize(("name", "bits"), _BITS.items())
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 256])
def test_values_of_few_bits_share_bytes_the_first_in_the_lowest_bits(
    name: str, bits: int, count: int
) -> None:
    """Every pattern means what it means to ml_dtypes."""
    dtype = numpy_dtype(LOGICAL_TYPES[name].long_name)
    patterns = np.resize(np.arange(1 << bits, dtype=np.uint8), count)
    array = patterns.view(dtype)
    number = sum(int(pattern) << bits * place for place, pattern in enumerate(patterns))
    nbytes = -(-count * bits // 8)
    packed = stored_form(array)
    assert packed.tobytes() == number.to_bytes(nbytes, "little")
    back = typed_array(component("u8", name), packed)
    assert (back.dtype, back.size) == (dtype, 8 * nbytes // bits)
    assert back[:count].astype(np.float64).tobytes() == array.astype(np.float64).tobytes()


def test_invalid_bools_keep_their_bytes_since_1_0() -> None:
    """They are damage, which `verify` reports; reading changes nothing."""
    array = typed_array(component("bool"), memoryview(b"\x00\x02"))
    assert array.view(np.uint8).tolist() == [0, 2]


@pytest.mark.parametrize("type", ["f4_e2m1", "complex64", "f8_e5m2"])
def test_a_logical_type_on_other_storage(type: str) -> None:
    for check in (lambda c: typed_array(c, memoryview(bytes(8))), result_dtype):
        with refused(LayoutError, Reason.TYPE_MISMATCH):
            check(component("i16", type))


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is double here")
@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_long_doubles_differ_from_machine_to_machine(dtype: type) -> None:
    with pytest.raises(NotRepresentableError, match="astype"):
        spell(np.dtype(dtype))


@pytest.mark.parametrize("value", [2, 255])
def test_a_byte_that_is_not_a_bool_is_named_with_its_position(value: int) -> None:
    elements.require_bools(np.array([0, 1, 1, 0], np.uint8), 10)
    elements.require_bools(np.array([], np.uint8), 10)
    with refused(FormatError, Reason.BOOL_VALUE, match=f"{value:#04x} at position 13"):
        elements.require_bools(np.array([1, 0, 1, value, 7], np.uint8), 10)


SHAPES = [(), (1,), (0, 5), (7,), (400,), (3, 5), (9, 15), (4, 1000), (3, 1001), (1, 3, 700)]
ORDERS: dict[str, Any] = {
    "as they are": lambda array: array,
    "transposed": lambda array: array.T,
    "backwards": lambda array: array[::-1] if array.ndim else array,
    "last axis first": lambda array: np.moveaxis(array, -1, 0) if array.ndim else array,
    "every second": lambda array: array[..., ::2] if array.ndim else array,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["uint8", "float32", ">i4", "float4_e2m1fn"])
def test_an_array_comes_in_blocks_without_a_second_one(order: str, dtype: str) -> None:
    """Copies are short, except if a row of 4-bit values ends within a byte."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for shape in SHAPES:
        numbers = np.arange(np.prod(shape)).reshape(shape) % 7
        array = ORDERS[order](numbers.astype(np.float32).astype(kind))
        pieces = list(Blocks.of(array, most=256))
        assert b"".join(pieces) == stored_form(array).tobytes()
        if array.flags.c_contiguous and is_stored_as_is(kind):
            assert len(pieces) == (array.size > 0)
        made = [len(piece) for piece in pieces if not np.shares_memory(piece, array)]
        row = array[0] if array.ndim and array.size else array
        is_odd = kind.itemsize == 1 and row.size % 2
        assert max(made, default=0) <= max(256, 2 * row.nbytes if is_odd else 0)


@pytest.mark.parametrize("name", ["float9", "", "\ud800", "__doc__ "])
def test_an_unknown_element_type_is_refused(name: str) -> None:
    with refused(UnsupportedError, Reason.UNKNOWN_TYPE, match="neither NumPy nor ml_dtypes"):
        numpy_dtype(name)
