"""Components of other files on their way into this one, as they are stored or decoded anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.io.reading.component import digest_of as digest_in
from ztensor.io.reading.overlaps import SharedRuns
from ztensor.io.reading.portable import Portable
from ztensor.io.source.sink import FileSink
from ztensor.io.writing.blob import Blob, Pieces, as_of
from ztensor.io.writing.options import BlobOptions, Compression
from ztensor.spec.digest import Algorithm, Digest, parse_digest, require_match
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.layout import known_length
from ztensor.spec.layout.elements import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.objects import Objects
    from ztensor.io.source.base import Sink, Source
    from ztensor.spec.model.manifest import Component, Shard, TensorObject

    Progress = Callable[[int], None]
    Chunks = Callable[[FileObjects, str, str], Iterator[memoryview]]
    Write = Callable[[TensorObject, str, Pieces, int | None, BlobOptions], Component]


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
        (planned, is_stored), there = plan, file.object(name).components
        is_raw = options is not None and options.compression is None
        copied = {}
        for role in sorted(planned.components):
            component, shard = planned.components[role], there[role].shard
            if shard is not None and shard.name in shards and not self._is_decoded:
                copied[role] = there[role]
            elif is_stored and (options is None or (is_raw and component.encoding == "raw")):
                copied[role] = self._stored(file, name, role, component, progress)
            else:
                how = options or self._kept(file, there[role])
                copied[role] = self._decoded(file, name, role, planned, how, progress)
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

    def _decoded(
        self,
        file: FileObjects,
        name: str,
        role: str,
        plan: TensorObject,
        options: BlobOptions,
        progress: Progress | None,
    ) -> Component:
        """Write a component's decoded bytes, or find them written for another that has them."""
        component = plan.components[role]
        there = file.object(name).components[role]
        stored = file.stored(there)
        # All that the written bytes turn on, and whether they can be written.
        read_as = there._replace(digest=None, extra=None)
        length = known_length(file.object(name), role)
        key = file.source, read_as, length, component.dtype, options.compression
        digest = stored.digest
        if key in self._recoded:
            placed, checked = self._recoded[key]
            if digest is not None and digest.known is not None and digest not in checked:
                for _ in file.decoded_chunks(name, role):  # which holds them to it
                    pass
        else:
            pieces = self._pieces(file, name, role, progress)
            is_same = component.dtype == there.dtype  # indices may become wider
            placed = self._write(plan, role, pieces, length if is_same else None, options)
            checked = set()
            has_place = getattr(stored.encoding(), "has_place", False)
            # Another format's may have none.
            if has_place or file.is_common(there.encoding):
                self._recoded[key] = placed, checked
        if digest is not None:
            checked.add(digest)
        return as_of(placed, component)

    def _pieces(self, file: FileObjects, name: str, role: str, progress: Progress | None) -> Pieces:
        """Return what gives the decoded bytes of a component, as often as it is called."""
        chunks = self.chunks
        reported = 0

        def pieces() -> Iterator[memoryview]:
            nonlocal chunks, reported
            given, chunks = chunks, self._portable.chunks
            done = 0
            for chunk in given(file, name, role):
                yield chunk
                done += chunk.nbytes
                if done > reported and progress is not None:
                    progress(done - reported)
                reported = max(reported, done)

        return pieces

    # --- As stored --------------------------------------------------------------------------

    def _stored(
        self,
        file: FileObjects,
        name: str,
        role: str,
        component: Component,
        progress: Progress | None,
    ) -> Component:
        """Write a component's stored bytes, checked, or find them written for another."""
        place = file.source, component.offset, component.length
        digest = digest_in(component)
        algorithm = self._options.algorithm if digest is None else digest.known
        is_of_decoded = component.digest_covers_decoded and component.encoding != "raw"
        found = self._copy(file, component, None if is_of_decoded else algorithm, progress)
        # What other objects say of the same bytes is no check of this one's digest.
        key = *place, digest, component.encoding
        if key not in self._checked:
            text = component.digest
            if is_of_decoded and algorithm is not None:
                if file.is_common(component.encoding):
                    found = algorithm.of(file.decoded_chunks(name, role))  # which checks it
                    text = text or found
            elif algorithm is not None:
                text = self._held(file, name, role, component, algorithm, found)
            self._checked[key] = text
        return component._replace(offset=self._copied[place], digest=self._checked[key])

    def _copy(
        self,
        file: FileObjects,
        component: Component,
        algorithm: Algorithm | None,
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
            self._copy(file, whole, None, progress)
            self._copied[place] = self._copied[file.source, *run] + component.offset - run[0]
            return None
        blob = Blob(self._sink, self._options._replace(algorithm=algorithm))
        for piece in file.stored(component).stored().pieces(BLOCK_BYTES):
            blob.write(piece)
            if progress is not None:
                progress(piece.nbytes)
        file.stored(component).stored()  # raises where a program wrote into the file meanwhile
        placed = blob.finish(component)
        self._copied[place] = placed.offset
        return placed.digest

    def _held(
        self,
        file: FileObjects,
        name: str,
        role: str,
        component: Component,
        algorithm: Algorithm,
        found: str | None,
    ) -> str:
        """Hold copied bytes to their digest, and return the one they have in the new file.

        Args:
            file: where the object is.
            name: its name there.
            role: the component's role.
            component: as it is there.
            algorithm: of the digest there, or of the one it gets.
            found: the digest of the stored bytes, where it was computed.

        Raises:
            DigestMismatchError: they do not match.
        """
        digest = digest_in(component)
        found = found or algorithm.of(file.stored(component).stored().pieces(BLOCK_BYTES))
        if digest is None:
            return found
        if parse_digest(found).expected == digest.expected:
            return component.digest or found
        if not component.digest_may_cover_decoded or component.encoding == "raw":
            require_match(digest, parse_digest(found).expected)
        for _ in file.decoded_chunks(name, role):  # raises where it covers neither
            pass
        return found
