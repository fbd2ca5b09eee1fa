"""Torch tensors to their stored form, and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor import Tensor, Writer
from ztensor.errors import (
    ArgumentTypeError,
    LayoutError,
    NotRepresentableError,
    UnsupportedError,
    UsageError,
)

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

# torch says once that CSR may still change.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64",
    "uint32", "uint16", "uint8", "bool", "complex64", "complex128", "float8_e4m3fn",
    "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


def stored(tensor: Any) -> Any:
    """Return the array that is stored of a dense torch tensor."""
    return Tensor.from_torch(tensor).numpy()


def restored(array: Any) -> Any:
    return Tensor(array).torch()


def bits(tensor: Any) -> bytes:
    """Return the elements' bytes in row-major order."""
    data: bytes = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return data


def sample(name: str, shape: tuple[int, ...] = (2, 3)) -> Any:
    if not hasattr(torch, name):
        pytest.skip(f"torch {torch.__version__} has no {name}")
    dtype = getattr(torch, name)
    count = int(np.prod(shape))
    raw = torch.arange(1, 1 + count * dtype.itemsize, dtype=torch.uint8)
    if name == "bool":
        raw = raw % 2
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (5,)], ids=str)
def test_every_type_goes_over_without_a_copy(name: str, shape: tuple[int, ...]) -> None:
    tensor = sample(name, shape)
    array = stored(tensor)
    assert (array.dtype.name, array.shape) == (name, shape)
    assert array.tobytes() == bits(tensor)
    back = restored(array)
    assert (back.dtype, tuple(back.shape)) == (tensor.dtype, shape)
    assert bits(back) == bits(tensor)
    if tensor.numel():
        assert back.data_ptr() == tensor.data_ptr()


def test_packed_elements_are_pairs_in_torch_and_single_in_numpy() -> None:
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip(f"torch {torch.__version__} has no float4_e2m1fn_x2")
    tensor = torch.tensor([[0x21, 0x43], [0x65, 0xF7]], dtype=torch.uint8)
    packed = tensor.view(torch.float4_e2m1fn_x2)
    array = stored(packed)
    assert array.dtype == ml_dtypes.float4_e2m1fn
    assert array.view(np.uint8).tolist() == [[1, 2, 3, 4], [5, 6, 7, 15]]
    back = restored(array)
    assert back.dtype is torch.float4_e2m1fn_x2
    assert back.view(torch.uint8).tolist() == tensor.tolist()
    for odd in (array[:, :3], array[0, 0]):
        with pytest.raises(UnsupportedError):
            restored(odd)
    with pytest.raises(NotRepresentableError):
        stored(packed[0, 0])


def conjugated() -> Any:
    return torch.tensor([1 + 2j, 3 - 4j]).conj()


STRIDED = {
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).T,
    "channels_last": lambda: (
        torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    ),
    "expanded": lambda: torch.arange(3.0)[:, None].expand(3, 4),
    "stepped": lambda: torch.arange(10.0)[1::3],
    "offset": lambda: torch.arange(10.0)[4:],
    "bfloat16, transposed": lambda: torch.arange(6.0).to(torch.bfloat16).reshape(2, 3).T,
    "parameter": lambda: torch.nn.Parameter(torch.arange(3.0)),
    "bfloat16, parameter": lambda: torch.nn.Parameter(torch.arange(3.0).to(torch.bfloat16)),
    "result of a graph": lambda: torch.arange(3.0, requires_grad=True) * 2,
    "conjugated": conjugated,
    "negated": lambda: conjugated().imag,
    "zeros without memory": lambda: torch._efficientzerotensor((2, 3)),
}


@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
def test_elements_are_those_torch_shows(make: Any) -> None:
    tensor = make()
    array = stored(tensor)
    shown = (tensor + 0).tolist()
    assert array.tolist() == shown
    assert ztensor.numpy.load(ztensor.numpy.save({"w": tensor}))["w"].tolist() == shown


def test_a_subclass_that_only_adds_is_taken() -> None:
    class Named(torch.Tensor):  # type: ignore[misc]
        label = "x"

    assert stored(torch.ones(2).as_subclass(Named)).tolist() == [1, 1]


class Wrapped(torch.Tensor):  # type: ignore[misc]
    """Keeps its elements in another tensor, as DTensor does."""

    @staticmethod
    def __new__(cls) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, (2,))

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is asked of it")

    def full_tensor(self) -> Any:
        return torch.zeros(2)


