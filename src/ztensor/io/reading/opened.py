"""One file: its manifest, fetched, parsed and checked, and what an open one says of itself."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import MOST_PROBLEMS, ClosedError, Problem, UsageError, ZTensorError
from ztensor.guard import foreign_bytes
from ztensor.io.reading.component import Fetching
from ztensor.io.source.base import Range, Source
from ztensor.io.source.local import FileSource
from ztensor.io.source.table import opened_by, source_of
from ztensor.io.source.urls import Remote
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container import SCHEMAS
from ztensor.spec.container.framing import (
    HEAD_BYTES,
    LOOK_BYTES,
    MAGIC_1,
    Frame,
    locate,
    may_be_damaged,
)
from ztensor.spec.container.walk import require_none
from ztensor.spec.digest import ALGORITHMS, Sum
from ztensor.spec.encoding import ENCODINGS, Encoding
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.model.manifest import Manifest
from ztensor.spec.model.objects import Bools, Ints, TableObjects
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ztensor.io.losses import Unrepresented
    from ztensor.io.source.ahead import AheadSource
    from ztensor.io.source.rights import Rights

# So much of a file's end is read at once: the manifests of a few hundred objects are in it. Over a
# network the source itself brings more than it is asked for.
END_BYTES = 32 << 10
_LEFT_BYTES = 4096  # a file system leaves zeros by blocks of this


class OpenedFile(Fetching):
    """What one open file is; `FileObjects` adds the objects in it.

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
        verify: None checks digests on copying reads, True also before a view is first handed
            out, False never.
        limits: the caps in force.
        reopen: takes a path or bytes and opens the same again, in another process.

    Attributes:
        manifest: as given, like frame, format, sums and faults.
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
        rights: Callable[[], Iterable[Rights | None]] = tuple,
        verify: bool | None = None,
        limits: Limits = DEFAULT_LIMITS,
        reopen: Callable[[Any], OpenedFile] | None = None,
    ) -> None:
        super().__init__(source, encodings, limits, verify=verify, ahead=ahead)
        self.manifest = manifest
        self.frame = frame
        self.format = format
        self.sums = [Sum(*one) for one in sums]
        self.faults = faults
        self.is_closed = False
        self._account, self._rights = account, rights
        self._reopen = reopen

    @property
    def name(self) -> str:
        """Return the path, or a description where there is none."""
        return self.source.name

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the path, where there is one, and those of its shards; a folder has no bytes."""
        return tuple(one.path for _, one in self.source.parts if one.path is not None and one.size)

    @property
    def names(self) -> Collection[str]:
        """Return the names of all objects, in the order of the file."""
        return self.manifest.objects.keys()

    @property
    def version(self) -> str:
        """Return the version text of the file, such as `1.2.0`."""
        return self.manifest.version

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
        """Return what the file says that neither its objects nor its attributes do.

        Raises:
            ClosedError: the file was given back.
            FormatError: the file is damaged.
            SourceError: it cannot be read.
        """
        self.require_open()
        with foreign_bytes("the file", self.name):
            return tuple(self._account())

    def located(self, name: str | None, role: str | None = None) -> foreign_bytes:
        """Return a context in which an error of ours is told file, object and component."""
        is_ours = self.format == "zt"
        return foreign_bytes("the object", self.name, name, role, is_ours=is_ours)

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
        super().close()

    def require_open(self) -> None:
        """Raise where the file was given back; see `Objects`."""
        if self.is_closed:
            raise ClosedError("the reader is closed; open the file again", file=self.name)

    def rights(self) -> set[Rights]:
        """Return the rights of the file, and of those its bytes lie in beside it."""
        found = {*(one.rights() for _, one in self.source.parts), *self._rights()}
        return {rights for rights in found if rights is not None}

    def identity(self) -> object:
        """Return what tells these bytes from others: of a file its place and times, or its ETag."""
        if (identity := self.source.identity()) is not None:
            return identity
        whole = Range(self.source, 0, self.source.size)
        return ALGORITHMS["sha256"].of(whole.pieces())

    @staticmethod
    def may_be_ours(given: Any) -> bool:
        """Return whether a file that does not open may be one of ours, damaged or cut.

        A store has objects only as a whole, so no zeros are what is left of one.

        Raises:
            SourceError: it cannot be read.
        """
        with contextlib.closing(source_of(given, mapped=False)) as source:
            head = source.read(0, min(source.size, _LEFT_BYTES))
            if isinstance(given, Remote) and not any(head):
                return False
            end = min(source.size, len(MAGIC_1))
            return may_be_damaged(bytes(head), bytes(source.read(source.size - end, end)))

    @staticmethod
    def manifest_in(source: Source, limits: Limits) -> tuple[Frame, Manifest]:
        """Return where a file's manifest lies and what it says.

        Raises:
            FormatError: the file is damaged or no zTensor file.
            UnsupportedVersionError: it is of a version this release does not read.
            LimitError: a safety cap is exceeded.
            SourceError: it cannot be read.
        """
        with foreign_bytes("the file", source.name):
            frame, end = _find(
                source, limits, LOOK_BYTES if source.prefers_long_reads else END_BYTES
            )
            start = frame.manifest_offset - (frame.file_size - len(end))
            data = end[start : start + frame.manifest_length] if start >= 0 else None
            return frame, parse_frame(source, frame, Budget(limits, source.size), data)

    @staticmethod
    def frame_in(source: Source, limits: Limits) -> Frame:
        """Return where a file's manifest lies; nothing of it is read.

        Raises:
            FormatError: the file is damaged or no zTensor file.
            UnsupportedVersionError: it is of a version this release does not read.
            LimitError: the manifest is larger than the cap.
            SourceError: it cannot be read.
        """
        with foreign_bytes("the file"):
            return _find(source, limits, LOOK_BYTES)[0]

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


# --- Its manifest ---------------------------------------------------------------------------------


def _find(source: Source, limits: Limits, length: int) -> tuple[Frame, bytes]:
    """Return where a file's manifest lies, and so many of its last bytes, or all."""
    size = source.size
    length = min(length, size)
    end = bytes(source.read(size - length, length))
    head = end if length == size else bytes(source.read(0, HEAD_BYTES))
    return locate(head[:HEAD_BYTES], end, size, limits), end


