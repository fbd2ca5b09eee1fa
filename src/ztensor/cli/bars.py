"""Histograms as lines of text."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .:#"
ASCII_RAMP = " .:-=+*#%@"


def blocks_for(height: int) -> str:
    """Return the block characters that standard output can show."""
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return ASCII_BLOCKS if height > 1 else ASCII_RAMP
    return BLOCKS


def text_bars(
    counts: Sequence[int], height: int, *, blocks: str = BLOCKS, log_counts: bool = False
) -> list[str]:
    """Return a histogram as lines of text, one letter for each bin; the last line is the lowest.

    A bin that is not empty shows at least the smallest block.

    Args:
        counts: values in each bin.
        height: how many lines.
        blocks: from a space to a full block: `BLOCKS`; for ASCII `ASCII_BLOCKS`, or `ASCII_RAMP`
            for one line.
        log_counts: heights grow with the logarithm of counts.
    """
    steps = len(blocks) - 1
    parts = [math.log1p(count) if log_counts else float(count) for count in counts]
    most = max(parts)
    levels = [
        max(round(part / most * height * steps), count > 0)
        for part, count in zip(parts, counts, strict=True)
    ]
    return [
        "".join(blocks[min(max(level - row * steps, 0), steps)] for level in levels).rstrip()
        for row in reversed(range(height))
    ]


def text_axis(low: float, high: float, width: int, *, has_zero: bool = True) -> str:
    """Return the axis below bars: the numbers at both ends, and 0 if it fits."""
    left, right = f"{low:.4g}", f"{high:.4g}"
    if low == high:
        return left
    line = left + right.rjust(max(width - len(left), len(right) + 1))
    zero = round(-low / (high - low) * (width - 1)) if has_zero and low < 0 < high else 0
    if len(left) + 2 < zero < width - len(right) - 2:
        line = f"{line[:zero]}0{line[zero + 1 :]}"
    return line
