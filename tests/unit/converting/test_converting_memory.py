"""One tensor far longer than what may be held of it, from and to every format."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.tracing import traced

pytestmark = pytest.mark.slow

MIB = 1 << 20
SHAPE = (4096, 16384)  # 128 MiB
MOST = 80 * MIB  # two blocks of gathered elements, and overhead

ARRAY = np.tile(np.arange(4096, dtype=np.uint16).view(np.float16), SHAPE[0] * SHAPE[1] // 4096)
ARRAY = ARRAY.reshape(SHAPE)


def by_us(path: Path, **options: Any) -> None:
    source = path.with_name("made.zt")
    with ztensor.Writer(source, durable=False) as writer:
        writer.write("w", ARRAY)
    ztensor.convert(source, path, durable=False, **options)


def compressed(path: Path) -> None:
    by_us(path, compression=1)


def big_endian_npy(path: Path) -> None:
    np.save(path, ARRAY.byteswap().view(">f2"))


def fortran_npy(path: Path) -> None:
    np.save(path, ARRAY.T)


def deflated_npz(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("w.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array(member, ARRAY)


def transposed_pt(path: Path) -> None:
    torch = pytest.importorskip("torch", reason="writes the file")
    torch.save({"w": torch.from_numpy(ARRAY).t()}, path)


def deflated_pt(path: Path) -> None:
    torch = pytest.importorskip("torch", reason="writes the file")
    plain = path.with_suffix(".plain")
    torch.save({"w": torch.from_numpy(ARRAY)}, plain)
    with (
        zipfile.ZipFile(plain) as one,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as other,
    ):
        for member in one.infolist():
            other.writestr(member.filename, one.read(member))


def hdf5(path: Path, array: Any, **options: Any) -> None:
    h5py = pytest.importorskip("h5py", reason="writes the file")
    with h5py.File(path, "w") as file:
        file.create_dataset("w", data=array, **options)


def deflated_hdf5(path: Path) -> None:
    hdf5(path, ARRAY, chunks=(512, 512), compression="gzip", compression_opts=1)


def long_rows_hdf5(path: Path) -> None:
    hdf5(path, ARRAY.reshape(2, -1), chunks=(1, MIB), compression="gzip", compression_opts=1)


def hdf5_by_library(path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="writes the file")
    with h5py.File(path, "w") as file:  # enumerations are read by libhdf5
        kind = h5py.enum_dtype({"A": 1, "B": 2}, basetype="<i2")
        file.create_dataset("w", data=ARRAY.view("<i2"), dtype=kind)


def external_onnx(path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="writes the file")
    tensor = onnx.TensorProto(
        name="w",
        data_type=onnx.TensorProto.FLOAT16,
        dims=SHAPE,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    tensor.external_data.add(key="location", value="w.data")
    ARRAY.tofile(path.with_name("w.data"))
    graph = onnx.helper.make_graph([], "weights", [], [], [tensor])
    onnx.save(onnx.helper.make_model(graph), path)


SOURCES: dict[str, Callable[[Path], None]] = {
    "one.safetensors": by_us,
    "stored.npz": by_us,
    "deflated.npz": deflated_npz,
    "fortran.npy": fortran_npy,
    "big_endian.npy": big_endian_npy,
    "transposed.pt": transposed_pt,
    "deflated.pt": deflated_pt,
    "one.gguf": by_us,
    "deflated.h5": deflated_hdf5,
    "long_rows.h5": long_rows_hdf5,
    "by_library.h5": hdf5_by_library,
    "external.onnx": external_onnx,
}


def peak(source: Path, target: Path, **options: Any) -> int:
    """Return the most bytes that were held at once during a conversion."""
    with traced() as memory:
        ztensor.convert(source, target, durable=False, **options)
        return memory()[1]


@pytest.mark.parametrize("name", SOURCES)
def test_a_long_tensor_of_another_format_is_never_held(tmp_path: Path, name: str) -> None:
    SOURCES[name](tmp_path / name)
    assert peak(tmp_path / name, tmp_path / "out.zt") < MOST
    with ztensor.open(tmp_path / "out.zt") as reader:
        found = next(iter(reader.values()))
        is_transposed = found.shape == SHAPE[::-1]
        found = found.T if is_transposed else found.reshape(SHAPE)
        assert np.array_equal(found.view(np.uint16), ARRAY.view(np.uint16))


@pytest.mark.parametrize("name", ["out.zt", "out.safetensors", "out.npz", "out.gguf", "out.h5"])
def test_a_long_compressed_tensor_is_never_held(tmp_path: Path, name: str) -> None:
    compressed(tmp_path / "one.zt")
    options = {"compression": False} if name == "out.zt" else {}
    assert peak(tmp_path / "one.zt", tmp_path / name, **options) < MOST
    with ztensor.open(tmp_path / name) as reader:
        assert np.array_equal(reader["w"].view(np.uint16), ARRAY.view(np.uint16))


@pytest.mark.parametrize("kind", ["raw", "zstd", "gguf", "groups"])
def test_a_long_tensor_that_is_changed_is_never_held(tmp_path: Path, kind: str) -> None:
    path, (rows, width) = tmp_path / "one.zt", SHAPE
    value: Any = ARRAY
    if kind == "gguf":
        data = np.zeros(rows * width // 256 * 144, np.uint8)
        value = ztensor.Tensor({"data": data}, shape=SHAPE, format="gguf.q4_k")
    elif kind == "groups":
        parts = {
            "packed_weight": np.full(rows * width // 8, 0x76543210, np.int32),
            "scales": np.ones(rows // 128 * width, np.float16),
            "zeros": np.zeros(rows // 128 * width // 8, np.int32),
        }
        how = {"bits": 4, "group_size": 128, "packing": "8_per_i32"}
        value = ztensor.Tensor(parts, shape=SHAPE, format="quantized_group", attributes=how)
    with ztensor.Writer(path, durable=False, compression=kind == "zstd") as writer:
        writer.write("w", value)
    for options in ({"dtype": "bfloat16"}, {}):
        assert peak(path, tmp_path / "out.zt", dequantize=True, **options) < MOST
        with ztensor.open(tmp_path / "out.zt") as reader:
            assert reader["w"].nbytes >= rows * width * 2
            assert reader["w"].shape == SHAPE
