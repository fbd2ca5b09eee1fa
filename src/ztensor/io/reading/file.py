"""The objects of one file: found by name, every check done, given as arrays, tensors or pieces.

For every object: are its types known, is each component what it should be (`component.py` decides
in which order that is looked at), do the parts make the layout. What the manifest alone shows was
checked when the file was opened.
"""

from __future__ import annotations

import bisect
import contextlib
import operator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    LayoutError,
    LimitError,
    ObjectNotFoundError,
    Reason,
    UnsupportedError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.guard import foreign_bytes
from ztensor.io.reading.component import Fetching
from ztensor.io.reading.manifests import frame_in, manifest_in, may_be_ours
from ztensor.io.reading.places import Place, Places, place_of
from ztensor.io.source.base import Range, Source
from ztensor.io.source.local import FileSource
from ztensor.io.source.table import opened_by
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.locks import cached_property
from ztensor.spec.container.framing import Frame
from ztensor.spec.digest import ALGORITHMS, Sum
from ztensor.spec.encoding import ENCODINGS, Encoding
from ztensor.spec.layout import LAYOUTS, View, known_entries, known_length, roles_in_order
from ztensor.spec.layout.base import Array
from ztensor.spec.layout.elements import (
    Blocks,
    checked_bools,
    is_copy,
    require_known,
    typed_array,
    whole_elements,
)
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import Component, Manifest, TensorObject
from ztensor.spec.model.objects import LaterObjects, TableObjects
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ztensor.io.losses import Unrepresented
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.source.ahead import AheadSource
    from ztensor.io.source.rights import Rights
    from ztensor.io.tensor import Tensor

_MOST_PLACES = 1 << 16  # that are remembered: more are looked up anew
# All places are found together once so many were asked for, and this part of all.
_FEW_PLACES, _SHARE = 16, 64
_MOST_FOUND = _MOST_PLACES // _SHARE
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


