"""The floats that a stored object stands for, a piece at a time, whatever it is quantized by."""

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

_PIECE = 1 << 20  # floats at a time


def floats_of(
    file: FileObjects, name: str
) -> tuple[Callable[[], Iterator[Array]], dict[str, object]] | None:
    """Return what gives the floats of an object, flat and in order, checked against its digests.

    Args:
        file: an open file.
        name: of the object.

    Returns:
        That, and those of its attributes that do not say how it is quantized; None where its
        layout is none of ours.

    Raises:
        UnsupportedError: this release cannot take blocks of the type apart.
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

    Stored bytes are checked against their digests. Groups that are scattered over all rows are
    dequantized as a whole.

    Args:
        file: an open file.
        name: of the object.
        threads: as for `Quantized.dequantize`.

    Raises:
        FormatError: the stored bytes are damaged.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    found = file.object(name)
    layout = LAYOUTS.get(found.format)
    is_scattered = "g_idx" in found.components and len(found.shape) > 1
    if is_scattered or element_count(found.shape) <= _PIECE:
        yield file.tensor(name, copy=True).dequantize(threads=threads).reshape(-1)
    elif isinstance(layout, GgufBlocks) and len(found.shape) < 2:  # one row of all blocks
        yield from _blocks(file, name, layout, threads)
    else:
        yield from _groups(file, name, found, threads)


def _blocks(
    file: FileObjects, name: str, layout: GgufBlocks, threads: int | None
) -> Iterator[Array]:
    kind, rest = layout.block_type, b""
    step = _PIECE // kind.elements * kind.nbytes
    for chunk in file.decoded_chunks(name, "data"):
        data = memoryview(rest + bytes(chunk)) if rest else chunk
        end = data.nbytes // kind.nbytes * kind.nbytes
        rest = bytes(data[end:])
        for start in range(0, end, step):
            blocks = np.frombuffer(data[start : min(start + step, end)], np.uint8)
            view = View((blocks.size // kind.nbytes * kind.elements,), {"data": blocks}, {})
            yield layout.dequantize(view, threads=threads)


def _groups(
    file: FileObjects, name: str, found: TensorObject, threads: int | None
) -> Iterator[Array]:
    _require_digests(file, name, found)  # a part is checked against none
    part: Any = slice_of(file, name, copy=True)
    unit = part.row_unit
    rows = max(1, _PIECE // element_count(found.shape[1:]) // unit) * unit
    for start in range(0, found.shape[0], rows):
        some = part[start : min(start + rows, found.shape[0])]
        yield some.dequantize(threads=threads).reshape(-1)


def _require_digests(file: FileObjects, name: str, tensor_object: TensorObject) -> None:
    if file.verify is False:
        return
    for role, component in tensor_object.components.items():
        with file.located(name, role):
            if not file.stored(component).check():
                for _ in file.decoded_chunks(name, role):  # raises where it covers neither
                    pass
