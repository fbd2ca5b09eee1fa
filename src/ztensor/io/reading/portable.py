"""Objects for a copy into another container: stored bytes if they mean the same, else decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import LayoutError, NotRepresentableError, Reason
from ztensor.io.reading.file import FileObjects
from ztensor.spec.container import EMITTERS, Emitter
from ztensor.spec.container.framing import FORM_1, Form
from ztensor.spec.layout import LAYOUTS, View
from ztensor.spec.layout.elements import Blocks, require_known
from ztensor.spec.layout.sparse import require_entries_once
from ztensor.spec.model.manifest import TensorObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ztensor.io.shards.objects import Objects
    from ztensor.io.tensor import Tensor


class Portable:
    """Describes the objects of any file in the form of one container.

    Args:
        form: the rules of the container for blobs; by default those of 1.x.
    """

    def __init__(self, form: Form = FORM_1) -> None:
        self.form = form

    def object(self, file: FileObjects, name: str) -> TensorObject:
        """Return the entry to write for an object: `stored` if possible, else `decoded`.

        Raises:
            ZTensorError: as `stored` and `decoded`.
        """
        return self.stored(file, name) or self.decoded(file, name)

    @staticmethod
    def version_of(objects: Objects) -> str:
        """Return the version for rewriting files: their own, or the latest.

        The latest if their own is read-only here or cannot represent all their content.
        """
        emitter = EMITTERS.older(max(file.version for file in objects.parts()))
        if objects.format != "zt" or emitter is None:
            return EMITTERS.latest
        portable = Portable(emitter.form)
        pairs = (
            (portable.object(file, name), file.object(name))
            for name in objects.names
            for file in (objects.part(name),)
        )
        return emitter.version if says_all(emitter, objects.attributes, pairs) else EMITTERS.latest

    def require_once(self, file: FileObjects, name: str) -> None:
        """Require sorted, distinct positions of a sparse object if the form does.

        Raises:
            NotRepresentableError: a position repeats or is out of order.
        """
        if self.form.is_exact and not file.object(name).entries_once:
            require_once(file.tensor(name, copy=False))

    def stored(self, file: FileObjects, name: str) -> TensorObject | None:
        """Return the entry of an object whose stored bytes can be copied unchanged.

        Returns:
            The entry, with the decoded length of compressed components. None if the object has to
            be decoded: big-endian data and bools of 0.1, indices of another type, 2.x data in 1.x
            or the reverse, encodings and digests of other formats.

        Raises:
            ObjectNotFoundError: no object of that name.
            UnsupportedError: an unknown layout of 0.1, or an unknown word of another format.
        """
        entry, components = _require_meaning(file, name), {}
        for role, part in entry.components.items():
            is_common, length = file.is_common(part.encoding), part.decoded_length
            is_own = not is_common and part.encoding in file.encodings
            has_own_digest = file.format != "zt" and part.digest is not None
            if is_own or has_own_digest or not _is_portable(entry, role, self.form):
                return None
            if is_common and part.encoding != "raw":
                length = file.decoded_length(name, role)
            components[role] = part._replace(decoded_length=length, shard=None)
        return entry._replace(components=components)

    def decoded(self, file: FileObjects, name: str) -> TensorObject:
        """Return the entry of an object once decoded: raw, little-endian, the form's index types.

        Offsets, lengths and digests are still the file's; the bytes come from `chunks`.

        Raises:
            ObjectNotFoundError: no object of that name.
            UnsupportedError: an unknown layout of 0.1, an unknown word of another format, or an
                unknown encoding that must be decoded for the form's digests.
        """
        form, entry = self.form, _require_meaning(file, name)
        components = dict(entry.components)
        for role, part in entry.components.items():
            if part.is_exact is not form.is_exact:  # decoded at least for the form's digests
                with file.located(name, role):
                    file.stored(part).encoding()
            if not _is_portable(entry, role, form):
                components[role] = part._replace(
                    dtype=part.dtype if _has_types(entry, role, form) else "u64",
                    byte_order="little",
                    nonzero_is_true=False,
                    digest_may_cover_decoded=False,
                    is_exact=form.is_exact,
                    shard=None,
                    encoding="raw" if part.encoding in form.encodings else part.encoding,
                    digest=None if form.is_exact else part.digest,
                )
        if components == entry.components:
            return entry
        once = form.is_exact and entry.format in ("sparse_csr", "sparse_coo")
        return entry._replace(components=components, entries_once=once)

    def chunks(self, file: FileObjects, name: str, role: str) -> Iterator[memoryview]:
        """Yield a component's bytes in the form that `decoded` describes.

        Raises:
            FormatError: a bool is neither 0 nor 1, which 2.x forbids.
            LayoutError: indices are not integers, or one is negative.
            ZTensorError: as `decoded_chunks`.
        """
        file.component_entry(name, role)
        if _has_types(file.object(name), role, self.form):
            chunks = file.decoded_chunks(name, role)
            yield from file.with_valid_bools(name, role, chunks) if self.form.is_exact else chunks
            return
        with file.located(name, role):
            for indices in file.elements(name, role):
                if indices.dtype.kind not in "iu" or int(indices.min()) < 0:
                    raise LayoutError(
                        "indices must be integers of at least 0",
                        reason=Reason.INDEX_DTYPE,
                        found=f"{indices.min()} of {indices.dtype.name}",
                    )
                yield from Blocks.of(indices.astype(np.uint64))


def _require_meaning(file: FileObjects, name: str) -> TensorObject:
    """Return an object's entry, and require that its bytes have a meaning outside their format."""
    entry = file.object(name)
    file.require_transparent(name, entry)
    if file.format != "zt":  # unknown words of zTensor files are kept, as later releases know them
        for role, part in entry.components.items():
            with file.located(name, role):
                require_known(part)
                file.stored(part).encoding()
    return entry


