"""Write all tensors of a dict to one file: the mirror of `loading.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.arguments import require_choice, require_function
from ztensor.io.source.sink import sink_of
from ztensor.io.writing.writer import Writer
from ztensor.registry import Registry
from ztensor.spec.digest import ALGORITHMS
from ztensor.spec.layout.elements import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.accepted import Durable
    from ztensor.spec.layout.base import Array


# Writers of dicts in other formats.
EXPORTERS: Registry[str, Callable[..., None]] = Registry(
    {"dict": "ztensor.formats.saving:write_dict"}
)


def save_all(
    tensors: Mapping[str, Any],
    target: Any,
    metadata: Mapping[str, object] | None,
    progress: Callable[[int, int], None] | None = None,
    deduplicate: str | bool = "memory",  # noqa: FBT001  # one of three words
    **options: Any,
) -> dict[str, str]:
    """Write a dict in the order of its names; return the names that share bytes, with their alias.

    Args:
        tensors: names to NumPy arrays or `Tensor`s, all in memory until this returns.
        target: a path, or a file object open for writing bytes.
        metadata: key-value pairs of the file.
        progress: called with the bytes of tensors written so far and of all of them.
        deduplicate: "memory", "content" or False; see `ztensor.numpy.save_file`.
        options: of `ztensor.Writer`.

    Raises:
        NotRepresentableError: a tensor cannot be held by the version.
        ArgumentTypeError: a name is not text.
        ArgumentValueError: an argument has an unknown value.
        SourceError: the file could not be written; an old file is kept.
    """
    require_choice("deduplicate", deduplicate, ("memory", "content", False))
    require_function("progress", progress)
    total = done = 0
    if progress is not None:
        total = sum(getattr(value, "nbytes", 0) for value in tensors.values())
    stored = _Stored(tensors, by_content=deduplicate == "content") if deduplicate else None
    with Writer(target, attributes=metadata, format="zt", **options) as writer:
        for name in sorted(tensors, key=str):  # by code points, which is by UTF-8 bytes
            value = tensors[name]
            alias = None
            if stored is not None and type(value) is np.ndarray:
                alias = stored.alias_of(name, value)
            if alias is None:
                writer.write(name, value)
            else:
                writer.share(name, alias)
            if progress is not None:
                done += getattr(value, "nbytes", 0)
                progress(done, total)
    return writer.shared


def save_as(
    kind: str,
    tensors: Mapping[str, Any],
    target: Any,
    metadata: Mapping[str, object] | None,
    progress: Callable[[int, int], None] | None = None,
    *,
    deduplicate: str | bool = False,
    durable: Durable = "auto",
    **options: Any,
) -> dict[str, str]:
    """Write a dict as one file of another format, atomically; else as `save_all`.

    The result is empty, since no names share bytes.

    Args:
        kind: the format.
        tensors: likewise, like the next three.
        target: likewise.
        metadata: likewise.
        progress: likewise.
        deduplicate: ignored.
        durable: as in `SaveOptions`.
        options: of a zTensor file: all must be defaults.

    Raises:
        NotRepresentableError: the format cannot hold a tensor, a name or the metadata.
        ArgumentValueError: an option is set that only a zTensor file has.
        SourceError: the file could not be written; an old file is kept.
    """
    del deduplicate
    sink = sink_of(target, durable=durable)
    try:
        EXPORTERS["dict"](kind, tensors, sink, metadata, progress, **options)
        sink.commit()
    finally:
        sink.abort()
    return {}


class _Stored:
    """Finds aliases: arrays that were stored before under another name.

    Most arrays differ from all others of their shape and type in the first element. Only the other
    ones are compared by their memory, or by their content, which takes longer.

    Args:
        tensors: all tensors of the file.
        by_content: whether arrays of equal bytes are aliases; else those over the same memory.
    """

    def __init__(self, tensors: Mapping[str, Any], *, by_content: bool) -> None:
        self._tensors, self._by_content = tensors, by_content
        self._firsts: dict[object, str] = {}
        self._alike: dict[object, dict[object, str]] = {}

    def alias_of(self, name: str, array: Array) -> str | None:
        """Return the name that an array was stored under; None if it is new (it is then noted)."""
        if not array.size or array.dtype.hasobject:
            return None
        dtype = array.dtype.newbyteorder("=") if self._by_content else array.dtype
        element = array.item(0)
        key = array.shape, dtype, element if element == element else "NaN"
        first = self._firsts.setdefault(key, name)
        if first is name:
            return None
        if key not in self._alike:
            self._alike[key] = {self._identity(self._tensors[first]): first}
        alike, identity = self._alike[key], self._identity(array)
        alias = alike.get(identity)
        # A mapping may make arrays on request, this one in the freed memory of another.
        if alias is not None and (
            self._by_content or self._identity(self._tensors[alias]) == identity
        ):
            return alias
        alike[identity] = name
        return None

    def _identity(self, array: Array) -> object:
        """Return a key that aliases have in common."""
        if self._by_content:
            return ALGORITHMS["sha256"].of(Blocks.of(array))
        return array.__array_interface__["data"][0], array.strides
