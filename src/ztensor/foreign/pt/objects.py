"""From the value of a pickle to a manifest: names, attributes, and where elements lie.

Also the encodings of what is no run of the file: elements to be gathered, and values that are in
the pickle itself.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ztensor.errors import (
    EncodingError,
    FormatError,
    LayoutError,
    LimitError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.foreign.base import (
    GATHERED_BYTES,
    RAW,
    Blocks,
    ForeignEncoding,
    InBlocks,
    Projection,
    gather,
    is_mapped,
)
from ztensor.foreign.pt.pickle_reader import Global, Items, misfit
from ztensor.foreign.pt.values import (
    NumpyArray,
    NumpyType,
    QuantizedTensor,
    SparseTensor,
    Storage,
    TorchTensor,
)
from ztensor.layout import LAYOUTS
from ztensor.layout.base import empty_array
from ztensor.layout.elements import numpy_dtype, spell
from ztensor.model.dtype import LOGICAL_TYPES, STORAGE_TYPES, element_count
from ztensor.model.manifest import Component, Manifest, TensorObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ztensor.encoding import Encoding, Stored
    from ztensor.layout.base import Array
    from ztensor.limits import Limits

LONE_TENSOR, LONE_VALUE = "tensor", "value"  # names where the object itself is one

_PIECE_BYTES = 1 << 20
# Of Limits.decoded_bytes: what a tensor may grow to that repeats few stored bytes.
_REPEATED_PART = 1 << 10
_FREE_COST = 1 << 16
_COST_PER_BYTE = 16  # of names and attributes, for each byte of the pickle
_STEP_COST, _OBJECT_COST = 4, 64  # what is spent beside the bytes of names and texts
_DEPTH_ABOVE = 4  # levels of a manifest around an attribute

ByteOrder = Literal["little", "big"]


class Place(NamedTuple):
    """Where a storage lies in the file.

    Attributes:
        offset: its first byte.
        length: bytes there.
        nbytes: bytes once inflated.
        is_deflated: whether they have to be.
    """

    offset: int
    length: int
    nbytes: int
    is_deflated: bool = False


# --- How tensors are stored -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Geometry:
    """How the elements of a tensor are taken from its stored bytes.

    Attributes:
        size: the dimensions, those of one element left out.
        stride: bytes between neighbours.
        width: bytes of an element.
        span: bytes from the first element to the end of the last.
        flags: `conj` and `neg` where elements are conjugated and negated.
        dtype: NumPy's name for the elements where there are flags.
        order: their byte order.
        skip: bytes before the first element, of a deflated storage; else None.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    width: int
    span: int
    flags: tuple[str, ...] = ()
    dtype: str = ""
    order: str = "little"
    skip: int | None = None

    @property
    def is_in_order(self) -> bool:
        """Return whether the elements lie as they are needed, without gaps, and are not changed."""
        step, found = self.width, []
        for dimension in reversed(self.size):
            found.append(step)
            step *= dimension
        return not self.flags and self.stride == tuple(reversed(found))


