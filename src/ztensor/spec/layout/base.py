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
# `(role, shape, entries) -> component`: a shape of None is flat and of unknown size; `entries` as
# in `Layout.expected_length`.
Part = Callable[..., "LazyArray"]

_MOST_NAMED = 8  # roles that a message names


class View(NamedTuple):
    """An object whose components are in memory.

    Attributes:
        shape: the logical shape.
        arrays: role to typed array; flat if decoded from a file, of any shape in objects that a
            caller built.
        attributes: the object's attributes.
    """

    shape: tuple[int, ...]
    arrays: Mapping[str, Array]
    attributes: Mapping[str, object]


class Watch(Protocol):
    """A streaming check of one component, block by block, in constant memory."""

    def feed(self, block: Array) -> None:
        """Check the next elements.

        Raises:
            LayoutError: they break a rule.
        """
        ...

    def finish(self, counts: Mapping[str, int]) -> None:
        """Check the rules that need the whole component.

        Args:
            counts: role to number of elements.

        Raises:
            LayoutError: the component breaks a rule.
        """
        ...


class LazyArray(Protocol):
    """A component whose elements are read when they are indexed."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __getitem__(self, key: Any) -> Any:
        """Return the elements that NumPy returns for this index; a view if possible."""
        ...

    def owned(self, key: Any) -> Any:
        """Return the same elements as a copy."""
        ...


class Rows(abc.ABC):
    """Row selection on one object: reads only the needed elements of each component.

    Args:
        tensor_object: an object that passed `check_object`.
        part: `part(role, shape, entries)` returns a component as a `LazyArray`.
    """

    def __init__(self, tensor_object: TensorObject, part: Part) -> None:
        self.object, self.part, self.shape = tensor_object, part, tensor_object.shape

    @property
    def unit(self) -> int:
        """Return the granularity: selections begin and end at multiples of so many rows."""
        return 1

    @abc.abstractmethod
    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return role to array for the object of the selected rows.

        Args:
            rows: indices along the first axis.

        Raises:
            ArgumentValueError: the rows cannot be selected.
            LayoutError: a structural rule is broken.
        """


class Layout(abc.ABC):
    """The meaning of one `format` (1.2 section 3): its roles, size rules and dense value.

    Attributes:
        name: the manifest's word.
        section: the specification's section, for messages.
        main_role: the role of the object's own elements, which have its logical type.
        read_order: the required roles; a role whose content gives others' lengths comes first.
        index_roles: the roles of indices: integers, written as u64.
        has_row_bytes: the bytes of `data` are the bytes of the rows, in order.
        has_streamed_rules: `check_object` and `watch` check every rule of `require_valid`. Without
            this, `verify` reads objects whole if the layout overrides `require_valid`.
    """

    name: str
    section: str = ""
    main_role: str
    read_order: tuple[str, ...]
    index_roles: tuple[str, ...] = ()
    has_row_bytes: bool = False
    has_streamed_rules: bool = False

    @property
    def needs_whole(self) -> bool:
        """Return whether only the whole object shows that it satisfies every rule."""
        is_own = type(self).require_valid is not Layout.require_valid
        return is_own and not self.has_streamed_rules

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return the problems that the manifest alone shows; paths start at the object."""
        problems = check_components(tensor_object, self.read_order, self.section)
        for role in self.index_roles:  # 1.2 asks for u64, 1.1 for any integer: any is accepted
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
        """Return the number of bytes that a component must decode to; None if it is unknown.

        Args:
            tensor_object: an object that passed `check_object`.
            role: one of its components.
            entries: the result of `entries_told` for an earlier role of `read_order`.
        """
        del entries
        return tensor_object.components[role].known_decoded_length

    def entries_told(self, role: str, count: int, last: int) -> int | None:
        """Return the entry count of the later roles, if this component gives it; else None.

        Args:
            role: the component that was decoded.
            count: its number of elements.
            last: its last element; 0 if it is empty.
        """
        del role, count, last
        return None

    def watch(self, of: TensorObject | View, role: str, entries: int | None) -> Watch | None:
        """Return a check of a component's elements; None if all values are valid.

        Args:
            of: shape and attributes.
            role: the component.
            entries: as in `expected_length`.
        """
        del of, role, entries
        return None

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows | None:
        """Return the row selection of an object; None if the layout has none."""
        del tensor_object, part
        return None

    def require_valid(self, view: View) -> None:
        """Check the structural rules of the layout.

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
    """A layout whose dense value is computed from quantized codes."""

    @abc.abstractmethod
    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the dequantized floats; a new array of the object's shape.

        Args:
            view: shape, components and attributes.
            dtype: `float16`, `bfloat16`, `float32` or `float64`.
            threads: number of threads; by default the setting of `ztensor.threads`.

        Raises:
            LayoutError: attributes or sizes break a rule of the layout.
            UnsupportedError: this release does not know the scheme, or the block type.
            LimitError: the result does not fit into memory.
            ArgumentValueError: another `dtype`.
        """

    def float_attributes(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """Return the attributes of the dequantized object: all except those of the scheme.

        Raises:
            UnsupportedError: this release cannot dequantize the object.
        """
        return dict(attributes)

    def integers(self, view: View) -> Array:
        """Return the codes, uint8 or int8, one per element; a new array.

        Raises:
            UsageError: the codes are not integers in groups.
            LayoutError: attributes or sizes break a rule of the layout.
            UnsupportedError: this release does not know the scheme.
            LimitError: the result does not fit into memory.
        """
        del view
        raise UsageError(
            "only quantized_group tensors have integer codes; call dequantize()",
            found=f"format {describe(self.name)}",
        )

    def to_dense(self, view: View) -> Array:
        """Return the dequantized weights as float32."""
        return self.dequantize(view)


def broken(
    reason: Reason, message: str, expected: str, found: object, section: str, role: str = ""
) -> LayoutError:
    """Return the error for components that break a rule of their layout."""
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
    """Return problems of missing roles, and of byte lengths that end inside an element."""
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
    """Return a problem if a raw component's `uncompressed_length` is not its length."""
    declared = component.decoded_length
    if component.encoding != "raw" or declared is None or declared == component.length:
        return []
    message = f"expected {component.length}, the raw length, found {declared}"
    section, field = "1.2 section 1, Component", "uncompressed_length"
    return [component_problem(Reason.SIZE_MISMATCH, role, message, section, field)]


def check_length(
    role: str, component: Component, expected: int, why: str, section: str
) -> list[Problem]:
    """Return a problem if the manifest's decoded length is not the one the layout needs."""
    length = component.known_decoded_length
    if length is None or length == expected:
        return []
    message = f"expected {expected} bytes for {why}, found {length}"
    return [component_problem(Reason.SIZE_MISMATCH, role, message, section)]


def row_count(rows: Indices) -> int:
    """Return the number of rows that an index selects."""
    if isinstance(rows, range):  # len() raises OverflowError above 2^63 - 1
        return (rows[-1] - rows[0]) // rows.step + 1 if rows else 0
    return rows.size
