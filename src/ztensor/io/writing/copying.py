"""Components of other files on their way into this one, as they are stored or decoded anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ztensor.io.reading.component import digest_of as digest_in
from ztensor.io.reading.overlaps import SharedRuns
from ztensor.io.reading.portable import Portable
from ztensor.io.source.sink import FileSink
from ztensor.io.writing.blob import Blob, Pieces, as_of
from ztensor.io.writing.options import BlobOptions, Compression
from ztensor.spec.digest import Digest, parse_digest, require_match
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.layout import known_length
from ztensor.spec.layout.elements import BLOCK_BYTES

if TYPE_CHECKING:
    from ztensor.io.reading.file import FileObjects
    from ztensor.io.shards.objects import Objects
    from ztensor.io.source.base import Sink, Source
    from ztensor.spec.model.manifest import Component, Shard, TensorObject

    Progress = Callable[[int], None]
    Chunks = Callable[[FileObjects, str, str], Iterator[memoryview]]
    Write = Callable[[TensorObject, str, Pieces, int | None, BlobOptions], Component]


class _Part(NamedTuple):
    """A component that is copied.

    Attributes:
        file: where it is.
        name: the name of its object there.
        role: its role.
        plan: the object as it will be.
        progress: called with the bytes of each piece that was written.
    """

    file: FileObjects
    name: str
    role: str
    plan: TensorObject
    progress: Progress | None

    @property
    def component(self) -> Component:
        """Return it as it will be, but for its place."""
        return self.plan.components[self.role]

    @property
    def there(self) -> Component:
        """Return it as its file says it."""
        return self.file.object(self.name).components[self.role]


class Copier:
    """Copies components into one file; what shared its bytes there shares them here.

    Args:
        sink: where bytes go.
        options: how an object is stored that does not stay as it is in its file.
        write: writes decoded bytes: what they are of, the role, how many they are, how.
        is_decoded: whether all are decoded, even if their stored bytes mean the same here.

    Attributes:
        chunks: gives the decoded bytes of a component. A caller that copies many objects may have
            them decoded before they are asked for.
    """

    def __init__(
        self, sink: Sink, options: BlobOptions, write: Write, *, is_decoded: bool = False
    ) -> None:
        self._sink, self._options, self._write = sink, options, write
        self._portable, self._is_decoded = Portable(options.form), is_decoded
        # By source, offset and length: where stored bytes are now. With a digest and an encoding:
        # the text of the digest that they were held to.
        self._copied: dict[tuple[Source, int, int], int] = {}
        self._checked: dict[tuple[object, ...], str | None] = {}
        self._recoded: dict[tuple[object, ...], tuple[Component, set[Digest]]] = {}
        self._overlaps: dict[Source, SharedRuns] = {}
        self._narrowed: set[FileObjects] = set()
        self.chunks: Chunks = self._portable.chunks

    def expect(self, objects: Iterable[tuple[Objects, str]]) -> None:
        """Say what will be copied, so that blobs which overlap are copied once, where they may.

        Args:
            objects: where each is, and its name there; of one file only once.
        """
        if self._portable.form.is_exact:
            return
        blobs: dict[Source, list[tuple[int, int]]] = {}
        for where, name in objects:
            home = where.part(name)
            blobs.setdefault(home.source, []).extend(
                (component.offset, component.length)
                for component in home.object(name).components.values()
            )
        self._overlaps.update({source: SharedRuns(found) for source, found in blobs.items()})

    def plan(self, file: FileObjects, name: str) -> tuple[TensorObject, bool]:
        """Return an object as it will be, and whether its stored bytes can be copied.

        From here on nobody gets more rights to the new file than to this one.

        Args:
            file: where the object is.
            name: its name there.

        Raises:
            ZTensorError: what `Portable.decoded` raises.
        """
        if isinstance(self._sink, FileSink) and file not in self._narrowed:
            self._narrowed.add(file)
            for rights in file.rights():
                self._sink.narrow(rights)
        stored = None if self._is_decoded else self._portable.stored(file, name)
        return stored or self._portable.decoded(file, name), stored is not None

    def components(
        self,
        file: FileObjects,
        name: str,
        plan: tuple[TensorObject, bool],
        options: BlobOptions | None,
        progress: Progress | None,
        shards: Mapping[str, Shard],
    ) -> dict[str, Component]:
        """Copy the components of an object.

        Args:
            file: where the object is.
            name: its name there.
            plan: what `plan` returned.
            options: how they are stored; None for as they are in their file, where that can be.
            progress: called with the bytes of each piece that was written.
            shards: other files of the new one, in which components stay.
        """
        (planned, is_stored), copied = plan, {}
        is_raw = options is not None and options.compression is None
        for role in sorted(planned.components):
            part = _Part(file, name, role, planned, progress)
            there = part.there
            if there.shard is not None and there.shard.name in shards and not self._is_decoded:
                copied[role] = there
            elif is_stored and (options is None or (is_raw and part.component.encoding == "raw")):
                copied[role] = self._stored(part)
            else:
                copied[role] = self._decoded(part, options or self._kept(file, there))
        return copied

    # --- Decoded anew -----------------------------------------------------------------------

    def _kept(self, file: FileObjects, there: Component) -> BlobOptions:
        """Return how a component is stored that is decoded to be copied: as it was, if it can."""
        called = self._portable.form.encodings.get(there.encoding, there.encoding)
        is_common = file.format == "zt" and file.is_common(there.encoding)
        if self._is_decoded or not is_common or called not in ENCODINGS:
            return self._options
        compression = None if called == "raw" else Compression(called)
        return self._options._replace(compression=compression)

    def _decoded(self, part: _Part, options: BlobOptions) -> Component:
        """Write a component's decoded bytes, or find them written for another that has them."""
        component, there, file = part.component, part.there, part.file
        stored = file.stored(there)
        # All that the written bytes turn on, and whether they can be written.
        read_as = there._replace(digest=None, extra=None)
        length = known_length(file.object(part.name), part.role)
        key = file.source, read_as, length, component.dtype, options.compression
        digest = stored.digest
        if key in self._recoded:
            placed, checked = self._recoded[key]
            if digest is not None and digest.known is not None and digest not in checked:
                for _ in file.decoded_chunks(part.name, part.role):  # which holds them to it
                    pass
        else:
            is_same = component.dtype == there.dtype  # indices may become wider
            pieces, length = self._pieces(part), length if is_same else None
            placed, checked = self._write(part.plan, part.role, pieces, length, options), set()
            # Components of another format may have no place that tells what they are.
            if file.is_common(there.encoding) or getattr(stored.encoding(), "has_place", False):
                self._recoded[key] = placed, checked
        if digest is not None:
            checked.add(digest)
        return as_of(placed, component)

    def _pieces(self, part: _Part) -> Pieces:
        """Return what gives the decoded bytes of a component, as often as it is called."""
        chunks = self.chunks
        reported = 0

        def pieces() -> Iterator[memoryview]:
            nonlocal chunks, reported
            given, chunks = chunks, self._portable.chunks
            done = 0
            for chunk in given(part.file, part.name, part.role):
                yield chunk
                done += chunk.nbytes
                if done > reported and part.progress is not None:
                    part.progress(done - reported)
                reported = max(reported, done)

        return pieces

    # --- As stored --------------------------------------------------------------------------

    def _stored(self, part: _Part) -> Component:
        """Write a component's stored bytes, or find them written; hold them to its own digest.

        Raises:
            DigestMismatchError: they do not match.
        """
        component, file = part.component, part.file
        digest = digest_in(component)
        algorithm = self._options.algorithm if digest is None else digest.known
        is_of_decoded = component.is_exact and component.encoding != "raw"
        blobs = self._options._replace(algorithm=None if is_of_decoded else algorithm)
        found = self._copy(file, component, blobs, part.progress)
        place = file.source, component.offset, component.length
        # What other objects say of the same bytes is no check of this one's digest.
        key = *place, digest, component.encoding
        if key not in self._checked:
            text = component.digest
            if algorithm is None or (is_of_decoded and not file.is_common(component.encoding)):
                pass  # nobody can tell
            elif is_of_decoded:
                found = algorithm.of(file.decoded_chunks(part.name, part.role))  # checks it, too
                text = text or found
            else:
                found = found or algorithm.of(file.stored(component).stored().pieces(BLOCK_BYTES))
                if digest is None:
                    text = found
                elif (actual := parse_digest(found).expected) != digest.expected:
                    if not component.digest_may_cover_decoded or component.encoding == "raw":
                        require_match(digest, actual)
                    for _ in file.decoded_chunks(part.name, part.role):
                        pass  # raises where it covers neither
                    text = found
            self._checked[key] = text
        return component._replace(offset=self._copied[place], digest=self._checked[key])

    def _copy(
        self,
        file: FileObjects,
        component: Component,
        options: BlobOptions,
        progress: Progress | None,
    ) -> str | None:
        """Copy stored bytes where that is not done; return their digest where it was computed."""
        place = file.source, component.offset, component.length
        if place in self._copied:
            return None
        overlaps = self._overlaps.get(file.source)
        run = overlaps and overlaps.around(component.offset, component.length)
        if run and run != place[1:]:
            whole = component._replace(offset=run[0], length=run[1], shard=None)
            self._copy(file, whole, options._replace(algorithm=None), progress)
            self._copied[place] = self._copied[file.source, *run] + component.offset - run[0]
            return None
        blob = Blob(self._sink, options)
        for piece in file.stored(component).stored().pieces(BLOCK_BYTES):
            blob.write(piece)
            if progress is not None:
                progress(piece.nbytes)
        file.stored(component).stored()  # raises where a program wrote into the file meanwhile
        placed = blob.finish(component)
        self._copied[place] = placed.offset
        return placed.digest
