from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import LayoutError, LimitError, Reason
from ztensor.spec.layout import LAYOUTS, View
from ztensor.spec.layout.sparse import (
    IndexWatch,
    PointerWatch,
    require_in_range,
    scatter,
)
from ztensor.spec.model.manifest import Component, TensorObject

CSR = LAYOUTS["sparse_csr"]
COO = LAYOUTS["sparse_coo"]


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


# --- To dense -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (csr([0, 2, 3], [0, 2, 1], [1, 2, 3]), [[1, 0, 2], [0, 3, 0]]),
        (csr([0, 0, 0], [], []), [[0, 0, 0], [0, 0, 0]]),
        (csr([0, 0, 3], [2, 0, 1], [1, 2, 3]), [[0, 0, 0], [2, 3, 1]]),  # any order
        (csr([0, 3, 3], [1, 1, 2], [1, 2, 4]), [[0, 3, 4], [0, 0, 0]]),  # repeated: added up
        (csr([0], [], [], (0, 3)), np.zeros((0, 3))),
        (csr([0, 0], [], [], (1, 0)), np.zeros((1, 0))),
    ],
    ids=["plain", "empty", "unsorted", "repeated", "no rows", "no columns"],
)
def test_rows(view: View, expected: Any) -> None:
    dense = CSR.to_dense(view)
    assert dense.dtype == np.float32
    assert dense.shape == view.shape
    assert dense.tolist() == np.array(expected).tolist()


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (coo([0, 1, 2, 0], [5, 6], (2, 3)), [[0, 0, 5], [6, 0, 0]]),
        (coo([1, 1, 0, 0], [5, 6], (2, 1)), [[0], [11]]),
        (coo([], [], (2,)), [0, 0]),
        (coo([3], [7], (4,)), [0, 0, 0, 7]),
        (coo([0, 1, 1, 0, 0, 1], [5, 6], (2, 2, 2)), [[[0, 0], [5, 0]], [[0, 6], [0, 0]]]),
        (coo([], [7], ()), 7),
        (coo([], [7, 8], ()), 15),
        (coo([], [], ()), 0),
        (coo([], [], (0, 5)), []),
    ],
    ids=["2-d", "repeated", "nothing", "1-d", "3-d", "scalar", "twice", "no scalar", "empty"],
)
def test_coordinates(view: View, expected: Any) -> None:
    dense = COO.to_dense(view)
    assert dense.shape == view.shape
    assert dense.tolist() == expected


@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.uint64, np.float16, np.complex64, bool, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_values_of_every_type_are_added_up(dtype: Any) -> None:
    values = np.array([1, 1, 0], np.float32).astype(dtype)
    axes = (np.array([1, 1, 0]),)
    dense = scatter((3,), axes, values)
    assert dense.dtype == values.dtype
    total = 1 if dtype is bool else 2
    assert dense.astype(np.complex64).tolist() == [0, total, 0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.uint16])
def test_any_integer_is_an_index(dtype: type) -> None:
    assert CSR.to_dense(csr([0, 1, 2], [2, 0], [1, 2], dtype=dtype)).tolist() == [
        [0, 0, 1],
        [2, 0, 0],
    ]
    assert COO.to_dense(coo([1, 0], [1, 2], (2,), dtype)).tolist() == [2, 1]


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**64 - 1, 2), (2**62,)], ids=str)
def test_a_dense_array_nobody_can_hold(shape: tuple[int, ...]) -> None:
    view = coo([1] * len(shape), [1.0], shape)
    COO.require_valid(view)
    with refused(LimitError, Reason.LIMIT_DECODED):
        COO.to_dense(view)


