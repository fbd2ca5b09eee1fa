"""Which rows of an object are selected: their number, and whether they cut a group in two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError

if TYPE_CHECKING:
    from ztensor.spec.layout.base import Indices


def row_count(rows: Indices) -> int:
    """Return how many rows an index selects."""
    if isinstance(rows, range):  # it may be longer than len() can say
        return (rows[-1] - rows[0]) // rows.step + 1 if rows else 0
    return rows.size


def whole_units(rows: Indices, unit: int, length: int) -> tuple[int, int]:
    """Return the first row and the one behind the last; both must be multiples of `unit`.

    Args:
        rows: the indices of some rows.
        unit: how many rows make a whole.
        length: of the first axis; rows may also end there.

    Raises:
        ArgumentValueError: rows are not consecutive, or cut a unit in two.
    """
    if not isinstance(rows, range) or (rows.step != 1 and row_count(rows) > 1):
        raise ArgumentValueError(
            "of a quantized object consecutive rows can be selected; for others, "
            "read(name).dequantize()[rows]",
            expected="an integer, or a slice with step 1",
        )
    start, stop = rows.start, rows.start + row_count(rows)
    if start % unit or (stop % unit and stop != length):
        low, high = start // unit * unit, min(-(-stop // unit) * unit, length)
        raise ArgumentValueError(
            "the rows cut a group, or a word of packed integers, in two",
            expected=f"multiples of {unit}; [{low}:{high}] holds these rows",
            found=f"[{start}:{stop}]",
        )
    return start, stop
