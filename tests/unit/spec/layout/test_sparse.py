"""Sparse layouts: dense values, rules of 1.x and 2.x, and the problems that a manifest shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import LayoutError, Reason
from ztensor.ext import LAYOUTS, Component, TensorObject, View
from ztensor.spec.layout import sparse

CSR: Any = LAYOUTS["sparse_csr"]
COO: Any = LAYOUTS["sparse_coo"]


def csr(
    indptr: Any, indices: Any, values: Any, shape: tuple[int, ...] = (2, 3), dtype: Any = np.uint64
) -> View:
    arrays = {
        "indptr": np.array(indptr, dtype),
        "indices": np.array(indices, dtype),
        "values": np.array(values, np.float32),
    }
    return View(shape, arrays, {})


def coo(coords: Any, values: Any, shape: tuple[int, ...], dtype: Any = np.uint64) -> View:
    return View(shape, {"coords": np.array(coords, dtype), "values": np.array(values)}, {})


# --- Dense values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "view", "expected"),
    [
        (CSR, csr([0, 2, 3], [0, 2, 1], [1, 2, 3]), [[1, 0, 2], [0, 3, 0]]),
        (CSR, csr([0, 0, 3], [2, 0, 1], [1, 2, 3]), [[0, 0, 0], [2, 3, 1]]),  # any order
        (CSR, csr([0, 3, 3], [1, 1, 2], [1, 2, 4]), [[0, 3, 4], [0, 0, 0]]),  # repeated: added up
        (CSR, csr([0], [], [], (0, 3)), np.zeros((0, 3)).tolist()),
        (CSR, csr([0, 0], [], [], (1, 0)), [[]]),
        (COO, coo([0, 1, 2, 0], [5, 6], (2, 3)), [[0, 0, 5], [6, 0, 0]]),
        (COO, coo([0, 1, 1, 0, 0, 1], [5, 6], (2, 2, 2)), [[[0, 0], [5, 0]], [[0, 6], [0, 0]]]),
        (COO, coo([], [7], ()), 7),
        (COO, coo([], [7, 8], ()), 15),
        (COO, coo([], [], (0, 5)), []),
        *(
            (CSR, csr([0, 1, 2], [2, 0], [1, 2], dtype=dtype), [[0, 0, 1], [2, 0, 0]])
            for dtype in (np.int8, np.uint8, np.int64, np.uint16)
        ),
        (COO, coo([1, 0], [1, 2], (2,), np.int8), [2, 1]),
    ],
)
def test_dense_values(layout: Any, view: View, expected: Any) -> None:
    dense = layout.to_dense(view)
    assert dense.shape == view.shape
    assert dense.dtype == view.arrays["values"].dtype
    assert dense.tolist() == expected


@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.uint64, np.float16, np.complex64, bool, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_repeated_values_of_every_type_are_added_up(dtype: Any) -> None:
    values = np.array([1, 1, 0], np.float32).astype(dtype)
    dense = COO.to_dense(coo([1, 1, 0], values, (3,)))
    assert dense.dtype == values.dtype
    assert dense.astype(np.complex64).tolist() == [0, 1 if dtype is bool else 2, 0]


# --- Rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "view", "role", "reason"),
    [
        (CSR, csr([0, 1], [0], [1]), "indptr", Reason.LAYOUT_COUNT),
        (CSR, csr([1, 1, 1], [0], [1]), "indptr", Reason.INDEX_POINTERS),
        (CSR, csr([0, 2, 1], [0], [1]), "indptr", Reason.INDEX_POINTERS),
        (CSR, csr([0, 1, 2**64 - 1], [0], [1]), "indptr", Reason.INDEX_POINTERS),
        (CSR, csr([0, 1, 1], [3], [1]), "indices", Reason.INDEX_RANGE),
        (CSR, csr([0, 1, 1], [-1], [1], dtype=np.int32), "indices", Reason.INDEX_RANGE),
        (CSR, csr([0, 1, 1], [0, 1], [1]), "indices", Reason.LAYOUT_COUNT),
        (CSR, csr([0, 0, 0], [], [], (2,)), None, Reason.LAYOUT_RANK),
        (CSR, View((2, 3), {"values": np.zeros(0)}, {}), None, Reason.COMPONENT_MISSING),
        (COO, coo([2, 0], [1], (2, 3)), "coords", Reason.INDEX_RANGE),
        (COO, coo([-1, 0], [1], (2, 3), np.int8), "coords", Reason.INDEX_RANGE),
        (COO, coo([0], [1], (2, 3)), "coords", Reason.LAYOUT_COUNT),
        (COO, coo([0], [1], ()), "coords", Reason.LAYOUT_COUNT),
    ],
)
def test_a_broken_rule_is_named_with_its_component(
    layout: Any, view: View, role: str | None, reason: Reason
) -> None:
    for check in (layout.require_valid, layout.to_dense):
        with refused(LayoutError, reason) as caught:
            check(view)
        assert caught.value.component == role


@pytest.mark.parametrize(
    ("dtype", "bound", "wrong"),
    [
        (np.uint8, 255, 255),
        (np.uint8, 2**40, None),
        (np.int8, 2**40, -1),
        (np.uint64, 2**63, 2**63),
        (np.uint64, 2**64, None),
        (np.int64, 2**64, -1),
    ],
)
def test_a_bound_may_be_beyond_the_index_type(dtype: type, bound: int, wrong: int | None) -> None:
    indices: Any = np.array([0, min(bound - 1, np.iinfo(dtype).max)] * 600_000, dtype)
    watch = CSR.watch(View((1, bound), {}, {}), "indices", None)
    watch.feed(indices)
    if wrong is not None:
        indices[-1] = wrong  # behind the first million
        with refused(LayoutError, Reason.INDEX_RANGE) as caught:
            watch.feed(indices)
        assert caught.value.found == f"{wrong} at position {2 * indices.size - 1}"


@pytest.mark.parametrize("cuts", [(5,), (1, 4), (2, 3), (1, 1, 1, 1, 1), (0, 5, 0)], ids=str)
@pytest.mark.parametrize(
    ("pointers", "is_good"),
    [
        ([0, 1, 1, 3, 4], True),
        ([0, 1, 3, 2, 4], False),
        ([0, 2, 1, 3, 4], False),
        ([1, 1, 1, 3, 4], False),
        ([0, 1, 1, 3, 5], False),
    ],
)
def test_pointers_are_checked_block_by_block(
    cuts: tuple[int, ...], pointers: list[int], is_good: bool
) -> None:
    def run() -> None:
        watch = CSR.watch(View((4, 9), {}, {}), "indptr", None)
        rest = np.array(pointers, np.uint64)
        for cut in cuts:
            watch.feed(rest[:cut])
            rest = rest[cut:]
        watch.finish({"indptr": 5, "values": 4})

    if is_good:
        run()
        return
    with refused(LayoutError, Reason.INDEX_POINTERS):
        run()


# --- The manifest alone ---------------------------------------------------------------------


def component(count: int, dtype: str = "u64", type: str | None = None) -> Component:
    width = {"u64": 8, "f32": 4, "u8": 1, "i16": 2, "bool": 1}.get(dtype, 1)
    return Component(dtype, 64, count * width, type)


def packed(decoded: int | None, dtype: str = "u64") -> Component:
    return Component(dtype, 64, 9, None, "zstd", None, decoded)


def csr_object(shape: tuple[int, ...] = (2, 3), **changes: Component) -> TensorObject:
    parts = {
        "indptr": component(3),
        "indices": component(4),
        "values": component(4, "f32"),
        **changes,
    }
    return TensorObject(shape, "sparse_csr", parts)


@pytest.mark.parametrize(
    ("type", "indices", "nbytes", "is_right"),
    [
        ("f4_e2m1", component(5), 3, True),
        ("f4_e2m1", component(6), 3, True),
        ("f4_e2m1", component(4), 3, False),  # a byte too many
        ("f4_e2m1", component(7), 3, False),
        ("f4_e2m1", packed(None), 3, True),
        (None, component(5), 6, False),
    ],
)
def test_the_padding_of_the_last_byte_is_not_a_value(
    type: str | None, indices: Component, nbytes: int, is_right: bool
) -> None:
    values = Component("u8", 64, nbytes, type)
    problems = CSR.check_object(csr_object(indices=indices, values=values))
    assert [problem.reason for problem in problems] == [Reason.LAYOUT_COUNT] * (not is_right)


# --- 2.x: distinct positions, ascending columns ---------------------------------------------

LONG = 1 << 40
SHAPES = {
    "small": (3, 5),
    "one axis": (9,),
    "positions up to int64": ((1 << 63) - 1,),
    "positions beyond int64": (LONG, LONG),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_positions_are_distinct(shape: tuple[int, ...]) -> None:
    last = tuple(length - 1 for length in shape)
    middle, first = tuple(min(2, length) for length in last), (0,) * len(shape)

    def check(*places: tuple[int, ...]) -> None:
        coords = np.array(places, np.uint64).reshape(len(places), len(shape)).T
        sparse.require_entries_once("sparse_coo", coo(coords.reshape(-1), [1] * len(places), shape))

    for places in ([], [middle], [last, middle], [last, first, middle], [middle, last, first]):
        check(*places)
    for places in ([middle, middle], [last, middle, last], [first, last, last, middle]):
        with refused(LayoutError, Reason.INDEX_ORDER):
            check(*places)
    if len(shape) == 2:
        check((1, 1), (1, 2), (2, 1), (2, 2))  # equal along one axis only


@pytest.mark.parametrize("at", [1, 1 << 20, (1 << 20) + 1, (2 << 20) - 1])
def test_the_columns_of_a_row_ascend_across_blocks(at: int) -> None:
    """Rows of 2^20 and more columns: a fall is found wherever it is, unless a row begins there."""
    count = 2 << 20
    indices = np.arange(count, dtype=np.uint64)
    indices[at:] -= np.uint64(1)
    for middle in (at, at - 1):
        arrays = {"indices": indices, "indptr": np.array([0, middle, count], np.uint64)}
        view = View((2, count), arrays, {})
        if middle == at:
            sparse.require_entries_once("sparse_csr", view)
            continue
        with refused(LayoutError, Reason.INDEX_ORDER):
            sparse.require_entries_once("sparse_csr", view)
