"""One open file: what it says of itself, and which file it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import (
    ClosedError,
    UsageError,
    ZTensorError,
)
from ztensor.guard import foreign_bytes
from ztensor.io.reading.component import Fetching, StoredComponent
from ztensor.io.source.base import Range, Source
from ztensor.io.source.table import opened_by
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.digest import ALGORITHMS, Sum
from ztensor.spec.digest import digest_of as digest_of_bytes
from ztensor.spec.encoding import ENCODINGS, Encoding
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ztensor.io.source.rights import Rights
    from ztensor.spec.container.framing import Frame
    from ztensor.spec.model.account import Unrepresented
    from ztensor.spec.model.manifest import Component, Manifest


class OpenedFile:
    """What one open file is; `FileObjects` adds the objects in it.

    Args:
        source: the file's bytes; closed with this.
        manifest: what they mean.
        frame: where the manifest lies; None where the file is of another format.
        format: the name of the container format.
        encodings: how components are stored, by the word for it.
        account: gives what the file says that neither objects nor attributes do.
        sums: the format's own checksums over more than one component.
        faults: gives what is wrong with attributes, by their names.
        verify: None checks digests on copying reads, True also before a view is first handed
            out, False never.
        limits: the caps in force.
        reopen: takes a path or bytes and opens the same again, in another process.

    Attributes:
        source: as given, like manifest, frame, format, sums, faults, encodings, limits, verify.
        fetching: what the components share: encodings, limits, what was checked.
        is_closed: whether the file was given back.
    """

    is_set = False

    def __init__(
        self,
        source: Source,
        manifest: Manifest,
        *,
        frame: Frame | None = None,
        format: str = "zt",  # the 1.2 API's word
        encodings: Mapping[str, Encoding] = ENCODINGS,
        account: Callable[[], Sequence[Unrepresented]] = tuple,
        sums: Sequence[Sum] = (),
        faults: Callable[[], Mapping[str, ZTensorError]] = dict,
        verify: bool | None = None,
        limits: Limits = DEFAULT_LIMITS,
        reopen: Callable[[Any], OpenedFile] | None = None,
    ) -> None:
        self.source = source
        self.manifest = manifest
        self.frame = frame
        self.format = format
        self.sums = sums
        self.faults = faults
        self.encodings = encodings
        self.limits = limits
        self.verify = verify
        self.fetching = Fetching(source, encodings, limits, verify=verify)
        self.is_closed = False
        self._account = account
        self._reopen = reopen

    @property
    def name(self) -> str:
        """Return the path, or a description where there is none."""
        return self.source.name

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the path, where there is one, and those of its shards; a folder has no bytes."""
        return tuple(one.path for one in self.source.sources if one.path is not None and one.size)

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

    def stored(self, component: Component) -> StoredComponent:
        """Return the way to a component's bytes: all that reads them goes through it."""
        return self.fetching.of(component)

    def close(self) -> None:
        """Give back the file; arrays that are views of it stay valid. May be called again."""
        self.is_closed = True
        self.fetching.close()
        self.source.close()

    def require_open(self) -> None:
        """Raise where the file was given back; see `Objects`."""
        if self.is_closed:
            raise ClosedError("the reader is closed; open the file again", file=self.name)

    def rights(self) -> set[Rights]:
        """Return the rights of the file, and of those its bytes lie in beside it."""
        found = {one.rights() for one in self.source.sources}
        found |= {one.rights() for one in self.encodings.values()}
        return {rights for rights in found if rights is not None}

    def identity(self) -> object:
        """Return what tells these bytes from others: of a file its place and times, or its ETag."""
        if (identity := self.source.identity()) is not None:
            return identity
        whole = Range(self.source, 0, self.source.size)
        return digest_of_bytes(ALGORITHMS["sha256"], whole.pieces())

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