class _Gathered(InBlocks):
    """Elements that lie in their storage in another order, with gaps, more than once, deflated."""

    def __init__(self, name: str, geometry: _Geometry) -> None:
        super().__init__(name, Blocks(geometry.size, geometry.width, GATHERED_BYTES))
        self._geometry = geometry

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse tensors that repeat few stored bytes very often, or have another length."""
        span = self._geometry.span
        most = max(limits.decoded_bytes // _REPEATED_PART, span * _REPEATED_PART)
        if expected_length > most:
            raise LimitError(
                "a tensor repeats few stored bytes very often; "
                "pass a larger Limits.decoded_bytes if it may",
                reason=Reason.LIMIT_DECODED,
                expected=f"at most {most} bytes of {span}",
                found=describe(expected_length),
            )
        if expected_length != self._blocks.nbytes:
            raise EncodingError(
                "the tensor has another number of elements than its shape",
                reason=Reason.SIZE_MISMATCH,
                expected=f"{expected_length} bytes",
                found=str(self._blocks.nbytes),
            )

    def _can_cut(self, stored: Stored) -> bool:
        return self._geometry.skip is None and is_mapped(stored)

    @property
    def _is_run(self) -> bool:
        geometry = self._geometry
        return geometry.span == self._blocks.nbytes and geometry.is_in_order

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether blocks can be read, or are inflated in their order."""
        return self._can_cut(stored) or (self._geometry.skip is not None and self._is_run)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the elements block by block, or as they are inflated where no order is changed.

        Raises:
            EncodingError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded.
        """
        geometry = self._geometry
        if geometry.skip is None or not self._is_run or expected_length is None:
            yield from super().decode_chunks(stored, expected_length, limits)
            return
        self.check_length(stored, expected_length, limits)
        skip = geometry.skip
        for piece in _inflating(stored, skip + geometry.span):
            if skip < len(piece):
                yield piece[skip:]
            skip = max(skip - len(piece), 0)

    def _fill(
        self, stored: Stored, place: tuple[slice, ...], destination: memoryview, limits: Limits
    ) -> None:
        del limits
        geometry = self._geometry
        data: memoryview | Array
        if geometry.skip is None:
            data = stored.read(0, geometry.span)
        else:
            data = inflated(stored, geometry.skip + geometry.span)[geometry.skip :]
        plain = f"u{geometry.width}" if geometry.width in (1, 2, 4, 8) else f"V{geometry.width}"
        dtype = np.dtype(plain)
        if geometry.flags:
            order = "<" if geometry.order == "little" else ">"
            dtype = numpy_dtype(geometry.dtype).newbyteorder(order)  # type: ignore[arg-type]
        elements: Array = np.ndarray(geometry.size, dtype, data, 0, geometry.stride)[place]
        target: Array = np.frombuffer(destination, dtype).reshape(elements.shape)
        gather(elements, target)
        if "conj" in geometry.flags:
            np.conjugate(target, out=target)
        if "neg" in geometry.flags:
            np.negative(target, out=target)


class _Held(ForeignEncoding):
    """Numbers that came out of the pickle and are no run of the file; one may stand for many."""

    def __init__(self, name: str, array: NumpyArray | Array, times: int = 1) -> None:
        super().__init__(name)
        self._array = array
        self._times = times
        self.nbytes = array.nbytes * times

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Copy them."""
        del stored, limits
        if destination.nbytes != self.nbytes:
            raise EncodingError(
                "the values in the pickle have another length",
                reason=Reason.SIZE_MISMATCH,
                expected=f"{destination.nbytes} bytes",
                found=str(self.nbytes),
            )
        if self.nbytes:
            array = self._array
            one = array.elements() if isinstance(array, NumpyArray) else array
            rows: Array = np.frombuffer(destination, np.uint8).reshape(self._times, -1)
            rows[...] = one.reshape(-1).view(np.uint8)


