"""The contract of a layout, and the checks all layouts share."""

from __future__ import annotations

import abc
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ztensor.errors import MOST_PROBLEMS, LayoutError, Problem, Reason, UsageError, describe
from ztensor.spec.model.manifest import Component, TensorObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import DTypeLike

Array = np.ndarray[Any, np.dtype[Any]]
Indices = range | np.ndarray[Any, np.dtype[np.intp]]
# Component by role, shape (None for a flat one of unknown size) and entries, as
# `Layout.expected_length` takes them.
Part = Callable[..., "LazyArray"]

_MOST_NAMED = 8  # roles that a message names


class View(NamedTuple):
    """An object whose components are in memory.

    Attributes:
        shape: the logical shape.
        arrays: role to typed array; flat, except that the components of objects a caller made
            may have any shape.
        attributes: the object's attributes.
    """

    shape: tuple[int, ...]
    arrays: Mapping[str, Array]
    attributes: Mapping[str, object]


class Watch(Protocol):
    """Checks one component as its elements go by, so that nothing has to be held."""

    def feed(self, block: Array) -> None:
        """Take the next elements.

        Raises:
            LayoutError: they break a rule.
        """
        ...

    def finish(self, counts: Mapping[str, int]) -> None:
        """Check what only the end shows.

        Args:
            counts: how many elements every component turned out to have.

        Raises:
            LayoutError: they break a rule.
        """
        ...


class LazyArray(Protocol):
    """A component that is read only where it is indexed."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __getitem__(self, key: Any) -> Any:
        """Return the part that NumPy returns for this index; a view where it can be one."""
        ...

    def owned(self, key: Any) -> Any:
        """Return the same part, as memory of its own."""
        ...


class Rows(abc.ABC):
    """Cuts rows out of one object, of whose components it reads only what they need.

    Args:
        tensor_object: the object, which `check_object` found no fault with.
        part: gives a component of it: `part(role, shape, entries)`; reads nothing yet.
    """

    def __init__(self, tensor_object: TensorObject, part: Part) -> None:
        self.object, self.part, self.shape = tensor_object, part, tensor_object.shape

    @property
    def unit(self) -> int:
        """Return how many rows make a whole: selections begin and end at multiples of it."""
        return 1

    @abc.abstractmethod
    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return the components of an object of some rows: indices along the first axis.

        Raises:
            ArgumentValueError: such rows cannot be cut out.
            LayoutError: a structural rule is broken.
        """


