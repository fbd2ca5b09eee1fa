"""Write `.zt` files of 2.1 by the calls of the 2.x releases."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ztensor import Tensor
from ztensor import Writer as FileWriter
from ztensor import convert as convert_file
from ztensor.edit import Editor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    NotRepresentableError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.ext import (
    EMITTERS,
    LOGICAL_TYPES,
    Component,
    TensorObject,
    element_count,
    numpy_dtype,
    path_text,
    typed_array,
)
from ztensor.typing import Array, ObjectSink, Path
from ztensor.v2.raising import releasing
from ztensor.v2.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


ZSTD = "zt.zstd-seekable/1"
CANONICAL_ALIGNMENT = 65536


@releasing
class Sink:
    """Takes the bytes of an object in chunks, its parts in the order of their names.

    Made by `Writer.stream`. A dense tensor of one part is written directly; other objects are kept
    in memory until they are complete.
    """

    def __init__(
        self,
        name: str,
        sizes: Mapping[str, int],
        done: Callable[[dict[str, bytearray]], None],
        direct: ObjectSink | None = None,
    ) -> None:
        self._name, self._done, self._direct = name, done, direct
        self._missing = {role: sizes[role] for role in sorted(sizes, key=str.encode)}
        self._data = {role: bytearray() for role in self._missing}
        self._written = 0
        self._is_closed = False

    @property
    def part(self) -> str | None:
        """Return the part that the next bytes belong to; None if all parts are complete."""
        return next((role for role, missing in self._missing.items() if missing), None)

    @property
    def written(self) -> int:
        """Return the number of bytes taken."""
        return self._written

    def write(self, chunk: Any) -> None:
        """Take more bytes.

        Raises:
            ValueError: more bytes come than were declared.
            BufferError: the chunk is not contiguous.
        """
        self._require_open()
        data = bytes_of(chunk)
        if data.nbytes > sum(self._missing.values()):
            raise ArgumentValueError(
                "there are more bytes than were declared", object_name=self._name
            )
        self._written += data.nbytes
        for role, missing in self._missing.items():
            taken, data = data[:missing], data[missing:]
            self._missing[role] -= taken.nbytes
            self._data[role] += taken
        if self._direct is not None:
            kept, dtype = self._data["data"], self._direct.dtype
            whole = len(kept) // dtype.itemsize * dtype.itemsize
            self._direct.write(np.frombuffer(bytes(kept[:whole]), dtype), flat=True)
            del kept[:whole]

    def close(self) -> None:
        """Finish the object.

        Raises:
            ValueError: bytes are missing. The writer writes nothing else before they come.
        """
        self._require_open()
        part = self.part
        if part is not None:
            raise UsageError(
                "bytes of the streamed object are missing",
                object_name=self._name,
                component=part,
                found=f"{self._missing[part]} too few",
            )
        self._is_closed = True
        self._done(self._data)

    def __enter__(self) -> Self:
        """Return the sink itself."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Finish the object, unless an exception was raised."""
        if kind is None and not self._is_closed:
            self.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the sink is closed", object_name=self._name)