def freed(tensor: Any = None, but: int = 0) -> Any:
    tensor = torch.ones(4) if tensor is None else tensor
    tensor.untyped_storage().resize_(but)
    return tensor


REFUSED = {
    "meta": (lambda: torch.empty(2, device="meta"), "meta device"),
    "meta, sparse": (lambda: torch.eye(2).to_sparse().to("meta"), "meta device"),
    "meta, bfloat16": (lambda: torch.empty(2, device="meta", dtype=torch.bfloat16), "meta device"),
    "lazy": (torch.nn.UninitializedParameter, "lazy module"),
    "wrapping": (Wrapped, r"full_tensor\(\)"),
    "freed": (freed, "storage was freed"),
    "freed in part": (lambda: freed(but=8), "storage was freed"),
    "freed in part, a view": (lambda: freed(torch.ones(4)[2:], but=8), "storage was freed"),
    "freed in part, stepped": (lambda: freed(torch.ones(9)[::4], but=24), "storage was freed"),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        "to_padded_tensor",
    ),
    "complex32": (lambda: torch.ones(2).to(torch.complex32), "complex64"),
    "bits": (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "view"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        r"dequantize\(\)",
    ),
    "csc": (lambda: torch.eye(2).to_sparse_csc(), r"to_sparse_csr\(\)"),
    "bsr": (lambda: torch.eye(2).to_sparse_bsr((1, 1)), r"to_sparse_csr\(\)"),
    "mkldnn": (lambda: torch.ones(2).to_mkldnn(), r"to_dense\(\)"),
    "hybrid": (lambda: torch.ones(2, 2).to_sparse(1), r"to_dense\(\)"),
    "batched csr": (lambda: torch.ones(2, 2, 2).to_sparse_csr(), r"to_dense\(\)"),
}


@pytest.mark.parametrize(("make", "says"), REFUSED.values(), ids=REFUSED)
@pytest.mark.filterwarnings("ignore")  # of torch itself
def test_refused_tensors_come_with_an_alternative(make: Any, says: str) -> None:
    with pytest.raises(NotRepresentableError, match=says) as caught:
        ztensor.numpy.save({"layer.w": make()})
    assert caught.value.object_name == "layer.w"


# --- Sparse ---------------------------------------------------------------------------------

MATRIX = [[0, 1.5, 0], [2, 0, 3]]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int16", "bool", "complex64", "uint8"])
@pytest.mark.parametrize("kind", ["to_sparse_csr", "to_sparse_coo"])
def test_sparse_tensors_are_sparse_objects(name: str, kind: str) -> None:
    tensor = getattr(torch.tensor(MATRIX).to(getattr(torch, name)), kind)()
    stored = Tensor.from_torch(tensor)
    assert stored.format == kind[3:]
    assert stored.shape == (2, 3)
    back = stored.torch()
    assert (back.layout, back.dtype) == (tensor.layout, tensor.dtype)
    assert back.to_dense().tolist() == tensor.to_dense().tolist()


def test_sparse_indices_of_32_bits_are_taken() -> None:
    crow, col = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32)
    matrix = torch.sparse_csr_tensor(crow, col, torch.ones(2), (2, 3), check_invariants=True)
    stored = Tensor.from_torch(matrix)
    assert stored.components["indices"].dtype == np.uint64
    assert stored.to_dense().tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), ()], ids=str)
def test_coordinates_have_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to_sparse()
    back = Tensor.from_torch(tensor).torch()
    assert back.to_dense().tolist() == tensor.to_dense().tolist()


@pytest.mark.parametrize(
    ("indices", "is_coalesced"),
    [
        ([[0, 0, 1], [0, 1, 0]], True),
        ([[0, 0, 1], [1, 0, 0]], False),
        ([[0, 0, 1], [1, 1, 0]], False),
        ([[], []], True),
    ],
    ids=["sorted", "unsorted", "twice", "none"],
)
def test_entries_are_kept_as_they_are(indices: list[list[int]], is_coalesced: bool) -> None:
    where = torch.tensor(indices, dtype=torch.int64).reshape(2, -1)
    tensor = torch.sparse_coo_tensor(
        where, torch.arange(1.0, 1 + where.shape[1]), (2, 2), check_invariants=True
    )
    back = Tensor.from_torch(tensor).torch()
    assert back.is_coalesced() == is_coalesced
    assert back._indices().tolist() == where.tolist()
    assert back._values().tolist() == tensor._values().tolist()


