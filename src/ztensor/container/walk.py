"""What manifests have in common: maps and arrays read item by item, and a map of objects.

A map is read pair by pair. What an object was decoded to is let go before the next one is decoded:
of a manifest of many objects that is half of the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import LimitError, ManifestError, Reason, describe
from ztensor.model.manifest import COMPONENT_COST, OBJECT_COST
from ztensor.model.problem import MOST_PROBLEMS
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ztensor.limits import Budget
    from ztensor.model.manifest import TensorObject
    from ztensor.model.problem import Problem

    # `(name, entry) -> object`, or None and problems where it breaks rules.
    Parse = Callable[[object, object], TensorObject | None]

# From so many objects on, reading them side by side takes less time than reading each.
LEAST_OBJECTS = 25

# Bytes of memory that a dimension takes, and each byte of texts that are not ASCII. An object of so
# many bytes has long ones.
_DIMENSION_COST, _LONG_FACTOR, _LONG = 40, 4, 1024


class Form(NamedTuple):
    """How a version writes an object with one component and no attributes.

    Attributes:
        start: its first bytes, at most eight.
        place: what is before the offset of the blob, at most eight bytes.
        between: what is between offset and length, at most eight bytes.
        has_tail: whether the shape follows the component, so that bytes follow the length.
        alignment: of offsets, and the least of them.
        packed: the encoding beside `raw`.
        place_cost: bytes of memory that a place takes while places are compared.
        are_names: whether texts may be the names of all objects, in their order.
        is_strict: whether only the deterministic form of CBOR is taken.
    """

    start: bytes
    place: bytes
    between: bytes
    has_tail: bool
    alignment: int
    packed: str
    place_cost: int
    are_names: Callable[[list[str]], bool]
    is_strict: bool = False


def read_map(
    data: bytes,
    pos: int,
    fields: dict[str, object],
    read_value: Callable[[object, int], tuple[object, int]],
    *,
    depth: int,
    budget: Budget,
    strict: bool = False,
) -> int:
    """Read a map pair by pair; return where it ends.

    Args:
        data: the manifest's bytes.
        pos: where the map begins.
        fields: takes the pairs whose key is text.
        read_value: `(key, start) -> (value, end)` reads each value.
        depth: how deep the map may nest, itself counted.
        budget: what the file may cost.
        strict: whether only the deterministic form of CBOR is taken.

    Raises:
        ManifestError: it is not a well-formed map, or has a key twice.
        LimitError: it nests too deep, or costs too much.
    """
    start = pos
    count, pos = cbor.map_head(data, pos, strict=strict)
    if depth < 1:
        raise cbor.too_deep(start, depth)
    before = b""
    done = 0
    while done != count:
        if pos >= len(data):
            raise cbor.truncated(pos, "an item", len(data))
        if count < 0 and data[pos] == 0xFF:
            return pos + 1
        key, end = cbor.decode_item(data, pos, depth=depth - 1, budget=budget, strict=strict)
        if strict:
            form = data[pos:end]
            if form <= before:
                raise _unsorted(pos, key, is_same=form == before)
            before = form
        if not isinstance(key, str):
            _, pos = read_value(key, end)
        elif key in fields:
            raise cbor.duplicate_key(pos, key)
        else:
            fields[key], pos = read_value(key, end)
        done += 1
    return pos


def read_array(data: bytes, *, depth: int, budget: Budget) -> Iterator[tuple[object, int]]:
    """Yield the items of the one array that `data` holds, and what each was charged.

    Raises:
        ManifestError: it is not one well-formed array.
        LimitError: it nests too deep, or costs too much.
    """
    count, pos = cbor.array_head(data, 0)
    if depth < 1:
        raise cbor.too_deep(0, depth)
    done = 0
    while done != count:
        if pos >= len(data):
            raise cbor.truncated(pos, "an item", len(data))
        if count < 0 and data[pos] == 0xFF:
            pos += 1
            break
        before = budget.bytes_left
        entry, pos = cbor.decode_item(data, pos, depth=depth - 1, budget=budget)
        yield entry, before - budget.bytes_left
        done += 1
    if pos < len(data):
        raise cbor.trailing(pos, len(data))


def _unsorted(pos: int, key: object, *, is_same: bool) -> ManifestError:
    return ManifestError(
        f"the manifest is not in deterministic form at byte {pos}",
        reason=Reason.CBOR_DUPLICATE_KEY if is_same else Reason.CBOR_FORM,
        expected="each key once, in the order of their encoded bytes",
        found=f"the key {describe(key)} {'a second time' if is_same else 'too late'}",
        section="2.1 section 3.1",
    )


def read_objects(
    data: bytes,
    pos: int,
    begin: Callable[[list[Problem]], Parse],
    form: Form,
    *,
    blobs_end: int,
    depth: int,
    budget: Budget,
    least: int = LEAST_OBJECTS,
) -> tuple[Mapping[str, TensorObject], list[Problem], int]:
    """Return the objects of the map at `pos`, the problems with them, and where the map ends.

    Where there are problems, the map has None for objects that were refused. Objects behind
    `MOST_PROBLEMS` are not parsed.

    Args:
        data: the manifest's bytes.
        pos: where the map begins.
        begin: returns what parses entries, and adds to the problems it is given. It is called again
            where objects are read anew.
        form: how plain objects of the version are written.
        blobs_end: where in the file no blob goes on.
        depth: how deep the map may nest, itself counted.
        budget: what the file may cost.
        least: as many objects are tried side by side.

    Raises:
        ManifestError: it is not a well-formed map, or has a name twice.
        LimitError: it nests too deep, or costs too much.
    """
    words: dict[bytes, str] = {}
    problems: list[Problem] = []
    parse = begin(problems)

    def read_object(name: object, start: int) -> tuple[TensorObject | None, int]:
        left = budget.bytes_left
        entry, end = cbor.decode_item(
            data, start, depth=depth - 1, budget=budget, words=words, strict=form.is_strict
        )
        made = parse(name, entry) if len(problems) < MOST_PROBLEMS else None
        if made is None or not _keeps_more(made):
            budget.release_to(left)
            cost = OBJECT_COST if made is None else _cost(made, end - start, form.place_cost)
            budget.charge_bytes(cost)
        return made, end

    count, first = cbor.map_head(data, pos, strict=form.is_strict)
    if count >= least:
        from ztensor.container.kinds import read_kinds  # small files need none of it

        found = read_kinds(
            data,
            first,
            count,
            form,
            read_object,
            blobs_end=blobs_end,
            depth=depth,
            budget=budget,
        )
        if found is not None:
            return found[0], problems, found[1]
        problems.clear()
        parse = begin(problems)
    objects: dict[str, object] = {}
    end = read_map(
        data, pos, objects, read_object, depth=depth, budget=budget, strict=form.is_strict
    )
    return objects, problems, end  # type: ignore[return-value]  # None only beside problems


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


class Nesting:
    """A context in which an error about nesting says how deep the whole manifest may nest.

    Args:
        depth: so deep.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def __enter__(self) -> None:
        """Begin; nothing is done."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Fill in the depth."""
        if isinstance(error, LimitError) and error.reason is Reason.LIMIT_DEPTH:
            error.expected = f"at most {self._depth} levels"
