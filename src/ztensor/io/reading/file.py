"""The objects of one file: which file it is, what it names, how many are gone through.

What the manifest alone shows was checked when the file was opened; `values.py` reads the rest.
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

_FAR_BYTES = 1 << 40  # of a component that is waited for: worth any thread


_offset = operator.attrgetter("offset")
_start = operator.itemgetter(0)


class Location(NamedTuple):
    """Where a component's stored bytes lie, for other I/O engines.

    Attributes:
        path: the file, or None where it is only in memory.
        offset: first byte in the file.
        length: how many bytes.
    """

    path: str | None
    offset: int
    length: int


class FileObjects(Values):
    """The objects of one file; `ShardedObjects` are those of a set of files.

    Args:
        source: the file's bytes; closed with this.
        manifest: what they mean.
        frame: where the manifest lies; None where the file is of another format.
        format: the name of the container format.
        ahead: what brings whole components, where requests are dear; closed with this as well.
        encodings: how components are stored, by the word for it.
        account: gives what the file says that neither objects nor attributes do.
        sums: the format's own checksums over more than one component.
        faults: gives what is wrong with attributes, by their names.
        verify: see `Fetching`.
        limits: the caps in force.
        reopen: takes a path or bytes and opens the same again, in another process.

    Attributes:
        version: the version text of the file, such as `1.2.0`.
        is_closed: whether the file was given back.
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
        self.source, self.bringing, self._ahead = source, ahead or source, ahead
        self.manifest, self.frame, self.format, self.encodings = manifest, frame, format, encodings
        self.version = manifest.version
        self.verify, self.limits = verify, limits
        self.checked = set()
        self.sums = sorted((Sum(*one) for one in sums), key=_offset) if sums else []
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
        """Return the path, where there is one, and those of its shards; a folder has no bytes."""
        return tuple(one.path for _, one in self.source.parts if one.path is not None and one.size)

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the file's own key-value pairs; empty where there are none."""
        return dict(with_dicts(self.manifest.attributes or {}))

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole file."""
        return self.source.size

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return what the file says that neither its objects nor its attributes do."""
        self.require_open()
        with foreign_bytes("the file", self.name):
            return tuple(self._account())

    def walked(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which all components are read, in their order."""
        return contextlib.nullcontext() if self._ahead is None else self._ahead.walked()

    def advise(self, offset: int, length: int, *, is_needed: bool) -> int:
        """Ask the system to read bytes into its page cache, or say that they need not stay there.

        It may return long before they are read. Pages that a view has touched stay, and so do
        those not yet written to disk. A map is never touched for this: another process may cut
        the file.

        Returns:
            How many bytes the system was told of: none where it keeps no pages of the source.

        Raises:
            ClosedError: it is closed.
        """
        told = 0
        for start, part in self.source.parts:
            first, end = max(offset, start), min(offset + length, start + part.size)
            if first < end and isinstance(part, FileSource):
                told += part.advise(first - start, end - first, is_needed=is_needed)
        return told

    def close(self) -> None:
        """Give back the file; arrays that are views of it stay valid. May be called again."""
        self.is_closed = True
        self._places = {}
        vars(self).pop("recent", None)
        self.bringing.close()

    def rights(self) -> set[Rights]:
        """Return the rights of the file, and of the other files that its bytes are in."""
        found = {one.rights() for _, one in self.source.parts}
        return {rights for rights in found if rights is not None}

    def identity(self) -> object:
        """Return what tells these bytes from others: of a file its place and times, or its ETag."""
        if (identity := self.source.identity()) is not None:
            return identity
        whole = Range(self.source, 0, self.source.size)
        return ALGORITHMS["sha256"].of(whole.pieces())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path, or by value for bytes, so that workers open the file themselves.

        Raises:
            UsageError: the source is an open file object, which another process cannot have.
        """
        self.require_open()
        source = opened_by(self.source)
        if source is None or self._reopen is None:
            raise UsageError(
                "a reader over a file object cannot be pickled; open it by path", file=self.name
            )
        return self._reopen, (source,)

    def check(self, names: Iterable[str] | None = None, **how: Any) -> VerifyReport:
        """Check every stored byte and return what is wrong; see `ztensor.Reader.verify`."""
        from ztensor.io.reading.verify import verify_file

        self.require_open()
        return verify_file(self, names, **how)

    # --- Parts of it ------------------------------------------------------------------------

    def parts(self) -> Sequence[FileObjects]:
        """Return itself, where there is one file."""
        return (self,)

    def part(self, name: str) -> FileObjects:
        """Return itself: the file an object is in."""
        del name
        return self

    def is_known(self, name: str) -> bool:
        """Return whether what an object is can be told without asking a network."""
        is_later = isinstance(self.manifest.objects, LaterObjects)
        return not (is_later and self.source.prefers_long_reads)

    def select(self, names: Iterable[str]) -> Self:
        """Return some of the objects, over the same open file."""
        return self.changed(objects={name: self.object(name) for name in names})

    def mapped(self, change: Callable[[FileObjects, Sequence[str]], FileObjects]) -> FileObjects:
        """Return the objects changed, over the same open file.

        Args:
            change: takes the objects of a file and the names of those that are used.
        """
        return change(self, list(self.names))

    def changed(self, encodings: Mapping[str, Encoding] | None = None, **changes: Any) -> Self:
        """Return other objects, or other attributes, over the same open file.

        Args:
            encodings: how components are stored; as those of this by default.
            changes: `objects` and `attributes`, as `Manifest` has them.
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
        """Return those of some objects that are read together by fewer requests: none here."""
        del names
        return {}

    def thread_count(self, threads: int | None) -> int:
        """Return how many threads to use to go through objects; see `threads.sharing.thread_count`.

        One where bytes come over a network, which brings them in order by threads of its own.
        """
        from ztensor.threads.sharing import thread_count  # not for one tensor

        count = thread_count(threads)
        return 1 if self.source.prefers_long_reads else count

    def in_file_order(self, names: Iterable[str]) -> list[str]:
        """Return names in the order of their bytes, where going through them so costs less."""
        objects = self.manifest.objects
        if not self.source.prefers_long_reads:
            return list(names)
        if isinstance(objects, LaterObjects):
            return sorted(names, key=objects.where)

        def place(name: str) -> int:
            found = self.object(name).components.values()
            return min((component.offset for component in found), default=0)

        return sorted(names, key=place)

    def location(self, name: str, role: str = "data") -> Location:
        """Return where a component's stored bytes lie.

        Raises:
            ObjectNotFoundError: no object of that name, or no such component.
        """
        found = self.stated(name, role)
        parts = self.source.parts
        start, source = parts[bisect.bisect_right(parts, found.offset, key=_start) - 1]
        return Location(source.path, found.offset - start, found.length)

    def sum_over(self, component: Component) -> Sum | None:
        """Return the format's own checksum over all of a component's stored bytes, or None."""
        number = bisect.bisect_right(self.sums, component.offset, key=_offset) - 1
        found = self.sums[number] if number >= 0 else None
        end = component.offset + component.length
        return None if found is None or end > found.offset + found.length else found

    def is_unheld(self, tensor_object: TensorObject, component: Component) -> bool:
        """Return whether a component has bytes, and neither a digest nor an encoding that has one.

        In other formats they may lie in another file, or nobody knows how many they are; and a sum
        of the file may be over them; see `sum_over`.
        """
        has_bytes = component.length or (self.format != "zt" and element_count(tensor_object.shape))
        if not has_bytes or component.digest is not None:
            return False
        return not self.stored(component).has_sum()


def lengths_of(file: FileObjects, objects: Iterable[TensorObject]) -> Iterator[int]:
    """Yield about how many bytes of work each component is; very many of a source far away."""
    for tensor_object in objects:
        for component in tensor_object.components.values():
            length = max(component.length, component.known_decoded_length or 0)
            yield _FAR_BYTES if file.source.prefers_long_reads else length
