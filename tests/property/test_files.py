"""Written tensors are read: every version, type, encoding and layout, every kind of source."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ztensor
from ztensor.errors import NotRepresentableError
from ztensor.ext import EMITTERS, cbor
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.numpy import load, load_file, save, save_file
from ztensor.spec.container import SCHEMAS, framing
from ztensor.spec.encoding.zstd.codec import Zstd
from ztensor.testing import strategies

VERSIONS = ("0.1.0", "1.1.0", "1.2.0")
STORAGE = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip
LOGICAL = (
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "complex64", "complex128",
    "float8_e8m0fnu", "float4_e2m1fn",
)  # fmt: skip
LAYOUTS = ("dense", "sparse_csr", "sparse_coo", "quantized_group", "unknown")

# What each version's text has, written down here once more: the library's tables are under test.
TYPES = {
    "0.1.0": {*STORAGE},
    "1.1.0": {*STORAGE, "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"},
    "1.2.0": {*STORAGE, *LOGICAL},
}


def holds(version: str, dtype: str, layout: str) -> bool:
    return dtype in TYPES[version] and (layout == "dense" or version != "0.1.0")


# --- Values ---------------------------------------------------------------------------------


def some_array(dtype: str, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return any bits a type has."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    bits = np.random.default_rng(seed).integers(
        0, {"bool": 2, "float4_e2m1fn": 16}.get(dtype, 256), (*shape, kind.itemsize), np.uint8
    )
    return bits.reshape(-1).view(kind).reshape(shape)


def dense(dtype: str) -> dict[str, Any]:
    cube = some_array(dtype, 3, 4, 5)
    tensors = {
        "scalar": some_array(dtype),
        "empty": some_array(dtype, 0),
        "hollow": some_array(dtype, 2, 0, 3),
        "odd": some_array(dtype, 7),
        "cube": cube,
        "turned": cube.transpose(2, 0, 1),
        "strided": cube[::2, 1:, ::-2],
        "wide": np.broadcast_to(some_array(dtype, 3), (4, 3)),
    }
    if np.dtype(cube.dtype).kind in "iufc":
        tensors["swapped"] = cube.byteswap().view(cube.dtype.newbyteorder())
    return tensors


def sparse_csr(dtype: str) -> dict[str, Any]:
    return {
        "rows": ztensor.Tensor.csr(
            some_array(dtype, 6),
            [4, 0, 2, 2, 1, 5],
            [0, 2, 2, 6],
            (3, 6),
            attributes={"note": "csr"},
        ),
        "empty": ztensor.Tensor.csr(some_array(dtype, 0), [], [0], (0, 4)),
    }


def sparse_coo(dtype: str) -> dict[str, Any]:
    cube = [[0, 1, 0, 1], [2, 0, 2, 1], [1, 1, 1, 0]]
    return {
        "cube": ztensor.Tensor.coo(some_array(dtype, 4), cube, (2, 3, 2), attributes={"n": 3}),
        "empty": ztensor.Tensor.coo(some_array(dtype, 0), [[], []], (5, 7)),
        "scalar": ztensor.Tensor.coo(some_array(dtype, 2), [], ()),
    }


def quantized_group(dtype: str) -> dict[str, Any]:
    parts = {
        "packed_weight": np.arange(-2, 2, dtype=np.int32),
        "scales": some_array(dtype, 4),
        "zeros": np.array([5, 6, 7, 8], np.uint8),
    }
    scheme = {"bits": 4, "group_size": 4, "packing": "8_per_i32", "zeros_packed": False}
    tensor = ztensor.Tensor(parts, shape=(8, 4), format="quantized_group", attributes=scheme)
    return {"groups": tensor}


def unknown(dtype: str) -> dict[str, Any]:
    parts = {"a": some_array(dtype, 4), "": some_array("uint8", 5), "z": some_array(dtype, 0)}
    tensor = ztensor.Tensor(parts, shape=(9,), format="of_tomorrow", attributes={"deep": [{}]})
    return {"later": tensor}


MAKERS = {make.__name__: make for make in (dense, sparse_csr, sparse_coo, quantized_group, unknown)}


# --- Reading it all back --------------------------------------------------------------------


@contextlib.contextmanager
def readers(path: Path) -> Iterator[dict[str, ztensor.Reader]]:
    data = path.read_bytes()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        opened = {
            "mapped": ztensor.open(path),
            "read": ztensor.open(str(path), mmap=False),
            "bytes": ztensor.open(data),
            "view": ztensor.open(memoryview(bytearray(data)), verify=True),
            "file": ztensor.open(file),
            "buffer": ztensor.open(io.BytesIO(data), verify=False),
        }
        yield {how: stack.enter_context(reader) for how, reader in opened.items()}


def require_same_bits(read: np.ndarray[Any, Any], written: np.ndarray[Any, Any]) -> None:
    native = written.dtype.newbyteorder("=")
    assert read.dtype == native
    assert read.dtype.isnative
    assert read.tobytes() == written.astype(native, copy=False).tobytes()


def require_same(read: Any, written: Any) -> None:
    if isinstance(written, ztensor.Tensor):
        assert isinstance(read, ztensor.Tensor)
        assert read.shape == written.shape
        assert read.format == written.format
        assert (read.dtype, read.type) == (written.dtype, written.type)
        assert cbor.encode(dict(read.attributes)) == cbor.encode(dict(written.attributes))
        assert set(read.components) == set(written.components)
        for role, array in written.components.items():
            require_same_bits(read.components[role], array.reshape(-1))
    else:
        assert read.shape == written.shape
        require_same_bits(read, written)


def require_file(path: Path, tensors: dict[str, Any], version: str) -> None:
    with readers(path) as opened:
        for reader in opened.values():
            assert reader.version == version
            assert set(reader) == set(tensors)
            report = reader.verify()
            assert report.ok
            assert report.undigested == 0
            for name, written in tensors.items():
                for copy in (False, True):
                    tensor = reader.read(name, copy=copy)
                    if isinstance(written, ztensor.Tensor):
                        require_same(tensor, written)
                        require_same_dense(tensor, written)
                    if tensor.format == "dense":
                        array = written.numpy() if isinstance(written, ztensor.Tensor) else written
                        require_same(reader.read_numpy(name, copy=copy), array)
                        require_same(reader.get_slice(name)[...], array)
                metadata = reader.metadata(name)
                assert metadata.shape == written.shape
                assert metadata.format == getattr(written, "format", "dense")


def require_same_dense(read: ztensor.Tensor, written: ztensor.Tensor) -> None:
    """Compare the dense values, or the reasons why there are none."""
    values: list[Any] = []
    for tensor in (read, written):
        try:
            values.append(tensor.to_dense())
        except ztensor.ZTensorError as error:
            values.append(error.reason)
    if isinstance(values[1], np.ndarray):
        assert values[0].shape == values[1].shape
        require_same_bits(values[0], values[1])
    else:
        assert values[0] is values[1]


# --- The whole product ----------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("dtype", [*STORAGE, *LOGICAL])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_combination(
    version: str,
    dtype: str,
    compression: bool,
    layout: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Zstd, "must_shrink", False)  # encode incompressible data, too
    path = tmp_path / "file.zt"
    tensors = MAKERS[layout](dtype)
    if holds(version, dtype, layout):
        save_file(tensors, path, version=version, compression=compression)
        require_file(path, tensors, version)
        assert save(tensors, version=version, compression=compression) == path.read_bytes()
        encodings = {
            component.encoding
            for name in tensors
            for component in ztensor.open(path).metadata(name).components.values()
        }
        assert encodings == {"zstd" if compression else "raw"}
        return
    with pytest.raises(NotRepresentableError) as refused:
        save_file(tensors, path, version=version, compression=compression)
    assert refused.value.object_name in tensors
    assert "1.2.0" in str(refused.value)  # the version that would work
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_coo", "unknown"])
def test_packed_elements_outside_dense_tensors_fill_bytes(layout: str) -> None:
    """Nothing in such a file says that the last four bits are none."""
    values = some_array("float4_e2m1fn", 3)
    tensors = {
        "sparse_csr": ztensor.Tensor.csr(values, [0, 1, 2], [0, 3], (1, 3)),
        "sparse_coo": ztensor.Tensor.coo(values, [[0, 1, 2]], (3,)),
        "unknown": ztensor.Tensor({"a": values}, shape=(3,), format="of_tomorrow"),
    }
    with pytest.raises(NotRepresentableError, match="whole bytes"):
        save({"x": tensors[layout]})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refused_save_leaves_the_old_file(version: str, tmp_path: Path) -> None:
    path = tmp_path / "file.zt"
    save_file({"old": np.arange(3)}, path, version=version)
    before = path.read_bytes()
    with pytest.raises(NotRepresentableError):
        save_file({"a": np.arange(9), "b": np.array([object()])}, path, version=version)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# --- Any values -----------------------------------------------------------------------------


def has_dense_extras(value: Any) -> bool:
    """Return whether a value is a dense tensor that an array, as which it is read, cannot hold."""
    return (
        isinstance(value, ztensor.Tensor)
        and value.format == "dense"
        and (bool(value.attributes) or len(value.components) > 1)
    )


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_any_dict(
    version: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A file is read as it was written, and saved with the same bytes: in any order, once read."""
    tensors = data.draw(strategies.dicts(version))
    own = data.draw(strategies.attributes(version, of_file=True))
    options: dict[str, Any] = {
        "version": version,
        "compression": data.draw(
            st.sampled_from([False, True, 1, 19, -3, *(["planes"] if version == "1.2.0" else [])])
        ),
        "checksum": data.draw(st.sampled_from(["crc32c", "sha256"])),
    }
    path = tmp_path_factory.mktemp("any") / "file.zt"
    save_file(tensors, path, own, **options)
    require_file(path, tensors, version)
    with ztensor.open(path) as reader:
        assert cbor.encode(reader.attributes) == cbor.encode(own)
    first = path.read_bytes()
    again = [dict(reversed(list(tensors.items())))]
    if not any(map(has_dense_extras, tensors.values())):
        again += [load(first, copy=copy) for copy in (True, False)]
        again.append(load_file(path))
    for each in again:
        assert set(each) == set(tensors)
        assert save(each, own, **options) == first


