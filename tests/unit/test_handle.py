"""`ztensor.safe_open`; `tests/interop/test_safetensors_examples.py` compares it with its model."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.flipping import flip_object
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    DigestMismatchError,
    FormatError,
    MissingDependencyError,
    ObjectNotFoundError,
    UsageError,
)
from ztensor.numpy import save, save_file
from ztensor.testing.builder import VALUES, VERSIONS, build

GRID = np.arange(12, dtype=np.float32).reshape(3, 4)
TENSORS: dict[str, Any] = {
    "z": GRID,
    "a": np.arange(5),
    "s": ztensor.Tensor.csr([1.0, 2.0], [2, 0], [0, 1, 2], (2, 3)),
    "scalar": np.array(2.5),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "m.zt", {"format": "np", "epoch": "3"})
    return tmp_path / "m.zt"


@pytest.mark.parametrize("framework", ["np", "numpy"])
def test_one_tensor_at_a_time(path: Path, framework: str) -> None:
    with ztensor.safe_open(path, framework, None) as f:
        assert f.keys() == ["a", "s", "scalar", "z"]
        assert f.get_tensor("z").tolist() == GRID.tolist()
        assert f.get_tensor("scalar").shape == ()
        assert f.get_tensor("s").to_dense().tolist() == [[0, 0, 1], [2, 0, 0]]
        assert f.metadata() == {"format": "np", "epoch": "3"}
        found = f.get_tensors()
        assert list(found) == f.offset_keys()
        assert set(found) == set(TENSORS)
        assert str(path) in repr(f)
    assert found["z"].tolist() == GRID.tolist()  # outlives the handle


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_every_version(version: str) -> None:
    with ztensor.safe_open(build(version), "np") as f:
        assert sorted(VALUES.keys() & set(f.keys())) == f.keys()
        for name in f.keys():  # noqa: SIM118  # a handle is no mapping
            value = f.get_tensor(name)
            dense = value.to_dense() if isinstance(value, ztensor.Tensor) else value
            assert dense.tolist() == VALUES[name]


def test_names_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    with ztensor.Writer(tmp_path / "m.zt") as writer:
        for name in ("z", "b", "m", "a"):
            writer.add(name, np.zeros(3))
    with ztensor.safe_open(tmp_path / "m.zt", "np") as f:
        assert f.keys() == ["a", "b", "m", "z"]
        assert f.offset_keys() == ["z", "b", "m", "a"]


def test_a_set_of_shards(tmp_path: Path) -> None:
    tensors = {name: np.full(1000, number) for number, name in enumerate("dcba")}
    save_file(tensors, tmp_path / "m.zt", {"k": "v"}, max_shard_size="10KB")
    for source in (tmp_path, tmp_path / "m.zt", tmp_path / "m.zt.index.json"):
        with ztensor.safe_open(source, "np") as f:
            assert f.keys() == f.offset_keys() == ["a", "b", "c", "d"]
            assert f.metadata() == {"k": "v"}
            assert f.get_tensor("b")[0] == 2
            assert f.get_slice("a")[5:7].tolist() == [3, 3]
            assert {name: int(array[0]) for name, array in f.get_tensors().items()} == {
                name: int(array[0]) for name, array in tensors.items()
            }


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (None, None),
        ({}, None),
        ({"a": "b"}, {"a": "b"}),
        (
            {"n": 5, "f": 0.5, "l": [1, {"x": None}], "t": True, "ü": "ö"},
            {"n": "5", "f": "0.5", "l": '[1, {"x": null}]', "t": "true", "ü": "ö"},
        ),
        ({"b": b"\x00\xff"}, {"b": "\"b'\\\\x00\\\\xff'\""}),
    ],
    ids=["none", "empty", "text", "other values", "bytes"],
)
def test_metadata_is_text(attributes: Any, expected: Any) -> None:
    with ztensor.safe_open(save({"a": GRID}, attributes), "np") as f:
        assert f.metadata() == expected


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        (1, 2),
        slice(1, None),
        (slice(None), slice(0, 2)),
        ...,
        (..., 0),
        slice(None, None, 2),
    ],
    ids=str,
)
def test_a_slice_is_what_numpy_says(path: Path, key: Any) -> None:
    with ztensor.safe_open(path, "np") as f:
        part = f.get_slice("z")
        assert part.get_shape() == [3, 4]
        found = part[key]
        assert isinstance(found, np.ndarray)
        assert found.tolist() == GRID[key].tolist()
        assert found.shape == GRID[key].shape
        assert "'z'" in repr(part)
        assert f.get_slice("scalar")[...].shape == ()
        rows: Any = f.get_slice("s")[1:]
        assert rows.to_dense().tolist() == [[2, 0, 0]]


SPELLINGS = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "complex64": "C64", "complex128": "C128",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn": "F4",
}  # fmt: skip


@pytest.mark.parametrize(("name", "spelled"), SPELLINGS.items(), ids=SPELLINGS)
def test_types_are_spelled_as_safetensors_does(name: str, spelled: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)
    with ztensor.safe_open(save({"x": np.zeros(2, dtype)}), "np") as f:
        assert f.get_slice("x").get_dtype() == spelled


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_backends(path: Path, backend: str) -> None:
    with ztensor.safe_open(path, framework="np", device="cpu", backend=backend) as f:
        assert f.get_tensor("z").tolist() == GRID.tolist()
        assert f.get_slice("z")[1].tolist() == GRID[1].tolist()
        assert (f.reader.objects.parts()[0].source.view() is None) is (backend == "pread")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"framework": "xx"}, ArgumentValueError),
        ({"framework": "NP"}, ArgumentValueError),
        ({"framework": None}, ArgumentValueError),
        ({"framework": ["np"]}, ArgumentValueError),
        ({"framework": "np", "device": "cuda"}, ArgumentValueError),
        ({"framework": "np", "device": 0}, ArgumentValueError),
        ({"framework": "np", "backend": "magic"}, ArgumentValueError),
        ({"framework": "np", "backend": None}, ArgumentValueError),
    ],
    ids=str,
)
def test_arguments_that_cannot_work(path: Path, arguments: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ztensor.safe_open(path, **arguments)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "bad.zt").write_bytes(b"xx")
    with pytest.raises(FileNotFoundError):
        ztensor.safe_open(tmp_path / "no.zt", "np")
    with pytest.raises(FormatError):
        ztensor.safe_open(tmp_path / "bad.zt", "np")
    with pytest.raises(ArgumentTypeError):
        ztensor.safe_open(5, "np")  # type: ignore[call-overload]


def test_names_and_indices_that_are_none(path: Path) -> None:
    with ztensor.safe_open(path, "np") as f:
        for use in (f.get_tensor, f.get_slice):
            with pytest.raises(ObjectNotFoundError, match="did you mean 'scalar'"):
                use("scalr")
            with pytest.raises(UsageError):
                use(5)  # type: ignore[arg-type]
        with pytest.raises(ArgumentValueError):
            f.get_slice("z")[7]
        with pytest.raises(ArgumentTypeError):
            f.get_slice("z")["x"]


def test_damage_is_noticed(path: Path) -> None:
    flip_object(path, "z")
    with ztensor.safe_open(path, "np", verify=True) as f, pytest.raises(DigestMismatchError):
        f.get_tensor("z")
    with (
        ztensor.safe_open(path, "np", backend="pread") as f,
        pytest.raises(DigestMismatchError),
    ):
        f.get_tensors()


def test_a_closed_handle(path: Path) -> None:
    f = ztensor.safe_open(path, "np")  # a with block is not needed
    array, part = f.get_tensor("z"), f.get_slice("z")
    with f:
        pass
    f.close()
    for use in (
        f.keys, f.offset_keys, f.metadata, f.get_tensors, f.__enter__,
        lambda: f.get_tensor("z"), lambda: f.get_slice("z"), lambda: part[0],
    ):  # fmt: skip
        with pytest.raises(ClosedError):
            use()
    assert array.tolist() == GRID.tolist()


def test_workers_open_it_themselves(path: Path) -> None:
    with ztensor.safe_open(path, "np") as f, pickle.loads(pickle.dumps(f)) as again:
        assert again.get_tensor("z").tolist() == GRID.tolist()


@pytest.mark.parametrize("framework", ["pt", "jax"])
def test_a_framework_that_is_missing(
    framework: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, name = {"pt": ("torch", "torch"), "jax": ("jax", "jax")}[framework]
    import sys

    for module in [one for one in sys.modules if one.startswith(f"ztensor.{home}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=f"pip install {name}"):
        ztensor.safe_open(path, framework)


# --- Frameworks -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_torch_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    bf16 = np.arange(4, dtype=ml_dtypes.bfloat16)
    save_file({**TENSORS, "b": bf16}, tmp_path / "m.zt", max_shard_size="100B")
    for framework, device in (("pt", "cpu"), ("torch", torch.device("cpu")), ("pytorch", None)):
        with ztensor.safe_open(tmp_path, framework, device) as f:
            assert torch.equal(f.get_tensor("z"), torch.from_numpy(GRID.copy()))
            assert f.get_tensor("b").dtype is torch.bfloat16
            assert f.get_tensor("s").to_dense().tolist() == [[0, 0, 1], [2, 0, 0]]
            assert f.get_slice("b")[1:3].tolist() == [1, 2]
            assert f.get_slice("b")[1:3].dtype is torch.bfloat16
            assert f.get_slice("z")[1, 2].shape == ()
            assert f.get_slice("z")[:, ::2].tolist() == GRID[:, ::2].tolist()
            assert f.get_slice("s")[:1].to_dense().tolist() == [[0, 0, 1]]
            found = f.get_tensors()
            assert list(found) == f.offset_keys()
            assert all(isinstance(value, torch.Tensor) for value in found.values())
    with ztensor.safe_open(tmp_path, "pt", "meta") as f:
        assert f.get_tensor("z").is_meta
        assert f.get_slice("z")[:2].is_meta
    with pytest.raises(ztensor.ZTensorError):
        ztensor.safe_open(tmp_path, "pt", "no such device")


def test_jax_arrays(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    tensors = {"z": GRID, "b": np.ones(3, ml_dtypes.bfloat16)}
    save_file(tensors, tmp_path / "m.zt", max_shard_size="30B")
    for framework, device in (("jax", "cpu"), ("flax", jax.devices("cpu")[0])):
        with ztensor.safe_open(tmp_path / "m.zt", framework, device) as f:
            assert isinstance(f.get_tensor("z"), jax.Array)
            assert f.get_tensor("z").tolist() == GRID.tolist()
            assert isinstance(f.get_slice("z")[:, 1], jax.Array)
            assert f.get_slice("z")[:, 1].tolist() == GRID[:, 1].tolist()
            assert f.get_slice("b").get_dtype() == "BF16"
            assert set(f.get_tensors()) == {"b", "z"}
