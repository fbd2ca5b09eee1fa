"""Objects of a reader with other elements: floats of another type, dequantized or quantized ones.

A cast reader has the same files, and a manifest in which some objects are replaced. Components of
those have an encoding of their own, which only this reader knows and which decodes to the new
elements, computed as they are read. So whatever reads, writes, exports, divides or compares objects
works on them unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import ChainMap
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import Reader
from ztensor.converting.quantizing import Codes, name_of
from ztensor.converting.source import over
from ztensor.errors import (
    ArgumentValueError,
    EncodingError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.ext import (
    STORAGE_TYPES,
    Component,
    Encoding,
    FileObjects,
    Stored,
    TensorObject,
    element_count,
    numpy_dtype,
    spell,
)
from ztensor.limits import Limits
from ztensor.quantization.floats import floats_of
from ztensor.quantization.scheme import GroupScheme
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping


TARGETS = ("float32", "float16", "bfloat16")
# Narrower floats are kept: they belong to a quantization with scales in another tensor.
_SOURCES = ("float64", *TARGETS)
# By layout: the component with the elements.
_ROLES = {"dense": "data", "sparse_csr": "values", "sparse_coo": "values"}
_EXACT = {("float16", "float32"), ("bfloat16", "float32")}


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """An object with other elements in the new file, by `dtype`, `dequantize` or `quantize`.

    Attributes:
        object_name: the object.
        was: its layout if it was quantized, else its element type.
        now: its element type in the new file.
        largest_error: the largest difference of an element from its old value; of a quantized
            object, from its value as float32. Infinities and NaN are kept, and not counted.
    """

    object_name: str
    was: str
    now: str
    largest_error: float


def cast_target(dtype: Any) -> np.dtype[Any] | None:
    """Return the element type of a `dtype` argument.

    Raises:
        ArgumentValueError: it is not one of `TARGETS`.
    """
    if dtype is None:
        return None
    storage = STORAGE_TYPES.get(dtype) if isinstance(dtype, str) else None
    if storage is not None:
        dtype = storage.long_name  # NumPy's "f16" has 16 bytes
    try:
        target = numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    except (TypeError, ValueError, LookupError, UnsupportedError) as error:
        raise _no_target(dtype) from error
    if target.name not in TARGETS:
        raise _no_target(dtype)
    return target.newbyteorder("=")


def _no_target(dtype: object) -> ArgumentValueError:
    return ArgumentValueError(
        "floats cannot be converted to this type",
        expected=f"one of {', '.join(TARGETS)}",
        found=describe(dtype, 40),
    )


class Casts:
    """Replaces objects of readers, and records the changes.

    Args:
        dtype: the element type that floats get; None leaves dense and sparse ones as they are.
        dequantize: whether quantized objects become floats, of `dtype` or float32.
        scheme: how dense floats of two dimensions and more are quantized; None leaves them.
        quantized: names of the objects that `scheme` is for.
        by_name: element types of single objects, in place of `dtype`.
    """

    def __init__(
        self,
        dtype: np.dtype[Any] | None,
        *,
        dequantize: bool,
        scheme: GroupScheme | None = None,
        quantized: Iterable[str] = (),
        by_name: Mapping[str, np.dtype[Any]] | None = None,
    ) -> None:
        self._dtype = dtype
        self._dequantize = dequantize
        self._scheme, self._quantized = scheme, frozenset(quantized)
        self._by_name = by_name or {}
        self._done: list[tuple[str, str, str, _Cast | Codes]] = []
        self._casts: dict[Hashable, _Cast] = {}
        self._codes: dict[Hashable, Codes] = {}

    def over(self, reader: Reader) -> Reader:
        """Return a reader of the same files that has the changed objects."""
        if not (self._dtype or self._scheme or self._dequantize or self._by_name):
            return reader
        return over(reader, reader.objects.changed_by(self._over))

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes, with the errors of elements read so far."""
        return tuple(
            Change(name, was, now, made.largest_error) for name, was, now, made in self._done
        )

    def _over(self, file: FileObjects, names: Iterable[str]) -> FileObjects:
        objects = {name: file.object(name) for name in file.names}
        for name in names:
            old, new = objects[name], None
            if name in self._quantized:
                new = self._quantize(file, name, old)
            if new is None and old.format in _ROLES:
                new = self._convert(file, name, old, _ROLES[old.format])
            elif new is None and self._dequantize:
                new = self._dequantized(file, name, old)
            objects[name] = new or old
        casts = {cast.name: cast for cast in self._casts.values()}
        encodings = ChainMap(casts, file.encodings)  # type: ignore[arg-type]  # the first is written
        return file.changed(encodings, objects=objects)

    def _quantize(self, file: FileObjects, name: str, old: TensorObject) -> TensorObject | None:
        """Return dense floats as codes in groups; None if the object is not such a matrix."""
        data = old.components.get("data")
        source = None if data is None else float_of(data)
        is_matrix = old.format == "dense" and len(old.shape) > 1 and element_count(old.shape) > 0
        if self._scheme is None or data is None or source is None or not is_matrix:
            return None
        key = file, old.shape, _bytes_of(data)
        codes = self._codes.get(key)
        if codes is None:
            codes = self._codes[key] = Codes(self._scheme, file, name, old.shape)
        components = {}
        for role, (dtype, count) in codes.counts().items():
            pieces = functools.partial(codes.pieces, role)
            cast = self._cast((key, role), file, name, dtype, np.dtype(dtype), count, pieces, data)
            components[role] = _component(data, cast)
        self._done.append((name, source, name_of(self._scheme), codes))
        attributes = {**(old.attributes or {}), **self._scheme.to_attributes()}
        return TensorObject(old.shape, "quantized_group", components, attributes, extra=old.extra)

    def _convert(
        self, file: FileObjects, name: str, old: TensorObject, role: str
    ) -> TensorObject | None:
        """Return an object with floats of the target type; None if it has no other floats."""
        component, target = old.components.get(role), self._by_name.get(name, self._dtype)
        source = None if component is None else float_of(component)
        if component is None or source is None or target is None or source == target.name:
            return None
        known = file.known_length(name, role)
        count = None if known is None else known // STORAGE_TYPES[component.dtype].width
        pieces = functools.partial(file.elements, name, role)
        key = file, _bytes_of(component), count, target.name
        cast = self._cast(key, file, name, source, target, count, pieces, component)
        self._done.append((name, source, target.name, cast))
        return old._replace(components={**old.components, role: _component(component, cast)})

    def _dequantized(self, file: FileObjects, name: str, old: TensorObject) -> TensorObject | None:
        """Return a quantized object as dense floats; None if its layout is another."""
        floats = floats_of(file, name)
        if floats is None:
            return None
        pieces, attributes = floats
        target = self._by_name.get(name, self._dtype)
        target = np.dtype(np.float32) if target is None else target
        parts, count = list(old.components.values()), element_count(old.shape)
        key = file, old.format, old.shape, target.name, str(old.attributes), *map(_bytes_of, parts)
        cast = self._cast(key, file, name, "float32", target, count, pieces, *parts)
        self._done.append((name, old.format, target.name, cast))
        component = _component(parts[0], cast)
        return TensorObject(
            old.shape, "dense", {"data": component}, attributes or None, extra=old.extra
        )

    def _cast(
        self,
        key: Hashable,
        file: FileObjects,
        name: str,
        source: str,
        target: np.dtype[Any],
        count: int | None,
        pieces: Callable[[], Iterator[Array]],
        *parts: Component,
    ) -> _Cast:
        """Return the elements made of some components; equal keys share them.

        Args:
            key: equal for objects with equal new bytes.
            file: the file of the object.
            name: the object's name, for messages.
            source: the element type of `pieces`.
            target: the new element type.
            count: elements, None if only decoding reveals it.
            pieces: returns an iterator of the elements in order, flat.
            parts: the components that are read.
        """
        cast = self._casts.get(key)
        if cast is None:
            word = f"{target.name} of {len(self._casts)}"
            has_sum = all(
                part.digest is not None or file.stored(part).has_sum()
                for part in parts
                if part.length
            )
            cast = _Cast(word, name, source, target, count, pieces, has_sum=has_sum)
            self._casts[key] = cast
        return cast


