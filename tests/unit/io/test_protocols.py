from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor import Tensor
from ztensor import numpy as znumpy
from ztensor.errors import BufferExportError, UsageError

# What DLPack 1.1 says of each: type code, bits, lanes.
TYPES: dict[str, tuple[int, int]] = {
    "int8": (0, 8),
    "int64": (0, 64),
    "uint16": (1, 16),
    "float16": (2, 16),
    "float64": (2, 64),
    "bfloat16": (4, 16),
    "complex64": (5, 64),
    "bool": (6, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
# Types that no file has, but an array.
OTHERS = {"float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8)}
OF_ML_DTYPES = [name for name in TYPES if name.startswith(("bfloat", "float8"))]
SPARSE = Tensor.csr([1.0], [2], [0, 1], (1, 3))
needs_versions = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="this NumPy exports no versioned capsules"
)
needs_buffer = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="__buffer__ has no effect before Python 3.12"
)


def array_of(name: str) -> np.ndarray[Any, np.dtype[Any]]:
    return np.arange(6).astype(getattr(ml_dtypes, name, name)).reshape(2, 3)


def read_only(name: str = "bfloat16") -> Tensor:
    array = array_of(name)
    array.flags.writeable = False
    return Tensor(array)


def lazy(array: Any) -> ztensor.TensorSlice:
    return ztensor.open(bytearray(znumpy.save({"w": array}))).get_slice("w")


def capsule_name(capsule: Any) -> str:
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name: bytes = name_of(capsule)
    return name.decode()


def described(capsule: Any, offset: int) -> tuple[int, int]:
    """Return type code and bits: they follow data (8), device (8) and ndim (4)."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = (
        ctypes.c_void_p,
        [ctypes.py_object, ctypes.c_char_p],
    )
    address = pointer_of(capsule, capsule_name(capsule).encode())
    code, bits = ctypes.string_at(address + offset + 20, 2)
    return code, bits


# --- DLPack ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [*TYPES.items(), *OTHERS.items()])
def test_every_type_has_its_code(name: str, code: tuple[int, int]) -> None:
    tensor = Tensor(array_of(name))
    assert described(tensor.__dlpack__(), 0) == code
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        capsule = tensor.__dlpack__(max_version=(1, 0))
        assert capsule_name(capsule) == "dltensor_versioned"
        assert described(capsule, 32) == code


def test_the_device_is_the_cpu() -> None:
    assert Tensor(array_of("int8")).__dlpack_device__() == (1, 0)
    assert lazy(array_of("int8")).__dlpack_device__() == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("consumed", [False, True], ids=["dropped", "consumed"])
def test_the_capsule_keeps_the_memory_until_it_is_done_with(consumed: bool) -> None:
    array = array_of("bfloat16").copy()  # the owner of its memory
    alive = weakref.ref(array)
    capsule: Any = Tensor(array).__dlpack__()
    del array
    gc.collect()
    assert alive() is not None
    if consumed:
        torch = pytest.importorskip("torch", reason="torch takes a bare capsule")
        capsule = torch.utils.dlpack.from_dlpack(capsule)
        assert capsule.tolist() == [[0, 1, 2], [3, 4, 5]]
        gc.collect()
        assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    "said",
    [{}, {"max_version": (0, 8)}],
    ids=["no version", "an old version"],
)
def test_read_only_memory_is_not_exported_without_a_flag(said: dict[str, Any]) -> None:
    with pytest.raises(BufferExportError, match=r"read-only.*copy it first.*bfloat16") as caught:
        read_only().__dlpack__(**said)
    assert isinstance(caught.value, BufferError)
    assert isinstance(caught.value, UsageError)


@needs_versions
def test_read_only_memory_is_flagged() -> None:
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = (
        ctypes.c_void_p,
        [ctypes.py_object, ctypes.c_char_p],
    )
    flags = {}
    for key, tensor, copy in (
        ("own", Tensor(array_of("bfloat16")), None),
        ("read-only", read_only(), None),
        ("copied", read_only(), True),
    ):
        capsule = tensor.__dlpack__(max_version=(1, 0), copy=copy)
        address = pointer_of(capsule, b"dltensor_versioned")
        flags[key] = ctypes.c_uint64.from_address(address + 24).value
    assert flags == {"own": 0, "read-only": 1, "copied": 2}


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_copy_is_new_memory(name: str) -> None:
    torch = pytest.importorskip("torch", reason="NumPy takes no bfloat16")
    tensor = read_only(name)
    copied = torch.utils.dlpack.from_dlpack(tensor.__dlpack__(copy=True))
    copied[0, 0] = 7
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dl_device": (2, 0)}, "CPU's memory"),
        ({"stream": 1}, "no streams"),
    ],
    ids=["another device", "a stream"],
)
def test_what_the_cpu_has_not_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(BufferExportError, match=message):
        Tensor(array_of("int8")).__dlpack__(**asked)
    with pytest.raises(BufferExportError, match=message):
        lazy(array_of("int8")).__dlpack__(**asked)


def test_fp4_has_no_elements_of_a_byte_in_dlpack() -> None:
    with pytest.raises(BufferExportError, match=r"astype\('float32'\).*float4_e2m1fn"):
        Tensor(array_of("float4_e2m1fn")).__dlpack__()


@pytest.mark.parametrize("protocol", ["__dlpack__", "__buffer__"])
def test_a_sparse_tensor_is_no_buffer(protocol: str) -> None:
    arguments = (0,) if protocol == "__buffer__" else ()
    with pytest.raises(BufferExportError, match="to_dense"):
        getattr(SPARSE, protocol)(*arguments)


@needs_versions
@pytest.mark.parametrize("make", [Tensor, lazy], ids=["Tensor", "TensorSlice"])
@pytest.mark.parametrize("name", sorted(set(TYPES) - set(OF_ML_DTYPES)))
def test_numpy_takes_it(name: str, make: Any) -> None:
    array = array_of(name)
    taken = np.from_dlpack(make(array))
    assert taken.dtype == array.dtype
    assert taken.tolist() == array.tolist()


@pytest.mark.parametrize("name", TYPES)
def test_torch_takes_it(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="a consumer of bfloat16 and fp8")
    array = array_of(name)
    znumpy.save_file({"w": array}, tmp_path / "w.zt")
    with ztensor.open(tmp_path / "w.zt") as reader:
        sources = [Tensor(array), reader.read("w"), reader.get_slice("w")]
        taken = [torch.from_dlpack(source) for source in sources]
    assert taken[0].data_ptr() == array.ctypes.data
    for tensor in taken:
        assert str(tensor.dtype) == f"torch.{name}"
        assert tensor.contiguous().view(torch.uint8).numpy().tobytes() == array.tobytes()


def test_torch_takes_what_is_not_in_one_piece() -> None:
    torch = pytest.importorskip("torch", reason="a consumer of bfloat16")
    array = array_of("bfloat16")
    assert torch.from_dlpack(Tensor(array.T)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert torch.from_dlpack(Tensor(array[:, ::2])).tolist() == [[0, 2], [3, 5]]


@pytest.mark.parametrize("name", [name for name in TYPES if "64" not in name] + ["complex64"])
def test_jax_takes_it(name: str) -> None:
    minversion = "0.10" if name.startswith("float8") else None
    jax = pytest.importorskip("jax", minversion, reason="a consumer of bfloat16 and fp8")
    taken = jax.dlpack.from_dlpack(Tensor(array_of(name)))
    assert taken.dtype == array_of(name).dtype
    assert np.asarray(taken).tobytes() == array_of(name).tobytes()


# --- The buffer protocol and NumPy's own ----------------------------------------------------


@needs_buffer
@pytest.mark.parametrize("make", [Tensor, lazy], ids=["Tensor", "TensorSlice"])
@pytest.mark.parametrize("name", ["bool", "int8", "float16", "float64"])
def test_memoryview_shows_the_elements(name: str, make: Any) -> None:
    array = array_of(name)
    view = memoryview(make(array))
    assert not view.readonly
    assert memoryview(read_only(name)).readonly
    assert (view.shape, view.itemsize) == (array.shape, array.itemsize)
    assert view.tobytes() == array.tobytes()


@pytest.mark.parametrize("make", [Tensor, lazy], ids=["Tensor", "TensorSlice"])
@pytest.mark.parametrize("name", [*OF_ML_DTYPES, "float4_e2m1fn"])
def test_the_buffer_protocol_has_no_code_for_these(name: str, make: Any) -> None:
    with pytest.raises(BufferExportError, match=rf"view\('uint(8|16)'\).*{name}"):
        make(array_of(name)).__buffer__(0)


@pytest.mark.parametrize("make", [Tensor, lazy], ids=["Tensor", "TensorSlice"])
def test_array_converts_and_copies(make: Any) -> None:
    array = np.arange(3, dtype=np.int16)
    for dtype, copy in ((None, True), ("f8", False), ("f8", True)):
        converted = make(array).__array__(dtype, copy)
        assert converted.dtype == (dtype or np.int16)
        assert converted.tolist() == [0, 1, 2]
        assert not np.shares_memory(converted, array)
    with pytest.raises(BufferExportError):
        Tensor(array.astype(">i2")).__dlpack__()


@pytest.mark.parametrize("make", [Tensor, lazy], ids=["Tensor", "TensorSlice"])
@pytest.mark.parametrize("name", [*TYPES, "float4_e2m1fn"])
def test_asarray_keeps_type_and_values(name: str, make: Any) -> None:
    array = array_of(name)
    taken = np.asarray(make(array))
    assert taken.dtype == array.dtype
    assert taken.tobytes() == array.tobytes()


def test_the_array_interface_is_there_where_it_is_true() -> None:
    array = array_of("float32")
    assert np.shares_memory(np.asarray(Tensor(array)), array)
    assert Tensor(array).__array_interface__ == array.__array_interface__
    reshaped = Tensor(array.T, shape=(6,))  # its array is made anew each time
    for tensor in (SPARSE, Tensor(array_of("bfloat16")), reshaped):
        assert not hasattr(tensor, "__array_interface__")
