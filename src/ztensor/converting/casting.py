"""Objects of a reader as floats of another type: computed as they are read, a piece at a time.

A cast reader has the same file, and a manifest in which some objects are other ones: dense floats
in the place of quantized ones, floats of another type. Their components have an encoding of their
own, which only that reader knows and which decodes to the new elements. So all that reads, writes,
exports, divides and compares objects works on them without knowing.
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
    from collections.abc import Callable, Hashable, Iterable, Iterator


TARGETS = ("float32", "float16", "bfloat16")
# Narrower ones are left alone: they are parts of a quantization, whose scales lie elsewhere.
_SOURCES = ("float64", *TARGETS)
# Which role's floats are an object's elements.
_ROLES = {"dense": "data", "sparse_csr": "values", "sparse_coo": "values"}
_EXACT = {("float16", "float32"), ("bfloat16", "float32")}


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """An object that has other elements in the new file, because that was asked for.

    Attributes:
        object_name: the object.
        was: its layout where it was quantized, else its element type.
        now: its element type in the new file.
        largest_error: the largest difference between an element and what it was as a float; of a
            quantized object, what it was as float32. Not of infinities and NaN, which stay.
    """

    object_name: str
    was: str
    now: str
    largest_error: float


def cast_target(dtype: Any) -> np.dtype[Any] | None:
    """Return the element type that a caller wants floats to have.

    Raises:
        ArgumentValueError: it is none of `TARGETS`.
    """
    if dtype is None:
        return None
    storage = STORAGE_TYPES.get(dtype) if isinstance(dtype, str) else None
    if storage is not None:
        dtype = storage.long_name  # NumPy's "f16" has 16 bytes
    try:
        found = numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    except (TypeError, ValueError, LookupError, UnsupportedError) as error:
        raise _no_target(dtype) from error
    if found.name not in TARGETS:
        raise _no_target(dtype)
    return found.newbyteorder("=")


def _no_target(dtype: object) -> ArgumentValueError:
    return ArgumentValueError(
        "floats cannot be converted to this type",
        expected=f"one of {', '.join(TARGETS)}",
        found=describe(dtype, 40),
    )


class Casts:
    """What is to be changed of a reader's objects, and what was.

    Args:
        dtype: the element type that floats get; None leaves plain ones as they are.
        dequantize: whether quantized objects become floats, of `dtype` or float32.
        scheme: how dense floats of two dimensions and more are quantized; None leaves them.
        quantized: of which names.
    """

    def __init__(
        self,
        dtype: np.dtype[Any] | None,
        *,
        dequantize: bool,
        scheme: GroupScheme | None = None,
        quantized: Iterable[str] = (),
    ) -> None:
        self._dtype = dtype
        self._dequantize = dequantize
        self._scheme, self._quantized = scheme, frozenset(quantized)
        self._done: list[tuple[str, str, str, _Cast | Codes]] = []
        self._known: dict[Hashable, _Cast] = {}
        self._known_codes: dict[Hashable, Codes] = {}

    def over(self, reader: Reader) -> Reader:
        """Return a reader of the same files that has the changed objects."""
        if self._dtype is None and self._scheme is None and not self._dequantize:
            return reader
        return over(reader, reader.objects.mapped(self._over))

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return what was changed, as far as it was read."""
        return tuple(
            Change(name, was, now, found.largest_error) for name, was, now, found in self._done
        )

    def _over(self, file: FileObjects, names: Iterable[str]) -> FileObjects:
        objects = {name: file.object(name) for name in file.names}
        casts: dict[str, Encoding] = {}
        for name in names:
            if name in self._quantized and (made := self._codes(file, name, objects[name])):
                objects[name], several = made
                casts.update((cast.name, cast) for cast in several)
                continue
            found = self._cast(file, name, objects[name])
            if found is not None:
                role, attributes, cast = found
                casts[cast.name] = cast
                objects[name] = _changed(objects[name], role, attributes, cast)
        encodings = ChainMap(casts, file.encodings)  # type: ignore[arg-type]  # the first is written
        return file.changed(encodings, objects=objects)

    def _codes(
        self, file: FileObjects, name: str, tensor_object: TensorObject
    ) -> tuple[TensorObject, list[_Cast]] | None:
        """Return an object as codes in groups, and what makes them; None of one that is left."""
        data = tensor_object.components.get("data")
        source = None if data is None else _float_of(data)
        is_matrix = tensor_object.format == "dense" and len(tensor_object.shape) > 1
        if self._scheme is None or data is None or source is None or not is_matrix:
            return None
        if not element_count(tensor_object.shape):
            return None
        same = (file, tensor_object.shape, data._replace(digest=None, extra=None))
        codes = self._known_codes.get(same)
        if codes is None:
            codes = Codes(self._scheme, file, name, tensor_object.shape)
            self._known_codes[same] = codes
        casts, components = [], {}
        for role, (dtype, count) in codes.counts().items():
            pieces = functools.partial(codes.pieces, role)
            cast = self._new((same, role), file, name, np.dtype(dtype), pieces, [data])
            cast.take_source(dtype, count)
            casts.append(cast)
            components[role] = _component(data, cast)
        self._done.append((name, source, name_of(self._scheme), codes))
        attributes = {**(tensor_object.attributes or {}), **self._scheme.to_attributes()}
        made = TensorObject(
            tensor_object.shape,
            "quantized_group",
            components,
            attributes,
            extra=tensor_object.extra,
        )
        return made, casts

    def _cast(
        self, file: FileObjects, name: str, tensor_object: TensorObject
    ) -> tuple[str, dict[str, object] | None, _Cast] | None:
        """Return what changes an object: its main role, its new attributes, its new elements."""
        attributes = tensor_object.attributes
        role = _ROLES.get(tensor_object.format)
        if role is not None:
            component = tensor_object.components.get(role)
            source = None if component is None else _float_of(component)
            if self._dtype is None or component is None or source in (None, self._dtype.name):
                return None
            known = file.known_length(name, role)
            width = STORAGE_TYPES[component.dtype].width
            count = None if known is None else known // width
            pieces: Callable[[], Iterator[Array]] = functools.partial(file.elements, name, role)
            key = component._replace(digest=None, extra=None)
            cast = self._new((file, key, count), file, name, self._dtype, pieces, [component])
            cast.take_source(source, count)
            self._done.append((name, str(source), cast.target.name, cast))
            return role, dict(attributes) if attributes else None, cast
        if not self._dequantize:
            return None
        floats = floats_of(file, name)
        if floats is None:
            return None
        pieces, left = floats
        target = np.dtype(np.float32) if self._dtype is None else self._dtype
        parts = list(tensor_object.components.values())
        same = [part._replace(digest=None, extra=None) for part in parts]
        own = (file, tensor_object.format, tensor_object.shape, str(attributes), *same)
        cast = self._new(own, file, name, target, pieces, parts)
        cast.take_source("float32", element_count(tensor_object.shape))
        self._done.append((name, tensor_object.format, cast.target.name, cast))
        return "data", left or None, cast

    def _new(
        self,
        key: Hashable,
        file: FileObjects,
        name: str,
        target: np.dtype[Any],
        pieces: Callable[[], Iterator[Array]],
        parts: list[Component],
    ) -> _Cast:
        """Return the elements made of some bytes; those of objects that share them are the same."""
        cast = self._known.get(key)
        if cast is None:
            word = f"{target.name} of {len(self._known)}"
            has_sum = all(
                part.digest is not None or file.stored(part).has_sum()
                for part in parts
                if part.length
            )
            cast = self._known[key] = _Cast(word, name, target, pieces, has_sum=has_sum)
        return cast


