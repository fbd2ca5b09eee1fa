"""The manifest of 2.x, read: its hash, root, shards, objects, and the extents of blobs.

Offsets in the model count in the concatenation of all files of a set, the root file first and each
shard aligned to a page, so that an offset also identifies the file.
"""

from __future__ import annotations

import array
import functools
import operator
import re
from collections.abc import Iterable, Mapping
from itertools import accumulate, islice
from typing import Any

import numpy as np

from ztensor.errors import MOST_PROBLEMS, ManifestError, Problem, Reason, describe
from ztensor.limits import Budget
from ztensor.spec.container.framing import FOOTER_2_BYTES, PAGE_2, Frame
from ztensor.spec.container.v2.words import (
    DTYPES,
    SPARSE,
    WORD_OF_2,
    check_layout,
    model_layout,
    storage_of,
)
from ztensor.spec.container.walk import (
    LEAST_OBJECTS,
    ParseObject,
    Path,
    Root,
    check_place,
    parse_components,
    require_none,
)
from ztensor.spec.digest import check_digest, xxh3
from ztensor.spec.model.manifest import Component, Manifest, Shard, TensorObject, align
from ztensor.spec.model.objects import TableObjects, Uints
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import ManifestForm, Record, read_fields

VERSION = "2"  # as in the footer; the texts 2.0 and 2.1 describe the same bytes
DEPTH = 32  # levels of nesting, with the root
LEAST_SHARD = 48  # bytes
MOST_RANK = 64
MOST_NAME = 1024  # bytes
_PLACE_COST = 120  # bytes of memory per blob while overlaps are checked
_SHARD_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\Z")
_PLACES, _NAMES = "2.1 section 2.4", "2.1 section 3.5"

_record = functools.partial(Record, is_exact=True)
ROOT = _record(
    "a map as the manifest's root",
    "2.1 section 3.2",
    {"objects": dict, "attributes": dict, "shards": dict},
    optional=("attributes", "shards"),
)
SHARD = _record("a map describing one shard", "2.1 section 7.1", {"size": int, "digest": str})
OBJECT = _record(
    "a map describing one object",
    "2.1 section 3.3",
    {"shape": list, "layout": str, "parts": dict, "attributes": dict},
    optional=("attributes",),
)
PART = _record(
    "a map describing one part",
    "2.1 section 3.4",
    {
        "dtype": str, "blob": list, "type": str, "shard": str,
        "encoding": str, "decoded_length": int, "digest": str,
    },
    optional=("type", "shard", "encoding", "decoded_length", "digest"),
)  # fmt: skip


def _are_names(texts: list[str]) -> bool:
    """Return whether texts are valid names, strictly ascending by their encoded bytes."""
    whole = "".join(texts)
    sizes = map(len, texts if whole.isascii() else map(str.encode, texts))
    lengths = np.fromiter(sizes, np.int64, len(texts))
    are_names = "\0" not in whole and int(lengths.min()) > 0 and int(lengths.max()) <= MOST_NAME
    steps = np.diff(lengths)
    rising = np.fromiter(map(operator.lt, texts, islice(texts, 1, None)), np.bool_, len(steps))
    return are_names and bool(((steps > 0) | ((steps == 0) & rising)).all())


FORM = ManifestForm(
    root=ROOT,
    object=OBJECT,
    start=b"\xa3" + cbor.encode("parts"),
    place=cbor.encode("blob") + b"\x82",
    has_tail=True,
    alignment=PAGE_2,
    packed="zt.zstd-seekable/1",
    are_names=_are_names,
)


def parse_manifest(
    data: bytes, frame: Frame, budget: Budget, *, least_objects: int = LEAST_OBJECTS
) -> Manifest:
    """Parse the manifest; empty for a data shard, which has none.

    Args:
        data: the manifest's bytes.
        frame: their extent in the file, and their hash.
        budget: the file's budget; of its limits, `depth` is used.
        least_objects: threshold of bulk parsing.

    Raises:
        ManifestError: it does not match its hash, is not one CBOR map in deterministic form, or
            breaks rules (all are listed).
        LimitError: it nests deeper than the limits allow, or costs too much.
        MissingDependencyError: the library for its hash is not installed.
    """
    if not frame.manifest_length:
        return Manifest(VERSION, {})
    actual = xxh3(data)
    if actual != frame.manifest_hash:
        raise ManifestError(
            "the manifest does not match the hash in the footer; the file is damaged",
            reason=Reason.MANIFEST_DIGEST,
            expected=f"{frame.manifest_hash:016x}",
            found=f"{actual:016x}",
            section="2.1 section 2.3",
        )
    decoder = cbor.Decoder(data, budget, depth=min(budget.limits.depth, DEPTH), strict=True)
    files: dict[str | None, Shard] = {}

    def begin(fields: Mapping[str, object], problems: list[Problem]) -> ParseObject:
        # Keys are sorted by length first: `shards` comes before `objects`.
        files.update(_parse_files(fields.get("shards"), frame.file_size, problems))
        return functools.partial(parse_object, files)

    blobs_end = frame.file_size - FOOTER_2_BYTES
    root = Root(decoder, FORM, begin, blobs_end=blobs_end, least_objects=least_objects)
    _, attributes, _, extra = root.values or [None] * 4
    require_none(root.problems + check_names(attributes or (), ("attributes",)))
    blobs = _blobs(root.objects, [*files], frame, decoder.budget)
    require_none(_check_overlaps(blobs, [*files]))
    used = set(blobs[0].tolist()) if len(files) > 1 else set()
    shards = {
        name: shard if number in used else shard._replace(start=None)
        for number, (name, shard) in enumerate(files.items())
        if name is not None
    }
    return Manifest(VERSION, root.objects, attributes, None, extra, shards)


