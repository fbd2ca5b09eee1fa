"""Any reader's objects and attributes as a safetensors file."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from ztensor.errors import NotRepresentableError, describe
from ztensor.ext import ObjectReader, Sink
from ztensor.formats.parts import Part, Pouring, parts_of
from ztensor.formats.safetensors.types import METADATA, MOST_HEADER, RANKS, WORDS, length_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_MOST_BLANK = 1 << 16  # bytes of blanks that stay where a header becomes shorter


def export(
    reader: ObjectReader,
    sink: Sink,
    *,
    lose: Callable[[str | None, str], None],
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> int:
    """Write a reader's objects: the same bytes as the format's own library writes.

    Elements of a type that the format lacks are written as their storage type. An object that is
    not dense becomes one tensor for each component, named `name.role`. Attributes of the file go to
    `__metadata__`, as JSON unless they are text; attributes of objects are lost.

    For arguments and other errors see `FormatModule.export`.

    Raises:
        NotRepresentableError: the header would be longer than the format allows.
    """
    parts = written_parts(reader, lose)
    parts.sort(key=lambda part: (-RANKS[WORDS[part.dtype, part.type]], part.name))
    metadata = {key: _as_text(key, value, lose) for key, value in sorted(reader.attributes.items())}
    at = 0
    rows = []
    for part in parts:
        rows.append((part.name, WORDS[part.dtype, part.type], part.shape, at, at + part.nbytes))
        at += part.nbytes
    sink.write(header_of(metadata, rows))
    with Pouring(sink, parts, progress, threads) as pouring:
        for part in parts:
            pouring.write(part)
    return len({part.object_name for part in parts})


def written_parts(reader: ObjectReader, lose: Callable[[str | None, str], None]) -> list[Part]:
    """Return the objects of a reader as arrays that the format can hold, in its order.

    Args:
        reader: an open reader.
        lose: called with losses.

    Raises:
        ZTensorError: as `parts_of`.
    """
    written = []
    for part in parts_of(reader, lose):
        if part.name == METADATA:
            lose(part.object_name, "left out: the format reserves the name")
            continue
        word = WORDS.get((part.dtype, part.type))
        if word is None or part.nbytes != length_of(word, part.shape):
            lose(part.object_name, f"{describe(part.type)} is written as its {part.dtype} elements")
            part = part.in_storage()  # noqa: PLW2901
        written.append(part)
    return written


def header_of(
    metadata: Mapping[str, str],
    rows: Iterable[tuple[str, str, Sequence[int], int, int]],
    start: int = 8,
    step: int = 8,
) -> bytes:
    """Return the header with its length, filled so that the data begins at a multiple of 8.

    Args:
        metadata: key-value pairs; empty writes none.
        rows: name, type, shape, first byte and end of each tensor.
        start: where the data should begin, a multiple of 8: it begins there if the header fills
            most of the room before, else some multiples of `step` away from there.
        step: a multiple of 8.

    Raises:
        NotRepresentableError: the header would be longer than the format allows.
    """
    header: dict[str, object] = {METADATA: metadata} if metadata else {}
    for name, word, shape, *offsets in rows:
        header[name] = {"dtype": word, "shape": shape, "data_offsets": offsets}
    data = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    least = 8 + len(data) + -len(data) % 8
    if not 0 <= start - least <= _MOST_BLANK:
        start = least + (start - least) % step
    if start - 8 > MOST_HEADER:
        raise NotRepresentableError(
            "the header would be longer than safetensors allows; write several files",
            expected=f"at most {MOST_HEADER} bytes",
            found=str(start - 8),
        )
    return struct.pack("<Q", start - 8) + data + b" " * (start - 8 - len(data))


def _as_text(key: str, value: object, lose: Callable[[str | None, str], None]) -> str:
    if isinstance(value, str):
        return value
    lose(None, f"the attribute {describe(key)} is not text and is written as JSON")
    return json.dumps(value, ensure_ascii=False, skipkeys=True, default=_plain)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