class _Absent(ForeignEncoding):
    """What is listed only, such as tensors of the device `meta`: there are no elements of it here.

    Args:
        name: the word for it.
        message: why there are none.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name)
        self._message = message

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse."""
        del stored, expected_length, limits
        raise UnsupportedError(self._message, reason=Reason.UNKNOWN_ENCODING)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Refuse."""
        self.check_length(stored, destination.nbytes, limits)


def inflated(stored: Stored, length: int) -> Array:
    """Return the first bytes that deflated ones decompress to.

    Raises:
        EncodingError: they are damaged, or fewer.
        LimitError: they do not fit into memory.
    """
    result = empty_array((length,), np.dtype(np.uint8))
    done = 0
    for piece in _inflating(stored, length):
        result[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    return result


def _inflating(stored: Stored, length: int) -> Iterator[memoryview]:
    """Yield the first bytes that deflated ones decompress to, 1 MiB at a time.

    Raises:
        EncodingError: they are damaged, or fewer.
    """
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    position = done = 0
    rest = b""
    try:
        while done < length and not inflate.eof and (rest or position < stored.length):
            if not rest:
                rest = bytes(stored.read(position, min(_PIECE_BYTES, stored.length - position)))
                position += len(rest)
            part = inflate.decompress(rest, min(_PIECE_BYTES, length - done))
            done += len(part)
            rest = inflate.unconsumed_tail
            yield memoryview(part)
    except zlib.error as error:
        raise EncodingError(
            f"the deflated bytes are damaged: {error}", reason=Reason.ENCODING_MALFORMED
        ) from error
    if done < length:
        raise EncodingError(
            "the deflated bytes are too few",
            reason=Reason.DECODED_SHORT,
            expected=f"{length} bytes",
            found=str(done),
        )


# --- From the object to a manifest ----------------------------------------------------------


class _Nested:
    """The mark of a container whose tensors became objects."""


_NESTED = _Nested()
_OBJECTS = (TorchTensor, SparseTensor, QuantizedTensor, NumpyArray, Storage)


class Objects:
    """Objects and attributes, collected from the value of a pickle.

    Args:
        place_of: where a storage lies; it raises where there is none.
        pickle_bytes: length of the pickle, to which names and attributes stay in proportion.
        order: byte order of the storages.
        limits: the caps in force.
    """

    def __init__(
        self,
        place_of: Callable[[Storage], Place],
        pickle_bytes: int,
        order: ByteOrder,
        limits: Limits,
    ) -> None:
        self._place_of = place_of
        self._order = order
        self._limits = limits
        self._most = _FREE_COST + _COST_PER_BYTE * pickle_bytes
        self._cost = 0
        self._skipped = 0  # bytes to inflate before the first elements of tensors
        self._in_state = False
        self._objects: dict[str, TensorObject] = {}
        self._attributes: dict[str, object] = {}
        self._encodings: dict[str, Encoding] = dict(RAW)
        self._words: dict[_Geometry, str] = {}

    def projection(self, name: str, value: object, version: str) -> Projection:
        """Return all there is in `value`.

        Args:
            name: the format's name.
            value: the value of the pickle.
            version: the format's version.

        Raises:
            FormatError: a storage is shorter than a tensor needs, or the parts of a sparse or
                quantized tensor do not fit.
            UnsupportedError: two values have one name, or one has a type that is not read.
            LimitError: it is nested too deeply.
        """
        plain = self._walk(value, ())
        if isinstance(plain, dict):
            self._attributes = plain
        elif plain is not _NESTED:
            self._attributes = {LONE_VALUE: plain}
        manifest = Manifest(version, self._objects, self._attributes or None)
        return Projection(name, manifest, self._encodings)

    # --- Names and plain values -------------------------------------------------------------

    def _spend(self, count: int) -> None:
        # Parts of a pickle may be shared: a short one can describe a tree without end.
        self._cost += count
        if self._cost > self._most:
            raise FormatError(
                "the pickle repeats its parts until names and attributes are far longer than it is",
                reason=Reason.SIZE_MISMATCH,
                expected=f"at most {self._most} bytes",
            )

    def _walk(self, value: object, path: tuple[str, ...]) -> object:
        """Return a value as an attribute; `_NESTED` where objects were made of it."""
        if isinstance(value, _OBJECTS):
            self._add(self._name(path or (LONE_TENSOR,)), value)
            return _NESTED
        if not isinstance(value, (Items, list, tuple)):
            return self._plain(value)
        if len(path) > self._limits.depth - _DEPTH_ABOVE:
            raise LimitError(
                "the pickle nests dicts and lists deeper than Limits.depth",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {self._limits.depth - _DEPTH_ABOVE} levels",
            )
        is_dict = isinstance(value, Items)
        pairs = value.pairs if isinstance(value, Items) else enumerate(value)
        found: dict[str, object] = {}
        for member, child in pairs:
            key = self._key(member) if is_dict else str(member)
            self._spend(_STEP_COST + len(key))
            if key in found:
                raise self._taken("a dict", key)
            found[key] = self._walk(child, (*path, key))
        if not any(plain is _NESTED for plain in found.values()):
            return found if is_dict else list(found.values())
        for key, plain in found.items():
            if plain is not _NESTED:
                name = self._name((*path, key))
                if name in self._attributes:
                    raise self._taken("the file's attributes", name)
                self._attributes[name] = plain
        return _NESTED

    def _name(self, path: tuple[str, ...]) -> str:
        self._spend(sum(map(len, path)) + len(path))
        return ".".join(path)

    def _taken(self, where: str, name: str) -> UnsupportedError:
        return UnsupportedError(
            f"two values of {where} have one name once dots join nested names and numbers are text",
            reason=Reason.DUPLICATE_NAME,
            found=describe(name),
        )

    def _plain(self, value: object) -> object:
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            if -(1 << 63) <= value < 1 << 64:
                return value
            value = hex(value)  # decimal digits take quadratic time
        if isinstance(value, (str, bytes)):
            self._spend(len(value))
            return value
        if isinstance(value, Global):
            self._spend(len(value.module) + len(value.name))
            return str(value)
        if isinstance(value, NumpyType):
            word = str(value)
            self._spend(len(word))
            return word
        raise misfit("a value", "a tensor or plain data", value)

    def _key(self, value: object) -> str:
        """Return a key of a dict as text: numbers as Python writes them, tuples with commas."""
        parts = map(self._plain, value if isinstance(value, tuple) else (value,))
        return ",".join(
            part.decode("latin-1") if isinstance(part, bytes) else str(part) for part in parts
        )

    # --- Objects ----------------------------------------------------------------------------

    def _add(
        self, name: str, value: TorchTensor | SparseTensor | QuantizedTensor | NumpyArray | Storage
    ) -> None:
        if name in self._objects:
            raise self._taken("the file", name)
        self._spend(_OBJECT_COST)
        if self._in_state:
            raise UnsupportedError(
                "an attribute of a tensor is a tensor itself",
                reason=Reason.UNKNOWN_LAYOUT,
                object_name=name,
            )
        try:
            self._objects[name] = self._with_state(self._made(value), value)
        except ZTensorError as error:
            error.locate(object_name=name)
            raise

    def _made(
        self, value: TorchTensor | SparseTensor | QuantizedTensor | NumpyArray | Storage
    ) -> TensorObject:
        match value:
            case SparseTensor():
                return self._sparse(value)
            case QuantizedTensor():
                return self._quantized(value)
            case NumpyArray():
                return self._array(value)
            case Storage():
                whole = TorchTensor(value, value.element, 0, (value.count,), (1,))
                return self._dense(whole)
            case TorchTensor():
                return self._dense(value)

    def _with_state(self, made: TensorObject, value: object) -> TensorObject:
        state = getattr(value, "state", None)
        if state is None:
            return made
        self._in_state = True
        plain = self._walk(state, ())
        self._in_state = False
        if not isinstance(plain, dict):
            raise misfit("the attributes of a tensor", "a dict", state)
        return dataclasses.replace(made, attributes={**plain, **(made.attributes or {})})

    def _dense(self, tensor: TorchTensor) -> TensorObject:
        shape, per_element = tensor.size, tensor.element.per_element
        if per_element > 1 and shape:
            shape = (*shape[:-1], shape[-1] * per_element)
        return TensorObject(shape, "dense", {"data": self._component(tensor)})

    def _array(self, array: NumpyArray) -> TensorObject:
        if array.shape is None:
            raise misfit("a numpy.ndarray", "its elements", None)
        if array.word is not None:
            self._encodings["numpy"] = _Absent(
                "numpy", "the NumPy array is not of plain numbers; load the file with torch"
            )
            unread = Component(f"numpy.{array.word}", 0, 0, encoding="numpy", decoded_length=0)
            return TensorObject(array.shape, "dense", {"data": unread})
        dtype, type_ = spell(array.dtype.newbyteorder("="))
        return TensorObject(array.shape, "dense", {"data": self._held(dtype, array, type=type_)})

    def _held(
        self, dtype: str, array: NumpyArray | Array, times: int = 1, type: str | None = None
    ) -> Component:
        word = f"pickled-{len(self._encodings) - len(self._words)}"
        held = self._encodings[word] = _Held(word, array, times)
        return Component(dtype, 0, 0, type, encoding=word, decoded_length=held.nbytes)

    def _component(self, tensor: TorchTensor) -> Component:
        """Return the run of the file that a tensor looks at, and how its elements lie there."""
        element, storage = tensor.element, tensor.storage
        width, count = element.width, element_count(tensor.size)
        order: ByteOrder = "little"
        is_single = width == 1 or element.dtype in ("u8", "i8", "bool")
        if self._order == "big" and not is_single:
            order = "big"
        if storage is None:
            self._encodings["meta"] = _Absent(
                "meta",
                "the tensor was saved on torch's device 'meta': it has a shape and no elements",
            )
            return Component(
                element.dtype, 0, 0, element.type, encoding="meta", decoded_length=count * width
            )
        place = self._place_of(storage)
        if storage.whole * storage.element.width > place.nbytes:
            raise FormatError(
                "a storage is shorter than the pickle says",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"{describe(storage.whole * storage.element.width)} bytes",
                found=str(place.nbytes),
            )
        start = storage.start * storage.element.width + tensor.offset * width
        if not count:
            return Component(element.dtype, place.offset, 0, element.type, byte_order=order)
        steps = [(n, step) for n, step in zip(tensor.size, tensor.stride, strict=True) if n != 1]
        span = (1 + sum((n - 1) * step for n, step in steps)) * width
        if not (place.is_deflated or tensor.flags or _has_gaps(steps)):
            offset = place.offset + start
            return Component(element.dtype, offset, span, element.type, byte_order=order)
        geometry = _Geometry(
            size=tuple(n for n, _ in steps),
            stride=tuple(step * width for _, step in steps),
            width=width,
            span=span,
            flags=tensor.flags,
            dtype=_flagged_dtype(tensor) if tensor.flags else "",
            order=order,
            skip=start if place.is_deflated else None,
        )
        word = self._words.get(geometry)
        if word is None:
            word = self._words[geometry] = f"strided-{len(self._words)}"
            self._encodings[word] = _Gathered(word, geometry)
        offset, length = place.offset + start, span
        if place.is_deflated:
            offset, length = place.offset, place.length
            self._skipped += start
            if self._skipped > self._limits.decoded_bytes:
                raise LimitError(
                    "many tensors look far into deflated storages, which are inflated up to there "
                    "for each; save the file anew, or pass a larger Limits.decoded_bytes",
                    reason=Reason.LIMIT_DECODED,
                    expected=f"at most {self._limits.decoded_bytes} bytes for all",
                )
        return Component(
            element.dtype,
            offset,
            length,
            element.type,
            encoding=word,
            decoded_length=count * width,
            byte_order=order,
        )

    def _sparse(self, tensor: SparseTensor) -> TensorObject:
        """Return a sparse object; of a layout's own name where no layout of ours holds it."""
        roles = ("coords",) if tensor.layout == "sparse_coo" else ("indptr", "indices")
        components = {
            role: self._component(part) for role, part in zip(roles, tensor.indices, strict=True)
        }
        components["values"] = self._component(tensor.values)
        is_ours = len(tensor.values.size) == 1 and (
            tensor.layout == "sparse_coo"
            or (tensor.layout == "sparse_csr" and len(tensor.size) == 2)
        )
        if tensor.layout == "sparse_coo":
            _check_coordinates(tensor)
        if is_ours:
            made = TensorObject(tensor.size, tensor.layout, components)
            problems = LAYOUTS[tensor.layout].check_object(made)
            if problems:
                raise LayoutError(problems[0].message, reason=problems[0].reason)
            return made
        shapes: dict[str, object] = {
            f"{role}_shape": list(part.size)
            for role, part in zip((*roles, "values"), (*tensor.indices, tensor.values), strict=True)
        }
        return TensorObject(tensor.size, f"torch.{tensor.layout}", components, shapes)

    def _quantized(self, tensor: QuantizedTensor) -> TensorObject:
        """Return a `quantized_group` where one scale is for a row or for all, of 8-bit integers."""
        integers, axis = tensor.integers, tensor.axis
        data = self._component(integers)
        rows = integers.size[0] if integers.size else 0
        if (
            data.dtype in ("i8", "u8")
            and integers.storage is not None
            and 0 < rows <= integers.storage.count
            and element_count(integers.size)
            and axis in (None, 0)
        ):
            attributes: dict[str, object] = {
                "bits": 8,
                "group_size": -1,
                "packing": f"1_per_{data.dtype}",
                "group_axis": 1,
                "zeros_packed": False,
            }
            if data.dtype == "i8":
                attributes["signed"] = True
            if isinstance(tensor.scale, TorchTensor) and isinstance(tensor.zero_point, TorchTensor):
                scales, zeros = self._component(tensor.scale), self._component(tensor.zero_point)
            else:
                scales = self._held("f64", np.array(tensor.scale, "<f8"), rows)
                zeros = self._held("i64", np.array(tensor.zero_point, "<i8"))
                attributes["shared_zero"] = True
            components = {"packed_weight": data, "scales": scales, "zeros": zeros}
            made = TensorObject(integers.size, "quantized_group", components, attributes)
            problems = LAYOUTS["quantized_group"].check_object(made)
            if not problems:
                return made
        components, attributes = {"data": data}, {"dtype": f"torch.{tensor.name}"}
        for role, value in (("scale", tensor.scale), ("zero_point", tensor.zero_point)):
            if isinstance(value, TorchTensor):
                components[role] = self._component(value)
            else:
                attributes[role] = value
        if axis is not None:
            attributes["axis"] = axis
        return TensorObject(integers.size, "torch.quantized", components, attributes)


