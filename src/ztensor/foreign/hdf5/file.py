"""The one module that imports h5py: how a file is opened for one call, and what it may raise."""

from __future__ import annotations

import contextlib
import io
import struct
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    FormatError,
    LimitError,
    MissingDependencyError,
    Reason,
    ZTensorError,
    describe,
)
from ztensor.source.base import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.source.base import Source

_HEAP = b"GCOL\1"
_HEAP_HEADER = struct.Struct("<8sQ")  # sign and version, length with this header
_HEAP_OBJECT = struct.Struct("<H6xQ")  # index (0 is the free space, header included), size
_LZF = 32000  # h5py's filter
_LZF_GROWTH = 1 << 16  # by which a file in memory grows
TYPE_ATTRIBUTE = "ztensor.type"  # names what the bits of an exported dataset mean
# All that h5py was seen to raise for damaged files.
RAISED = (OSError, LookupError, RuntimeError, ValueError, TypeError, ArithmeticError, SystemError)


def h5py_library() -> Any:
    """Return the module h5py.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError(
            "HDF5 needs h5py; install it with: pip install 'pyztensor[foreign]'"
        ) from error
    return h5py


def lzf_expanded(data: bytes, length: int) -> memoryview:
    """Return what LZF bytes expand to, by h5py's filter.

    Args:
        data: bytes whose tokens are whole.
        length: what they expand to, exactly and above 0: libhdf5 does not check it.

    Raises:
        OSError: they copy what is before their beginning.
    """
    h5py = h5py_library()
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fapl_core(_LZF_GROWTH, backing_store=False)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)  # an error may keep the dataset alive
    create = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    # Two threads may be here: libhdf5 opens no second file of one name.
    name = b"lzf %d" % threading.get_ident()
    file = h5py.h5f.create(name, h5py.h5f.ACC_TRUNC, create, access)
    try:
        chunked = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        chunked.set_chunk((length,))
        chunked.set_filter(_LZF, 0, ())
        space = h5py.h5s.create_simple((length,))
        dataset = h5py.h5d.create(file, b"chunk", h5py.h5t.NATIVE_UINT8, space, chunked)
        dataset.write_direct_chunk((0,), data)
        result = np.empty(length, np.uint8)
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, result)
        return result.data
    finally:
        file.close()


class _SourceFile(io.RawIOBase):
    """A source as the file object h5py reads from; keeps the error that h5py loses.

    Attributes:
        error: what the source raised last, or None.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._position = 0
        self._tail, self._tail_end = b"", 0  # what was read last, in case a sign is cut in two
        self.error: ZTensorError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        count = max(0, min(target.nbytes, self._source.size - self._position))
        try:
            self._source.read_into(self._position, target[:count])
            self._require_sound_heaps(target[:count])
        except ZTensorError as error:
            self.error = error
            raise
        self._position += count
        return count

    def _require_sound_heaps(self, read: memoryview) -> None:
        """Refuse heaps of text in what was just read on which libhdf5 would hang.

        It steps from object to object by sizes of the file, also by none at all (seen in 2.0.0),
        and nothing can stop it once it does.
        """
        is_next = self._position == self._tail_end
        block = (self._tail if is_next else b"") + bytes(read)
        begin = self._position + read.nbytes - len(block)
        found = block.find(_HEAP)
        while found >= 0:
            self._require_sound_heap(begin + found)
            found = block.find(_HEAP, found + 1)
        self._tail = block[1 - len(_HEAP) :]
        self._tail_end = self._position + read.nbytes

    def _require_sound_heap(self, place: int) -> None:
        if place + _HEAP_HEADER.size > self._source.size:
            return
        length = _HEAP_HEADER.unpack(read_bytes(self._source, place, _HEAP_HEADER.size))[1]
        stop = place + length
        if stop > self._source.size:  # libhdf5 refuses that, or it is no heap
            return
        at = place + _HEAP_HEADER.size
        while at + _HEAP_OBJECT.size <= stop:
            index, size = _HEAP_OBJECT.unpack(read_bytes(self._source, at, _HEAP_OBJECT.size))
            step = _HEAP_OBJECT.size + (size + 7) // 8 * 8 if index else size
            if not 0 < step <= stop - at:
                raise FormatError(
                    "an object of a global heap has a size that cannot be",
                    reason=Reason.FIELD_VALUE,
                    expected=f"1 to {stop - at} bytes at offset {at}",
                    found=str(step),
                )
            at += step


@contextlib.contextmanager
def opened(source: Source) -> Iterator[Any]:
    """Open a source with h5py, close it again, and turn what h5py raises into errors of ours.

    A handle over a Python file object must not live until the interpreter ends: libhdf5 would
    then call into what is no longer there.
    """
    h5py = h5py_library()
    file = _SourceFile(source)
    try:
        with h5py.File(file, "r") as handle:
            yield handle
    except ZTensorError:
        raise
    except MemoryError as error:
        raise LimitError(
            "h5py asks for more memory than there is", reason=Reason.LIMIT_DECODED
        ) from error
    except RAISED as error:
        if file.error is not None:
            raise file.error from error
        raise FormatError(
            "h5py cannot read the file",
            reason=Reason.FIELD_VALUE,
            found=describe(str(error), 200),
        ) from error
