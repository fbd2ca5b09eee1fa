"""`gguf.<type>`: tensors as ggml quantizes them, in blocks of their last axis.

| role | elements |
| --- | --- |
| `data` | u8: the blocks as a GGUF file has them, row by row |

A block encodes a fixed number of neighbours in a row, so rows are whole blocks. Fields of more
than one byte are little-endian. Every type ggml has a number for is a layout of its own, so that
blocks are kept as they are; most can also be dequantized, by `gguf_decoding.py`. No specification
of zTensor knows these layouts: to other readers they are unknown ones with one component of bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import (
    ArgumentValueError,
    LayoutError,
    Problem,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.ext import Quantized, Rows, TensorObject, View, element_count, empty_array
from ztensor.quantization.namespace import NumpyNamespace
from ztensor.quantization.scheme import float_dtype
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike

    from ztensor.quantization.unpacking import Indices

SECTION = "GGUF, ggml types"

# Elements decoded at once: floats and intermediate arrays fit a second level cache.
_TILE = 1 << 17


class BlockType(NamedTuple):
    """A quantized type of ggml.

    Attributes:
        name: ggml's name, in lower case.
        number: the type's number in GGUF files.
        elements: elements of a block.
        nbytes: bytes of a block.
    """

    name: str
    number: int
    elements: int
    nbytes: int

    @property
    def layout(self) -> str:
        """Return the name of the layout."""
        return f"gguf.{self.name}"

    def data_bytes(self, shape: Sequence[int]) -> int | None:
        """Return the bytes of a tensor; None if its rows are not whole blocks."""
        blocks, rest = divmod(shape[-1] if shape else 1, self.elements)
        return None if rest else element_count(shape[:-1]) * blocks * self.nbytes


class GgufBlocks(Quantized):
    """The layout of one type of blocks."""

    section = SECTION
    main_role = "data"
    read_order = ("data",)
    has_streamed_rules = True
    has_row_bytes = True

    def __init__(self, block_type: BlockType) -> None:
        self.name = block_type.layout
        self.block_type = block_type

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return problems with the component, its type and its length."""
        if problems := super().check_object(tensor_object):
            return problems
        component = tensor_object.components["data"]
        if component.dtype != "u8" or component.type is not None:
            word = describe(component.type or component.dtype)
            return [self._problem(Reason.TYPE_MISMATCH, f"expected u8, found {word}")]
        expected = self.block_type.data_bytes(tensor_object.shape)
        shape = describe(tensor_object.shape, 60)
        if expected is None:
            return [self._problem(Reason.SIZE_MISMATCH, f"{self._whole_blocks()}, found {shape}")]
        length = component.known_decoded_length
        if length in (None, expected):
            return []
        message = f"expected {expected} bytes for shape {shape}, found {length}"
        return [self._problem(Reason.SIZE_MISMATCH, message)]

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        """Return the bytes of all blocks for `data`."""
        if role != "data":
            return super().expected_length(tensor_object, role, entries)
        return self.block_type.data_bytes(tensor_object.shape)

    def rows(self, tensor_object: TensorObject, part: Any) -> Rows:
        """Return the rows of an object of two axes or more; they can be selected in any order."""
        return BlockRows(tensor_object, part)

    def require_valid(self, view: View) -> None:
        """Raise unless `data` is the bytes of the shape's blocks."""
        super().require_valid(view)
        data, expected = view.arrays["data"], self.block_type.data_bytes(view.shape)
        if data.dtype != np.uint8 or data.size != expected:
            raise LayoutError(
                "the data is not the blocks of the shape",
                reason=Reason.SIZE_MISMATCH,
                component="data",
                expected=self._whole_blocks() if expected is None else f"{expected} bytes, uint8",
                found=f"shape {describe(view.shape)}, {data.size} of {data.dtype.name}",
                section=SECTION,
            )

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the floats of the blocks; a new array.

        They are computed in float32, as ggml does, and then converted. See `Quantized`.
        """
        target = float_dtype(dtype)
        self.require_valid(view)
        self.require_known()
        fill, parts_of = _decoding().fill, _decoding().PARTS[self.block_type.name]
        count = self.block_type.elements
        result = empty_array(view.shape, target)
        blocks = view.arrays["data"].reshape(-1, self.block_type.nbytes)
        out = result.reshape(-1, count) if result.size else result

        def work(rows: slice, _: slice) -> None:
            place = out[rows]
            floats = place if target == np.float32 else np.empty(place.shape, np.float32)
            fill(floats, parts_of(blocks[rows]))
            if floats is not place:
                place[...] = floats

        step = _TILE // count
        firsts = range(0, len(blocks), step)
        NumpyNamespace(threads).each(
            work, [(slice(first, first + step), slice(None)) for first in firsts]
        )
        return result

    def float_attributes(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """Return all attributes. See `Quantized`."""
        self.require_known()
        return dict(attributes)

    def require_known(self) -> None:
        """Raise unless this release can decode blocks of the type.

        Raises:
            UnsupportedError: it cannot.
        """
        if self.block_type.name not in _decoding().PARTS:
            raise UnsupportedError(
                "blocks of this type are kept, but cannot be dequantized by this release; they are "
                "in .components['data']",
                reason=Reason.UNKNOWN_TYPE,
                expected=f"one of {', '.join(_decoding().PARTS)}",
                found=describe(self.block_type.name),
            )

    def _whole_blocks(self) -> str:
        return f"a last axis of whole blocks of {self.block_type.elements}"

    def _problem(self, reason: Reason, message: str) -> Problem:
        return Problem(reason, message, ("components", "data"), SECTION, component="data")


class BlockRows(Rows):
    """Rows of blocks: with two axes or more they are whole blocks."""

    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return the blocks of some rows.

        Raises:
            ArgumentValueError: the object has one axis.
        """
        if len(self.shape) < 2:
            raise ArgumentValueError(
                "the elements of one row are in blocks; use read(name).dequantize()[...]",
                expected="an object of two axes or more",
                found=f"shape {describe(self.shape)}",
            )
        row_bytes = GGUF_LAYOUTS[self.object.format].block_type.data_bytes(self.shape[1:])
        place: slice | Array
        if isinstance(rows, range):
            place = slice(rows.start, rows.stop if rows.stop >= 0 else None, rows.step)
        else:
            place = rows
        part: Array = self.part("data", (self.shape[0], row_bytes or 0))[place]
        return {"data": part.reshape(-1)}


