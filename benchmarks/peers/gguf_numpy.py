"""GGUF by the gguf package, which maps."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

_gguf: Any = importlib.import_module("gguf")

START = ("gguf", "[tensor.name for tensor in gguf.GGUFReader(PATH).tensors]")
LACKS = {
    "save_crc32c": "the format has no digests",
    "save_sha256": "the format has no digests",
    "save_zstd": "the format has no compression",
    "verify": "the format has no digests",
    "append": "a file cannot be extended",
}


def save(tensors: dict[str, Any], path: str) -> None:
    writer = _gguf.GGUFWriter(path, "benchmark")
    for name, tensor in tensors.items():
        if tensor.dtype == np.uint16:  # the bits of bfloat16
            bits = tensor.view(np.uint8)
            writer.add_tensor(name, bits, raw_dtype=_gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def keys(path: str) -> list[str]:
    return [tensor.name for tensor in _gguf.GGUFReader(path).tensors]


def one(path: str, name: str) -> Any:
    return next(tensor.data for tensor in _gguf.GGUFReader(path).tensors if tensor.name == name)


def mapped(path: str) -> dict[str, Any]:
    return {tensor.name: tensor.data for tensor in _gguf.GGUFReader(path).tensors}


def owned(path: str) -> dict[str, Any]:
    return {tensor.name: np.array(tensor.data) for tensor in _gguf.GGUFReader(path).tensors}


def slices(path: str, ranges: dict[str, tuple[int, int]]) -> dict[str, Any]:
    tensors = mapped(path)
    return {name: tensors[name][start:stop] for name, (start, stop) in ranges.items()}