def _changed(
    tensor_object: TensorObject, role: str, attributes: dict[str, object] | None, cast: _Cast
) -> TensorObject:
    old = tensor_object.components.get(role) or next(iter(tensor_object.components.values()))
    component = _component(old, cast)
    if tensor_object.format in _ROLES:
        components = {**tensor_object.components, role: component}
        return tensor_object._replace(components=components)
    return TensorObject(
        tensor_object.shape, "dense", {"data": component}, attributes, extra=tensor_object.extra
    )


def _component(old: Component, cast: _Cast) -> Component:
    """Return a component of other elements in the place of one."""
    storage, logical = spell(cast.target)
    return Component(storage, old.offset, old.length, logical, cast.name, None, cast.decoded_length)


def _float_of(component: Component) -> str | None:
    """Return the element type of plain floats, None of everything else."""
    if component.type is not None:
        return None
    storage = component.storage
    name = None if storage is None else storage.long_name
    return name if name in _SOURCES else None


# --- What they become --------------------------------------------------------------------------


class _Cast(Encoding):
    """An encoding whose decoded bytes are an object's elements as another type.

    Args:
        name: the word components have for it.
        object_name: the object, for messages.
        target: the type.
        pieces: gives the elements in order, flat, as floats.
        has_sum: whether all bytes they are made of are held to a digest or a sum.

    Attributes:
        largest_error: as `Change` has it, of what was read.
        decoded_length: bytes of all elements, None where only decoding tells.
    """

    has_place = True  # the component's place says whose bytes they are

    def __init__(
        self,
        name: str,
        object_name: str,
        target: np.dtype[Any],
        pieces: Callable[[], Iterator[Array]],
        *,
        has_sum: bool,
    ) -> None:
        self.name = name
        self.target = target
        self.largest_error = 0.0
        self.decoded_length: int | None = None
        self.has_sum = has_sum
        self._object_name = object_name
        self._pieces = pieces
        self._is_exact = False

    def take_source(self, source: str | None, count: int | None) -> None:
        """Say what the elements are before, and how many."""
        self._is_exact = source == self.target.name or (source, self.target.name) in _EXACT
        self.decoded_length = None if count is None else count * self.target.itemsize

    def _cast(self, array: Array) -> Array:
        """Return elements as the target type.

        Raises:
            NotRepresentableError: a finite one would become infinite.
        """
        with np.errstate(all="ignore"):  # infinities and NaN are the file's
            if self._is_exact:
                return array.astype(self.target)
            is_wide = array.dtype.kind == "f" and array.itemsize >= 4
            wide = array if is_wide else array.astype(np.float32)
            found: Array = wide.astype(self.target)
            back = found.astype(wide.dtype)
            finite = np.isfinite(wide)
            over = finite & ~np.isfinite(back)
            if over.any():
                raise self._overflow(wide[over][0])
            error = np.abs(np.subtract(wide, back, out=back), out=back)
            largest = error.max(where=finite, initial=0)
        self.largest_error = max(self.largest_error, float(largest))
        return found

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
        """Refuse another length than that of the elements.

        Raises:
            EncodingError: it is one.
        """
        del stored, limits
        if self.decoded_length not in (None, expected_length):
            raise self._another(expected_length, str(self.decoded_length))

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` with all elements.

        Raises:
            EncodingError: they are more or fewer.
            NotRepresentableError: one cannot be said.
        """
        filled = 0
        for chunk in self.decode_chunks(stored, destination.nbytes, limits):
            destination[filled : filled + chunk.nbytes] = chunk
            filled += chunk.nbytes

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the elements a piece at a time.

        Raises:
            EncodingError: they are more or fewer.
            NotRepresentableError: one cannot be said.
        """
        del stored, limits
        count = 0
        for array in self._pieces():
            chunk = self._cast(array.reshape(-1)).view(np.uint8).data
            count += chunk.nbytes
            if expected_length is not None and count > expected_length:
                raise self._another(expected_length, f"{count} or more")
            yield chunk
        if expected_length is not None and count != expected_length:
            raise self._another(expected_length, str(count))

    def _another(self, expected: int, found: str) -> EncodingError:
        return EncodingError(
            "the elements are not as many as the shape has",
            reason=Reason.SIZE_MISMATCH,
            object_name=self._object_name,
            expected=f"{expected} bytes",
            found=found,
        )


def _largest(target: np.dtype[Any]) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(target).max)  # type: ignore[no-untyped-call]
