"""Write `.zt` files of 2.1 by the calls of the 2.x releases."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

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
    LOGICAL_TYPES,
    Component,
    FileObjects,
    element_count,
    numpy_dtype,
    path_text,
    typed_array,
)
from ztensor.typing import Array, Path
from ztensor.v2.linking import ALIGNMENT, Shards, object_of
from ztensor.v2.raising import releasing
from ztensor.v2.sink import Sink, bytes_of
from ztensor.v2.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


ZSTD = "zt.zstd-seekable/1"


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
        if canonical and align not in (None, ALIGNMENT):
            raise ArgumentValueError(
                "a canonical file has one alignment; add canonical=False",
                expected=str(ALIGNMENT),
                found=describe(align),
            )
        self._canonical = canonical
        self._is_done = False
        self._is_streaming = False
        self._shards = Shards()
        place = self._place = path_text(path)
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
                and `encoding`. If one part has an encoding, all are encoded. `external` in the
                place of `data` is a range of a shard, `(shard, first byte, end)`, which is not
                copied: a raw blob, or an encoded one, with `encoding` and `decoded_length`. Then
                `digest` may be given; by default a raw range is read for it.
            layout: such as `"zt.sparse_csr/1"`.
            attributes: of the object.

        Raises:
            ValueError: the parts do not fit the layout, or the name is taken.
        """
        self._require_no_stream()
        _require_roles(parts)
        if any("external" in part for part in parts.values()):
            self._refer(self._shards.external(name, shape, parts, layout, attributes), {})
            return
        given = {}
        for role, part in parts.items():
            if "data" not in part:
                raise ArgumentValueError("a part has no data", object_name=name, component=role)
            given[role] = bytes_of(part["data"])
        sizes = {role: data.nbytes for role, data in given.items()}
        found = object_of(name, shape, parts, sizes, layout, attributes)
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
            found = object_of(name, shape, parts, sizes, layout, attributes)
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

    # --- Shards -----------------------------------------------------------------------------

    def add_shard(self, name: str, path: Path, algorithm: str = "xxh3") -> None:
        """Declare another file as a shard; it is read once for its digest, and not changed.

        The new file refers to it by name, size and digest. Readers look for it beside the new file
        as `<stem>-<name>.zt`, and this library under any name there: see the option `resolver` of
        `ztensor.open`. A shard that is changed or replaced later no longer fits.

        Args:
            name: its name in the new file: 1 to 64 of A-Z a-z 0-9 . _ -, no dot first.
            path: a file of 2.x.
            algorithm: of its digest: `"xxh3"` or `"sha256"`.

        Raises:
            ValueError: the name is invalid or taken, the file is not of 2.x, or this one is
                canonical, which is a single file.
            OSError: it cannot be read.
        """
        self._require_no_stream()
        if self._canonical:
            raise ArgumentValueError("a canonical file is a single file; add canonical=False")
        taken = self._file.draft.shards
        self._shards.add(name, path_text(path), algorithm, target=self._place, taken=taken)

    def link(self, shard: str, names: Iterable[str] | Mapping[str, str] | None = None) -> None:
        """Write objects of a shard as references: no byte of them is copied.

        Args:
            shard: a name given to `add_shard`.
            names: the objects, or a mapping from their names to those here. All by default. The
                attributes of the file are not copied.

        Raises:
            KeyError: there is no such shard, or it has no object of a name.
            ValueError: a name is taken, or an object is itself in a shard of the shard.
        """
        self._require_no_stream()
        file = self._shards.linked(shard, [names] if isinstance(names, str) else names)
        self._refer(file, names if isinstance(names, Mapping) else {})

    def _refer(self, file: FileObjects, names: Mapping[str, str]) -> None:
        draft = self._file.draft
        draft.shards = {**draft.shards, **file.manifest.shards}
        for name in file.names:
            self._file.copy(names.get(name, name), file, name)

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
        self._shards.close()
        return size

    def abandon(self) -> None:
        """Abort: no file appears. Without effect after `finish`; may be called again."""
        self._is_done = True
        self._shards.close()
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
