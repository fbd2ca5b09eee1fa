"""All tensors of a dict into one file: the mirror of `loading.py`."""

from __future__ import annotations

import io
import weakref
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ztensor.arguments import require_choice, require_function
from ztensor.digest import ALGORITHMS
from ztensor.errors import ArgumentTypeError, ArgumentValueError, NotRepresentableError, describe
from ztensor.layout.elements import blocks, spell
from ztensor.model.rules import ALIGNMENT, align
from ztensor.source.gathering import MOST_PIECES
from ztensor.tensor import no_mapping
from ztensor.writing.blob import pad
from ztensor.writing.creating import create
from ztensor.writing.rows import new_like

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Buffer

    from ztensor.layout.base import Array
    from ztensor.source.sink import FileSink
    from ztensor.source.stream import StreamSink
    from ztensor.writing.output import Output

# Arrays below this size go out together: one call of the system for hundreds of them.
_SMALL_BYTES = 1 << 20
_BATCH_BYTES = 16 << 20
_MOST_VALUES = MOST_PIECES // 2 - 1  # each may be followed by padding
_PADDING = [bytes(length) for length in range(ALIGNMENT)]


def attributes_given(
    metadata: Mapping[str, object] | None, attributes: Mapping[str, object] | None
) -> Mapping[str, object] | None:
    """Return a file's attributes, which safetensors calls metadata: callers use one of the words.

    Raises:
        ArgumentValueError: they use both.
    """
    if metadata is not None and attributes is not None:
        raise ArgumentValueError("metadata and attributes are the same; pass only one")
    return attributes if metadata is None else metadata


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
    total = 0
    if progress is not None:
        total = sum(getattr(value, "nbytes", 0) for value in tensors.values())
    done = 0
    names = _in_order(tensors)
    place = 0
    seen = _Seen(tensors, deduplicate) if deduplicate else None
    with create(target, attributes=metadata, format="zt", **options) as output:
        output.keeps_data = True
        for name in names:
            output.require_name(name)
        batch = _Batch(output, seen)
        while place < len(names):
            start, place = place, batch.take_run(names, place, tensors)
            if place == start:
                batch.flush()
                _write_one(output, names[place], tensors[names[place]], seen)
                place += 1
            if progress is not None:
                values = map(tensors.__getitem__, names[start:place])
                done += sum(getattr(value, "nbytes", 0) for value in values)
                progress(done, total)
        batch.flush()
    return output.shared


def saved_bytes(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, object] | None,
    *,
    attributes: Mapping[str, object] | None,
    **options: Any,
) -> bytes:
    """Return the file of a whole dict; see `save_all` and `attributes_given`."""
    buffer = io.BytesIO()
    save_all(tensors, buffer, attributes_given(metadata, attributes), **options)
    return buffer.getvalue()


def _write_one(output: Output, name: str, value: Any, seen: _Seen | None) -> None:
    first = None
    if seen is not None and type(value) is np.ndarray:
        first = seen.first(name, value)
    if first is None:
        output.write(name, value)
    else:
        output.share(name, first)


def _in_order(tensors: Mapping[str, Any]) -> list[str]:
    for kind in set(map(type, tensors)):
        if not issubclass(kind, str):
            wrong = next(name for name in tensors if not isinstance(name, str))
            raise ArgumentTypeError("an object's name is text", found=describe(wrong))
    return sorted(tensors)  # by code points, which is by UTF-8 bytes


