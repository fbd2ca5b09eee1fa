"""Check and convert the arrays, shapes and element types that callers pass."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    LayoutError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.io.frameworks import FRAMEWORKS
from ztensor.spec.layout.elements import numpy_dtype, spell
from ztensor.spec.model.dtype import BY_LONG_NAME, LOGICAL_TYPES, STORAGE_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.spec.layout.base import Array


def shape_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a caller's shape as a tuple of Python integers.

    Raises:
        ArgumentTypeError: `shape` is not a sequence of integers.
        ArgumentValueError: a dimension is negative.
    """
    try:
        dimensions = tuple(operator.index(dimension) for dimension in shape)
    except TypeError as error:
        raise ArgumentTypeError(
            "a shape is a sequence of integers", found=describe(shape, 40)
        ) from error
    if any(dimension < 0 for dimension in dimensions):
        raise ArgumentValueError("a shape has no negative dimensions", found=describe(dimensions))
    return dimensions


def no_mapping(tensors: object, of: str) -> ArgumentTypeError:
    """Return the error for an argument that is not a dict of tensors.

    Args:
        tensors: the argument.
        of: the plural of the expected values, for the message.
    """
    error = ArgumentTypeError(
        f"tensors must be a mapping from names to {of}", found=describe(tensors, 40)
    )
    if isinstance(tensors, (str, os.PathLike)):
        error.hint = "the tensors come first, then the path"
    elif hasattr(tensors, "state_dict"):
        error.hint = "give its state_dict(); ztensor.torch.save_model(model, path) takes a model"
    return error


def no_tensor(value: object, expected: str, noun: str = "value") -> ArgumentTypeError:
    """Return the error for a value that cannot be saved as a tensor.

    Args:
        value: the value.
        expected: the accepted types, for the message.
        noun: names the value in the message.
    """
    error = ArgumentTypeError(f"the {noun} is no tensor", expected=expected, found=kind_of(value))
    if isinstance(value, Mapping):
        error = ArgumentTypeError(
            "the value is a dict; a file maps names to tensors, not dicts",
            found=describe(list(value)),
        )
        error.hint = (
            "flatten it, one name for each tensor: "
            '{f"{outer}.{inner}": tensor for inner, tensor in value.items()}; '
            "or use save_tree and load_tree, which keep nested dicts"
        )
    elif value is None or isinstance(value, (str, bytes, bool, int, float)):
        error.hint = "save numbers and text as metadata, as attributes of the file"
    return error


def kind_of(value: object) -> str:
    """Return the name of a value's class, with its module."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def as_array(role: object, value: Any) -> Array:
    """Return a caller's value as a NumPy array for a component.

    Raises:
        ArgumentTypeError: the value is not an array, or is sparse.
        NotRepresentableError: the array cannot be stored.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise NotRepresentableError(
            "a masked array has missing values; fill them with array.filled()"
        )
    framework = FRAMEWORKS.adapter_of(value)
    if framework is not None:
        value = framework.stored(value)
        if not isinstance(value, np.ndarray):
            raise ArgumentTypeError(
                f"the component {describe(role)} is sparse; Tensor.from_torch() and "
                "Tensor.from_scipy() convert it"
            )
    accepted = (np.ndarray, bool, int, float, complex, list, tuple)
    if not (isinstance(value, accepted) or hasattr(value, "__array__")):
        noun = "value" if role == "data" else f"component {describe(role)}"
        raise no_tensor(value, "a NumPy array, or an argument of numpy.asarray", noun)
    try:
        array: Array = np.asarray(value)  # drops subclasses and their behaviour
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentTypeError(
            f"the component {describe(role)} is not an array: {error}", found=kind_of(value)
        ) from error
    return array


def as_index(role: str, value: Any) -> Array:
    """Return a caller's indices as a uint64 array.

    Raises:
        ArgumentTypeError: the indices are not integers.
        LayoutError: an index is negative.
    """
    array = as_array(role, value)
    if array.size and array.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"{role} are indices", expected="an integer array", found=array.dtype.name
        )
    if array.size and array.dtype.kind == "i" and int(array.min()) < 0:
        raise LayoutError(
            "an index is negative",
            reason=Reason.INDEX_RANGE,
            component=role,
            found=str(array.min()),
        )
    return array.astype(np.uint64, copy=False)


def element_type(dtype: Any) -> np.dtype[Any]:
    """Return a caller's element type as a NumPy dtype in native byte order.

    Args:
        dtype: the name of a storage, logical or NumPy type; or a type of NumPy or a framework.

    Raises:
        ArgumentValueError: no such type.
        NotRepresentableError: a framework's type that cannot be stored.
    """
    framework = FRAMEWORKS.adapter_beside(dtype)
    converted: np.dtype[Any] | None = None
    if hasattr(framework, "element_type"):
        converted = framework.element_type(dtype)
    try:
        if isinstance(dtype, str):
            known = STORAGE_TYPES.get(dtype) or LOGICAL_TYPES.get(dtype)
            converted = numpy_dtype(dtype if known is None else known.long_name)
        return np.dtype(dtype if converted is None else converted).newbyteorder("=")
    except (TypeError, ValueError, UnsupportedError) as error:
        raise ArgumentValueError(
            "unknown element type",
            expected=f"one of {', '.join([*BY_LONG_NAME, *LOGICAL_TYPES])}",
            found=describe(dtype, 40),
        ) from error


def viewed_as(array: Array, name: str) -> Array:
    """Reinterpret a uint8 array as elements of a type. An array of that type is returned as is.

    Raises:
        ArgumentValueError: no such type, or the array has another element type.
    """
    storage = STORAGE_TYPES.get(name) or BY_LONG_NAME.get(name)
    if storage is not None and spell(array.dtype)[0] == storage.name:
        return array
    target = element_type(name)
    if array.dtype.name == target.name:
        return array
    if array.dtype != np.uint8 or array.nbytes % target.itemsize:
        raise ArgumentValueError(
            "dtype differs from the array's; only a uint8 array can be taken as another type",
            expected=array.dtype.name,
            found=describe(name),
        )
    _, spelled = spell(target)
    if spelled is not None and LOGICAL_TYPES[spelled].elements_per_storage > 1:
        raise packed_elements(spelled)
    return np.ascontiguousarray(array).reshape(-1).view(target)


def packed_elements(type_name: str) -> ArgumentValueError:
    """Return the error for bytes passed as elements of a packed type."""
    return ArgumentValueError(
        f"pass the elements of {type_name!r} as an array of "
        f"ml_dtypes.{LOGICAL_TYPES[type_name].long_name}; they are packed when they are written"
    )
