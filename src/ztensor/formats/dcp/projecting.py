"""Open a checkpoint of either kind: by its `.metadata`, or by its shards."""

from __future__ import annotations

import contextlib

from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError
from ztensor.ext import Projection, Source, Tally, no_collection, source_of
from ztensor.formats.dcp.beside import Beside
from ztensor.formats.dcp.checkpoint import Checkpoint
from ztensor.formats.dcp.folders import DATA, root_of
from ztensor.formats.dcp.metadata import read_table
from ztensor.formats.dcp.pickles import IrregularError, read_columns
from ztensor.formats.dcp.shards import project_shards
from ztensor.formats.dcp.table import Table
from ztensor.formats.dcp.vocabulary import VOCABULARY
from ztensor.formats.pt.pickle_reader import read_pickle
from ztensor.limits import Budget, Limits

_LONG_BYTES = 1 << 20  # of a pickle: at 5 MB garbage collection takes a third of the time
_BYTES_PER_STEP = 16  # of the checkpoint per instruction; a chunk takes 80 instructions


def project(source: Source, budget: Budget) -> Projection:
    """Return the contents of a checkpoint, given its `.metadata` or its folder.

    Raises:
        FormatError: `.metadata` is damaged, or names files outside its folder.
        UnsupportedError: the pickle calls a function that no checkpoint needs.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    if source.files is None:
        return _project(source, source, budget.limits)
    root = None if source.path is None else root_of(source.path)
    if root is None:
        return project_shards(source, budget.limits)
    with contextlib.closing(source_of(root, mapped=False)) as metadata:
        return _project(source, metadata, budget.limits)


def _project(source: Source, metadata: Source, limits: Limits) -> Projection:
    """Return the contents of a checkpoint; `source` stays open as long as they are read."""
    if metadata.size > limits.manifest_bytes:
        raise LimitError(
            "the pickle is longer than Limits.manifest_bytes",
            reason=Reason.LIMIT_MANIFEST,
            expected=f"at most {limits.manifest_bytes} bytes",
            found=str(metadata.size),
        )
    beside = Beside(metadata.path or metadata.remote)
    # The cost that listing may have depends on the length of the whole checkpoint.
    sizes = (size for name, size in beside.lengths.items() if name.endswith(DATA))
    length = metadata.size + sum(sizes)
    budget = Budget(limits, length)
    budget.charge_bytes(2 * metadata.size)
    charged = budget.bytes_left
    with no_collection() if metadata.size > _LONG_BYTES else contextlib.nullcontext():
        read = None
        with contextlib.suppress(IrregularError, FormatError, UnsupportedError):
            read = _read(metadata, budget, length, by_columns=True)
        if read is None:  # no pickler wrote it, so it may take twice as long
            budget.release_to(charged)
            read = _read(metadata, budget, length, by_columns=False)
    return Checkpoint(source, beside, *read, limits).projection()


def _read(
    metadata: Source, budget: Budget, length: int, *, by_columns: bool
) -> tuple[Table, Tally]:
    """Return the table of a pickle, and its loss report."""
    pickle = bytes(metadata.read(0, metadata.size))
    left = Tally()
    least = length // _BYTES_PER_STEP
    read = read_columns if by_columns else read_pickle
    value, end = read(pickle, VOCABULARY, budget, least=least)
    if end < len(pickle):
        left.add("bytes behind the pickle", nbytes=len(pickle) - end)
    del pickle
    budget.release_bytes(2 * metadata.size)
    return read_table(value, budget, left), left
