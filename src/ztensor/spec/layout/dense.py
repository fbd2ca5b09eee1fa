"""`dense`: one contiguous array in row-major order (1.2 section 3)."""

from __future__ import annotations

from ztensor.buffers import too_large
from ztensor.errors import LimitError, Problem, Reason, describe
from ztensor.spec.layout.base import Array, Layout, View, broken, check_length
from ztensor.spec.model.dtype import decoded_size, element_count
from ztensor.spec.model.manifest import TensorObject

SECTION = "1.2 section 2, Computing data size"
MAX_RANK = 64  # NumPy's own


class Dense(Layout):
    """The layout `dense` (1.2 section 3); components other than `data` are kept and listed."""

    name = "dense"
    section = "1.2 section 3, dense"
    main_role = "data"
    read_order = ("data",)
    has_row_bytes = True

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return problems with the roles and with the size equation (1.2 section 2)."""
        if problems := super().check_object(tensor_object):
            return problems
        component = tensor_object.components["data"]
        expected = self.expected_length(tensor_object, "data")
        if expected is None or expected == component.known_decoded_length:
            return []
        why = f"shape {describe(tensor_object.shape, 60)}"
        return check_length("data", component, expected, why, SECTION)

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None = None
    ) -> int | None:
        """Return `product(shape) * ratio * width` for `data`, if its types are known."""
        del entries
        component = tensor_object.components[role]
        size = None
        if role == "data":
            size = decoded_size(component.dtype, component.type, tensor_object.shape)
        return component.known_decoded_length if size is None else size

    def to_dense(self, view: View) -> Array:
        """Return `data` in the object's shape; a view."""
        flat, data = self.flat(view), view.arrays["data"]
        if len(view.shape) > MAX_RANK:
            raise LimitError(
                "too many dimensions for a NumPy array; read the flat component 'data'",
                reason=Reason.LIMIT_RANK,
                expected=f"at most {MAX_RANK}",
                found=str(len(view.shape)),
            )
        if data.shape == view.shape:
            return data
        try:
            return flat.reshape(view.shape)
        except ValueError as error:  # an empty shape with a dimension of 2^63 or more
            raise too_large(view.shape, data.dtype) from error

    def flat(self, view: View) -> Array:
        """Return the elements of `data` without padding, (count,); a view.

        Raises:
            LayoutError: their number is not the shape's.
        """
        self.require_valid(view)
        flat, count = view.arrays["data"].reshape(-1), element_count(view.shape)
        if count < flat.size <= count + 1 and flat.dtype.name == "float4_e2m1fn":
            flat = flat[:count]  # the last byte's upper half is padding
        if flat.size != count:
            message = (
                "the number of elements is not the shape's; "
                "the flat elements are in the component 'data'"
            )
            expected = f"{describe(count)} for shape {describe(view.shape)}"
            raise broken(Reason.SIZE_MISMATCH, message, expected, flat.size, SECTION)
        return flat


DENSE = Dense()
