"""Upload objects atomically: a new object appears, or the old one is replaced, at the commit.

An object that fits in one part is sent by one request, which the store can refuse if the name is
taken. A longer one is sent in parts, several at a time, and the store assembles them at the end.
Until then nothing is visible, and a failure aborts the upload.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import Remote
from ztensor.errors import (
    ClosedError,
    SourceError,
    SourceNotFoundError,
    UsageError,
)
from ztensor.ext import Store
from ztensor.remote.failures import WRITING, asked
from ztensor.remote.source import RemoteSource
from ztensor.remote.urls import Place, has_folders, is_store, place_of, scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable


PART_BYTES = 16 << 20
IN_FLIGHT = 4
# Stores take 10,000 parts of an object. All but the last are equal, as some stores ask.
MOST_PARTS = 10_000
_PLANNED_PARTS = 9_000
_MEMORY_BYTES = 96 << 20
_READ_ONLY = ("http", "https", "hf")


class RemoteSink:
    """Uploads an object atomically.

    Bytes are copied into parts, as obstore sends them later.

    Args:
        remote: the target.
        expected: the object's length, or an upper bound, if known. Only objects above 140 GiB need
            it: their parts are longer, and fewer are sent at a time.
        is_new: an existing object is not replaced. For one request the store ensures that. For
            parts, which no store checks, the name is looked up before and before the end.
        note: called with the URL after the commit.

    Attributes:
        name: the URL without secrets.
        position: how many bytes were written.
        is_open: False after the commit or an abort.

    Raises:
        SourceError: the store cannot be reached, or there is an object and `is_new` is set.
        ArgumentValueError: the URL or an option is wrong.
        UsageError: places of this scheme are only read.
        MissingDependencyError: obstore is not installed.
    """

    def __init__(
        self,
        remote: Remote,
        *,
        expected: int | None = None,
        is_new: bool = False,
        note: Callable[[Remote], object] | None = None,
    ) -> None:
        self._remote, self._note = remote, note
        self._place = place_to_write(remote)
        self.name = self._place.name
        self.position = 0
        self._part_bytes = part_bytes_of(expected)
        self._in_flight = max(1, min(IN_FLIGHT, _MEMORY_BYTES // self._part_bytes - 1))
        self._is_new = is_new
        self._part = np.empty(0, np.uint8)
        self._filled = 0
        self._parts = 0
        self._upload: Any = None
        self._before: tuple[int, str | None] | None = None
        self.is_open = True

    # --- Bytes ------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data` (flat bytes); it may change once this returns.

        Raises:
            SourceError: the bytes could not be stored.
            ClosedError: it was committed or aborted.
        """
        self._require_open()
        rest = np.frombuffer(data, np.uint8)
        self.position += len(rest)
        while len(rest):
            if not len(self._part):
                self._part = np.empty(self._part_bytes, np.uint8)
            count = min(len(rest), self._part_bytes - self._filled)
            self._part[self._filled : self._filled + count] = rest[:count]
            self._filled += count
            rest = rest[count:]
            if self._filled == self._part_bytes:
                self._send()

    def end_blobs(self) -> int:
        """Return the position: the object appears as a whole, so its parts need no order."""
        return self.position

    def _send(self) -> None:
        """Hand a part over to obstore, which keeps it until it is sent."""
        part, self._part, self._filled = self._part[: self._filled], np.empty(0, np.uint8), 0
        if self._upload is None:
            self._before = self._look()
            self._require_new()
            self._upload = self._ask(
                lambda library: library.open_writer(
                    self._place.store,
                    self._place.key,
                    buffer_size=self._part_bytes,
                    max_concurrency=self._in_flight,
                )
            )
        if self._parts == MOST_PARTS:
            raise SourceError(
                "the store takes no more parts of one object; save in shards, as "
                "max_shard_size='50GB' does",
                file=self.name,
                expected=f"at most {MOST_PARTS} parts of {self._part_bytes} bytes",
            )
        self._parts += 1
        self._ask(lambda _: self._upload.write(part.data))

    # --- The end ----------------------------------------------------------------------------

    def commit(self, manifest: bytes = b"") -> None:
        """Write the manifest, and make the object visible.

        Raises:
            SourceError: it failed; the old object is still there, unless the message says that the
                outcome is unknown.
        """
        self.write(manifest)
        try:
            if self._upload is None:
                self._put()
            else:
                if self._filled:
                    self._send()
                if self._is_new:
                    self._before = self._look()
                    self._require_new()
                self._complete()
        except BaseException:
            self.abort()
            raise
        self.is_open = False
        if self._note is not None:
            self._note(self._remote)

    def _put(self) -> None:
        body = self._part[: self._filled].data
        mode = "create" if self._is_new else "overwrite"

        def put(library: Any) -> None:
            try:
                library.put(
                    self._place.store, self._place.key, body, mode=mode, use_multipart=False
                )
            except library.exceptions.AlreadyExistsError:
                raise Store.taken(self.name) from None

        self._ask(put)

    def _complete(self) -> None:
        upload, self._upload = self._upload, None  # if this fails, obstore aborts the upload
        try:
            self._ask(lambda _: upload.close())
        except SourceError as error:
            # The store may have finished, and only its answer was lost.
            after = None
            with contextlib.suppress(SourceError):
                after = self._look()
            if after is not None and after != self._before and after[0] == self.position:
                return
            if after is None or after[1] is None or after != self._before:
                error.hint = "whether the new object is in place is not known: check it"
            raise

    def abort(self) -> None:
        """Abort the upload. Without effect after `commit` or an earlier abort."""
        upload, self._upload, self.is_open = self._upload, None, False
        self._part, self._filled = np.empty(0, np.uint8), 0
        if upload is None:
            return
        raised, reason = sys.exception(), RuntimeError("given up")
        try:
            self._ask(lambda _: upload.__exit__(RuntimeError, reason, None))
        except SourceError:
            if raised is not None:
                raised.add_note(
                    f"{self.name}: the uploaded parts could not be removed and may cost money; a "
                    "lifecycle rule of the bucket removes them"
                )

    # --- Requests ---------------------------------------------------------------------------

    def _look(self) -> tuple[int, str | None] | None:
        """Return size and ETag of the existing object, or None."""
        meta = found_at(self._place, WRITING)
        return None if meta is None else (int(meta["size"]), meta.get("e_tag"))

    def _require_new(self) -> None:
        if self._is_new and self._before is not None:
            raise Store.taken(self.name)

    def _require_open(self) -> None:
        if not self.is_open:
            raise ClosedError("the file was closed or given up", file=self.name)

    def _ask(self, ask: Callable[[Any], Any]) -> Any:
        return asked(ask, WRITING, self.name)


