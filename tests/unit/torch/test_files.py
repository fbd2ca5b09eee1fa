"""Dicts of torch tensors and models to files and back, compared with safetensors."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotRepresentableError,
    ObjectNotFoundError,
    SourceError,
    UnsupportedError,
    UsageError,
)

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
ztorch: Any = pytest.importorskip("ztensor.torch", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


def tensors() -> dict[str, Any]:
    return {
        "a": torch.arange(4.0),
        "b": torch.arange(6).to(torch.bfloat16).reshape(2, 3),
        "empty": torch.zeros(0, 2),
        "scalar": torch.tensor(7),
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
    }


def same(found: Any, expected: Any) -> bool:
    """Return whether two tensors are alike in layout, type, shape and elements."""
    return (
        (found.layout, found.dtype, found.shape, found.device)
        == (expected.layout, expected.dtype, expected.shape, expected.device)
    ) and found.to_dense().tolist() == expected.to_dense().tolist()


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("copy", [False, True], ids=["views", "copies"])
def test_a_dict_comes_back(tmp_path: Path, copy: bool, compression: bool) -> None:
    path = tmp_path / "m.zt"
    ztorch.save_file(tensors(), path, {"k": "v"}, compression=compression)
    data = ztorch.save(tensors(), {"k": "v"}, compression=compression)
    assert path.read_bytes() == data
    for found in (ztorch.load_file(path, copy=copy), ztorch.load(data)):
        assert list(found) == sorted(tensors())
        for name, expected in tensors().items():
            assert same(found[name], expected), name
        assert ztorch.save(found, {"k": "v"}, compression=compression) == data


def test_quantized_objects_stay_ours(tmp_path: Path) -> None:
    ours = Tensor.quantize(np.ones((128, 2), np.float32))
    ztorch.save_file({"q": ours, "n": np.ones(2), "w": torch.ones(2)}, tmp_path / "m.zt")
    found = ztorch.load_file(tmp_path / "m.zt")
    assert isinstance(found["q"], Tensor)
    assert isinstance(found["n"], torch.Tensor)
    assert ztorch.save(found) == (tmp_path / "m.zt").read_bytes()


@pytest.mark.slow
def test_views_outlive_the_file_and_never_reach_it(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    ztorch.save_file(tensors(), path)
    before = path.read_bytes()
    found = ztorch.load_file(path)
    gc.collect()
    found["a"].fill_(9)
    found["b"] += 1
    assert path.read_bytes() == before
    assert found["a"].tolist() == [9, 9, 9, 9]
    path.unlink()
    assert found["scalar"].item() == 7


def test_every_view_has_a_storage_of_its_own_size(tmp_path: Path) -> None:
    """What torch.save writes of a tensor is its whole storage."""
    ztorch.save_file({"a": torch.ones(4), "b": torch.ones(1000)}, tmp_path / "m.zt")
    assert ztorch.load_file(tmp_path / "m.zt")["a"].untyped_storage().nbytes() == 16


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_not_written_to(kind: Any) -> None:
    data = kind(ztorch.save({"w": torch.zeros(3)}))
    ztorch.load(data)["w"].fill_(1)
    with ztensor.open(data) as reader:
        reader.read_torch("w").fill_(1)
    assert ztorch.load(data)["w"].tolist() == [0, 0, 0]


def test_tied_tensors_are_stored_once(tmp_path: Path) -> None:
    weight = torch.arange(1000.0).reshape(10, 100)
    tied = {"a": weight, "b": torch.nn.Parameter(weight), "c": weight.T, "d": weight + 0}
    shared = ztorch.save_file(tied, tmp_path / "m.zt")
    assert shared == {"b": "a"}
    found = ztorch.load_file(tmp_path / "m.zt")
    assert found["a"].data_ptr() == found["b"].data_ptr() != found["d"].data_ptr()
    assert all(found[name].tolist() == tensor.tolist() for name, tensor in tied.items())
    assert ztorch.save(found) == ztorch.save(tied)
    assert ztorch.save_file(tied, tmp_path / "m.zt", deduplicate="content") == {"b": "a", "d": "a"}
    assert ztorch.save_file(tied, tmp_path / "m.zt", deduplicate=False) == {}


def test_the_ambient_device_and_mode_change_nothing(tmp_path: Path) -> None:
    ztorch.save_file(tensors(), tmp_path / "m.zt")
    with torch.device("meta"), torch.inference_mode():
        found = ztorch.load_file(tmp_path / "m.zt")
        assert ztorch.save(found) == (tmp_path / "m.zt").read_bytes()
    assert {str(tensor.device) for tensor in found.values()} == {"cpu"}


def test_options_reach_the_writer(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    ztorch.save_file(
        tensors(),
        tmp_path / "m.zt",
        metadata={"n": "1"},
        checksum="sha256",
        version="1.1.0",
        durable=False,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1][0] == seen[-1][1] > 0
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert (reader.version, reader.attributes) == ("1.1.0", {"n": "1"})
        digest = reader.metadata("a").components["data"].digest
    assert digest is not None
    assert digest.startswith("sha256:")


def test_the_error_names_the_object(tmp_path: Path) -> None:
    import ml_dtypes

    packed = np.zeros(3, ml_dtypes.float4_e2m1fn)
    ztensor.numpy.save_file({"fine": np.zeros(1), "odd": packed}, tmp_path / "m.zt")
    for device in ("cpu", "meta"):
        with pytest.raises(UnsupportedError) as caught:
            ztorch.load_file(tmp_path / "m.zt", device)
        assert caught.value.object_name == "odd"
        assert caught.value.file == str(tmp_path / "m.zt")


BAD_DICTS = {
    "no mapping": ([1], "mapping"),
    "the path": ("m.zt", "the tensors come first"),
    "a model": (torch.nn.Linear(1, 1), "state_dict.*save_model"),
    "a text": ({"w": "1.0"}, "no tensor: builtins.str"),
    "a state of another kind": ({"extra": {"step": 1}}, "flatten.*save_tree"),
    "a name that is not text": ({1: torch.ones(1)}, "text"),
}


@pytest.mark.parametrize(("value", "says"), BAD_DICTS.values(), ids=BAD_DICTS)
def test_only_tensors_are_saved(tmp_path: Path, value: Any, says: str) -> None:
    with pytest.raises(ArgumentTypeError, match=says):
        ztorch.save_file(value, tmp_path / "m.zt")
    assert not list(tmp_path.iterdir())


def test_values_that_numpy_saves_are_saved_as_numpy_saves_them(tmp_path: Path) -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    eye = scipy_sparse.eye(3, format="csr")
    values = {"array": np.ones(2), "number": 1.0, "list": [1, 2], "sparse": eye}
    ztorch.save_file({**values, "torch": torch.ones(3)}, tmp_path / "torch.zt")
    ztensor.numpy.save_file({**values, "torch": np.ones(3, np.float32)}, tmp_path / "numpy.zt")
    assert (tmp_path / "torch.zt").read_bytes() == (tmp_path / "numpy.zt").read_bytes()


def test_a_refused_tensor_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "m.zt").write_bytes(b"old")
    with pytest.raises(NotRepresentableError, match=r"'w'.*meta device"):
        ztorch.save_file({"w": torch.empty(1, device="meta")}, tmp_path / "m.zt")
    assert (tmp_path / "m.zt").read_bytes() == b"old"


@pytest.mark.slow
def test_torch_is_named_where_it_is_missing() -> None:
    program = """
