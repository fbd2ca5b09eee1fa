"""One object of a 2.x manifest, from what CBOR gives to the model (2.1 sections 3.3 to 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import Problem, Reason, describe
from ztensor.spec.container.v2.layouts import SPARSE, check_layout, ours
from ztensor.spec.container.walk import parse_components
from ztensor.spec.digest import check_digest
from ztensor.spec.model.dtype import STORAGE_TYPES
from ztensor.spec.model.manifest import Component, TensorObject
from ztensor.spec.wire.cbor import UINT64_MAX
from ztensor.spec.wire.record import ANYTHING, MAP, SHAPE, TEXT, UINT, Record, read_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ztensor.spec.container.v2.places import Places
    from ztensor.spec.container.walk import Path

ROOT = Record(
    "a map as the manifest's root",
    "2.1 section 3.2",
    {"objects": MAP, "attributes": MAP.optional(), "shards": ANYTHING},
    has_nulls=False,
    drops_keys=True,
)
SHARD = Record(
    "a map describing one shard",
    "2.1 section 7.1",
    {"size": UINT, "digest": TEXT},
    has_nulls=False,
    drops_keys=True,
)
OBJECT = Record(
    "a map describing one object",
    "2.1 section 3.3",
    {"shape": SHAPE, "layout": TEXT, "parts": MAP, "attributes": MAP.optional()},
    has_nulls=False,
    drops_keys=True,
)
PART = Record(
    "a map describing one part",
    "2.1 section 3.4",
    {
        "dtype": TEXT,
        "blob": SHAPE,
        "type": TEXT.optional(),
        "shard": TEXT.optional(),
        "encoding": TEXT.optional(),
        "decoded_length": UINT.optional(),
        "digest": TEXT.optional(),
    },
    has_nulls=False,
    drops_keys=True,
)
SECTION_NAMES = "2.1 section 3.5"
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


def check_names(names: Iterable[str], path: Path) -> list[Problem]:
    """Return the problem of the first text that is not a name."""
    for name in names:
        if not is_name(name):
            return [name_problem(name, path)]
    return []


def parse_object(
    name: str, entry: object, places: Places, problems: list[Problem]
) -> TensorObject | None:
    """Return one object, or None and problems where it breaks rules."""
    start, path = len(problems), ("objects", name)
    fields = read_fields(entry, OBJECT, path, problems)
    if fields is None:
        return None
    shape, layout, entries, attributes, extra = fields
    if not entries:
        message, where = "expected at least one part, found none", (*path, "parts")
        problems.append(Problem(Reason.COMPONENT_MISSING, message, where, OBJECT.section))
    problems += check_names(entries, (*path, "parts"))
    problems += check_names(attributes or (), (*path, "attributes"))

    def parse(role: str, entry: object, path: Path) -> Component | None:
        return _parse_part(entry, path, places, problems)

    components = parse_components(entries, (*path, "parts"), problems, parse)
    problems += [problem.under(*path) for problem in check_shape(shape)]
    if len(problems) == start:
        found = check_layout(layout, shape, components, attributes)
        problems += [problem.under(*path) for problem in found]
    own, attributes = ours(layout, attributes)
    is_sparse = layout in SPARSE
    return TensorObject(shape, own, components, attributes, extra, entries_once=is_sparse)


def check_shape(shape: tuple[int, ...]) -> list[Problem]:
    """Return what is wrong with a shape."""
    if len(shape) > MOST_RANK:
        message = f"expected at most {MOST_RANK} dimensions, found {len(shape)}"
        return [Problem(Reason.FIELD_VALUE, message, ("shape",), OBJECT.section)]
    count = 1
    for dimension in shape:  # from the left, as the releases: a zero behind saves nothing
        count *= dimension
        if count > UINT64_MAX:
            message = f"expected a product below 2^64, found {describe(shape)}"
            return [Problem(Reason.FIELD_VALUE, message, ("shape",), OBJECT.section)]
    return []


def _parse_part(
    entry: object, path: Path, places: Places, problems: list[Problem]
) -> Component | None:
    fields = read_fields(entry, PART, path, problems)
    if fields is None:
        return None
    dtype, blob, logical, shard, encoding, decoded_length, digest, extra = fields
    found = _check_part(fields, places)
    if digest is not None:
        found += [problem.under("digest") for problem in check_digest(digest, strict=True)]
    if not found:
        found = places.add(blob[0], blob[1], shard)
    if found:
        problems += [problem.under(*path) for problem in found]
        return None
    where = None if shard is None else places.shard(shard)
    dtype, logical = types_of(dtype, logical)
    return Component(
        dtype,
        blob[0] + (where.start or 0 if where is not None else 0),
        blob[1],
        logical,
        encoding_of(encoding),
        digest,
        decoded_length,
        digest_covers_decoded=True,
        is_exact=True,
        shard=where,
        extra=extra,
    )


def _check_part(fields: list[Any], places: Places) -> list[Problem]:
    """Return what is wrong with values of a part; `fields` are those of `PART`."""
    dtype, blob, logical, shard, encoding, decoded_length, *_ = fields
    problems = []

    def wrong(field: str, message: str, reason: Reason = Reason.FIELD_VALUE) -> None:
        problems.append(Problem(reason, message, (field,), PART.section))

    if dtype not in DTYPES:
        wrong("dtype", f"expected one of {', '.join(sorted(DTYPES))}, found {describe(dtype)}")
    elif TYPES.get(logical, dtype) != dtype:
        message = f"expected {TYPES[logical]} for {logical}, found {dtype}"
        wrong("type", message, Reason.TYPE_MISMATCH)
    if len(blob) != 2:
        wrong("blob", f"expected offset and length, found {len(blob)} numbers")
    if shard is not None and shard not in places.shards:
        wrong("shard", f"expected a name of the table of shards, found {describe(shard)}")
    if (encoding is None) is not (decoded_length is None):
        field = "decoded_length" if decoded_length is None else "encoding"
        message = "expected encoding and decoded_length together, found one alone"
        wrong(field, message, Reason.FIELD_MISSING)
    return problems