def place_to_write(remote: Remote) -> Place:
    """Return the store and the key of a URL that can be written to.

    Raises:
        UsageError: places of this scheme are only read.
        ArgumentValueError: the URL or an option is wrong.
        MissingDependencyError: obstore is not installed.
    """
    scheme = scheme_of(remote.url)
    is_foreign = not is_store(remote.storage) and not has_folders(remote.url)
    if scheme in _READ_ONLY or is_foreign:  # opened by a registered function
        raise Store.read_only(remote)
    if scheme == "file" and remote.storage is None:
        raise UsageError("write to the path itself, without file://", file=remote.name)
    return place_of(remote)


def part_bytes_of(expected: int | None) -> int:
    """Return the length of an object's parts, a multiple of 1 MiB.

    Args:
        expected: the object's length, or None if unknown.
    """
    least = -(-(expected or 0) // _PLANNED_PARTS)
    return max(PART_BYTES, -(-least >> 20) << 20)


def found_at(place: Place, doing: str = "cannot look whether it exists") -> Any:
    """Return obstore's metadata of an object, or None if it does not exist.

    Args:
        place: the object.
        doing: the attempt, as it reads in a sentence: "cannot read".

    Raises:
        SourceError: the store does not answer.
    """

    def look(library: Any) -> Any:
        try:
            return library.head(place.store, place.key)
        except FileNotFoundError:
            return None

    return asked(look, doing, place.name)


def copy(source: Remote, target: Remote) -> bool:
    """Have a store copy an object; return False if source and target are in different stores.

    If the store refuses, as S3 does above 5 GiB, the object is read and uploaded in parts.

    Raises:
        SourceError: reading or writing failed.
    """
    first, second = place_of(source), place_to_write(target)
    is_one = first.store is second.store or (
        source.url.split("/")[:3] == target.url.split("/")[:3] and source.storage == target.storage
    )
    if is_one:
        try:
            asked(
                lambda library: library.copy(second.store, first.key, second.key),
                "cannot copy",
                second.name,
            )
        except SourceNotFoundError:
            raise
        except SourceError:
            _write_anew(source, target)
    return is_one


def _write_anew(source: Remote, target: Remote) -> None:
    """Copy an object through this process, one part at a time."""
    from_store = RemoteSource(source)
    try:
        sink = RemoteSink(target, expected=from_store.size)
        try:
            for start in range(0, from_store.size, PART_BYTES):
                memory = bytearray(min(PART_BYTES, from_store.size - start))
                from_store.read_into(start, memoryview(memory))
                sink.write(memory)
            sink.commit()
        except BaseException:
            sink.abort()
            raise
    finally:
        from_store.close()
