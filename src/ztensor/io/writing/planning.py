"""Manifest entries for callers' values, and the manifest of a file that is being written."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    ArgumentTypeError,
    FormatError,
    LayoutError,
    NotRepresentableError,
    Reason,
    describe,
)
from ztensor.io.frameworks import FRAMEWORKS
from ztensor.io.reading.portable import require_once
from ztensor.io.tensor import Tensor, element_type, no_tensor, shape_of
from ztensor.spec.container.framing import FORM_1, Form
from ztensor.spec.layout import LAYOUTS, View
from ztensor.spec.layout.dense import DENSE
from ztensor.spec.layout.elements import numpy_dtype, require_bools, spell
from ztensor.spec.model.dtype import LOGICAL_TYPES, STORAGE_TYPES, decoded_size
from ztensor.spec.model.manifest import Component, Manifest, Shard, TensorObject, WrittenObjects

if TYPE_CHECKING:
    from ztensor.spec.container import Emitter
    from ztensor.spec.layout.base import Array


class Draft:
    """The manifest of a file that is being written.

    Args:
        emitter: emits its bytes.

    Attributes:
        emitter: the argument.
        version: the version text.
        objects: the objects so far.
        attributes: the file's own key-value pairs, or None.
        extra: unknown fields of the root.
        shards: other files that may have components.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.version = emitter.version
        self.objects = WrittenObjects()
        self.attributes: dict[str, object] | None = None
        self.extra: Mapping[str, object] | None = None
        self.shards: Mapping[str, Shard] = {}

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Replace the file's own key-value pairs.

        Raises:
            ArgumentTypeError: they are not a mapping.
            NotRepresentableError: the version cannot hold them.
        """
        own = attributes_of(attributes)
        self.emitter.require_attributes(own)
        self.attributes = copy.deepcopy(own)

    def emit(self, offset: int, previous_length: int) -> bytes:
        """Return everything that follows the last blob.

        Args:
            offset: the end of the last blob, with padding.
            previous_length: length of the file before this commit, 0 for a new one.
        """
        shards = self.shards
        if shards:  # without files that have no object any more
            parts = (part for entry in self.objects.values() for part in entry.components.values())
            used = {part.shard.name for part in parts if part.shard is not None}
            shards = {
                name: shard for name, shard in shards.items() if shard.start is None or name in used
            }
        manifest = Manifest(
            self.version, self.objects, self.attributes, extra=self.extra, shards=shards
        )
        return self.emitter.emit(manifest, offset, prev=previous_length)


def plan_of(
    data: Any, attributes: Mapping[str, object] | None, form: Form = FORM_1
) -> tuple[TensorObject, Mapping[str, Array]]:
    """Return the manifest entry of a caller's value, and the array of each component.

    Offsets and digests are set later; lengths are of the decoded bytes.

    Args:
        data: an array, a tensor, or a value of a framework.
        attributes: its attributes; by default a tensor's own.
        form: the rules of the version for blobs.

    Raises:
        LayoutError: the tensor breaks a rule of its layout.
        NotRepresentableError: the value or its element type cannot be stored.
        ArgumentTypeError: it has another type.
        FormatError: a bool for a file of 2.x is neither 0 nor 1.
    """
    framework = None if type(data) is np.ndarray else FRAMEWORKS.adapter_of(data)
    if framework is not None:
        data = framework.stored(data)
    if type(data) is np.ndarray and not attributes:  # only its elements need checks
        component = _component(data, *spell(data.dtype))
        if form.is_exact:
            require_written_bools("data", data)
        return TensorObject(data.shape, "dense", {"data": component}), {"data": data}
    if isinstance(data, Mapping) and "data" not in data:
        raise no_tensor(data, "a Tensor, or an array")
    tensor = with_indices(data if isinstance(data, Tensor) else Tensor(data), form.indices)
    if form.is_exact:
        require_once(tensor)
    layout = LAYOUTS.get(tensor.format)
    components = {}
    for role in sorted(tensor.components, key=lambda text: text.encode("utf-8", "replace")):
        array = tensor.components[role]
        storage, logical = spell(array.dtype)
        if layout is not None and role == layout.main_role:
            logical = tensor.type
        components[role] = _component(array, storage, logical)
        # Spare bits of the last byte: the shape of a dense tensor implies them, in 2.x indices too.
        is_implied = tensor.format == "dense" and role == "data"
        if form.is_exact:
            require_written_bools(role, array)
            is_implied |= tensor.format in ("sparse_csr", "sparse_coo") and role == "values"
        if not is_implied:
            _require_whole_bytes(role, array.size, components[role])
    if tensor.format == "dense" and tensor.type in (None, *LOGICAL_TYPES):
        DENSE.flat(View(tensor.shape, tensor.components, {}))  # others may pack their elements
    own = attributes_of(tensor.attributes if attributes is None else attributes)
    planned = TensorObject(tensor.shape, tensor.format, components, own or None)
    if tensor.format not in LAYOUTS.lines:  # there `require_valid` has all rules
        require_layout(planned)
    return planned, tensor.components


def require_layout(tensor_object: TensorObject) -> None:
    """Raise if an object breaks a rule of its layout: the file could not be opened any more.

    Raises:
        NotRepresentableError: it does.
    """
    layout = LAYOUTS.get(tensor_object.format)
    problems = [] if layout is None else layout.check_object(tensor_object)
    if problems:
        raise NotRepresentableError(
            f"a rule of the layout {tensor_object.format} would be broken: {problems[0].message}",
            component=problems[0].component,
            section=problems[0].section,
        )


def _component(array: Array, storage: str, logical: str | None) -> Component:
    """Return a component with its stored length."""
    nbytes = decoded_size(storage, logical, (array.size,))
    return Component(storage, 0, array.nbytes if nbytes is None else nbytes, logical)


def plan_of_stream(
    shape: Sequence[int], dtype: Any, attributes: Mapping[str, object] | None
) -> tuple[TensorObject, np.dtype[Any]]:
    """Return the manifest entry of a dense object to be streamed, and its element type.

    Raises:
        ArgumentValueError: the element type is unknown.
        ArgumentTypeError: the shape is not a sequence of integers.
        NotRepresentableError: the element type cannot be stored.
    """
    element = element_type(dtype)
    storage, logical = spell(element)
    components = {"data": Component(storage, 0, 0, logical)}
    own = attributes_of(attributes) or None
    return TensorObject(shape_of(shape), "dense", components, own), element


def _require_whole_bytes(role: str, count: int, component: Component) -> None:
    """Raise if packed elements do not fill their last byte: only a dense shape implies a count.

    Raises:
        NotRepresentableError: they do not.
    """
    packed = component.logical
    if packed is not None and count % packed.elements_per_storage:
        raise NotRepresentableError(
            f"outside dense tensors {packed.long_name} elements must fill whole bytes; append a "
            "zero, store them as float8_e4m3fn, or sparse values in version 2.1",
            component=role,
            expected=f"a multiple of {packed.elements_per_storage} elements",
            found=str(count),
        )


def with_indices(tensor: Tensor, types: Sequence[str]) -> Tensor:
    """Return a valid tensor with its index components as u64, unless all are of one other type.

    Args:
        tensor: the tensor.
        types: the index types of the version: u64, and perhaps others.

    Raises:
        LayoutError: indices are not integers, or the tensor breaks another rule of its layout.
    """
    layout = LAYOUTS.get(tensor.format)
    roles = () if layout is None else layout.index_roles
    indices = {role: tensor.components[role] for role in roles if role in tensor.components}
    for role, array in indices.items():
        if array.size and array.dtype.kind not in "iu":
            raise LayoutError(
                "indices must be integers",
                reason=Reason.INDEX_DTYPE,
                component=role,
                found=array.dtype.name,
            )
    tensor.require_valid()
    dtypes = {array.dtype for array in indices.values()}
    known = [numpy_dtype(STORAGE_TYPES[name].long_name) for name in types]
    if not dtypes or (len(dtypes) == 1 and dtypes.pop() in known):
        return tensor
    return Tensor(
        {**tensor.components, **{role: array.astype(np.uint64) for role, array in indices.items()}},
        shape=tensor.shape,
        format=tensor.format,
        type=tensor.type,
        attributes=tensor.attributes,
    )


def require_written_bools(role: str, array: Array) -> None:
    """Raise if a bool for a file of 2.x is neither 0 nor 1.

    Raises:
        FormatError: one is not.
    """
    if array.dtype == np.bool_:
        try:
            require_bools(array.view(np.uint8))
        except FormatError as error:
            error.locate(component=role)
            raise


def attributes_of(attributes: Mapping[str, object] | None) -> dict[str, object]:
    """Return a caller's attributes as a new dict.

    Raises:
        ArgumentTypeError: they are not a mapping.
    """
    if isinstance(attributes, Mapping | None):
        return dict(attributes or {})
    raise ArgumentTypeError("attributes must be a mapping", found=describe(attributes, 40))