class Layout(abc.ABC):
    """What one `format` means.

    Attributes:
        name: the manifest's word.
        section: where the layout is specified, for messages.
        main_role: the role whose elements are the object's own: it carries the logical type.
        read_order: the required roles, those first whose content tells how long others are.
        index_roles: the roles that hold indices: integers, written as u64.
        has_row_bytes: the bytes of `data` are those of the rows, one row after the other.
    """

    name: str
    section: str = ""
    main_role: str
    read_order: tuple[str, ...]
    index_roles: tuple[str, ...] = ()
    has_row_bytes: bool = False

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return what the manifest alone shows to be wrong; paths start at the object."""
        problems = check_components(tensor_object, self.read_order, self.section)
        for role in self.index_roles:  # 1.2 orders u64, 1.1 allows any integer: any is read
            component = tensor_object.components.get(role)
            storage = None if component is None else component.storage
            if component is not None and (
                component.type is not None or (storage is not None and storage.kind not in "iu")
            ):
                word = describe(component.type or component.dtype)
                message = f"expected an integer dtype for indices, found {word}"
                reason = Reason.INDEX_DTYPE
                problems.append(component_problem(reason, role, message, self.section, "dtype"))
        return problems

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        """Return how many bytes a component must decode to; None where nothing tells.

        Args:
            tensor_object: an object `check_object` found no fault with.
            role: one of its components.
            entries: what `entries_told` gave for a component before it in `read_order`.
        """
        del entries
        return tensor_object.components[role].known_decoded_length

    def entries_told(self, role: str, count: int, last: int) -> int | None:
        """Return the entry count that this component reveals for the later ones, or None.

        Args:
            role: the component that was decoded.
            count: how many elements it has.
            last: its last element, 0 where it has none.
        """
        del role, count, last
        return None

    def watch(self, of: TensorObject | View, role: str, entries: int | None) -> Watch | None:
        """Return a check over a component's elements; None where any values are good.

        Args:
            of: what has the shape and the attributes.
            role: the component.
            entries: as `expected_length` takes them.
        """
        del of, role, entries
        return None

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows | None:
        """Return what cuts rows out of an object; None where the layout cannot."""
        del tensor_object, part
        return None

    def require_valid(self, view: View) -> None:
        """Raise where the arrays do not make what the layout promises.

        Raises:
            LayoutError: a structural rule is broken.
        """
        if any(role not in view.arrays for role in self.read_order):
            expected, found = ", ".join(self.read_order), _named(view.arrays)
            message, reason = "a component is missing", Reason.COMPONENT_MISSING
            raise broken(reason, message, expected, found, self.section)
        counts = {role: array.size for role, array in view.arrays.items()}
        for role in self.read_order:
            watch = self.watch(view, role, counts.get(self.main_role))
            if watch is not None:
                watch.feed(view.arrays[role].reshape(-1))
                watch.finish(counts)

    @abc.abstractmethod
    def to_dense(self, view: View) -> Array:
        """Return the logical array, C-contiguous, native byte order.

        Raises:
            LayoutError: a structural rule is broken.
            LimitError: the array does not fit into memory.
        """


class Quantized(Layout):
    """A layout whose dense value is computed of codes."""

    @abc.abstractmethod
    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the floats that an object stands for; a new array of its shape.

        Args:
            view: shape, components and attributes.
            dtype: `float16`, `bfloat16`, `float32` or `float64`.
            threads: how many to use; by default as `ztensor.threads` says.

        Raises:
            LayoutError: attributes or sizes break a rule of the layout.
            UnsupportedError: this release does not know the scheme, or the type of blocks.
            LimitError: the result does not fit into memory.
            ArgumentValueError: another `dtype`.
        """

    def float_attributes(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """Return the attributes that the dequantized object keeps: all that say nothing of codes.

        Raises:
            UnsupportedError: this release cannot dequantize the object.
        """
        return dict(attributes)

    def integers(self, view: View) -> Array:
        """Return the codes of an object, one byte each; a new array.

        Raises:
            UsageError: they are not integers in groups.
            LayoutError: attributes or sizes break a rule of the layout.
            UnsupportedError: this release does not know the scheme.
            LimitError: the result does not fit into memory.
        """
        del view
        raise UsageError(
            "this is for quantized_group tensors; those of gguf have dequantize()",
            found=f"format {describe(self.name)}",
        )

    def to_dense(self, view: View) -> Array:
        """Return the dequantized weights as float32."""
        return self.dequantize(view)


def broken(
    reason: Reason, message: str, expected: str, found: object, section: str, role: str = ""
) -> LayoutError:
    """Return the error for components that do not make what their layout promises."""
    about = {"expected": expected, "found": str(found), "section": section}
    return LayoutError(message, reason=reason, component=role or None, **about)


def component_problem(
    reason: Reason, role: str, message: str, section: str, *field: str
) -> Problem:
    """Return a problem with a component, or with a field of it."""
    return Problem(reason, message, ("components", role, *field), section, component=role)


def _named(roles: Iterable[str]) -> str:
    return ", ".join(map(describe, islice(roles, _MOST_NAMED))) or "none"


def check_components(
    tensor_object: TensorObject, required: Iterable[str], section: str
) -> list[Problem]:
    """Return problems of missing roles, and of byte lengths that are no whole elements."""
    components = tensor_object.components
    found = _named(components)
    problems = [
        component_problem(
            Reason.COMPONENT_MISSING, role, f"expected a component {role!r}, found {found}", section
        )
        for role in required
        if role not in components
    ]
    for role, component in components.items():
        if len(problems) >= MOST_PROBLEMS:
            break
        width, length = component.width, component.known_decoded_length
        if width is not None and length is not None and length % width:
            word = describe(component.type or component.dtype)
            message = f"expected a multiple of {width} bytes for {word}, found {length}"
            problems.append(component_problem(Reason.SIZE_MISMATCH, role, message, section))
        problems.extend(check_decoded_length(role, component))
    return problems


def check_decoded_length(role: str, component: Component) -> list[Problem]:
    """Return a problem where a raw component's `uncompressed_length` differs from its length."""
    declared = component.decoded_length
    if component.encoding != "raw" or declared is None or declared == component.length:
        return []
    message = f"expected {component.length}, the raw length, found {declared}"
    section, field = "1.2 section 1, Component", "uncompressed_length"
    return [component_problem(Reason.SIZE_MISMATCH, role, message, section, field)]


def check_length(
    role: str, component: Component, expected: int, why: str, section: str
) -> list[Problem]:
    """Return a problem where the manifest gives another decoded length than the layout needs."""
    length = component.known_decoded_length
    if length is None or length == expected:
        return []
    message = f"expected {expected} bytes for {why}, found {length}"
    return [component_problem(Reason.SIZE_MISMATCH, role, message, section)]


def row_count(rows: Indices) -> int:
    """Return how many rows an index selects."""
    if isinstance(rows, range):  # it may be longer than len() can say
        return (rows[-1] - rows[0]) // rows.step + 1 if rows else 0
    return rows.size
