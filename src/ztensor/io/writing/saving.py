"""All tensors of a dict into one file: the mirror of `loading.py`."""

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


# What writes a dict as a file of a format that is not ours.
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
        ArgumentTypeError: a name is no text.
        ArgumentValueError: an argument has an unknown value.
        SourceError: the file could not be written. What was there before still is.
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
    """Write a whole dict as one file of another format, or nothing; else as `save_all`.

    No name shares the bytes of another one, so what is returned is empty.

    Args:
        kind: the format; one that is written.
        tensors: likewise, like the next three.
        target: likewise.
        metadata: likewise.
        progress: likewise.
        deduplicate: means nothing here.
        durable: as in `SaveOptions`.
        options: of a zTensor file: they must say nothing.

    Raises:
        NotRepresentableError: the format cannot say a tensor, a name or the metadata.
        ArgumentValueError: an option only a zTensor file has is set.
        SourceError: the file could not be written. What was there before still is.
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
    """Finds arrays that are stored already, under another name.

    Most arrays differ from all others of their shape and type in the first element. Only for others
    it is asked where they are in memory, or what is in them, which takes longer.

    Args:
        tensors: what is saved.
        by_content: whether arrays of equal bytes are one; else those over the same memory.
    """

    def __init__(self, tensors: Mapping[str, Any], *, by_content: bool) -> None:
        self._tensors, self._by_content = tensors, by_content
        self._firsts: dict[object, str] = {}
        self._alike: dict[object, dict[object, str]] = {}

    def alias_of(self, name: str, array: Array) -> str | None:
        """Return the name under which an array is stored, or None; then it will be as `name`."""
        if not array.size or array.dtype.hasobject:
            return None
        dtype = array.dtype.newbyteorder("=") if self._by_content else array.dtype
        element = array.item(0)
        look = array.shape, dtype, element if element == element else "NaN"
        first = self._firsts.setdefault(look, name)
        if first is name:
            return None
        if look not in self._alike:
            self._alike[look] = {self._identity(self._tensors[first]): first}
        alike, identity = self._alike[look], self._identity(array)
        alias = alike.get(identity)
        # A mapping may make its arrays when asked: this one where another was that is gone.
        if alias is not None and (
            self._by_content or self._identity(self._tensors[alias]) == identity
        ):
            return alias
        alike[identity] = name
        return None

    def _identity(self, array: Array) -> object:
        """Return what arrays of one shape and type have in common that are stored once."""
        if self._by_content:
            return ALGORITHMS["sha256"].of(Blocks.of(array))
        return array.__array_interface__["data"][0], array.strides
