"""The objects of one file: its source, names, locations and derived views.

The manifest was checked when the file was opened. `values.py` reads and checks the data.
"""

from __future__ import annotations

import bisect
import contextlib
import operator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ztensor.errors import UsageError, ZTensorError
from ztensor.guard import foreign_bytes
from ztensor.io.reading.manifests import frame_in, manifest_in, may_be_ours
from ztensor.io.reading.values import Values
from ztensor.io.source.base import Range, Source
from ztensor.io.source.local import FileSource
from ztensor.io.source.stores import opened_by
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.container.framing import Frame
from ztensor.spec.digest import ALGORITHMS, Sum
from ztensor.spec.encoding import ENCODINGS, Encoding
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import Component, Manifest, TensorObject
from ztensor.spec.model.objects import LaterObjects
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ztensor.io.losses import Unrepresented
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.source.ahead import AheadSource
    from ztensor.io.source.rights import Rights

_FAR_BYTES = 1 << 40  # stands for a component behind a network: worth any thread


_offset = operator.attrgetter("offset")
_start = operator.itemgetter(0)


class Location(NamedTuple):
    """The extent of a component's stored bytes, for other I/O engines.

    Attributes:
        path: the file; None if the bytes are in memory only.
        offset: the first byte in the file.
        length: the number of bytes.
    """

    path: str | None
    offset: int
    length: int


