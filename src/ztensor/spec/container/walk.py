"""The common parts of the schemas: the root, its map of objects, and the rules for blobs.

The root is decoded pair by pair, and the decoded map of an object is freed before the next object:
that halves the memory for a manifest of many objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ztensor.errors import MOST_PROBLEMS, ManifestError, Problem, Reason
from ztensor.showing import counted
from ztensor.spec.digest import check_digest
from ztensor.spec.model.manifest import (
    ALIGNMENT,
    COMPONENT_COST,
    OBJECT_COST,
    Component,
    TensorObject,
)
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import ManifestForm, Record, read_fields

Path: TypeAlias = tuple[str | int, ...]
# `(fields, path, problems) -> object`; with new problems, None or an incomplete object.
ParseObject: TypeAlias = Callable[[list[Any], Path, list[Problem]], TensorObject | None]
# `(role, fields, path, problems) -> component`; with new problems, None.
ParseComponent: TypeAlias = Callable[[str, list[Any], Path, list[Problem]], Component | None]

# Threshold of bulk parsing by `kinds.py`: with fewer objects, reading them one by one is faster.
LEAST_OBJECTS = 25

_SELF_DESCRIBED = b"\xd9\xd9\xf7"  # RFC 7049 section 2.4.5: a tag that only marks CBOR
# Bytes of memory per dimension; per encoded byte of an object with long texts, which may be wide;
# and the encoded length from which an object has such texts.
_DIMENSION_COST, _LONG_FACTOR, _LONG = 40, 4, 1024
_FIELD_COST = 240  # of a field of the root, which is in two maps


class Root:
    """The decoded root of a manifest, with its objects.

    Args:
        decoder: a decoder of the manifest's bytes.
        form: the version's schemas and encoded forms.
        begin: `(fields, problems) -> ParseObject`, called with the fields before the objects.
        blobs_end: the file offset that no blob exceeds.
        least_objects: threshold of bulk parsing.

    Attributes:
        fields: name to value, without the objects.
        values: the values in the order of the schema; empty if the root breaks it.
        objects: name to object; None for an object with problems.
        problems: all problems; after `MOST_PROBLEMS` no further object is parsed.

    Raises:
        ManifestError: the bytes are not one well-formed map, or a key is repeated or not text.
        LimitError: they nest too deep, or cost too much.
    """

    def __init__(
        self,
        decoder: cbor.Decoder,
        form: ManifestForm,
        begin: Callable[[Mapping[str, object], list[Problem]], ParseObject],
        *,
        blobs_end: int,
        least_objects: int = LEAST_OBJECTS,
    ) -> None:
        self.fields: dict[str, object] = {}
        self.objects: Mapping[str, TensorObject] = {}
        self.problems: list[Problem] = []
        self._decoder, self._form, self._begin = decoder, form, begin
        self._blobs_end, self._least_objects = blobs_end, least_objects
        pos = self._level = 0
        if decoder.data.startswith(_SELF_DESCRIBED) and not decoder.strict:
            pos, self._level = decoder.enter(0, 0)[1], 1
        root, end = decoder.visit(pos, self._level, self._read_value)
        decoder.require_end(end)
        problems: list[Problem] = []
        self.values = read_fields(root, form.root, (), problems)
        if type(root) is not dict and not form.root.is_exact:
            require_none(problems)
        self.problems[:0] = problems

    def _read_value(self, key: object, start: int) -> tuple[object, int]:
        decoder, form, level = self._decoder, self._form, self._level + 1
        if key != form.objects or decoder.kind(start) != cbor.MAP:
            decoder.budget.charge_bytes(_FIELD_COST)
            value, end = decoder.read(start, level)
            if isinstance(key, str):
                self.fields[key] = value
            return value, end
        self._parse = self._begin(self.fields, self.problems)
        count, first = decoder.enter(start, level)
        known = len(self.problems)
        if count >= self._least_objects and form.start:
            from ztensor.spec.container.kinds import Kinds  # not needed for small files

            kinds = Kinds(decoder, form, count, self._read_object, level)
            table = kinds.read(first, self._blobs_end)
            if table is not None:
                self.objects, end = table
                return {}, end
            del self.problems[known:]
        objects, end = decoder.visit(start, level, self._read_object)
        if type(objects) is cbor.Pairs:
            message = "expected a map with text keys, found a map with keys that are not text"
            path, section = (form.objects,), form.root.section
            self.problems.append(Problem(Reason.FIELD_TYPE, message, path, section))
        self.objects = objects
        return {}, end

    def _read_object(self, name: object, start: int) -> tuple[TensorObject | None, int]:
        form, known = self._form, len(self.problems)

        def parse(entry: object, problems: list[Problem]) -> TensorObject | None:
            if not isinstance(name, str):
                return None
            path = (form.objects, name)
            fields = read_fields(entry, form.object, path, problems)
            tensor_object = self._parse(fields, path, problems) if fields else None
            if len(problems) > known:
                problems[known:] = [problem.about(name) for problem in problems[known:]]
            return tensor_object

        return read_object(self._decoder, start, self._level + 2, parse, self.problems)


def read_object(
    decoder: cbor.Decoder,
    start: int,
    level: int,
    parse: Callable[[object, list[Problem]], TensorObject | None],
    problems: list[Problem],
) -> tuple[TensorObject | None, int]:
    """Decode and parse one object. Return it, or None if it breaks rules, and its end.

    Args:
        decoder: a decoder of the manifest's bytes.
        start: offset of the object.
        level: number of items around it.
        parse: `(entry, problems) -> object` parses the decoded value.
        problems: receives the problems; after `MOST_PROBLEMS` objects are decoded, not parsed.

    Raises:
        ManifestError: it is not well-formed.
        LimitError: it nests too deep, or costs too much.
    """
    budget, known = decoder.budget, len(problems)
    left = budget.bytes_left
    entry, end = decoder.read(start, level)
    tensor_object = parse(entry, problems) if known < MOST_PROBLEMS else None
    if tensor_object is None or len(problems) > known:
        budget.release_to(left)
        budget.charge_bytes(OBJECT_COST)
        return None, end
    parts = tensor_object.components.values()
    if tensor_object.attributes is tensor_object.extra is None and all(
        part.extra is None for part in parts
    ):
        budget.release_to(left)  # the decoded map is freed
        cost = (
            OBJECT_COST + COMPONENT_COST * len(parts) + _DIMENSION_COST * len(tensor_object.shape)
        )
        budget.charge_bytes(cost + (_LONG_FACTOR * (end - start) if end - start > _LONG else 0))
    return tensor_object, end


def parse_components(
    entries: Mapping[str, object],
    record: Record,
    path: Path,
    problems: list[Problem],
    parse: ParseComponent,
) -> dict[str, Component]:
    """Return role to component, without the components that break rules.

    Args:
        entries: role to decoded map.
        record: the schema of a component.
        path: steps from the manifest's root to the entries.
        problems: receives the problems; after `MOST_PROBLEMS` no component is parsed.
        parse: parses the fields of a component.
    """
    components: dict[str, Component] = {}
    for role, entry in entries.items():
        start, place = len(problems), (*path, role)
        if start >= MOST_PROBLEMS:
            break
        fields = read_fields(entry, record, place, problems)
        component = parse(role, fields, place, problems) if fields else None
        if component is not None:
            components[role] = component
        if len(problems) > start:
            problems[start:] = [problem._replace(component=role) for problem in problems[start:]]
    return components


def check_blob(
    component: Component, blobs_end: int, path: Path, digest: str = "digest"
) -> list[Problem]:
    """Return problems with extent and digest of a component of 0.1 or 1.x (1.2 section 4).

    A blob must be between header and manifest. The texts say only `offset + length <= file size`,
    but their diagrams show it so, and a blob over either would alias structure.

    Args:
        component: the parsed component.
        blobs_end: offset of the manifest.
        path: steps from the manifest's root to the component.
        digest: name of the field of the digest.
    """
    place, path_of_place = (component.offset, component.length), (*path, "offset")
    problems = check_place(place, blobs_end, ALIGNMENT, path_of_place, "1.2 section 4")
    if component.digest is not None:
        problems += check_digest(component.digest, *path, digest)
    return problems


def check_place(
    place: tuple[int, int], end: int, alignment: int, path: Path, section: str
) -> list[Problem]:
    """Return problems with the extent of a blob.

    Args:
        place: offset and length, not negative.
        end: the offset that no blob exceeds.
        alignment: of the offset, which also must not be 0: the header is there.
        path: steps from the manifest's root to the field.
        section: the specification's section.
    """
    offset, length = place
    problems = []
    if offset % alignment:
        message = f"expected a multiple of {alignment}, found {offset}"
        problems.append(Problem(Reason.OFFSET_ALIGNMENT, message, path, section))
    if not offset or offset + length > end:
        message = f"expected a blob in [{alignment}, {end}), found [{offset}, {offset + length})"
        problems.append(Problem(Reason.OUT_OF_BOUNDS, message, path, section))
    return problems


def require_none(problems: Sequence[Problem]) -> None:
    """Raise one error for all problems.

    Raises:
        ManifestError: there are problems; its object and component are those of the first.
    """
    if not problems:
        return
    first, kept = problems[0], problems[:MOST_PROBLEMS]
    more = f"; and {counted(len(kept) - 1, 'more problem')}" if len(kept) > 1 else ""
    if len(kept) == MOST_PROBLEMS:
        more += "; later ones were not looked for"
    raise ManifestError(
        f"the manifest breaks a rule: {first}{more}",
        reason=first.reason,
        object_name=first.object_name,
        component=first.component,
        problems=kept,
    )