import sys
sys.modules["torch"] = None
import ztensor
for call in (lambda: ztensor.torch, ztensor.Tensor([1.0]).torch):
    try:
        call()
    except ztensor.MissingDependencyError as error:
        print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "ztensor.torch needs PyTorch: pip install torch\n" * 2


# --- Reader ---------------------------------------------------------------------------------


def test_a_reader_gives_torch_tensors(tmp_path: Path) -> None:
    ztorch.save_file(tensors(), tmp_path / "m.zt")
    with ztensor.open(tmp_path / "m.zt") as reader:
        for name, expected in tensors().items():
            assert same(reader.read_torch(name), expected), name
        found = reader.read_torch(["b", "a"], copy=True)
        assert list(found) == ["b", "a"]
        assert found["a"].data_ptr() != reader.read_torch("a").data_ptr()
        assert reader.read_torch("a").data_ptr() == reader.read_torch("a").data_ptr()
        with pytest.raises(ObjectNotFoundError):
            reader.read_torch("c")


@pytest.mark.parametrize("source", ["path", "bytes", "file", "unmapped"], ids=str)
def test_every_kind_of_source(tmp_path: Path, source: str) -> None:
    path = tmp_path / "m.zt"
    ztorch.save_file(tensors(), path)
    with path.open("rb") as file:
        what: Any = {"bytes": path.read_bytes(), "file": file}.get(source, path)
        with ztensor.open(what, mmap=source != "unmapped") as reader:
            found = reader.read_torch(list(reader))
    assert all(same(found[name], expected) for name, expected in tensors().items())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_errors_of_other_layouts_name_a_method(device: str) -> None:
    data = ztensor.numpy.save(
        {
            "q": Tensor.quantize(np.ones((128, 2), np.float32)),
            "r": Tensor({"a": [1]}, shape=(1,), format="ring"),
        }
    )
    with ztensor.open(data) as reader:
        with pytest.raises(UsageError, match=r"'q'.*dequantize\(\)"):
            reader.read_torch("q", device=device)
        with pytest.raises(UsageError, match=r"'r'.*read\(name\)"):
            reader.read_torch(["r"], device=device)


