"""The objects of one file: found by name, every check done, given as arrays, tensors or pieces.

For every object: are its types known, is each component what it should be (`component.py` decides
in which order that is looked at), do the parts make the layout. What the manifest alone shows was
checked when the file was opened.
"""

from __future__ import annotations

import bisect
import operator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ztensor.errors import (
    ArgumentTypeError,
    LayoutError,
    LimitError,
    ObjectNotFoundError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.guard import foreign_bytes
from ztensor.io.reading.opened import OpenedFile
from ztensor.io.reading.places import Places
from ztensor.locks import cached_property
from ztensor.spec.digest import Sum
from ztensor.spec.encoding import Encoding
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
from ztensor.spec.model.manifest import Component, TensorObject
from ztensor.spec.model.objects import LaterObjects
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.tensor import Tensor


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


class FileObjects(OpenedFile):
    """The objects of one file; see `Objects` for what it has in common with several files'."""

    def close(self) -> None:
        """Give back the file; arrays that are views of it stay valid. May be called again."""
        vars(self).pop("places", None)
        super().close()

    def check(self, names: Iterable[str] | None = None, **how: Any) -> VerifyReport:
        """Check every stored byte; see `Objects`."""
        from ztensor.io.reading.verify import verify_file

        self.require_open()
        return verify_file(self, names, **how)

    def token(self, name: str) -> tuple[object, ...]:
        """Return what tells an object from others, in any file.

        Digests do where they are strong. A crc32c is not: one replacement in four thousand million
        has the same.
        """
        tensor_object = self.object(name)
        components = sorted(tensor_object.components.items())
        parts: list[object] = []
        for role, one in components:
            how = one.dtype, one.type, one.encoding, one.byte_order, one.nonzero_is_true
            parts.append((role, *how, one.digest))
        if not all((one.digest or "").startswith("sha256:") for _, one in components):
            parts += [(one.offset, one.length) for _, one in components]
            parts.append(self.identity())
            for _, one in components:  # those of ONNX may be in files of their own
                beside = getattr(self.encodings.get(one.encoding), "identity", None)
                parts += [] if beside is None else [beside()]
        meaning = tensor_object.shape, tensor_object.format, repr(tensor_object.attributes)
        return *meaning, *parts

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
        return self.with_objects({name: self.object(name) for name in names})

    def mapped(self, change: Callable[[FileObjects, Sequence[str]], FileObjects]) -> FileObjects:
        """Return the objects changed, over the same open file."""
        return change(self, list(self.names))

    def with_objects(
        self,
        objects: Mapping[str, TensorObject],
        encodings: Mapping[str, Encoding] | None = None,
    ) -> Self:
        """Return other objects over the same open file.

        Args:
            objects: what is there by name.
            encodings: how their components are stored; as those of this by default.
        """
        part = self._with(objects=objects)
        if encodings is not None:
            part.encodings, part.checked = encodings, set()
            vars(part).pop("runs", None)
        return part

    def with_attributes(self, attributes: Mapping[str, object]) -> Self:
        """Return the same objects with other attributes of the file, over the same open file."""
        return self._with(attributes=attributes)

    def _with(self, **changes: Any) -> Self:
        part = object.__new__(type(self))
        vars(part).update(vars(self))
        vars(part).pop("places", None)
        part.manifest = self.manifest._replace(**changes)
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

    def require_meaning(self, name: str) -> TensorObject:
        """Return an object; raise where only the format it is from can tell what its bytes are.

        Raises:
            ObjectNotFoundError: no object of that name.
            UnsupportedError: layout, type or encoding is unknown.
        """
        tensor_object = self.object(name)
        self._require_transparent(name, tensor_object)
        if self.format != "zt":  # our own words are kept, also those of later releases
            for role, component in tensor_object.components.items():
                with self.located(name, role):
                    require_known(component)
                    self.stored(component).encoding()
        return tensor_object

    def _require_transparent(self, name: str, tensor_object: TensorObject) -> None:
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

    @cached_property
    def places(self) -> Places:
        """Where the plain tensors are; a `ClosedError` once the file was given back."""
        self.require_open()
        return Places(self)

    def value(self, name: str, *, copy: bool) -> Any:
        """Return a dense object as an array, one of another layout as a `Tensor`."""
        array = None if copy else self.places.view(name)
        if array is not None:
            return array
        if self.object(name).format == "dense":
            return self.array(name, copy=copy)
        return self.tensor(name, copy=copy)

    def array(self, name: str, *, copy: bool) -> Array:
        """Return a dense object as an array of its shape; see `Reader.read_numpy`."""
        plain = self.places.copied(name) if copy else self.places.view(name)
        if plain is not None:
            return plain
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
                    self.stored(component).check(once=True)

    def tensor(self, name: str, *, copy: bool) -> Tensor:
        """Return an object of any layout with all its components; see `Reader.read`."""
        tensor_object = self.object(name)
        self._require_transparent(name, tensor_object)
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
                with suppress(LayoutError, LimitError):  # flat where NumPy has no such shape
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
            data: memoryview | Array
            if component.encoding == "raw":
                data = stored.raw(copy=copy)
            else:
                expected = component.known_decoded_length
                if layout is not None:
                    expected = layout.expected_length(tensor_object, role, entries)
                data = stored.decoded(expected)
            array = typed_array(component, data)
            if isinstance(data, memoryview) and self.verify is None and is_copy(array, data):
                stored.check(once=True)
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
        self._require_transparent(name, tensor_object)
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
