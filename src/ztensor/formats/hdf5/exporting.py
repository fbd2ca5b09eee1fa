"""Any reader's objects as an HDF5 file: h5py draws it, the data goes between."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

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
    FileObjects,
    ObjectReader,
    Sink,
    cbor,
    element_count,
    numpy_dtype,
    result_dtype,
)
from ztensor.formats.ahead import Ahead
from ztensor.formats.hdf5.datasets import TYPE_ATTRIBUTE
from ztensor.formats.parts import Pouring, require_known_layout, written_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_ALIGNMENT = 64
_BEYOND = 1 << 63  # h5py's dimensions are signed
_MOST_RANK = 32  # HDF5's own
# All that h5py was seen to raise for what it cannot write.
_RAISED = (OSError, LookupError, RuntimeError, ValueError, TypeError, ArithmeticError, SystemError)


def _h5py_library() -> Any:
    """Return the module h5py.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError(
            "writing HDF5 needs h5py; install it with: pip install 'pyztensor[foreign]'"
        ) from error
    return h5py


def export(
    reader: ObjectReader,
    sink: Sink,
    *,
    lose: Callable[[str | None, str], None],
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> int:
    """Write what a reader holds as an HDF5 file that any h5py reads.

    h5py writes everything but the data, which then goes to the sink between it: in order, in
    pieces, and nothing is held. Dense objects are contiguous datasets aligned to 64 bytes, with
    slashes in their names as groups. Those of other layouts become a group with a flat dataset
    for each component.

    Lost is what HDF5 has no word for: bfloat16, fp8 and packed types (written as their bits, the
    type's name in the attribute `ztensor.type`), other layouts, names that are no paths, attributes
    of other kinds. Arguments and other errors are those of `Exporting.export`.

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
            blobs = drawing.run()
    except _RAISED as error:
        if isinstance(error, ZTensorError):
            raise
        raise FormatError(
            f"h5py cannot write the file: {describe(str(error), 200)}", reason=Reason.FIELD_VALUE
        ) from error
    pouring = Pouring(sink, progress, sum(blob.length for blob in blobs))
    position = 0
    blobs.sort(key=lambda blob: blob.offset)
    with Ahead([(blob.file, blob.name, blob.role) for blob in blobs], threads) as ahead:
        for blob in blobs:
            skeleton.copy(position, blob.offset, sink)
            pouring.write(written_chunks(blob.file, blob.name, blob.role, ahead))
            position = blob.offset + blob.length
    skeleton.copy(position, skeleton.size, sink)
    return drawing.count


class _Blob(NamedTuple):
    """Where the data of a component goes."""

    offset: int
    length: int
    file: FileObjects
    name: str
    role: str


class _Drawing:
    """Everything of a file but the data; `count` objects of the reader are in it."""

    def __init__(
        self, reader: ObjectReader, file: Any, lose: Callable[[str | None, str], None]
    ) -> None:
        self._h5py = _h5py_library()
        self._reader = reader
        self._file = file
        self._lose = lose
        self._blobs: list[_Blob] = []
        self.count = 0

    def run(self) -> list[_Blob]:
        for name in self._reader:
            if any(part in ("", ".") or "\0" in part for part in name.split("/")):
                self._lose(name, "HDF5 takes names for paths, and this is none; it is left out")
            elif name in self._file or self._is_below_dataset(name):
                self._lose(name, "another object or group has this path; it is left out")
            else:
                self._add(name)
        for key, value in self._reader.attributes.items():
            group = self._file.get(key) if key.startswith("/") and key != "/" else None
            if isinstance(value, dict) and isinstance(group, self._h5py.Group):
                for inner, inner_value in value.items():
                    self._set(None, group, inner, inner_value)
            else:
                self._set(None, self._file, key, value)
        return self._blobs

    def _is_below_dataset(self, name: str) -> bool:
        parts = name.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(isinstance(self._file.get(path), self._h5py.Dataset) for path in above)

    def _add(self, name: str) -> None:
        home = self._reader.objects.part(name)
        found = home.object(name)
        components = found.components
        try:
            require_known_layout(found)
            for component in components.values():
                result_dtype(component)  # or what is wrong with its type
                home.stored(component).encoding()
        except UnsupportedError as error:
            self._lose(name, f"it is left out: {error.message}")
            return
        self.count += 1
        data = components.get("data")
        logical = None if data is None else data.logical
        is_plain = (
            found.format == "dense"
            and len(components) == 1
            and data is not None
            and len(found.shape) <= _MOST_RANK
            and max(found.shape, default=0) < _BEYOND
            and (data.type is None or (logical is not None and logical.elements_per_storage == 1))
        )
        if is_plain and data is not None:
            item = self._dataset(name, name, "data", found.shape)
        else:
            self._lose(
                name, f"HDF5 has no layout {describe(found.format)}; a group holds its components"
            )
            item = self._file.create_group(name)
            item.attrs["ztensor.format"] = found.format
            if len(found.shape) <= _MOST_RANK:
                item.attrs["ztensor.shape"] = np.array(found.shape, np.uint64)
            for role in components:
                if role in ("", ".") or "/" in role or "\0" in role:
                    self._lose(name, f"component {describe(role)} is left out: it is no name here")
                    continue
                self._dataset(f"{name}/{role}", name, role, None)
        for key, value in (found.attributes or {}).items():
            self._set(name, item, key, value)

    def _dataset(
        self,
        path: str,
        name: str,
        role: str,
        shape: tuple[int, ...] | None,
    ) -> Any:
        """Draw a dataset whose space is taken and not written; flat where no shape is given."""
        h5py, home = self._h5py, self._reader.objects.part(name)
        component = home.object(name).components[role]
        storage, logical = component.storage, component.logical
        word = component.type or component.dtype
        dtype: np.dtype[Any] = np.dtype(np.uint8)
        is_bits = False
        if storage is not None:
            is_bits = storage.name == "bf16"
            dtype = np.dtype("<u2") if is_bits else numpy_dtype(storage.long_name)
        if logical is not None and logical.storage_per_element == 2 and shape is not None:
            dtype = numpy_dtype(logical.long_name)
        elif component.type is not None:
            is_bits = True
        if is_bits:
            self._lose(name, f"HDF5 has no {describe(word)}; its bits are written as {dtype.name}")
        if shape is None:
            length = home.decoded_length(name, role)
            shape = (length // dtype.itemsize,)
        length = element_count(shape) * dtype.itemsize
        h5d, h5p, h5s, h5t = h5py.h5d, h5py.h5p, h5py.h5s, h5py.h5t
        how = h5p.create(h5p.DATASET_CREATE)
        how.set_layout(h5d.CONTIGUOUS)
        how.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        how.set_fill_time(h5d.FILL_TIME_NEVER)
        how.set_obj_track_times(False)
        link = h5p.create(h5p.LINK_CREATE)
        link.set_create_intermediate_group(True)
        link.set_char_encoding(h5t.CSET_UTF8)
        space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
        kind = h5t.py_create(dtype.newbyteorder("<"), logical=True)
        made = h5d.create(self._file.id, path.encode(), kind, space, how, link)
        if length:
            self._blobs.append(_Blob(made.get_offset(), length, home, name, role))
        dataset = h5py.Dataset(made)
        if is_bits:
            dataset.attrs[TYPE_ATTRIBUTE] = word
        return dataset

    def _set(self, name: str | None, item: Any, key: str, value: object) -> None:
        """Set an attribute, and say where it is lost or reads back as another value."""
        given = value
        if value is None:
            value = self._h5py.Empty("f4")
        elif isinstance(value, bytes):
            value = np.void(value) if value else value
        elif isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            value = np.array(value, self._h5py.string_dtype())
        try:
            if isinstance(value, dict) or "\0" in key or key in item.attrs:
                raise TypeError("HDF5 has none of the kind")
            item.attrs[key] = value
            back = item.attrs[key]
        except _RAISED as error:
            self._lose(
                name,
                f"the attribute {describe(key)} is left out: {describe(str(error))}",
            )
            return
        plain = None if isinstance(back, self._h5py.Empty) else _plain_value(back)
        if cbor.encode(plain) != cbor.encode(given):
            self._lose(name, f"the attribute {describe(key)} becomes {describe(plain, 40)}")


def _plain_value(value: Any) -> Any:
    """Return a value that h5py read back as plain Python values, or None where it has none."""
    if isinstance(value, np.void):
        return None if value.dtype.names else value.tobytes()
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.kind not in "biufSO":
            return None
        value = value.tolist()
    if isinstance(value, str):
        value = value.encode(errors="surrogateescape")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, list):
        items = [_plain_value(item) for item in value]
        return None if None in items else items
    return value if isinstance(value, (bool, int, float)) else None


class _Skeleton(io.RawIOBase):
    """A file in memory of which only the pages that were written are held; the rest is zeros."""

    _PAGE = 4096

    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[int, bytearray] = {}
        self._position = 0
        self.size = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        self.size = self._position if size is None else size
        return self.size

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        count = max(0, min(target.nbytes, self.size - self._position))
        for start, page, at in self._parts(count):
            held = self._pages.get(page)
            length = min(self._PAGE - at, count - start)
            target[start : start + length] = (
                bytes(length) if held is None else held[at : at + length]
            )
        self._position += count
        return count

    def write(self, data: Any, /) -> int:
        source = memoryview(data).cast("B")
        for start, page, at in self._parts(source.nbytes):
            held = self._pages.setdefault(page, bytearray(self._PAGE))
            piece = source[start : start + self._PAGE - at]
            held[at : at + piece.nbytes] = piece
        self._position += source.nbytes
        self.size = max(self.size, self._position)
        return source.nbytes

    def _parts(self, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield how far each piece of the next bytes is on, its page, and where in that it is."""
        done = 0
        while done < count:
            page, at = divmod(self._position + done, self._PAGE)
            yield done, page, at
            done += self._PAGE - at

    def copy(self, start: int, stop: int, sink: Sink) -> None:
        """Write the bytes from `start` to `stop` to a sink."""
        self.seek(start)
        for _ in range(start, stop, 1 << 20):
            sink.write(self.read(min(1 << 20, stop - self._position)) or b"")