def _check_coordinates(tensor: SparseTensor) -> None:
    """Raise unless every value, which may have dimensions of its own, has its coordinates.

    Raises:
        LayoutError: the shapes of the parts do not fit.
    """
    coordinates, values = tensor.indices[0].size, tensor.values.size
    if values and coordinates == (len(tensor.size) - len(values) + 1, values[0]):
        return
    raise LayoutError(
        "the parts of a sparse tensor do not fit",
        reason=Reason.LAYOUT_COUNT,
        expected=f"coordinates of {describe(tensor.size)} for values of {describe(values)}",
        found=describe(coordinates),
    )


def _has_gaps(steps: list[tuple[int, int]]) -> bool:
    """Return whether elements do not follow one another in C order."""
    expected = 1
    for count, step in reversed(steps):
        if step != expected:
            return True
        expected *= count
    return False


def _flagged_dtype(tensor: TorchTensor) -> str:
    """Return NumPy's name for elements that can be conjugated and negated.

    Raises:
        UnsupportedError: they cannot.
    """
    element = tensor.element
    logical = None if element.type is None else LOGICAL_TYPES.get(element.type)
    name = None if logical is None else logical.long_name
    if element.type is None and element.dtype in STORAGE_TYPES:
        name = STORAGE_TYPES[element.dtype].long_name
    if name is None or name not in ("complex64", "complex128", "float16", "float32", "float64"):
        raise UnsupportedError(
            "only floats and complex numbers can be stored conjugated or negated",
            reason=Reason.UNKNOWN_TYPE,
            found=describe(element.type or element.dtype),
        )
    return name
