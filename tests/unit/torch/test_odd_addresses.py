"""Tensors at unaligned addresses of files: torch assumes alignment."""

from __future__ import annotations

import functools
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
import ztensor.numpy

torch = pytest.importorskip("torch")

import ztensor.torch  # noqa: E402

if TYPE_CHECKING:
    Arrays = dict[str, np.ndarray[Any, Any]]

TYPES = ("f2", "f4", "f8", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
# Vector code is used from some elements on; small tensors are in one slab, large ones alone.
COUNTS = (1, 5, 1031, 40_003)


def arrays() -> Arrays:
    found = {
        f"{kind}-{count}": (np.arange(count) % 101).astype(kind)
        for kind in TYPES
        for count in COUNTS
    }
    found["bf16"] = np.arange(9).astype(ml_dtypes.bfloat16)
    return found


def npz(values: Arrays, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for number, (name, value) in enumerate(values.items()):
            memory = io.BytesIO()
            if value.dtype.isbuiltin == 1:  # what NumPy writes without pickle
                np.lib.format.write_array(memory, value, allow_pickle=False)
                file.writestr(f"{name}.npy", memory.getvalue(), compress_type=number % 7 == 6 and 8)


def legacy(values: Arrays, path: Path) -> None:
    tensors = {name: ztensor.Tensor(value).torch() for name, value in values.items()}
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


def safetensors(values: Arrays, path: Path) -> None:
    """Write a file with a header that ends at an odd offset."""
    spelled = {"f": "F", "i": "I", "u": "U", "b": "BOOL", "c": "C"}
    header, data = {}, b""
    for name, value in values.items():
        kind, bits = value.dtype.kind, value.dtype.itemsize * 8
        if value.dtype.isbuiltin != 1 or (kind == "c" and bits == 128):
            continue
        dtype = spelled[kind] + ("" if kind == "b" else str(bits))
        header[name] = {
            "dtype": dtype,
            "shape": [len(value)],
            "data_offsets": [len(data), len(data) + value.nbytes],
        }
        data += value.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (1 - len(text) % 2)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def in_memory(values: Arrays, path: Path, version: str = "1.2.0") -> None:
    """Write a `.zt` file, which is opened in memory from an odd address on."""
    if version == "0.1.0":
        values = {name: value for name, value in values.items() if value.dtype.kind != "c"}
    ztensor.numpy.save_file(values, path, version=version)


KINDS: dict[str, tuple[str, Callable[[Arrays, Path], None]]] = {
    "npz": ("a.npz", npz),
    "legacy pt": ("a.pt", legacy),
    "safetensors": ("a.safetensors", safetensors),
    "zt in memory": ("a.zt", in_memory),
    "zt 2.1 in memory": ("a.zt", functools.partial(in_memory, version="2.1")),
    "zt 0.1 in memory": ("a.zt", functools.partial(in_memory, version="0.1.0")),
}

# The process that dies of a vector instruction is a child.
PROGRAM = """
import sys
import numpy as np, torch, ztensor, ztensor.numpy, ztensor.torch

path, is_memory = sys.argv[1], sys.argv[2] == "memory"
def place():
    if not is_memory:
        return path
    data = open(path, "rb").read()
    memory = bytearray(len(data) + 65)
    shift = -np.frombuffer(memory, np.uint8).ctypes.data % 64 + 1
    memory[shift : shift + len(data)] = data
    return memoryview(memory)[shift : shift + len(data)]

wanted = ztensor.numpy.load_file(path, copy=True)

def used(tensor, name):
    want = torch.from_numpy(wanted[name].view(np.int16)).view(torch.bfloat16) \\
        if wanted[name].dtype.name == "bfloat16" else torch.from_numpy(wanted[name])
    assert tensor.data_ptr() % tensor.element_size() == 0, name
    other = torch.empty_like(tensor)
    other.copy_(tensor)
    assert torch.equal(tensor.clone(), want) and torch.equal(other, want), name
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        assert torch.equal(tensor + 1, want + 1) and torch.equal(tensor * tensor, want * want), name

count = 0
for copy in (False, True):
    loaded = ztensor.torch.load_file(place(), copy=copy)
    assert loaded.keys() == wanted.keys()
    for name, tensor in loaded.items():
        used(tensor, name)
    with ztensor.open(place()) as reader:
        for name in reader:
            used(reader.read_torch(name, copy=copy), name)
        for name, tensor in reader.read_torch(list(reader), copy=copy).items():
            used(tensor, name)
with ztensor.open(place()) as reader:
    for name in reader:
        used(reader.read(name).torch(), name)
        used(torch.from_dlpack(reader.read(name)), name)
        target = torch.empty_like(reader.read_torch(name))
        reader.read_into(name, target)
        used(target, name)
if not is_memory:
    with ztensor.safe_open(path, "pt") as handle:
        for name in handle.keys():
            used(handle.get_tensor(name), name)
            used(handle.get_slice(name)[:], name)
    # NumPy calls any multiple of 8 aligned; torch needs 16 for complex128, also of NumPy's arrays.
    views, file = ztensor.numpy.load_file(path), ztensor.safe_open(path, framework="np")
    with ztensor.open(path) as reader:
        for name in reader:
            ways = [views[name], reader[name], reader.read(name).numpy(), file.get_tensor(name)]
            ways += [reader.get_slice(name)[:900], file.get_slice(name)[:]]
            if reader[name].dtype == "c16":
                for array in ways:
                    assert array.ctypes.data % 16 == 0, name
                    torch.from_numpy(array[1:]).clone()
                torch.from_dlpack(reader[name]).clone()
for array in ztensor.numpy.load_file(place(), copy=True).values():
    assert array.ctypes.data % array.itemsize == 0
    count += 1
print(count)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_at_an_odd_address_can_be_used(kind: str, tmp_path: Path) -> None:
    name, write = KINDS[kind]
    write(arrays(), tmp_path / name)
    with ztensor.open(tmp_path / name) as reader:
        views = [reader.read_numpy(one) for one in reader]
    if "memory" not in kind:  # else it is opened at an odd address
        assert any(view.ctypes.data % view.itemsize for view in views), "nothing is at an odd one"
    where = "memory" if "memory" in kind else "file"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / name), where],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == len(views)


def test_memory_of_its_own_is_aligned_and_a_view_says_what_it_is(tmp_path: Path) -> None:
    npz(arrays(), tmp_path / "a.npz")
    views = ztensor.numpy.load_file(tmp_path / "a.npz")
    owned = ztensor.numpy.load_file(tmp_path / "a.npz", copy=True)
    assert not all(view.flags.aligned for view in views.values())
    assert all(array.ctypes.data % array.itemsize == 0 for array in owned.values())
    for name, value in owned.items():
        np.testing.assert_array_equal(views[name], value)


def test_an_array_at_an_odd_address_is_exported_as_a_copy_or_not_at_all(tmp_path: Path) -> None:
    npz({"x": np.arange(9.0)}, tmp_path / "a.npz")
    with ztensor.open(tmp_path / "a.npz") as reader:
        tensor = reader.read("x")
    assert tensor.numpy().ctypes.data % 8
    assert np.from_dlpack(tensor).ctypes.data % 8 == 0
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=False)
