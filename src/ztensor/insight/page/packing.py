"""The document of a model packed for the page: names front coded, numbers short, within a budget.

The first block has the data for the first view of the page. Details of single tensors follow in
blocks of 256, which the page unpacks on demand. A block is base64 of gzip of JSON, so nothing in it
can end the block.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.insight.analysis.document import heat_of, tiles_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHUNK = 256  # tensors whose details are in one block
_DIGITS = 5
_FINDINGS = 1000  # most findings in the page
_BASE, _EACH = 3_000_000, 1_500  # bytes of a page for 1,000 tensors, and for each further one
_OWN = 90_000  # bytes of text, style and script
_FULL, _SMALL, _NONE = range(3)  # how much of a heat map is kept
_COLUMNS = ("shape", "type", "layout", "encoding", "digest", "nbytes", "rms", "crest", "log2_rms")
_CHANGED = frozenset((float, dict, list, tuple))  # types that `short` changes
_TABLES = ("shapes", "types", "layouts", "encodings", "digests")


def packed(document: Mapping[str, Any], most: int | None = None) -> tuple[str, dict[str, str]]:
    """Return the blocks of a page: the first one, and the blocks of details by id.

    Args:
        document: a `ztensor-insight/1`; not modified.
        most: the approximate size of the page in bytes; by default it depends on the number of
            tensors. The list of tensors is never left out.
    """
    count = max(model["object_count"] for model in document["models"])
    budget = (most or _BASE + _EACH * max(count - 1000, 0)) - _OWN
    main = _main(document)
    block = _block(main)
    blocks, left_out = _Details(document).fitted(budget - len(block))
    if left_out:
        block = _block(main | {"left_out": [*main["left_out"], *left_out]})
    return block, blocks


def main_of(document: Mapping[str, Any]) -> str:
    """Return the block of a page that requests details from a server.

    Args:
        document: a `ztensor-insight/1`, with the additional field `is_examined`.
    """
    return _block(_main(document) | {"live": True, "is_examined": document["is_examined"]})


def _block(value: Any) -> str:
    data = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def short(value: Any) -> Any:
    """Return a document with fractional numbers rounded to five digits."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return int(value)
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: short(one) if type(one) in _CHANGED else one for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        if _CHANGED.isdisjoint(map(type, value)):  # as most lists of counts
            return value
        return [short(one) if type(one) in _CHANGED else one for one in value]
    return value


def _main(document: Mapping[str, Any]) -> dict[str, Any]:
    findings = document["findings"]
    left_out = [*document["left_out"]]
    if len(findings) > _FINDINGS:
        what = {
            "what": "findings",
            "why": "the worst are listed",
            "count": len(findings) - _FINDINGS,
        }
        left_out.append(what)
    kept = {name: document[name] for name in ("schema", "producer", "sampled", "rules")}
    kept["not_looked_at"] = document["not_looked_at"]
    kept["findings"] = short(findings[:_FINDINGS])
    kept["finding_count"] = len(findings)
    kept["left_out"] = left_out
    kept["chunk"] = CHUNK
    kept["models"] = [_model(model) for model in document["models"]]
    if "diff" in document:
        kept["diff"] = short(document["diff"])
    return kept


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in model.items() if name not in ("tensors", "detail")}
    kept["layers"] = short(kept["layers"])
    tensors = model["tensors"]
    shared, rest = front_coded(tensors["name"])
    kept["tensors"] = {
        "shared": shared,
        "rest": rest,
        **{name: tensors[name] for name in _TABLES},
        **{name: short(tensors[name]) for name in _COLUMNS},
    }
    return kept


def front_coded(names: Sequence[str]) -> tuple[list[int], str]:
    """Return the length of the prefix that each name shares with the last, and the rests in lines.

    Escaped names have no line feeds. Lengths are in UTF-16 code units, as in scripts.
    """
    shared, rest, before = [], [], ""
    for name in names:
        low, high = 0, min(len(before), len(name))  # bounds of the common prefix
        while low < high:
            middle = (low + high + 1) // 2
            if name.startswith(before[low:middle], low):
                low = middle
            else:
                high = middle - 1
        wide = 0 if name.isascii() else sum(letter > "\uffff" for letter in name[:low])
        shared.append(low + wide)
        rest.append(name[low:])
        before = name
    return shared, "\n".join(rest)


