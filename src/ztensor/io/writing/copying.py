"""Components of other files on their way into this one, as they are stored or decoded anew."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ztensor.errors import DigestMismatchError
from ztensor.io.reading.component import digest_of as digest_in
from ztensor.io.reading.overlaps import SharedRuns
from ztensor.io.reading.portable import portable_chunks, portable_object, stored_object
from ztensor.io.source.sink import FileSink
from ztensor.io.writing.blob import Blob, BlobOptions, Compression, as_of, write_component
from ztensor.spec.digest import Algorithm, Digest, digest_of, parse_digest, require_match
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.layout import known_length
from ztensor.spec.layout.elements import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.objects import Objects
    from ztensor.io.source.base import Sink, Source
    from ztensor.spec.model.manifest import Component, TensorObject
    from ztensor.threads.pool import Pool

    Progress = Callable[[int], None]
    Chunks = Callable[[FileObjects, str, str], Iterator[memoryview]]


class Copier:
    """Copies components into one file; what shared its bytes there shares them here.

    Args:
        sink: where bytes go.
        options: how an object is stored that does not stay as it is in its file.
        crew: threads that compress and hash.

    Attributes:
        chunks: gives the decoded bytes of a component. A caller that copies many objects may have
            them decoded before they are asked for.
    """

    def __init__(self, sink: Sink, options: BlobOptions, crew: Pool) -> None:
        self._sink, self._options, self._crew = sink, options, crew
        self._form = options.form
        # By source, offset and length: where stored bytes are now. With a digest and an encoding:
        # the text of the digest that they were held to.
        self._copied: dict[tuple[Source, int, int], int] = {}
        self._checked: dict[tuple[object, ...], str | None] = {}
        self._recoded: dict[tuple[object, ...], tuple[Component, set[Digest]]] = {}
        self._overlaps: dict[Source, SharedRuns] = {}
        self._narrowed: set[FileObjects] = set()
        self.chunks: Chunks = functools.partial(portable_chunks, form=options.form)

    def expect(self, objects: Iterable[tuple[Objects, str]]) -> None:
        """Say what will be copied, so that blobs which overlap are copied once, where they may.

        Args:
            objects: where each is, and its name there; of one file only once.
        """
        if self._form.is_exact:
            return
        blobs: dict[Source, list[tuple[int, int]]] = {}
        for where, name in objects:
            home = where.part(name)
            blobs.setdefault(home.source, []).extend(
                (component.offset, component.length)
                for component in home.object(name).components.values()
            )
        self._overlaps.update({source: SharedRuns(found) for source, found in blobs.items()})

    def narrow(self, file: FileObjects) -> None:
        """Grant nobody more of a new file than of the one whose bytes it gets."""
        if isinstance(self._sink, FileSink) and file not in self._narrowed:
            self._narrowed.add(file)
            for rights in file.rights():
                self._sink.narrow(rights)

    def plan(self, file: FileObjects, name: str, *, is_decoded: bool) -> tuple[TensorObject, bool]:
        """Return an object as it will be, and whether its stored bytes can be copied.

        Args:
            file: where the object is.
            name: its name there.
            is_decoded: whether it is decoded even if its stored bytes mean the same here.

        Raises:
            ZTensorError: what `portable_object` raises.
        """
        stored = None if is_decoded else stored_object(file, name, self._form)
        return stored or portable_object(file, name, self._form), stored is not None

    def component(
        self,
        file: FileObjects,
        name: str,
        role: str,
        plan: TensorObject,
        options: BlobOptions | None,
        progress: Progress | None,
        *,
        is_stored: bool,
    ) -> Component:
        """Copy a component of an object.

        Args:
            file: where the object is.
            name: its name there.
            role: the component's role.
            plan: the object as it will be.
            options: how the component is stored; None for as it is in its file, where that can be.
            progress: called with the bytes of each piece that was written.
            is_stored: whether the stored bytes can be copied.
        """
        component = plan.components[role]
        is_raw = options is not None and options.compression is None
        if is_stored and (options is None or (is_raw and component.encoding == "raw")):
            return self._stored(file, name, role, component, progress)
        if options is None:
            options = self._kept(file, name, role)
        return self._decoded(file, name, role, plan, options, progress)

    def pieces(
        self, file: FileObjects, name: str, role: str, progress: Progress | None
    ) -> Callable[[], Iterator[memoryview]]:
        """Return what gives the decoded bytes of a component, as often as it is called."""
        chunks = self.chunks
        reported = 0

        def pieces() -> Iterator[memoryview]:
            nonlocal chunks, reported
            given, chunks = chunks, functools.partial(portable_chunks, form=self._form)
            done = 0
            for chunk in given(file, name, role):
                yield chunk
                done += chunk.nbytes
                if done > reported and progress is not None:
                    progress(done - reported)
                reported = max(reported, done)

        return pieces

    # --- Decoded anew -----------------------------------------------------------------------

    def _kept(self, file: FileObjects, name: str, role: str) -> BlobOptions:
        """Return how a component is stored that is decoded to be copied: as it was, if it can."""
        there = file.object(name).components[role].encoding
        called = self._form.encodings.get(there, there)
        if file.format != "zt" or not file.fetching.is_common(there) or called not in ENCODINGS:
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
        # All that the written bytes turn on, and whether they can be written.
        read_as = there._replace(digest=None, extra=None)
        length = known_length(file.object(name), role)
        key = file.source, read_as, length, component.dtype, options.compression
        digest = digest_in(there)
        if key in self._recoded:
            placed, checked = self._recoded[key]
            if digest is not None and digest.known is not None and digest not in checked:
                for _ in file.decoded_chunks(name, role):  # which holds them to it
                    pass
        else:
            is_same = component.dtype == there.dtype  # indices may become wider
            placed = write_component(
                self._sink,
                plan,
                role,
                self.pieces(file, name, role, progress),
                length if is_same else None,
                options,
                self._crew,
            )
            checked = set()
            has_place = getattr(file.stored(there).encoding(), "has_place", False)
            # Another format's may have none.
            if has_place or file.fetching.is_common(there.encoding):
                self._recoded[key] = placed, checked
        if digest is not None:
            checked.add(digest)
        return as_of(placed, component)

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
        if component.digest_covers_decoded and component.encoding != "raw":
            self._copy(file, component, None, progress)
            text = None
        else:
            text = self._copy(file, component, algorithm, progress)
        # What other objects say of the same bytes is no check of this one's digest.
        key = *place, digest, component.encoding
        if key not in self._checked:
            self._checked[key] = self._require(file, name, role, component, algorithm, text)
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

    def _require(
        self,
        file: FileObjects,
        name: str,
        role: str,
        component: Component,
        algorithm: Algorithm | None,
        found: str | None,
    ) -> str | None:
        """Hold copied bytes to their digest, and return the one they have in the new file.

        Args:
            file: where the object is.
            name: its name there.
            role: the component's role.
            component: as it is there.
            algorithm: of the digest there, or of the one it gets; None if it is unknown or none.
            found: the digest of the stored bytes, where it was computed.

        Raises:
            DigestMismatchError: they do not match.
        """
        if algorithm is None:
            return component.digest
        if component.digest_covers_decoded and component.encoding != "raw":
            if not file.fetching.is_common(component.encoding):
                return component.digest
            found = digest_of(algorithm, file.decoded_chunks(name, role))  # which checks it
            return component.digest or found
        if found is None:
            found = digest_of(algorithm, file.stored(component).stored().pieces(BLOCK_BYTES))
        digest = digest_in(component)
        if digest is None:
            return found
        try:
            require_match(digest, parse_digest(found).expected)
        except DigestMismatchError:
            if not component.digest_may_cover_decoded or component.encoding == "raw":
                raise
            for _ in file.decoded_chunks(name, role):  # raises where it covers neither
                pass
            return found
        return component.digest
