"""A dict of tensors as a file of another format, through the exporter of that format."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, NoReturn

from ztensor.errors import ArgumentValueError, NotRepresentableError, describe
from ztensor.io.formats import FORMATS
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.opened import read_manifest
from ztensor.io.reading.reader import ObjectReader
from ztensor.io.source.base import Source
from ztensor.io.source.sink import sink_of
from ztensor.io.writing.saving import save_all
from ztensor.limits import DEFAULT_LIMITS
from ztensor.spec.container import LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Buffer

    from ztensor.accepted import Durable


# What options of zTensor files are where they say nothing; digests are in none of these formats.
_NOTHING: dict[str, tuple[object, ...]] = {
    "compression": (False,),
    "chunk_rows": (None,),
    "checksum": (True, "crc32c", "none", None, False),
    "version": (LATEST,),
    "alignment": (None,),
    "canonical": (False,),
}


def save_as(
    kind: str,
    tensors: Mapping[str, Any],
    target: Any,
    metadata: Mapping[str, object] | None,
    progress: Callable[[int, int], None] | None = None,
    *,
    deduplicate: str | bool = False,
    durable: Durable = "auto",
    **options: object,
) -> dict[str, str]:
    """Write a whole dict as one file of another format, or nothing.

    Args:
        kind: the format; one that has an `export`.
        tensors: names to NumPy arrays or `Tensor`s, all in memory until this returns.
        target: a path, or a file object open for writing bytes.
        metadata: key-value pairs of the file.
        progress: called with the bytes of tensors written so far and of all of them.
        deduplicate: means nothing: these formats store each name's bytes.
        durable: as in `SaveOptions`.
        options: of a zTensor file: they must say nothing.

    Returns:
        Nothing, as no name shares the bytes of another one.

    Raises:
        NotRepresentableError: the format cannot say a tensor, a name or the metadata.
        ArgumentValueError: an option only a zTensor file has is set.
        SourceError: the file could not be written. What was there before still is.
    """
    del deduplicate
    for name, value in options.items():
        if (type(value), value) not in [(type(one), one) for one in _NOTHING[name]]:
            raise ArgumentValueError(
                f"{name} is an option of zTensor files, not of {kind} files",
                expected=f'a path that ends with .zt, or format="zt", or no {name}',
                found=describe(value),
            )
    held = _Held()
    save_all(tensors, held, metadata, None, deduplicate=False, checksum=None)
    _, manifest = read_manifest(held, DEFAULT_LIMITS)
    reader = ObjectReader(FileObjects(held, manifest, verify=False))
    sink = sink_of(target, durable=durable)

    def refuse(name: str | None, sentence: str) -> NoReturn:
        raise NotRepresentableError(
            f"a {kind} file cannot say this: {sentence}", file=sink.name, object_name=name
        )

    try:
        FORMATS[kind].loaded().export(reader, sink, lose=refuse, progress=progress)
        sink.commit()
    except BaseException:
        sink.abort()
        raise
    return {}


class _Held(Source):
    """What a writer wrote, as a source: pieces of memory, most of them the caller's own arrays."""

    name = "<tensors>"

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []
        self._starts: list[int] = []
        self.size = 0

    def write(self, data: Buffer) -> int:
        piece = memoryview(data).cast("B")
        self._starts.append(self.size)
        self._pieces.append(piece)
        self.size += piece.nbytes
        return piece.nbytes

    def read_into(self, offset: int, destination: memoryview) -> None:
        number = bisect.bisect_right(self._starts, offset) - 1
        done = 0
        while done < destination.nbytes:
            start = offset + done - self._starts[number]
            part = self._pieces[number][start : start + destination.nbytes - done]
            destination[done : done + part.nbytes] = part
            done += part.nbytes
            number += 1
