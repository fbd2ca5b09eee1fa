"""Take over unchanged chunks of an older checkpoint: the same box with the same bytes.

An older file is hard-linked into the new folder, or copied by the store, under its own name, which
is never reused. If less than half of a file is needed, its chunks are copied instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

import numpy as np

from ztensor import Remote
from ztensor.distributed.chunks.table import Chunk, Kind, TableFile
from ztensor.distributed.place import Place, opener
from ztensor.distributed.root import read_root
from ztensor.errors import SourceError
from ztensor.ext import FileObjects, Store, open_file
from ztensor.typing import Path, Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    Box = tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], Kind]

# Errors where links cannot be made: other file systems, some network mounts, too many links.
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Older:
    """An older checkpoint, and the chunks that one process takes over.

    Args:
        since: its folder or URL.
        place: the folder or prefix of the new checkpoint.
        storage: see `ztensor.typing.OpenOptions`.

    Raises:
        FormatError: it is damaged.
        SourceError: it cannot be read.
    """

    def __init__(self, since: Path, place: Place, storage: Storage | None) -> None:
        self._from = Place(since, storage)
        self._to = place
        self._table = read_root(since, storage=storage).table
        self._kept: dict[int, list[Chunk]] = {}  # with tensor numbers of the new checkpoint
        self._rows: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        self._known: set[str] = set()
        self.linked: list[str] = []

    def has(self, tensor: int, box: Box, content: bytes, algorithm: str) -> bool:
        """Return whether the older checkpoint has a chunk; if so, take it over.

        Args:
            tensor: the number of its tensor in the new checkpoint.
            box: name and shape of the tensor, offsets and sizes of the box, kind of the tensor.
            content: xxh3-128 of its bytes.
            algorithm: algorithm of the digests in the new checkpoint.
        """
        table = self._table
        name, shape, offsets, sizes, kind = box
        number = table.tensor_of.get(name)
        if number is None or table.content is None or table.algorithm != algorithm:
            return False
        if table.shapes[number] != shape or table.kind_of(number) != kind:
            return False
        if name not in self._known:
            self._known.add(name)
            begins = table.boxes(number)[0].tolist()
            for row, begin in zip(table.rows(number), begins, strict=True):
                self._rows.setdefault((name, tuple(begin)), []).append(row)
        for row in self._rows.get((name, offsets), ()):
            if table.content[row].tobytes() == content:
                chunk = table.chunk(row)
                if chunk.sizes == sizes:
                    self._kept.setdefault(chunk.file, []).append(chunk._replace(tensor=tensor))
                    return True
        return False

    def copy_little(self, copy: Callable[[FileObjects, Chunk], None]) -> None:
        """Copy the chunks of files of which less than half is needed, or that cannot be linked.

        Args:
            copy: called with the older file and the chunk, which has the number of the new tensor.

        Raises:
            FormatError: the older file is damaged.
            SourceError: it cannot be read, or the copy cannot be written.
        """
        table = self._table
        lengths = np.zeros(len(table.files), np.int64)
        np.add.at(lengths, table.file, table.length.astype(np.int64))
        for number in list(self._kept):
            kept = self._kept[number]
            used = sum(one.length for one in kept)
            whole = int(lengths[number])
            name = table.files[number].name
            if 2 * used >= whole and self._is_linkable(name):
                continue
            del self._kept[number]
            place = opener(self._from.target(name))
            with contextlib.closing(open_file(place, mmap=False)) as file:
                for one in kept:
                    copy(file, one)

    def _is_linkable(self, name: str) -> bool:
        """Link a file into the new folder, or copy it in the store; return whether that worked."""
        source, target = self._from.target(name), self._to.target(name)
        if isinstance(source, Remote) or isinstance(target, Remote):
            if not (isinstance(source, Remote) and isinstance(target, Remote)):
                return False
            if source.url == target.url:
                return True
            is_done = Store.of(target.url).copy(source, target)
            if is_done:
                self.linked.append(name)
            return is_done
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:  # linked by another process, or the same folder
            return os.path.samefile(source, target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise SourceError.from_os(error, "cannot link the older file", target) from error
        self.linked.append(name)
        return True

    @property
    def files(self) -> list[TableFile]:
        """Return the older files that are needed."""
        return [self._table.files[number] for number in self._kept]

    def rows(self, first: int) -> list[Chunk]:
        """Return the rows of the chunks that are not written again.

        Args:
            first: the number of the first of `files`.
        """
        return [
            chunk._replace(row=-1, file=number)
            for number, kept in enumerate(self._kept.values(), first)
            for chunk in kept
        ]