# --- Rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "role", "reason"),
    [
        (csr([0, 1], [0], [1]), "indptr", Reason.LAYOUT_COUNT),
        (csr([0, 1, 1, 1], [0], [1]), "indptr", Reason.LAYOUT_COUNT),
        (csr([1, 1, 1], [0], [1]), "indptr", Reason.INDEX_POINTERS),
        (csr([0, 2, 1], [0], [1]), "indptr", Reason.INDEX_POINTERS),
        (csr([0, 1, 2], [0], [1]), "indptr", Reason.INDEX_POINTERS),
        (csr([0, 0, 0], [0], [1]), "indptr", Reason.INDEX_POINTERS),
        (csr([0, 0, -1], [], [], dtype=np.int64), "indptr", Reason.INDEX_POINTERS),
        (csr([0, 1, 2**64 - 1], [0], [1]), "indptr", Reason.INDEX_POINTERS),
        (csr([0, 1, 1], [3], [1]), "indices", Reason.INDEX_RANGE),
        (csr([0, 1, 1], [-1], [1], dtype=np.int32), "indices", Reason.INDEX_RANGE),
        (csr([0, 1, 1], [2**64 - 1], [1]), "indices", Reason.INDEX_RANGE),
        (csr([0, 1, 1], [0, 1], [1]), "indices", Reason.LAYOUT_COUNT),
        (csr([0, 0, 0], [], [], (2,)), None, Reason.LAYOUT_RANK),
        (csr([0], [], [], (0, 0, 0)), None, Reason.LAYOUT_RANK),
        (View((2, 3), {"values": np.zeros(0)}, {}), None, Reason.COMPONENT_MISSING),
    ],
)
def test_what_makes_no_rows(view: View, role: str | None, reason: Reason) -> None:
    for check in (CSR.require_valid, CSR.to_dense):
        with pytest.raises(LayoutError) as caught:
            check(view)
        assert (caught.value.reason, caught.value.component) == (reason, role)
        assert str(caught.value).isascii()


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (coo([2, 0], [1], (2, 3)), Reason.INDEX_RANGE),
        (coo([0, 3], [1], (2, 3)), Reason.INDEX_RANGE),
        (coo([-1, 0], [1], (2, 3), np.int8), Reason.INDEX_RANGE),
        (coo([0], [1], (0,)), Reason.INDEX_RANGE),
        (coo([0], [1], (2, 3)), Reason.LAYOUT_COUNT),
        (coo([0, 0, 0], [1], (2, 3)), Reason.LAYOUT_COUNT),
        (coo([0], [], (2,)), Reason.LAYOUT_COUNT),
        (coo([0], [1], ()), Reason.LAYOUT_COUNT),
    ],
)
def test_what_makes_no_coordinates(view: View, reason: Reason) -> None:
    for check in (COO.require_valid, COO.to_dense):
        with pytest.raises(LayoutError) as caught:
            check(view)
        assert (caught.value.reason, caught.value.component) == (reason, "coords")


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
    largest = min(bound - 1, np.iinfo(dtype).max)
    require_in_range(np.array([0, largest], dtype), bound, "indices")
    if wrong is not None:
        with pytest.raises(LayoutError) as caught:
            require_in_range(np.array([0, wrong], dtype), bound, "indices", 100)
        assert caught.value.found == f"{wrong} at position 101"


def test_a_wrong_index_behind_the_first_block_is_found() -> None:
    indices = np.zeros((1 << 20) + 5, np.uint32)
    indices[-1] = 9
    with pytest.raises(LayoutError) as caught:
        require_in_range(indices, 9, "indices")
    assert caught.value.found == f"9 at position {indices.size - 1}"


CUTS = [(5,), (1, 4), (2, 3), (1, 1, 1, 1, 1), (0, 5, 0)]


@pytest.mark.parametrize("cuts", CUTS, ids=str)
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
def test_pointers_may_come_in_any_pieces(
    cuts: tuple[int, ...], pointers: list[int], is_good: bool
) -> None:
    def run() -> None:
        watch = PointerWatch(4)
        rest = np.array(pointers, np.uint64)
        for cut in cuts:
            watch.feed(rest[:cut])
            rest = rest[cut:]
        watch.finish({"indptr": 5, "values": 4})

    if is_good:
        run()
    else:
        with refused(LayoutError, Reason.INDEX_POINTERS):
            run()


