"""Objects as a container has them: their stored bytes where these mean the same, else decoded."""

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
    """How a container has the objects of any file.

    Args:
        form: what blobs of the container are like; by default as in 1.x.
    """

    def __init__(self, form: Form = FORM_1) -> None:
        self.form = form

    def object(self, file: FileObjects, name: str) -> TensorObject:
        """Return an object as it is copied: with its stored bytes where it can be, else decoded.

        Raises:
            ZTensorError: what `stored` and `decoded` raise.
        """
        return self.stored(file, name) or self.decoded(file, name)

    @staticmethod
    def version_of(objects: Objects) -> str:
        """Return the version files are rewritten in: their own, or the latest.

        The latest where their own is only read, or cannot say all that they say.
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
        """Raise where no position of a sparse object may come twice, and one does.

        Raises:
            NotRepresentableError: so it is.
        """
        if self.form.is_exact and not file.object(name).entries_once:
            require_once(file.tensor(name, copy=False))

    def stored(self, file: FileObjects, name: str) -> TensorObject | None:
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
        found, components = _require_meaning(file, name), {}
        for role, one in found.components.items():
            is_common, length = file.is_common(one.encoding), one.decoded_length
            is_own = not is_common and one.encoding in file.encodings
            has_own_digest = file.format != "zt" and one.digest is not None
            if is_own or has_own_digest or not _is_portable(found, role, self.form):
                return None
            if is_common and one.encoding != "raw":
                length = file.decoded_length(name, role)
            components[role] = one._replace(decoded_length=length, shard=None)
        return found._replace(components=components)

    def decoded(self, file: FileObjects, name: str) -> TensorObject:
        """Return an object as it is once decoded: raw, little-endian, indices of the form's types.

        Places, lengths and digests are those of the file; the bytes are `chunks`.

        Raises:
            ObjectNotFoundError: no object of that name.
            UnsupportedError: only an unknown layout of 0.1, or another format, tells what the
                bytes are; or an encoding is unknown, and digests cover something else in the form.
        """
        form, found = self.form, _require_meaning(file, name)
        components = dict(found.components)
        for role, one in found.components.items():
            if one.is_exact is not form.is_exact:  # decoded, for other digests at least
                with file.located(name, role):
                    file.stored(one).encoding()
            if not _is_portable(found, role, form):
                components[role] = one._replace(
                    dtype=one.dtype if _has_types(found, role, form) else "u64",
                    byte_order="little",
                    nonzero_is_true=False,
                    digest_may_cover_decoded=False,
                    is_exact=form.is_exact,
                    shard=None,
                    encoding="raw" if one.encoding in form.encodings else one.encoding,
                    digest=None if form.is_exact else one.digest,
                )
        if components == found.components:
            return found
        once = form.is_exact and found.format in ("sparse_csr", "sparse_coo")
        return found._replace(components=components, entries_once=once)

    def chunks(self, file: FileObjects, name: str, role: str) -> Iterator[memoryview]:
        """Yield `decoded_chunks` as the bytes that `decoded` speaks of.

        Raises:
            FormatError: a bool is neither 0 nor 1, which 2.x does not take.
            LayoutError: indices are no integers, or one is negative.
            ZTensorError: what `decoded_chunks` raises.
        """
        file.stated(name, role)
        if _has_types(file.object(name), role, self.form):
            chunks = file.decoded_chunks(name, role)
            yield from file.strict(name, role, chunks) if self.form.is_exact else chunks
            return
        with file.located(name, role):
            for indices in file.elements(name, role):
                if indices.dtype.kind not in "iu" or int(indices.min()) < 0:
                    raise LayoutError(
                        "indices are integers, none of them negative",
                        reason=Reason.INDEX_DTYPE,
                        found=f"{indices.min()} of {indices.dtype.name}",
                    )
                yield from Blocks.of(indices.astype(np.uint64))


def _require_meaning(file: FileObjects, name: str) -> TensorObject:
    """Return an object; raise where only the format it is from can tell what its bytes are."""
    found = file.object(name)
    file.require_transparent(name, found)
    if file.format != "zt":  # our own words are kept, also those of later releases
        for role, one in found.components.items():
            with file.located(name, role):
                require_known(one)
                file.stored(one).encoding()
    return found


def require_once(tensor: Tensor) -> None:
    """Raise where a position of a sparse tensor comes twice, or the columns of a row do not rise.

    Raises:
        NotRepresentableError: so it is.
    """
    if tensor.format not in ("sparse_csr", "sparse_coo") or not tensor.shape:
        return  # without a dimension there are no positions
    try:
        require_entries_once(tensor.format, View(tensor.shape, tensor.components, {}))
    except LayoutError as error:
        wrong = NotRepresentableError(
            f"{error.message}, which 2.x has not",
            component=error.component,
            expected=error.expected,
            found=error.found,
            section=error.section,
        )
        wrong.hint = "add up what is there twice, and sort (in SciPy sum_duplicates())"
        raise wrong from error


def says_all(
    emitter: Emitter,
    attributes: Mapping[str, object],
    pairs: Iterable[tuple[TensorObject, TensorObject]],
) -> bool:
    """Return whether a version can say objects: each as it will be written, and as it is now."""
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
