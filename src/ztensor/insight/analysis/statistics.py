"""What the values of objects are like: extremes, moments, quantiles, histograms, NaNs.

Every element is seen once, in blocks, so memory stays the same whatever the size. Of element types
of at most 16 bits each bit pattern is counted, which makes everything exact. Wider ones are sorted
up to 65,536 elements; beyond that their leading bits are counted, in bins that are as narrow,
relative to the value, at 1e-30 as at 1e30.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from ztensor import TensorMetadata
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FormatError,
    UnsupportedError,
    counted,
    describe,
)
from ztensor.ext import (
    LAYOUTS,
    Component,
    FileObjects,
    ObjectReader,
    Overlaps,
    Shown,
    element_count,
    result_dtype,
)
from ztensor.insight.analysis.channels import Channels, ChannelSums, has_channels, is_float
from ztensor.insight.analysis.counters import counter_of, values_of
from ztensor.insight.analysis.spreads import Histogram, Scale
from ztensor.insight.analysis.streaming import (
    Meter,
    component_blocks,
    is_quantized,
    opened,
    order_of_bytes,
    sampled_blocks,
    share_out,
)
from ztensor.insight.analysis.sums import Moments
from ztensor.insight.text import short_repr
from ztensor.quantization.floats import dequantized
from ztensor.typing import Readable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from ztensor.insight.analysis.streaming import Progress

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 64
_MOST_TILES = 4096


class StatsReport(Shown, dict[str, "TensorStats"]):
    """Names to statistics: a dict that shows itself in a line."""

    def __repr__(self) -> str:
        """Return how many objects there are, and what is wrong with how many."""
        nans = [name for name, found in self.items() if found.nans]
        infs = [name for name, found in self.items() if found.infs]
        facts = [counted(len(self), "object", self)]
        facts += [f"NaN in {counted(len(nans), 'object', nans)}"] if nans else []
        facts += [f"infinity in {counted(len(infs), 'object', infs)}"] if infs else []
        return short_repr("insight.StatsReport", facts, ".items()")


@dataclasses.dataclass(frozen=True, slots=True)
class TensorStats(Shown):
    """What the values of one object are like.

    Where there is nothing to say it of, a field is None: no finite value has no smallest one.

    Attributes:
        name: the object's name.
        shape: its logical dimensions.
        dtype: the element type's long name, such as `bfloat16`, of a quantized object `float32`;
            the storage type's where values were not looked at, None where it is unknown.
        of: what was looked at: `values`, `magnitudes` of complex ones, `dequantized values`.
        count: how many there are, zeros that a sparse object does not store among them.
        zeros: how many are zero, of either sign.
        nans: how many are NaN, of complex values those with a NaN in either part.
        infs: how many are infinite.
        min: smallest finite value; an exact int for integers.
        max: largest finite value, likewise.
        mean: arithmetic mean of the finite values, in float64.
        std: their standard deviation (of the population, as `numpy.std`), in float64.
        quantiles: share to value, of the finite values, as `numpy.quantile` interpolates.
        quantile_error: bound on the relative error of a quantile; 0.0 where they are exact.
        histogram: of the finite values; exact where the quantiles are, else each border is off by
            at most `quantile_error` of its value.
        middle: likewise of the values between the first and the last hundredth of them; None where
            it shows no more than `histogram`, and of a scale that is not linear.
        note: why there is nothing, or None.
        negative_infs: how many are minus infinity, as in masks.
        at_limit: of types of 8 bits and less, how many have the largest magnitude there is.
        kurtosis: fourth moment about the mean over the square of the variance, of the finite
            values; 3 of a normal distribution. None where they are all one value.
        channels: norms of rows and columns; None unless asked for, and of what has none.
        sampled: the share of the rows that was looked at, to which all else then refers; None
            where all were.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str | None = None
    of: str = "values"
    count: int = 0
    zeros: int = 0
    nans: int = 0
    infs: int = 0
    min: float | int | None = None
    max: float | int | None = None
    mean: float | None = None
    std: float | None = None
    quantiles: Mapping[float, float] = dataclasses.field(default_factory=dict)
    quantile_error: float = 0.0
    histogram: Histogram | None = None
    note: str | None = None
    negative_infs: int = 0
    at_limit: int = 0
    kurtosis: float | None = None
    channels: Channels | None = None
    sampled: float | None = None
    middle: Histogram | None = None

    @property
    def rms(self) -> float | None:
        """Return the root of the mean square of the finite values."""
        return None if self.mean is None or self.std is None else math.hypot(self.mean, self.std)

    @property
    def crest(self) -> float | None:
        """Return the largest magnitude of finite values over their RMS; None where that is 0."""
        if not self.rms or self.min is None or self.max is None:
            return None
        return float(max(abs(self.min), abs(self.max)) / self.rms)

    @property
    def finite(self) -> int:
        """Return how many values are neither NaN nor infinite."""
        return self.count - self.nans - self.infs

    @classmethod
    def total(cls, several: Iterable[TensorStats], name: str = "total") -> TensorStats:
        """Return the statistics of several objects together, without quantiles and histogram."""
        moments = Moments()
        sums: dict[str, Any] = dict.fromkeys(("count", "zeros", "nans", "infs", "negative_infs"), 0)
        for one in several:
            if not isinstance(one, cls):
                raise ArgumentTypeError("expected statistics", found=describe(one))
            for field in sums:
                sums[field] += getattr(one, field)
            if one.mean is not None and one.std is not None:
                moments.merge(one.finite, one.mean, one.std * one.std * one.finite)
                moments.reach(one.min, one.max)
        return cls(name, **sums, **moments.as_fields())