def _bytes_of(component: Component) -> Component:
    """Return a component that is equal for equal bytes."""
    return component._replace(digest=None, extra=None)


def _component(old: Component, cast: _Cast) -> Component:
    """Return a component of new elements in the place of an old one."""
    storage, logical = spell(cast.target)
    return Component(storage, old.offset, old.length, logical, cast.name, None, cast.decoded_length)


def float_of(component: Component) -> str | None:
    """Return the element type of a component of floats; None for other components."""
    if component.type is not None:
        return None
    storage = component.storage
    name = None if storage is None else storage.long_name
    return name if name in _SOURCES else None


# --- The encoding ------------------------------------------------------------------------------


class _Cast(Encoding):
    """An encoding that decodes to an object's elements in another type.

    Args:
        name: the encoding's name in components.
        object_name: the object, for messages.
        source: the type of the elements before.
        target: the type of the elements here.
        count: elements, None if only decoding reveals it.
        pieces: returns an iterator of the elements in order, flat, as floats.
        has_sum: all bytes that are read are checked against a digest or a sum.

    Attributes:
        largest_error: as in `Change`, of the elements read so far.
        decoded_length: bytes of all elements, None if only decoding reveals it.
    """

    has_place = True  # the component's place identifies the bytes that are read

    def __init__(
        self,
        name: str,
        object_name: str,
        source: str,
        target: np.dtype[Any],
        count: int | None,
        pieces: Callable[[], Iterator[Array]],
        *,
        has_sum: bool,
    ) -> None:
        self.name, self.target, self.has_sum = name, target, has_sum
        self.largest_error = 0.0
        self.decoded_length = None if count is None else count * target.itemsize
        self._object_name, self._pieces = object_name, pieces
        self._is_exact = source == target.name or (source, target.name) in _EXACT

    def _cast(self, array: Array) -> Array:
        """Return elements as the target type.

        Raises:
            NotRepresentableError: a finite element would become infinite.
        """
        with np.errstate(all="ignore"):  # infinities and NaN are the file's
            if self._is_exact:
                return array.astype(self.target)
            is_wide = array.dtype.kind == "f" and array.itemsize >= 4
            wide = array if is_wide else array.astype(np.float32)
            narrow: Array = wide.astype(self.target)
            back = narrow.astype(wide.dtype)
            finite = np.isfinite(wide)
            over = finite & ~np.isfinite(back)
            if over.any():
                raise self._overflow(wide[over][0])
            error = np.abs(np.subtract(wide, back, out=back), out=back)
            largest = error.max(where=finite, initial=0)
        self.largest_error = max(self.largest_error, float(largest))
        return narrow

    def _overflow(self, value: Any) -> NotRepresentableError:
        error = NotRepresentableError(
            f"a finite element would become infinite as {self.target.name}",
            object_name=self._object_name,
            expected=f"at most {_largest(self.target):.6g}",
            found=f"{float(value):.6g}",
        )
        error.hint = (
            "bfloat16 and float32 reach as far as float32" if self.target.name == "float16" else ""
        ) or "exclude the object, or keep its type"
        return error

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse a length that differs from the elements' bytes.

        Raises:
            EncodingError: it differs.
        """
        del stored, limits
        if self.decoded_length not in (None, expected_length):
            raise self._wrong_length(expected_length, str(self.decoded_length))

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` with all elements.

        Raises:
            EncodingError: their count is wrong.
            NotRepresentableError: a finite element would become infinite.
        """
        filled = 0
        for chunk in self.decode_chunks(stored, destination.nbytes, limits):
            destination[filled : filled + chunk.nbytes] = chunk
            filled += chunk.nbytes

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the elements in blocks.

        Raises:
            EncodingError: their count is wrong.
            NotRepresentableError: a finite element would become infinite.
        """
        del stored, limits
        count = 0
        for array in self._pieces():
            chunk = self._cast(array.reshape(-1)).view(np.uint8).data
            count += chunk.nbytes
            if expected_length is not None and count > expected_length:
                raise self._wrong_length(expected_length, f"{count} or more")
            yield chunk
        if expected_length is not None and count != expected_length:
            raise self._wrong_length(expected_length, str(count))

    def _wrong_length(self, expected: int, found: str) -> EncodingError:
        return EncodingError(
            "the count of elements differs from the shape",
            reason=Reason.SIZE_MISMATCH,
            object_name=self._object_name,
            expected=f"{expected} bytes",
            found=found,
        )


def _largest(target: np.dtype[Any]) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(target).max)  # type: ignore[no-untyped-call]
