"""The values that the formats' own libraries read from a file, by our names of objects.

Each reader yields names and values: an array, a sparse array of SciPy, or None for anything other
than an array of numbers. Nothing of a pickle is executed: `torch.load` with `weights_only=True`.
"""

from __future__ import annotations

import importlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    Values = Iterator[tuple[str, Any]]

LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "npy": ("numpy",),
    "npz": ("numpy",),
    "safetensors": ("safetensors", "torch"),
    "gguf": ("gguf",),
    "pt": ("torch",),
    "hdf5": ("h5py",),
    "keras": ("h5py",),
    "onnx": ("onnx",),
}


def theirs(kind: str, path: Path) -> Values:
    """Yield the values that a format's library reads from a file.

    Args:
        kind: the format, as `Reader.format` has it.
        path: the file.
    """
    return READERS[kind](path)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether NumPy has elements of a type as all machines do: long doubles differ."""
    return dtype.kind in "biufc" and dtype.itemsize <= (16 if dtype.kind == "c" else 8)


def _library(name: str) -> Any:
    return importlib.import_module(name)


def _numbers(values: Any) -> Any:
    return values if is_number(values.dtype) else None


def _npy(path: Path) -> Values:
    try:
        values = np.load(path, allow_pickle=False)
    except ValueError:  # an array of objects, a pickle
        values = None
    yield "array", None if values is None else _numbers(values)


def _npz(path: Path) -> Values:
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            try:
                values = archive[name]
            except ValueError:  # an array of objects, a pickle
                values = None
            if values is None or isinstance(values, np.ndarray):
                yield name, None if values is None else _numbers(values)


def _safetensors(path: Path) -> Values:
    with _library("safetensors").safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118  # not a mapping
            yield name, _from_torch(file.get_tensor(name))


def _gguf(path: Path) -> Values:
    gguf = _library("gguf")
    for tensor in gguf.GGUFReader(path).tensors:
        shape = tuple(map(int, tensor.shape[::-1]))
        kind = tensor.tensor_type.name
        if kind in ("F16", "F32", "F64", "I8", "I16", "I32", "I64"):
            yield tensor.name, np.asarray(tensor.data).reshape(shape)
        elif kind == "BF16":
            yield tensor.name, np.ascontiguousarray(tensor.data).view(ml_dtypes.bfloat16)
        else:
            floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            yield tensor.name, floats.reshape(shape)


def _pt(path: Path) -> Values:
    torch = _library("torch")
    found = torch.load(path, map_location="cpu", weights_only=True)
    for name, tensor in _flat(found, torch.Tensor):
        yield name, _from_torch(tensor.detach())


def _flat(value: Any, tensor: type, name: str = "") -> Values:
    """Yield the tensors in dicts and lists, their names joined by dots."""
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _flat(item, tensor, f"{name}.{key}" if name else str(key))
    elif isinstance(value, tensor):
        yield name, value


def _from_torch(tensor: Any) -> Any:
    torch = _library("torch")
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.contiguous().numpy()


def _hdf5(path: Path) -> Values:
    with _library("h5py").File(path) as file:
        yield from _datasets(file)


def _keras(path: Path) -> Values:
    with zipfile.ZipFile(path) as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
    with _library("h5py").File(weights) as file:
        yield from _datasets(file)


def _datasets(file: Any) -> Values:
    """Yield the datasets of a file by their paths, each group walked once."""
    h5py = _library("h5py")
    walked = set()

    def walk(group: Any, above: str) -> Values:
        walked.add(h5py.h5o.get_info(group.id).addr)
        for key in group:
            name = f"{above}{key}"
            link = group.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                yield name, None
                continue
            try:
                item = group[key]
            except KeyError:  # a soft link that leads nowhere
                continue
            except OSError:  # a type that libhdf5 has not
                yield name, None
                continue
            if isinstance(item, h5py.Group):
                is_soft = isinstance(link, h5py.SoftLink)
                if not is_soft and h5py.h5o.get_info(item.id).addr not in walked:
                    yield from walk(item, f"{name}/")
            elif isinstance(item, h5py.Dataset):
                yield name, _values(item)

    yield from walk(file, "")


def _values(dataset: Any) -> Any:
    h5py = _library("h5py")
    try:
        if not is_number(dataset.dtype):
            return None
        values = dataset[()]
    except (OSError, TypeError, ValueError):  # a filter or a type that libhdf5 and NumPy have not
        return None
    return None if isinstance(values, h5py.Empty) else np.asarray(values)


# --- ONNX -----------------------------------------------------------------------------------


def _onnx(path: Path) -> Values:
    onnx = _library("onnx")
    model = onnx.load(path)
    yield from _graph(onnx, model.graph, "")
    for function in model.functions:
        yield from _nodes(onnx, function.node, f"functions.{function.domain}.{function.name}.")
    for number, training in enumerate(model.training_info):
        for role in ("initialization", "algorithm"):
            yield from _graph(onnx, getattr(training, role), f"training.{number}.{role}.")


def _graph(onnx: Any, graph: Any, prefix: str) -> Values:
    for tensor in graph.initializer:
        yield prefix + tensor.name, _tensor(onnx, tensor)
    for sparse in graph.sparse_initializer:
        yield prefix + sparse.values.name, _sparse(onnx, sparse)
    yield from _nodes(onnx, graph.node, prefix)


def _nodes(onnx: Any, nodes: Any, prefix: str) -> Values:
    for node in nodes:
        output = next(iter(node.output), "")
        within = f"{prefix}{node.name or output or node.op_type}."
        for attribute in node.attribute:
            path = within + attribute.name
            own = f"{prefix}{output}" if node.op_type == "Constant" else path
            if attribute.HasField("t"):
                yield own, _tensor(onnx, attribute.t)
            if attribute.HasField("sparse_tensor"):
                yield own, _sparse(onnx, attribute.sparse_tensor)
            if attribute.HasField("g"):
                yield from _graph(onnx, attribute.g, f"{path}.")
            for number, tensor in enumerate(attribute.tensors):
                yield f"{path}.{number}", _tensor(onnx, tensor)
            for number, sparse in enumerate(attribute.sparse_tensors):
                yield f"{path}.{number}", _sparse(onnx, sparse)
            for number, graph in enumerate(attribute.graphs):
                yield from _graph(onnx, graph, f"{path}.{number}.")


def _tensor(onnx: Any, tensor: Any) -> Any:
    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    if kind == "STRING":
        return None
    values = np.asarray(onnx.numpy_helper.to_array(tensor))
    if kind in ("INT4", "UINT4", "INT2", "UINT2"):
        values = values.astype(np.int8 if kind[0] == "I" else np.uint8)
    return values


def _sparse(onnx: Any, sparse: Any) -> Any:
    shape = tuple(sparse.dims)
    where = onnx.numpy_helper.to_array(sparse.indices)
    axes = tuple(where.T) if where.ndim > 1 else np.unravel_index(where, shape)
    values = onnx.numpy_helper.to_array(sparse.values)
    return _library("scipy.sparse").coo_array((values, axes), shape=shape)


READERS: Mapping[str, Callable[[Path], Values]] = {
    "npy": _npy,
    "npz": _npz,
    "safetensors": _safetensors,
    "gguf": _gguf,
    "pt": _pt,
    "hdf5": _hdf5,
    "keras": _keras,
    "onnx": _onnx,
}
