"""What manifests have in common: maps and arrays read item by item, and a map of objects.

A map is read pair by pair. What an object was decoded to is let go before the next one is decoded:
of a manifest of many objects that is half of the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.spec.digest import check_digest
from ztensor.spec.model.manifest import COMPONENT_COST, OBJECT_COST
from ztensor.spec.model.rules import MOST_PROBLEMS, check_place
from ztensor.spec.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ztensor.errors import Problem
    from ztensor.spec.model.manifest import Component, TensorObject
    from ztensor.spec.wire.record import Form

    Path = tuple[str | int, ...]
    # `(name, entry) -> object`, or None and problems where it breaks rules.
    Parse = Callable[[object, object], TensorObject | None]
    # `(role, entry, path) -> component`, or None and problems.
    ParseComponent = Callable[[str, object, Path], Component | None]

# From so many objects on, reading them side by side takes less time than reading each.
LEAST_OBJECTS = 25

# Bytes of memory that a dimension takes, and each byte of texts that are not ASCII. An object of so
# many bytes has long ones.
_DIMENSION_COST, _LONG_FACTOR, _LONG = 40, 4, 1024


def read_map(
    decoder: cbor.Decoder,
    pos: int,
    level: int,
    fields: dict[str, object],
    read_value: Callable[[object, int], tuple[object, int]],
) -> int:
    """Read a map pair by pair; return where it ends.

    Args:
        decoder: of the manifest.
        pos: where the map begins.
        level: in how many items it is.
        fields: takes the pairs whose key is text.
        read_value: `(key, start) -> (value, end)` reads each value.

    Raises:
        ManifestError: it is not well-formed, or has a key twice.
        LimitError: it nests too deep, or costs too much.
    """
    data = decoder.data
    count, pos = decoder.enter(pos, level)
    before = b""
    done = 0
    while done != count:
        if count < 0 and data[pos : pos + 1] == b"\xff":
            return pos + 1
        key, end = decoder.read(pos, level + 1)
        form = data[pos:end]
        if form == before or (isinstance(key, str) and key in fields):
            raise cbor.duplicate_key(pos, key)
        if decoder.strict:
            if form < before:
                raise cbor.unsorted(pos)
            before = form
        value, pos = read_value(key, end)
        if isinstance(key, str):
            fields[key] = value
        done += 1
    return pos


def read_array(decoder: cbor.Decoder) -> Iterator[tuple[object, int]]:
    """Yield the items of the one array that the data holds, and what each was charged.

    Raises:
        ManifestError: it is not one well-formed array.
        LimitError: it nests too deep, or costs too much.
    """
    data, budget = decoder.data, decoder.budget
    count, pos = decoder.enter(0, 0)
    done = 0
    while done != count:
        if count < 0 and data[pos : pos + 1] == b"\xff":
            pos += 1
            break
        before = budget.bytes_left
        entry, pos = decoder.read(pos, 1)
        yield entry, before - budget.bytes_left
        done += 1
    decoder.require_end(pos)


def read_objects(
    decoder: cbor.Decoder,
    pos: int,
    level: int,
    begin: Callable[[list[Problem]], Parse],
    form: Form,
    *,
    blobs_end: int,
    least: int = LEAST_OBJECTS,
) -> tuple[Mapping[str, TensorObject], list[Problem], int]:
    """Return the objects of the map at `pos`, the problems with them, and where the map ends.

    Where there are problems, the map has None for objects that were refused. Objects behind
    `MOST_PROBLEMS` are not parsed.

    Args:
        decoder: of the manifest.
        pos: where the map begins.
        level: in how many items it is.
        begin: returns what parses entries, and adds to the problems it is given. It is called again
            where objects are read anew.
        form: how plain objects of the version are written.
        blobs_end: where in the file no blob goes on.
        least: as many objects are tried side by side.

    Raises:
        ManifestError: it is not a well-formed map, or has a name twice.
        LimitError: it nests too deep, or costs too much.
    """
    budget = decoder.budget
    problems: list[Problem] = []
    parse = begin(problems)

    def read_object(name: object, start: int) -> tuple[TensorObject | None, int]:
        left, known = budget.bytes_left, len(problems)
        entry, end = decoder.read(start, level + 1)
        made = parse(name, entry) if known < MOST_PROBLEMS else None
        if len(problems) > known:
            made = None
            if isinstance(name, str):
                problems[known:] = [problem.about(name) for problem in problems[known:]]
        if made is None or not _keeps_more(made):
            budget.release_to(left)
            cost = OBJECT_COST if made is None else _cost(made, end - start, form.place_cost)
            budget.charge_bytes(cost)
        return made, end

    count, first = decoder.enter(pos, level)
    if count >= least:
        from ztensor.spec.container.kinds import read_kinds  # small files need none of it

        found = read_kinds(decoder, first, count, level, form, read_object, blobs_end=blobs_end)
        if found is not None:
            return found[0], problems, found[1]
        problems.clear()
        parse = begin(problems)
    objects: dict[str, object] = {}
    end = read_map(decoder, pos, level, objects, read_object)
    return objects, problems, end  # type: ignore[return-value]  # None only beside problems


def parse_components(
    entries: Mapping[str, object], path: Path, problems: list[Problem], parse: ParseComponent
) -> dict[str, Component]:
    """Return the components of an object by their roles, without those that break rules.

    Args:
        entries: what was decoded.
        path: steps from the manifest's root to the entries.
        problems: takes what is wrong; nothing is parsed behind `MOST_PROBLEMS`.
        parse: parses one.
    """
    components: dict[str, Component] = {}
    for role, entry in entries.items():
        start = len(problems)
        if start >= MOST_PROBLEMS:
            break
        component = parse(role, entry, (*path, role))
        if component is not None:
            components[role] = component
        if len(problems) > start:
            problems[start:] = [found._replace(component=role) for found in problems[start:]]
    return components


def check_blob(component: Component, blobs_end: int, digest: str = "digest") -> list[Problem]:
    """Return what is wrong with place and digest of a component of 1.x or 0.1.

    Args:
        component: what was parsed.
        blobs_end: offset of the manifest.
        digest: what the field of the digest is called.
    """
    problems = check_place(component, blobs_end)
    if component.digest is not None:
        problems += [problem.under(digest) for problem in check_digest(component.digest)]
    return problems


def _keeps_more(tensor_object: TensorObject) -> bool:
    """Return whether an object keeps decoded values of any kind."""
    if tensor_object.attributes is not None or tensor_object.extra is not None:
        return True
    return any(one.extra is not None for one in tensor_object.components.values())


def _cost(tensor_object: TensorObject, nbytes: int, place_cost: int) -> int:
    return (
        OBJECT_COST
        + (COMPONENT_COST + place_cost) * len(tensor_object.components)
        + _DIMENSION_COST * len(tensor_object.shape)
        + (_LONG_FACTOR * nbytes if nbytes > _LONG else 0)
    )