def _parse_files(table: object, size: int, problems: list[Problem]) -> dict[str | None, Shard]:
    """Return name to file of a set (2.1 section 7.1); the root file has the name None.

    Args:
        table: the field `shards`; a value of another type is reported by the root's schema.
        size: bytes of the root file.
        problems: receives the problems.
    """
    files: dict[str | None, Shard] = {None: Shard("", size, "")}
    for name, entry in (table if isinstance(table, dict) else {}).items():
        if len(problems) >= MOST_PROBLEMS:
            break
        path, section = ("shards", name), SHARD.section
        if not _SHARD_NAME.match(name):
            message = "expected 1 to 64 of A-Z a-z 0-9 . _ -, no dot first, found " + describe(name)
            problems.append(Problem(Reason.FIELD_VALUE, message, ("shards",), section))
        fields = read_fields(entry, SHARD, path, problems)
        if not fields:
            continue
        size, digest, _ = fields
        if size < LEAST_SHARD:
            message = f"expected at least {LEAST_SHARD}, found {size}"
            problems.append(Problem(Reason.FIELD_VALUE, message, (*path, "size"), section))
        problems += check_digest(digest, *path, "digest", strict=True)
        files[name] = Shard(name, size, digest)
    start = 0
    # Ascending sizes: an unused shard of any declared size does not push offsets beyond int64.
    for key in sorted(files, key=lambda name: (name is not None, files[name].size)):
        files[key] = files[key]._replace(start=start)
        start += align(files[key].size, PAGE_2)
    return files


# --- One object --------------------------------------------------------------------------------


def check_names(names: Iterable[str], path: Path = ()) -> list[Problem]:
    """Return the problem of the first invalid name of an object, part or attribute, if any."""
    for name in names:
        if not 0 < len(name.encode()) <= MOST_NAME or "\0" in name:
            message = f"expected 1 to {MOST_NAME} bytes without NUL as a name, found "
            return [Problem(Reason.FIELD_VALUE, message + describe(name), path, _NAMES)]
    return []


def parse_object(
    files: Mapping[str | None, Shard], fields: list[Any], path: Path, problems: list[Problem]
) -> TensorObject:
    """Return one object; with new problems, it may be incomplete.

    Args:
        files: name to file of the set; None is the root file.
        fields: the values of the record `OBJECT`.
        path: steps from the manifest's root to the object; the last is its name.
        problems: receives the problems.
    """
    start = len(problems)
    shape, layout, entries, attributes, extra = fields
    problems += check_names((str(path[1]),), path[:1])
    problems += check_names(entries, (*path, "parts"))
    if attributes:
        problems += check_names(attributes, (*path, "attributes"))
    if not entries:
        message, where = "expected at least one part, found none", (*path, "parts")
        problems.append(Problem(Reason.COMPONENT_MISSING, message, where, OBJECT.section))
    parse = functools.partial(_parse_part, files)
    components = parse_components(entries, PART, (*path, "parts"), problems, parse)
    own = _check_shape(shape)
    if len(problems) == start:
        own += check_layout(layout, shape, components, attributes)
    problems += [problem.under(*path) for problem in own]
    word, attributes = model_layout(layout, attributes)
    is_sparse = layout in SPARSE
    return TensorObject(shape, word, components, attributes, extra, entries_once=is_sparse)


def _check_shape(shape: tuple[int, ...]) -> list[Problem]:
    # Every partial product counts, as in the releases: a later zero does not make it valid.
    most = max(accumulate(shape[:MOST_RANK], operator.mul), default=0)
    if len(shape) <= MOST_RANK and most <= cbor.UINT64_MAX:
        return []
    message = f"expected at most {MOST_RANK} dimensions and a product below 2^64, found "
    found = f"{len(shape)} of {describe(shape)}"
    return [Problem(Reason.FIELD_VALUE, message + found, ("shape",), OBJECT.section)]