@pytest.mark.parametrize("step", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("wrong", [None, *range(6)])
def test_coordinates_may_come_in_pieces_that_run_over_an_axis(step: int, wrong: int | None) -> None:
    coords = np.array([0, 1, 1, 4, 3, 0], np.uint64)
    if wrong is not None:
        coords[wrong] = 2 if wrong < 3 else 5
    watch = IndexWatch("coords", (2, 5), 3)

    def run() -> None:
        for start in itertools.count(0, step):
            if start >= coords.size:
                break
            watch.feed(coords[start : start + step])
        watch.finish({"coords": 6, "values": 3})

    if wrong is None:
        run()
    else:
        with pytest.raises(LayoutError) as caught:
            run()
        assert caught.value.found is not None
        assert caught.value.found.endswith(f"position {wrong}")


# --- What the manifest shows --------------------------------------------------------------------


def component(count: int, dtype: str = "u64", type: str | None = None) -> Component:
    width = {"u64": 8, "f32": 4, "u8": 1, "i16": 2, "bool": 1}.get(dtype, 1)
    return Component(dtype, 64, count * width, type)


def logical(dtype: str, type: str) -> Component:
    return Component(dtype, 64, 9, type, encoding="zstd")


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


def coo_object(shape: tuple[int, ...] = (2, 3), **changes: Component) -> TensorObject:
    parts = {"coords": component(8), "values": component(4, "f32"), **changes}
    return TensorObject(shape, "sparse_coo", parts)


@pytest.mark.parametrize(
    ("tensor_object", "reasons"),
    [
        (csr_object(), []),
        (csr_object(extra=component(1)), []),
        (csr_object(indices=component(4, "i16"), indptr=component(3, "u8")), []),
        (csr_object(values=component(8, "f32", "complex64")), []),
        (csr_object(values=component(4, "u8", "f8_e5m2")), []),
        (csr_object(values=packed(None, "f32"), indices=packed(32)), []),
        (csr_object(values=component(4, "odd")), []),
        (csr_object(indptr=component(9, "odd")), []),
        (csr_object((2,)), [Reason.LAYOUT_RANK]),
        (csr_object((3, 3)), [Reason.SIZE_MISMATCH]),
        (csr_object(indptr=packed(16)), [Reason.SIZE_MISMATCH]),
        (csr_object(indices=component(5)), [Reason.LAYOUT_COUNT]),
        (csr_object(values=component(4, "f32", "complex64")), [Reason.LAYOUT_COUNT]),
        (csr_object(values=packed(20, "f32")), [Reason.LAYOUT_COUNT]),
        (csr_object(indices=component(4, "f32")), [Reason.INDEX_DTYPE]),
        (csr_object(indptr=component(3, "bool")), [Reason.INDEX_DTYPE]),
        (csr_object(indices=component(4, "u8", "f8_e5m2")), [Reason.INDEX_DTYPE]),
        (csr_object(indices=Component("u64", 64, 31)), [Reason.SIZE_MISMATCH]),
        (coo_object(), []),
        (coo_object(coords=packed(None), values=packed(None, "f32")), []),
        (coo_object(coords=component(7)), [Reason.LAYOUT_COUNT]),
        (coo_object(coords=component(6)), [Reason.LAYOUT_COUNT]),
        (coo_object((2, 3, 4), coords=component(12)), []),
        (coo_object((), coords=component(0)), []),
        (coo_object((), coords=component(1)), [Reason.LAYOUT_COUNT]),
        (coo_object(coords=component(8, "f32")), [Reason.INDEX_DTYPE]),
        (
            TensorObject((2,), "sparse_coo", {}),
            [Reason.COMPONENT_MISSING, Reason.COMPONENT_MISSING],
        ),
    ],
)
def test_what_the_manifest_alone_shows(tensor_object: TensorObject, reasons: list[Reason]) -> None:
    problems = LAYOUTS[tensor_object.format].check_object(tensor_object)
    assert [problem.reason for problem in problems] == reasons


@pytest.mark.parametrize(
    ("tensor_object", "role", "entries", "expected"),
    [
        (csr_object(indptr=packed(None)), "indptr", None, 24),
        (csr_object(indices=packed(None)), "indices", 4, 32),
        (csr_object(indices=packed(None)), "indices", None, None),
        (csr_object(values=packed(None, "f32")), "values", 4, 16),
        (csr_object(values=packed(16, "f32")), "values", None, 16),
        (csr_object(extra=packed(7, "u8")), "extra", 4, 7),
        (coo_object(extra=packed(7, "u8")), "extra", 4, 7),
        (coo_object(values=packed(None, "f32")), "values", None, 16),  # from the coordinates
        (coo_object(coords=packed(None)), "coords", None, 64),  # from the values
        (coo_object(coords=packed(None), values=packed(None, "f32")), "values", None, None),
        (coo_object(coords=packed(None), values=packed(None, "f32")), "coords", 5, 80),
        (csr_object(indices=packed(16)), "indices", 0, 0),
        (csr_object(indices=packed(16)), "indices", -1, 16),
        (csr_object(indices=packed(16, "unheard of")), "indices", 5, 16),
        (csr_object(values=logical("f32", "complex64")), "values", 5, 40),
        (csr_object(values=logical("u8", "f4_e2m1")), "values", 5, 3),
    ],
)
def test_how_much_a_component_must_decode_to(
    tensor_object: TensorObject, role: str, entries: int | None, expected: int | None
) -> None:
    layout = LAYOUTS[tensor_object.format]
    assert layout.expected_length(tensor_object, role, entries) == expected


@pytest.mark.parametrize(
    ("type", "indices", "nbytes", "is_right"),
    [
        ("f4_e2m1", component(5), 3, True),
        ("f4_e2m1", component(6), 3, True),
        ("f4_e2m1", component(4), 3, False),  # a whole byte too many
        ("f4_e2m1", component(7), 3, False),
        ("f4_e2m1", packed(None), 3, True),
        (None, component(5), 6, False),
    ],
)
def test_the_padding_of_the_last_byte_is_no_value(
    type: str | None, indices: Component, nbytes: int, is_right: bool
) -> None:
    values = Component("u8", 64, nbytes, type)
    problems = CSR.check_object(csr_object(indices=indices, values=values))
    assert [problem.reason for problem in problems] == [Reason.LAYOUT_COUNT] * (not is_right)


@pytest.mark.parametrize("role", ["indptr", "indices", "values", "extra"])
def test_pointers_and_columns_are_checked_as_they_come(role: str) -> None:
    tensor_object = csr_object((2, 3), extra=packed(7, "u8"))
    watch = CSR.watch(tensor_object, role, 4)
    if role in ("values", "extra"):
        assert watch is None
        return
    assert watch is not None
    watch.feed(np.array([0, 2, 2], np.uint64))
    with pytest.raises(LayoutError) as caught:
        watch.feed(np.array([3, 1], np.uint64))
    assert caught.value.component == role