class _Details:
    """Details of all tensors, with the choice of details to keep.

    Args:
        document: a `ztensor-insight/1`.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._models = document["models"]
        with_findings = {(finding["model"], finding["tensor"]) for finding in document["findings"]}
        known: set[tuple[int, int]] = set()  # tensors of a second model that equal the first
        if "diff" in document:
            diff = document["diff"]
            same = zip(diff["b"], diff["kind"], strict=True)
            known = {(1, place) for place, kind in same if kind in ("equal", "renamed")}
        self._keys = [
            (number, place)
            for number, model in enumerate(self._models)
            for place in range(model["object_count"])
            if (number, place) not in known
        ]
        self._heats = {key: self._of(key).get("heat") for key in self._keys}

        def interest(key: tuple[int, int]) -> tuple[bool, int, tuple[int, int]]:
            nbytes = self._models[key[0]]["tensors"]["nbytes"][key[1]]
            return key not in with_findings, -int(nbytes), key

        self._ranked = sorted(self._keys, key=interest)

    def _of(self, key: tuple[int, int]) -> dict[str, Any]:
        detail: dict[str, Any] = self._models[key[0]]["detail"][str(key[1])]
        return detail

    def fitted(self, room: int) -> tuple[dict[str, str], list[dict[str, Any]]]:
        """Return the blocks of details that fit into `room` bytes, and a list of omitted details.

        Returns:
            Blocks by id: `detail-0-3` is the fourth block of the first model; and the entries of
            `left_out`.
        """
        bare = dict.fromkeys(self._keys, _NONE)
        blocks = self._blocks(bare)
        nbytes = sum(map(len, blocks.values()))
        kept = self._ranked
        if nbytes > room:
            kept = kept[: max(int(len(kept) * room / nbytes * 0.9), 0)]
        keep = dict.fromkeys(kept, _NONE)
        left = room - nbytes if len(kept) == len(self._keys) else 0
        for size, previous in ((_SMALL, 0), (_FULL, 1)):
            for key in kept:
                heat = self._heats[key]
                if heat is None or (previous and keep[key] == _NONE):
                    continue
                cost = _cost(heat, size) - (_cost(heat, _SMALL) if previous else 0)
                if cost <= left:
                    keep[key], left = size, left - cost
        return blocks if keep == bare else self._blocks(keep), self._told(keep)

    def _told(self, keep: Mapping[tuple[int, int], int]) -> list[dict[str, Any]]:
        why = "the page would be too large"
        maps = [key for key, heat in self._heats.items() if heat is not None]
        coarse = sum(keep.get(key) == _SMALL and _is_large(self._heats[key]) for key in maps)
        facts = {
            "details of tensors": len(self._keys) - len(keep),
            "heat maps": sum(keep.get(key, _NONE) == _NONE for key in maps),
            "heat maps in full resolution": coarse,
        }
        return [{"what": what, "why": why, "count": n} for what, n in facts.items() if n]

    def _blocks(self, keep: Mapping[tuple[int, int], int]) -> dict[str, str]:
        chunks: dict[str, dict[str, Any]] = {}
        for (number, place), size in sorted(keep.items()):
            detail = dict(self._of((number, place)))
            heat = detail.pop("heat", None)
            if heat is not None and size != _NONE:
                detail["heat"] = heat if size == _FULL else halved(heat)
            chunk = chunks.setdefault(f"detail-{number}-{place // CHUNK}", {})
            chunk[str(place)] = short(detail)
        return {name: _block(chunk) for name, chunk in chunks.items()}


def _is_large(heat: Mapping[str, Any] | None) -> bool:
    return heat is not None and math.prod(heat["shape"]) > 512


def _cost(heat: Mapping[str, Any], size: int) -> int:
    """Return the approximate size of a map in the page: it is incompressible."""
    cells = math.prod(heat["shape"])
    if size == _SMALL and _is_large(heat):
        cells = math.prod((side + 1) // 2 for side in heat["shape"])
    return int(cells / 2 * 1.4) + 40


def halved(heat: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a map with half as many tiles along each axis; small maps are unchanged."""
    if not _is_large(heat):
        return heat
    rows, columns = heat["shape"]
    tiles = tiles_of(heat).reshape(rows, columns)
    squares = tiles * tiles
    squares = np.pad(squares, ((0, rows % 2), (0, columns % 2)), "edge")
    squares = (squares[::2] + squares[1::2]) / 2
    squares = (squares[:, ::2] + squares[:, 1::2]) / 2
    return heat_of((squares**0.5).reshape(-1), squares.shape)
