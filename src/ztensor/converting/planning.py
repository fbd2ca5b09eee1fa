"""Assignment of a reader's objects to shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.ext import ObjectReader, Overlaps, ShardSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def plan_objects(
    reader: ObjectReader, names: Iterable[str], limit: int, kind: str
) -> list[tuple[list[str], int]]:
    """Return the names of each shard that a reader's objects are written to, and its bytes.

    Args:
        reader: an open reader, of one file or several.
        names: names of the objects to write, in order.
        limit: most bytes in a shard.
        kind: the format of the shards. In ours, objects that share stored bytes come into one
            shard, and stored bytes count; in others each name has bytes of its own.
    """
    if kind != "zt":
        return ShardSet.planned(
            ((name, reader.metadata(name).nbytes, None) for name in names), limit
        )
    blobs: dict[object, list[tuple[int, int]]] = {}
    for name in reader:
        blobs.setdefault(reader.objects.part(name), []).extend(
            (part.offset, part.length) for part in reader.metadata(name).components.values()
        )
    overlaps = {home: Overlaps.runs(ranges) for home, ranges in blobs.items()}

    def objects() -> Iterator[tuple[str, int, object]]:
        for name in names:
            parts = reader.metadata(name).components.values()
            places = tuple((part.offset, part.length) for part in parts)
            stored = sum(part.length for part in parts)
            home = reader.objects.part(name)
            runs = tuple(overlaps[home].around(*place) or place for place in places)
            yield name, stored, (home, runs) if stored else None

    return ShardSet.planned(objects(), limit)