# --- Next to safetensors --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["save", "save_file", "save_model", "load", "load_file", "load_model"]
)
def test_calls_for_safetensors_are_calls_for_us(name: str) -> None:
    theirs = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    ours = inspect.signature(getattr(ztorch, name)).parameters
    positional = [
        parameter
        for parameter in inspect.signature(getattr(theirs, name)).parameters.values()
        if parameter.kind is not parameter.KEYWORD_ONLY
    ]
    for parameter, place in zip(positional, ours.values(), strict=False):
        assert (parameter.name, parameter.default) == (place.name, place.default)
        assert place.kind is place.POSITIONAL_OR_KEYWORD


@pytest.mark.parametrize(
    "make",
    [
        lambda w: {"a": w, "b": w},
        lambda w: {"a": w.T},
        lambda w: {"a": w[:, 0], "b": w[:, 1]},
        lambda w: {"a": w.to_sparse()},
    ],
    ids=["shared", "transposed", "overlapping storage", "sparse"],
)
def test_tensors_that_safetensors_refuses_are_saved(make: Any) -> None:
    theirs = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    saved = make(torch.arange(6.0).reshape(2, 3))
    with pytest.raises((RuntimeError, ValueError)):
        theirs.save(saved)
    found = ztorch.load(ztorch.save(saved))
    assert all(found[n].to_dense().tolist() == t.to_dense().tolist() for n, t in saved.items())


# --- Devices --------------------------------------------------------------------------------

BAD_DEVICES = {
    "unknown": ("bogus", ArgumentValueError),
    "negative": (-1, ArgumentValueError),
    "no device": (None, ArgumentTypeError),
    "number without accelerator": (0, (ArgumentValueError, UnsupportedError)),
    "no such card": ("cuda:99", UnsupportedError),
    "another system's": ("mps", UnsupportedError),
}


@pytest.mark.parametrize(("device", "kind"), BAD_DEVICES.values(), ids=BAD_DEVICES)
def test_a_missing_device(tmp_path: Path, device: Any, kind: Any) -> None:
    if (device == 0 and torch.cuda.is_available()) or (
        device == "mps" and torch.backends.mps.is_available()
    ):
        pytest.skip(f"this machine has the device {device!r}")
    ztorch.save_file({"w": torch.ones(1)}, tmp_path / "m.zt")
    with pytest.raises(kind):
        ztorch.load_file(tmp_path / "m.zt", device)
    with ztensor.open(tmp_path / "m.zt") as reader, pytest.raises(kind):
        reader.read_torch("w", device=device)


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu")], ids=str)
def test_the_cpu_by_any_name(tmp_path: Path, device: Any) -> None:
    ztorch.save_file(tensors(), tmp_path / "m.zt")
    assert same(ztorch.load_file(tmp_path / "m.zt", device=device)["b"], tensors()["b"])


@pytest.mark.parametrize(
    "name", ["float32", "bfloat16", "float8_e4m3fn", "int8", "bool", "complex64"]
)
def test_a_stream_takes_torch_types_and_pieces(tmp_path: Path, name: str) -> None:
    dtype = getattr(torch, name)
    expected = torch.arange(24).reshape(6, 4).to(dtype)
    path = tmp_path / "streamed.zt"
    with ztensor.Writer(path) as writer, writer.stream("x", expected.shape, dtype) as sink:
        sink.write(expected[:2])
        with pytest.raises(ArgumentTypeError):
            sink.write(torch.zeros(1, 4, dtype=torch.int16))
        sink.write(expected[2:].reshape(-1), flat=True)
    found = ztorch.load_file(path)["x"]
    assert found.dtype == dtype
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


def test_a_stream_of_a_torch_type_that_no_file_has(tmp_path: Path) -> None:
    writer = ztensor.Writer(tmp_path / "x.zt")
    with pytest.raises(NotRepresentableError):
        writer.stream("x", (1,), torch.complex32)
    writer.abort()


