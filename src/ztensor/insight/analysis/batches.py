"""Small arrays of one shape and type, looked at together: one by one the calls cost the most.

What is found is what `statistics.py` finds of each by itself. Rows with values that are not finite,
and sums that overflow, are left to it.
"""

from __future__ import annotations

import array
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.insight.analysis.channels import (
    OUTLIER,
    STRIP,
    Channels,
    Norms,
    borders,
    exact_squares,
    has_channels,
)
from ztensor.insight.analysis.spreads import MIDDLE, Histogram, is_squeezed, middle_edges
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


MOST_ELEMENTS = 1 << 12  # of one of them
ROOM = 1 << 18  # elements of all that are looked at together


def looked_at(
    block: Array,
    shape: Sequence[int],
    quantiles: Sequence[float],
    bins: int,
    tiles: tuple[int, int] | None,
    limit: float,
) -> Iterator[dict[str, Any] | None]:
    """Yield the fields of `TensorStats` for each row; None of one that has to be looked at alone.

    Args:
        block: (tensors, elements), of one element type; elements at least one.
        shape: of each tensor.
        quantiles: as `stats` takes them.
        bins: likewise, of one width.
        tiles: as `stats` takes `channels`.
        limit: the largest magnitude of a type of 8 bits; infinity of others.
    """
    dtype, count = block.dtype, block.shape[1]
    values = np.abs(block) if dtype.kind == "c" else block
    if values.itemsize <= 2:
        values = values.astype(np.int32 if dtype.kind in "iub" else np.float32)
    zeros = np.count_nonzero(values == 0, axis=1).tolist()
    least, most = values.min(axis=1), values.max(axis=1)
    wide = values.astype(np.float64)
    means = wide.sum(axis=1) / count + 0.0  # of zeros of either sign the sum is one
    is_whole = np.isfinite(least) & np.isfinite(most) & np.isfinite(means)
    apart = wide - means[:, None]
    deviations = np.sqrt((apart * apart).sum(axis=1) / count)
    wide.sort(axis=1)
    kurtoses = _kurtoses(wide, means, deviations)
    values_at = _quantiles(wide, quantiles)
    histograms, middles = _histograms(wide, bins), _middles(wide, bins)
    at_limit = np.count_nonzero(np.abs(wide) >= limit, axis=1).tolist()
    channels: Iterator[Channels | None] = iter([None] * len(block))
    if tiles is not None and has_channels(shape, dtype):
        channels = _channels(block.reshape(len(block), shape[0], -1), tiles)
    of, word = "magnitudes" if dtype.kind == "c" else "values", dtype.name
    rows = zip(
        is_whole.tolist(), zeros, least.tolist(), most.tolist(), means.tolist(),
        deviations.tolist(), kurtoses, values_at, histograms, middles, at_limit, channels,
        strict=True,
    )  # fmt: skip
    for (
        whole,
        nothing,
        low,
        high,
        mean,
        std,
        kurtosis,
        found,
        histogram,
        middle,
        beyond,
        both,
    ) in rows:
        yield None if not whole else {
            "dtype": word, "of": of, "count": count, "zeros": nothing, "min": low, "max": high,
            "mean": mean, "std": std, "kurtosis": kurtosis,
            "quantiles": dict(zip(quantiles, found, strict=True)), "histogram": histogram,
            "middle": middle, "at_limit": beyond, "channels": both,
        }  # fmt: skip


def _kurtoses(ordered: Array, means: Array, deviations: Array) -> list[float | None]:
    apart = ((ordered + ordered) / 2 - means[:, None]) / deviations[:, None]
    apart *= apart
    found = ((apart * apart).sum(axis=1) / ordered.shape[1]).tolist()
    return [
        one if std and math.isfinite(std) else None
        for one, std in zip(found, deviations.tolist(), strict=True)
    ]


def _quantiles(ordered: Array, shares: Sequence[float]) -> list[list[float]]:
    columns = []
    for share in shares:
        rank = (ordered.shape[1] - 1) * share
        before = math.floor(rank)
        low, high = ordered[:, before], ordered[:, min(before + 1, ordered.shape[1] - 1)]
        part = rank - before
        columns.append(np.where(low == high, low, low * (1 - part) + high * part))
    found: list[list[float]] = np.array(columns).reshape(len(columns), len(ordered)).T.tolist()
    return found


def _histograms(ordered: Array, bins: int) -> Iterator[Histogram | None]:
    least, most = ordered[:, :1], ordered[:, -1:]
    part = np.linspace(0.0, 1.0, bins + 1)
    edges = least * (1 - part) + most * part
    edges = np.maximum.accumulate(np.clip(edges, least, most), axis=1)
    edges[:, :1], edges[:, -1:] = least, most
    count, is_flat = ordered.shape[1], (least == most).reshape(-1).tolist()
    for row, borders_of, flat in zip(ordered, edges, is_flat, strict=True):
        if not bins:
            yield None
        elif flat:
            yield Histogram((row.item(0), row.item(-1)), (count,))
        else:
            below = row.searchsorted(borders_of)
            below[-1] = count
            yield Histogram(tuple(borders_of.tolist()), tuple((below[1:] - below[:-1]).tolist()))


def _middles(ordered: Array, bins: int) -> Iterator[Histogram | None]:
    for row, (low, high) in zip(ordered, _quantiles(ordered, MIDDLE), strict=True):
        if not bins or not is_squeezed(row.item(0), low, high, row.item(-1)):
            yield None
            continue
        edges = middle_edges(low, high, bins)
        counts = np.diff(row.searchsorted(edges)).tolist()
        yield Histogram(tuple(edges.tolist()), tuple(counts))


def _channels(matrices: Array, tiles: tuple[int, int]) -> Iterator[Channels]:
    squares = exact_squares(matrices)
    rows, columns = (
        borders(count, most) for count, most in zip(squares.shape[1:], tiles, strict=True)
    )
    lines = np.add.reduceat(squares, rows[:-1], axis=1)
    sums = np.add.reduceat(lines, columns[:-1], axis=2)
    areas = np.outer(np.diff(rows), np.diff(columns))
    shape = areas.shape
    for by_row, by_column, one in zip(
        _norms(squares.sum(axis=2)),
        _norms(lines.sum(axis=1)),
        np.sqrt(sums / areas).astype(np.float32),
        strict=True,
    ):
        yield Channels(by_row, by_column, shape, array.array("f", one.tobytes()))


def _norms(sums: Array) -> Iterator[Norms]:
    norms = np.sqrt(sums)
    medians = np.median(norms, axis=1)
    outliers = np.count_nonzero(norms > OUTLIER * medians[:, None], axis=1)
    strips = np.maximum.reduceat(norms, borders(norms.shape[1], STRIP)[:-1], axis=1)
    for median, most, at, dead, beyond, strip in zip(
        medians.tolist(),
        norms.max(axis=1).tolist(),
        norms.argmax(axis=1).tolist(),
        np.count_nonzero(norms == 0, axis=1).tolist(),
        outliers.tolist(),
        strips.astype(np.float32),
        strict=True,
    ):
        found = beyond if median else 0
        yield Norms(
            norms.shape[1], median, most, at, dead, found, array.array("f", strip.tobytes())
        )
