"""A handle of one tensor or one of its parts, as the 2.x releases have it: nothing is read."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

import ztensor
from ztensor.errors import (
    ArgumentTypeError,
    BufferExportError,
    ObjectNotFoundError,
    Reason,
    UsageError,
    describe,
)
from ztensor.ext import EMITTERS, LAYOUTS, Component, FileObjects, TensorObject, View, typed_array
from ztensor.typing import Array, VerifyReport
from ztensor.v2.raising import releasing

if TYPE_CHECKING:
    import numpy.typing as npt


class Verification(NamedTuple):
    """What checking a file found: parts whose digest matched, and parts that have none."""

    checked: int
    undigested: int


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """Where the decoded bytes of a part are.

    Attributes:
        path: the file.
        offset: first byte in it.
        nbytes: how many.
    """

    path: str
    offset: int
    nbytes: int

    def __repr__(self) -> str:
        """Return the place as the releases show it."""
        return f'<Location "{self.path}" +{self.offset} ({self.nbytes} bytes)>'


@dataclasses.dataclass(frozen=True, slots=True)
class Caps:
    """What can be done with one part; each is the condition of the call it is called after.

    Attributes:
        map: it can be handed out without a copy.
        locate: its decoded bytes are one range of a file.
        evict: its pages of memory are its own.
        verify: it has a digest that can be computed here.
        alignment: the largest power of two that divides its place in the file; 1 where it has none.
    """

    map: bool
    locate: bool
    evict: bool
    verify: bool
    alignment: int

    def __repr__(self) -> str:
        """Return all of it in one line."""
        facts = [f"{name}={str(getattr(self, name)).lower()}" for name in self.__slots__]
        return f"<Caps {' '.join(facts)}>"


class Owner(Protocol):
    """The source that a tensor is of: see `ztensor.v2.source.Source`."""

    maps: bool

    def checked(self, names: list[str] | None, *, deep: bool = False) -> VerifyReport:
        """Return what checking found."""
        ...

    def shown(self, path: str) -> str:
        """Return the path of a file as the caller calls its folder."""
        ...

    def has_own_pages(self, file: FileObjects, component: Component) -> bool:
        """Return whether no other bytes of a file's tensors share the pages of a part's."""
        ...


@releasing
class Tensor:
    """One tensor of a source, or one part of it; holding it has read nothing.

    A tensor of one part answers for that part. One of several does for what all have in common;
    for the rest `tensor["scales"]` says which part is meant.
    """

    __slots__ = ("_file", "_name", "_object", "_part", "_source")

    def __init__(self, source: Owner, file: FileObjects, name: str, part: str | None) -> None:
        self._source = source
        self._file = file
        self._name = name
        self._object: TensorObject = file.object(name)
        if part is None and len(self._object.components) == 1:
            part = next(iter(self._object.components))
        self._part = part

    @property
    def name(self) -> str:
        """Return the tensor's name."""
        return self._name

    @property
    def part(self) -> str | None:
        """Return which part this is; None where there are several and none was chosen."""
        return self._part

    @property
    def parts(self) -> list[str]:
        """Return the names of the tensor's parts, in order."""
        return sorted(self._object.components, key=str.encode)

    @property
    def shape(self) -> list[int]:
        """Return the tensor's shape, also of a part."""
        return list(self._object.shape)

    @property
    def dtype(self) -> str:
        """Return the storage type of the part: `"f32"`, `"bf16"`, `"u8"`."""
        dtype: str = self._entry["parts"][self._role]["dtype"]
        return dtype

    @property
    def logical(self) -> str | None:
        """Return the logical type of the part, such as `"bool"` or `"f8_e4m3fn"`, or None."""
        logical: str | None = self._entry["parts"][self._role].get("type")
        return logical

    @property
    def layout(self) -> str:
        """Return the layout as 2.x calls it, such as `"dense"` or `"zt.sparse_csr/1"`."""
        layout: str = self._entry["layout"]
        return layout

    @property
    def nbytes(self) -> int:
        """Return how many bytes the part has once decoded."""
        return self._file.decoded_length(self._name, self._role)

    @property
    def caps(self) -> Caps:
        """Return what can be done with the part."""
        component = self._component
        digest = self._file.stored(component).digest
        has_digest = digest is not None and digest.known is not None
        if not self._is_located(component):
            return Caps(map=False, locate=False, evict=False, verify=has_digest, alignment=1)
        offset = self._file.location(self._name, self._role).offset
        is_mapped = self._is_mapped(component)
        return Caps(
            map=is_mapped,
            locate=True,
            evict=is_mapped and self._source.has_own_pages(self._file, component),
            verify=has_digest,
            alignment=offset & -offset or 1,
        )

    @property
    def location(self) -> Location:
        """Return where the part's decoded bytes are, to read them by other means.

        Raises:
            ValueError: they are no range of a file: encoded, or in memory.
        """
        found = self._file.location(self._name, self._role)
        if not self._is_located(self._component) or found.path is None:
            raise self._refused("the part has no place in a file: its bytes are encoded")
        return Location(self._source.shown(found.path), found.offset, found.length)

    def __getitem__(self, part: str, /) -> Tensor:
        """Return one part.

        Raises:
            KeyError: there is none of that name.
        """
        if not isinstance(part, str):
            raise ArgumentTypeError("the name of a part is text", found=describe(part))
        if part not in self._object.components:
            raise ObjectNotFoundError.named(
                part, self._object.components, self._file.name, "part"
            ).locate(object_name=self._name)
        return Tensor(self._source, self._file, self._name, part)

    def tobytes(self) -> bytes:
        """Return the decoded bytes, checked against their digest.

        Raises:
            ValueError: they are damaged, or of an unknown encoding.
        """
        return b"".join(self._file.decoded_chunks(self._name, self._role))

    def verify(self) -> bool:
        """Check the digests of the part, or of all parts, and what their types ask of bytes.

        Returns:
            True where every one has a digest, which matches; False where one has none that can be
            computed here.

        Raises:
            ValueError: something is damaged.
        """
        report = self._source.checked([self._name])
        unknown = {
            problem.component
            for problem in report.unsupported
            if problem.reason is Reason.UNKNOWN_ENCODING
        }
        if self._part is None:
            return report.undigested == 0 and not unknown
        return self.caps.verify and not unknown & {None, self._part}

    def prefetch(self) -> None:
        """Ask the system to read the part's pages soon; a hint, which may do nothing."""
        component = self._component
        self._file.advise(component.offset, component.length, is_needed=True)

    def evict(self) -> None:
        """Let the system drop the part's pages from its cache; a hint, too.

        Raises:
            ValueError: the part is not mapped, or shares its pages.
        """
        if not self.caps.evict:
            raise self._refused("the part's pages are not its own")
        component = self._component
        self._file.advise(component.offset, component.length, is_needed=False)

    def __dlpack__(
        self,
        stream: object | None = None,
        *,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return the elements as a DLPack capsule: of a dense tensor in its shape, else in a row.

        They are a view of the file where `caps.map` is true.

        Raises:
            TypeError: the logical type has no word in DLPack.
            BufferError: another device is asked for.
            LimitError: NumPy holds no array of the shape.
            ValueError: a stream is given.
        """
        if stream is not None:
            raise UsageError("memory of the CPU has no streams", found=describe(stream))
        component = self._component
        if component.type is not None:
            raise ArgumentTypeError(
                "the logical type has no word in DLPack; take its bytes with tobytes()",
                found=describe(component.type),
            ).locate(file=self._file.name, object_name=self._name)
        array = self._elements(component)
        if self._object.format == "dense":
            array = LAYOUTS["dense"].to_dense(View(self._object.shape, {"data": array}, {}))
        if max_version is not None and tuple(max_version) >= (1, 0):
            array.flags.writeable = False  # of an older consumer a write would copy the page
        whole = ztensor.Tensor(array)
        return whole.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's name of the CPU."""
        return 1, 0  # kDLCPU and its only index

    def __buffer__(self, flags: int) -> memoryview:
        """Return the part's bytes without a copy, read-only; Python asks for it from 3.12 on.

        Raises:
            BufferError: they are not mapped.
        """
        del flags
        component = self._component
        if not self._is_mapped(component):
            raise BufferExportError(
                "the part's bytes are not a mapped range; take them with tobytes()"
            ).locate(file=self._file.name, object_name=self._name)
        return self._bytes(component).toreadonly()

    def __array__(
        self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        """Return the part's bytes, as the buffer protocol gives them: NumPy asks for it.

        Raises:
            BufferError: they are not mapped.
        """
        found = np.frombuffer(self.__buffer__(0), np.uint8)
        try:
            return np.array(found, dtype, copy=copy)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                "the bytes are no array of that type", found=describe(dtype, 40)
            ) from error

    def __repr__(self) -> str:
        """Return name, type, shape and part."""
        shape = ",".join(map(str, self._object.shape))
        if self._part is None:
            return f'<Tensor "{self._name}" [{shape}] parts: {", ".join(self.parts)}>'
        return f'<Tensor "{self._name}" {self.dtype}[{shape}] {self._part}>'

    # --- One part ---------------------------------------------------------------------------

    @property
    def _entry(self) -> Mapping[str, Any]:
        """Return what a file of 2.1 says of the tensor."""
        return EMITTERS.named("2.1").entry(self._object)

    @property
    def _role(self) -> str:
        if self._part is None:
            parts = self.parts
            names = ", ".join(parts)
            error = ObjectNotFoundError.named(
                "data", self._object.components, self._file.name, "part"
            )
            error.message = f"the tensor has {len(parts)} parts ({names}); say which one"
            error.hint = f"tensor[{parts[0]!r}]"
            raise error.locate(object_name=self._name)
        return self._part

    @property
    def _component(self) -> Component:
        return self._object.components[self._role]

    def _is_located(self, component: Component) -> bool:
        storage = component.storage
        return (
            component.encoding == "raw"
            and (
                component.byte_order == sys.byteorder
                or (storage is not None and storage.width == 1)
            )
            and not component.has_free_bools
        )

    def _is_mapped(self, component: Component) -> bool:
        if not self._source.maps or not self._is_located(component):
            return False
        return self._file.stored(component).view() is not None

    def _bytes(self, component: Component) -> memoryview:
        """Return raw bytes, a view of the file where it is mapped."""
        stored = self._file.stored(component)
        view = stored.view()
        return (stored.decoded(None).data if view is None else view).cast("B")

    def _elements(self, component: Component) -> Array:
        is_located = self._is_located(component)
        data = self._bytes(component) if is_located else memoryview(bytearray(self.tobytes()))
        return typed_array(component, data).view()

    def _refused(self, message: str) -> UsageError:
        return UsageError(message, component=self._part).locate(
            file=self._file.name, object_name=self._name
        )
