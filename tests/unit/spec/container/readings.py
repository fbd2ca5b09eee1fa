"""Manifests read as kinds, from one object on, and in general: both alike, or alike refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from ztensor.errors import ZTensorError
from ztensor.io.reading.manifests import check_layouts
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container import v1, walk
from ztensor.spec.container.framing import TAIL_BYTES, Container, Frame
from ztensor.spec.container.v2 import schema as v2
from ztensor.spec.container.walk import require_none
from ztensor.spec.digest import xxh3
from ztensor.spec.model.manifest import Manifest
from ztensor.spec.model.objects import TableObjects

NEVER = 1 << 60
END = 1 << 50  # where the blobs of files of 1.x end
PLAIN, REFUSED, DECLINED = "plain", "refused", "declined"
READERS: Mapping[Container, Callable[..., Manifest]] = {
    Container.V1: v1.parse_manifest,
    Container.V2: v2.parse_manifest,
}


def frame_1(data: bytes, blobs_end: int = END) -> Frame:
    return Frame(Container.V1, blobs_end, len(data), blobs_end + len(data) + TAIL_BYTES)


def frame_2(data: bytes, size: int, offset: int | None = None) -> Frame:
    """Return where a manifest of 2.x is: last, where nothing else is said."""
    offset = size - 40 - len(data) if offset is None else offset
    return Frame(Container.V2, offset, len(data), size, xxh3(data))


def read(data: bytes, frame: Frame, limits: Limits = DEFAULT_LIMITS, least: int = 1) -> Manifest:
    budget = Budget(limits, frame.file_size)
    with mock.patch.object(walk, "LEAST_OBJECTS", least):
        manifest = READERS[frame.container](data, frame, budget)
    require_none(check_layouts(manifest))
    return manifest


def facts(manifest: Manifest) -> dict[str, Any]:
    """Everything a manifest holds, spelled out: NaNs and 1 and True are told apart."""
    objects = list(manifest.objects.items())
    assert [name for name, _ in objects] == list(manifest.objects)
    return {
        "version": manifest.version,
        "objects": repr(objects),
        "attributes": repr(manifest.attributes),
        "commit": manifest.commit,
        "extra": repr(manifest.extra),
        "shards": manifest.shards,
    }


def outcome(
    data: bytes, frame: Frame, limits: Limits, least: int
) -> tuple[Manifest | None, dict[str, Any]]:
    try:
        manifest = read(data, frame, limits, least)
    except ZTensorError as error:
        return None, {"error": type(error), "reason": error.reason, "text": str(error)}
    return manifest, facts(manifest)


def compare(data: bytes, frame: Frame | None = None, limits: Limits = DEFAULT_LIMITS) -> str:
    """Read both ways and return how that as kinds went: PLAIN where it was taken."""
    frame = frame or frame_1(data)
    general, expected = outcome(data, frame, limits, NEVER)
    kinds, found = outcome(data, frame, limits, 1)
    assert found == expected
    if kinds is None or general is None:
        return REFUSED
    if isinstance(kinds.objects, TableObjects):
        assert kinds == general
        assert all(name in kinds.objects for name in general.objects)
        return PLAIN
    return DECLINED


def nested(levels: int) -> Any:
    """Return an integer in so many lists."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value
