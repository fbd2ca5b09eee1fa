"""The file that is being written: how what is copied into it is encoded there."""

from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, UsageError
from ztensor.numpy import save

ZEROS = np.zeros((300, 100))
WORDS = {"1.2.0": "zstd", "2.1": "zt.zstd-seekable/1"}


def copied(data: bytes, version: str, compress: Any, compression: Any) -> str:
    """Return the encoding of the copy, which holds the same."""
    target = io.BytesIO()
    with ztensor.open(data) as reader, ztensor.Writer(
        target, version=version, compression=compression
    ) as writer:  # fmt: skip
        writer.copy("w", reader, compress=compress)
    with ztensor.open(target.getvalue()) as reader:
        assert reader.verify(deep=True).outcome == "ok"
        assert np.array_equal(reader["w"], ZEROS)
        return reader.metadata("w").components["data"].encoding


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("is_encoded", [False, True])
@pytest.mark.parametrize("version", WORDS)
@pytest.mark.parametrize("old", WORDS)
def test_a_copy_is_encoded_as_it_was_or_as_it_is_told(
    old: str, version: str, is_encoded: bool, compression: bool
) -> None:
    """What the version calls otherwise is decoded and encoded anew, and stays what it was."""
    data = save({"w": ZEROS}, version=old, compression=is_encoded)
    zstd = WORDS[version]
    if old == version or not compression:
        assert copied(data, version, None, compression) == (zstd if is_encoded else "raw")
    assert copied(data, version, True, compression) == zstd
    assert copied(data, version, False, compression) == "raw"


@pytest.mark.parametrize("version", WORDS)
@pytest.mark.parametrize("shape", [(50_000,), (1001, 51)])
@pytest.mark.parametrize(
    "dtype", ["uint8", "complex64", "bfloat16", "float8_e5m2", "float4_e2m1fn"]
)
def test_only_what_becomes_smaller_is_compressed(
    dtype: str, shape: tuple[int, ...], version: str
) -> None:
    """Counted in the bytes that are stored, however many of them or of a part is an element."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    count = int(np.prod(shape))
    noise = np.random.default_rng(1).integers(0, 256, count * kind.itemsize, np.uint8)
    if dtype == "float4_e2m1fn":
        noise &= 15
    array = noise.view(kind).reshape(shape)
    data = save({"noise": array, "zeros": np.zeros_like(array)}, version=version, compression=True)
    with ztensor.open(data) as reader:
        parts = {name: reader.metadata(name).components["data"] for name in reader}
        assert parts["noise"].encoding == "raw"
        assert parts["zeros"].encoding == WORDS[version]
        assert reader["noise"].tobytes() == array.tobytes()
        assert reader["zeros"].tobytes() == bytes(array.nbytes)


@pytest.mark.wing
def test_values_of_other_libraries_are_written_as_what_they_are() -> None:
    scipy = pytest.importorskip("scipy", reason="SciPy is optional")
    sparse = scipy.sparse.csr_matrix(np.eye(3))
    target = io.BytesIO()
    with ztensor.Writer(target) as writer:
        writer.write("sparse", sparse)
        writer.write("with attributes", sparse, attributes={"unit": "mm"})
        writer.write("list", [[1.0, 2.0]])
    with ztensor.open(target.getvalue()) as reader:
        for name in ("sparse", "with attributes"):
            tensor: Any = reader[name]
            assert tensor.format == "sparse_csr"
            assert np.array_equal(tensor.to_dense(), np.eye(3))
        assert reader.metadata("with attributes").attributes == {"unit": "mm"}
        assert reader["list"].tolist() == [[1.0, 2.0]]


def test_a_dict_is_a_tensor_only_by_its_data() -> None:
    target = io.BytesIO()
    with ztensor.Writer(target) as writer:
        writer.write("w", {"data": ZEROS, "more": np.ones(3)})
        for nested in ({"inner": ZEROS}, {}):
            with pytest.raises(ArgumentTypeError, match="not dicts") as caught:
                writer.write("nested", nested)
            assert caught.value.object_name == "nested"
    with ztensor.open(target.getvalue()) as reader:
        assert list(reader) == ["w"]
        assert set(reader.metadata("w").components) == {"data", "more"}


def test_names_of_a_canonical_file_rise() -> None:
    target = io.BytesIO()
    with ztensor.Writer(target, version="2.1", canonical=True) as writer:
        writer.write("b", ZEROS)
        for name, message in (("b", "written before"), ("a", "behind 'b'"), ("B", "behind 'b'")):
            with pytest.raises(UsageError, match=message):
                writer.write(name, ZEROS)
        writer.write("ba", ZEROS)
    assert list(ztensor.open(target.getvalue())) == ["b", "ba"]
