"""One object of a 1.1 or 1.2 manifest, from what CBOR gives to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.spec.container.walk import check_blob, parse_components
from ztensor.spec.model.manifest import Component, TensorObject
from ztensor.spec.wire.record import ATTRIBUTES, MAP, SHAPE, TEXT, UINT, Record, read_fields

if TYPE_CHECKING:
    from ztensor.errors import Problem
    from ztensor.spec.container.framing import Frame
    from ztensor.spec.container.walk import Path

OBJECT = Record(
    "a map describing one object",
    "1.2 section 1, Object",
    {"shape": SHAPE, "format": TEXT, "components": MAP, "attributes": ATTRIBUTES},
)
# The text gives null as the default of most optional fields; of `encoding` it can mean nothing
# else than `raw`.
COMPONENT = Record(
    "a map describing one blob",
    "1.2 section 1, Component",
    {
        "dtype": TEXT,
        "offset": UINT,
        "length": UINT,
        "type": TEXT.optional(),
        "encoding": TEXT.optional(),
        "digest": TEXT.optional(),
        "uncompressed_length": UINT.optional(),
    },
)
# 1.1 part II, section 4 names these among the dtypes; 1.2 spells them storage plus logical type.
WORDS_OF_1_1 = {
    "f8_e4m3": ("u8", "f8_e4m3fn"),
    "f8_e5m2": ("u8", "f8_e5m2"),
    "complex64": ("f32", "complex64"),
    "complex128": ("f64", "complex128"),
}


def parse_object(
    name: str, entry: object, frame: Frame, problems: list[Problem], *, is_1_1: bool
) -> TensorObject | None:
    """Return one object; None, or one that is not whole, and problems where it breaks rules."""
    path = ("objects", name)
    fields = read_fields(entry, OBJECT, path, problems)
    if fields is None:
        return None
    shape, layout, entries, attributes, extra = fields

    def parse(role: str, entry: object, path: Path) -> Component | None:
        return _parse_component(entry, path, frame, problems, is_1_1=is_1_1)

    components = parse_components(entries, (*path, "components"), problems, parse)
    return TensorObject(shape, layout, components, attributes, extra)


def _parse_component(
    entry: object, path: Path, frame: Frame, problems: list[Problem], *, is_1_1: bool
) -> Component | None:
    fields = read_fields(entry, COMPONENT, path, problems)
    if fields is None:
        return None
    dtype, offset, length, logical, encoding, digest, decoded_length, extra = fields
    if logical is None:
        dtype, logical = WORDS_OF_1_1.get(dtype, (dtype, None))
    elif logical == dtype:  # "When absent, the logical type equals dtype."
        logical = None
    component = Component(
        dtype,
        offset,
        length,
        logical,
        encoding or "raw",
        digest,
        decoded_length,
        digest_may_cover_decoded=is_1_1,
        extra=extra,
    )
    problems += [problem.under(*path) for problem in check_blob(component, frame.manifest_offset)]
    return component