class FileObjects(Values):
    """The objects of one file. `ShardedObjects` has the objects of a set of files.

    Args:
        source: the file's bytes; closed together with this object.
        manifest: the parsed manifest.
        frame: offset and length of the manifest; None for other formats.
        format: the name of the container format.
        ahead: a source that prefetches whole components if requests are expensive, else None.
        encodings: encoding names to codecs.
        account: returns the loss report: content that is neither an object nor an attribute.
        sums: the format's own checksums over more than one component.
        faults: returns attribute names to the errors of their values.
        verify: see `Fetching`.
        limits: the caps in force.
        reopen: takes a path or bytes and opens the file again, in another process.

    Attributes:
        version: the version text of the file, such as `1.2.0`.
        is_closed: whether `close` was called.
    """

    is_set = False

    def __init__(
        self,
        source: Source,
        manifest: Manifest,
        *,
        ahead: AheadSource | None = None,
        frame: Frame | None = None,
        format: str = "zt",  # the 1.2 API's word
        encodings: Mapping[str, Encoding] = ENCODINGS,
        account: Callable[[], Sequence[Unrepresented]] = tuple,
        sums: Sequence[tuple[int, int, Callable[[], None]]] = (),
        faults: Callable[[], Mapping[str, ZTensorError]] = dict,
        verify: bool | None = None,
        limits: Limits = DEFAULT_LIMITS,
        reopen: Callable[[Any], FileObjects] | None = None,
    ) -> None:
        self.source, self.prefetching, self._ahead = source, ahead or source, ahead
        self.manifest, self.frame, self.format, self.encodings = manifest, frame, format, encodings
        self.version = manifest.version
        self.verify, self.limits = verify, limits
        self.checked = set()
        self.sums = sorted((Sum(*fields) for fields in sums), key=_offset) if sums else []
        self.faults = faults
        self._account, self._reopen = account, reopen
        self._places, self._kinds = {}, {}
        self.is_closed = False

    # --- The file ---------------------------------------------------------------------------

    manifest_in = staticmethod(manifest_in)
    frame_in = staticmethod(frame_in)
    may_be_ours = staticmethod(may_be_ours)

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the file and its shards; empty for bytes in memory."""
        sources = [source for _, source in self.source.parts]
        return tuple(part.path for part in sources if part.path is not None and part.size)

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the file's own key-value pairs; empty where there are none."""
        return dict(with_dicts(self.manifest.attributes or {}))

    @property
    def nbytes(self) -> int:
        """Return the length of the file."""
        return self.source.size

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return the loss report: content of the file that is neither object nor attribute."""
        self.require_open()
        with foreign_bytes("the file", self.name):
            return tuple(self._account())

    def walked(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for reading all components in file order, which prefetches them."""
        return contextlib.nullcontext() if self._ahead is None else self._ahead.walked()

    def advise(self, offset: int, length: int, *, is_needed: bool) -> int:
        """Ask the system to read bytes into its page cache, or to drop them from it.

        The call does not wait for the reads. Pages that a view has touched and dirty pages stay.
        No map is touched: another process may truncate the file.

        Returns:
            The number of bytes asked for; 0 if the system has no page cache for the source.

        Raises:
            ClosedError: the file is closed.
        """
        advised = 0
        for start, part in self.source.parts:
            first, end = max(offset, start), min(offset + length, start + part.size)
            if first < end and isinstance(part, FileSource):
                advised += part.advise(first - start, end - first, is_needed=is_needed)
        return advised

    def close(self) -> None:
        """Close the file. Arrays that are views of it stay valid. May be called again."""
        self.is_closed = True
        self._places = {}
        vars(self).pop("recent", None)
        self.prefetching.close()

    def rights(self) -> set[Rights]:
        """Return the access rights of the file and of its shards."""
        every = {source.rights() for _, source in self.source.parts}
        return {rights for rights in every if rights is not None}

    def identity(self) -> object:
        """Return a key of the content: path and times of a file, an ETag, else a sha256."""
        if (identity := self.source.identity()) is not None:
            return identity
        whole = Range(self.source, 0, self.source.size)
        return ALGORITHMS["sha256"].of(whole.pieces())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path, or by value for bytes; the other process opens the file itself.

        Raises:
            UsageError: the source is an open file object.
        """
        self.require_open()
        source = opened_by(self.source)
        if source is None or self._reopen is None:
            raise UsageError(
                "a reader over a file object cannot be pickled; open it by path", file=self.name
            )
        return self._reopen, (source,)

    def check(self, names: Iterable[str] | None = None, **how: Any) -> VerifyReport:
        """Check every stored byte and return all problems; see `ztensor.Reader.verify`."""
        from ztensor.io.reading.verify import verify_file

        self.require_open()
        return verify_file(self, names, **how)

    # --- Files and selections ---------------------------------------------------------------

    def parts(self) -> Sequence[FileObjects]:
        """Return the files: this one."""
        return (self,)

    def part(self, name: str) -> FileObjects:
        """Return the file of an object: this one."""
        del name
        return self

    def is_known(self, name: str) -> bool:
        """Return whether the object's metadata needs no network request."""
        is_later = isinstance(self.manifest.objects, LaterObjects)
        return not (is_later and self.source.prefers_long_reads)

    def select(self, names: Iterable[str]) -> Self:
        """Return a subset of the objects over the same open file."""
        return self.changed(objects={name: self.object(name) for name in names})

    def changed_by(
        self, change: Callable[[FileObjects, Sequence[str]], FileObjects]
    ) -> FileObjects:
        """Return changed objects over the same open file.

        Args:
            change: takes the objects of a file and the names in use; returns the changed objects.
        """
        return change(self, list(self.names))

    def changed(self, encodings: Mapping[str, Encoding] | None = None, **changes: Any) -> Self:
        """Return a copy with other objects or attributes, over the same open file.

        Args:
            encodings: encoding names to codecs; None keeps this file's.
            changes: the fields `objects` and `attributes` of the `Manifest`.
        """
        part = object.__new__(type(self))
        vars(part).update(
            vars(self), _places={}, _kinds={}, manifest=self.manifest._replace(**changes)
        )
        if encodings is not None:
            part.encodings, part.checked = encodings, set()
            vars(part).pop("recent", None)
        return part

    # --- Objects ----------------------------------------------------------------------------

    def arrays_at_once(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the objects that fewer requests can read together: none here."""
        del names
        return {}

    def thread_count(self, threads: int | None) -> int:
        """Return the number of threads for work on many objects; see `threads.sharing`.

        1 for a network source, which prefetches in file order with threads of its own.
        """
        from ztensor.threads.sharing import thread_count  # reading one tensor needs no threads

        count = thread_count(threads)
        return 1 if self.source.prefers_long_reads else count

    def in_file_order(self, names: Iterable[str]) -> list[str]:
        """Return names in the order of their offsets if that saves requests, else unchanged."""
        objects = self.manifest.objects
        if not self.source.prefers_long_reads:
            return list(names)
        if isinstance(objects, LaterObjects):
            return sorted(names, key=objects.where)

        def place(name: str) -> int:
            components = self.object(name).components.values()
            return min((component.offset for component in components), default=0)

        return sorted(names, key=place)

    def location(self, name: str, role: str = "data") -> Location:
        """Return the extent of a component's stored bytes.

        Raises:
            ObjectNotFoundError: no object of that name, or no such component.
        """
        component = self.component_entry(name, role)
        parts = self.source.parts
        start, source = parts[bisect.bisect_right(parts, component.offset, key=_start) - 1]
        return Location(source.path, component.offset - start, component.length)

    def sum_over(self, component: Component) -> Sum | None:
        """Return the format's own checksum that covers all stored bytes of a component, or None."""
        number = bisect.bisect_right(self.sums, component.offset, key=_offset) - 1
        checksum = self.sums[number] if number >= 0 else None
        end = component.offset + component.length
        is_covered = checksum is not None and end <= checksum.offset + checksum.length
        return checksum if is_covered else None

    def is_unheld(self, tensor_object: TensorObject, component: Component) -> bool:
        """Return whether a component has bytes but neither a digest nor a checksum of its encoding.

        A checksum of the file may still cover them: see `sum_over`. Components of other formats
        may have length 0 here, as their bytes are in another file or of unknown length.
        """
        has_bytes = component.length or (self.format != "zt" and element_count(tensor_object.shape))
        if not has_bytes or component.digest is not None:
            return False
        return not self.stored(component).has_sum()


def lengths_of(file: FileObjects, objects: Iterable[TensorObject]) -> Iterator[int]:
    """Yield an estimate of the work per component in bytes; `_FAR_BYTES` for a network source."""
    for tensor_object in objects:
        for component in tensor_object.components.values():
            length = max(component.length, component.known_decoded_length or 0)
            yield _FAR_BYTES if file.source.prefers_long_reads else length
