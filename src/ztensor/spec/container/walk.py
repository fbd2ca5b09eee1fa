"""What manifests have in common: a root read pair by pair, a map of objects in it, and rules.

What an object was decoded to is let go before the next one is decoded: of a manifest of many
objects that is half of the memory.
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
from ztensor.spec.wire.record import Form, Record, read_fields

Path: TypeAlias = tuple[str | int, ...]
# `(fields, path, problems) -> object`; None, or an object that is not whole, beside new problems.
ParseObject: TypeAlias = Callable[[list[Any], Path, list[Problem]], TensorObject | None]
# `(role, fields, path, problems) -> component`; None beside new problems.
ParseComponent: TypeAlias = Callable[[str, list[Any], Path, list[Problem]], Component | None]

# From so many objects on, reading them side by side takes less time than reading each.
LEAST_OBJECTS = 25

_SELF_DESCRIBED = b"\xd9\xd9\xf7"  # RFC 7049 2.4.5: says "this is CBOR" and means nothing else
# Bytes of memory that a dimension takes, and each byte of texts that are not ASCII. An object of so
# many bytes has long ones.
_DIMENSION_COST, _LONG_FACTOR, _LONG = 40, 4, 1024
_FIELD_COST = 240  # of a field of the root, which two maps have


class Root:
    """The root of a manifest, read.

    Args:
        decoder: of the manifest.
        form: how the version writes it.
        begin: takes the fields before the objects, and problems to add to; it returns what parses
            the objects.
        blobs_end: where in the file no blob goes on.

    Attributes:
        fields: those beside the objects, by name.
        values: the fields as the schema has them; nothing where something is wrong with them.
        objects: by name; None for those that were refused.
        problems: what is wrong; objects behind `MOST_PROBLEMS` are not parsed.

    Raises:
        ManifestError: it is not one well-formed map, or has a key twice, or one that is not text.
        LimitError: it nests too deep, or costs too much.
    """

    def __init__(
        self,
        decoder: cbor.Decoder,
        form: Form,
        begin: Callable[[Mapping[str, object], list[Problem]], ParseObject],
        *,
        blobs_end: int,
    ) -> None:
        self.fields: dict[str, object] = {}
        self.objects: Mapping[str, TensorObject] = {}
        self.problems: list[Problem] = []
        self._decoder, self._form, self._begin = decoder, form, begin
        self._blobs_end = blobs_end
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
        if count >= LEAST_OBJECTS and form.start:
            from ztensor.spec.container.kinds import Kinds  # small files need none of it

            kinds = Kinds(decoder, form, count, self._read_object, level)
            found = kinds.read(first, self._blobs_end)
            if found is not None:
                self.objects, end = found
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
            made = self._parse(fields, path, problems) if fields else None
            if len(problems) > known:
                problems[known:] = [problem.about(name) for problem in problems[known:]]
            return made

        return read_object(self._decoder, start, self._level + 2, parse, self.problems)


def read_object(
    decoder: cbor.Decoder,
    start: int,
    level: int,
    parse: Callable[[object, list[Problem]], TensorObject | None],
    problems: list[Problem],
) -> tuple[TensorObject | None, int]:
    """Return an object, None where it breaks rules, and where it ends.

    Args:
        decoder: of the manifest.
        start: where the object begins.
        level: in how many items it is.
        parse: `(entry, problems) -> object` takes what was decoded.
        problems: takes what is wrong; nothing is parsed behind `MOST_PROBLEMS`.

    Raises:
        ManifestError: it is not well-formed.
        LimitError: it nests too deep, or costs too much.
    """
    budget, known = decoder.budget, len(problems)
    left = budget.bytes_left
    entry, end = decoder.read(start, level)
    made = parse(entry, problems) if known < MOST_PROBLEMS else None
    if made is None or len(problems) > known:
        budget.release_to(left)
        budget.charge_bytes(OBJECT_COST)
        return None, end
    parts = made.components.values()
    if made.attributes is made.extra is None and all(part.extra is None for part in parts):
        budget.release_to(left)  # of what was decoded nothing is kept
        cost = OBJECT_COST + COMPONENT_COST * len(parts) + _DIMENSION_COST * len(made.shape)
        budget.charge_bytes(cost + (_LONG_FACTOR * (end - start) if end - start > _LONG else 0))
    return made, end


def parse_components(
    entries: Mapping[str, object],
    record: Record,
    path: Path,
    problems: list[Problem],
    parse: ParseComponent,
) -> dict[str, Component]:
    """Return the components of an object by their roles, without those that break rules.

    Args:
        entries: what was decoded.
        record: the schema of one.
        path: steps from the manifest's root to the entries.
        problems: takes what is wrong; nothing is parsed behind `MOST_PROBLEMS`.
        parse: parses one.
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
            problems[start:] = [found._replace(component=role) for found in problems[start:]]
    return components


def check_blob(
    component: Component, blobs_end: int, path: Path, digest: str = "digest"
) -> list[Problem]:
    """Return what is wrong with place and digest of a component of 1.x or 0.1.

    A blob is behind the header and ends before the manifest. The texts say only `offset + length <=
    file size`; their diagrams place every blob between header and manifest, and a blob over either
    would alias structure.

    Args:
        component: what was parsed.
        blobs_end: offset of the manifest.
        path: steps from the manifest's root to the component.
        digest: what the field of the digest is called.
    """
    place, path_of_place = (component.offset, component.length), (*path, "offset")
    problems = check_place(place, blobs_end, ALIGNMENT, path_of_place, "1.2 section 4")
    if component.digest is not None:
        problems += check_digest(component.digest, *path, digest)
    return problems


def check_place(
    place: tuple[int, int], end: int, alignment: int, path: Path, section: str
) -> list[Problem]:
    """Return what is wrong with where a blob is.

    Args:
        place: its offset and its length, neither negative.
        end: no blob goes on behind it.
        alignment: blobs begin at multiples of it, and not at 0, where the header is.
        path: steps from the manifest's root to the place.
        section: of the specification.
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
    """Raise where there are problems.

    Raises:
        ManifestError: it carries all of them, and its place is the first one's.
    """
    if not problems:
        return
    first, told = problems[0], problems[:MOST_PROBLEMS]
    more = f"; and {counted(len(told) - 1, 'more problem')}" if len(told) > 1 else ""
    if len(told) == MOST_PROBLEMS:
        more += ", or others behind them"
    raise ManifestError(
        f"the manifest breaks a rule: {first}{more}",
        reason=first.reason,
        object_name=first.object_name,
        component=first.component,
        problems=told,
    )