def require_once(tensor: Tensor) -> None:
    """Require that the positions of a sparse tensor are distinct and sorted.

    Raises:
        NotRepresentableError: a position repeats, or the columns of a row do not ascend.
    """
    if tensor.format not in ("sparse_csr", "sparse_coo") or not tensor.shape:
        return  # a scalar has no positions
    try:
        require_entries_once(tensor.format, View(tensor.shape, tensor.components, {}))
    except LayoutError as error:
        wrong = NotRepresentableError(
            f"{error.message}, which 2.x forbids",
            component=error.component,
            expected=error.expected,
            found=error.found,
            section=error.section,
        )
        wrong.hint = "add up duplicates and sort (in SciPy sum_duplicates())"
        raise wrong from error


def says_all(
    emitter: Emitter,
    attributes: Mapping[str, object],
    pairs: Iterable[tuple[TensorObject, TensorObject]],
) -> bool:
    """Return whether a version can represent objects.

    Args:
        emitter: writes manifests of the version.
        attributes: the file's attributes.
        pairs: (entry to write, entry of the file) of each object.
    """
    try:
        emitter.require_attributes(attributes)
        for new, old in pairs:
            emitter.require_object(new)
            # A later library appends to files of 1.1 what only 1.2 can say.
            if not emitter.form.is_exact and any(
                part.decoded_length is not None for part in old.components.values()
            ):
                return False
    except NotRepresentableError:
        return False
    return True


def _is_portable(tensor_object: TensorObject, role: str, form: Form) -> bool:
    """Return whether a component's stored bytes follow the rules of a form."""
    component = tensor_object.components[role]
    return (
        component.byte_order == "little"
        and not component.has_free_bools
        and component.is_exact is form.is_exact  # coverage of digests, alignment
        and component.encoding not in form.encodings
        and _has_types(tensor_object, role, form)
    )


def _has_types(tensor_object: TensorObject, role: str, form: Form) -> bool:
    """Return whether a component is not an index, or all indices have one type of the form."""
    layout = LAYOUTS.get(tensor_object.format)
    if layout is None or role not in layout.index_roles:
        return True
    components = tensor_object.components
    dtypes = {components[index].dtype for index in layout.index_roles if index in components}
    return components[role].dtype in form.indices and len(dtypes) == 1
