"""The manifest of 1.1 and 1.2, read."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping
from itertools import islice

from ztensor.errors import Problem, UnsupportedVersionError, describe
from ztensor.limits import Budget
from ztensor.spec.container.framing import Frame
from ztensor.spec.container.v1.commit import parse_commit
from ztensor.spec.container.walk import (
    LEAST_OBJECTS,
    ParseObject,
    Path,
    check_blob,
    parse_components,
    read_root,
)
from ztensor.spec.model.manifest import Component, Manifest, TensorObject
from ztensor.spec.model.rules import ALIGNMENT, MOST_PROBLEMS, manifest_error
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import (
    ANYTHING,
    ATTRIBUTES,
    MAP,
    SHAPE,
    TEXT,
    UINT,
    Form,
    Record,
    read_fields,
)

ROOT = Record(
    "a map as the manifest's root",
    "1.2 section 1, Root",
    {"version": TEXT, "objects": MAP, "attributes": ATTRIBUTES, "commit": ANYTHING},
)
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
_MAJOR = re.compile(r"(\d+)(?:\.|\Z)")


def _are_unique(names: list[str]) -> bool:
    """Return whether each name is there once."""
    # Writers sort names: to see that is four times faster than to hash them.
    is_sorted = all(map(operator.lt, names, islice(names, 1, None)))
    return is_sorted or len(set(names)) == len(names)


FORM = Form(
    root=ROOT,
    start=b"\xa3" + cbor.encode_text("shape"),
    place=cbor.encode_text("offset"),
    between=cbor.encode_text("length"),
    has_tail=False,
    alignment=ALIGNMENT,
    packed="zstd",
    are_names=_are_unique,
)


def parse_manifest(
    data: bytes, frame: Frame, budget: Budget, *, least: int = LEAST_OBJECTS
) -> Manifest:
    """Return what the manifest says.

    Args:
        data: the manifest's bytes.
        frame: where they were in the file.
        budget: what the file may cost; of its limits, `depth` is used.
        least: as many objects are read side by side.

    Raises:
        ManifestError: it is not one well-formed CBOR map, or breaks rules (all are listed).
        UnsupportedVersionError: its major version is not 1.
        LimitError: it nests too deep.
    """
    blobs_end, left = frame.manifest_offset, budget.bytes_left
    decoder = cbor.Decoder(data, budget, depth=budget.limits.depth)
    is_1_1 = False

    def begin(fields: dict[str, object]) -> ParseObject:
        nonlocal is_1_1
        is_1_1 = is_1_1 or _is_1_1(fields)
        return functools.partial(_parse_object, blobs_end, is_1_1)

    root = read_root(decoder, FORM, begin, blobs_end=blobs_end, least=least)
    if _is_1_1(root.fields) and not is_1_1:  # the version follows the objects
        is_1_1 = True
        budget.release_to(left)
        root = read_root(decoder, FORM, begin, blobs_end=blobs_end, least=least)
    commit = parse_commit(root.fields.get("commit"), data)
    version = root.fields.get("version")
    if isinstance(version, str) and not _is_major(version):  # it may be damaged
        raise UnsupportedVersionError(
            "the manifest is of another major version; a newer reader is needed",
            expected="1.x",
            found=describe(version),
            section="1.2 appendix, Version Policy",
        )
    problems: list[Problem] = []
    fields = read_fields(root.fields, ROOT, (), problems)
    problems += root.problems
    if problems or fields is None:
        raise manifest_error(problems[:MOST_PROBLEMS])
    version, _, attributes, _, extra = fields
    return Manifest(version, root.objects, attributes, commit, extra)


def _is_1_1(fields: Mapping[str, object]) -> bool:
    """Return whether the version is 1.1, where digests may cover decoded bytes."""
    version = fields.get("version")
    return isinstance(version, str) and version.startswith("1.1")


def _is_major(version: str) -> bool:
    """Return whether a version may be read: of this major version, or of a form of its own."""
    match = _MAJOR.match(version)
    return match is None or match[1].lstrip("0") == "1"


def _parse_object(
    blobs_end: int,
    is_1_1: bool,  # noqa: FBT001  # the version's, given once for all objects
    name: str,
    entry: object,
    problems: list[Problem],
) -> TensorObject | None:
    path = ("objects", name)
    fields = read_fields(entry, OBJECT, path, problems)
    if fields is None:
        return None
    shape, layout, entries, attributes, extra = fields

    def parse(_: str, entry: object, path: Path, problems: list[Problem]) -> Component | None:
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
        problems += [problem.under(*path) for problem in check_blob(component, blobs_end)]
        return component

    components = parse_components(entries, (*path, "components"), problems, parse)
    return TensorObject(shape, layout, components, attributes, extra)
