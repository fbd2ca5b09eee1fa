from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    LayoutError,
    MissingDependencyError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    UsageError,
)
from ztensor.numpy import save

FOUR = np.arange(4, dtype=np.float32)
CSR = Tensor.csr([1.0, 2.0], [0, 2], [0, 1, 2], (2, 3))
COO = Tensor.coo([1.0, 2.0], [[0, 1], [2, 0]], (2, 3))
UNKNOWN = Tensor({"a": FOUR}, shape=(4,), format="something")


def quantized() -> Tensor:
    """Return 32 values from -1 to 1, four bits each, in groups of eight."""
    parts = {
        "packed_weight": np.array([-324508640, -324508640, -38177487, -38177487], np.int32),
        "scales": np.array([0.0667, 0.0624, 0.0624, 0.0667], np.float16),
        "zeros": np.array([15, 15, 0, 0], np.float16),
    }
    about = {"bits": 4, "packing": "8_per_i32", "group_size": 8}
    return Tensor(parts, shape=(16, 2), format="quantized_group", attributes=about)


# --- Dense --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shape", "dtype"),
    [
        (FOUR, (4,), "float32"),
        (FOUR.reshape(2, 2).T, (2, 2), "float32"),
        ([[1, 2], [3, 4]], (2, 2), "int64"),
        (3.5, (), "float64"),
        (np.float16(2), (), "float16"),
        (True, (), "bool"),
        (1j, (), "float64"),
        (np.zeros((0, 3), np.uint8), (0, 3), "uint8"),
        ({"data": FOUR}, (4,), "float32"),
    ],
    ids=["array", "transposed", "lists", "float", "scalar", "bool", "complex", "empty", "mapping"],
)
def test_a_plain_array_is_a_dense_tensor(value: Any, shape: tuple[int, ...], dtype: str) -> None:
    if sys.platform == "win32" and dtype == "int64":
        dtype = np.dtype(int).name
    tensor = Tensor(value)
    assert (tensor.format, tensor.shape, tensor.dtype) == ("dense", shape, dtype)
    assert tensor.numpy().shape == shape
    assert tensor.attributes == {}


def test_arrays_are_kept_without_a_copy() -> None:
    tensor = Tensor(FOUR)
    assert np.shares_memory(tensor.numpy(), FOUR)
    assert tensor.components["data"] is FOUR or tensor.components["data"].base is FOUR
    assert tensor.nbytes == FOUR.nbytes
    assert type(Tensor(np.ma.array([1, 2])).numpy()) is np.ndarray
    with pytest.raises(TypeError):
        tensor.components["data"] = FOUR  # type: ignore[index]


def test_a_flat_array_takes_a_shape() -> None:
    assert Tensor(FOUR, shape=(2, 2)).numpy().tolist() == [[0, 1], [2, 3]]
    shape: Any = [np.int64(4), 1]
    assert Tensor(FOUR, shape=shape).shape == (4, 1)
    assert Tensor([7], shape=()).numpy().shape == ()


@pytest.mark.parametrize(
    ("dtype", "type", "storage", "logical"),
    [
        ("float32", None, "float32", None),
        ("f32", None, "float32", None),
        ("bfloat16", None, "bfloat16", None),
        ("bf16", None, "bfloat16", None),
        ("int64", None, "int64", None),
        ("float8_e5m2", None, "uint8", "f8_e5m2"),
        ("complex64", None, "float32", "complex64"),
    ],
)
def test_plain_bytes_are_taken_as_a_type(
    dtype: str, type: str | None, storage: str, logical: str | None
) -> None:
    tensor = Tensor(np.arange(16, dtype=np.uint8), dtype=dtype, type=type)
    assert (tensor.dtype, tensor.type) == (storage, logical)
    assert tensor.nbytes == 16


