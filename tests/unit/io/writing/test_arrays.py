"""Which values are written, and how: arrays of every kind, indices, shapes, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.naming import shown
from tests.refusals import refused
from tests.tracing import traced
from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    LayoutError,
    NotRepresentableError,
    Reason,
)
from ztensor.numpy import load, save, save_file

FOUR = np.arange(4, dtype=np.uint8)


def same(found: Any, expected: Any) -> bool:
    """Same shape, element type and bytes; NaNs count by their bits."""
    expected = np.asarray(expected)
    native = expected.astype(expected.dtype.newbyteorder("="))
    return bool(
        found.shape == native.shape
        and found.dtype == native.dtype
        and found.tobytes() == native.tobytes()
    )


BASE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
READ_ONLY = BASE.copy()
READ_ONLY.flags.writeable = False
KINDS: dict[str, Any] = {
    "0-d": np.array(3.5),
    "empty inside": np.zeros((3, 0, 2), np.int8),
    "transposed": BASE.T,
    "negative strides": BASE[::-1, ::-1, ::-1],
    "broadcast": np.broadcast_to(np.array([1, 2, 3]), (4, 3)),
    "big-endian": BASE.astype(">i4"),
    "big-endian, transposed": BASE.astype(">c16").T,
    "read-only": READ_ONLY,
    "32 dimensions": np.arange(4).reshape((1,) * 15 + (2,) + (1,) * 15 + (2,)),
    "field of a record": np.zeros(3, [("a", "i4"), ("b", "f8")])["b"],
    "unaligned": np.frombuffer(b"\0" + BASE.tobytes(), np.uint8)[1:].view(np.int32),
    "no NumPy": [[1.5, 2], [3, 4]],
    "a NumPy scalar": np.float16(2.5),
    "NaNs with payloads": np.array([0x7FC00001, 0xFFC0BEEF, 0x7F800001], "u4").view("f4"),
    "-0 and denormals": np.array([-0.0, 5e-324, -5e-324]),
    "fp4, odd": np.arange(7).astype(ml_dtypes.float4_e2m1fn),
    "fp4, odd rows transposed": np.arange(6).astype(ml_dtypes.float4_e2m1fn).reshape(2, 3).T,
    "fp4, 0-d": np.array(1.5).astype(ml_dtypes.float4_e2m1fn),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_an_array_comes_back(kind: str, compression: bool) -> None:
    array = KINDS[kind]
    assert same(load(save({"x": array}, compression=compression))["x"], array)


LONG = np.arange(3 * (1 << 20), dtype=np.int32)
REARRANGED: dict[str, Any] = {
    "transposed": LONG.reshape(1024, -1).T,
    "reversed rows": LONG.reshape(3, 2, -1)[::-1, :, ::-1].transpose(2, 0, 1),
    "big-endian": LONG.astype(">i4"),
    "packed": (LONG[: 3 << 18] % 7).astype(ml_dtypes.float4_e2m1fn).reshape(-1, 1024).T,
}


@pytest.mark.parametrize("compression", [False, 1], ids=["raw", "zstd"])
@pytest.mark.parametrize("kind", REARRANGED)
def test_a_long_array_is_rearranged_in_blocks(kind: str, compression: bool | int) -> None:
    array = REARRANGED[kind]
    native = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="))
    assert save({"x": array}, compression=compression) == save(
        {"x": native}, compression=compression
    )


LONGEST: dict[str, Callable[[], Any]] = {
    "transposed": lambda: np.ones((4096, 4096), np.float32).T,
    "three long rows": lambda: np.ones((3, 5_592_405), np.float32, order="F"),
    "big-endian": lambda: np.ones(16 << 20, ">f4"),
    "broadcast": lambda: np.broadcast_to(np.float32(1), (4096, 4096)),
}


@pytest.mark.slow
@pytest.mark.parametrize("compression", [False, 1], ids=["raw", "zstd"])
@pytest.mark.parametrize("kind", LONGEST)
def test_no_second_array_is_made(tmp_path: Path, kind: str, compression: bool | int) -> None:
    """It takes 64 MiB, so that the blocks are a small part."""
    array = LONGEST[kind]()
    with traced() as memory:
        save_file({"x": array}, tmp_path / "m.zt", compression=compression)
        _, peak = memory()
    assert peak < 0.5 * array.nbytes


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (np.array([object()]), "numeric type"),
        (np.array(["text"]), "as an attribute"),
        (np.array([b"text"]), "as an attribute"),
        (np.array("2026-01-01", "M8[D]"), "view('int64')"),
        (np.zeros(2, [("a", "i4"), ("b", "f4")]), "each field"),
        (np.ma.array([1, 2], mask=[False, True]), "filled()"),
        (np.array([1, 2]).astype(ml_dtypes.int1), "astype"),
        (2**70, "numeric type"),
    ],
    ids=["object", "text", "bytes", "date", "record", "masked", "int1", "huge number"],
)
def test_what_cannot_be_stored_says_what_would_work(value: Any, advice: str) -> None:
    with pytest.raises(NotRepresentableError) as caught:
        save({"fine": FOUR, "x": value})
    assert caught.value.object_name == "x"
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("value", "has_advice"),
    [
        ("text", True), (b"bytes", True), (None, True), ({}, True),
        (object(), False), ({1, 2}, False), ([[1], [2, 3]], False),
    ],
    ids=["text", "bytes", "None", "dict", "object", "set", "ragged list"],
)  # fmt: skip
def test_what_is_not_an_array_is_a_wrong_argument(value: Any, has_advice: bool) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        save({"x": value})
    assert caught.value.object_name == "x"
    assert (caught.value.hint is not None) is has_advice


# --- Components and shapes ----------------------------------------------------------------------


def test_a_tensor_has_a_component() -> None:
    with pytest.raises((ArgumentValueError, LayoutError)):
        save({"w": Tensor({}, shape=(0,), format="sparse_coo")})


@pytest.mark.parametrize("name", ["f8_e4m3fn", "not a known type"])
def test_a_logical_type_is_that_of_the_main_component_alone(name: str) -> None:
    tensor = Tensor({**csr("u8").components, "values": FOUR[:2]}, shape=(2, 3),
                    format="sparse_csr", type=name)  # fmt: skip
    with ztensor.open(save({"m": tensor})) as reader:
        types = {role: part.type for role, part in reader.metadata("m").components.items()}
    assert types == {"values": name, "indices": None, "indptr": None}


# --- Indices ------------------------------------------------------------------------------------


def csr(dtype: Any, indices: Any = (0, 2), ends: Any = None) -> Tensor:
    arrays = {
        "values": np.ones(2, np.float32),
        "indices": np.array(indices, dtype),
        "indptr": np.array([0, 1, 2], ends or dtype),
    }
    return Tensor(arrays, shape=(2, 3), format="sparse_csr")


@pytest.mark.parametrize(
    ("version", "tensor", "kept"),
    [
        *[("1.2.0", csr(dtype), "uint64") for dtype in ("i1", "i8", "u2", "u8", ">i4")],
        *[("2.1", csr(dtype), "uint64") for dtype in ("i4", "i8", "u1", "u8")],
        ("2.1", csr("u4"), "uint32"),
        ("2.1", csr("u4", ends="u8"), "uint64"),
    ],
    ids=shown,
)
def test_indices_have_a_type_of_the_version(version: str, tensor: Tensor, kept: str) -> None:
    """1.2 section 3 orders u64; 2.1 has u32, too, of both arrays alike."""
    with ztensor.open(save({"s": tensor}, version=version)) as reader:
        parts = reader.metadata("s").components
        assert parts["indices"].dtype == parts["indptr"].dtype == kept
        assert reader.read("s").to_dense().tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("indices", "reason"),
    [
        ([0.0, 2.0], Reason.INDEX_DTYPE),
        ([0.5, 2.0], Reason.INDEX_DTYPE),
        ([False, True], Reason.INDEX_DTYPE),
        ([0, -1], Reason.INDEX_RANGE),
        ([0, 3], Reason.INDEX_RANGE),
    ],
)
def test_other_numbers_are_not_rounded_to_indices(indices: Any, reason: Reason) -> None:
    with refused(LayoutError, reason) as caught:
        save({"s": csr(None, indices, "i8")})
    assert caught.value.component == "indices"


# --- Shapes that NumPy does not have ------------------------------------------------------------

SHAPES = {
    "65 dimensions": (1,) * 65,
    "300 dimensions": (1,) * 300,
    "2^62": (0, 1 << 62),
    "2^63": (1 << 63, 0),
    "2^64 - 1": (0, (1 << 64) - 1),
    "2^124": (0, 1 << 62, 1 << 62),
    "2^64": (0, 1 << 64),
}


@pytest.mark.parametrize("type_name", [None, "complex64", "f8_e4m3fn", "x.odd"])
@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0", "2.1"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_that_numpy_has_not_is_written_or_a_wrong_argument(
    shape: str, version: str, type_name: str | None
) -> None:
    dimensions = SHAPES[shape]
    count = 0 if 0 in dimensions else 1
    elements = {None: "f4", "complex64": "f4"}.get(type_name, "u1")
    stored = np.zeros(2 * count if type_name == "complex64" else count, elements)
    tensor = ztensor.Tensor(stored, shape=dimensions, type=type_name)
    try:
        data = save({"a": tensor}, version=version)
    except ztensor.errors.NotRepresentableError:
        assert version == "2.1" or shape == "2^64" or type_name is not None
        return
    assert shape != "2^64"
    with ztensor.open(data) as reader:
        assert reader.metadata("a").shape == dimensions
        assert not reader.verify(deep=True).problems


@pytest.mark.wing
@pytest.mark.parametrize("suffix", ["npz", "npy", "safetensors", "gguf", "h5"])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "2^64"])
def test_what_is_exported_of_such_a_shape_can_be_read(
    shape: str, suffix: str, tmp_path: Path
) -> None:
    if suffix == "h5":
        pytest.importorskip("h5py")
    dimensions = SHAPES[shape]
    tensor = ztensor.Tensor(np.zeros(0 if 0 in dimensions else 1, "f4"), shape=dimensions)
    data, target = save({"a": tensor}), tmp_path / f"new.{suffix}"
    try:
        report = ztensor.convert(data, target, check=True)
    except ztensor.errors.NotRepresentableError:
        assert suffix == "gguf"
        return
    with ztensor.open(target) as reader:
        shapes = [reader.metadata(name).shape for name in reader]
    assert shapes == [dimensions] or not report.is_lossless
