"""A dict of tensors as a file of a format, through the exporter of that format."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, NoReturn

import ztensor
from ztensor.errors import NotRepresentableError
from ztensor.ext import FORMATS, FileObjects, Manifest, ObjectReader, Sink, Source
from ztensor.options import require_nothing_of_zt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Buffer


def write_dict(
    kind: str,
    tensors: Mapping[str, Any],
    sink: Sink,
    metadata: Mapping[str, object] | None,
    progress: Callable[[int, int], None] | None = None,
    **options: object,
) -> None:
    """Write a whole dict as one file of a format.

    Args:
        kind: the format; it must be written.
        tensors: names to NumPy arrays or `Tensor`s, all in memory until this returns.
        sink: takes the bytes; finished by the caller.
        metadata: key-value pairs of the file.
        progress: called with the bytes of tensors written so far and of all of them.
        options: options of a zTensor file, which must have their defaults.

    Raises:
        NotRepresentableError: the format cannot represent a tensor, a name or the metadata.
        ArgumentValueError: an option that only zTensor files have is set.
        SourceError: the bytes could not be stored.
    """
    require_nothing_of_zt(kind, options)
    reader = reader_of(tensors, metadata)

    def refuse(name: str | None, sentence: str) -> NoReturn:
        raise NotRepresentableError(
            f"a {kind} file cannot represent this: {sentence}", file=sink.name, object_name=name
        )

    FORMATS[kind].loaded().export(reader, sink, lose=refuse, progress=progress)


def reader_of(
    tensors: Mapping[str, Any], metadata: Mapping[str, object] | None = None
) -> ObjectReader:
    """Return a reader over arrays in memory, which must not change while it is used.

    Raises:
        NotRepresentableError: a zTensor file cannot hold a tensor, a name or the metadata.
    """
    held = _Held()
    with ztensor.Writer(held, attributes=metadata, checksum=None) as writer:
        for name in sorted(tensors, key=str):
            writer.write(name, tensors[name])
    draft = writer.draft
    manifest = Manifest(draft.version, draft.objects, draft.attributes)
    return ObjectReader(FileObjects(held, manifest, verify=False))


class _Held(Source):
    """The output of a writer as a source: views of memory, most of them of the caller's arrays."""

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
