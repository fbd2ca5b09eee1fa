"""Objects as a container has them: their stored bytes where these mean the same, else decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import LayoutError, Reason
from ztensor.io.reading.file import FileObjects
from ztensor.spec.container import FORM_1, Form
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.layout.elements import blocks, checked_bools, typed_array, whole_elements
from ztensor.spec.model.manifest import TensorObject

if TYPE_CHECKING:
    from collections.abc import Iterator


def portable_object(file: FileObjects, name: str, form: Form = FORM_1) -> TensorObject:
    """Return an object as it is once decoded: raw, little-endian, indices of the types of a form.

    Places, lengths and digests are those of the file; the bytes are `portable_chunks`.

    Raises:
        ObjectNotFoundError: no object of that name.
        UnsupportedError: only an unknown layout of 0.1, or another format, tells what the
            bytes are; or an encoding is unknown, and digests cover something else in the form.
    """
    tensor_object = file.require_meaning(name)
    for role, component in tensor_object.components.items():
        if component.is_exact is not form.is_exact:  # decoded, for other digests at least
            with file.located(name, role):
                file.stored(component).encoding()
    changed = {
        role: component._replace(
            dtype=component.dtype if _has_types(tensor_object, role, form) else "u64",
            byte_order="little",
            nonzero_is_true=False,
            digest_may_cover_decoded=False,
            digest_covers_decoded=form.is_exact,
            is_exact=form.is_exact,
            shard=None,
            encoding="raw" if component.encoding in form.encodings else component.encoding,
            digest=None if form.is_exact else component.digest,
        )
        for role, component in tensor_object.components.items()
        if not _is_portable(tensor_object, role, form)
    }
    if not changed:
        return tensor_object
    components = {**tensor_object.components, **changed}
    once = form.is_exact and tensor_object.format in ("sparse_csr", "sparse_coo")
    return tensor_object._replace(components=components, entries_once=once)


def portable_chunks(
    file: FileObjects, name: str, role: str, form: Form = FORM_1
) -> Iterator[memoryview]:
    """Yield `decoded_chunks` as the bytes that `portable_object` speaks of.

    Raises:
        FormatError: a bool is neither 0 nor 1, which 2.x does not take.
        LayoutError: indices are no integers, or one is negative.
        ZTensorError: what `decoded_chunks` raises.
    """
    file.location(name, role)
    chunks = file.decoded_chunks(name, role)
    tensor_object = file.object(name)
    component = tensor_object.components[role]._replace(byte_order="little")
    if _has_types(tensor_object, role, form):
        is_checked = form.is_exact and component.dtype == "bool"
        with file.located(name, role):
            yield from checked_bools(chunks) if is_checked else chunks
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


def stored_object(file: FileObjects, name: str, form: Form = FORM_1) -> TensorObject | None:
    """Return an object whose stored bytes can be copied into a file of another container.

    Returns:
        The object, compressed components with their decoded length; None where the bytes
        mean something else there and the object has to be decoded: big-endian data and bools
        of 0.1, indices of another type, whatever is of 2.x where that is not or the reverse,
        what only another format knows to decode, or to check.

    Raises:
        ObjectNotFoundError: no object of that name.
        UnsupportedError: only an unknown layout of 0.1, or another format, tells what the
            bytes are.
    """
    tensor_object = file.require_meaning(name)
    changed = {}
    for role, component in tensor_object.components.items():
        has_foreign_digest = file.format != "zt" and component.digest is not None
        is_common = file.is_common(component.encoding)
        is_unknown = component.encoding not in file.encodings
        if not _is_portable(tensor_object, role, form) or has_foreign_digest:
            return None
        if not is_common and not is_unknown:
            return None
        if is_common and component.encoding != "raw":
            decoded_length = file.decoded_length(name, role)
            changed[role] = component._replace(decoded_length=decoded_length)
        if component.shard is not None:
            changed[role] = changed.get(role, component)._replace(shard=None)
    if not changed:
        return tensor_object
    components = {**tensor_object.components, **changed}
    return tensor_object._replace(components=components)


def _is_portable(tensor_object: TensorObject, role: str, form: Form) -> bool:
    """Return whether a component's bytes are as a form has them."""
    component = tensor_object.components[role]
    return (
        component.byte_order == "little"
        and not component.has_free_bools
        and component.is_exact is form.is_exact  # what its digest covers, and where it may lie
        and component.encoding not in form.encodings
        and _has_types(tensor_object, role, form)
    )


def _has_types(tensor_object: TensorObject, role: str, form: Form) -> bool:
    """Return whether a component is no index, or all indices are of one type of a form."""
    layout = LAYOUTS.get(tensor_object.format)
    if layout is None or role not in layout.index_roles:
        return True
    components = tensor_object.components
    found = {components[one].dtype for one in layout.index_roles if one in components}
    return components[role].dtype in form.indices and len(found) == 1