@releasing
class Writer:
    """Writes a `.zt` file of 2.1.

    The file appears at `finish`. A context manager finishes at the end, and aborts after an
    exception.

    Args:
        path: the target.
        canonical: True writes the canonical form, in which equal tensors give equal bytes: sorted
            by name, not encoded.
        align: data begins at multiples of it: a power of two from 4096 to 65536, the default and
            the only value for a canonical file.
        publish: has no effect: files always appear atomically. It excludes `append`, as in the
            releases.
        append: True adds to a finished file, which stays as it is until `finish`; `align` then has
            no effect.

    Raises:
        ValueError: two of these exclude each other.
        OSError: the file cannot be made.
    """

    def __init__(
        self,
        path: Path,
        canonical: bool = True,  # noqa: FBT001, FBT002  # as the releases have it
        align: int | None = None,
        publish: bool = False,  # noqa: FBT001, FBT002
        append: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        if append and publish:
            raise ArgumentValueError("append and publish exclude each other")
        if canonical and append:
            raise ArgumentValueError("a canonical file is written at once; add canonical=False")
        if canonical and align not in (None, CANONICAL_ALIGNMENT):
            raise ArgumentValueError(
                "a canonical file has one alignment; add canonical=False",
                expected=str(CANONICAL_ALIGNMENT),
                found=describe(align),
            )
        self._canonical = canonical
        self._is_done = False
        self._is_streaming = False
        place = path_text(path)
        self._file: FileWriter = (
            Editor(place)
            if append
            else FileWriter(place, version="2.1", canonical=canonical, alignment=align, format="zt")
        )

    # --- Tensors ----------------------------------------------------------------------------

    def add(
        self,
        name: str,
        data: Any,
        shape: Sequence[int],
        dtype: str,
        logical: str | None = None,
        encoding: str | None = None,
    ) -> None:
        """Write a dense tensor.

        Args:
            name: its name, each once.
            data: its bytes, contiguous: `bytes`, an array, or another buffer.
            shape: its shape.
            dtype: storage type: `"f32"`, `"bf16"`, `"u8"`.
            logical: logical type, such as `"bool"` or `"f8_e4m3fn"`.
            encoding: `"zt.zstd-seekable/1"` for zstd; raw by default.

        Raises:
            ValueError: types, shape and bytes do not fit, or the name is taken.
            BufferError: the data is not contiguous.
        """
        part = {"dtype": dtype, "data": data, "logical": logical, "encoding": encoding}
        self.add_object(name, shape, {"data": part})

    def add_object(
        self,
        name: str,
        shape: Sequence[int],
        parts: Mapping[str, Mapping[str, Any]],
        layout: str = "dense",
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Write an object of any number of parts.

        Args:
            name: its name.
            shape: its shape.
            parts: a map from the name of each part to its `dtype`, `data`, and perhaps `logical`
                and `encoding`. If one part has an encoding, all are encoded.
            layout: such as `"zt.sparse_csr/1"`.
            attributes: of the object.

        Raises:
            ValueError: the parts do not fit the layout, or the name is taken.
        """
        self._require_no_stream()
        _require_roles(parts)
        given = {}
        for role, part in parts.items():
            if "data" not in part:
                raise ArgumentValueError("a part has no data", object_name=name, component=role)
            given[role] = bytes_of(part["data"])
        sizes = {role: data.nbytes for role, data in given.items()}
        found = _object_of(name, shape, parts, sizes, layout, attributes)
        arrays, unknown = {}, None
        for role, component in found.components.items():
            if component.type is not None and component.type not in LOGICAL_TYPES:
                if found.format != "dense":
                    raise NotRepresentableError(
                        "only a dense tensor may have an unknown logical type",
                        object_name=name,
                        component=role,
                        found=describe(component.type),
                    )
                unknown = component.type
            try:
                arrays[role] = _elements(component, given[role])
            except ZTensorError as error:
                raise error.locate(object_name=name, component=role) from None
        if found.format in _COUNTED:
            role, count = _COUNTED[found.format](arrays, found.shape)
            arrays[role] = _without_padding(arrays[role], count)
        form, own = found.format, found.attributes
        tensor = Tensor(arrays, shape=shape, format=form, type=unknown, attributes=own)
        self._file.write(name, tensor, compress=self._compress(name, parts))

    def stream(
        self,
        name: str,
        shape: Sequence[int],
        parts: Mapping[str, Mapping[str, Any]],
        layout: str = "dense",
        attributes: Mapping[str, Any] | None = None,
    ) -> Sink:
        """Return a sink that takes the bytes of an object in chunks.

        Args:
            name: its name.
            shape: its shape.
            parts: as for `add_object`, with `nbytes` in place of `data`.
            layout: as for `add_object`.
            attributes: of the object.

        Raises:
            ValueError: the sizes do not fit the layout, or the name is taken.
        """
        self._require_no_stream()
        _require_roles(parts)
        sizes = {}
        for role, part in parts.items():
            nbytes = part.get("nbytes")
            if type(nbytes) is not int or nbytes < 0:
                raise ArgumentValueError(
                    "a part says how many bytes come",
                    object_name=name,
                    component=role,
                    expected="nbytes, not below 0",
                    found=describe(nbytes),
                )
            sizes[role] = nbytes
        if layout == "dense" and not self._canonical and list(parts) == ["data"]:
            found = _object_of(name, shape, parts, sizes, layout, attributes)
            component = found.components["data"]
            dtype = _elements(component, memoryview(b"")).dtype
            is_direct = component.type is None or component.type in LOGICAL_TYPES
            if is_direct and sizes["data"] == element_count(found.shape) * dtype.itemsize:
                compress = self._compress(name, parts)
                sink = self._file.stream(
                    name, shape, dtype, attributes=attributes, compress=compress
                )
                return Sink(name, sizes, lambda _: sink.close(), sink)

        def write(kept: dict[str, bytearray]) -> None:
            self._is_streaming = False
            given = {role: {**parts[role], "data": data} for role, data in kept.items()}
            self.add_object(name, shape, given, layout, attributes)

        self._is_streaming = True
        return Sink(name, sizes, write)

    def ingest(self, source: Source) -> None:
        """Copy all tensors of a source, decoded, and its attributes unless some are set.

        Raises:
            ValueError: a name is taken, or 2.1 cannot represent a tensor.
        """
        self._require_no_stream()
        attributes = source.attributes
        is_new = not isinstance(self._file, Editor)
        if is_new and self._file.draft.attributes is None and attributes:
            self.set_attributes(attributes)
        for name in source.keys():  # noqa: SIM118  # in order
            self._file.copy(name, source.reader, compress=False)

    # --- The end ----------------------------------------------------------------------------

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Replace the file's own attributes.

        Raises:
            TypeError: a key is not text, or CBOR cannot represent a value.
        """
        given = copy.deepcopy(dict(attributes))
        if isinstance(self._file, Editor):
            self._file.set_attributes(given, replace=True)
            return
        if self._is_done:
            raise ClosedError("the writer is finished")
        self._file.draft.set_attributes(given)

    def finish(self) -> int:
        """Put the file in place and return its size in bytes.

        Raises:
            ValueError: a stream is open, or the writer is finished.
        """
        self._require_no_stream()
        size = self._file.finish()
        self._is_done = True
        return size

    def abandon(self) -> None:
        """Abort: no file appears. Without effect after `finish`; may be called again."""
        self._is_done = True
        self._file.abort()

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Finish the file; abort after an exception."""
        if kind is not None:
            self.abandon()
        elif not self._is_done:
            try:
                self.finish()
            except BaseException:
                self.abandon()
                raise

    def _require_no_stream(self) -> None:
        if self._is_done:
            raise ClosedError("the writer is finished")
        if self._is_streaming:
            raise UsageError("a streamed object is open; close its sink first")

    def _compress(self, name: str, parts: Mapping[str, Mapping[str, Any]]) -> bool:
        words = {part.get("encoding") for part in parts.values()} - {None}
        if words - {ZSTD}:
            raise ArgumentValueError(
                "the encoding is unknown",
                object_name=name,
                expected=f"None or {ZSTD!r}",
                found=describe(min(map(str, words - {ZSTD}))),
            )
        if words and self._canonical:
            raise ArgumentValueError(
                "a canonical file has no encodings; add canonical=False", object_name=name
            )
        return bool(words)


def bytes_of(data: Any) -> memoryview:
    """Return contiguous memory as bytes, without a copy.

    Raises:
        TypeError: the data is not a buffer.
        BufferError: the data is not contiguous.
    """
    try:
        view = memoryview(data)
    except TypeError as error:
        raise ArgumentTypeError(
            "data must be a buffer, such as bytes or an array", found=describe(data, 40)
        ) from error
    except ValueError:  # the buffer protocol has no name for the dtype
        view = memoryview(data.view(np.uint8))
    if not view.c_contiguous:
        raise NotContiguousError("data must be contiguous")
    return view.cast("B") if view.nbytes else memoryview(b"")


class NotContiguousError(ArgumentValueError, BufferError):
    """Data is not contiguous."""


def _object_of(
    name: str,
    shape: Sequence[int],
    parts: Mapping[str, Mapping[str, Any]],
    sizes: Mapping[str, int],
    layout: str,
    attributes: Mapping[str, Any] | None,
) -> TensorObject:
    """Return the object as readers will parse it, with a placeholder for its parts' places.

    Raises:
        ArgumentValueError: readers would refuse the object.
    """
    words = {
        role: {"dtype": part.get("dtype"), "blob": (CANONICAL_ALIGNMENT, sizes[role])}
        | ({} if part.get("logical") is None else {"type": part["logical"]})
        for role, part in parts.items()
    }
    entry = {"shape": list(shape), "layout": layout, "parts": words}
    if attributes is not None:
        entry["attributes"] = dict(attributes)
    try:
        return EMITTERS.named("2.1").object_of(entry)
    except NotRepresentableError as error:
        raise ArgumentValueError(
            error.message,
            object_name=name,
            component=error.component,
            expected=error.expected,
            found=error.found,
            section=error.section,
        ) from error


def _elements(component: Component, data: memoryview) -> Array:
    """View bytes as elements; with an unknown logical type, by the storage type."""
    return typed_array(component._replace(is_exact=component.dtype == "bool"), data)


def _without_padding(array: Array, count: int) -> Array:
    """Return the elements without the unused last half byte of a 4-bit type."""
    if array.size == count + 1 and array.dtype == numpy_dtype("float4_e2m1fn"):
        return array[:count]
    return array


# For layouts whose elements may share a byte: the part, and its number of elements.
_COUNTED: Mapping[str, Callable[[Mapping[str, Array], tuple[int, ...]], tuple[str, int]]] = {
    "dense": lambda _, shape: ("data", element_count(shape)),
    "sparse_csr": lambda parts, _: ("values", parts["indices"].size),
    "sparse_coo": lambda parts, shape: ("values", parts["coords"].size // len(shape)),
}


@releasing
def convert(src: Path, dst: Path, align: int | None = None) -> int:
    """Write a file of any known format as a `.zt` file of 2.1, and return its size in bytes.

    Args:
        src: the file to read.
        dst: the new file; an existing one is replaced.
        align: data begins at multiples of it. None writes a canonical file.

    Raises:
        ValueError: the file is damaged, or 2.1 cannot represent its content.
        OSError: a file cannot be read or written.
    """
    report = convert_file(
        path_text(src),
        path_text(dst),
        to="zt",
        version="2.1",
        compression=False,
        alignment=align,
        canonical=align is None,
    )
    return report.nbytes


def _require_roles(parts: object) -> None:
    if not isinstance(parts, Mapping):
        raise ArgumentTypeError(
            f"parts must be a mapping from roles to parts, not {describe(parts, 40)}"
        )
