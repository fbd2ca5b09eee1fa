"""A file that is being written: what it will say, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    NotRepresentableError,
    Reason,
    UsageError,
    describe,
)
from ztensor.io.writing.blob import BlobOptions
from ztensor.io.writing.canonical import CanonicalBlobs, require_canonical, require_nfc
from ztensor.io.writing.copying import Copier
from ztensor.io.writing.draft import Draft
from ztensor.io.writing.planning import aligned
from ztensor.threads.pool import Pool
from ztensor.threads.sharing import thread_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

    from ztensor.io.source.base import Sink
    from ztensor.spec.container import Emitter
    from ztensor.spec.model.manifest import TensorObject


class Output:
    """A file that is being written; `Writer` has what writes objects into it.

    As a context manager it finishes at the end and aborts on an exception. A subclass calls
    `_begin` or `_extend` before the first object.

    Args:
        emitter: writes the manifest of its version.
        compression: as for `Writer`, like all that follow.
        checksum: likewise.
        threads: likewise.
        chunk_rows: likewise.
        alignment: likewise.
        canonical: likewise.

    Attributes:
        state: `"open"`, `"finished"` or `"aborted"`.
        draft: what the manifest will say, for the library's own packages.
        copier: copies components of other files, likewise.
    """

    def __init__(
        self,
        emitter: Emitter,
        *,
        compression: bool | int | str = False,
        checksum: str | bool | None = True,
        threads: int | None = None,
        chunk_rows: int | None = None,
        alignment: int | None = None,
        canonical: bool = False,
    ) -> None:
        emitter.form = aligned(emitter.form, alignment, emitter.version)
        self.draft = Draft(emitter)
        self.state: Literal["open", "finished", "aborted"] = "open"
        self._options = BlobOptions.of(emitter.form, compression, checksum, chunk_rows)
        if canonical:
            require_canonical(emitter.version, self._options)
        self._canonical = CanonicalBlobs(emitter.form) if canonical else None
        self._crew = Pool(thread_count(threads))
        self._streamed: str | None = None  # the object whose stream is open
        self._shared: dict[str, str] = {}
        # Of small arrays like one before, by shape and element type: the number of their kind.
        self._kinds: dict[tuple[tuple[int, ...], np.dtype[Any]], int] = {}
        self._digest: Callable[[bytes], str] | None = None  # theirs

    def _begin(self, sink: Sink) -> None:
        """Start a new file.

        Raises:
            SourceError: its first bytes could not be written.
        """
        self._extend(sink, 0)
        try:
            sink.write(self.draft.emitter.magic)
        except BaseException:
            sink.abort()
            raise

    def _extend(self, sink: Sink, length: int) -> None:
        """Go on with a file that was `length` bytes long before this commit, 0 for a new one."""
        self._sink, self._previous_length = sink, length
        self.copier = Copier(sink, self._options, self._crew)

    def _end_stream(self, name: str, tensor_object: TensorObject) -> None:
        """Take the object that came in pieces."""
        self._streamed = None
        self.draft.objects[name] = tensor_object

    # --- The end ----------------------------------------------------------------------------

    def finish(self) -> int:
        """Write the manifest, put the file in place, and return its length in bytes.

        Raises:
            UsageError: a stream is still open.
            ClosedError: the writer was finished or aborted before.
            SourceError: the file could not be put in place; what was there before still is.
        """
        self._require_open()
        self._require_no_stream()
        try:
            end = self._sink.end_blobs()
            self._sink.commit(self.draft.emit(end, self._previous_length))
        except BaseException:
            self.abort()
            raise
        finally:
            self._crew.close()
        self.state = "finished"
        self._release()
        return self._sink.position

    def abort(self) -> None:
        """Forget everything; no file appears, and an old one stays. May be called again."""
        if self.state == "open":
            self.state = "aborted"
            self._streamed = None
            self._crew.close()
            try:
                self._sink.abort()
            finally:
                self._release()

    def _release(self) -> None:
        """Let go of what a subclass holds until the end."""

    def __enter__(self) -> Self:
        """Return the writer itself."""
        self._require_open()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Finish, or abort where an exception passes through."""
        if kind is not None:
            self.abort()
        elif self.state == "open":
            try:
                self.finish()
            except BaseException:
                self.abort()
                raise

    def __del__(self) -> None:
        """Abort what nobody finished: a half-written file is never committed."""
        if hasattr(self, "_sink"):
            self.abort()

    # --- Checks -----------------------------------------------------------------------------

    def _require_open(self) -> None:
        """Raise where this was finished or aborted.

        Raises:
            ClosedError: it was.
        """
        if self.state != "open":
            raise ClosedError(f"the writer is {self.state}", file=self._sink.name)

    def _require_ready(self, name: str) -> None:
        """Raise where no object of that name can be written now.

        Raises:
            ClosedError: this was finished or aborted.
            UsageError: a stream is open, or the name was written before.
            ArgumentTypeError: the name is not text.
            NotRepresentableError: the name is not text in UTF-8.
        """
        if self.state != "open":
            self._require_open()
        if self._streamed is not None:
            self._require_no_stream()
        self._require_name(name)
        if name in self.draft.objects.entries:
            raise UsageError(
                "the name was written before; names are unique",
                reason=Reason.DUPLICATE_WRITE,
                file=self._sink.name,
                object_name=name,
            )
        if self._canonical is not None:
            self._canonical.require_next(name)

    def _require_no_stream(self) -> None:
        if self._streamed is not None:
            raise UsageError(
                "a stream is still open; close it first",
                file=self._sink.name,
                object_name=self._streamed,
            )

    def _require_name(self, name: object) -> None:
        """Raise where an object cannot have that name.

        Raises:
            ArgumentTypeError: it is not text.
            NotRepresentableError: it is not text in UTF-8.
        """
        if not isinstance(name, str):
            raise ArgumentTypeError(
                "an object's name is text", file=self._sink.name, found=describe(name)
            )
        try:
            self.draft.emitter.require_name(name)
            if self._canonical is not None:
                require_nfc(name)
        except NotRepresentableError as error:
            error.locate(file=self._sink.name)
            raise
