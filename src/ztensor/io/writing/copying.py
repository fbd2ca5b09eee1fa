"""Components of other files on their way into this one, as they are stored or decoded anew."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ztensor.errors import DigestMismatchError
from ztensor.io.reading.component import digest_of as digest_in
from ztensor.io.reading.portable import portable_chunks, portable_object, stored_object
from ztensor.io.source.sink import FileSink
from ztensor.io.writing.blob import Blob, BlobOptions, as_of, write_component
from ztensor.io.writing.compressing import Compression
from ztensor.io.writing.overlaps import Overlaps
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

# Pieces up to here are compressed by this thread: others decode the next ones meanwhile.
_ALONE_BYTES = 4 << 20


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
        self._sink = sink
        self._options = options
        self._form = options.form
        self._crew = crew
        # By what was copied: where it is now, and the digests that were checked.
        self._copied: dict[
            tuple[Source, int, int],
            tuple[int, dict[tuple[Digest | None, str], str | None]],
        ] = {}
        self._overlaps: dict[Source, Overlaps] = {}
        self._narrowed: set[FileObjects] = set()
        self._recoded: dict[tuple[object, ...], tuple[Component, set[Digest]]] = {}
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
        self._overlaps.update({source: Overlaps(found) for source, found in blobs.items()})

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
        is_as_asked = options is None or (
            options.compression is None and plan.components[role].encoding == "raw"
        )
        if is_stored and is_as_asked:
            return self._stored(file, name, role, plan.components[role], progress)
        if options is None:
            options = self._kept(file, name, role)
        return self._decoded(file, name, role, plan, options, progress)

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
        is_known = digest is not None and digest.known is not None
        if key in self._recoded:
            placed, checked = self._recoded[key]
            if is_known and digest not in checked:  # no object has asked yet whether it is right
                for _ in file.decoded_chunks(name, role):
                    pass
        else:
            is_same = component.dtype == there.dtype  # indices may become wider
            placed = write_component(
                self._sink,
                plan,
                role,
                self.pieces(file, name, role, progress),
                known_length(plan, role) if is_same else None,
                options,
                self._crew,
                alone_bytes=_ALONE_BYTES,
            )
            checked = set()
            has_place = getattr(file.stored(there).encoding(), "has_place", False)
            # Another format's may have none.
            if has_place or file.fetching.is_common(there.encoding):
                self._recoded[key] = placed, checked
        if digest is not None:
            checked.add(digest)
        return as_of(placed, component)

    def pieces(
        self, file: FileObjects, name: str, role: str, progress: Progress | None
    ) -> Callable[[], Iterator[memoryview]]:
        """Return what gives the decoded bytes of a component, as often as it is called."""
        again = functools.partial(portable_chunks, form=self._form)
        return _Told(self.chunks, again, progress, file, name, role)

    def _stored(
        self,
        file: FileObjects,
        name: str,
        role: str,
        component: Component,
        progress: Progress | None,
    ) -> Component:
        """Write a component's stored bytes, checked, or find them written for another."""
        key = (file.source, component.offset, component.length)
        digest = digest_in(component)
        algorithm = self._options.algorithm if digest is None else digest.known
        if component.digest_covers_decoded and component.encoding != "raw":
            return self._stored_decoded(file, name, role, component, algorithm, progress)
        found: str | None = None
        if key not in self._copied:
            overlaps = self._overlaps.get(file.source)
            run = overlaps and overlaps.around(component.offset, component.length)
            if run:
                start = self._copy_run(file, component, run, progress)
                self._copied[key] = start + component.offset - run[0], {}
            else:
                placed = self._copy_blob(file, component, algorithm, progress)
                found = placed.digest
                self._copied[key] = placed.offset, {}
        offset, checked = self._copied[key]
        stated = digest, component.encoding
        if stated not in checked:  # what others say of the same bytes is no check of this
            if found is None and algorithm is not None:
                found = digest_of(algorithm, file.stored(component).stored().pieces(BLOCK_BYTES))
            text = component.digest or found
            if digest is not None and found is not None:
                try:
                    require_match(digest, parse_digest(found).expected)
                except DigestMismatchError:
                    if not component.digest_may_cover_decoded or component.encoding == "raw":
                        raise
                    for _ in file.decoded_chunks(name, role):  # raises where it covers neither
                        pass
                    text = found
            checked[stated] = text
        return component._replace(offset=offset, digest=checked[stated])

    def _stored_decoded(
        self,
        file: FileObjects,
        name: str,
        role: str,
        component: Component,
        algorithm: Algorithm | None,
        progress: Progress | None,
    ) -> Component:
        """Write encoded bytes whose digest, or the one they get, is that of the decoded ones."""
        key = file.source, component.offset, component.length
        if key not in self._copied:
            self._copied[key] = self._copy_blob(file, component, None, progress).offset, {}
        offset, checked = self._copied[key]
        stated = digest_in(component), component.encoding
        if stated not in checked:
            text = component.digest
            if file.fetching.is_common(component.encoding) and algorithm is not None:
                chunks = file.decoded_chunks(name, role)  # which checks the digest there is
                text = digest_of(algorithm, chunks) if text is None else text
                for _ in chunks:
                    pass
            checked[stated] = text
        return component._replace(offset=offset, digest=checked[stated])

    def _copy_run(
        self,
        file: FileObjects,
        component: Component,
        run: tuple[int, int],
        progress: Progress | None,
    ) -> int:
        """Copy the run of overlapping blobs a component is in, once; return where it begins."""
        key = file.source, *run
        if key not in self._copied:
            whole = component._replace(offset=run[0], length=run[1], shard=None)
            self._copied[key] = self._copy_blob(file, whole, None, progress).offset, {}
        return self._copied[key][0]

    def _copy_blob(
        self,
        file: FileObjects,
        component: Component,
        algorithm: Algorithm | None,
        progress: Progress | None,
    ) -> Component:
        """Copy stored bytes, and return the component with its place and their digest."""
        blob = Blob(self._sink, self._options._replace(algorithm=algorithm))
        for piece in file.stored(component).stored().pieces(BLOCK_BYTES):
            blob.write(piece)
            if progress is not None:
                progress(piece.nbytes)
        file.stored(component).stored()  # raises where a program wrote into the file meanwhile
        return blob.finish(component)


class _Told:
    """The decoded bytes of a component, as often as they are asked for; each is told once.

    Args:
        chunks: gives them the first time.
        again: gives them later.
        progress: called with the bytes of each piece.
        what: file, name and role.
    """

    def __init__(
        self, chunks: Chunks, again: Chunks, progress: Progress | None, *what: Any
    ) -> None:
        self._chunks = chunks
        self._again = again
        self._progress = progress
        self._what = what
        self._told = 0

    def __call__(self) -> Iterator[memoryview]:
        chunks, self._chunks = self._chunks, self._again
        done = 0
        for chunk in chunks(*self._what):
            yield chunk
            done += chunk.nbytes
            if done > self._told and self._progress is not None:
                self._progress(done - self._told)
            self._told = max(self._told, done)
