"""Objects as 1.1 and 1.2 have them: their stored bytes where these mean the same, else decoded."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ztensor.encoding import ENCODINGS
from ztensor.errors import LayoutError, Reason
from ztensor.layout import LAYOUTS
from ztensor.layout.elements import blocks, typed_array, whole_elements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.model.manifest import TensorObject
    from ztensor.reading.file import FileObjects


def portable_object(file: FileObjects, name: str) -> TensorObject:
    """Return an object as 1.2 has it once decoded: raw, little-endian, its indices u64.

    Places, lengths and digests are those of the file; the bytes are `portable_chunks`.

    Raises:
        ObjectNotFoundError: no object of that name.
        UnsupportedError: only an unknown layout of 0.1, or another format, tells what the
            bytes are.
    """
    tensor_object = file.require_meaning(name)
    changed = {
        role: dataclasses.replace(
            component,
            dtype="u64" if _is_index(tensor_object, role) else component.dtype,
            byte_order="little",
            nonzero_is_true=False,
            digest_covers_decoded=False,
            is_exact=False,
            shard=None,
        )
        for role, component in tensor_object.components.items()
        if not _is_portable(tensor_object, role)
    }
    if not changed:
        return tensor_object
    components = {**tensor_object.components, **changed}
    return dataclasses.replace(tensor_object, components=components, entries_once=False)


def portable_chunks(file: FileObjects, name: str, role: str) -> Iterator[memoryview]:
    """Yield `decoded_chunks`, indices as u64: the bytes `portable_object` speaks of.

    Raises:
        LayoutError: indices are no integers, or one is negative.
        ZTensorError: what `decoded_chunks` raises.
    """
    file.location(name, role)
    chunks = file.decoded_chunks(name, role)
    tensor_object = file.object(name)
    component = dataclasses.replace(tensor_object.components[role], byte_order="little")
    if not _is_index(tensor_object, role) or component.dtype == "u64":
        yield from chunks
        return
    with file.located(name, role):
        for piece in whole_elements(component, chunks):
            indices = typed_array(component, piece)
            if indices.dtype.kind not in "iu" or int(indices.min()) < 0:
                raise LayoutError(
                    "indices are integers, none of them negative",
                    reason=Reason.INDEX_DTYPE,
                    found=f"{indices.min()} of {indices.dtype.name}",
                )
            yield from blocks(indices.astype(np.uint64))


def stored_object(file: FileObjects, name: str) -> TensorObject | None:
    """Return an object whose stored bytes can be copied into a file of 1.1 or 1.2.

    Returns:
        The object, compressed components with their decoded length; None where the bytes
        mean something else there and the object has to be decoded: big-endian data and bools
        of 0.1, indices that are not u64, what only another format knows to decode, or to
        check.

    Raises:
        ObjectNotFoundError: no object of that name.
        UnsupportedError: only an unknown layout of 0.1, or another format, tells what the
            bytes are.
    """
    tensor_object = file.require_meaning(name)
    changed = {}
    for role, component in tensor_object.components.items():
        has_foreign_digest = file.format != "zt" and component.digest is not None
        has_other_encoding = ENCODINGS.get(component.encoding) is not file.encodings.get(
            component.encoding
        )
        if not _is_portable(tensor_object, role) or has_foreign_digest or has_other_encoding:
            return None
        if component.encoding in ENCODINGS and component.encoding != "raw":
            decoded_length = file.decoded_length(name, role)
            changed[role] = dataclasses.replace(component, decoded_length=decoded_length)
    if not changed:
        return tensor_object
    components = {**tensor_object.components, **changed}
    return dataclasses.replace(tensor_object, components=components)


def _is_portable(tensor_object: TensorObject, role: str) -> bool:
    """Return whether a component's decoded bytes are as 1.2 has them."""
    component = tensor_object.components[role]
    return (
        component.byte_order == "little"
        and not component.has_free_bools
        and not component.is_exact  # its digest, and where it may lie, are those of 2.x
        and not (component.dtype != "u64" and _is_index(tensor_object, role))
    )


def _is_index(tensor_object: TensorObject, role: str) -> bool:
    layout = LAYOUTS.get(tensor_object.format)
    return layout is not None and role in layout.index_roles
