"""The manifest of 1.1 and 1.2, read: as a table, object by object, or all at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from ztensor.container.v1.commit import parse_commit
from ztensor.container.v1.object import is_1_1, parse_object
from ztensor.container.v1.root import read_root
from ztensor.errors import (
    LimitError,
    ManifestError,
    Reason,
    UnsupportedVersionError,
    describe,
)
from ztensor.model.manifest import COMPONENT_COST, OBJECT_COST, Manifest
from ztensor.model.problem import MOST_PROBLEMS, Problem, manifest_error
from ztensor.wire import cbor
from ztensor.wire.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.container.framing import Frame
    from ztensor.limits import Budget
    from ztensor.model.manifest import TensorObject

SECTION_ROOT = "1.2 section 1, Root"

_SELF_DESCRIBED = 55799  # RFC 7049 2.4.5: says "this is CBOR" and means nothing else
_MAJOR = re.compile(r"(\d+)(?:\.|\Z)")

# Bytes of memory that a dimension takes, and each byte of texts that are not ASCII. An object of so
# many bytes has long ones.
_DIMENSION_COST, _LONG_FACTOR, _LONG = 40, 4, 1024

# Up to this size a manifest is cut into pieces, if all of its objects are plain.
PIECES_BYTES = 96 << 10
# From this size on columns are tried, which in a fresh process takes 3 ms to begin with.
REGULAR_BYTES = 32 << 10


# The fields of a root of ours without attributes.
_USUAL = {"version", "objects", "commit"}

_Read: TypeAlias = "tuple[dict[str, object], Mapping[str, TensorObject]]"


class _OtherwiseError(Exception):
    """The manifest is decoded at once."""


def parse_manifest(data: bytes, frame: Frame, budget: Budget) -> Manifest:
    """Return what the manifest says.

    Args:
        data: the manifest's bytes.
        frame: where they lay.
        budget: what the file may cost; of its limits, `depth` is used.

    Raises:
        ManifestError: it is not one well-formed CBOR map, or breaks rules (all are listed).
        UnsupportedVersionError: its major version is not 1.
        LimitError: it nests too deep.
    """
    before = budget.bytes_left
    of_objects: list[Problem] = []
    regular: _Read | None = None
    if len(data) <= PIECES_BYTES:
        regular = read_root(data, frame, budget, by_columns=False)
    if regular is None and len(data) >= REGULAR_BYTES:
        regular = read_root(data, frame, budget, by_columns=True)
        if regular is None:
            regular = _read_one_by_one(data, frame, budget, of_objects)
    if regular is not None:
        try:
            return _parse(data, frame, budget, regular, of_objects)
        except _OtherwiseError:
            budget.release_to(before)
    return _parse(data, frame, budget, None, [])


def _parse(
    data: bytes,
    frame: Frame,
    budget: Budget,
    regular: _Read | None,
    of_objects: list[Problem],
) -> Manifest:
    """Return what the manifest says.

    Args:
        data: the manifest's bytes.
        frame: where they lay.
        budget: what the file may cost.
        regular: the root's fields and the objects, where those were read before.
        of_objects: what is wrong with those.

    Raises:
        _OtherwiseError: something is wrong with those, and with the root, which is said first.
    """
    if regular is not None and not of_objects and regular[0].keys() == _USUAL:
        usual = regular[0]["version"]  # nothing else can be wrong with such a root
        if isinstance(usual, str):
            commit = parse_commit(regular[0]["commit"], data)
            _require_major(usual)  # behind the digest: a damaged version is damage
            return Manifest(usual, regular[1], None, commit)
    problems: list[Problem] = []
    root_value: object
    if regular is None:
        root_value = cbor.decode(data, depth=budget.limits.depth, budget=budget)
    else:
        root_value = regular[0]
    if isinstance(root_value, cbor.Tag) and root_value.number == _SELF_DESCRIBED:
        root_value = root_value.value
    root = Record.of(root_value, problems, (), SECTION_ROOT, "a map as the manifest's root")
    if root is None:
        raise manifest_error(problems)
    version = root.text("version")
    commit = parse_commit(root.ignorable("commit"), data)
    if version is not None:
        _require_major(version)
    attributes = root.attributes("attributes")
    entries = root.mapping("objects")
    objects: Mapping[str, TensorObject]
    if regular is None:
        objects = _parse_objects(entries or {}, frame, budget, problems, is_1_1=is_1_1(version))
    else:
        objects = regular[1]
        if of_objects and (problems or version is None):
            raise _OtherwiseError
        problems = problems or of_objects
    if problems or version is None:
        raise manifest_error(problems)
    return Manifest(version, objects, attributes, commit, root.rest())


def _is_major(version: str) -> bool:
    """Return whether a version may be read: of this major version, or of a form of its own."""
    match = _MAJOR.match(version)
    return match is None or match[1].lstrip("0") == "1"


def _require_major(version: str) -> None:
    if not _is_major(version):
        raise UnsupportedVersionError(
            "the manifest is of another major version; a newer reader is needed",
            expected="1.x",
            found=describe(version),
            section="1.2 appendix, Version Policy",
        )


def _read_one_by_one(
    data: bytes, frame: Frame, budget: Budget, problems: list[Problem]
) -> tuple[dict[str, object], dict[str, TensorObject]] | None:
    """Return the root's fields, with an empty map as `objects`, and the objects.

    What an object was decoded to is let go before the next one is decoded: of a manifest of many
    objects that is half of the memory.

    Args:
        data: the manifest's bytes.
        frame: where they lay.
        budget: what the file may cost.
        problems: what is wrong with objects is added.

    Returns:
        None where the root is no plain map with `version` before `objects`, or something in it is
        wrong beside the objects: then all is decoded at once.
    """
    root: dict[str, object] = {}
    objects: dict[str, TensorObject] | None = None
    depth, before = budget.limits.depth, budget.bytes_left
    try:
        pairs, pos = _map_head(data, 0)
        for _ in range(pairs):
            key, pos = cbor.decode_item(data, pos, depth=depth - 1, budget=budget)
            if not isinstance(key, str) or key in root:
                break
            if key == "objects":
                version = root.get("version")
                if not isinstance(version, str) or not _is_major(version):
                    break  # what is wrong with the items behind it is said before that
                root[key] = {}
                objects, pos = _read_objects(
                    data, pos, frame, budget, problems, is_1_1=is_1_1(version)
                )
            else:
                root[key], pos = cbor.decode_item(data, pos, depth=depth - 1, budget=budget)
        else:
            if pos == len(data) and objects is not None:
                return root, objects
    except _OtherwiseError:
        pass
    except ManifestError as error:  # of the form: all at once says what is around the item
        if error.reason not in (Reason.CBOR_TRUNCATED, Reason.CBOR_MALFORMED):
            raise
    except LimitError as error:  # of the depth: all at once says how deep that is
        if error.reason is not Reason.LIMIT_DEPTH:
            raise
    problems.clear()
    budget.release_to(before)
    return None


def _map_head(data: bytes, pos: int) -> tuple[int, int]:
    try:
        pairs, start = cbor.map_head(data, pos)
    except ManifestError as error:  # perhaps a tagged map, or one whose length is left open
        raise _OtherwiseError from error
    if pairs > (len(data) - start) // 2:  # at once, that is the first thing that is wrong
        raise _OtherwiseError
    return pairs, start


def _read_objects(
    data: bytes,
    pos: int,
    frame: Frame,
    budget: Budget,
    problems: list[Problem],
    *,
    is_1_1: bool,
) -> tuple[dict[str, TensorObject], int]:
    """Return the objects of the map at `pos`, and where it ends."""
    objects: dict[str, TensorObject] = {}
    refused: set[str] = set()
    depth = budget.limits.depth - 2
    words: dict[bytes, str] = {}
    count, pos = _map_head(data, pos)
    for _ in range(count):
        name, pos = cbor.decode_item(data, pos, depth=depth, budget=budget)
        if not isinstance(name, str) or name in objects or name in refused:
            raise _OtherwiseError
        before, start = budget.bytes_left, pos
        entry, pos = cbor.decode_item(data, pos, depth=depth, budget=budget, words=words)
        parsed = None
        if len(problems) < MOST_PROBLEMS:
            parsed = parse_object(name, entry, frame, budget, problems, is_1_1=is_1_1)
        if parsed is None:
            refused.add(name)
            budget.release_to(before)
            budget.charge_bytes(OBJECT_COST)
            continue
        if not _has_more(parsed):
            budget.release_to(before)
            budget.charge_bytes(
                OBJECT_COST
                + COMPONENT_COST * len(parsed.components)
                + _DIMENSION_COST * len(parsed.shape)
                + (_LONG_FACTOR * (pos - start) if pos - start > _LONG else 0)
            )
        objects[name] = parsed
    return objects, pos


def _has_more(tensor_object: TensorObject) -> bool:
    """Return whether an object keeps decoded values of any kind."""
    if tensor_object.attributes is not None or tensor_object.extra is not None:
        return True
    return any(one.extra is not None for one in tensor_object.components.values())


def _parse_objects(
    entries: Mapping[str, object],
    frame: Frame,
    budget: Budget,
    problems: list[Problem],
    *,
    is_1_1: bool,
) -> dict[str, TensorObject]:
    objects = {}
    for name, entry in entries.items():
        if len(problems) >= MOST_PROBLEMS:
            break
        tensor_object = parse_object(name, entry, frame, budget, problems, is_1_1=is_1_1)
        if tensor_object is not None:
            objects[name] = tensor_object
    return objects
