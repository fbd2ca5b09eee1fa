"""Objects into memory that is not ours: arrays of the caller, and what a framework copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.io.frameworks import adapter_of
from ztensor.spec.layout.elements import result_dtype

if TYPE_CHECKING:
    from ztensor.io.reading.file import FileObjects


def fill(file: FileObjects, name: str, target: Any) -> None:
    """Fill an array of the caller with a dense object; see `Reader.read_into`.

    Args:
        file: an open file.
        name: an object of it.
        target: a writable array, or what a framework has in its place.

    Raises:
        ArgumentValueError: it has another shape, or is read-only.
        ArgumentTypeError: it has another element type, or is no array.
        ObjectNotFoundError: no object of that name.
        FormatError: the stored bytes are damaged.
    """
    tensor_object = file.require_dense(name)
    with file.located(name, "data"):
        framework: Any = adapter_of(target)
        if hasattr(framework, "fill"):
            framework.fill(file, name, target)
            return
        if not isinstance(target, np.ndarray):
            raise ArgumentTypeError(
                "read_into fills an array", expected="numpy.ndarray", found=describe(target, 40)
            )
        target = np.asarray(target)  # a matrix, for one, cannot be filled flat
        component = tensor_object.components["data"]
        dtype = result_dtype(component)
        fits = target.dtype.newbyteorder("=") == dtype
        if target.shape != tensor_object.shape or not fits:
            kind = ArgumentValueError if fits else ArgumentTypeError
            raise kind(
                "the array does not fit the object",
                expected=f"shape {describe(tensor_object.shape)} of {dtype.name}",
                found=f"shape {target.shape} of {target.dtype.name}",
            )
        if not target.flags.writeable:
            raise ArgumentValueError("the array is read-only")
        stored = file.stored(component)
        is_plain = target.flags.c_contiguous and target.dtype.isnative and target.size > 0
        if is_plain and stored.is_in_place(target.nbytes):
            stored.fill(target.reshape(-1).view(np.uint8).data)
        else:
            target[...] = file.array(name, copy=True)


def require_copied(file: FileObjects, name: str) -> None:
    """Check the digests of an object of which views were read, and whose bytes are copied then.

    Nothing is checked twice: what was decoded, or was read into new memory, was checked meanwhile,
    and so are views where `verify` is True. Where it is False nothing is checked.

    Raises:
        DigestMismatchError: a digest does not match.
        SourceError: the bytes could not be read.
    """
    if file.verify is not None or file.source.view() is None:
        return
    for role, component in file.object(name).components.items():
        if component.encoding == "raw":
            with file.located(name, role):
                file.stored(component).check(once=True)
