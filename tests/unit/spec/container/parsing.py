"""Manifests parsed without a file: of any version, in bulk and one object at a time."""

from __future__ import annotations

from typing import Any

import pytest

from ztensor.errors import ManifestError, ZTensorError
from ztensor.ext import ALGORITHMS, Manifest, cbor
from ztensor.io.reading.manifests import check_layouts
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container import SCHEMAS, framing, walk
from ztensor.spec.model import objects

END = 4096  # the offset of manifests here: blobs end before it
NEVER = 1 << 60  # a threshold that no manifest reaches
BULK, REFUSED, GENERAL = "bulk", "refused", "general"


def frame_of(version: str, data: bytes, end: int = END) -> framing.Frame:
    """Return the frame of a manifest at `end`, right before the footer of 2.x."""
    digest = int(ALGORITHMS["xxh3"].of([data])[5:], 16)
    return framing.Frame(framing.Container(version), end, len(data), end + len(data) + 40, digest)


def parse(version: str, data: Any, limits: Limits = DEFAULT_LIMITS, *, end: int = END) -> Manifest:
    """Parse a manifest, or a value that is encoded first, by the schema of a container."""
    data = data if isinstance(data, bytes) else cbor.encode(data)
    frame = frame_of(version, data, end)
    return SCHEMAS[frame.container](data, frame, Budget(limits, frame.file_size))


def parse_file(file: bytes) -> tuple[Manifest, bytes]:
    """Return the manifest of a whole file, and its bytes."""
    frame = framing.locate(file[:8], file[-40:], len(file))
    data = file[frame.manifest_offset : frame.manifest_offset + frame.manifest_length]
    return SCHEMAS[frame.container](data, frame, Budget(DEFAULT_LIMITS, len(file))), data


def refusal(version: str, data: Any, limits: Limits = DEFAULT_LIMITS) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        parse(version, data, limits)
    return caught.value


def read(data: bytes, frame: framing.Frame, limits: Limits, least_objects: int) -> Manifest:
    budget = Budget(limits, frame.file_size)
    manifest = SCHEMAS[frame.container](data, frame, budget, least_objects=least_objects)
    walk.require_none(check_layouts(manifest))
    return manifest


def facts(manifest: Manifest) -> dict[str, Any]:
    """Return the whole content of a manifest as text, in which NaNs, 1 and True differ."""
    items = list(manifest.objects.items())
    assert [name for name, _ in items] == list(manifest.objects)
    return {
        "version": manifest.version,
        "objects": repr(items),
        "attributes": repr(manifest.attributes),
        "commit": manifest.commit,
        "extra": repr(manifest.extra),
        "shards": manifest.shards,
    }


def outcome(
    data: bytes, frame: framing.Frame, limits: Limits, least_objects: int
) -> tuple[Manifest | None, dict[str, Any]]:
    try:
        manifest = read(data, frame, limits, least_objects)
    except ZTensorError as error:
        return None, {"error": type(error), "reason": error.reason, "text": str(error)}
    return manifest, facts(manifest)


def compare(data: bytes, frame: framing.Frame, limits: Limits = DEFAULT_LIMITS) -> str:
    """Parse in bulk and one by one, require the same outcome, and return how bulk parsing went."""
    general, expected = outcome(data, frame, limits, NEVER)
    bulk, actual = outcome(data, frame, limits, 1)
    assert actual == expected
    if bulk is None or general is None:
        return REFUSED
    if not isinstance(bulk.objects, objects.TableObjects):
        return GENERAL
    assert bulk == general
    assert all(name in bulk.objects for name in general.objects)
    return BULK


def table_of(manifest: Manifest) -> objects.Table:
    assert isinstance(manifest.objects, objects.TableObjects)
    return manifest.objects.table


def nested(levels: int) -> Any:
    """Return an integer in so many lists."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value