def stats(
    source: Readable,
    names: str | Iterable[str] | None = None,
    *,
    quantiles: Sequence[float] = QUANTILES,
    bins: int = BINS,
    scale: Scale = "linear",
    channels: tuple[int, int] | None = None,
    on_damage: Callable[[str, FormatError], None] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> StatsReport:
    """Return what the values of objects are like: extremes, mean, quantiles, NaNs, histogram.

    Read once and in blocks: memory does not grow with the objects. Smallest, largest, mean,
    deviation, zeros and NaNs are exact but for float64 rounding. Quantiles and histograms are
    exact for types of up to 16 bits and for up to 65,536 elements; otherwise within 0.2 % of the
    value, 0.4 % for float64 and complex128, as `TensorStats.quantile_error` says.

    A sparse object's zeros that are not stored count; values at one position count one by one. A
    quantized object is dequantized some rows at a time. An object whose type or layout is unknown
    has only a `note`.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        names: the objects, one name or several; all by default.
        quantiles: which, between 0 and 1.
        bins: how many the histogram has; 0 for none.
        scale: `linear` or `log`; see `Histogram`.
        channels: look at rows and columns, too, of floats with two or more dimensions and up to
            2^20 channels on an axis that are not sparse; into how many tiles along each axis a
            matrix is cut. None for none.
        on_damage: called with the name of an object whose bytes are damaged, and the error, which
            is then its `note`; by default it is raised.
        threads: how many to use, each for an object; as many as there are cores, four at most,
            by default.
        progress: called with the decoded bytes seen so far and those to see.

    Returns:
        A dict of names to statistics, in the order given or of the file.

    Raises:
        ObjectNotFoundError: a name is not in the file.
        ArgumentValueError: a quantile is not between 0 and 1, or another argument cannot work.
        FormatError: stored bytes are damaged.
        LimitError: a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    if not all(isinstance(q, (int, float)) and 0 <= q <= 1 for q in quantiles):
        raise ArgumentValueError(
            "a quantile is not between 0 and 1", found=describe(list(quantiles), 60)
        )
    if scale not in get_args(Scale):
        raise ArgumentValueError(
            "no such scale", expected=" or ".join(get_args(Scale)), found=describe(scale)
        )
    if isinstance(bins, bool) or not isinstance(bins, int) or not 0 <= bins <= 1 << 16:
        raise ArgumentValueError("bins is no number from 0 to 65536", found=describe(bins))
    if channels is not None and not all(0 < count <= _MOST_TILES for count in channels):
        raise ArgumentValueError("channels are no two numbers of tiles", found=describe(channels))
    asked = Asked(tuple(quantiles), bins, scale, channels)
    with opened(source) as reader:
        chosen = [names] if isinstance(names, str) else list(reader if names is None else names)
        return survey(reader, chosen, asked, on_damage, threads, progress)[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted of each object, as `stats` takes it."""

    quantiles: tuple[float, ...] = QUANTILES
    bins: int = BINS
    scale: Scale = "linear"
    tiles: tuple[int, int] | None = None
    sample: float | None = None


def survey(
    reader: ObjectReader,
    names: Iterable[str],
    asked: Asked,
    on_damage: Callable[[str, FormatError], None] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, TensorMetadata], StatsReport]:
    """Return the metadata of objects, and what `stats` does.

    Args:
        reader: an open file or set.
        names: the objects.
        asked: what is wanted.
        on_damage: as `stats` takes it.
        threads: likewise.
        progress: likewise.

    Raises:
        ZTensorError: what `stats` raises.
    """
    objects: dict[str, TensorMetadata] = {}
    places = []
    for name in names:
        there = reader.objects.part(name)
        found = there.object(name)
        objects[name] = reader.metadata(name)
        places += [(there, component) for component in found.components.values()]
    sizes = {name: metadata.nbytes for name, metadata in objects.items()}
    meter = Meter(sum(sizes.values()), progress)
    overlaps = Overlaps(places)
    order = order_of_bytes(reader.objects, sizes)

    def of(name: str) -> TensorStats:
        try:
            return whole(name)
        except FormatError as error:
            if on_damage is None:
                raise
            on_damage(name, error)
            return TensorStats(name, objects[name].shape, objects[name].dtype, note=error.message)

    def whole(name: str) -> TensorStats:
        report = meter.part(sizes[name])
        there = reader.objects.part(name)
        main, key = _main_component(there, name)
        if main is None:
            return _stats_of(there, objects[name], asked, report)

        def work(charge: Callable[[int], None]) -> TensorStats:
            return _stats_of(there, objects[name], asked, report, charge)

        found = overlaps.once(there, main, key, work)
        report(sizes[name])  # where another's was taken
        return dataclasses.replace(found, name=name)

    done = share_out(of, sizes, threads, order)
    return objects, StatsReport({name: done[name] for name in objects})