def parse_frame(
    source: Source, frame: Frame, budget: Budget, data: bytes | None = None
) -> Manifest:
    """Return what the manifest in a frame says, every rule checked that needs no data.

    The caller is within `foreign_bytes`.

    Args:
        source: the file.
        frame: where its manifest lies.
        budget: what it may cost.
        data: the manifest's bytes, where they were read before.

    Raises:
        FormatError: the manifest is damaged.
        UnsupportedVersionError: it is of a version this release does not read.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    budget.charge_steps(frame.manifest_length)
    budget.charge_bytes(2 * frame.manifest_length)  # the pages of the file are ours as well
    if data is None:
        data = bytes(source.read(frame.manifest_offset, frame.manifest_length))
    manifest = SCHEMAS[frame.container](data, frame, budget)
    require_none(check_layouts(manifest))
    return manifest


def component_extents(manifest: Manifest) -> tuple[Ints, Ints, Bools]:
    """Return where a manifest's components are, as `extents_of` takes it."""
    objects = manifest.objects
    others = objects.others if isinstance(objects, TableObjects) else objects
    some = [one for found in others.values() for one in found.components.values()]
    offsets = np.array([one.offset for one in some], np.int64)
    lengths = np.array([one.length for one in some], np.int64)
    is_encoded = np.array([one.encoding != "raw" for one in some], np.bool_)
    if isinstance(objects, TableObjects):
        table = objects.table
        offsets = np.concatenate((offsets, table.offsets))
        lengths = np.concatenate((lengths, table.lengths))
        is_encoded = np.concatenate((is_encoded, ~table.is_raw()))
    return offsets, lengths, is_encoded


def check_layouts(manifest: Manifest) -> list[Problem]:
    """Return what each object's layout finds wrong with the manifest alone."""
    problems: list[Problem] = []
    objects = manifest.objects
    unchecked = objects.others if type(objects) is TableObjects else objects
    if not unchecked:
        return problems
    for name, tensor_object in unchecked.items():
        if len(problems) >= MOST_PROBLEMS:
            break
        layout = LAYOUTS.get(tensor_object.format)
        if layout is not None:
            found = layout.check_object(tensor_object)
            if found:
                problems.extend(p.under("objects", name).about(name) for p in found)
    return problems
