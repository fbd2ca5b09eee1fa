"""Singular values of a matrix that is read in groups of rows.

Up to a short side of 1,024 they come from the Gram matrix in float64: values below 1e-8 of the
first are noise. For larger matrices the first 32 are found by random projection with two power
steps; they are lower bounds.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ArgumentValueError, LimitError, Reason, describe
from ztensor.ext import ObjectReader, slice_of
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Blocks = Callable[[], Iterator[tuple[slice, Array]]]

_SHORT = 1024  # largest side of the Gram matrix
_FIRST, _MORE = 32, 16  # values found for larger matrices, and extra directions
_PIECE = 1 << 20  # values read at once
_MOST = 1 << 28  # most values of a matrix
_LONGEST = 1 << 20  # longest side: directions along it are held in memory


@dataclasses.dataclass(frozen=True, slots=True)
class Singular:
    """Singular values of a matrix.

    Attributes:
        values: the values, the largest first.
        is_exact: whether these are all values; else lower bounds of the first ones.
        stable_rank: the sum of all squares over the largest square.
    """

    values: tuple[float, ...]
    is_exact: bool
    stable_rank: float


def singular_values(reader: ObjectReader, name: str, check: Callable[[], None]) -> Singular:
    """Return singular values of a tensor as a matrix: the first axis by all others.

    Args:
        reader: an open file or set.
        name: the tensor.
        check: called between pieces; may raise to end the work.

    Raises:
        ArgumentValueError: the tensor is not a dense matrix, or has values that are not finite.
        FormatError: the stored bytes are damaged.
        LimitError: the matrix has more than 2^28 values.
        SourceError: the bytes could not be read.
    """
    file = reader.objects.part(name)
    part = slice_of(file, name, copy=True)
    shape = part.shape
    rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (0, 0)
    if min(rows, columns) < 2 or file.object(name).format != "dense":
        raise ArgumentValueError("singular values need a dense matrix", found=describe(list(shape)))
    if rows * columns > _MOST or max(rows, columns) > _LONGEST:
        raise LimitError(
            "the matrix is too large for its singular values",
            reason=Reason.LIMIT_COST,
            expected=f"at most {_MOST} values",
            found=str(rows * columns),
        )

    def blocks() -> Iterator[tuple[slice, Array]]:
        height = max(_PIECE // columns, 1)
        for start in range(0, rows, height):
            check()
            some = slice(start, min(start + height, rows))
            block: Any = np.asarray(part[some]).reshape(some.stop - start, -1)
            block = block.astype(np.complex128 if block.dtype.kind == "c" else np.float64)
            if not np.isfinite(block).all():
                raise ArgumentValueError("the matrix has values that are not finite")
            yield some, block

    if columns <= _SHORT or rows * columns <= _PIECE:
        return _exact(blocks, rows, columns)
    return _first(blocks, rows, columns)


def _exact(blocks: Blocks, rows: int, columns: int) -> Singular:
    if columns <= _SHORT:
        gram: Array = np.zeros((columns, columns))
        for _, block in blocks():
            gram = gram + block.conj().T @ block
    else:
        whole = np.concatenate([block for _, block in blocks()])
        gram = whole @ whole.conj().T
    squares = np.linalg.eigvalsh(gram)[::-1][: min(rows, columns)]
    values = np.sqrt(np.maximum(squares, 0))
    return _told(values, float(np.trace(gram).real), is_exact=True)


def _first(blocks: Blocks, rows: int, columns: int) -> Singular:
    count = min(_FIRST + _MORE, rows, columns)
    along: Array = np.random.default_rng(0).standard_normal((columns, count))
    total = 0.0
    for step in range(3):
        across = np.concatenate([block @ along for _, block in blocks()])
        across = np.linalg.qr(across)[0]
        along = np.zeros((columns, count), across.dtype)
        total = 0.0
        for some, block in blocks():
            along = along + block.conj().T @ across[some]
            total += float((block * block.conj()).real.sum())
        if step < 2:
            along = np.linalg.qr(along)[0]
    values = np.linalg.svd(along, compute_uv=False)[:_FIRST]
    return _told(values, total, is_exact=False)


def _told(values: Array, total: float, *, is_exact: bool) -> Singular:
    largest = float(values[0]) if len(values) else 0.0
    rank = total / (largest * largest) if largest else 0.0
    return Singular(tuple(values.tolist()), is_exact, rank)
