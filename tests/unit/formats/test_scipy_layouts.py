"""Sparse arrays of SciPy's own layouts: what their parts may be like."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import LayoutError, Reason
from ztensor.formats.npz.scipy_layouts import (
    SCIPY_LAYOUTS,
    ScipySparse,
    scipy_parts,
    shape_of_values,
)
from ztensor.numpy import load
from ztensor.spec.layout.base import View
from ztensor.spec.model.manifest import Component, TensorObject

LARGEST = (1 << 63) - 1


def dia(*offsets: int) -> View:
    """Return a matrix of 3 rows and 5 columns, of some diagonals."""
    values = np.arange(5.0 * len(offsets)).reshape(len(offsets), 5)
    return View(
        (3, 5),
        {"values": values.reshape(-1), "offsets": np.array(offsets, np.int64)},
        {"values_shape": [len(offsets), 5]},
    )


@pytest.mark.parametrize("offsets", [(-3, 5), (0,), (-3,), (5, 4), ()])
def test_a_diagonal_may_begin_at_the_edge(offsets: tuple[int, ...]) -> None:
    SCIPY_LAYOUTS["scipy.sparse_dia"].require_valid(dia(*offsets))
    dense = SCIPY_LAYOUTS["scipy.sparse_dia"].to_dense(dia(*offsets))
    expected = np.zeros((3, 5))
    for number, offset in enumerate(offsets):
        for row in range(3):
            if 0 <= row + offset < 5:
                expected[row, row + offset] = 5.0 * number + row + offset
    assert np.array_equal(dense, expected)


@pytest.mark.parametrize("offsets", [(-4,), (6,), (0, 6), (-4, 0)])
def test_a_diagonal_lies_in_the_shape(offsets: tuple[int, ...]) -> None:
    with refused(LayoutError, Reason.INDEX_RANGE, match="outside the shape"):
        scipy_parts("dia", dia(*offsets))


@pytest.mark.parametrize(
    ("found", "count", "expected"),
    [
        (None, 5, (5,)),
        (None, None, (0,)),
        ([2, 3], 6, (2, 3)),
        ([2, 3], 5, None),
        ([2, 3], None, (2, 3)),
        ([2, 3, 4], None, (2, 3, 4)),
        ([1, 1, 1, 1], 1, None),
        ([0, LARGEST], 0, (0, LARGEST)),
        ([0, LARGEST + 1], 0, None),
        ([-1], None, None),
        ([0], 0, (0,)),
        ([1.0], 1, None),
        ("3", None, None),
    ],
)
def test_the_shape_of_values(
    found: object, count: int | None, expected: tuple[int, ...] | None
) -> None:
    assert shape_of_values(found, count) == expected


def test_negative_diagonals_are_written_as_they_are() -> None:
    """The other indices are written as u64, as all readers know them."""
    for kind in ("csr", "csc", "bsr", "dia"):
        expected = () if kind == "dia" else ("indices", "indptr")
        assert ScipySparse(kind).index_roles == expected
    target = io.BytesIO()
    view = dia(-3, -1, 4)
    csc = {
        "values": np.arange(3.0),
        "indices": np.array([0, 2, 1], np.int32),
        "indptr": np.array([0, 2, 3], np.int32),
    }
    with ztensor.Writer(target) as writer:
        for name, tensor in {
            "dia": ztensor.Tensor(
                view.arrays, shape=(3, 5), format="scipy.sparse_dia", attributes=view.attributes
            ),
            "csc": ztensor.Tensor(csc, shape=(3, 2), format="scipy.sparse_csc"),
        }.items():
            writer.write(name, tensor)
    found: Any = load(target.getvalue())
    assert found["dia"].components["offsets"].tolist() == [-3, -1, 4]
    assert found["dia"].components["offsets"].dtype == np.int64
    assert found["csc"].components["indices"].dtype == np.uint64
    assert found["csc"].components["indptr"].dtype == np.uint64
    assert np.array_equal(found["csc"].to_dense(), [[0, 0], [0, 2], [1, 0]])


def component(dtype: str, length: int | None) -> Component:
    return Component(dtype, 64, 9, encoding="zstd", decoded_length=length)


@pytest.mark.parametrize(
    ("lengths", "has_problem"),
    [
        ((24, 24, 24), False),
        ((24, 24, 16), True),
        ((24, 16, 24), True),
        ((None, 16, 24), False),  # who decodes it will see
        ((24, None, 16), False),
        ((None, None, None), False),
    ],
)
def test_counts_are_compared_where_all_are_known(
    lengths: tuple[int | None, ...], has_problem: bool
) -> None:
    roles = ("values", "indices", "indptr")
    parts = {
        role: component("f64" if role == "values" else "u64", length)
        for role, length in zip(roles, lengths, strict=True)
    }
    tensor_object = TensorObject((3, 2), "scipy.sparse_csc", parts)
    problems = SCIPY_LAYOUTS["scipy.sparse_csc"].check_object(tensor_object)
    assert [problem.reason for problem in problems] == [Reason.LAYOUT_COUNT] * has_problem
