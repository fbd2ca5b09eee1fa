"""Find and open the files beside the root of a checkpoint, in a folder or a store."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from ztensor import Remote
from ztensor.distributed.lazy_files import LazyFile, OpenFiles
from ztensor.errors import Reason, SourceNotFoundError, UnsupportedError, describe
from ztensor.ext import Beneath, Pool, Source, source_of
from ztensor.formats.dcp.table import File

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


REQUESTS = 16  # at once: a checkpoint may have one file for each process


class Beside:
    """The folder or prefix of a checkpoint.

    Args:
        root: path or URL of the root, or of any file beside it. None for bytes in memory.
        lengths: lengths of files by name; a store is asked for those that are missing.

    Attributes:
        lengths: lengths of the existing files by name; empty if they cannot be listed.
    """

    def __init__(self, root: str | Remote | None, lengths: Mapping[str, int] | None = None) -> None:
        self._root = root
        self.lengths: Mapping[str, int] = lengths or {}
        if isinstance(root, str):
            self.lengths = _files_in(os.path.dirname(root))

    def open(self, parts: tuple[str, ...]) -> Source:
        """Open a file.

        Raises:
            SourceError: the file cannot be opened.
            UnsupportedError: the checkpoint is bytes in memory, so no path leads to its files.
        """
        if isinstance(self._root, str):
            return Beneath.beside(self._root, parts).open(mapped=False)
        if self._root is not None:
            return source_of(self._root.beside("/".join(parts)), mapped=False)
        raise UnsupportedError(
            "the tensors are in other files, which bytes in memory do not lead to: open the folder",
            reason=Reason.SHARD_FILE,
            found=f"the file {describe('/'.join(parts), 200)}",
        )

    def files(self, wanted: Sequence[File]) -> list[tuple[int | None, Source]]:
        """Return the length of each file, None if it is missing, and a source that opens it lazily.

        Raises:
            SourceError: the store does not answer.
        """
        pool = OpenFiles()
        with Pool(REQUESTS) as workers:
            lengths = list(workers.map(self._length, wanted))
        files: list[tuple[int | None, Source]] = []
        for file, length in zip(wanted, lengths, strict=True):
            name, path = file.name, None
            if isinstance(self._root, str):
                name = path = os.path.join(os.path.dirname(self._root), *file.parts)
            elif self._root is not None:
                name = self._root.beside(name).name
            size = file.end if length is None else length
            opened = functools.partial(self.open, file.parts)
            files.append((length, LazyFile(name, path, size, pool, opened)))
        return files

    def _length(self, file: File) -> int | None:
        if self._root is None:
            return file.end
        if isinstance(self._root, str):
            try:
                return os.stat(os.path.join(os.path.dirname(self._root), *file.parts)).st_size
            except (OSError, ValueError):
                return None
        if file.name in self.lengths:
            return self.lengths[file.name]
        try:
            return self.open(file.parts).size
        except SourceNotFoundError:
            return None  # reading from it raises the error


def _files_in(folder: str) -> dict[str, int]:
    """Return the lengths of the files in a folder by name; empty if it cannot be listed."""
    lengths: dict[str, int] = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_file():
                    lengths[entry.name] = entry.stat().st_size
    return lengths
