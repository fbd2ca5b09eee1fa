"""Floats of stored quantized objects of any layout, in blocks of bounded size."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import UnsupportedError
from ztensor.ext import LAYOUTS, FileObjects, Quantized, TensorObject, View, element_count, slice_of
from ztensor.quantization.gguf_blocks import GgufBlocks
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK = 1 << 20  # floats at a time


def floats_of(
    file: FileObjects, name: str
) -> tuple[Callable[[], Iterator[Array]], dict[str, object]] | None:
    """Return a function that yields the floats of an object, and the attributes of those floats.

    None if the object is not quantized.

    Raises:
        UnsupportedError: this release cannot dequantize the object.
    """
    tensor_object = file.object(name)
    layout = LAYOUTS.get(tensor_object.format)
    if not isinstance(layout, Quantized):
        return None
    try:
        attributes = layout.float_attributes(tensor_object.attributes or {})
    except UnsupportedError as error:
        error.locate(file=file.name, object_name=name)
        error.hint = "exclude the object to convert the others"
        raise
    return functools.partial(dequantized, file, name, threads=1), attributes


def dequantized(file: FileObjects, name: str, *, threads: int | None = None) -> Iterator[Array]:
    """Yield the floats of a quantized object, flat and in order, as float32 arrays.

    Stored bytes are checked against their digests. An object with scattered groups (`g_idx`) is
    dequantized as a whole.

    Raises:
        FormatError: the stored bytes are damaged.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    tensor_object = file.object(name)
    layout, shape = LAYOUTS.get(tensor_object.format), tensor_object.shape
    is_scattered = "g_idx" in tensor_object.components and len(shape) > 1
    if is_scattered or element_count(shape) <= _BLOCK:
        yield file.tensor(name, copy=True).dequantize(threads=threads).reshape(-1)
    elif isinstance(layout, GgufBlocks) and len(shape) < 2:  # one row of all blocks
        yield from _blocks(file, name, layout, threads)
    else:
        yield from _groups(file, name, tensor_object, threads)


def _blocks(
    file: FileObjects, name: str, layout: GgufBlocks, threads: int | None
) -> Iterator[Array]:
    kind, rest = layout.block_type, b""
    step = _BLOCK // kind.elements * kind.nbytes
    for chunk in file.decoded_chunks(name, "data"):
        data = memoryview(rest + bytes(chunk)) if rest else chunk
        end = data.nbytes // kind.nbytes * kind.nbytes
        rest = bytes(data[end:])
        for start in range(0, end, step):
            blocks = np.frombuffer(data[start : min(start + step, end)], np.uint8)
            view = View((blocks.size // kind.nbytes * kind.elements,), {"data": blocks}, {})
            yield layout.dequantize(view, threads=threads)


def _groups(
    file: FileObjects, name: str, tensor_object: TensorObject, threads: int | None
) -> Iterator[Array]:
    _require_digests(file, name, tensor_object)  # slices are not checked
    part: Any = slice_of(file, name, copy=True)
    unit = part.row_unit
    rows = max(1, _BLOCK // element_count(tensor_object.shape[1:]) // unit) * unit
    length = tensor_object.shape[0]
    for start in range(0, length, rows):
        block = part[start : min(start + rows, length)]
        yield block.dequantize(threads=threads).reshape(-1)


def _require_digests(file: FileObjects, name: str, tensor_object: TensorObject) -> None:
    if file.verify is False:
        return
    for role, component in tensor_object.components.items():
        with file.located(name, role):
            if not file.stored(component).check():
                for _ in file.decoded_chunks(name, role):  # raises if it covers neither form
                    pass
