"""The manifest of 1.1 and 1.2, read."""

from __future__ import annotations

import operator
import re
from itertools import islice
from typing import TYPE_CHECKING

from ztensor.errors import Problem, Reason, UnsupportedVersionError, describe
from ztensor.spec.container.v1.commit import parse_commit
from ztensor.spec.container.walk import (
    LEAST_OBJECTS,
    check_blob,
    parse_components,
    read_map,
    read_objects,
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.limits import Budget
    from ztensor.spec.container.framing import Frame
    from ztensor.spec.container.walk import Parse, Path

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
_SELF_DESCRIBED = 55799  # RFC 7049 2.4.5: says "this is CBOR" and means nothing else
_MAJOR = re.compile(r"(\d+)(?:\.|\Z)")


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
    before = budget.bytes_left
    decoder = cbor.Decoder(data, budget, depth=budget.limits.depth)
    root = _Root(decoder, frame, least)
    if root.is_1_1 != root.was_1_1:
        budget.release_to(before)  # the version follows the objects
        root = _Root(decoder, frame, least, is_1_1=root.is_1_1)
    return root.manifest()


class _Root:
    """Reads the root of one manifest.

    Args:
        decoder: of the manifest.
        frame: where it was in the file.
        least: as many objects are read side by side.
        is_1_1: whether the version is 1.1, if that is known.

    Attributes:
        is_1_1: whether the version is 1.1, where digests may cover decoded bytes.
        was_1_1: whether that was believed when the objects were read.
    """

    def __init__(
        self, decoder: cbor.Decoder, frame: Frame, least: int, *, is_1_1: bool = False
    ) -> None:
        self._decoder, self._frame, self._least = decoder, frame, least
        self.is_1_1 = self.was_1_1 = is_1_1
        self._fields: dict[str, object] = {}
        self._problems: list[Problem] = []
        self._of_objects: list[Problem] = []
        self._objects: Mapping[str, TensorObject] = {}
        self._level = pos = 0
        if decoder.kind(0) == cbor.TAG:
            number, end = decoder.enter(0, 0)
            pos, self._level = (end, 1) if number == _SELF_DESCRIBED else (0, 0)
        if decoder.kind(pos) != cbor.MAP:
            value, end = decoder.read(pos, self._level)
            decoder.require_end(end)
            read_fields(value, ROOT, (), self._problems)
            raise manifest_error(self._problems)
        decoder.require_end(read_map(decoder, pos, self._level, self._fields, self._value))

    def _value(self, key: object, pos: int) -> tuple[object, int]:
        decoder, level = self._decoder, self._level + 1
        if key == "objects" and decoder.kind(pos) == cbor.MAP:
            self.was_1_1 = self.is_1_1
            self._objects, self._of_objects, end = read_objects(
                decoder,
                pos,
                level,
                self._begin,
                FORM,
                blobs_end=self._frame.manifest_offset,
                least=self._least,
            )
            return {}, end
        if not isinstance(key, str) and not self._problems:
            read_fields(cbor.Pairs(), ROOT, (), self._problems)
        value, end = decoder.read(pos, level)
        if key == "version":
            self.is_1_1 = isinstance(value, str) and value.startswith("1.1")
        return value, end

    def _begin(self, problems: list[Problem]) -> Parse:
        def parse(name: object, entry: object) -> TensorObject | None:
            if isinstance(name, str):
                return parse_object(name, entry, self._frame, problems, is_1_1=self.is_1_1)
            found = "expected a map with text keys, found a map with keys that are not text"
            problems.append(Problem(Reason.FIELD_TYPE, found, ("objects",), ROOT.section))
            return None

        return parse

    def manifest(self) -> Manifest:
        """Return what it says.

        Raises:
            ManifestError: it breaks rules.
            UnsupportedVersionError: its major version is not 1.
        """
        problems = self._problems
        if problems:
            raise manifest_error(problems)
        commit = parse_commit(self._fields.get("commit"), self._decoder.data)
        version = self._fields.get("version")
        if isinstance(version, str) and not _is_major(version):  # it may be damaged
            raise UnsupportedVersionError(
                "the manifest is of another major version; a newer reader is needed",
                expected="1.x",
                found=describe(version),
                section="1.2 appendix, Version Policy",
            )
        fields = read_fields(self._fields, ROOT, (), problems)
        problems += self._of_objects
        if problems or fields is None:
            raise manifest_error(problems[:MOST_PROBLEMS])
        version, _, attributes, _, extra = fields
        return Manifest(version, self._objects, attributes, commit, extra)


def _is_major(version: str) -> bool:
    """Return whether a version may be read: of this major version, or of a form of its own."""
    match = _MAJOR.match(version)
    return match is None or match[1].lstrip("0") == "1"


def _are_unique(names: list[str]) -> bool:
    """Return whether each name is there once."""
    # Writers sort names: to see that is four times faster than to hash them.
    is_sorted = all(map(operator.lt, names, islice(names, 1, None)))
    return is_sorted or len(set(names)) == len(names)


FORM = Form(
    start=b"\xa3" + cbor.encode_text("shape"),
    place=cbor.encode_text("offset"),
    between=cbor.encode_text("length"),
    has_tail=False,
    alignment=ALIGNMENT,
    packed="zstd",
    place_cost=0,
    are_names=_are_unique,
)


# --- One object --------------------------------------------------------------------------------


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
