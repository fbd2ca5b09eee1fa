"""Copy components of other files, stored or decoded."""

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
        file: the file that has it.
        name: the name of its object there.
        role: its role.
        plan: the manifest entry of the copied object.
        progress: called with the bytes of each piece that was written.
    """

    file: FileObjects
    name: str
    role: str
    plan: TensorObject
    progress: Progress | None

    @property
    def component(self) -> Component:
        """Return the copied component, without an offset."""
        return self.plan.components[self.role]

    @property
    def there(self) -> Component:
        """Return the component of the other file."""
        return self.file.object(self.name).components[self.role]


class Copier:
    """Copies components into one file; components that share bytes there share them here.

    Args:
        sink: the sink.
        options: how objects are stored that cannot be copied as they are.
        write: writes decoded bytes, given their object, role, pieces, length and options.
        is_decoded: whether all components are decoded, even if the version could keep them.

    Attributes:
        chunks: returns the decoded chunks of a component. A caller that copies many objects may
            set a function that decodes ahead.
    """

    def __init__(
        self, sink: Sink, options: BlobOptions, write: Write, *, is_decoded: bool = False
    ) -> None:
        self._sink, self._options, self._write = sink, options, write
        self._portable, self._is_decoded = Portable(options.form), is_decoded
        # Offset of copied bytes, by source, offset and length; with a digest and an encoding also
        # the text of the digest that they were checked against.
        self._copied: dict[tuple[Source, int, int], int] = {}
        self._checked: dict[tuple[object, ...], str | None] = {}
        self._recoded: dict[tuple[object, ...], tuple[Component, set[Digest]]] = {}
        self._overlaps: dict[Source, SharedRuns] = {}
        self._narrowed: set[FileObjects] = set()
        self.chunks: Chunks = self._portable.chunks

    def expect(self, objects: Iterable[tuple[Objects, str]]) -> None:
        """Announce the objects to copy, so that overlapping blobs are copied once, if allowed.

        Args:
            objects: pairs of the other file's objects and a name; call it once for each file.
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
        self._overlaps.update({source: SharedRuns(extents) for source, extents in blobs.items()})

    def plan(self, file: FileObjects, name: str) -> tuple[TensorObject, bool]:
        """Return the manifest entry of a copy, and whether the stored bytes can be copied.

        This limits the rights of the new file by the rights of the other one.

        Args:
            file: the file that has the object.
            name: its name there.

        Raises:
            ZTensorError: as `Portable.decoded`.
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
            file: the file that has the object.
            name: its name there.
            plan: the result of `plan`.
            options: how they are stored; None keeps how they are stored there, if possible.
            progress: called with the bytes of each piece that was written.
            shards: other files of the new one; components in these stay there.
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
        """Return how to store a component that is decoded: as it was stored, if possible."""
        called = self._portable.form.encodings.get(there.encoding, there.encoding)
        is_common = file.format == "zt" and file.is_common(there.encoding)
        if self._is_decoded or not is_common or called not in ENCODINGS:
            return self._options
        compression = None if called == "raw" else Compression(called)
        return self._options._replace(compression=compression)

    def _decoded(self, part: _Part, options: BlobOptions) -> Component:
        """Write a component's decoded bytes, unless they were written for another component."""
        component, there, file = part.component, part.there, part.file
        stored = file.stored(there)
        # All that the written bytes depend on.
        read_as = there._replace(digest=None, extra=None)
        length = known_length(file.object(part.name), part.role)
        key = file.source, read_as, length, component.dtype, options.compression
        digest = stored.digest
        if key in self._recoded:
            placed, checked = self._recoded[key]
            if digest is not None and digest.known is not None and digest not in checked:
                for _ in file.decoded_chunks(part.name, part.role):  # checks the digest
                    pass
        else:
            is_same = component.dtype == there.dtype  # indices may become wider
            pieces, length = self._pieces(part), length if is_same else None
            placed, checked = self._write(part.plan, part.role, pieces, length, options), set()
            # In other formats two components may differ with the same place.
            if file.is_common(there.encoding) or getattr(stored.encoding(), "has_place", False):
                self._recoded[key] = placed, checked
        if digest is not None:
            checked.add(digest)
        return as_of(placed, component)

    def _pieces(self, part: _Part) -> Pieces:
        """Return a function that yields the decoded bytes of a component each time it is called."""
        chunks = self.chunks
        reported = 0

        def pieces() -> Iterator[memoryview]:
            nonlocal chunks, reported
            current, chunks = chunks, self._portable.chunks
            done = 0
            for chunk in current(part.file, part.name, part.role):
                yield chunk
                done += chunk.nbytes
                if done > reported and part.progress is not None:
                    part.progress(done - reported)
                reported = max(reported, done)

        return pieces

    # --- As stored --------------------------------------------------------------------------

    def _stored(self, part: _Part) -> Component:
        """Write a component's stored bytes, unless they were written; check its own digest.

        Raises:
            DigestMismatchError: the bytes do not match it.
        """
        component, file = part.component, part.file
        digest = digest_in(component)
        algorithm = self._options.algorithm if digest is None else digest.known
        is_of_decoded = component.is_exact and component.encoding != "raw"
        blobs = self._options._replace(algorithm=None if is_of_decoded else algorithm)
        computed = self._copy(file, component, blobs, part.progress)
        place = file.source, component.offset, component.length
        # Other objects may have the same bytes, and other digests.
        key = *place, digest, component.encoding
        if key not in self._checked:
            text = component.digest
            if algorithm is None or (is_of_decoded and not file.is_common(component.encoding)):
                pass  # the digest cannot be checked
            elif is_of_decoded:
                computed = algorithm.of(file.decoded_chunks(part.name, part.role))  # checks it, too
                text = text or computed
            else:
                computed = computed or algorithm.of(
                    file.stored(component).stored().pieces(BLOCK_BYTES)
                )
                if digest is None:
                    text = computed
                elif (actual := parse_digest(computed).expected) != digest.expected:
                    if not component.digest_may_cover_decoded or component.encoding == "raw":
                        require_match(digest, actual)
                    for _ in file.decoded_chunks(part.name, part.role):
                        pass  # raises if the digest does not match these either
                    text = computed
            self._checked[key] = text
        return component._replace(offset=self._copied[place], digest=self._checked[key])

    def _copy(
        self,
        file: FileObjects,
        component: Component,
        options: BlobOptions,
        progress: Progress | None,
    ) -> str | None:
        """Copy stored bytes, unless they were copied; return their digest, if computed."""
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
        file.stored(component).stored()  # raises if the file was changed meanwhile
        placed = blob.finish(component)
        self._copied[place] = placed.offset
        return placed.digest
