"""The container of releases 1.0.0 and 1.0.1, which no text describes; it is only read.

The facts are from files that those releases wrote: header `ZTEN1000`, no footer magic, the
manifest's size as the last 8 bytes, and a root map with

| field | kind |
| --- | --- |
| `version` | text, `1.0` |
| `generator` | text |
| `attributes` | map |
| `tensors` | name to tensor |

A tensor has `dtype` (the words of 0.1), `shape`, `format`, `components`; a component has
`offset`, `length` and optionally `encoding` and `digest`. Index components are u64.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

from ztensor.errors import LimitError, ManifestError, Problem, Reason
from ztensor.limits import Budget
from ztensor.spec.container.framing import Frame, footer_missing
from ztensor.spec.container.walk import Path, Root, check_blob, parse_components, require_none
from ztensor.spec.model.dtype import BY_LONG_NAME
from ztensor.spec.model.manifest import Component, Manifest, TensorObject
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import ATTRIBUTES, ManifestForm, Record

_SECTION = "files of releases 1.0.0 and 1.0.1"
_OPTIONAL = ("attributes", "encoding", "digest")

ROOT = Record(
    "a map", _SECTION, {"version": str, "tensors": dict, "attributes": ATTRIBUTES}, _OPTIONAL
)
TENSOR = Record(
    "a map describing one tensor",
    _SECTION,
    {"dtype": str, "shape": list, "format": str, "components": dict, "attributes": ATTRIBUTES},
    _OPTIONAL,
)
COMPONENT = Record(
    "a map describing one blob",
    _SECTION,
    {"offset": int, "length": int, "encoding": str, "digest": str},
    _OPTIONAL,
)
_INDEX_ROLES = frozenset({"indices", "indptr", "coords"})

# Unknown fields are kept when a file is rewritten as 1.2, except these: 1.2 gives them a meaning.
_ROOT_LATER = ("objects", "commit")
_COMPONENT_LATER = ("dtype", "type", "uncompressed_length")


def parse_manifest(data: bytes, frame: Frame, budget: Budget) -> Manifest:
    """Parse the manifest.

    The framing recognises this container by the missing footer magic, so a cut file of 1.1 or 1.2
    can look like it. If the bytes are not a manifest of this kind, the error is for the cut file.

    Raises:
        ContainerError: the bytes are not such a manifest: a file of 1.1 or 1.2 lost its footer.
        ManifestError: the manifest breaks rules.
        LimitError: it costs too much.
    """
    missing = footer_missing(frame.manifest_length.to_bytes(8, "little"))
    blobs_end = frame.manifest_offset
    parse = functools.partial(_parse_tensor, blobs_end)
    decoder = cbor.Decoder(data, budget, depth=budget.limits.depth)
    try:
        root = Root(
            decoder, ManifestForm(ROOT, TENSOR, "tensors"), lambda *_: parse, blobs_end=blobs_end
        )
    except (ManifestError, LimitError) as error:
        if error.reason is Reason.LIMIT_COST and cbor.encode("tensors") in data:
            raise
        raise missing from error
    if any(problem.path == ("tensors",) for problem in root.problems):
        raise missing
    require_none(root.problems)
    version, _, attributes, extra = root.values
    extra = _without(extra, _ROOT_LATER)
    return Manifest(version, root.objects, attributes or None, None, extra)


def _without(
    extra: Mapping[str, object] | None, later: Collection[str]
) -> Mapping[str, object] | None:
    return {key: value for key, value in (extra or {}).items() if key not in later} or None


def _parse_tensor(
    blobs_end: int, fields: list[Any], path: Path, problems: list[Problem]
) -> TensorObject:
    word, shape, layout, entries, attributes, extra = fields
    storage = BY_LONG_NAME.get(word)
    dtype = word if storage is None else storage.name

    def parse(role: str, fields: list[Any], path: Path, problems: list[Problem]) -> Component:
        offset, length, encoding, digest, extra = fields
        own = "u64" if role in _INDEX_ROLES else dtype
        component = Component(own, offset, length, None, encoding or "raw", digest)
        problems += check_blob(component, blobs_end, path)
        return component._replace(extra=_without(extra, _COMPONENT_LATER))

    components = parse_components(entries, COMPONENT, (*path, "components"), problems, parse)
    return TensorObject(shape, layout, components, attributes or None, extra)
