"""The manifest of 2.x, read: its hash, its root, the table of shards, and all objects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from ztensor.container.v2.object import (
    attributes_of,
    fields_of,
    is_name,
    name_problem,
    parse_object,
)
from ztensor.container.v2.places import Places
from ztensor.container.v2.small import read_small
from ztensor.digest import parse_strict_digest, xxh3
from ztensor.errors import FormatError, LimitError, ManifestError, Reason, describe
from ztensor.model.manifest import COMPONENT_COST, OBJECT_COST, Manifest, Shard
from ztensor.model.problem import MOST_PROBLEMS, Problem, manifest_error
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.container.framing import Frame
    from ztensor.limits import Budget
    from ztensor.model.manifest import TensorObject

VERSION = "2"  # what the footer says; the texts 2.0 and 2.1 describe the same bytes
SECTION_ROOT = "2.1 section 3.2"
SECTION_SHARDS = "2.1 section 7.1"
DEPTH = 32  # levels of nesting, the root among them
LEAST_SHARD = 48  # bytes
# From this size on columns are tried, which in a fresh process takes 3 ms to begin with.
REGULAR_BYTES = 32 << 10

_SHARD_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\Z")
_DIMENSION_COST, _LONG_FACTOR, _LONG = 40, 4, 1024  # as of an object of 1.x


def parse_manifest(data: bytes, frame: Frame, budget: Budget) -> Manifest:
    """Return what the manifest says; nothing where there is none, as in a data shard.

    Args:
        data: the manifest's bytes.
        frame: where they lay, and their hash.
        budget: what the file may cost; of its limits, `depth` is used.

    Raises:
        ManifestError: it is not what was written, not one CBOR map in deterministic form, or breaks
            rules (all are listed).
        LimitError: it nests deeper than the limits allow, or costs too much.
        MissingDependencyError: the library for its hash is not installed.
    """
    if not frame.manifest_length:
        return Manifest(VERSION, {})
    found = xxh3(data)
    if found != frame.manifest_hash:
        raise ManifestError(
            "the manifest does not match the hash in the footer; the file is damaged",
            reason=Reason.MANIFEST_DIGEST,
            expected=f"{frame.manifest_hash:016x}",
            found=f"{found:016x}",
            section="2.1 section 2.3",
        )
    try:
        return _Reading(data, frame, budget).manifest()
    except LimitError as error:
        if error.reason is Reason.LIMIT_DEPTH and budget.limits.depth >= DEPTH:
            _refuse_depth(error)
        raise


def _refuse_depth(error: LimitError) -> NoReturn:
    raise ManifestError(
        "the manifest nests too deep",
        reason=Reason.CBOR_FORM,
        expected=f"at most {DEPTH} levels",
        found="one more",
        section="2.1 section 3.1",
    ) from error


class _Reading:
    """Reads one manifest, item after item: what an object was decoded to is let go before the next.

    Args:
        data: the manifest's bytes.
        frame: where they lay.
        budget: what the file may cost.
    """

    def __init__(self, data: bytes, frame: Frame, budget: Budget) -> None:
        self._data = data
        self._frame = frame
        self._budget = budget
        self._depth = min(budget.limits.depth, DEPTH)
        self._problems: list[Problem] = []

    def manifest(self) -> Manifest:
        """Return what it says."""
        data, problems = self._data, self._problems
        root: dict[str, object] = {}
        objects_at = None
        if data[0] >> 5 != 5:  # what it is instead, or whether it is anything, the decoder says
            value = cbor.decode(data, depth=self._depth, budget=self._budget, strict=True)
            fields_of(value, problems, (), SECTION_ROOT, "a map as the manifest's root")
            raise manifest_error(problems)
        pairs, pos = cbor.map_head(data, 0, strict=True)
        before = b""
        for _ in range(pairs):
            key, end = self._key(pos, before, self._depth - 1)
            before = data[pos:end]
            pos = end
            if key == "objects":
                objects_at = pos
                # Shards are told before objects: their name is shorter.
                shards = self._shards(root.get("shards", _ABSENT))
                places = Places(self._frame.file_size, dict(shards), self._budget)
                rows = self._rows(pos, places)
                if rows is None:
                    places = Places(self._frame.file_size, shards, self._budget)
                    rows = self._objects(pos, places)
                objects, pos = rows
            else:
                value, pos = self._item(pos, self._depth - 1)
                if isinstance(key, str):
                    root[key] = value
        if pos < len(data):
            raise _trailing(pos, len(data))
        if objects_at is None:
            message = "expected a map of objects, found no such field"
            raise manifest_error(
                [Problem(Reason.FIELD_MISSING, message, ("objects",), SECTION_ROOT)]
            )
        self._frame_blob(places)
        record = fields_of(root, problems, (), SECTION_ROOT, "a map")
        attributes: Mapping[str, object] | None = None
        extra = None
        if record is not None:
            record.ignorable("shards")
            attributes = attributes_of(record, root.get("attributes"), problems, ())
            extra = record.rest()
        if not problems:
            problems += places.check_overlaps()
        if problems:
            raise manifest_error(problems)
        return Manifest(VERSION, objects, attributes, None, extra, places.shards)

    def _frame_blob(self, places: Places) -> None:
        places.add(self._frame.manifest_offset, self._frame.manifest_length, None)

    def _item(self, pos: int, depth: int) -> tuple[object, int]:
        return cbor.decode_item(self._data, pos, depth=depth, budget=self._budget, strict=True)

    def _key(self, pos: int, before: bytes, depth: int) -> tuple[object, int]:
        """Return the key at `pos` and where it ends; it has to come behind the one before."""
        key, end = self._item(pos, depth)
        form = self._data[pos:end]
        if form <= before:
            is_same = form == before
            raise ManifestError(
                f"the manifest is not in deterministic form at byte {pos}",
                reason=Reason.CBOR_DUPLICATE_KEY if is_same else Reason.CBOR_FORM,
                expected="each key once, in the order of their encoded bytes",
                found=f"the key {describe(key)} {'a second time' if is_same else 'too late'}",
                section="2.1 section 3.1",
            )
        return key, end

    # --- Objects ----------------------------------------------------------------------------

    def _rows(self, pos: int, places: Places) -> tuple[Mapping[str, TensorObject], int] | None:
        """Return what `_objects` does, where most objects are plain and nothing is wrong."""
        if len(self._data) < REGULAR_BYTES:
            read = read_small
        else:
            from ztensor.container.v2.regular import read_objects as read  # not for small files

        return read(self._data, pos, self._frame, self._budget, places, depth=self._depth - 2)

    def _objects(self, pos: int, places: Places) -> tuple[dict[str, TensorObject], int]:
        """Return the objects of the map at `pos`, and where it ends."""
        data, budget, problems = self._data, self._budget, self._problems
        objects: dict[str, TensorObject] = {}
        if pos >= len(data) or data[pos] >> 5 != 5:
            value, pos = self._item(pos, self._depth - 1)
            fields_of(value, problems, ("objects",), SECTION_ROOT, "a map of objects")
            return objects, pos
        words: dict[bytes, str] = {}
        count, pos = cbor.map_head(data, pos, strict=True)
        before = b""
        for _ in range(count):
            name, end = self._key(pos, before, self._depth - 2)
            before, pos = data[pos:end], end
            left, start = budget.bytes_left, pos
            entry, pos = cbor.decode_item(
                data, pos, depth=self._depth - 2, budget=budget, words=words, strict=True
            )
            if len(problems) >= MOST_PROBLEMS:
                budget.release_to(left)
                continue
            if not isinstance(name, str) or not is_name(name):
                problems.append(name_problem(name, ("objects",)))
                budget.release_to(left)
                continue
            parsed = parse_object(name, entry, places, budget, problems)
            if parsed is None:
                budget.release_to(left)
                continue
            if not _has_more(parsed):
                budget.release_to(left)
                budget.charge_bytes(
                    OBJECT_COST
                    + 2 * COMPONENT_COST * len(parsed.components)
                    + _DIMENSION_COST * len(parsed.shape)
                    + (_LONG_FACTOR * (pos - start) if pos - start > _LONG else 0)
                )
            objects[name] = parsed
        return objects, pos

    # --- Shards -----------------------------------------------------------------------------

    def _shards(self, table: object) -> dict[str, Shard]:
        shards: dict[str, Shard] = {}
        problems = self._problems
        if table is _ABSENT:
            return shards
        if isinstance(table, cbor.Pairs):
            problems.append(name_problem(None, ("shards",)))
            return shards
        if type(table) is not dict:
            fields_of(table, problems, ("shards",), SECTION_SHARDS, "a map of shards")
            return shards
        for name, entry in table.items():
            if len(problems) >= MOST_PROBLEMS:
                break
            path = ("shards", name)
            if not _SHARD_NAME.match(name):
                message = "expected 1 to 64 of A-Z a-z 0-9 . _ -, no dot first, found "
                problems.append(
                    Problem(
                        Reason.FIELD_VALUE, message + describe(name), ("shards",), SECTION_SHARDS
                    )
                )
                continue
            record = fields_of(entry, problems, path, SECTION_SHARDS, "a map describing one shard")
            if record is None:
                continue
            size, digest = record.uint("size"), record.text("digest")
            if size is not None and size < LEAST_SHARD:
                message = f"expected at least {LEAST_SHARD}, found {size}"
                record.problem(Reason.FIELD_VALUE, "size", message)
            try:
                if digest is not None:
                    parse_strict_digest(digest)
            except FormatError as error:
                message = f"expected {error.expected}, found {error.found}"
                record.problem(Reason.DIGEST_MALFORMED, "digest", message)
            if size is not None and digest is not None:
                shards[name] = Shard(name, size, digest)
        return shards


_ABSENT = object()


def _trailing(pos: int, size: int) -> ManifestError:
    return ManifestError(
        f"the manifest is not valid CBOR at byte {pos}",
        reason=Reason.CBOR_TRAILING,
        expected="the manifest's end",
        found=f"{size - pos} more bytes",
        section="RFC 8949 section 3",
    )


def _has_more(tensor_object: TensorObject) -> bool:
    """Return whether an object keeps decoded values of any kind."""
    if tensor_object.attributes is not None or tensor_object.extra is not None:
        return True
    return any(one.extra is not None for one in tensor_object.components.values())
