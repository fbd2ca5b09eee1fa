"""Loading onto other devices, tested with the CPU as the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor import Tensor
from ztensor.errors import (
    ArgumentValueError,
    DigestMismatchError,
    LimitError,
    UnsupportedError,
)
from ztensor.testing.builder import RULES, VALUES, VERSIONS, build, draft, item, sealed

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
ztorch: Any = pytest.importorskip("ztensor.torch", exc_type=ImportError)
devices: Any = pytest.importorskip("ztensor.torch.devices", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")

CPU = torch.device("cpu")
gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
DEVICES = [CPU, pytest.param("cuda", marks=gpu)]


def arrays() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    result: dict[str, Any] = {
        f"small.{number}": generator.standard_normal(number).astype(np.float32)
        for number in range(40)
    }
    result["large"] = generator.standard_normal((300, 70))
    result["bf16"] = generator.standard_normal((100, 50)).astype(ml_dtypes.bfloat16)
    result["scalar"] = np.array(True)
    result["tied"] = result["large"]
    if hasattr(torch, "float4_e2m1fn_x2"):
        result["fp4"] = generator.standard_normal((6, 8)).astype(ml_dtypes.float4_e2m1fn)
    result["coo"] = Tensor.coo([1.0, 2.0], [[0, 2], [1, 0]], (3, 2))
    result["csr"] = Tensor.csr([1.0], [2], [0, 1], (1, 3))
    result["quantized"] = Tensor.quantize(np.ones((128, 2), np.float32))
    return result


def plain(value: Any) -> Any:
    """Return a comparable form of a tensor."""
    if isinstance(value, Tensor):
        return {role: array.tolist() for role, array in value.components.items()}
    value = value.cpu().to_dense() if value.layout is not torch.strided else value.cpu()
    return value.dtype, tuple(value.shape), value.reshape(-1).view(torch.uint8).tolist()


staged = pytest.mark.parametrize("staging", [64, 1000, 8 << 20])


def read(
    reader: Any, names: Any = None, device: Any = CPU, workers: int = 1, **options: Any
) -> Any:
    (file,) = reader.objects.parts()
    return devices.read_onto(file, names or reader, torch.device(device), workers, **options)


@staged
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_everything_arrives(device: Any, workers: int, compression: bool, staging: int) -> None:
    data = ztensor.numpy.save(arrays(), compression=compression)
    expected = ztorch.load(data)
    with ztensor.open(data) as reader:
        found = read(reader, None, device, workers, staging_nbytes=staging)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert plain(found[name]) == plain(value), name
    assert found["tied"].data_ptr() == found["large"].data_ptr()
    assert found["tied"] is not found["large"]


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("verify", [None, True, False])
@staged
def test_sent_bytes_are_checked(verify: bool | None, compression: bool, staging: int) -> None:
    data = bytearray(ztensor.numpy.save({"w": np.zeros(999)}, compression=compression))
    with ztensor.open(bytes(data)) as reader:
        where = reader.location("w")
    data[where.offset + where.length - 1] ^= 1
    with ztensor.open(bytes(data), verify=verify) as reader:
        if verify is False and not compression:
            assert read(reader, ["w"], staging_nbytes=staging)["w"].shape == (999,)
            return
        with pytest.raises(ztensor.FormatError) as caught:
            read(reader, ["w"], workers=2, staging_nbytes=staging)
        assert (caught.value.object_name, caught.value.component) == ("w", "data")
        assert isinstance(caught.value, DigestMismatchError) or compression


@pytest.mark.parametrize("orders", [["little", "big"], ["big", "little"]], ids="-".join)
def test_shared_bytes_of_two_byte_orders_become_two_tensors(orders: list[str]) -> None:
    stored = np.arange(4, dtype="<i4").tobytes()
    entry: dict[str, Any] = {"shape": [4], "dtype": "int32", "encoding": "raw"}
    entry |= {"layout": "dense", "offset": 64, "size": len(stored)}
    entries = [entry | {"name": order, "data_endianness": order} for order in orders]
    data = sealed(b"ZTEN0001" + bytes(56) + stored, item(entries))
    with ztensor.open(data) as reader:
        found = read(reader)
    assert found["little"].tolist() == [0, 1, 2, 3]
    assert found["big"].tolist() == [0, 1 << 24, 2 << 24, 3 << 24]


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_all_versions_arrive(version: str) -> None:
    data = build(version)
    expected = ztorch.load(data)
    with ztensor.open(data) as reader:
        found = read(reader)
    assert {name: plain(value) for name, value in found.items()} == {
        name: plain(value) for name, value in expected.items()
    }


def test_elements_of_another_representation_are_converted() -> None:
    """0.1 has big-endian elements, and any non-zero byte is true."""
    made = draft("0.1.0")
    made.component("matrix")["data_endianness"] = "big"
    made.blobs["flags", "data"] = bytes([1, 0, 255, 2])
    with ztensor.open(made.to_bytes()) as reader:
        found = read(reader, ["matrix", "flags"])
    expected = np.array(VALUES["matrix"], np.int32).byteswap()
    assert found["matrix"].tolist() == expected.tolist()
    assert found["flags"].tolist() == [True, False, True, True]


@pytest.mark.parametrize("workers", [1, 2])
def test_inference_mode_leaves_no_trace(workers: int) -> None:
    data = ztensor.numpy.save({"a": np.ones(3), "b": np.ones(4)})
    with ztensor.open(data) as reader, torch.inference_mode():
        found = read(reader, workers=workers)
    found["a"].add_(1)
    assert found["a"].tolist() == [2, 2, 2]


def test_too_much_memory_is_a_limit() -> None:
    with pytest.raises(LimitError):
        devices.empty(np.dtype(np.float64), (1 << 40, 1 << 40), "meta")


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.stage == "read"])
@pytest.mark.parametrize("way", ["onto a device", "a dict", "one object"])
def test_broken_objects_are_refused_on_every_way(name: str, way: str) -> None:
    rule = RULES[name]
    data = build(rule.versions[-1], broken=name)
    with ztensor.open(data) as reader:
        calls: dict[str, Any] = {
            "onto a device": lambda: read(reader),
            "a dict": lambda: ztorch.load(data),
            "one object": lambda: reader.read_torch(str(rule.object_name), copy=True),
        }
        with pytest.raises(ztensor.ZTensorError) as caught:
            calls[way]()
    assert caught.value.object_name == rule.object_name
    if rule.object_name != "groups" or way != "one object":  # torch has no such layout
        assert caught.value.reason == rule.reason


# --- meta -----------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_on_the_meta_device_nothing_is_read(compression: bool) -> None:
    data = bytearray(ztensor.numpy.save(arrays(), compression=compression))
    expected = ztorch.load(bytes(data))
    with ztensor.open(bytes(data)) as reader:
        dense = [name for name in reader if reader.metadata(name).format == "dense"]
        for name in [*dense, "coo", "csr"]:
            for part in reader.metadata(name).components.values():
                data[part.offset : part.offset + part.length] = bytes(part.length)
    found = ztorch.load(bytes(data), device="meta")
    assert list(found) == list(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert found[name].is_meta
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            assert found[name].layout == value.layout
    with ztensor.open(bytes(data)) as reader:
        assert reader.read_torch("large", device="meta").is_meta
        assert reader.read_torch(["large", "coo"], device="meta")["coo"]._nnz() == 2


# --- read_into ------------------------------------------------------------------------------

TARGETS = {
    "contiguous": lambda: torch.empty(2, 3),
    "transposed": lambda: torch.empty(3, 2).T,
    "a part": lambda: torch.empty(4, 6)[1:3, ::2],
    "a parameter": lambda: torch.nn.Parameter(torch.empty(2, 3)),
    "negated": lambda: torch.empty(2, 3, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("make", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_a_tensor_is_filled(make: Any, compression: bool, device: str) -> None:
    data = ztensor.numpy.save(
        {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, compression=compression
    )
    target = make().to(device)
    with ztensor.open(data) as reader:
        reader.read_into("w", target)
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("name", ["bf16", "fp4", "scalar", "small.0"])
def test_all_types_are_filled(name: str) -> None:
    if name not in arrays():
        pytest.skip(f"torch {torch.__version__} has no float4_e2m1fn_x2")
    data = ztensor.numpy.save({name: arrays()[name]})
    expected = ztorch.load(data)[name]
    target = torch.empty_like(expected)
    with ztensor.open(data) as reader:
        reader.read_into({name: target})
    assert plain(target) == plain(expected)


MISFITS = {
    "shape": (lambda: torch.empty(3, 2), "shape"),
    "type": (lambda: torch.empty(2, 3, dtype=torch.float64), "torch.float32"),
    "meta": (lambda: torch.empty(2, 3, device="meta"), "no memory"),
    "sparse": (lambda: torch.zeros(2, 3).to_sparse(), "no memory"),
    "expanded": (lambda: torch.empty(2, 1).expand(2, 3), "cannot fill"),
}


@pytest.mark.parametrize(("make", "says"), MISFITS.values(), ids=MISFITS)
def test_a_tensor_that_does_not_fit(make: Any, says: str) -> None:
    data = ztensor.numpy.save({"w": np.zeros((2, 3), np.float32)})
    with ztensor.open(data) as reader, pytest.raises(ArgumentValueError, match=says) as caught:
        reader.read_into("w", make())
    assert caught.value.object_name == "w"


def test_an_object_torch_has_no_type_for_fills_nothing() -> None:
    data = ztensor.numpy.save({"w": np.zeros(3, ml_dtypes.float4_e2m1fn)})
    with ztensor.open(data) as reader, pytest.raises(UnsupportedError):
        reader.read_into("w", torch.empty(3, dtype=torch.uint8))


# --- CUDA -----------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
class TestCuda:
    def test_files_and_models(self, tmp_path: Path) -> None:
        large = torch.arange(5 << 20, device="cuda", dtype=torch.int64)  # more than both buffers
        saved = {"a": large, "b": large, "c": torch.ones(3, device="cuda"), "d": torch.ones(2)}
        assert ztorch.save_file(saved, tmp_path / "m.zt") == {"b": "a"}
        found = ztorch.load_file(tmp_path / "m.zt", "cuda")
        assert all(tensor.is_cuda for tensor in found.values())
        assert torch.equal(found["a"], large)
        assert found["a"].data_ptr() == found["b"].data_ptr()
        model = torch.nn.Linear(3, 3, device="cuda")
        ztorch.save_model(model, tmp_path / "n.zt")
        other = torch.nn.Linear(3, 3, device="cuda")
        assert ztorch.load_model(other, tmp_path / "n.zt", device="cuda") == ([], [])
        assert torch.equal(model.weight, other.weight)

    def test_memory_in_use_is_not_written_to(self) -> None:
        data = ztensor.numpy.save({"w": np.ones(1 << 20, np.float32)})
        with ztensor.open(data) as reader:
            for _ in range(20):
                busy = torch.zeros(1 << 20, device="cuda")
                kept = busy + 1
                del busy
                found = reader.read_torch("w", device="cuda")
                assert torch.equal(found, kept)
