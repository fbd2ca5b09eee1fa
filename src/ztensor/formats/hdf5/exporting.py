"""Export to HDF5: h5py writes the structure, and the data is inserted."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    FormatError,
    MissingDependencyError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.ext import (
    LOGICAL_TYPES,
    STORAGE_TYPES,
    ObjectReader,
    Sink,
    TensorObject,
    cbor,
    numpy_dtype,
)
from ztensor.formats.hdf5.datasets import TYPE_ATTRIBUTE
from ztensor.formats.parts import Part, Pouring, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_ALIGNMENT = 64
_BEYOND = 1 << 63  # h5py's dimensions are signed
_MOST_RANK = 32  # HDF5's own
# Errors that h5py raises for values that it cannot write.
_RAISED = (OSError, LookupError, RuntimeError, ValueError, TypeError, ArithmeticError, SystemError)


def _h5py_library() -> Any:
    """Return the module h5py.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError("writing HDF5 needs h5py", install="h5py") from error
    return h5py


def export(
    reader: ObjectReader,
    sink: Sink,
    *,
    lose: Callable[[str | None, str], None],
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> int:
    """Write a reader's objects as an HDF5 file that any h5py reads.

    h5py writes the structure into memory. Then the sink gets the structure and the data in the
    order of offsets, so that no data is held. Dense objects are contiguous datasets aligned to 64
    bytes; slashes in names make groups. An object of another layout becomes a group with a flat
    dataset for each component.

    Losses: bfloat16, fp8 and packed types (written as their bits, with the type's name in the
    attribute `ztensor.type`), other layouts, names that are not paths, and some attributes. For
    arguments and other errors see `FormatModule.export`.

    Raises:
        UnsupportedError: a type or encoding is unknown here.
        MissingDependencyError: h5py is not installed.
    """
    skeleton = _Skeleton()
    try:
        with _h5py_library().File(
            skeleton, "w", alignment_threshold=_ALIGNMENT, alignment_interval=_ALIGNMENT
        ) as file:
            drawing = _Drawing(reader, file, lose)
            drawing.run()
    except _RAISED as error:
        if isinstance(error, ZTensorError):
            raise
        raise FormatError(
            f"h5py cannot write the file: {describe(str(error), 200)}", reason=Reason.FIELD_VALUE
        ) from error
    blobs = sorted(drawing.blobs, key=lambda blob: blob[0])
    position = 0
    with Pouring(sink, [part for _, part in blobs], progress, threads) as pouring:
        for offset, part in blobs:
            skeleton.copy(position, offset, sink)
            pouring.write(part)
            position = offset + part.nbytes
    skeleton.copy(position, skeleton.size, sink)
    return drawing.count


class _Drawing:
    """The structure of a file, without the data.

    Attributes:
        blobs: offsets of data, with the arrays to write there.
        count: the number of the reader's objects in the file.
    """

    def __init__(
        self, reader: ObjectReader, file: Any, lose: Callable[[str | None, str], None]
    ) -> None:
        self._h5py = _h5py_library()
        self._reader = reader
        self._file = file
        self._lose = lose
        self.blobs: list[tuple[int, Part]] = []
        self.count = 0

    def run(self) -> None:
        for name in self._reader:
            if any(part in ("", ".") or "\0" in part for part in name.split("/")):
                self._lose(name, "left out: names are paths in HDF5, and this is not a path")
            elif name in self._file or self._is_below_dataset(name):
                self._lose(name, "left out: another object or group has this path")
            else:
                self._add(name)
        for key, value in self._reader.attributes.items():
            group = self._file.get(key) if key.startswith("/") and key != "/" else None
            if isinstance(value, dict) and isinstance(group, self._h5py.Group):
                for inner, inner_value in value.items():
                    self._set(None, group, inner, inner_value)
            else:
                self._set(None, self._file, key, value)

    def _is_below_dataset(self, name: str) -> bool:
        parts = name.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(isinstance(self._file.get(path), self._h5py.Dataset) for path in above)

    def _add(self, name: str) -> None:
        home = self._reader.objects.part(name)
        tensor_object = home.object(name)
        try:
            parts = {
                role: part_of(home, name, tensor_object, role, component, f"{name}/{role}")
                for role, component in tensor_object.components.items()
            }
        except UnsupportedError as error:
            self._lose(name, f"left out: {error.message}")
            return
        self.count += 1
        if _is_plain(tensor_object):
            item = self._dataset(name, parts["data"], is_flat=False)
        else:
            self._lose(
                name,
                f"HDF5 has no layout {describe(tensor_object.format)}; it becomes a group",
            )
            item = self._file.create_group(name)
            item.attrs["ztensor.format"] = tensor_object.format
            if len(tensor_object.shape) <= _MOST_RANK:
                item.attrs["ztensor.shape"] = np.array(tensor_object.shape, np.uint64)
            for role, part in parts.items():
                if role in ("", ".") or "/" in role or "\0" in role:
                    self._lose(name, f"component {describe(role)} is left out: not a name in HDF5")
                else:
                    self._dataset(part.name, part, is_flat=True)
        for key, value in (tensor_object.attributes or {}).items():
            self._set(name, item, key, value)

    def _dataset(self, path: str, part: Part, *, is_flat: bool) -> Any:
        """Create a dataset whose space is allocated but not written."""
        h5py = self._h5py
        logical = None if part.type is None else LOGICAL_TYPES.get(part.type)
        is_bits = part.type is not None or part.dtype == "bf16"
        dtype = numpy_dtype(STORAGE_TYPES[part.dtype].long_name)
        if logical is not None and logical.storage_per_element == 2 and not is_flat:  # complex
            dtype, is_bits = numpy_dtype(logical.long_name), False
        elif part.dtype == "bf16":
            dtype = np.dtype("<u2")
        if is_bits:
            word = part.type or part.dtype
            loss = f"HDF5 has no {describe(word)}; its bits are written as {dtype.name}"
            self._lose(part.object_name, loss)
        shape = (part.nbytes // dtype.itemsize,) if is_flat else part.shape
        h5d, h5p, h5s, h5t = h5py.h5d, h5py.h5p, h5py.h5s, h5py.h5t
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_layout(h5d.CONTIGUOUS)
        creation.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        creation.set_fill_time(h5d.FILL_TIME_NEVER)
        creation.set_obj_track_times(False)
        link = h5p.create(h5p.LINK_CREATE)
        link.set_create_intermediate_group(True)
        link.set_char_encoding(h5t.CSET_UTF8)
        space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
        kind = h5t.py_create(dtype.newbyteorder("<"), logical=True)
        made = h5d.create(self._file.id, path.encode(), kind, space, creation, link)
        if part.nbytes:
            self.blobs.append((made.get_offset(), part))
        dataset = h5py.Dataset(made)
        if is_bits:
            dataset.attrs[TYPE_ATTRIBUTE] = word
        return dataset

    def _set(self, name: str | None, item: Any, key: str, value: object) -> None:
        """Set an attribute; report a loss if it is left out or reads back as another value."""
        original = value
        if value is None:
            value = self._h5py.Empty("f4")
        elif isinstance(value, bytes):
            value = np.void(value) if value else value
        elif isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            value = np.array(value, self._h5py.string_dtype())
        try:
            if isinstance(value, dict) or "\0" in key or key in item.attrs:
                raise TypeError("not an attribute of HDF5")
            item.attrs[key] = value
            back = item.attrs[key]
        except _RAISED as error:
            self._lose(
                name,
                f"the attribute {describe(key)} is left out: {describe(str(error))}",
            )
            return
        plain = None if isinstance(back, self._h5py.Empty) else _plain_value(back)
        if cbor.encode(plain) != cbor.encode(original):
            self._lose(name, f"the attribute {describe(key)} becomes {describe(plain, 40)}")


def _is_plain(tensor_object: TensorObject) -> bool:
    """Return whether an object becomes one dataset."""
    data = tensor_object.components.get("data")
    if tensor_object.format != "dense" or data is None or len(tensor_object.components) > 1:
        return False
    is_element = data.type is None or (
        data.logical is not None and data.logical.elements_per_storage == 1
    )
    is_small = (
        len(tensor_object.shape) <= _MOST_RANK and max(tensor_object.shape, default=0) < _BEYOND
    )
    return is_element and is_small


def _plain_value(value: Any) -> Any:
    """Return a value from h5py as our reader returns it; None if it has no such value."""
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, list):
        items = [_plain_value(item) for item in value]
        return None if None in items else items
    if isinstance(value, str):
        value = value.encode(errors="surrogateescape")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value


class _Skeleton(io.RawIOBase):
    """A sparse file in memory: only written pages are held, the others are zeros."""

    _PAGE = 4096

    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[int, bytearray] = {}
        self._position = 0
        self.size = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        self._position = base[whence] + offset
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        self.size = self._position if size is None else size
        return self.size

    def readinto(self, buffer: Any, /) -> int:
        target, done = memoryview(buffer).cast("B"), 0
        for piece in self._pieces(self._position, self._position + target.nbytes):
            target[done : done + len(piece)] = piece
            done += len(piece)
        self._position += done
        return done

    def write(self, data: Any, /) -> int:
        source, done = memoryview(data).cast("B"), 0
        while done < source.nbytes:
            page, at = divmod(self._position + done, self._PAGE)
            piece = source[done : done + self._PAGE - at]
            self._pages.setdefault(page, bytearray(self._PAGE))[at : at + len(piece)] = piece
            done += len(piece)
        self._position += done
        self.size = max(self.size, self._position)
        return done

    def _pieces(self, start: int, stop: int) -> Iterator[bytearray | bytes]:
        """Yield the bytes from `start` to `stop`, at most to the end of the file."""
        stop = min(stop, self.size)
        while start < stop:
            page, at = divmod(start, self._PAGE)
            length = min(self._PAGE - at, stop - start)
            held = self._pages.get(page)
            yield bytes(length) if held is None else held[at : at + length]
            start += length

    def copy(self, start: int, stop: int, sink: Sink) -> None:
        """Write the bytes from `start` to `stop` to a sink."""
        for piece in self._pieces(start, stop):
            sink.write(piece)
