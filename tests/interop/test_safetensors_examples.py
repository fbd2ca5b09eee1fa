"""The examples of safetensors' pages, run on both libraries: only the import differs.

Each example is a program that takes its imports as an argument, and returns its result.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors", reason="safetensors is what these examples are compared with")


class Library:
    """One of the two, as an example imports it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.safe_open = importlib.import_module(name).safe_open

    def __getattr__(self, module: str) -> Any:
        return pytest.importorskip(f"{self.name}.{module}", exc_type=ImportError)


def needs(framework: str) -> Any:
    return pytest.importorskip(framework, reason=f"the example uses {framework}")


# --- NumPy ----------------------------------------------------------------------------------


def arrays() -> dict[str, Any]:
    return {
        "embedding": np.arange(24, dtype=np.float32).reshape(6, 4),
        "attention": np.eye(3, dtype=np.float16),
        "step": np.array(7, np.int64),
        "mask": np.array([True, False]),
        "none": np.zeros((0, 2), np.uint8),
    }


def numpy_file(library: Library, path: str) -> Any:
    library.numpy.save_file(arrays(), path)
    return library.numpy.load_file(path)


def numpy_file_with_metadata(library: Library, path: str) -> Any:
    library.numpy.save_file(arrays(), path, metadata={"format": "np", "epoch": "3"})
    with library.safe_open(path, framework="np") as f:
        return f.metadata()


def numpy_file_without_metadata(library: Library, path: str) -> Any:
    library.numpy.save_file(arrays(), path)
    with library.safe_open(path, "numpy") as f:
        return f.metadata()


def numpy_bytes(library: Library, path: str) -> Any:
    data = library.numpy.save(arrays(), {"format": "np"})
    assert isinstance(data, bytes)
    with open(path, "wb") as file:
        file.write(data)
    return [library.numpy.load(data), library.numpy.load_file(path)]


def numpy_one_by_one(library: Library, path: str) -> Any:
    library.numpy.save_file(arrays(), path)
    tensors = {}
    with library.safe_open(path, framework="np", device="cpu") as f:
        for key in f.keys():  # noqa: SIM118  # as the pages have it
            tensors[key] = f.get_tensor(key)
    return tensors


def numpy_names(library: Library, path: str) -> Any:
    library.numpy.save_file(arrays(), path)
    with library.safe_open(path, framework="np") as f:
        return [f.keys(), sorted(f.offset_keys())]


def numpy_all(library: Library, path: str) -> Any:
    library.numpy.save_file(arrays(), path)
    with library.safe_open(path, framework="np") as f:
        if not hasattr(f, "get_tensors"):
            pytest.skip("safetensors has get_tensors from 0.8 on")
        return f.get_tensors()


