"""A new file as a header, ranges of the old file and new tensors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ztensor.errors import Reason, SourceError
from ztensor.ext import Place, Source, source_of
from ztensor.formats.editing.header import Header, Item
from ztensor.formats.parts import Part, Pouring
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.typing import Durable, Progress

BLOCK_BYTES = 4096  # of file systems that share them between files
_PIECE_BYTES = 4 << 20  # read at once to compare


class Piece(NamedTuple):
    """Bytes of the new file after its header.

    Attributes:
        start: the offset in the new file.
        length: the length.
        place: the offset in the old file, if `part` is None.
        part: the new tensor that the bytes are from, or None.
    """

    start: int
    length: int
    place: int
    part: Part | None = None


class Plan(NamedTuple):
    """A new file.

    Attributes:
        kind: parses the header.
        head: the new header, with its padding.
        pieces: the bytes after it, with zeros between them.
        nbytes: the length of the file.
    """

    kind: type[Header]
    head: bytes
    pieces: list[Piece]
    nbytes: int

    @classmethod
    def of(cls, header: Header, items: Mapping[str, Item]) -> Plan:
        """Return the plan for these tensors, which are in the order of the new header.

        The key-value pairs of `header` are dropped: to check the new file they are parsed again,
        and the memory budget is for one copy.

        Raises:
            NotRepresentableError: the header would be too long.
        """
        names, step, at = header.ordered(items), header.alignment, 0
        offsets = {}
        for name in names:
            offsets[name] = at
            at += -(-items[name].length // step) * step
        if names and (last := items[names[-1]]).is_end(header.size):
            at = offsets[names[-1]] + last.length  # its length may be known from the end only
        head = header.emit(items, offsets)
        header.attributes.clear()
        pieces: list[Piece] = []
        for name in (name for name in names if items[name].length):
            item = items[name]
            piece = Piece(len(head) + offsets[name], item.length, item.place, item.part)
            if pieces and _follows(pieces[-1], piece, step):
                length = piece.start + piece.length - pieces[-1].start
                pieces[-1] = pieces[-1]._replace(length=length)
            else:
                pieces.append(piece)
        return cls(type(header), head, pieces, len(head) + at)

    @property
    def kept(self) -> list[Piece]:
        """Return the pieces that the old file has, too."""
        return [piece for piece in self.pieces if piece.part is None]

    def put(
        self,
        old: Source,
        place: Place,
        check: Callable[[], None],
        *,
        durable: Durable,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        """Write the file, compare it with the plan and the old file, and put it in place.

        Args:
            old: the old file.
            place: the target.
            check: called before the file gets its name; an error leaves the target as it is.
            durable: see `ztensor.typing.EditOptions`.
            dry_run: True takes every step but writing.
            progress: called with the bytes written so far and in all.

        Raises:
            FormatError: stored bytes of a new tensor are damaged.
            SourceError: bytes could not be read or written; the target is as it was.
        """

        def compared(path: str) -> None:
            self._compare(old, path)
            check()
            if os.name == "nt":
                old.close()  # Windows replaces no open file

        def report(*_: int) -> None:
            if progress is not None:
                progress(sink.position, self.nbytes)

        place = place._replace(check=compared)
        parts = [piece.part for piece in self.pieces if piece.part is not None]
        with place.written(durable, dry_run=dry_run) as sink:
            sink.write(self.head)
            with Pouring(sink, parts, report, None) as pouring:
                for piece in self.pieces:
                    sink.write(bytes(piece.start - sink.position))
                    if piece.part is None:
                        # Only whole blocks are shared, so the bytes before them go by themselves.
                        end = piece.place + piece.length
                        first = min(end, piece.place + -piece.place % BLOCK_BYTES)
                        sink.start_with(old, first, piece.place)
                        sink.start_with(old, end, first, progress=report)
                    else:
                        pouring.write(piece.part)
            sink.write(bytes(self.nbytes - sink.position))

    def _compare(self, old: Source, path: str) -> None:
        """Raise if the written file differs from the plan, or from the bytes of the old file."""
        with contextlib.closing(source_of(path, mapped=False)) as new:
            is_same = new.size == self.nbytes and new.read(0, len(self.head)) == self.head
            if is_same:
                self.kind(new, Budget(DEFAULT_LIMITS, new.size))
            if not (is_same and all(_is_same(old, new, piece) for piece in self.kept)):
                raise SourceError(
                    "the new file is not as it was written; the old one is kept",
                    reason=Reason.SOURCE_FAILED,
                    file=old.name,
                )


def _is_same(old: Source, new: Source, piece: Piece) -> bool:
    """Return whether a piece of both files has equal bytes."""
    for at in range(0, piece.length, _PIECE_BYTES):
        length = min(_PIECE_BYTES, piece.length - at)
        before = np.frombuffer(old.read(piece.place + at, length), np.uint8)
        after = np.frombuffer(new.read(piece.start + at, length), np.uint8)
        if not np.array_equal(before, after):
            return False
    return True


def _follows(last: Piece, piece: Piece, step: int) -> bool:
    """Return whether a piece follows another one equally in both files, behind padding at most."""
    shift = piece.start - last.start
    is_kept = last.part is None and piece.part is None and shift == piece.place - last.place
    return is_kept and 0 <= shift - last.length < step
