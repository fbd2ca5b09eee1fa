"""The manifest of 2.x, read: its hash, its root, the table of shards, and all objects."""

from __future__ import annotations

import operator
import re
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ztensor.container.framing import FOOTER_2_BYTES, PAGE_2
from ztensor.container.v2.object import (
    MOST_NAME,
    attributes_of,
    fields_of,
    is_name,
    name_problem,
    parse_object,
)
from ztensor.container.v2.places import PLACE_COST, Places
from ztensor.container.walk import LEAST_OBJECTS, Form, Nesting, read_map, read_objects
from ztensor.digest import parse_strict_digest, xxh3
from ztensor.errors import FormatError, LimitError, ManifestError, Reason, describe
from ztensor.model.manifest import Manifest, Shard
from ztensor.model.problem import MOST_PROBLEMS, Problem, manifest_error
from ztensor.model.table import TableObjects
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.container.framing import Frame
    from ztensor.container.walk import Parse
    from ztensor.limits import Budget
    from ztensor.model.manifest import TensorObject

VERSION = "2"  # what the footer says; the texts 2.0 and 2.1 describe the same bytes
SECTION_ROOT = "2.1 section 3.2"
SECTION_SHARDS = "2.1 section 7.1"
DEPTH = 32  # levels of nesting, the root among them
LEAST_SHARD = 48  # bytes

_SHARD_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\Z")
_MAP = 5


def parse_manifest(
    data: bytes, frame: Frame, budget: Budget, *, least: int = LEAST_OBJECTS
) -> Manifest:
    """Return what the manifest says; nothing where there is none, as in a data shard.

    Args:
        data: the manifest's bytes.
        frame: where they lay, and their hash.
        budget: what the file may cost; of its limits, `depth` is used.
        least: as many objects are read side by side.

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
        with Nesting(min(budget.limits.depth, DEPTH)):
            root = _Root(data, frame, budget, least)
        return root.manifest()
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


class _Root:
    """Reads the root of one manifest.

    Args:
        data: the manifest's bytes.
        frame: where they were in the file.
        budget: what the file may cost.
        least: as many objects are read side by side.
    """

    def __init__(self, data: bytes, frame: Frame, budget: Budget, least: int) -> None:
        self._data, self._frame, self._budget, self._least = data, frame, budget, least
        self._depth = min(budget.limits.depth, DEPTH)
        self._problems: list[Problem] = []
        self._fields: dict[str, object] = {}
        self._objects: Mapping[str, TensorObject] | None = None
        self._places = Places(frame.file_size, {}, budget)
        if data[0] >> 5 != _MAP:  # what it is instead, or whether it is anything, the decoder says
            value = cbor.decode(data, depth=self._depth, budget=budget, strict=True)
            fields_of(value, self._problems, (), SECTION_ROOT, "a map as the manifest's root")
            raise manifest_error(self._problems)
        end = read_map(
            data, 0, self._fields, self._field, depth=self._depth, budget=budget, strict=True
        )
        if end < len(data):
            raise cbor.trailing(end, len(data))

    def _field(self, key: object, pos: int) -> tuple[object, int]:
        data, budget, depth = self._data, self._budget, self._depth - 1
        if key != "objects":
            return cbor.decode_item(data, pos, depth=depth, budget=budget, strict=True)
        if pos >= len(data) or data[pos] >> 5 != _MAP:
            value, pos = cbor.decode_item(data, pos, depth=depth, budget=budget, strict=True)
            fields_of(value, self._problems, ("objects",), SECTION_ROOT, "a map of objects")
            self._objects = {}
            return value, pos
        # The table of shards comes before the objects: its name is shorter.
        shards = self._shards(self._fields.get("shards", _ABSENT))

        def begin(problems: list[Problem]) -> Parse:
            places = self._places = Places(self._frame.file_size, dict(shards), budget)

            def parse(name: object, entry: object) -> TensorObject | None:
                if not isinstance(name, str) or not is_name(name):
                    problems.append(name_problem(name, ("objects",)))
                    return None
                return parse_object(name, entry, places, budget, problems)

            return parse

        self._objects, problems, end = read_objects(
            data,
            pos,
            begin,
            FORM,
            blobs_end=self._frame.file_size - FOOTER_2_BYTES,
            depth=depth,
            budget=budget,
            least=self._least,
        )
        self._problems += problems
        return {}, end

    def manifest(self) -> Manifest:
        """Return what it says.

        Raises:
            ManifestError: it breaks rules.
        """
        problems, places, objects = self._problems, self._places, self._objects
        if objects is None:
            message = "expected a map of objects, found no such field"
            raise manifest_error(
                [Problem(Reason.FIELD_MISSING, message, ("objects",), SECTION_ROOT)]
            )
        if isinstance(objects, TableObjects):
            places.add_rows(objects.table.offsets, objects.table.lengths)
        places.add(self._frame.manifest_offset, self._frame.manifest_length, None)
        record = fields_of(self._fields, problems, (), SECTION_ROOT, "a map")
        attributes: Mapping[str, object] | None = None
        extra = None
        if record is not None:
            record.ignorable("shards")
            record.ignorable("objects")
            attributes = attributes_of(record, self._fields.get("attributes"), problems, ())
            extra = record.rest()
        if not problems:
            problems += places.check_overlaps()
        if problems:
            raise manifest_error(problems)
        return Manifest(VERSION, objects, attributes, None, extra, places.shards)

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


def _are_names(texts: list[str]) -> bool:
    """Return whether texts are names, in the order of their encoded bytes, each once."""
    whole = "".join(texts)
    if whole.isascii():
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        are_names = "\0" not in whole and int(lengths.min()) > 0 and int(lengths.max()) <= MOST_NAME
    else:
        lengths = np.fromiter((len(name.encode()) for name in texts), np.int64, len(texts))
        are_names = all(map(is_name, texts))
    steps = np.diff(lengths)
    rising = np.fromiter(map(operator.lt, texts, islice(texts, 1, None)), np.bool_, len(steps))
    return are_names and bool(((steps > 0) | ((steps == 0) & rising)).all())


FORM = Form(
    start=b"\xa3" + cbor.encode_text("parts"),
    place=cbor.encode_text("blob") + b"\x82",
    between=b"",
    has_tail=True,
    alignment=PAGE_2,
    packed="zt.zstd-seekable/1",
    place_cost=PLACE_COST,
    are_names=_are_names,
    is_strict=True,
)
