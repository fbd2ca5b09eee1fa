"""The handle of a tensor or of one of its parts, as in the 2.x releases; it reads nothing."""

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
    """The result of checking a file: counts of parts with a matching digest, and without one."""

    checked: int
    undigested: int


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """The place of a part's decoded bytes.

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
    """The possible operations on a part; each field has the name of its call.

    Attributes:
        map: it can be handed out without a copy.
        locate: its decoded bytes are one range of a file.
        evict: its pages of memory are its own.
        verify: it has a digest that can be computed here.
        alignment: the largest power of two that divides its offset; 1 without a place in a file.
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
    """The source of a tensor: see `ztensor.v2.source.Source`."""

    maps: bool

    def checked(self, names: list[str] | None, *, deep: bool = False) -> VerifyReport:
        """Return the report of a check."""
        ...

    def shown(self, path: str) -> str:
        """Return the path of a file with its folder as the caller wrote it."""
        ...

    def has_own_pages(self, file: FileObjects, component: Component) -> bool:
        """Return whether a part shares its memory pages with no other part of the file."""
        ...


@releasing
class Tensor:
    """A tensor of a source, or one part of it. Nothing is read before the first call that needs it.

    The handle of a tensor with one part stands for that part. With several parts it has only the
    properties that they share; `tensor["scales"]` selects a part.
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
        """Return the role of the selected part; None if there are several and none is selected."""
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
        """Return the 2.x name of the layout, such as `"dense"` or `"zt.sparse_csr/1"`."""
        layout: str = self._entry["layout"]
        return layout

    @property
    def nbytes(self) -> int:
        """Return the decoded length of the part."""
        return self._file.decoded_length(self._name, self._role)

    @property
    def caps(self) -> Caps:
        """Return the possible operations on the part."""
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
        """Return the place of the part's decoded bytes, to read them by other means.

        Raises:
            ValueError: they are encoded or in memory, and not a range of a file.
        """
        found = self._file.location(self._name, self._role)
        if not self._is_located(self._component) or found.path is None:
            raise self._refused("the part has no place in a file: its bytes are encoded")
        return Location(self._source.shown(found.path), found.offset, found.length)

    def __getitem__(self, part: str, /) -> Tensor:
        """Return one part.

        Raises:
            KeyError: the name is unknown.
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
        """Check the digests of the part, or of all parts, and constraints of types on bytes.

        Returns:
            True if every digest was checked; False if a part has no digest, or an unknown one.

        Raises:
            ValueError: a part is damaged.
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
        """Let the system drop the part's pages from its cache; also a hint.

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
        """Return the elements as a DLPack capsule: a dense tensor in its shape, other parts flat.

        They are a view of the file if `caps.map` is true.

        Raises:
            TypeError: DLPack has no name for the logical type.
            BufferError: another device is requested.
            LimitError: NumPy cannot hold an array of the shape.
            ValueError: a stream is passed.
        """
        if stream is not None:
            raise UsageError("memory of the CPU has no streams", found=describe(stream))
        component = self._component
        if component.type is not None:
            raise ArgumentTypeError(
                "DLPack has no name for the logical type; take its bytes with tobytes()",
                found=describe(component.type),
            ).locate(file=self._file.name, object_name=self._name)
        array = self._elements(component)
        if self._object.format == "dense":
            array = LAYOUTS["dense"].to_dense(View(self._object.shape, {"data": array}, {}))
        if max_version is not None and tuple(max_version) >= (1, 0):
            array.flags.writeable = False  # without this flag, a write copies the page
        whole = ztensor.Tensor(array)
        return whole.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device of the CPU."""
        return 1, 0  # kDLCPU, index 0

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
                "the bytes cannot be converted to this dtype", found=describe(dtype, 40)
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
        """Return the tensor's entry in a manifest of 2.1."""
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
        """Return raw bytes: a view of a mapped file, otherwise a copy."""
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
