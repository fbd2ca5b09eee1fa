"""What a layout tells of an object's components: which to read first, and how long each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.layout import LAYOUTS
from ztensor.layout.base import known_count

if TYPE_CHECKING:
    from ztensor.model.manifest import TensorObject


def roles_in_order(tensor_object: TensorObject) -> list[str]:
    """Return an object's roles, those first that tell how long others are."""
    layout = LAYOUTS.get(tensor_object.format)
    first = layout.read_order if layout is not None else ()
    return [*first, *(role for role in tensor_object.components if role not in first)]


def known_entries(tensor_object: TensorObject) -> int | None:
    """Return how many values an object has where they share bytes, and only coordinates tell."""
    values = tensor_object.components.get("values")
    if tensor_object.format != "sparse_coo" or values is None or not tensor_object.shape:
        return None
    if values.logical is None or values.logical.elements_per_storage == 1:
        return None  # they tell it themselves
    return known_count(tensor_object, "coords", len(tensor_object.shape))


def known_length(tensor_object: TensorObject, role: str) -> int | None:
    """Return the decoded length of a component as far as the manifest and the layout tell it."""
    known = tensor_object.components[role].known_decoded_length
    layout = LAYOUTS.get(tensor_object.format)
    if known is None and layout is not None:
        return layout.expected_length(tensor_object, role, None)
    return known