def _main_component(file: FileObjects, name: str) -> tuple[Component | None, Hashable]:
    """Return the component that values are of, and beside it what they depend on, if it is little.

    Of a quantized object they depend on all components and attributes: those of no other are its.
    """
    tensor_object = file.object(name)
    layout = LAYOUTS.get(tensor_object.format)
    main = None if layout is None else tensor_object.components.get(layout.main_role)
    if main is None or is_quantized(tensor_object.format):
        return main, name
    stated = main._replace(extra=None)
    length = file.known_length(name, LAYOUTS[tensor_object.format].main_role)
    return main, (stated, tensor_object.format, tensor_object.shape, length)


def _stats_of(
    file: FileObjects,
    found: TensorMetadata,
    asked: Asked,
    report: Callable[[int], None],
    charge: Callable[[int], None] | None = None,
) -> TensorStats:
    result = TensorStats(found.name, found.shape, found.dtype)
    tensor_object = file.object(found.name)
    layout = LAYOUTS.get(found.format)
    if layout is None:
        return dataclasses.replace(result, note=f"the layout {describe(found.format)} is unknown")
    try:
        dtype = result_dtype(tensor_object.components[layout.main_role])
        if is_quantized(found.format):
            dtype = np.dtype(np.float32)
            of, counter = "dequantized values", counter_of(dtype, element_count(found.shape))
            blocks = dequantized(file, found.name)
        else:
            of = "magnitudes" if dtype.kind == "c" else "values"
            counter = counter_of(dtype, element_count(found.shape))
            blocks = component_blocks(file, found.name, layout.main_role)
        shape = found.shape
        part = None if asked.sample is None else sampled_blocks(file, found.name, asked.sample)
        if part is not None:
            shape, blocks = (part[0], *shape[1:]), part[1]
        sums = None
        if asked.tiles and not layout.index_roles and has_channels(shape, dtype):
            sums = ChannelSums(shape, asked.tiles)
        # NaN and overflow are what is looked for, not surprises; each thread has its own state.
        with np.errstate(all="ignore"):
            for block in blocks:
                if charge is not None:
                    charge(block.nbytes)
                counter.feed(block)
                if sums is not None:
                    sums.feed(block)
                report(block.nbytes)
            report(found.nbytes)
            spread = counter.finish()
            missing = max(element_count(shape) - counter.count, 0)
            if missing:  # zeros that a sparse object does not store
                spread = spread.with_zeros(missing)
                zero = 0 if dtype.kind in "iub" else 0.0
                counter.moments.merge(missing, 0.0, 0.0)
                counter.moments.reach(zero, zero)
            moments = counter.moments.as_fields()
            is_linear = asked.scale == "linear"
            quantiles = spread.quantiles(asked.quantiles)  # none of no value
            return dataclasses.replace(
                result,
                dtype=dtype.name,
                of=of,
                count=counter.count + missing,
                zeros=counter.zeros + missing,
                nans=counter.nans,
                infs=counter.infs,
                negative_infs=counter.negative_infs,
                **moments,
                kurtosis=spread.kurtosis(moments["mean"], moments["std"]) if moments else None,
                quantiles=dict(zip(asked.quantiles, quantiles, strict=False)),
                quantile_error=spread.error,
                histogram=spread.histogram(asked.bins, asked.scale) if asked.bins else None,
                middle=spread.middle(asked.bins) if asked.bins and is_linear else None,
                at_limit=spread.count_beyond(_limit_of(dtype)),
                channels=None if sums is None else sums.finish(),
                sampled=None if part is None else shape[0] / found.shape[0],
            )
    except UnsupportedError as error:
        return dataclasses.replace(result, note=error.message)


def _limit_of(dtype: np.dtype[Any]) -> float:
    """Return the largest magnitude of a float type of at most 8 bits; infinity of others."""
    if dtype.itemsize > 1 or not is_float(dtype):
        return math.inf
    values = values_of(dtype)
    return float(values[np.isfinite(values)].max())