class _Batch:
    """Small plain arrays on their way out together, at a tenth of the cost of one at a time.

    Args:
        output: a new file.
        seen: what is stored already; None to store everything.
    """

    def __init__(self, output: Output, seen: _Seen | None) -> None:
        self._seen = seen
        self._output = output
        self._sink = cast("FileSink | StreamSink", output.sink)  # that of a new file
        self._rows = output.rows
        self._alignment = output.form.alignment
        algorithm = output.algorithm
        self._digest = None if algorithm is None else algorithm.whole()
        self._kinds: dict[tuple[tuple[int, ...], np.dtype[Any]], int] = {}
        # Of each like: its bytes in the file with the padding behind it, that padding, and
        # whether NumPy lends its memory to the system, as it does not for types of ml_dtypes.
        self._lengths: list[int] = []
        self._paddings: list[bytes] = []
        self._is_lent: list[bool] = []
        self._firsts: list[dict[Any, Any]] = []  # of each like: what `seen` knows of its kind
        self._values: list[Buffer] = []

    def take_run(self, names: list[str], start: int, tensors: Mapping[str, Any]) -> int:
        """Take arrays from `start` on; return the place of the first that was not taken.

        It is one that has to be written by itself, or the batch is full. For fifty thousand small
        arrays this loop is half the time of saving: hence few calls.
        """
        rows, values, nbytes = self._rows, self._values, 0
        seen = None if self._seen is None or not self._seen.is_told_by_probe else self._seen
        for place in range(start, min(len(names), start + _MOST_VALUES - len(values))):
            name = names[place]
            value = tensors[name]
            if type(value) is not np.ndarray:
                return place
            look = value.shape, value.dtype
            kind = self._kinds.get(look)
            if kind is None:
                kind = self._kinds[look] = self._new_kind(value)
            if kind < 0 or not value.flags.c_contiguous:
                return place
            data: Any = value if self._is_lent[kind] else value.reshape(-1).view(np.uint8)
            digest = None if self._digest is None else self._digest(data)
            first = None
            if seen is not None:
                probe = digest or value.item(0)
                if probe != probe or self._firsts[kind].setdefault(probe, name) is not name:
                    first = seen.first(name, value, digest)
            elif self._seen is not None:
                first = self._seen.first(name, value)
            if first is not None:
                self.flush()
                self._output.share(name, first)
                values = self._values
                continue
            rows.digests.append(digest)
            rows.names.append(name)
            rows.kinds.append(kind)
            values.append(data)
            nbytes += self._lengths[kind]
            if nbytes > _BATCH_BYTES:
                break
        self.flush()
        return place + 1

    def flush(self) -> None:
        """Write what was taken; must be called before anything else is written."""
        if not self._values:
            return
        rows, values = self._rows, self._values
        kinds = rows.kinds[len(rows.offsets) :]
        start = self._sink.position
        if self._alignment > ALIGNMENT:
            self._flush_far()
            return
        offset = align(start)
        padding = _PADDING[offset - start]
        pieces: list[Buffer] = []
        for value, kind in zip(values, kinds, strict=True):
            if padding:
                pieces.append(padding)
            pieces.append(value)
            rows.offsets.append(offset)
            offset += self._lengths[kind]
            padding = self._paddings[kind]
        self._values = []
        # Not beside the next one's digests: those hold the interpreter, which the other thread
        # waits for longer than it writes.
        self._sink.write_all(pieces, offset - len(padding) - start)

    def _flush_far(self) -> None:
        """Write values on pages of their own; between them are holes where there can be."""
        for value in self._values:
            offset = align(self._sink.position, self._alignment)
            pad(self._sink, offset - self._sink.position)
            self._sink.write(memoryview(value).cast("B"))
            self._rows.offsets.append(offset)
        self._values = []

    def _new_kind(self, value: Array) -> int:
        """Return the place of a new like, or -1 where such arrays are written one by one."""
        like = new_like(self._output, value, _SMALL_BYTES - 1)
        if like < 0:
            return -1
        length = align(value.nbytes)
        self._lengths.append(length)
        self._paddings.append(_PADDING[length - value.nbytes])
        try:
            memoryview(value)  # type: ignore[arg-type]  # whether it is a buffer is asked here
        except ValueError:
            self._is_lent.append(False)
        else:
            self._is_lent.append(True)
        if self._seen is not None:
            self._firsts.append(self._seen.of_kind(value))
        return like


class _Seen:
    """Finds arrays that are stored already, under another name.

    Most arrays differ from all others of their shape and type in a probe, their digest or else
    their first element: only where they do not, it is asked where they lie, which costs more, or
    what is in them.

    Args:
        tensors: what is saved. A mapping may make its arrays when asked, as a reader does; where
            the first of two is gone, its address says nothing.
        by: "memory" or "content".

    Attributes:
        is_told_by_probe: an array whose probe no other of its kind has, and is no NaN, is new,
            and nothing but that has to be kept of it.
    """

    def __init__(self, tensors: Mapping[str, Any], by: str | bool) -> None:  # noqa: FBT001  # a word
        self._tensors = tensors
        self._by_content = by == "content"
        self._is_kept = self._by_content or isinstance(tensors, dict)
        self._alive: dict[str, weakref.ref[Array]] = {}
        self._kinds: dict[object, dict[Any, str | dict[object, str]]] = {}
        self.is_told_by_probe = self._is_kept and not self._by_content

    def of_kind(self, value: Array) -> dict[Any, str | dict[object, str]]:
        """Return the names of arrays of this shape and type by probe.

        Where several share that, by where they lie, or what is in them.
        """
        dtype = value.dtype.newbyteorder("=") if self._by_content else value.dtype
        return self._kinds.setdefault((value.shape, dtype), {})

    def first(self, name: str, value: Array, digest: str | None = None) -> str | None:
        """Return the name under which the array is stored already, or None."""
        if value.size == 0 or value.dtype.hasobject:
            return None
        names = self.of_kind(value)
        probe = digest or value.item(0)
        if probe != probe:  # a NaN is not equal to itself
            probe = None
        if not self._is_kept:
            self._alive[name] = weakref.ref(value)
        found = names.setdefault(probe, name)
        if found is name:
            return None
        if isinstance(found, str):
            first = self._array(found)
            found = names[probe] = {} if first is None else {self._place(first): found}
        place = self._place(value)
        other = found.setdefault(place, name)
        if other is name:
            return None
        if self._array(other) is None:
            found[place] = name
            return None
        return other

    def _array(self, name: str) -> Array | None:
        if self._is_kept:
            array: Array = self._tensors[name]
            return array
        return self._alive[name]()

    def _place(self, value: Array) -> object:
        if not self._by_content:
            return value.__array_interface__["data"][0], value.strides
        try:
            spell(value.dtype)
        except NotRepresentableError:
            return object()  # equal to nothing: the writer says what is wrong, with the name
        hasher = ALGORITHMS["sha256"].hasher()
        for block in blocks(value):
            hasher.update(block)
        return hasher.hexdigest()
