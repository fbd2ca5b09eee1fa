"""One object of a 1.1 or 1.2 manifest, from what CBOR gives to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.digest import check_digest
from ztensor.model.manifest import COMPONENT_COST, OBJECT_COST, Component, TensorObject
from ztensor.model.problem import MOST_PROBLEMS, Problem
from ztensor.model.rules import check_place
from ztensor.wire.record import Record

if TYPE_CHECKING:
    from ztensor.container.framing import Frame
    from ztensor.limits import Budget

SECTION_OBJECT = "1.2 section 1, Object"
SECTION_COMPONENT = "1.2 section 1, Component"

# 1.1 part II, section 4 names these among the dtypes; 1.2 spells them storage plus logical type.
WORDS_OF_1_1 = {
    "f8_e4m3": ("u8", "f8_e4m3fn"),
    "f8_e5m2": ("u8", "f8_e5m2"),
    "complex64": ("f32", "complex64"),
    "complex128": ("f64", "complex128"),
}


def is_1_1(version: object) -> bool:
    """Return whether a file says it is of 1.1, where digests may cover decoded bytes."""
    return isinstance(version, str) and version.startswith("1.1")


def parse_object(
    name: str,
    entry: object,
    frame: Frame,
    budget: Budget,
    problems: list[Problem],
    *,
    is_1_1: bool,
) -> TensorObject | None:
    """Return one object, or None and problems where it breaks rules."""
    budget.charge_bytes(OBJECT_COST)
    found: list[Problem] = []
    path = ("objects", name)
    record = Record.of(entry, found, path, SECTION_OBJECT, "a map describing one object")
    result = None
    if record is not None:
        shape = record.shape("shape")
        layout = record.text("format")
        attributes = record.attributes("attributes")
        entries = record.mapping("components")
        components: dict[str, Component] = {}
        budget.charge_bytes(COMPONENT_COST * len(entries or ()))
        for role, component_entry in (entries or {}).items():
            start = len(found)
            if start >= MOST_PROBLEMS:
                break
            component = _parse_component(
                component_entry, (*path, "components", role), frame, found, is_1_1=is_1_1
            )
            found[start:] = [problem.about(name, role) for problem in found[start:]]
            if component is not None:
                components[role] = component
        if shape is not None and layout is not None:
            result = TensorObject(shape, layout, components, attributes, record.rest())
    if found:
        problems.extend(problem.about(name) for problem in found)
        return None
    return result


def _parse_component(
    entry: object,
    path: tuple[str, ...],
    frame: Frame,
    problems: list[Problem],
    *,
    is_1_1: bool,
) -> Component | None:
    record = Record.of(entry, problems, path, SECTION_COMPONENT, "a map describing one blob")
    if record is None:
        return None
    start = len(problems)
    dtype = record.text("dtype")
    logical = record.optional_text("type")
    offset = record.uint("offset")
    length = record.uint("length")
    decoded_length = record.optional_uint("uncompressed_length")
    # The text gives null as the default of the other optional fields only; absent means raw
    # there, and a null here can mean nothing else.
    encoding = record.optional_text("encoding") or "raw"
    digest = record.optional_text("digest")
    if dtype is None or offset is None or length is None or len(problems) > start:
        return None
    dtype, logical = types_of(dtype, logical)
    component = Component(
        dtype,
        offset,
        length,
        logical,
        encoding,
        digest,
        decoded_length,
        digest_may_cover_decoded=is_1_1,
        extra=record.rest(),
    )
    if offset % 64 or offset < 64 or offset + length > frame.manifest_offset:
        problems.extend(
            problem.under(*path) for problem in check_place(component, frame.manifest_offset)
        )
    if digest is not None:
        problems.extend(problem.under(*path, "digest") for problem in check_digest(digest))
    return component if len(problems) == start else None


def types_of(dtype: str, logical: str | None) -> tuple[str, str | None]:
    """Return storage and logical type as the model has them."""
    if logical is None:
        return WORDS_OF_1_1.get(dtype, (dtype, None))
    # "When absent, the logical type equals dtype."
    return dtype, None if logical == dtype else logical
