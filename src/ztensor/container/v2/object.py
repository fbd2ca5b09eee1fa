"""One object of a 2.x manifest, from what CBOR gives to the model (2.1 sections 3.3 to 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.container.v2.layouts import SPARSE, check_layout, ours
from ztensor.digest import parse_strict_digest
from ztensor.errors import FormatError, Reason, describe
from ztensor.model.dtype import STORAGE_TYPES
from ztensor.model.manifest import COMPONENT_COST, OBJECT_COST, Component, TensorObject
from ztensor.model.problem import MOST_PROBLEMS, Problem
from ztensor.wire.cbor import UINT64_MAX, Pairs
from ztensor.wire.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.container.v2.places import Places
    from ztensor.limits import Budget

SECTION_OBJECT = "2.1 section 3.3"
SECTION_PART = "2.1 section 3.4"
SECTION_NAMES = "2.1 section 3.5"
SECTION_TYPES = "2.1 appendix A"
MOST_RANK = 64
MOST_NAME = 1024  # bytes

DTYPES = frozenset(STORAGE_TYPES) - {"bool"}
# The registered logical types and the storage each is defined on.
TYPES: Mapping[str, str] = {
    "bool": "u8",
    "f8_e4m3fn": "u8",
    "f8_e5m2": "u8",
    "f8_e4m3fnuz": "u8",
    "f8_e5m2fnuz": "u8",
    "f8_e8m0": "u8",
    "f4_e2m1": "u8",
    "complex64": "f32",
    "complex128": "f64",
}


def types_of(dtype: str, logical: str | None) -> tuple[str, str | None]:
    """Return storage and logical type as the model has them."""
    return ("bool", None) if logical == "bool" else (dtype, logical)


def words_of(component: Component) -> tuple[str, str | None]:
    """Return storage and logical type as 2.x has them: the reverse of `types_of`."""
    return ("u8", "bool") if component.dtype == "bool" else (component.dtype, component.type)


def encoding_of(word: str | None) -> str:
    """Return the encoding as the model has it: words of 1.x mean nothing in 2.x."""
    if word is None:
        return "raw"
    return f"2.x {word}" if word in ("raw", "zstd") else word


def is_name(text: str) -> bool:
    """Return whether a text may be the name of an object, a part or an attribute."""
    length = len(text)
    if not 0 < length <= MOST_NAME or "\0" in text:
        return False
    return text.isascii() or len(text.encode()) <= MOST_NAME


def name_problem(name: object, path: tuple[str | int, ...]) -> Problem:
    """Return the problem of a key that is no such name."""
    if not isinstance(name, str):
        message = "expected text as a name, found another key"
        return Problem(Reason.FIELD_TYPE, message, path, SECTION_NAMES)
    message = f"expected 1 to {MOST_NAME} bytes without NUL as a name, found {describe(name)}"
    return Problem(Reason.FIELD_VALUE, message, path, SECTION_NAMES)


def fields_of(
    value: object, problems: list[Problem], path: tuple[str | int, ...], section: str, what: str
) -> Record | None:
    """Return a record over a map of fields, of which unknown ones may have any key."""
    if isinstance(value, Pairs):
        value = {key: item for key, item in value if isinstance(key, str)}
    if type(value) is dict:
        return Record(value, problems, path, section, has_nulls=False)
    return Record.of(value, problems, path, section, what)


def attributes_of(
    record: Record, value: object, problems: list[Problem], path: tuple[str | int, ...]
) -> Mapping[str, object] | None:
    """Return a map of attributes, whose keys are names; None where there is none."""
    if isinstance(value, Pairs):
        problems.append(name_problem(None, (*path, "attributes")))
        record.ignorable("attributes")
        return None
    attributes = record.attributes("attributes")
    for key in attributes or ():
        if not is_name(key):
            problems.append(name_problem(key, (*path, "attributes")))
            break
    return attributes


def parse_object(
    name: str, entry: object, places: Places, budget: Budget, problems: list[Problem]
) -> TensorObject | None:
    """Return one object, or None and problems where it breaks rules."""
    budget.charge_bytes(OBJECT_COST)
    found: list[Problem] = []
    path = ("objects", name)
    record = fields_of(entry, found, path, SECTION_OBJECT, "a map describing one object")
    result = None
    if record is not None:
        shape = record.shape("shape")
        layout = record.text("layout")
        attributes = attributes_of(record, record.ignorable("attributes"), found, path)
        parts = record.ignorable("parts")
        if isinstance(parts, Pairs):
            found.append(name_problem(None, (*path, "parts")))
            entries = None
        else:
            entries = record.mapping("parts")
            if entries is not None and not entries:
                message = "expected at least one part, found none"
                found.append(
                    Problem(Reason.COMPONENT_MISSING, message, (*path, "parts"), SECTION_OBJECT)
                )
        components: dict[str, Component] = {}
        budget.charge_bytes(COMPONENT_COST * len(entries or ()))
        for role, part in (entries or {}).items():
            start = len(found)
            if start >= MOST_PROBLEMS:
                break
            if not is_name(role):
                found.append(name_problem(role, (*path, "parts")))
                continue
            component = _parse_part(part, (*path, "parts", role), places, found)
            found[start:] = [problem.about(name, role) for problem in found[start:]]
            if component is not None:
                components[role] = component
        if shape is not None:
            found += [problem.under(*path) for problem in check_shape(shape)]
        if shape is not None and layout is not None and not found:
            found += [
                problem.under(*path)
                for problem in check_layout(layout, shape, components, attributes)
            ]
            own, left = ours(layout, attributes)
            result = TensorObject(
                shape, own, components, left, record.rest(), entries_once=layout in SPARSE
            )
    if found:
        problems.extend(problem.about(name) for problem in found)
        return None
    return result


def check_shape(shape: tuple[int, ...]) -> list[Problem]:
    """Return what is wrong with a shape."""
    if len(shape) > MOST_RANK:
        message = f"expected at most {MOST_RANK} dimensions, found {len(shape)}"
        return [Problem(Reason.FIELD_VALUE, message, ("shape",), SECTION_OBJECT)]
    count = 1
    for dimension in shape:  # from the left, as the releases: a zero behind saves nothing
        count *= dimension
        if count > UINT64_MAX:
            message = f"expected a product below 2^64, found {describe(shape)}"
            return [Problem(Reason.FIELD_VALUE, message, ("shape",), SECTION_OBJECT)]
    return []


def _parse_part(
    entry: object, path: tuple[str, ...], places: Places, problems: list[Problem]
) -> Component | None:
    record = fields_of(entry, problems, path, SECTION_PART, "a map describing one part")
    if record is None:
        return None
    start = len(problems)
    dtype = record.text("dtype")
    blob = record.shape("blob")
    logical = record.optional_text("type")
    shard = record.optional_text("shard")
    encoding = record.optional_text("encoding")
    decoded_length = record.optional_uint("decoded_length")
    digest = record.optional_text("digest")
    if dtype is not None and dtype not in DTYPES:
        expected = f"expected one of {', '.join(sorted(DTYPES))}"
        record.problem(Reason.FIELD_VALUE, "dtype", f"{expected}, found {describe(dtype)}")
    if blob is not None and len(blob) != 2:
        message = f"expected offset and length, found {len(blob)} numbers"
        record.problem(Reason.FIELD_VALUE, "blob", message)
    if shard is not None and shard not in places.shards:
        message = f"expected a name of the table of shards, found {describe(shard)}"
        record.problem(Reason.FIELD_VALUE, "shard", message)
    if len(problems) == start and (encoding is None) is not (decoded_length is None):
        field = "decoded_length" if decoded_length is None else "encoding"
        message = "expected encoding and decoded_length together, found one alone"
        record.problem(Reason.FIELD_MISSING, field, message)
    if digest is not None:
        try:
            parse_strict_digest(digest)
        except FormatError as error:
            record.problem(
                Reason.DIGEST_MALFORMED, "digest", f"expected {error.expected}, found {error.found}"
            )
    if dtype is None or blob is None or len(problems) > start:
        return None
    if logical is not None and TYPES.get(logical, dtype) != dtype:
        message = f"expected {TYPES[logical]} for {logical}, found {dtype}"
        path_of_type = (*path, "type")
        problems.append(Problem(Reason.TYPE_MISMATCH, message, path_of_type, SECTION_TYPES))
        return None
    offset, length = blob
    wrong = places.add(offset, length, shard)
    if wrong is not None:
        problems.append(wrong.under(*path))
        return None
    where = None if shard is None else places.shard(shard)
    dtype, logical = types_of(dtype, logical)
    return Component(
        dtype,
        offset + (where.start or 0 if where is not None else 0),
        length,
        logical,
        encoding_of(encoding),
        digest,
        decoded_length,
        digest_covers_decoded=True,
        is_exact=True,
        shard=where,
        extra=record.rest(),
    )
