"""All tensors of a dict into one file: the mirror of `loading.py`."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.blob import blocks
from ztensor.digest import ALGORITHMS
from ztensor.errors import ArgumentTypeError, ArgumentValueError, NotRepresentableError, describe
from ztensor.layout.elements import spell
from ztensor.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def save_all(
    tensors: Mapping[str, Any],
    target: Any,
    metadata: Mapping[str, object] | None,
    progress: Callable[[int, int], None] | None = None,
    deduplicate: str | bool = "memory",  # noqa: FBT001  # one of three words
    **options: Any,
) -> dict[str, str]:
    """Write a whole dict in order of its names; return which names share whose bytes.

    Args:
        tensors: names to NumPy arrays or `Tensor`s, all in memory until this returns.
        target: a path, or a file object open for writing bytes.
        metadata: key-value pairs of the file.
        progress: called with the bytes of tensors written so far and of all of them.
        deduplicate: "memory", "content" or False; see `ztensor.numpy.save_file`.
        options: of `ztensor.Writer`.

    Raises:
        NotRepresentableError: a tensor cannot be held by the version.
        ArgumentTypeError: `tensors` is no mapping.
        ArgumentValueError: an argument has an unknown value.
        SourceError: the file could not be written. What was there before still is.
    """
    if deduplicate not in ("memory", "content", False):
        raise ArgumentValueError(
            "unknown value for deduplicate",
            expected="'memory', 'content' or False",
            found=describe(deduplicate),
        )
    if not hasattr(tensors, "items"):
        raise ArgumentTypeError(
            "tensors must be a mapping from names to arrays", found=describe(tensors, 40)
        )
    total = 0
    if progress is not None:
        total = sum(getattr(value, "nbytes", 0) for value in tensors.values())
    done = 0
    first_of: dict[tuple[Any, ...], tuple[str, weakref.ref[Any]]] = {}
    with Writer(target, attributes=metadata, **options) as writer:
        writer._keeps_data = True
        for name in sorted(tensors, key=_sort_key):
            value = tensors[name]
            key = _identity(value, deduplicate) if deduplicate else None
            first = None if key is None else first_of.get(key)
            # A mapping may make its arrays when asked, as a reader does: where the first one is
            # gone, its address says nothing.
            if first is not None and (deduplicate == "content" or first[1]() is not None):
                writer.share(name, first[0])
            else:
                writer.write(name, value)
                if key is not None:
                    first_of[key] = name, weakref.ref(value)
            if progress is not None:
                done += getattr(value, "nbytes", 0)
                progress(done, total)
    return writer.shared


def _identity(value: Any, by: str | bool) -> tuple[Any, ...] | None:  # noqa: FBT001  # one of two words
    """Return what tells whether two living arrays are one; None where that cannot be told."""
    if not isinstance(value, np.ndarray) or value.size == 0 or value.dtype.hasobject:
        return None
    if by == "content":
        try:
            spell(value.dtype)
        except NotRepresentableError:
            return None  # the writer says so, with the name
        hasher = ALGORITHMS["sha256"].hasher()
        for block in blocks(value):
            hasher.update(block)
        return value.dtype.newbyteorder("="), value.shape, hasher.hexdigest()
    address = value.__array_interface__["data"][0]
    return address, value.dtype, value.shape, value.strides


def _sort_key(name: object) -> bytes:
    # A name that is no text is refused by the writer, with the place in its message.
    return str(name).encode("utf-8", "surrogatepass")