class FileObjects(Fetching):
    """The objects of one file; see `Objects` for what it has in common with several files'.

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
        rights: gives the rights of other files that components lie in.
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
        rights: Callable[[], Iterable[Rights | None]] = tuple,
        verify: bool | None = None,
        limits: Limits = DEFAULT_LIMITS,
        reopen: Callable[[Any], FileObjects] | None = None,
    ) -> None:
        self.source, self.bringing, self._ahead = source, ahead or source, ahead
        self.manifest, self.frame, self.format, self.encodings = manifest, frame, format, encodings
        self.version = manifest.version
        self.verify, self.limits = verify, limits
        self.checked = set()
        self.sums = [Sum(*one) for one in sums] if sums else []
        self.faults = faults
        self._account, self._rights, self._reopen = account, rights, reopen
        self._places: dict[str, Place | None] = {}
        self.is_closed = False

    # --- The file ---------------------------------------------------------------------------

    manifest_in = staticmethod(manifest_in)
    frame_in = staticmethod(frame_in)
    may_be_ours = staticmethod(may_be_ours)

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

    def located(self, name: str | None, role: str | None = None) -> foreign_bytes:
        """Return a context in which an error of ours is told file, object and component."""
        is_ours = self.format == "zt"
        return foreign_bytes("the object", self.name, name, role, is_ours=is_ours)

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
        self._forget()
        self.bringing.close()

    def _forget(self) -> None:
        """Drop what slices kept."""
        for kept in ("found_runs", "decoded_runs"):
            vars(self).pop(kept, None)

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
        """Check every stored byte; see `Objects`."""
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
        """Return the objects changed, over the same open file."""
        return change(self, list(self.names))

    def changed(self, encodings: Mapping[str, Encoding] | None = None, **changes: Any) -> Self:
        """Return other objects, or other attributes, over the same open file.

        Args:
            encodings: how components are stored; as those of this by default.
            changes: `objects` and `attributes`, as `Manifest` has them.
        """
        part = object.__new__(type(self))
        vars(part).update(vars(self), _places={}, manifest=self.manifest._replace(**changes))
        if encodings is not None:
            part.encodings, part.checked = encodings, set()
            part._forget()
        return part

    # --- Objects ----------------------------------------------------------------------------

    def object(self, name: str) -> TensorObject:
        """Return what the manifest, or another format where the object lies, says of it.

        Raises:
            ClosedError: the file was given back.
            ObjectNotFoundError: no object of that name.
            ArgumentTypeError: a name is text.
            FormatError: it is damaged there.
            SourceError: it could not be read there.
        """
        self.require_open()
        with foreign_bytes("the object", self.name):
            found = self.manifest.objects.get(name) if isinstance(name, str) else None
        if found is None:
            raise ObjectNotFoundError.named(name, self.names, self.name)
        return found

    def arrays_at_once(self, names: Iterable[str]) -> dict[str, Array]:
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
        tensor_object = self.object(name)
        found = tensor_object.components.get(role)
        if found is None:
            error = ObjectNotFoundError.named(
                role, tensor_object.components, self.name, "component"
            )
            error.object_name = name
            error.hint = f"it has {', '.join(map(describe, tensor_object.components))}"
            raise error
        parts = self.source.parts
        start, source = parts[bisect.bisect_right(parts, found.offset, key=_start) - 1]
        return Location(source.path, found.offset - start, found.length)

    def require_dense(self, name: str) -> TensorObject:
        """Return a dense object that NumPy can hold.

        Raises:
            ArgumentTypeError: it is of another layout.
            LimitError: it has more dimensions than the caps allow.
            ObjectNotFoundError: no object of that name.
        """
        tensor_object = self.object(name)
        if tensor_object.format != "dense":
            raise ArgumentTypeError(
                "the object is not dense; read(name) gives its components, "
                "read(name).to_dense() the array where the layout has one",
                file=self.name,
                object_name=name,
                found=f"format {describe(tensor_object.format)}",
            )
        if len(tensor_object.shape) > self.limits.rank:
            raise LimitError(
                "the object has more dimensions than Limits.rank; read(name) gives its components",
                reason=Reason.LIMIT_RANK,
                file=self.name,
                object_name=name,
                expected=f"at most {self.limits.rank}",
                found=str(len(tensor_object.shape)),
            )
        return tensor_object

    def require_transparent(self, name: str, tensor_object: TensorObject) -> None:
        """Raise where the layout is unknown, and only it tells what the stored bytes are.

        Raises:
            UnsupportedError: so it is.
        """
        if not tensor_object.is_opaque:
            return
        with self.located(name):
            try:
                LAYOUTS[tensor_object.format]
            except KeyError:
                raise UnsupportedError(
                    "the layout is unknown, and only it tells what the stored bytes are",
                    reason=Reason.UNKNOWN_LAYOUT,
                    expected=f"one of {', '.join(LAYOUTS)}",
                    found=describe(tensor_object.format),
                ) from None

    # --- Their elements ---------------------------------------------------------------------

    def plain(self, name: str) -> Place | None:
        """Return the place of a plain tensor; None for other objects, and for other names."""
        try:
            return self._places[name]
        except KeyError:
            pass
        except TypeError:  # not even a name
            return None
        if self.is_closed:
            self.require_open()
        known, objects = self._places, self.manifest.objects
        is_table = len(known) >= _FEW_PLACES and isinstance(objects, TableObjects)
        if is_table and len(known) == max(_FEW_PLACES, len(objects) // _SHARE) <= _MOST_FOUND:
            known |= self.places().each()  # a fifth of the time that each by itself takes
            if name in known:
                return known[name]
        if len(known) >= _MOST_PLACES:
            known.clear()
        found = known[name] = place_of(objects.get(name), self.limits.rank)
        return found

    def places(self) -> Places:
        """Return the places of all plain tensors, encoded ones too."""
        return Places.of(self.manifest.objects, self.limits.rank)

    def view(self, name: str) -> Array | None:
        """Return a plain tensor as a view of the map; None where that takes more.

        With `verify=True` its digest is checked, once.

        Raises:
            DigestMismatchError: it does not match.
            SourceError: the file is not what it was.
        """
        place = self.plain(name)
        if place is None or place.encoding != "raw":
            return None
        whole = self.source.view()
        if whole is None:
            return None
        try:
            self.source.require_unchanged()
            if self.verify is True:
                with self.located(name, "data"):
                    self.stored(self.object(name).components["data"]).check()
        except ClosedError:  # which is so whatever is asked for
            raise
        except ZTensorError as error:
            error.locate(file=self.name, object_name=name)
            raise
        return place.array(whole, place.offset)

    def value(self, name: str, *, copy: bool) -> Any:
        """Return a dense object as an array, one of another layout as a `Tensor`."""
        array = None if copy else self.view(name)
        if array is not None:
            return array
        if self.object(name).format == "dense":
            return self.array(name, copy=copy)
        return self.tensor(name, copy=copy)

    def array(self, name: str, *, copy: bool) -> Array:
        """Return a dense object as an array of its shape; see `Reader.read_numpy`."""
        place, array = self.plain(name), None if copy else self.view(name)
        if array is None and place is not None:
            with self.located(name, "data"):
                stored = self.stored(self.object(name).components["data"])
                array = place.array(stored.decoded(place.nbytes).data, 0)
        if array is not None:
            return array
        tensor_object = self.require_dense(name)
        with self.located(name):
            array = self.component(name, tensor_object, "data", copy=copy)
            if array.shape == tensor_object.shape:
                return array
            return self.as_tensor(tensor_object, {"data": array}).numpy()

    def require_copied(self, name: str) -> None:
        """Check the digests of an object of which views were read, and whose bytes are copied then.

        Nothing is checked twice: what was decoded, or was read into new memory, was checked
        meanwhile, and so are views where `verify` is True. Where it is False nothing is checked.

        Raises:
            DigestMismatchError: a digest does not match.
            SourceError: the bytes could not be read.
        """
        if self.verify is not None or self.source.view() is None:
            return
        for role, component in self.object(name).components.items():
            if component.encoding == "raw":
                with self.located(name, role):
                    self.stored(component).check()

    def tensor(self, name: str, *, copy: bool) -> Tensor:
        """Return an object of any layout with all its components; see `Reader.read`."""
        tensor_object = self.object(name)
        self.require_transparent(name, tensor_object)
        layout = LAYOUTS.get(tensor_object.format)
        arrays: dict[str, Array] = {}
        entries = known_entries(tensor_object)
        with self.located(name):
            for role in roles_in_order(tensor_object):
                array = self.component(name, tensor_object, role, entries, copy=copy)
                arrays[role] = array
                if layout is not None and entries is None:
                    last = int(array[-1]) if array.size and array.dtype.kind in "iu" else 0
                    entries = layout.entries_told(role, array.size, last)
            if layout is not None and tensor_object.format == "dense":
                # Flat where NumPy has no such shape.
                with contextlib.suppress(LayoutError, LimitError):
                    arrays["data"] = layout.to_dense(View(tensor_object.shape, arrays, {}))
            tensor = self.as_tensor(
                tensor_object, {role: arrays[role] for role in tensor_object.components}
            )
            tensor.require_valid()
            if tensor_object.entries_once:
                from ztensor.spec.layout.sparse import require_entries_once

                require_entries_once(tensor_object.format, View(tensor.shape, arrays, {}))
        return tensor

    def as_tensor(self, tensor_object: TensorObject, arrays: dict[str, Array]) -> Tensor:
        """Return an object as a `Tensor` over components that were read and checked."""
        from ztensor.io.tensor import tensor_of  # most objects are read as arrays

        layout = LAYOUTS.get(tensor_object.format)
        main = None if layout is None else tensor_object.components.get(layout.main_role)
        declared = main.type if main is not None and main.logical is None else None
        view = View(tensor_object.shape, arrays, with_dicts(tensor_object.attributes or {}))
        return tensor_of(view, tensor_object.format, declared)

    def component(
        self,
        name: str,
        tensor_object: TensorObject,
        role: str,
        entries: int | None = None,
        *,
        copy: bool,
    ) -> Array:
        """Return a component as a flat array of its elements, every check done.

        Args:
            name: the object's name.
            tensor_object: the object, or one made of it.
            role: the component's.
            entries: how many values a sparse object has, as far as other components told.
            copy: True gives no view of the file.
        """
        component = tensor_object.components[role]
        with self.located(name, role):
            layout = LAYOUTS.get(tensor_object.format)
            is_unknown = component.is_exact and component.type is not None
            if is_unknown and component.logical is None and layout is None:
                component = component._replace(dtype="u8", type=None)  # plain bytes
            require_known(component)
            stored = self.stored(component)
            stored.encoding()  # known?
            expected = component.known_decoded_length
            if layout is not None and component.encoding != "raw":
                expected = layout.expected_length(tensor_object, role, entries)
            view = None if copy else stored.view()
            array = typed_array(component, stored.decoded(expected) if view is None else view)
            if view is not None and self.verify is None and is_copy(array, view):
                stored.check()
            packed = component.logical
            is_main = layout is not None and role == layout.main_role
            if not is_main or packed is None or packed.elements_per_storage == 1:
                return array
            if tensor_object.format == "dense":
                entries = element_count(tensor_object.shape)
            return array[:entries]  # the rest is padding

    # --- Their bytes ------------------------------------------------------------------------

    def known_length(self, name: str, role: str) -> int | None:
        """Return how many bytes a component decodes to, as far as manifest and layout tell it."""
        return known_length(self.object(name), role)

    def decoded_length(self, name: str, role: str) -> int:
        """Return how many bytes a component decodes to; decodes where nothing tells."""
        known = self.known_length(name, role)
        if known is None:
            with self.located(name, role):
                known = self.stored(self.object(name).components[role]).decoded_length()
        return known

    def decoded_chunks(self, name: str, role: str = "data") -> Iterator[memoryview]:
        """Yield a component's decoded bytes in order; see `Reader.decoded_chunks`."""
        self.location(name, role)
        tensor_object = self.object(name)
        self.require_transparent(name, tensor_object)
        component = tensor_object.components[role]
        expected = self.decoded_length(name, role)
        is_looked_at = component.has_free_bools or component.has_checked_bools
        with self.located(name, role):
            chunks = self.stored(component).checked_pieces(expected)
            if component.byte_order == "little" and not is_looked_at:
                yield from chunks
                return
            for piece in whole_elements(component, chunks):
                yield from Blocks.of(typed_array(component, piece))

    def elements(self, name: str, role: str = "data") -> Iterator[Array]:
        """Yield a component's decoded elements in flat arrays, each valid until the next.

        Raises:
            ZTensorError: what `decoded_chunks` raises.
            LayoutError: the bytes end inside an element.
        """
        component = self.object(name).components[role]
        component = component._replace(byte_order="little", encoding="raw")
        for piece in whole_elements(component, self.decoded_chunks(name, role)):
            yield typed_array(component, piece)

    def strict(self, name: str, role: str, chunks: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield decoded bytes of a component for a file in which bools are 0 or 1.

        Raises:
            FormatError: a bool is neither.
        """
        is_bool = self.object(name).components[role].dtype == "bool"
        with self.located(name, role):
            yield from checked_bools(chunks) if is_bool else chunks

    @cached_property
    def _sums(self) -> list[Sum]:
        return sorted(self.sums, key=_offset)

    def sum_over(self, component: Component) -> Sum | None:
        """Return the format's own checksum over all of a component's stored bytes, or None."""
        number = bisect.bisect_right(self._sums, component.offset, key=_offset) - 1
        found = self._sums[number] if number >= 0 else None
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
