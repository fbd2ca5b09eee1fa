"""The result of `examine`, and its document `ztensor-insight/1` of plain values for JSON.

`docs/guides/insight.md` has the document.

Columns are lists of one length; the index in them identifies a tensor. Numbers that JSON lacks are
the words `nan`, `inf`, `-inf`; integers beyond 2^53 are texts. Names are escaped by `text.py`.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import ztensor
from ztensor import TensorMetadata
from ztensor.errors import counted, describe
from ztensor.ext import Shown
from ztensor.insight.analysis.channels import Channels, Norms
from ztensor.insight.analysis.findings import RULES, Finding
from ztensor.insight.analysis.pairs import TensorDiff
from ztensor.insight.analysis.roles import Role, groups_of, is_optimizer_state
from ztensor.insight.analysis.statistics import TensorStats
from ztensor.insight.text import element_text, short_repr, shown_name, visible
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence


SCHEMA = "ztensor-insight/1"
BITS = 4  # bits of a tile of a heat map
ROW = ("kind", "differences", "note", "relative", "cosine", "snr_db", "max_abs", "changed")
_SAFE = 1 << 53
_ATTRIBUTES, _ATTRIBUTE_CHARACTERS = 50, 300
_CONTRAST = 8  # least ratio of the largest to the smallest tile of a map
_DEPTH = 1e4  # and the greatest

Kind = Literal["equal", "changed", "renamed", "added", "removed", "not compared", "not looked at"]

LATER: Kind = "not looked at"


@dataclasses.dataclass(frozen=True, slots=True)
class ModelInsight:
    """A model, its tensors in natural order of names.

    Attributes:
        name: the last part of its path, without secrets of a URL.
        format: see `Reader.format`.
        version: see `Reader.version`.
        nbytes: size of all its files.
        parameters: the number that `ztensor info` shows.
        attributes: attributes of the file.
        objects: its tensors.
        stats: statistics of each tensor.
        shown: the escaped name of each tensor.
        roles: the role of each tensor, or None.
        log2_rms: log2 of the RMS of each over the median RMS of its role, or None.
    """

    name: str
    format: str
    version: str
    nbytes: int
    parameters: int
    attributes: Mapping[str, Any]
    objects: tuple[TensorMetadata, ...]
    stats: tuple[TensorStats, ...]
    shown: tuple[str, ...]
    roles: tuple[Role | None, ...]
    log2_rms: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A tensor of the first model and its counterpart in the second.

    Attributes:
        a: its index in the first model, or None.
        b: its index in the second model, or None.
        kind: the kind of change.
        found: the difference; None if only one model has it.
    """

    a: int | None
    b: int | None
    kind: Kind
    found: TensorDiff | None = None

    @property
    def relative(self) -> float | None:
        """Return `||b - a|| / ||a||`; 0.0 if equal, None if not compared."""
        if self.kind in ("equal", "renamed"):
            return 0.0
        values = None if self.found is None else self.found.values
        return None if values is None else values.relative


@dataclasses.dataclass(frozen=True, slots=True)
class Insight(Shown):
    """The result of `examine`.

    Attributes:
        models: one model or two.
        findings: the findings, the worst first.
        pairs: pairs of the tensors of two models, in natural order of names.
        not_looked_at: rules that could not be applied.
        sample: the share of the rows of large tensors that was read; None if everything was read.
    """

    models: tuple[ModelInsight, ...]
    findings: tuple[Finding, ...]
    pairs: tuple[Pair, ...] = ()
    not_looked_at: tuple[str, ...] = ()
    sample: float | None = None

    def __repr__(self) -> str:
        """Return the number of tensors, and of findings of each level."""
        facts = [counted(len(model.objects), "tensor") for model in self.models]
        for level in ("error", "warn", "info"):
            count = sum(finding.level == level for finding in self.findings)
            facts += [f"{count} {level}"] if count else []
        return short_repr("insight.Insight", facts, ".findings, .as_json()")

    def as_json(self) -> dict[str, Any]:
        """Return the document `ztensor-insight/1` for `json.dumps(..., allow_nan=False)`.

        `docs/guides/insight.md` describes each part of it.
        """
        return document_of(self)


def document_of(insight: Insight, *, has_details: bool = True) -> dict[str, Any]:
    """Return the document of an insight.

    Args:
        insight: the result of `examine`.
        has_details: whether to include the details of single tensors.
    """
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "producer": f"pyztensor {ztensor.__version__}",
        "sampled": False if insight.sample is None else {"share": insight.sample},
        "models": [_model(model, has_details=has_details) for model in insight.models],
        "rules": {
            rule: {
                "title": definition.title,
                "threshold": definition.threshold,
                "meaning": definition.meaning,
            }
            for rule, definition in RULES.items()
        },
        "findings": _findings(insight),
        "not_looked_at": list(insight.not_looked_at),
        "left_out": [],
    }
    if len(insight.models) == 2:
        document["diff"] = _diff(insight)
    return document


