"""The floats that a stored object stands for, a piece at a time, whatever it is quantized by."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import UnsupportedError
from ztensor.ext import Array, FileObjects, TensorObject, View, element_count, slice_of
from ztensor.quantization.gguf_blocks import GGUF_LAYOUTS
from ztensor.quantization.group_profiles import PROFILES
from ztensor.quantization.scheme import GroupScheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PIECE_BYTES = 4 << 20  # of floats, at a time


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
    found = file.object(name)
    attributes = dict(found.attributes or {})
    if found.format in GGUF_LAYOUTS:
        return _blocks(file, name, found), attributes
    if found.format in PROFILES:
        return _groups(file, name), {}
    if found.format != "quantized_group":
        return None
    for field in dataclasses.fields(GroupScheme):
        attributes.pop(field.name, None)
    return _groups(file, name), attributes


def _blocks(
    file: FileObjects, name: str, tensor_object: TensorObject
) -> Callable[[], Iterator[Array]]:
    layout = GGUF_LAYOUTS[tensor_object.format]
    kind = layout.block_type
    try:
        layout.require_known()
    except UnsupportedError as error:
        error.locate(file=file.name, object_name=name)
        error.hint = "exclude the object to convert the others"
        raise

    def pieces() -> Iterator[Array]:
        rest = b""
        for chunk in file.decoded_chunks(name, "data"):
            data = memoryview(rest + bytes(chunk)) if rest else chunk
            count = data.nbytes // kind.nbytes
            rest = bytes(data[count * kind.nbytes :])
            if count:
                blocks = np.frombuffer(data[: count * kind.nbytes], np.uint8)
                view = View((count * kind.elements,), {"data": blocks}, {})
                yield layout.dequantize(view, threads=1)

    return pieces


def _groups(file: FileObjects, name: str) -> Callable[[], Iterator[Array]]:
    def pieces() -> Iterator[Array]:
        tensor_object = file.object(name)
        shape = tensor_object.shape
        part: Any = slice_of(file, name)
        scattered = "g_idx" in tensor_object.components and len(shape) > 1
        if scattered or not element_count(shape):
            yield file.tensor(name, copy=True).dequantize(threads=1).reshape(-1)
            return
        _require_digests(file, name, tensor_object)  # a part is checked against none
        unit = part.row_unit
        rows = max(1, _PIECE_BYTES // (4 * element_count(shape[1:])) // unit) * unit
        for start in range(0, shape[0], rows):
            yield part[start : min(start + rows, shape[0])].dequantize(threads=1).reshape(-1)

    return pieces


def _require_digests(file: FileObjects, name: str, tensor_object: TensorObject) -> None:
    if file.verify is False:
        return
    for role, component in tensor_object.components.items():
        with file.located(name, role):
            if not file.stored(component).check(once=True):
                for _ in file.decoded_chunks(name, role):  # raises where it covers neither
                    pass