# --- Several files ---------------------------------------------------------------------------


def layers() -> dict[str, Any]:
    result = {f"layer.{n}": torch.full((500,), n, dtype=torch.bfloat16) for n in range(7)}
    result["tied"] = result["layer.0"]
    result["other"] = torch.arange(6).reshape(2, 3).t()
    return result


def same_layers(found: dict[str, Any]) -> bool:
    expected = layers()
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


@pytest.mark.parametrize("size", ["2.5kB", "1kB", "5GB"])
def test_a_dict_in_several_files(size: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    shared = ztorch.save_file(layers(), tmp_path / "m.zt", {"format": "pt"}, max_shard_size=size)
    assert shared == {"tied": "layer.0"}
    for source in (tmp_path, tmp_path / "m.zt"):
        for options in ({}, {"copy": True}, {"verify": True}):
            assert same_layers(ztorch.load_file(source, **options))
    ztorch.load_file(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) == sum(name.endswith(".zt") for name in os.listdir(tmp_path))
    assert seen[-1][0] == seen[-1][1]


def test_nothing_is_read_for_meta(tmp_path: Path) -> None:
    ztorch.save_file(layers(), tmp_path / "m.zt", max_shard_size="1kB")
    found = ztorch.load_file(tmp_path, "meta")
    assert all(tensor.is_meta for tensor in found.values())
    assert found["other"].shape == (3, 2)


def test_a_reader_gives_tensors_of_all_files(tmp_path: Path) -> None:
    ztorch.save_file(layers(), tmp_path / "m.zt", max_shard_size="1kB")
    with ztensor.open(tmp_path) as reader:
        assert same_layers(reader.read_torch(layers()))
        assert list(reader.read_torch(["layer.5", "layer.1"])) == ["layer.5", "layer.1"]
        assert reader.read_torch("layer.3")[0] == 3
        target = torch.zeros(500, dtype=torch.bfloat16)
        reader.read_into("layer.6", target)
        assert target[0] == 6
        with pytest.raises(ztensor.ObjectNotFoundError):
            reader.read_torch(["layer.5", "x"])
        with pytest.raises(TypeError):
            reader.read_torch(5)  # type: ignore[call-overload]


def network(seed: int) -> Any:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize("size", ["200B", "5GB"])
def test_a_model_in_a_folder(size: str, tmp_path: Path) -> None:
    model, other = network(1), network(2)
    folder = tmp_path / "new" / "folder"
    assert ztorch.save_pretrained(model, folder, max_shard_size=size) == {"2.weight": "0.weight"}
    assert ("model.zt" in os.listdir(folder)) is (size == "5GB")
    with ztensor.open(folder) as reader:
        assert reader.attributes == {"format": "pt"}
    assert ztorch.load_pretrained(other, folder) == ([], [])
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )
    assert other[0].weight is other[2].weight


@pytest.mark.parametrize("size", ["200B", "5GB"])
def test_a_model_in_a_store(size: str) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    model, other = network(1), network(2)
    folder = ztensor.Remote("s3://bucket/m", store)
    ztorch.save_pretrained(model, folder, max_shard_size=size)
    assert ztorch.load_pretrained(other, folder) == ([], [])
    assert other[2].weight.equal(model[2].weight)


def test_a_state_in_a_folder(tmp_path: Path) -> None:
    state = {**network(1).state_dict(), "zeros": torch.zeros(999)}
    ztorch.save_pretrained(state, tmp_path, metadata={"k": "v"}, compression=True)
    with ztensor.open(tmp_path) as reader:
        assert reader.attributes == {"k": "v"}
        assert reader.metadata("zeros").components["data"].encoding == "zstd"


def test_a_module_that_is_a_mapping_too(tmp_path: Path) -> None:
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2)})
    ztorch.save_pretrained(model, tmp_path)
    assert set(ztorch.load_file(tmp_path)) == {"a.weight", "a.bias"}


def test_what_cannot_be_kept_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError):
        ztorch.save_pretrained(network(1), tmp_path / "file")
    with pytest.raises(ArgumentTypeError):
        ztorch.save_pretrained([1], tmp_path)
    ztorch.save_pretrained(torch.nn.Linear(2, 2), tmp_path)
    with pytest.raises(UsageError):
        ztorch.load_pretrained(network(1), tmp_path)
    missing, unexpected = ztorch.load_pretrained(network(1), tmp_path, strict=False)
    assert "0.weight" in missing
    assert unexpected == ["bias", "weight"]
