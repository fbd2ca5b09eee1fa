"""All tensors of a dict into one file: the mirror of `loading.py`."""

from __future__ import annotations

import io
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.arguments import require_choice, require_function
from ztensor.errors import ArgumentTypeError, describe
from ztensor.io.tensor import no_mapping
from ztensor.io.writing.writer import Writer
from ztensor.spec.digest import ALGORITHMS, digest_of
from ztensor.spec.layout.elements import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.spec.layout.base import Array


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
    require_choice("deduplicate", deduplicate, ("memory", "content", False))
    require_function("progress", progress)
    if not hasattr(tensors, "items"):
        raise no_mapping(tensors, "arrays")
    total = done = 0
    if progress is not None:
        total = sum(getattr(value, "nbytes", 0) for value in tensors.values())
    names = _in_order(tensors)
    written = _Contents(tensors) if deduplicate == "content" else _Memory()
    with Writer(target, attributes=metadata, format="zt", **options) as writer:
        for name in names:
            value = tensors[name]
            alias = None
            if deduplicate and type(value) is np.ndarray and value.size:
                alias = written.alias_of(name, value)
            if alias is None:
                writer.write(name, value)
            else:
                writer.share(name, alias)
            if progress is not None:
                done += getattr(value, "nbytes", 0)
                progress(done, total)
    return writer.shared


def saved_bytes(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, object] | None,
    **options: Any,
) -> bytes:
    """Return the file of a whole dict; see `save_all`."""
    buffer = io.BytesIO()
    save_all(tensors, buffer, metadata, **options)
    return buffer.getvalue()


def _in_order(tensors: Mapping[str, Any]) -> list[str]:
    for kind in set(map(type, tensors)):
        if not issubclass(kind, str):
            wrong = next(name for name in tensors if not isinstance(name, str))
            raise ArgumentTypeError("an object's name is text", found=describe(wrong))
    return sorted(tensors)  # by code points, which is by UTF-8 bytes


class _Memory:
    """Finds arrays over the same memory as one that was written."""

    def __init__(self) -> None:
        # A mapping may make its arrays when asked: the address of one that is gone says nothing.
        self._written: dict[object, tuple[str, weakref.ref[Array]]] = {}

    def alias_of(self, name: str, array: Array) -> str | None:
        """Return the name under which an array was written, or None: then it will be as `name`."""
        address = array.__array_interface__["data"][0]
        key = address, array.shape, array.strides, array.dtype
        alias, reference = self._written.get(key, (None, None))
        if reference is None or reference() is None:
            self._written[key] = name, weakref.ref(array)
            return None
        return alias


class _Contents:
    """Finds arrays of the same bytes as one that was written.

    Most arrays differ from all others of their shape and type in the first element; only others are
    hashed.

    Args:
        tensors: what is saved.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._firsts: dict[object, str] = {}
        self._alike: dict[object, dict[str, str]] = {}

    def alias_of(self, name: str, array: Array) -> str | None:
        """Return the name under which an array was written, or None: then it will be as `name`."""
        if array.dtype.hasobject:
            return None  # the writer says what is wrong, with the name
        element = array.item(0)
        dtype = array.dtype.newbyteorder("=")
        look = array.shape, dtype, element if element == element else "NaN"
        first = self._firsts.setdefault(look, name)
        if first == name:
            return None
        if look not in self._alike:
            self._alike[look] = {_digest_of(self._tensors[first]): first}
        alias = self._alike[look].setdefault(_digest_of(array), name)
        return None if alias == name else alias


def _digest_of(array: Array) -> str:
    return digest_of(ALGORITHMS["sha256"], blocks(array))
