"""`Tensor`: one object in memory, with the components its layout needs."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    BufferExportError,
    Reason,
    UnsupportedError,
    UsageError,
    describe,
)
from ztensor.guard import foreign_bytes
from ztensor.interactive import Shown
from ztensor.io.frameworks import FRAMEWORKS
from ztensor.io.protocols import DLPackExporter, as_type, to_buffer
from ztensor.io.tensor.arrays import as_array, packed_elements, shape_of, viewed_as
from ztensor.io.tensor.constructors import Constructors
from ztensor.spec.layout import LAYOUTS, View
from ztensor.spec.layout.base import Array, Quantized
from ztensor.spec.layout.elements import numpy_dtype, spell
from ztensor.spec.model.dtype import BY_LONG_NAME, LOGICAL_TYPES, STORAGE_TYPES, element_count
from ztensor.spec.model.manifest import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ztensor.accepted import (
        JaxArray,
        JaxDevice,
        TensorLike,
        TorchDevice,
        TorchTensor,
    )


class Tensor(Constructors, DLPackExporter, Shown):
    """One object: a shape, a layout and typed components.

    Dense tensors have the component `data`; sparse and quantized ones several (1.2 section 3).
    Arrays are kept without a copy.

    Args:
        components: role to array; an array stands for `{"data": array}`.
        shape: the logical shape; by default the shape of `data`.
        dtype: the element type of the main component (`data`, `values`), short or long name.
            Only needed to reinterpret a uint8 array.
        format: the layout's name; unknown names are allowed and stored unchanged.
        type: the logical type of the main component, if its array has storage elements, such as
            `"f8_e4m3fn"` over uint8.
        attributes: the object's own key-value pairs.

    Attributes:
        components: role to array, read-only mapping.
        shape: the logical shape; it also equals a list of the same integers.
        format: the layout's name.
        dtype: long name of the main component's storage type, such as `float32`; of an unknown
            layout, the first component's.
        type: name of the main component's logical type, or None.
        attributes: the object's key-value pairs, possibly empty.

    Raises:
        ArgumentTypeError: a component is not an array.
        ArgumentValueError: shape or dtype contradicts the arrays.
    """

    __slots__ = ("_declared_type", "attributes", "components", "format", "shape")

    def __init__(
        self,
        components: Mapping[str, TensorLike] | TensorLike,
        *,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        format: str = "dense",  # the specification's word
        type: str | None = None,  # the specification's word
        attributes: Mapping[str, object] | None = None,
    ) -> None:
        # Columns of pandas have items, too, and are arrays.
        if hasattr(components, "__array__") or not hasattr(components, "items"):
            components = {"data": components}
        arrays = {str(role): as_array(role, array) for role, array in components.items()}
        if not (isinstance(format, str) and isinstance(type, str | None)):
            raise ArgumentTypeError(
                "format and type are text",
                found=describe(type if isinstance(format, str) else format),
            )
        layout = LAYOUTS.get(format)
        main = arrays.get(layout.main_role) if layout is not None else None
        if dtype is not None and main is not None and layout is not None:
            main = arrays[layout.main_role] = viewed_as(main, dtype)
        if shape is None:
            if main is None or format != "dense":
                raise ArgumentValueError(f"a {describe(format)} tensor needs its shape")
            shape = main.shape
        self.shape: tuple[int, ...] = Shape(shape_of(shape))
        self.format: str = str(format)
        self.components: Mapping[str, Array] = types.MappingProxyType(arrays)
        self.attributes: Mapping[str, object] = dict(attributes or {})
        self._declared_type = type
        if type is not None and main is not None and layout is not None:
            arrays[layout.main_role] = self._with_type(main, type)

    def _with_type(self, main: Array, name: str) -> Array:
        logical = LOGICAL_TYPES.get(name)
        storage, spelled = spell(main.dtype)
        if logical is None:  # unknown types are stored beside the storage elements
            if spelled is not None:
                raise ArgumentValueError(
                    "an unknown logical type needs plain storage elements",
                    expected=f"one of {', '.join(BY_LONG_NAME)}",
                    found=main.dtype.name,
                )
            self._declared_type = None if name == storage else name
            return main
        self._declared_type = None
        if spelled == name:
            return main
        if storage != logical.dtype or spelled is not None:
            raise ArgumentValueError(
                f"the logical type {name!r} is defined on other storage elements",
                expected=STORAGE_TYPES[logical.dtype].long_name,
                found=main.dtype.name,
                section="1.2 section 2, Logical types",
            )
        if logical.elements_per_storage > 1:
            raise packed_elements(name)
        target = numpy_dtype(logical.long_name)
        if logical.storage_per_element == 1:
            return main.view(target)
        flat = np.ascontiguousarray(main).reshape(-1).view(target)
        with contextlib.suppress(ValueError):  # as many elements, in a shape that NumPy holds
            return flat.reshape(self.shape)
        return flat

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by value, so that workers can hand tensors back."""
        view = View(self.shape, dict(self.components), self.attributes)
        return tensor_of, (view, self.format, self._declared_type)

    # --- Types ------------------------------------------------------------------------------

    @property
    def main_component(self) -> Array | None:
        """Return the component that holds the elements: `data`, `values`, `packed_weight`.

        For an unknown layout it is the first component in the order of roles, as in files.
        """
        layout = LAYOUTS.get(self.format)
        if layout is None:
            return self.components[min(self.components)] if self.components else None
        return self.components.get(layout.main_role)

    @property
    def dtype(self) -> str | None:
        """Return the long name of the main component's storage type, or None."""
        main = self.main_component
        return None if main is None else STORAGE_TYPES[spell(main.dtype)[0]].long_name

    @property
    def type(self) -> str | None:
        """Return the name of the main component's logical type, or None."""
        main = self.main_component
        if self._declared_type is not None or main is None:
            return self._declared_type
        return spell(main.dtype)[1]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all components in memory."""
        return sum(array.nbytes for array in self.components.values())

    def __repr__(self) -> str:
        """Return shape, layout and types; never the values."""
        kind = self.type or self.dtype
        return f"Tensor(shape={self.shape}, format={describe(self.format)}, type={kind!r})"

    # --- Values -----------------------------------------------------------------------------

    def _view(self) -> View:
        return View(self.shape, self.components, self.attributes)

    def require_valid(self) -> None:
        """Require that the components satisfy the layout.

        Raises:
            LayoutError: a structural rule of the layout is broken.
        """
        layout = LAYOUTS.get(self.format)
        if layout is not None:
            with foreign_bytes("the tensor"):
                layout.require_valid(self._view())

    def numpy(self) -> Array:
        """Return a dense tensor as an array of its shape, without a copy.

        bfloat16, fp8 and fp4 come as the types of ml_dtypes, complex as complex.

        Raises:
            UsageError: the tensor is not dense; the message names the right call.
            LayoutError: the data does not have the shape's number of elements.
        """
        if self.format != "dense":
            raise UsageError(
                f"a {describe(self.format)} tensor is not an array; use "
                + ("to_dense(), to_scipy()" if "sparse" in self.format else "dequantize()")
                + " or .components"
            )
        if self._declared_type is not None and "data" in self.components:
            have, need = self.components["data"].size, element_count(self.shape)
            if have != need:
                raise UnsupportedError(
                    "the logical type is unknown and packs its elements; "
                    "the flat storage elements are in .components['data']",
                    reason=Reason.UNKNOWN_TYPE,
                    expected=f"one of {', '.join(LOGICAL_TYPES)}",
                    found=describe(self._declared_type),
                    section="1.2 section 2, Logical types",
                )
        with foreign_bytes("the tensor"):
            return LAYOUTS["dense"].to_dense(self._view())

    def __array__(  # NumPy calls it with these, by position
        self,
        dtype: Any = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> Array:
        """Return `numpy()` for `np.asarray`; sparse and quantized tensors are not expanded."""
        array = self.numpy()
        return as_type(array, dtype, copy=bool(copy))

    def _exported(self) -> Array:
        try:
            return self.numpy()
        except UsageError as error:  # not dense: the protocols ask for a BufferError
            raise BufferExportError(error.message) from error

    def __buffer__(self, flags: int) -> memoryview:
        """Return the array of a dense tensor for `memoryview(tensor)`, from Python 3.12 on.

        Raises:
            BufferExportError: the tensor is not dense, or the protocol has no word for its
                elements: bfloat16, fp8, fp4; also a `BufferError`.
        """
        del flags  # the interpreter checks them against the view
        return to_buffer(self._exported())

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Return NumPy's description of the memory.

        Raises:
            AttributeError: the tensor is not dense, has a type of ml_dtypes, or is not a view.
        """
        array = self.numpy() if self.format == "dense" else None
        # An address does not keep memory alive: it must point into a component.
        if (
            array is None
            or array.dtype.isbuiltin == 2
            or not np.may_share_memory(array, self.components["data"])
        ):
            raise AttributeError("__array_interface__")
        return array.__array_interface__

    def to_dense(self) -> Array:
        """Return the logical array of any known layout.

        Dense tensors return their array, sparse ones a new array with zeros filled in (values at
        equal positions are summed, as in SciPy and PyTorch), quantized ones `dequantize()`.

        Raises:
            UnsupportedError: the layout has no known dense value.
            LayoutError: a structural rule of the layout is broken.
            LimitError: the array does not fit into memory.
        """
        if self.format == "dense":
            return self.numpy()
        try:
            layout = LAYOUTS[self.format]
        except KeyError:
            raise UnsupportedError(
                "unknown layout: there is no dense value; .components has the components",
                reason=Reason.UNKNOWN_LAYOUT,
                expected=f"one of {', '.join(LAYOUTS)}",
                found=describe(self.format),
            ) from None
        with foreign_bytes("the tensor"):
            return layout.to_dense(self._view())

    def torch(self, *, device: TorchDevice = "cpu") -> TorchTensor:
        """Return a dense or sparse tensor as a `torch.Tensor` of the same layout.

        On the CPU the memory is shared, except arrays that torch cannot view: read-only or
        byte-swapped arrays, negative strides, and packed 4-bit elements are copied.

        Args:
            device: a name such as `"cuda"`, a number, or a `torch.device`.

        Raises:
            ArgumentValueError: torch does not know the device.
            UsageError: the tensor is neither dense nor sparse; the message names the right call.
            UnsupportedError: torch has no such element type, cannot hold the shape, or has no such
                device here.
            LimitError: the device cannot hold it.
            LayoutError: a structural rule of the layout is broken.
            MissingDependencyError: PyTorch is not installed.
        """
        return FRAMEWORKS["torch"].loaded().value_of(self, device=device)

    def dequantize(self, dtype: npt.DTypeLike = "float32", *, threads: int | None = None) -> Array:
        """Return the dequantized weights of a `quantized_group` or `gguf` tensor as a new array.

        `ztensor.torch.dequantize` does the same on torch's devices.

        Args:
            dtype: `float32`, `float64`, `float16` or `bfloat16`. The arithmetic is float32; for
                float64 of `quantized_group` it is float64.
            threads: number of threads; None uses `ZTENSOR_NUM_THREADS`, or the cores.

        Raises:
            UsageError: the tensor is not quantized.
            ArgumentValueError: another `dtype`.
            LayoutError: attributes or sizes do not make a quantization.
            UnsupportedError: this release does not know the scheme, or the type of blocks.
            LimitError: the array does not fit into memory.
        """
        return self._quantized_layout().dequantize(self._view(), dtype=dtype, threads=threads)

    def integers(self) -> Array:
        """Return the packed integers of a `quantized_group` tensor, one byte each; a new array.

        They are uint8, or int8 if the attribute `signed` is true; codes of other elements are
        returned as stored.

        Raises:
            UsageError: the tensor is not quantized.
            LayoutError: attributes or sizes do not make a group quantization.
            UnsupportedError: the attributes name a scheme this release does not know.
            LimitError: the array does not fit into memory.
        """
        return self._quantized_layout().integers(self._view())

    def _quantized_layout(self) -> Quantized:
        layout = LAYOUTS.get(self.format)
        if not isinstance(layout, Quantized):
            raise UsageError("the tensor is not quantized", found=f"format {describe(self.format)}")
        return layout

    def jax(self, *, device: JaxDevice | None = None) -> JaxArray | Any:
        """Return the tensor as a `jax.Array`, or as `BCOO` or `BCSR` if it is sparse.

        On the CPU both may share memory: write to neither.

        Args:
            device: a `jax.Device` or a name such as `"cpu"`; None uses JAX's default.

        Raises:
            NotRepresentableError: JAX cannot hold the elements as they are, such as 64-bit ones
                while `jax_enable_x64` is not set.
            UsageError: JAX has no value for the layout; the message names the right call.
            LayoutError: a structural rule of the layout is broken.
            MissingDependencyError: JAX is not installed.
        """
        return FRAMEWORKS["jax"].loaded().value_of(self, device=device)

    def to_scipy(self) -> Any:
        """Return a sparse tensor as `scipy.sparse.csr_array` or `coo_array`.

        Values are shared with this tensor; indices are converted to int64. Indices are checked
        first, as SciPy would read out of bounds.

        Raises:
            UsageError: the tensor is not sparse.
            LayoutError: a structural rule of the layout is broken.
            NotRepresentableError: SciPy has no such element type.
            MissingDependencyError: SciPy is not installed.
        """
        return FRAMEWORKS["scipy"].loaded().value_of(self)


def tensor_of(view: View, layout_name: str, declared_type: str | None) -> Tensor:
    """Return a tensor over components that were decoded and checked.

    Args:
        view: the components.
        layout_name: the object's format.
        declared_type: an unknown logical type of the object, as written; else None.
    """
    tensor = Tensor.__new__(Tensor)
    tensor.shape = Shape(view.shape)
    tensor.format = layout_name
    tensor.components = types.MappingProxyType(dict(view.arrays))
    tensor.attributes = dict(view.attributes)
    tensor._declared_type = declared_type
    return tensor
