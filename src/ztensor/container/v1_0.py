"""The container releases 1.0.0 and 1.0.1 wrote and no text describes; it is only read.

Facts are from files those releases wrote: header `ZTEN1000`, no footer magic, the manifest's
size as the last 8 bytes, and a root map with

| field | kind |
| --- | --- |
| `version` | text, `1.0` |
| `generator` | text |
| `attributes` | map |
| `tensors` | name to tensor |

A tensor has `dtype` (the words of 0.1), `shape`, `format`, `components`; a component has
`offset`, `length` and perhaps `encoding` and `digest`. Index components are u64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.container.framing import footer_missing
from ztensor.digest import check_digest
from ztensor.errors import LimitError, ManifestError, Reason
from ztensor.model.dtype import BY_LONG_NAME
from ztensor.model.manifest import COMPONENT_COST, OBJECT_COST, Component, Manifest, TensorObject
from ztensor.model.problem import MOST_PROBLEMS, Problem, manifest_error
from ztensor.model.rules import check_place
from ztensor.wire import cbor
from ztensor.wire.record import Record

if TYPE_CHECKING:
    from ztensor.container.framing import Frame
    from ztensor.limits import Budget

SECTION = "files of releases 1.0.0 and 1.0.1"

_INDEX_ROLES = frozenset({"indices", "indptr", "coords"})

# Unknown fields are kept when a file is rewritten as 1.2. These would get a meaning there.
_ROOT_LATER = frozenset({"objects", "commit"})
_COMPONENT_LATER = frozenset({"dtype", "type", "uncompressed_length"})


def parse_manifest(data: bytes, frame: Frame, budget: Budget) -> Manifest:
    """Return what the manifest says.

    The framing recognises this container by what is missing, so a torn 1.1 or 1.2 file can look
    like it. Where no such manifest is found, the error is that of the torn file.

    Raises:
        ContainerError: there is no manifest of this kind: the footer of a 1.1 or 1.2 file is gone.
        ManifestError: there is one, and it breaks rules.
    """
    try:
        value = cbor.decode(data, depth=budget.limits.depth, budget=budget)
    except (ManifestError, LimitError) as error:
        if error.reason is Reason.LIMIT_COST and cbor.encode_text("tensors") in data:
            raise
        raise footer_missing(frame.manifest_length.to_bytes(8, "little")) from error
    if type(value) is not dict or type(value.get("tensors")) is not dict:
        raise footer_missing(frame.manifest_length.to_bytes(8, "little"))
    problems: list[Problem] = []
    root = Record(value, problems, (), SECTION)
    version = root.text("version")
    attributes = root.attributes("attributes")
    objects: dict[str, TensorObject] = {}
    for name, entry in (root.mapping("tensors") or {}).items():
        if len(problems) >= MOST_PROBLEMS:
            break
        budget.charge_bytes(OBJECT_COST + COMPONENT_COST)
        found: list[Problem] = []
        tensor_object = _parse_tensor(entry, ("tensors", name), frame, found)
        problems.extend(problem.about(name) for problem in found)
        if tensor_object is not None:
            objects[name] = tensor_object
    if problems or version is None:
        raise manifest_error(problems)
    return Manifest(version, objects, attributes or None, None, _rest(root, _ROOT_LATER))


def _rest(record: Record, later: frozenset[str]) -> dict[str, object] | None:
    rest = {key: value for key, value in (record.rest() or {}).items() if key not in later}
    return rest or None


def _parse_tensor(
    entry: object, path: tuple[str, ...], frame: Frame, problems: list[Problem]
) -> TensorObject | None:
    record = Record.of(entry, problems, path, SECTION, "a map describing one tensor")
    if record is None:
        return None
    word = record.text("dtype")
    shape = record.shape("shape")
    layout = record.text("format")
    attributes = record.attributes("attributes")
    entries = record.mapping("components") or {}
    components = {}
    for role, component_entry in entries.items():
        if len(problems) >= MOST_PROBLEMS:
            break
        component = _parse_component(
            role, component_entry, word or "", (*path, "components", role), frame, problems
        )
        if component is not None:
            components[role] = component
    if problems or shape is None or layout is None:
        return None
    return TensorObject(shape, layout, components, attributes or None, record.rest())


def _parse_component(
    role: str,
    entry: object,
    word: str,
    path: tuple[str, ...],
    frame: Frame,
    problems: list[Problem],
) -> Component | None:
    record = Record.of(entry, problems, path, SECTION, "a map describing one blob")
    if record is None:
        return None
    offset = record.uint("offset")
    length = record.uint("length")
    encoding = record.optional_text("encoding") or "raw"
    digest = record.optional_text("digest")
    if digest is not None:
        problems.extend(problem.under(*path, "digest") for problem in check_digest(digest))
    if offset is None or length is None:
        return None
    storage = BY_LONG_NAME.get(word)
    dtype = "u64" if role in _INDEX_ROLES else (storage.name if storage is not None else word)
    component = Component(
        dtype,
        offset,
        length,
        encoding=encoding,
        digest=digest,
        extra=_rest(record, _COMPONENT_LATER),
    )
    problems.extend(
        problem.under(*path) for problem in check_place(component, frame.manifest_offset)
    )
    return component