def saved(tensors: dict[str, Any], path: Path, version: str, **options: Any) -> list[str]:
    """Save the tensors that a version can hold; return the names of the others."""
    refused = []
    for name, tensor in tensors.items():
        try:
            save_file({name: tensor}, path, version=version)
        except NotRepresentableError:
            refused.append(name)
    kept = {name: tensor for name, tensor in tensors.items() if name not in refused}
    save_file(kept, path, version=version, **options)
    return refused


@pytest.mark.slow
@settings(max_examples=40)
@given(data=st.data())
def test_any_object_goes_round(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("versions")
    first = data.draw(st.sampled_from(list(EMITTERS)))
    said = first if first in strategies.TYPES_OF else strategies.LATEST
    tensors = data.draw(strategies.dicts(said))
    path = folder / "0.zt"
    refused = saved(tensors, path, first, compression=data.draw(st.booleans()))
    assert first not in strategies.TYPES_OF or not refused
    expected = ztensor.insight.tensor_hashes(path, attributes=True)
    assert set(expected) == set(tensors) - set(refused)
    chain = data.draw(st.lists(st.sampled_from(list(EMITTERS)), min_size=1, max_size=3))
    for number, version in enumerate([*chain, first]):
        target = folder / f"{number + 1}.zt"
        compression = data.draw(st.sampled_from([None, None, True, False]))
        names = set(expected)
        try:
            report = ztensor.convert(
                path, target, version=version, check=True, compression=compression
            )
        except NotRepresentableError:  # the version can hold no tensor of the file
            return
        for lost in report.lost:
            assert lost.object_name in names
            expected.pop(str(lost.object_name), None)
        found = ztensor.insight.tensor_hashes(target, attributes=True)
        assert set(expected) <= set(found) <= names
        assert {name: found[name] for name in expected} == expected
        if report.lost:
            try:
                ztensor.convert(path, folder / "strict.zt", version=version, strict=True)
            except NotRepresentableError:
                assert not (folder / "strict.zt").exists()
            else:
                raise AssertionError(report.lost)
        with ztensor.open(target) as reader:
            assert reader.verify(deep=True).outcome != "damaged"
        expected, path = {name: found[name] for name in found}, target


# --- Manifests ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_parse_undoes_emit(version: str, data: st.DataObject) -> None:
    manifest, blobs_end = data.draw(strategies.manifests(version))
    emitter = EMITTERS[version]()
    emitted = emitter.emit(manifest, blobs_end)
    container, tail = (
        (framing.Container.V0_1, 8) if version == "0.1.0" else (framing.Container.V1, 16)
    )
    length = int.from_bytes(emitted[-tail:][:8], "little")
    assert length == len(emitted) - tail
    frame = framing.Frame(container, blobs_end, length, blobs_end + len(emitted))
    parsed = SCHEMAS[container](emitted[:-tail], frame, Budget(DEFAULT_LIMITS, frame.file_size))
    assert parsed.version == manifest.version
    assert parsed.extra is None
    assert parsed.objects == manifest.objects
    assert parsed.attributes == manifest.attributes
    if version == "0.1.0":
        assert list(parsed.objects) == list(manifest.objects)
    else:
        assert parsed.commit is not None
        assert (parsed.commit.prev, parsed.commit.end) == (0, frame.file_size)