def test_negative_coordinates_are_refused() -> None:
    tensor = torch.sparse_coo_tensor(
        torch.tensor([[-1]]), torch.ones(1), (2,), check_invariants=False
    )
    with pytest.raises(LayoutError):
        Tensor.from_torch(tensor)


UNHOLDABLE = {
    "columns out of order": Tensor.csr([1.0, 2.0], [1, 0], [0, 2], (1, 2)),
    "a column twice": Tensor.csr([1.0, 2.0], [1, 1], [0, 2], (1, 2)),
    "too many columns": Tensor.csr([1.0], [0], [0, 1], (1, 2**64 - 1)),
    "packed values": Tensor.csr(np.ones(2, ml_dtypes.float4_e2m1fn), [0, 1], [0, 2], (1, 2)),
    "too long an axis": Tensor.coo([1.0], [[0], [0]], (2**63, 2**63)),
}


@pytest.mark.parametrize("tensor", UNHOLDABLE.values(), ids=UNHOLDABLE)
def test_sparse_objects_torch_cannot_hold(tensor: Tensor) -> None:
    with pytest.raises(UnsupportedError):
        tensor.torch()


# --- Tensor ---------------------------------------------------------------------------------

ARRAYS = {
    "read-only": np.broadcast_to(np.arange(3.0), (2, 3)),
    "byte-swapped": np.arange(3, dtype=">i4"),
    "backwards": np.arange(4, dtype=np.float32)[::-1],
    "field of records": np.ones(3, [("a", "i1"), ("b", "<f4")])["b"],
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_torch_cannot_share_are_copied(array: Any) -> None:
    tensor = Tensor(array).torch()
    assert tensor.tolist() == array.tolist()
    assert tensor.dtype is getattr(torch, array.dtype.name)


def test_a_writable_array_is_shared_whatever_its_strides() -> None:
    array = np.zeros((3, 4), np.float32)
    Tensor(array.T[1:]).torch().fill_(1)
    assert array.sum() == 9


def test_a_tensor_takes_torch_tensors_as_components() -> None:
    tensor = torch.arange(6).to(torch.bfloat16)
    assert Tensor(tensor).dtype == "bfloat16"
    assert Tensor({"data": tensor}, shape=(2, 3)).torch().tolist() == [[0, 1, 2], [3, 4, 5]]
    row = Tensor.csr(torch.ones(1), torch.tensor([2]), torch.tensor([0, 1]), (1, 3))
    assert row.to_dense().tolist() == [[0, 0, 1]]
    with pytest.raises(ArgumentTypeError):
        Tensor(torch.eye(2).to_sparse())


def test_attributes_go_along() -> None:
    for tensor in (torch.ones(2), torch.eye(2).to_sparse()):
        assert Tensor.from_torch(tensor, attributes={"a": 1}).attributes == {"a": 1}
    with pytest.raises(ArgumentTypeError):
        Tensor.from_torch(np.ones(2))


def test_errors_of_other_layouts_name_a_method() -> None:
    with pytest.raises(UsageError):
        Tensor.quantize(np.ones((128, 2), np.float32)).torch()
    with pytest.raises(UsageError):
        Tensor({"a": [1]}, shape=(1,), format="ring").torch()


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.float8_e3m4], ids=lambda d: d.__name__)
def test_types_that_torch_lacks_are_refused(dtype: Any) -> None:
    with pytest.raises(UnsupportedError):
        restored(np.zeros(2, dtype))


# --- Writer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["write", "write_torch", "add"])
def test_a_writer_takes_torch_tensors(tmp_path: Any, method: str) -> None:
    tensor = torch.nn.Parameter(torch.arange(4.0).to(torch.bfloat16))
    with Writer(tmp_path / "m.zt") as writer:
        getattr(writer, method)("w", tensor)
        getattr(writer, method)("s", torch.eye(2).to_sparse())
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert reader.metadata("w").dtype == "bfloat16"
        assert reader["w"].tolist() == [0, 1, 2, 3]
        assert reader.metadata("s").format == "sparse_coo"


def test_a_refused_tensor_leaves_the_writer_open(tmp_path: Any) -> None:
    with Writer(tmp_path / "m.zt") as writer:
        with pytest.raises(NotRepresentableError, match="'w'"):
            writer.write("w", torch.empty(1, device="meta"))
        writer.write("w", torch.ones(1), attributes={"k": 1})
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert reader.metadata("w").attributes == {"k": 1}