# Sizes are facts of ggml's public tables. Q8_1 is what ggml computes with, not what files have.
BLOCK_TYPES: tuple[BlockType, ...] = (
    BlockType("q4_0", 2, 32, 18),
    BlockType("q4_1", 3, 32, 20),
    BlockType("q5_0", 6, 32, 22),
    BlockType("q5_1", 7, 32, 24),
    BlockType("q8_0", 8, 32, 34),
    BlockType("q8_1", 9, 32, 36),
    BlockType("q2_k", 10, 256, 84),
    BlockType("q3_k", 11, 256, 110),
    BlockType("q4_k", 12, 256, 144),
    BlockType("q5_k", 13, 256, 176),
    BlockType("q6_k", 14, 256, 210),
    BlockType("q8_k", 15, 256, 292),
    BlockType("iq2_xxs", 16, 256, 66),
    BlockType("iq2_xs", 17, 256, 74),
    BlockType("iq3_xxs", 18, 256, 98),
    BlockType("iq1_s", 19, 256, 50),
    BlockType("iq4_nl", 20, 32, 18),
    BlockType("iq3_s", 21, 256, 110),
    BlockType("iq2_s", 22, 256, 82),
    BlockType("iq4_xs", 23, 256, 136),
    BlockType("iq1_m", 29, 256, 56),
    BlockType("tq1_0", 34, 256, 54),
    BlockType("tq2_0", 35, 256, 66),
    BlockType("mxfp4", 39, 32, 17),
    BlockType("nvfp4", 40, 64, 36),
    BlockType("q1_0", 41, 128, 18),
)

GGUF_LAYOUTS: dict[str, GgufBlocks] = {
    layout.name: layout for layout in map(GgufBlocks, BLOCK_TYPES)
}


def _decoding() -> Any:
    """Return the module that decodes blocks; files of other formats do not load it."""
    from ztensor.quantization import gguf_decoding

    return gguf_decoding