def plain(value: float | None) -> Any:
    """Return a number as JSON: a word if JSON lacks it, a text if it is too large."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_SAFE <= value <= _SAFE else str(value)
    if math.isfinite(value):
        return float(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


# --- One model ------------------------------------------------------------------------------


def _model(model: ModelInsight, *, has_details: bool) -> dict[str, Any]:
    shapes, shape = _table(tuple(metadata.shape) for metadata in model.objects)
    types, kind = _table(visible(element_text(metadata)) for metadata in model.objects)
    layouts, layout = _table(visible(metadata.format) for metadata in model.objects)
    encodings, encoding = _table(_encoding(metadata.components) for metadata in model.objects)
    digests, digest = _table(_digest(metadata.components) for metadata in model.objects)
    counts = [math.prod(metadata.shape) for metadata in model.objects]
    nbytes = [description.stored_nbytes for description in model.objects]
    groups = groups_of(model.shown)
    states = [is_optimizer_state(name) for name in model.shown]
    attributes = list(model.attributes.items())
    return {
        "name": model.name,
        "format": model.format,
        "version": model.version,
        "nbytes": plain(model.nbytes),
        "stored_nbytes": plain(sum(nbytes)),
        "object_count": len(model.objects),
        "parameters": plain(model.parameters),
        "attributes": [
            [shown_name(str(key)), describe(value, _ATTRIBUTE_CHARACTERS)]
            for key, value in attributes[:_ATTRIBUTES]
        ],
        "attributes_left_out": max(len(attributes) - _ATTRIBUTES, 0),
        "types": _tally(types, kind, counts, nbytes),
        "encodings": _tally(encodings, encoding, counts, nbytes),
        "groups": _tally(*_table(groups), counts, nbytes),
        "optimizer_state": _tally(*_table(states), counts, nbytes)[-1] if any(states) else None,
        "tensors": {
            "name": list(model.shown),
            "shapes": [list(one) for one in shapes],
            "shape": shape,
            "types": types,
            "type": kind,
            "layouts": layouts,
            "layout": layout,
            "encodings": encodings,
            "encoding": encoding,
            "digests": digests,
            "digest": digest,
            "nbytes": [plain(size) for size in nbytes],
            "count": [plain(tensor_stats.count) for tensor_stats in model.stats],
            "nans": [plain(stats.nans) for stats in model.stats],
            "infs": [plain(stats.infs) for stats in model.stats],
            "rms": [plain(stats.rms) for stats in model.stats],
            "crest": [plain(stats.crest) for stats in model.stats],
            "kurtosis": [plain(stats.kurtosis) for stats in model.stats],
            "log2_rms": [plain(one) for one in model.log2_rms],
        },
        "layers": _layers(model),
        "detail": {
            str(place): detail_of(stats)
            for place, stats in enumerate(model.stats if has_details else ())
        },
    }


def _table(values: Iterable[Hashable]) -> tuple[list[Any], list[int]]:
    """Return the distinct values, and the index of each value among them."""
    places: dict[Hashable, int] = {}
    numbers = [places.setdefault(one, len(places)) for one in values]
    return list(places), numbers


def _tally(
    words: Sequence[Any], places: Sequence[int], counts: Sequence[int], nbytes: Sequence[int]
) -> list[dict[str, Any]]:
    sums = [[0, 0, 0] for _ in words]
    for place, count, size in zip(places, counts, nbytes, strict=True):
        one = sums[place]
        one[0], one[1], one[2] = one[0] + 1, one[1] + count, one[2] + size
    order = sorted(range(len(sums)), key=lambda place: (-sums[place][2], str(words[place])))
    return [
        {
            "name": words[place],
            "tensors": sums[place][0],
            "elements": plain(sums[place][1]),
            "nbytes": plain(sums[place][2]),
        }
        for place in order
    ]


def _encoding(components: Mapping[str, Any]) -> str:
    return visible(" + ".join(sorted({component.encoding for component in components.values()})))


def _digest(components: Mapping[str, Any]) -> str:
    words = {(component.digest or "none").partition(":")[0] for component in components.values()}
    return visible(" + ".join(sorted(words)))


def detail_of(stats: TensorStats) -> dict[str, Any]:
    """Return the numbers of one tensor."""
    names = "count zeros nans infs negative_infs at_limit min max mean std rms crest kurtosis"
    detail: dict[str, Any] = {name: plain(getattr(stats, name)) for name in names.split()}
    detail["of"] = stats.of
    detail["quantiles"] = [[share, plain(value)] for share, value in stats.quantiles.items()]
    detail["quantile_error"] = stats.quantile_error
    if stats.sampled is not None:
        detail["sampled"] = stats.sampled
    if stats.note is not None:
        detail["note"] = visible(stats.note)[:1000]
    for field in ("histogram", "middle"):
        number = getattr(stats, field)
        if number is not None:
            detail[field] = {
                "low": plain(number.edges[0]),
                "high": plain(number.edges[-1]),
                "counts": [plain(count) for count in number.counts],
            }
    return detail if stats.channels is None else detail | channels_of(stats.channels)


def channels_of(channels: Channels) -> dict[str, Any]:
    """Return the norms of rows and columns, and the map of tiles."""
    return {
        "row_norms": _norms(channels.rows),
        "column_norms": _norms(channels.columns),
        "heat": heat_of(np.frombuffer(channels.tiles, np.float32), channels.tile_shape),
    }


def _norms(norms: Norms) -> dict[str, Any]:
    fields = {field.name: getattr(norms, field.name) for field in dataclasses.fields(norms)}
    strip = fields.pop("strip")
    return {name: plain(value) for name, value in fields.items()} | {
        "strip": [plain(value) for value in strip]
    }


def heat_of(tiles: Array, shape: Sequence[int]) -> dict[str, Any]:
    """Return the RMS of tiles in 16 steps: 0 is zero, the others are geometric.

    Args:
        tiles: (rows * columns,) the RMS of each tile, row by row.
        shape: the number of rows and columns.
    """
    tiles = np.nan_to_num(np.asarray(tiles, np.float64), posinf=1e300)
    high = float(tiles.max(initial=0.0))
    positive = tiles[tiles > 0]
    low = float(positive.min()) if positive.size else 0.0
    low, steps = min(max(low, high / _DEPTH), high / _CONTRAST), (1 << BITS) - 2
    levels = np.zeros(tiles.size, np.uint8)
    if high > 0:
        ratio = np.log(np.maximum(tiles, low) / low) / math.log(high / low)
        levels = np.where(tiles > 0, 1 + np.rint(ratio * steps), 0).astype(np.uint8)
    levels = np.append(levels, np.zeros(levels.size % 2, np.uint8))
    packed = (levels[::2] << BITS) | levels[1::2]
    return {
        "shape": list(shape),
        "of": "rms",
        "scale": {"kind": "log", "low": plain(low), "high": plain(high)},
        "bits": BITS,
        "data": base64.b64encode(packed.tobytes()).decode(),
    }


def tiles_of(heat: Mapping[str, Any]) -> Array:
    """Return the tiles of a map of `heat_of`, rounded to its 16 steps."""
    packed = np.frombuffer(base64.b64decode(heat["data"]), np.uint8)
    levels = np.stack((packed >> BITS, packed & 15), 1).reshape(-1)
    levels = levels[: math.prod(heat["shape"])].astype(np.float64)
    low, high = float(heat["scale"]["low"]), float(heat["scale"]["high"])
    if not high:
        return np.zeros(levels.size)
    return np.where(levels, low * (high / low) ** ((levels - 1) / ((1 << BITS) - 2)), 0)


def _layers(model: ModelInsight) -> dict[str, Any]:
    """Return the grid of roles and layers, with the index of the tensor in each cell."""
    rows: dict[tuple[str, tuple[int, ...]], dict[int, int]] = {}
    for place, role in enumerate(model.roles):
        if role is not None:
            rows.setdefault(role[:2], {})[role.layer] = place
    indices = sorted({layer for row in rows.values() for layer in row})
    return {
        "roles": [name for name, _ in rows],
        "shapes": [list(shape) for _, shape in rows],
        "indices": indices,
        "tensor": [[row.get(layer) for layer in indices] for row in rows.values()],
        "log2_rms": [
            [plain(model.log2_rms[row[layer]]) if layer in row else None for layer in indices]
            for row in rows.values()
        ],
    }


# --- Findings and differences ---------------------------------------------------------------


def _findings(insight: Insight) -> list[dict[str, Any]]:
    places = [
        {metadata.name: place for place, metadata in enumerate(model.objects)}
        for model in insight.models
    ]
    return [
        _finding(finding, places[finding.model][finding.tensor]) for finding in insight.findings
    ]


def _finding(finding: Finding, place: int) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "level": finding.level,
        "model": finding.model,
        "tensor": place,
        "value": plain(finding.value),
        "threshold": plain(finding.threshold),
        "text": visible(finding.text)[:1000],
    }


def _diff(insight: Insight) -> dict[str, Any]:
    rows = [row_of(pair) for pair in insight.pairs]
    return {
        "a": [pair.a for pair in insight.pairs],
        "b": [pair.b for pair in insight.pairs],
        **{field: [row[field] for row in rows] for field in ROW},
    }


def row_of(pair: Pair) -> dict[str, Any]:
    """Return the row of a pair in `diff`, without its indices."""
    difference = pair.found
    row = {
        "kind": pair.kind,
        "differences": [] if difference is None else list(difference.differences),
        "note": None if difference is None else _note(difference.note),
        "relative": plain(pair.relative),
    }
    return row | {field: plain(_number(pair, field)) for field in ROW[4:]}


def _note(note: str | None) -> str | None:
    return None if note is None else visible(note)[:1000]


def _number(pair: Pair, name: str) -> float | None:
    values = None if pair.found is None else pair.found.values
    return None if values is None else getattr(values, name)