def numpy_part(library: Library, path: str) -> Any:
    library.numpy.save_file(arrays(), path)
    with library.safe_open(path, framework="np") as f:
        part = f.get_slice("embedding")
        rows, columns = part.get_shape()
        return [
            part.get_dtype(),
            part[:, : columns // 2],
            part[rows // 2 :],
            part[1],
            part[2, 3],
            part[..., 1:2],
            part[:],
            f.get_slice("step")[...],
        ]


def numpy_types(library: Library, path: str) -> Any:
    kinds = (
        "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool complex64"
    )
    library.numpy.save_file({kind: np.zeros(1, kind) for kind in kinds.split()}, path)
    with library.safe_open(path, framework="np") as f:
        return {name: f.get_slice(name).get_dtype() for name in f.keys()}  # noqa: SIM118


def without_with(library: Library, path: str) -> Any:
    library.numpy.save_file(arrays(), path)
    f = library.safe_open(path, framework="np")
    tensor = f.get_tensor("embedding")
    with f:
        pass
    return tensor


# --- PyTorch --------------------------------------------------------------------------------


def torch_tensors() -> dict[str, Any]:
    torch = needs("torch")
    return {
        "weight1": torch.arange(12, dtype=torch.float32).reshape(3, 4),
        "weight2": torch.ones((2, 2), dtype=torch.bfloat16),
        "bias": torch.zeros(4, dtype=torch.float64),
        "step": torch.tensor(5),
    }


def torch_file(library: Library, path: str) -> Any:
    library.torch.save_file(torch_tensors(), path)
    return [library.torch.load_file(path), library.torch.load_file(path, device="cpu")]


def torch_bytes(library: Library, path: str) -> Any:
    return library.torch.load(library.torch.save(torch_tensors()))


def torch_one_by_one(library: Library, path: str) -> Any:
    library.torch.save_file(torch_tensors(), path, metadata={"format": "pt"})
    tensors = {}
    with library.safe_open(path, framework="pt", device="cpu") as f:
        metadata = f.metadata()
        for key in f.keys():  # noqa: SIM118  # as the pages have it
            tensors[key] = f.get_tensor(key)
    return [metadata, tensors]


def torch_part(library: Library, path: str) -> Any:
    """Give each of two workers its columns, as tensor parallelism does."""
    library.torch.save_file(torch_tensors(), path)
    found = []
    for rank in range(2):
        with library.safe_open(path, framework="pt", device="cpu") as f:
            part = f.get_slice("weight1")
            _, columns = part.get_shape()
            size = columns // 2
            found += [part[:, rank * size : (rank + 1) * size], f.get_slice("weight2")[rank:]]
            found += [part.get_dtype(), f.get_slice("weight2").get_dtype(), part[rank]]
    return found


def torch_types(library: Library, path: str) -> Any:
    torch = needs("torch")
    kinds = "bfloat16 float8_e4m3fn float8_e5m2 float16 float32 float64 int8 int16 int32 int64"
    values = {k: torch.zeros(2, dtype=getattr(torch, k)) for k in [*kinds.split(), "bool", "uint8"]}
    library.torch.save_file(values, path)
    with library.safe_open(path, framework="pt") as f:
        names = {name: f.get_slice(name).get_dtype() for name in f.keys()}  # noqa: SIM118
        return [names, {name: f.get_tensor(name) for name in names}]


def network() -> Any:
    torch = needs("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    model[2].weight = model[0].weight  # tied, which save_file of safetensors refuses
    return model


def torch_model(library: Library, path: str) -> Any:
    torch = needs("torch")
    model = network()
    library.torch.save_model(model, path)
    other = network()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    missing, unexpected = library.torch.load_model(other, path)
    inputs = torch.ones(1, 4)
    assert other[2].weight is other[0].weight
    return [list(missing), list(unexpected), model(inputs).detach(), other(inputs).detach()]


def torch_model_not_strict(library: Library, path: str) -> Any:
    torch = needs("torch")
    library.torch.save_model(torch.nn.Linear(2, 2, bias=False), path)
    missing, unexpected = library.torch.load_model(torch.nn.Linear(2, 2), path, strict=False)
    return [list(missing), list(unexpected)]


def torch_model_strict(library: Library, path: str) -> Any:
    torch = needs("torch")
    library.torch.save_model(torch.nn.Linear(2, 2, bias=False), path)
    try:
        library.torch.load_model(torch.nn.Linear(2, 2), path)
    except RuntimeError as error:
        return "bias" in str(error)
    return None


# --- JAX ------------------------------------------------------------------------------------


def flax_file(library: Library, path: str) -> Any:
    jnp = needs("jax").numpy
    library.flax.save_file({"w": jnp.ones((2, 3)), "b": jnp.zeros(3, jnp.bfloat16)}, path)
    return library.flax.load_file(path)


def flax_bytes(library: Library, path: str) -> Any:
    jnp = needs("jax").numpy
    return library.flax.load(library.flax.save({"w": jnp.arange(6.0).reshape(2, 3)}))


def flax_part(library: Library, path: str) -> Any:
    jnp = needs("jax").numpy
    library.flax.save_file({"w": jnp.arange(6.0).reshape(2, 3)}, path)
    with library.safe_open(path, framework="flax") as f:
        part = f.get_slice("w")
        return [part.get_shape(), part[:, 1:], f.get_tensor("w")]


EXAMPLES: list[Callable[[Library, str], Any]] = [
    numpy_file, numpy_file_with_metadata, numpy_file_without_metadata, numpy_bytes,
    numpy_one_by_one, numpy_names, numpy_all, numpy_part, numpy_types, without_with,
    torch_file, torch_bytes, torch_one_by_one, torch_part, torch_types,
    torch_model, torch_model_not_strict, torch_model_strict,
    flax_file, flax_bytes, flax_part,
]  # fmt: skip


def plain(value: Any) -> Any:
    """Return a result as nested values that can be compared, the kinds of tensors included."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if hasattr(value, "shape"):
        kind = type(value).__module__.partition(".")[0]
        kind = "jax" if kind == "jaxlib" else kind
        numbers = value.double() if kind == "torch" else np.asarray(value, np.complex128)
        return kind, str(value.dtype), tuple(value.shape), str(numbers.tolist())
    return value


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_an_example(example: Callable[[Library, str], Any], tmp_path: Path) -> None:
    theirs = plain(example(Library("safetensors"), str(tmp_path / "model.safetensors")))
    ours = plain(example(Library("ztensor"), str(tmp_path / "model.zt")))
    assert ours == theirs
    assert json.dumps(ours)
