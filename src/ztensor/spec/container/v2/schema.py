"""The manifest of 2.x, read: its hash, its root, the table of shards, and all objects."""

from __future__ import annotations

import operator
import re
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import LimitError, ManifestError, Problem, Reason, describe
from ztensor.spec.container.framing import FOOTER_2_BYTES, PAGE_2
from ztensor.spec.container.v2.object import (
    MOST_NAME,
    ROOT,
    SHARD,
    check_names,
    is_name,
    name_problem,
    parse_object,
)
from ztensor.spec.container.v2.places import PLACE_COST, Places
from ztensor.spec.container.walk import LEAST_OBJECTS, read_map, read_objects
from ztensor.spec.digest import check_digest, xxh3
from ztensor.spec.model.manifest import Manifest, Shard
from ztensor.spec.model.objects import TableObjects
from ztensor.spec.model.rules import MOST_PROBLEMS, manifest_error
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import Form, kind_of, read_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.limits import Budget
    from ztensor.spec.container.framing import Frame
    from ztensor.spec.container.walk import Parse
    from ztensor.spec.model.manifest import TensorObject

VERSION = "2"  # what the footer says; the texts 2.0 and 2.1 describe the same bytes
DEPTH = 32  # levels of nesting, the root among them
LEAST_SHARD = 48  # bytes

_SHARD_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\Z")


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
    decoder = cbor.Decoder(data, budget, depth=min(budget.limits.depth, DEPTH), strict=True)
    try:
        return _Root(decoder, frame, least).manifest()
    except LimitError as error:
        if error.reason is not Reason.LIMIT_DEPTH or budget.limits.depth < DEPTH:
            raise
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
        decoder: of the manifest.
        frame: where it was in the file.
        least: as many objects are read side by side.
    """

    def __init__(self, decoder: cbor.Decoder, frame: Frame, least: int) -> None:
        self._decoder, self._frame, self._least = decoder, frame, least
        self._problems: list[Problem] = []
        self._fields: dict[str, object] = {}
        self._objects: Mapping[str, TensorObject] = {}
        self._places = Places(frame.file_size, {}, decoder.budget)
        if decoder.kind(0) != cbor.MAP:
            value, end = decoder.read(0)
            decoder.require_end(end)
            read_fields(value, ROOT, (), self._problems)
            raise manifest_error(self._problems)
        decoder.require_end(read_map(decoder, 0, 0, self._fields, self._value))

    def _value(self, key: object, pos: int) -> tuple[object, int]:
        if key != "objects" or self._decoder.kind(pos) != cbor.MAP:
            return self._decoder.read(pos, 1)
        # The table of shards comes before the objects: its name is shorter.
        shards = _parse_shards(self._fields.get("shards", {}), self._problems)

        def begin(problems: list[Problem]) -> Parse:
            places = Places(self._frame.file_size, dict(shards), self._decoder.budget)
            self._places = places

            def parse(name: object, entry: object) -> TensorObject | None:
                if not isinstance(name, str) or not is_name(name):
                    problems.append(name_problem(name, ("objects",)))
                    return None
                return parse_object(name, entry, places, problems)

            return parse

        blobs_end = self._frame.file_size - FOOTER_2_BYTES
        self._objects, problems, end = read_objects(
            self._decoder, pos, 1, begin, FORM, blobs_end=blobs_end, least=self._least
        )
        self._problems += problems
        return {}, end

    def manifest(self) -> Manifest:
        """Return what it says.

        Raises:
            ManifestError: it breaks rules.
        """
        problems, places, objects = self._problems, self._places, self._objects
        fields = read_fields(self._fields, ROOT, (), problems)
        if fields is None:
            raise manifest_error(problems)
        _, attributes, _, extra = fields
        problems += check_names(attributes or (), ("attributes",))
        if isinstance(objects, TableObjects):
            places.add_rows(objects.table.offsets, objects.table.lengths)
        places.add(self._frame.manifest_offset, self._frame.manifest_length, None)
        if not problems:
            problems += places.check_overlaps()
        if problems:
            raise manifest_error(problems)
        return Manifest(VERSION, objects, attributes, None, extra, places.shards)


def _parse_shards(table: object, problems: list[Problem]) -> dict[str, Shard]:
    shards: dict[str, Shard] = {}
    if not isinstance(table, dict):
        message = f"expected a map of shards, found {kind_of(table)}"
        problems.append(Problem(Reason.FIELD_TYPE, message, ("shards",), SHARD.section))
        return shards
    for name, entry in table.items():
        if len(problems) >= MOST_PROBLEMS:
            break
        if not _SHARD_NAME.match(name):
            message = "expected 1 to 64 of A-Z a-z 0-9 . _ -, no dot first, found " + describe(name)
            problems.append(Problem(Reason.FIELD_VALUE, message, ("shards",), SHARD.section))
        fields = read_fields(entry, SHARD, ("shards", name), problems)
        if fields is None:
            continue
        size, digest, _ = fields
        if size < LEAST_SHARD:
            message = f"expected at least {LEAST_SHARD}, found {size}"
            path = ("shards", name, "size")
            problems.append(Problem(Reason.FIELD_VALUE, message, path, SHARD.section))
        found = check_digest(digest, strict=True)
        problems += [problem.under("shards", name, "digest") for problem in found]
        shards[name] = Shard(name, size, digest)
    return shards


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
)