@pytest.mark.parametrize(
    ("array", "type", "values"),
    [
        (np.array([0x3C], np.uint8), "f8_e4m3fn", [1.5]),
        (np.array([1, 2, 3, 4], np.float32), "complex64", [1 + 2j, 3 + 4j]),
        (np.array([1, 2], np.float64), "complex128", [1 + 2j]),
    ],
)
def test_storage_elements_get_their_meaning(array: Any, type: str, values: list[Any]) -> None:
    tensor = Tensor(array, shape=(len(values),), type=type)
    assert tensor.type == type
    assert tensor.numpy().tolist() == values


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"components": "text"}, ArgumentTypeError),
        ({"components": {"data": b"bytes"}}, ArgumentTypeError),
        ({"components": [[1], [2, 3]]}, ArgumentTypeError),
        ({"components": {}}, ArgumentValueError),
        ({"components": {"values": FOUR}}, ArgumentValueError),
        ({"components": FOUR, "shape": (-4,)}, ArgumentValueError),
        ({"components": FOUR, "shape": (4.0,)}, ArgumentTypeError),
        ({"components": FOUR, "shape": 4}, ArgumentTypeError),
        ({"components": FOUR, "dtype": "int32"}, ArgumentValueError),
        ({"components": FOUR, "dtype": "no such"}, ArgumentValueError),
        ({"components": FOUR, "format": 3}, ArgumentTypeError),
        ({"components": FOUR, "type": 3}, ArgumentTypeError),
        ({"components": np.zeros(3, np.uint8), "dtype": "f32"}, ArgumentValueError),
        ({"components": np.zeros(3, np.uint8), "dtype": "float4_e2m1fn"}, ArgumentValueError),
        ({"components": FOUR, "type": "f8_e5m2"}, ArgumentValueError),
        ({"components": FOUR.astype(np.uint8), "type": "f4_e2m1"}, ArgumentValueError),
        ({"components": FOUR.astype(np.complex64), "type": "unheard of"}, ArgumentValueError),
        ({"components": np.ma.array([1, 2], mask=[False, True])}, NotRepresentableError),
    ],
    ids=str,
)
def test_what_makes_no_tensor(arguments: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Tensor(**arguments)


def test_a_shape_the_data_does_not_fill() -> None:
    with refused(LayoutError, Reason.SIZE_MISMATCH):
        Tensor(FOUR, shape=(5,)).numpy()


def test_numpy_takes_it_for_an_array() -> None:
    tensor = Tensor(FOUR)
    assert np.asarray(tensor).tolist() == [0, 1, 2, 3]
    assert np.asarray(tensor, np.int8).dtype == np.int8
    assert np.array_equal(np.add(tensor, 1), FOUR + 1)
    copied = np.array(tensor)
    assert not np.shares_memory(copied, FOUR)
    with pytest.raises(UsageError):
        np.asarray(CSR)


def test_an_unknown_type_is_kept_beside_the_storage_elements() -> None:
    tensor = Tensor(FOUR.astype(np.uint8), type="f3_odd")
    assert (tensor.dtype, tensor.type) == ("uint8", "f3_odd")
    assert tensor.numpy().tolist() == [0, 1, 2, 3]
    assert Tensor(np.zeros(1000, np.uint8), type="f3_odd").numpy().shape == (1000,)
    with refused(UnsupportedError, Reason.UNKNOWN_TYPE):
        Tensor(FOUR.astype(np.uint8), type="f3_odd", shape=(11,)).numpy()


# --- Other layouts ------------------------------------------------------------------------------


def test_rows() -> None:
    assert CSR.to_dense().tolist() == [[1, 0, 0], [0, 0, 2]]
    assert CSR.components["indices"].dtype == CSR.components["indptr"].dtype == np.uint64
    assert CSR.dtype == "float64"
    assert CSR.main_component is CSR.components["values"]


def test_coordinates_lie_axis_after_axis() -> None:
    assert COO.to_dense().tolist() == [[0, 0, 1], [2, 0, 0]]
    assert COO.components["coords"].tolist() == [0, 1, 2, 0]
    same = Tensor.coo([1.0, 2.0], np.array([[0, 1], [2, 0]], np.int8), (2, 3))
    assert same.to_dense().tolist() == COO.to_dense().tolist()
    assert Tensor.coo([], [[], []], (2, 3)).to_dense().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert Tensor.coo([5], [], ()).to_dense().tolist() == 5


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: Tensor.csr([1.0], [0], [0, 2], (1, 3)), LayoutError),
        (lambda: Tensor.csr([1.0], [3], [0, 1], (1, 3)), LayoutError),
        (lambda: Tensor.csr([1.0], [-1], [0, 1], (1, 3)), LayoutError),
        (lambda: Tensor.csr([1.0], [0], [0, 1], (1, 3, 1)), LayoutError),
        (lambda: Tensor.csr([1.0], [0.5], [0, 1], (1, 3)), ArgumentTypeError),
        (lambda: Tensor.coo([1.0], [[0], [9]], (2, 3)), LayoutError),
        (lambda: Tensor.coo([1.0], [[0]], (2, 3)), LayoutError),
        (lambda: Tensor.coo([1.0], [[True], [False]], (2, 3)), ArgumentTypeError),
        (lambda: Tensor.csr(["a"], [0], [0, 1], (1, 3)).dtype, NotRepresentableError),
    ],
)
def test_arrays_that_make_no_matrix(make: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        make()


@pytest.mark.wing
def test_a_quantized_tensor() -> None:
    tensor = quantized()
    assert tensor.format == "quantized_group"
    assert tensor.attributes["group_size"] == 8
    dense = tensor.dequantize()
    assert dense.dtype == np.float32
    assert np.abs(dense - np.linspace(-1, 1, 32).reshape(16, 2)).max() < 0.1
    assert np.array_equal(dense, tensor.to_dense())


@pytest.mark.wing
def test_an_unknown_layout_has_parts_but_no_dense_value() -> None:
    assert UNKNOWN.main_component is UNKNOWN.components["a"]
    assert (UNKNOWN.dtype, UNKNOWN.type) == ("float32", None)
    with refused(UnsupportedError, Reason.UNKNOWN_LAYOUT):
        UNKNOWN.to_dense()
    UNKNOWN.require_valid()


@pytest.mark.parametrize("tensor", [CSR, COO, quantized(), UNKNOWN], ids=lambda t: t.format)
def test_a_tensor_that_is_not_dense_is_no_array(tensor: Tensor) -> None:
    with pytest.raises(UsageError):
        tensor.numpy()
    if tensor.format != "quantized_group":
        with pytest.raises(UsageError):
            tensor.dequantize()


@pytest.mark.parametrize(
    "tensor", [Tensor(FOUR), CSR, COO, quantized(), UNKNOWN], ids=lambda t: t.format
)
def test_the_repr_is_short_and_shows_no_values(tensor: Tensor) -> None:
    text = repr(tensor)
    assert len(text) < 100
    assert str(tensor.shape) in text
    assert tensor.format in text


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor(FOUR, attributes={"a": [1]}),
        Tensor(FOUR.astype(np.uint8), type="f3_odd", shape=(11,)),
        Tensor(FOUR.astype(ml_dtypes.bfloat16)),
        CSR,
        COO,
        quantized(),
        UNKNOWN,
    ],
    ids=["dense", "unknown type", "bfloat16", "csr", "coo", "quantized", "unknown"],
)
@pytest.mark.parametrize(
    "again",
    [lambda t: pickle.loads(pickle.dumps(t)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_tensors_can_be_sent_and_copied(tensor: Tensor, again: Any) -> None:
    other = again(tensor)
    assert (other.shape, other.format, other.dtype, other.type, other.attributes) == (
        tensor.shape,
        tensor.format,
        tensor.dtype,
        tensor.type,
        tensor.attributes,
    )
    assert list(other.components) == list(tensor.components)
    for role, array in tensor.components.items():
        assert other.components[role].dtype == array.dtype
        assert other.components[role].tobytes() == array.tobytes()


# --- SciPy --------------------------------------------------------------------------------------


@pytest.fixture
def sparse() -> Any:
    return pytest.importorskip("scipy.sparse", reason="SciPy is optional")


@pytest.mark.wing
@pytest.mark.parametrize("kind", ["csr", "coo", "csc", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("what", ["array", "matrix"])
def test_from_scipy_and_back(sparse: Any, kind: str, what: str) -> None:
    dense = np.array([[0, 1.5, 0], [2, 0, 0]])
    made = getattr(sparse, f"{kind}_{what}")(dense)
    tensor = Tensor.from_scipy(made, attributes={"a": 1})
    assert tensor.format == ("sparse_coo" if kind == "coo" else "sparse_csr")
    assert tensor.attributes == {"a": 1}
    assert tensor.to_dense().tolist() == dense.tolist()
    back = tensor.to_scipy()
    assert back.format == ("coo" if kind == "coo" else "csr")
    assert back.toarray().tolist() == dense.tolist()


@pytest.mark.wing
@pytest.mark.parametrize("rows", [4, 1 << 34])
@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_indices_are_as_wide_as_scipy_makes_them(sparse: Any, layout: str, rows: int) -> None:
    width = np.int32 if rows == 4 else np.int64
    at = np.array([0], width), np.array([rows - 1], width)
    made = sparse.coo_array((np.ones(1), at), (1, rows)).asformat(layout)
    back = Tensor.from_scipy(made).to_scipy()
    for role in ("indices", "indptr") if layout == "csr" else ("row", "col"):
        assert getattr(back, role).dtype == getattr(made, role).dtype


@pytest.mark.wing
def test_values_are_shared_with_scipy(sparse: Any) -> None:
    made = sparse.csr_array(np.eye(3))
    tensor = Tensor.from_scipy(made)
    assert np.shares_memory(tensor.components["values"], made.data)
    assert np.shares_memory(tensor.to_scipy().data, made.data)


def out_of_bounds() -> Tensor:
    pointers = np.array([0, 1], np.uint64)
    parts = {"values": np.ones(1), "indices": np.array([7], np.uint64), "indptr": pointers}
    return Tensor(parts, shape=(1, 3), format="sparse_csr")


def of_type(dtype: Any) -> Tensor:
    return Tensor.csr(np.ones(1, np.float32).astype(dtype), [0], [0, 1], (1, 3))


@pytest.mark.wing
@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (out_of_bounds(), LayoutError),
        (of_type(ml_dtypes.bfloat16), NotRepresentableError),
        (of_type(np.float16), NotRepresentableError),
        (of_type(ml_dtypes.float8_e5m2), NotRepresentableError),
        (Tensor.coo([1.0], [[0], [0]], (2**64 - 1, 2)), NotRepresentableError),
        (Tensor(FOUR), UsageError),
        (UNKNOWN, UsageError),
    ],
    ids=["out of bounds", "bfloat16", "float16", "float8", "huge shape", "dense", "unknown"],
)
def test_tensors_that_scipy_cannot_hold(sparse: Any, tensor: Tensor, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        tensor.to_scipy()


@pytest.mark.wing
def test_from_scipy_takes_sparse_matrices(sparse: Any) -> None:
    for thing in (FOUR, None, "csr"):
        with pytest.raises(ArgumentTypeError):
            Tensor.from_scipy(thing)  # type: ignore[arg-type]


@pytest.mark.wing
def test_without_scipy_the_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(MissingDependencyError, match="needs SciPy"):
        CSR.to_scipy()


# --- Through a file -----------------------------------------------------------------------------


class Columns:
    """A table as pandas has one: it has `items()`, and becomes an array."""

    def items(self) -> Any:
        return {"a": [1, 2], "b": [3, 4]}.items()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array([[1, 3], [2, 4]], dtype)


def test_a_table_is_saved_as_the_array_that_it_becomes() -> None:
    table: Any = Columns()
    with ztensor.open(save({"w": table})) as reader:
        assert reader["w"].tolist() == [[1, 3], [2, 4]]
