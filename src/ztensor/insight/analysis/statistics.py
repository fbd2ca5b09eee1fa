"""Statistics of objects: extremes, moments, quantiles, histograms, NaNs.

Every element is read once, in blocks, so memory does not depend on the size. For element types of
at most 16 bits each bit pattern is counted, so all results are exact. Wider elements are sorted up
to 65,536 of them; beyond that their leading bits are counted, in bins of constant relative width.
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
from ztensor.typing import Progress, Readable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 64
_MOST_TILES = 4096


class StatsReport(Shown, dict[str, "TensorStats"]):
    """Statistics by name: a dict with a short `repr`."""

    def __repr__(self) -> str:
        """Return the number of objects, and of objects with NaN or infinity."""
        nans = [name for name, tensor_stats in self.items() if tensor_stats.nans]
        infs = [name for name, tensor_stats in self.items() if tensor_stats.infs]
        facts = [counted(len(self), "object", self)]
        facts += [f"NaN in {counted(len(nans), 'object', nans)}"] if nans else []
        facts += [f"infinity in {counted(len(infs), 'object', infs)}"] if infs else []
        return short_repr("insight.StatsReport", facts, ".items()")


@dataclasses.dataclass(frozen=True, slots=True)
class TensorStats(Shown):
    """Statistics of the values of one object.

    A field without a value is None, such as the minimum of no finite values.

    Attributes:
        name: the object's name.
        shape: its logical dimensions.
        dtype: the element type's long name, such as `bfloat16`; `float32` for a quantized object;
            the storage type if values were not read, None if it is unknown.
        of: the kind of numbers: `values`, `magnitudes` of complex values, `dequantized values`.
        count: the number of elements, with the zeros that a sparse object does not store.
        zeros: the number of zeros of either sign.
        nans: the number of NaNs; complex values count if either part is NaN.
        infs: the number of infinite values.
        min: smallest finite value; an exact int for integers.
        max: largest finite value, likewise.
        mean: arithmetic mean of the finite values, in float64.
        std: their standard deviation (of the population, as `numpy.std`), in float64.
        quantiles: share to value, of the finite values, as `numpy.quantile` interpolates.
        quantile_error: bound on the relative error of a quantile; 0.0 if they are exact.
        histogram: of the finite values; exact if the quantiles are, else each border is off by at
            most `quantile_error` of its value.
        middle: the histogram between the 1 % and the 99 % quantile; None if `histogram` shows as
            much, or the scale is not linear.
        note: the reason for missing statistics, or None.
        negative_infs: the number of minus infinities, as in masks.
        at_limit: for types of at most 8 bits, the number of values of the largest magnitude.
        kurtosis: fourth central moment of the finite values over the square of the variance; 3 for
            a normal distribution. None if all values are equal.
        channels: norms of rows and columns, if requested; else None.
        sampled: the share of the rows that the statistics refer to; None for all rows.
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
        """Return the root mean square of the finite values."""
        return None if self.mean is None or self.std is None else math.hypot(self.mean, self.std)

    @property
    def crest(self) -> float | None:
        """Return the largest finite magnitude over the RMS; None if the RMS is 0."""
        if not self.rms or self.min is None or self.max is None:
            return None
        return float(max(abs(self.min), abs(self.max)) / self.rms)

    @property
    def finite(self) -> int:
        """Return the number of finite values."""
        return self.count - self.nans - self.infs

    @classmethod
    def total(cls, several: Iterable[TensorStats], name: str = "total") -> TensorStats:
        """Return the statistics of several objects together, without quantiles and histogram."""
        moments = Moments()
        sums: dict[str, Any] = dict.fromkeys(("count", "zeros", "nans", "infs", "negative_infs"), 0)
        for tensor_stats in several:
            if not isinstance(tensor_stats, cls):
                raise ArgumentTypeError("expected statistics", found=describe(tensor_stats))
            for field in sums:
                sums[field] += getattr(tensor_stats, field)
            if tensor_stats.mean is not None and tensor_stats.std is not None:
                moments.merge(
                    tensor_stats.finite,
                    tensor_stats.mean,
                    tensor_stats.std * tensor_stats.std * tensor_stats.finite,
                )
                moments.reach(tensor_stats.min, tensor_stats.max)
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
    """Return statistics of objects: extremes, mean, quantiles, NaNs, histogram.

    Data is read once and in blocks: memory does not grow with the objects. Smallest, largest, mean,
    deviation, zeros and NaNs are exact up to float64 rounding. Quantiles and histograms are
    exact for types of up to 16 bits and for up to 65,536 elements; otherwise within 0.2 % of the
    value, 0.4 % for float64 and complex128, as `TensorStats.quantile_error` says.

    The zeros that a sparse object does not store count; several values at one position count each.
    A quantized object is dequantized in groups of rows. An object of an unknown type or layout has
    only a `note`.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        names: the objects, one name or several; all by default.
        quantiles: the shares, between 0 and 1.
        bins: the number of bins of the histogram; 0 for no histogram.
        scale: `linear` or `log`; see `Histogram`.
        channels: also compute norms of rows and columns, of floats with two or more dimensions and
            up to 2^20 channels on an axis that are not sparse; the number of tiles along each axis.
            None for no norms.
        on_damage: called with the name and the error of a damaged object, which then has a `note`;
            by default the error is raised.
        threads: how many to use, each for an object; as many as there are cores, four at most,
            by default.
        progress: called with the decoded bytes seen so far and those to see.

    Returns:
        A dict of names to statistics, in the order given or of the file.

    Raises:
        ObjectNotFoundError: a name is not in the file.
        ArgumentValueError: a quantile is not between 0 and 1, or another argument is invalid.
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
            "unknown scale", expected=" or ".join(get_args(Scale)), found=describe(scale)
        )
    if isinstance(bins, bool) or not isinstance(bins, int) or not 0 <= bins <= 1 << 16:
        raise ArgumentValueError("bins must be from 0 to 65536", found=describe(bins))
    if channels is not None and not all(0 < count <= _MOST_TILES for count in channels):
        raise ArgumentValueError("channels must be two numbers of tiles", found=describe(channels))
    options = StatsOptions(tuple(quantiles), bins, scale, channels)
    with opened(source) as reader:
        chosen = [names] if isinstance(names, str) else list(reader if names is None else names)
        return survey(reader, chosen, options, on_damage, threads, progress)[1]


@dataclasses.dataclass(frozen=True, slots=True)
class StatsOptions:
    """The options of `stats` for each object."""

    quantiles: tuple[float, ...] = QUANTILES
    bins: int = BINS
    scale: Scale = "linear"
    tiles: tuple[int, int] | None = None
    sample: float | None = None


def survey(
    reader: ObjectReader,
    names: Iterable[str],
    options: StatsOptions,
    on_damage: Callable[[str, FormatError], None] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, TensorMetadata], StatsReport]:
    """Return the metadata and the statistics of objects.

    Args:
        reader: an open file or set.
        names: the objects.
        options: the options.
        on_damage: see `stats`.
        threads: likewise.
        progress: likewise.

    Raises:
        ZTensorError: what `stats` raises.
    """
    objects: dict[str, TensorMetadata] = {}
    places = []
    for name in names:
        there = reader.objects.part(name)
        tensor_object = there.object(name)
        objects[name] = reader.metadata(name)
        places += [(there, component) for component in tensor_object.components.values()]
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
            return _stats_of(there, objects[name], options, report)

        def work(charge: Callable[[int], None]) -> TensorStats:
            return _stats_of(there, objects[name], options, report, charge)

        shared = overlaps.once(there, main, key, work)
        report(sizes[name])  # if the result of another object was reused
        return dataclasses.replace(shared, name=name)

    done = share_out(of, sizes, threads, order)
    return objects, StatsReport({name: done[name] for name in objects})


def _main_component(file: FileObjects, name: str) -> tuple[Component | None, Hashable]:
    """Return the main component of an object, and a key of everything else its values depend on.

    The key of a quantized object is its name, as no other object has the same components.
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
    metadata: TensorMetadata,
    options: StatsOptions,
    report: Callable[[int], None],
    charge: Callable[[int], None] | None = None,
) -> TensorStats:
    result = TensorStats(metadata.name, metadata.shape, metadata.dtype)
    tensor_object = file.object(metadata.name)
    layout = LAYOUTS.get(metadata.format)
    if layout is None:
        return dataclasses.replace(
            result, note=f"the layout {describe(metadata.format)} is unknown"
        )
    try:
        dtype = result_dtype(tensor_object.components[layout.main_role])
        if is_quantized(metadata.format):
            dtype = np.dtype(np.float32)
            of, counter = "dequantized values", counter_of(dtype, element_count(metadata.shape))
            blocks = dequantized(file, metadata.name)
        else:
            of = "magnitudes" if dtype.kind == "c" else "values"
            counter = counter_of(dtype, element_count(metadata.shape))
            blocks = component_blocks(file, metadata.name, layout.main_role)
        shape = metadata.shape
        part = (
            None if options.sample is None else sampled_blocks(file, metadata.name, options.sample)
        )
        if part is not None:
            shape, blocks = (part[0], *shape[1:]), part[1]
        sums = None
        if options.tiles and not layout.index_roles and has_channels(shape, dtype):
            sums = ChannelSums(shape, options.tiles)
        # NaN and overflow are counted; each thread has its own state.
        with np.errstate(all="ignore"):
            for block in blocks:
                if charge is not None:
                    charge(block.nbytes)
                counter.feed(block)
                if sums is not None:
                    sums.feed(block)
                report(block.nbytes)
            report(metadata.nbytes)
            spread = counter.finish()
            missing = max(element_count(shape) - counter.count, 0)
            if missing:  # zeros that a sparse object does not store
                spread = spread.with_zeros(missing)
                zero = 0 if dtype.kind in "iub" else 0.0
                counter.moments.merge(missing, 0.0, 0.0)
                counter.moments.reach(zero, zero)
            moments = counter.moments.as_fields()
            is_linear = options.scale == "linear"
            quantiles = spread.quantiles(options.quantiles)  # empty if there are no values
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
                quantiles=dict(zip(options.quantiles, quantiles, strict=False)),
                quantile_error=spread.error,
                histogram=spread.histogram(options.bins, options.scale) if options.bins else None,
                middle=spread.middle(options.bins) if options.bins and is_linear else None,
                at_limit=spread.count_beyond(_limit_of(dtype)),
                channels=None if sums is None else sums.finish(),
                sampled=None if part is None else shape[0] / metadata.shape[0],
            )
    except UnsupportedError as error:
        return dataclasses.replace(result, note=error.message)


def _limit_of(dtype: np.dtype[Any]) -> float:
    """Return the largest magnitude of a float type of at most 8 bits; infinity of others."""
    if dtype.itemsize > 1 or not is_float(dtype):
        return math.inf
    values = values_of(dtype)
    return float(values[np.isfinite(values)].max())
