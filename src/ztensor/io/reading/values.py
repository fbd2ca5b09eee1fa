"""Turn the objects of one file into arrays, tensors and chunks, with every check done.

Three checks per object: its types are known, each component is right (`component.py` has the
order), and the components satisfy the layout. The manifest was checked when the file was opened.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    LayoutError,
    LimitError,
    ObjectNotFoundError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.guard import foreign_bytes
from ztensor.io.reading.component import Fetching
from ztensor.io.reading.places import Place, Places, place_in, place_of
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
from ztensor.spec.model.objects import TableObjects
from ztensor.spec.wire.cbor import with_dicts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ztensor.io.tensor import Tensor

_MOST_PLACES = 1 << 16  # entries of the cache; it is emptied when full


class Values(Fetching):
    """The objects of one file as arrays, tensors and chunks.

    Attributes:
        manifest: the parsed manifest.
        format: the name of the container format.
        is_closed: whether the file was closed.
    """

    manifest: Manifest
    format: str
    is_closed: bool
    _places: dict[str, Place | None]
    _kinds: dict[int, Place]

    @property
    def name(self) -> str:
        """Return the path, or a description of bytes and file objects."""
        return self.source.name

    @property
    def names(self) -> Collection[str]:
        """Return the names of all objects, in the order of the file."""
        return self.manifest.objects.keys()

    def require_open(self) -> None:
        """Raise `ClosedError` if the file was closed."""
        if self.is_closed:
            raise ClosedError("the reader is closed; open the file again", file=self.name)

    def located(self, name: str | None, role: str | None = None) -> foreign_bytes:
        """Return a context that adds file, object and component to our errors."""
        is_ours = self.format == "zt"
        return foreign_bytes("the object", self.name, name, role, is_ours=is_ours)

    def object(self, name: str) -> TensorObject:
        """Return an object's entry of the manifest; some formats read it only now.

        Raises:
            ClosedError: the file was closed.
            ObjectNotFoundError: no object of that name.
            ArgumentTypeError: the name is not a string.
            FormatError: the entry is damaged.
            SourceError: the entry could not be read.
        """
        self.require_open()
        with foreign_bytes("the object", self.name):
            found = self.manifest.objects.get(name) if isinstance(name, str) else None
        if found is None:
            raise ObjectNotFoundError.named(name, self.names, self.name)
        return found

    def require_dense(self, name: str) -> TensorObject:
        """Return the entry of a dense object that NumPy can hold.

        Raises:
            ArgumentTypeError: the object has another layout.
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
        """Require a known layout for an object whose bytes only the layout explains.

        Raises:
            UnsupportedError: the layout is unknown.
        """
        if not tensor_object.is_opaque:
            return
        with self.located(name):
            try:
                LAYOUTS[tensor_object.format]
            except KeyError:
                raise UnsupportedError(
                    "unknown layout, and its bytes have no meaning without it",
                    reason=Reason.UNKNOWN_LAYOUT,
                    expected=f"one of {', '.join(LAYOUTS)}",
                    found=describe(tensor_object.format),
                ) from None

    def component_entry(self, name: str, role: str) -> Component:
        """Return a component's entry of the manifest.

        Raises:
            ObjectNotFoundError: no object of that name, or no such component.
        """
        components = self.object(name).components
        if role not in components:
            error = ObjectNotFoundError.named(role, components, self.name, "component")
            error.object_name = name
            error.hint = f"it has {', '.join(map(describe, components))}"
            raise error
        return components[role]

    # --- Arrays and tensors -------------------------------------------------------------------

    def native_place(self, name: str) -> Place | None:
        """Return the place of a native tensor; None for other objects and unknown names."""
        try:
            return self._places[name]
        except KeyError:
            pass
        except TypeError:  # not a string
            return None
        if self.is_closed:
            self.require_open()
        known, objects, most_rank = self._places, self.manifest.objects, self.limits.rank
        if len(known) >= _MOST_PLACES:
            known.clear()
        row = objects.row(name) if isinstance(objects, TableObjects) else None
        if row is None or not isinstance(objects, TableObjects):
            found = place_of(objects.get(name), most_rank)
        else:
            found = place_in(objects.table, row, self._kinds, most_rank)
        known[name] = found
        return found

    def places(self) -> Places:
        """Return the places of all native tensors, encoded ones included."""
        return Places.of(self.manifest.objects, self.limits.rank)

    def view(self, name: str) -> Array | None:
        """Return a native raw tensor as a view of the map; None for every other object.

        With `verify=True` its digest is compared, once.

        Raises:
            DigestMismatchError: the digest does not match.
            SourceError: the file has changed.
        """
        place = self.native_place(name)
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
        except ClosedError:  # does not depend on the object
            raise
        except ZTensorError as error:
            error.locate(file=self.name, object_name=name)
            raise
        return place.array(whole, place.offset)

    def value(self, name: str, *, copy: bool) -> Any:
        """Return a dense object as an array, any other as a `Tensor`."""
        array = None if copy else self.view(name)
        if array is not None:
            return array
        if self.object(name).format == "dense":
            return self.array(name, copy=copy)
        return self.tensor(name, copy=copy)

    def array(self, name: str, *, copy: bool) -> Array:
        """Return a dense object as an array of its shape; see `Reader.read_numpy`."""
        place, array = self.native_place(name), None if copy else self.view(name)
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
        """Compare the digests of an object whose views are about to be copied.

        Nothing is checked twice: decoded or copied bytes were checked when they were read, and
        views with `verify=True` when they were made. `verify=False` checks nothing.

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
                # The array stays flat if NumPy cannot hold the shape.
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
        """Return an object as a `Tensor` over its checked components."""
        from ztensor.io.tensor import tensor_of  # dense objects do not need it

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
        """Return a component as a flat array of its elements, with every check done.

        Args:
            name: the object's name.
            tensor_object: the object, or a slice of it.
            role: the component's role.
            entries: the number of stored values of a sparse object; None if not known yet.
            copy: True returns no view of the file.
        """
        component = tensor_object.components[role]
        with self.located(name, role):
            layout = LAYOUTS.get(tensor_object.format)
            is_unknown = component.is_exact and component.type is not None
            if is_unknown and component.logical is None and layout is None:
                component = component._replace(dtype="u8", type=None)  # uninterpreted bytes
            require_known(component)
            stored = self.stored(component)
            stored.encoding()  # raises if it is unknown
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

    # --- Decoded bytes ----------------------------------------------------------------------

    def known_length(self, name: str, role: str) -> int | None:
        """Return a component's decoded length; None if manifest and layout do not determine it."""
        return known_length(self.object(name), role)

    def decoded_length(self, name: str, role: str) -> int:
        """Return a component's decoded length, by decoding it if nothing else determines it."""
        known = self.known_length(name, role)
        if known is None:
            with self.located(name, role):
                known = self.stored(self.object(name).components[role]).decoded_length()
        return known

    def decoded_chunks(self, name: str, role: str = "data") -> Iterator[memoryview]:
        """Yield a component's decoded bytes in order; see `Reader.decoded_chunks`."""
        component = self.component_entry(name, role)
        self.require_transparent(name, self.object(name))
        expected = self.decoded_length(name, role)
        has_bools = component.has_free_bools or component.has_checked_bools
        with self.located(name, role):
            chunks = self.stored(component).checked_pieces(expected)
            if component.byte_order == "little" and not has_bools:
                yield from chunks
                return
            for piece in whole_elements(component, chunks):
                yield from Blocks.of(typed_array(component, piece))

    def elements(self, name: str, role: str = "data") -> Iterator[Array]:
        """Yield a component's decoded elements in flat arrays, each valid until the next.

        Raises:
            ZTensorError: as `decoded_chunks`.
            LayoutError: the bytes end inside an element.
        """
        component = self.component_entry(name, role)._replace(byte_order="little", encoding="raw")
        for piece in whole_elements(component, self.decoded_chunks(name, role)):
            yield typed_array(component, piece)

    def with_valid_bools(
        self, name: str, role: str, chunks: Iterable[memoryview]
    ) -> Iterator[memoryview]:
        """Yield the chunks unchanged, and require that bools are 0 or 1.

        Raises:
            FormatError: a bool is neither 0 nor 1.
        """
        is_bool = self.object(name).components[role].dtype == "bool"
        with self.located(name, role):
            yield from checked_bools(chunks) if is_bool else chunks