def _parse_part(
    files: Mapping[str | None, Shard],
    _: str,
    fields: list[Any],
    path: Path,
    problems: list[Problem],
) -> Component | None:
    dtype, blob, logical, shard, encoding, decoded_length, digest, extra = fields
    start = len(problems)

    def wrong(field: str, message: str, reason: Reason = Reason.FIELD_VALUE) -> None:
        problems.append(Problem(reason, message, (*path, field), PART.section))

    if dtype not in DTYPES:
        wrong("dtype", f"expected one of {', '.join(sorted(DTYPES))}, found {describe(dtype)}")
    elif (storage := storage_of(logical)) not in (None, dtype):
        message = f"expected {storage} for {logical}, found {dtype}"
        wrong("type", message, Reason.TYPE_MISMATCH)
    if len(blob) != 2:
        wrong("blob", f"expected offset and length, found {len(blob)} numbers")
    if shard not in files:
        wrong("shard", f"expected a name of the table of shards, found {describe(shard)}")
    if (encoding is None) is not (decoded_length is None):
        field = "decoded_length" if decoded_length is None else "encoding"
        message = "expected encoding and decoded_length together, found only one of them"
        wrong(field, message, Reason.FIELD_MISSING)
    if digest is not None:
        problems += check_digest(digest, *path, "digest", strict=True)
    if len(problems) == start:
        end = files[shard].size - FOOTER_2_BYTES
        problems += check_place(blob, end, PAGE_2, (*path, "blob"), _PLACES)
    if len(problems) > start:
        return None
    if logical == "bool":
        dtype, logical = "bool", None
    if encoding in ("raw", "zstd"):  # words of 1.x mean nothing in 2.x
        encoding = WORD_OF_2 + encoding
    offset, length = blob
    offset += files[shard].start or 0
    known = dtype, offset, length, logical, encoding or "raw", digest, decoded_length
    file = None if shard is None else files[shard]
    return Component(*known, is_exact=True, shard=file, extra=extra)


# --- Places ------------------------------------------------------------------------------------


def _blobs(
    objects: Mapping[str, TensorObject], files: list[str | None], frame: Frame, budget: Budget
) -> Uints:
    """Return file number, offset in the file and length of all blobs and the manifest, (3, n)."""
    flat = array.array("Q", (0, frame.manifest_offset, frame.manifest_length))
    numbers = {name: number for number, name in enumerate(files)}
    others = objects.others if isinstance(objects, TableObjects) else objects
    for tensor_object in others.values():
        for part in tensor_object.components.values():
            budget.charge_bytes(_PLACE_COST)
            shard, start = (None, 0) if part.shard is None else (part.shard.name, part.shard.start)
            flat.extend((numbers[shard], part.offset - (start or 0), part.length))
    blobs = np.frombuffer(flat, np.uint64).reshape(-1, 3).T
    if isinstance(objects, TableObjects):
        table = objects.table
        budget.charge_bytes(_PLACE_COST * len(table.names))
        rows = np.array((np.zeros_like(table.offsets), table.offsets, table.lengths))
        blobs = np.concatenate((blobs, rows.astype(np.uint64)), axis=1)
    return blobs


def _check_overlaps(blobs: Uints, files: list[str | None]) -> list[Problem]:
    """Return a problem if two unequal blobs of a file overlap (2.1 section 2.4).

    Args:
        blobs: as `_blobs` returns them; empty blobs overlap nothing.
        files: names of the files, by file number.
    """
    blobs = blobs[:, blobs[2] > 0]
    numbers, offsets, lengths = blobs
    if numbers.any() or not (offsets[:-1] < offsets[1:]).all():
        numbers, offsets, lengths = blobs[:, np.lexsort((lengths, offsets, numbers))]
    # Sorted by offset, each blob must equal its predecessor or begin at or behind its end.
    is_same = (offsets[1:] == offsets[:-1]) & (lengths[1:] == lengths[:-1])
    is_before = offsets[1:] < offsets[:-1] + lengths[:-1]
    wrong = np.flatnonzero(is_before & ~is_same & (numbers[1:] == numbers[:-1]))
    if not len(wrong):
        return []
    at = int(wrong[0])
    first, second = ([int(offsets[i]), int(offsets[i] + lengths[i])] for i in (at, at + 1))
    shard = files[int(numbers[at])]
    where = "" if shard is None else f" of shard {shard!r}"
    message = f"expected equal or disjoint blobs{where}, found {first} and {second}"
    return [Problem(Reason.BLOB_OVERLAP, message, ("objects",), _PLACES)]
