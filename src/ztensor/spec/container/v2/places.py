"""Where the blobs of 2.x may lie: on pages, inside of a file, equal or disjoint (2.1 section 2.4).

The files of a set are laid behind one another, so that an offset tells the file as well: the root
first, then each shard that a part needs, in the order they are met.
"""

from __future__ import annotations

import array
from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import Problem, Reason
from ztensor.spec.container.framing import FOOTER_2_BYTES, PAGE_2

if TYPE_CHECKING:
    from ztensor.limits import Budget
    from ztensor.spec.model.manifest import Shard
    from ztensor.spec.model.objects import Ints, Uints

SECTION = "2.1 section 2.4"

PLACE_COST = 120  # bytes that comparing one blob with the others takes


class Places:
    """Takes the blobs of a manifest and tells which may not lie where they do.

    Args:
        file_size: of the root.
        shards: the table.
        budget: what the file may cost.
    """

    def __init__(self, file_size: int, shards: dict[str, Shard], budget: Budget) -> None:
        self.shards = shards
        self._file_size = file_size
        self._end = -(-file_size // PAGE_2) * PAGE_2
        self._budget = budget
        self._blobs: dict[str | None, array.array[int]] = {}
        self._rows: tuple[Uints, Uints] | None = None

    def add(self, offset: int, length: int, shard: str | None) -> list[Problem]:
        """Take a blob; return what is wrong with its place."""
        size = self._file_size if shard is None else self.shards[shard].size
        if offset % PAGE_2:
            expected, reason = f"a multiple of {PAGE_2}", Reason.OFFSET_ALIGNMENT
        elif offset < PAGE_2:
            expected, reason = f"at least {PAGE_2}", Reason.OUT_OF_BOUNDS
        elif offset + length > size - FOOTER_2_BYTES:
            expected = f"the blob to end before the footer at {size - FOOTER_2_BYTES}"
            reason = Reason.OUT_OF_BOUNDS
        else:
            if length:
                self._budget.charge_bytes(PLACE_COST)
                self._blobs.setdefault(shard, array.array("Q")).extend((offset, length))
            return []
        found = f"expected {expected}, found {offset} and {length} bytes"
        return [Problem(reason, found, ("blob",), SECTION)]

    def shard(self, name: str) -> Shard:
        """Return a shard that a part needs, with the place of its first byte."""
        shard = self.shards[name]
        if shard.start is None:
            shard = self.shards[name] = shard._replace(start=self._end)
            self._end += -(-shard.size // PAGE_2) * PAGE_2
        return shard

    def add_rows(self, offsets: Ints, lengths: Ints) -> None:
        """Take blobs of the root that lie where they may."""
        self._budget.charge_bytes(PLACE_COST * len(offsets))
        self._rows = offsets.astype(np.uint64), lengths.astype(np.uint64)

    def check_overlaps(self) -> list[Problem]:
        """Return a problem for each file in which blobs overlap and are not equal."""
        problems = []
        for shard, flat in self._blobs.items():
            offsets, lengths = np.frombuffer(flat, np.uint64).reshape(-1, 2).T
            if shard is None and self._rows is not None:
                offsets = np.concatenate((offsets, self._rows[0]))
                lengths = np.concatenate((lengths, self._rows[1]))
            problems += _overlap(offsets, lengths, shard)
        return problems


def _overlap(offsets: Uints, lengths: Uints, shard: str | None) -> list[Problem]:
    some = lengths > 0
    if not some.all():
        offsets, lengths = offsets[some], lengths[some]
    if not (offsets[:-1] < offsets[1:]).all():
        order = np.lexsort((lengths, offsets))
        offsets, lengths = offsets[order], lengths[order]
    # In order of their offsets, each begins where the one before it ends or later, or is the same.
    is_same = (offsets[1:] == offsets[:-1]) & (lengths[1:] == lengths[:-1])
    wrong = np.flatnonzero((offsets[1:] < offsets[:-1] + lengths[:-1]) & ~is_same)
    if not len(wrong):
        return []
    at = int(wrong[0])
    one, two = ((int(offsets[i]), int(offsets[i] + lengths[i])) for i in (at, at + 1))
    where = "" if shard is None else f" of shard {shard!r}"
    message = f"expected equal or disjoint blobs{where}, found {list(one)} and {list(two)}"
    return [Problem(Reason.BLOB_OVERLAP, message, ("objects",), SECTION)]
