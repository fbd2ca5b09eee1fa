"""The manifest of 1.1 and 1.2: one container, one schema (1.2 section 1, 1.1 part II).

1.2 added optional fields and logical types to 1.1 and changed the spelling of fp8 and complex.
Appending libraries keep an old version text and add new fields, so a reader takes both spellings
in every file and looks at the version text for its major number only. What is written differs,
and that is the two emitters at the end.

| root | 1.1 | 1.2 |
| --- | --- | --- |
| `version` text, `attributes` map, `objects` map | yes | yes |
| `commit` map, last: `prev`, `end`, `digest` | ours, ignorable | ours, ignorable |

| component | 1.1 | 1.2 |
| --- | --- | --- |
| `dtype`, `offset`, `length`, `encoding`, `digest` | yes | yes |
| `type`, `uncompressed_length` | dtype words `f8_e4m3` ... instead; none | yes |
"""

from __future__ import annotations

import dataclasses
import re
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ztensor.container.framing import MAGIC_1, TAIL_BYTES
from ztensor.digest import ALGORITHMS, check_digest, digest_of, small_crc32c
from ztensor.errors import (
    DigestMismatchError,
    LimitError,
    ManifestError,
    NotRepresentableError,
    Reason,
    UnsupportedVersionError,
    describe,
)
from ztensor.model.dtype import STORAGE_TYPES
from ztensor.model.manifest import (
    COMPONENT_COST,
    OBJECT_COST,
    Commit,
    Component,
    Manifest,
    TensorObject,
    WrittenObjects,
)
from ztensor.model.problem import MOST_PROBLEMS, Problem, manifest_error
from ztensor.model.rules import check_place
from ztensor.wire import cbor, columns
from ztensor.wire.record import Record, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ztensor.container.framing import Frame
    from ztensor.limits import Budget
    from ztensor.model.manifest import PlainRows

SECTION_ROOT = "1.2 section 1, Root"
SECTION_OBJECT = "1.2 section 1, Object"
SECTION_COMPONENT = "1.2 section 1, Component"

_SELF_DESCRIBED = 55799  # RFC 7049 2.4.5: says "this is CBOR" and means nothing else
_MAJOR = re.compile(r"(\d+)(?:\.|\Z)")

# 1.1 part II, section 4 names these among the dtypes; 1.2 spells them storage plus logical type.
WORDS_OF_1_1 = {
    "f8_e4m3": ("u8", "f8_e4m3fn"),
    "f8_e5m2": ("u8", "f8_e5m2"),
    "complex64": ("f32", "complex64"),
    "complex128": ("f64", "complex128"),
}
_SPELLED_IN_1_1 = {pair: word for word, pair in WORDS_OF_1_1.items()}

# Bytes of memory that a dimension takes, and each byte of texts that are not ASCII. An object of so
# many bytes has long ones.
_DIMENSION_COST, _LONG_FACTOR, _LONG = 40, 4, 1024

# From this size on `regular.py` is tried, which in a fresh process takes 3 ms to begin with.
REGULAR_BYTES = 32 << 10


# --- Reading --------------------------------------------------------------------------------


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
    problems: list[Problem] = []
    regular: tuple[dict[str, object], Mapping[str, TensorObject]] | None = None
    if len(data) >= REGULAR_BYTES:
        from ztensor.container.regular import read_root  # small files need none of it

        regular = read_root(data, frame, budget)
        if regular is None:
            regular = _read_one_by_one(data, frame, budget, problems)
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
    if version is not None:
        _require_major(version)
    attributes = root.attributes("attributes")
    entries = root.mapping("objects")
    commit = _parse_commit(root, data)
    objects: Mapping[str, TensorObject]
    if regular is None:
        objects = _parse_objects(entries or {}, frame, budget, problems, is_1_1=is_1_1(version))
    else:
        objects = regular[1]
    if problems or version is None:
        raise manifest_error(problems)
    return Manifest(version, objects, attributes, commit, root.rest())


def is_1_1(version: object) -> bool:
    """Return whether a file says it is of 1.1, where digests may cover decoded bytes."""
    return isinstance(version, str) and version.startswith("1.1")


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


class _OtherwiseError(Exception):
    """The manifest is decoded at once."""


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
    if type(entry) is dict and entry.keys() == _PLAIN_OBJECT:
        plain = _parse_plain(entry, frame, is_1_1=is_1_1)
        if plain is not None:
            return plain
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


_PLAIN_OBJECT = frozenset(("shape", "format", "components"))
_BARE_COMPONENT = frozenset(("dtype", "offset", "length"))
_PLAIN_COMPONENT = _BARE_COMPONENT | {"digest"}


def _parse_plain(entry: dict[str, object], frame: Frame, *, is_1_1: bool) -> TensorObject | None:
    """Return an object of the commonest form, whose fields are as they should be, else None.

    It is a shortcut, half as long as the way that says what is wrong.
    """
    shape, layout, components = entry["shape"], entry["format"], entry["components"]
    if layout != "dense" or type(components) is not dict or components.keys() != {"data"}:
        return None
    fields = components["data"]
    if type(fields) is not dict or type(shape) is not list:
        return None
    if fields.keys() != _PLAIN_COMPONENT and fields.keys() != _BARE_COMPONENT:
        return None
    dtype, digest = fields["dtype"], fields.get("digest", "")
    offset, length = fields["offset"], fields["length"]
    if (
        type(dtype) is not str
        or type(digest) is not str
        or type(offset) is not int
        or type(length) is not int
        or offset % 64
        or offset < 64
        or length < 0
        or offset + length > frame.manifest_offset
        or not all(type(dim) is int and 0 <= dim <= cbor.UINT64_MAX for dim in shape)
        or (digest and check_digest(digest))
        or (not digest and "digest" in fields)
    ):
        return None
    dtype, logical = types_of(dtype, None)
    component = Component(
        dtype, offset, length, logical, "raw", digest or None, digest_may_cover_decoded=is_1_1
    )
    return TensorObject(tuple(shape), "dense", {"data": component})


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


# --- The commit record ----------------------------------------------------------------------

# 1.x has no digest of the manifest. Ours is the root field `commit`, which readers ignore: its
# digest is the crc32c of the manifest with the digest's own hexadecimal digits zeroed. It is
# written last, so those eight digits are the manifest's last eight bytes.
_CHECK = ALGORITHMS["crc32c"]
_NO_DIGITS = b"0" * _CHECK.digits
# Its fixed bytes, and the heads of the two numbers between them by the length of the number.
_MARK_COMMIT, _MARK_PREV = cbor.encode_text("commit") + b"\xa3", cbor.encode_text("prev")
_MARK_END = cbor.encode_text("end")
_MARK_DIGEST = cbor.encode_text("digest") + cbor.encode_text(_CHECK.spell("0" * 8))[:-8]
# A manifest this long is checked in less time than the library takes to be imported.
_SMALL_BYTES = 4 << 10
# Objects that are put together at once: what they take is still in cache when it is joined.
_EMITTED = 2048
_UINT_HEADS = {1: bytes(range(24)), 2: b"\x18", 3: b"\x19", 5: b"\x1a", 9: b"\x1b"}


def _parse_commit(root: Record, data: bytes) -> Commit | None:
    value = root.ignorable("commit")
    fields = value if isinstance(value, dict) else {}
    prev, end, text = fields.get("prev"), fields.get("end"), fields.get("digest")
    is_ours = (
        isinstance(text, str)
        and text.startswith("crc32c:0x")
        and data.endswith(cbor.encode_text(text))
    )
    is_whole = is_ours and type(prev) is int and type(end) is int
    if not is_whole and not _is_nearly_ours(data):
        # Not ours to refuse: another writer may use the word for something else, or have kept the
        # field and rewritten the manifest around it.
        return None
    covered = (memoryview(data)[: -_CHECK.digits], _NO_DIGITS)
    is_small = len(data) <= _SMALL_BYTES
    expected = small_crc32c(covered) if is_small else digest_of(_CHECK, covered)
    if is_whole and text == expected:
        return Commit(prev, end)  # type: ignore[arg-type]  # both are integers: it is whole
    raise DigestMismatchError(
        "the manifest does not match the digest its writer put into it; it is damaged",
        reason=Reason.MANIFEST_DIGEST,
        algorithm=_CHECK.name,
        expected=describe(text),
        found=expected,
        actual=expected,
    )


def _is_nearly_ours(data: bytes) -> bool:
    """Return whether a manifest ends with our record but for one of its parts.

    Damage to the record itself would otherwise switch off the check of everything else.
    """
    tail = data[-60:]  # the longest record
    if _MARK_PREV not in tail and _MARK_END not in tail:
        return False
    after = len(tail) - len(_MARK_DIGEST) - _CHECK.digits
    for end_length, end_heads in _UINT_HEADS.items():
        for prev_length, prev_heads in _UINT_HEADS.items():
            end = after - end_length
            prev = end - len(_MARK_END) - prev_length
            parts = (
                tail[after : after + len(_MARK_DIGEST)] == _MARK_DIGEST,
                tail[end : end + 1] in end_heads,
                tail[:end].endswith(_MARK_END),
                tail[prev : prev + 1] in prev_heads,
                tail[:prev].endswith(_MARK_PREV),
                tail[: prev - len(_MARK_PREV)].endswith(_MARK_COMMIT),
            )
            if sum(parts) >= len(parts) - 1:
                return True
    return False


def _with_commit(
    fields: list[tuple[str, bytes | list[bytes]]], manifest_offset: int, prev: int
) -> bytes:
    """Return the manifest with its commit record, the size field and the footer magic."""
    parts = cbor.map_parts([*fields, ("commit", b"")])
    length = sum(map(len, parts))
    # The length depends on `end`, whose head depends on the length: it only ever grows, so a few
    # rounds settle it.
    zeroed = cbor.encode_text(_CHECK.spell("0" * _CHECK.digits))
    end = 0
    while True:
        commit = cbor.map_of(
            (("prev", cbor.encode_uint(prev)), ("end", cbor.encode_uint(end)), ("digest", zeroed))
        )
        reached = manifest_offset + length + len(commit) + TAIL_BYTES
        if reached == end:
            break
        end = reached
    digits = digest_of(_CHECK, (*parts, commit))[-_CHECK.digits :].encode("ascii")
    size = (length + len(commit)).to_bytes(8, "little")
    # Joined once: a manifest may have many megabytes, and new memory costs more than the copy.
    return b"".join((*parts, commit[: -_CHECK.digits], digits, size, MAGIC_1))


# --- Writing --------------------------------------------------------------------------------


class Emitter12:
    """Writes 1.2.0."""

    version = "1.2.0"
    magic = MAGIC_1
    writes_decoded_length = True

    def __init__(self) -> None:
        self._fragments: dict[tuple[object, ...], tuple[bytes, bytes]] = {}

    def check_object(self, tensor_object: TensorObject) -> None:
        """Raise where the version cannot say what the object is, before a byte of it is written.

        Raises:
            NotRepresentableError: names what cannot be said and the version that can.
        """
        self._emit_object(tensor_object)

    def check_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise where the file's own attributes cannot be said."""
        _encode_attributes(attributes, levels=1)

    def _spell(self, component: Component) -> tuple[str, str | None]:
        return component.dtype, component.type

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return manifest, size field and footer magic, ready to follow the last blob.

        Objects and roles come in order of their UTF-8 bytes, fields in the order released
        writers use, unknown ones behind; the same manifest gives the same bytes.

        Args:
            manifest: what to write; the version text is kept, `commit` is the emitter's own.
            manifest_offset: where the result will lie in the file.
            prev: length of the file before this commit, 0 for a new one.
        """
        fields: list[tuple[str, bytes | list[bytes]]] = [
            ("version", cbor.encode_text(manifest.version))
        ]
        if manifest.attributes is not None:
            fields.append(("attributes", _encode_attributes(manifest.attributes, levels=1)))
        fields.append(("objects", self._emit_objects(manifest.objects)))
        fields.extend(_unknown(manifest.extra))
        return _with_commit(fields, manifest_offset, prev)

    def _emit_objects(self, objects: Mapping[str, TensorObject]) -> list[bytes]:
        names = sorted(objects)  # by code points, which is by UTF-8 bytes
        if not isinstance(objects, WrittenObjects) or not objects.rows:
            return cbor.map_parts((name, self._emit_object(objects[name])) for name in names)
        return [cbor.head(5, len(names)), *self._emit_rows(objects, names)]

    def _emit_rows(self, objects: WrittenObjects, names: list[str]) -> Iterable[bytes]:
        """Return names and objects, most of them rows, some thousand at a time."""
        rows = objects.rows
        around = [self._around_row(like) for like in rows.likes]
        is_in_order = names == rows.names
        entries: list[str] = []
        if not is_in_order:
            of_rows = _entries(rows, around, range(len(rows)))
            places = map(objects.row_of, names)
            entries = [
                self._emit_object(objects[name]).decode("latin-1") if row is None else of_rows[row]
                for name, row in zip(names, places, strict=True)
            ]
        for start in range(0, len(names), _EMITTED):
            part = range(len(names))[start : start + _EMITTED]
            heads, texts = columns.encode_texts(names[part.start : part.stop])
            some = _entries(rows, around, part) if is_in_order else entries[part.start : part.stop]
            parts = chain.from_iterable(zip(heads, texts, some, strict=True))
            yield "".join(parts).encode("latin-1")

    def _around_row(self, like: TensorObject) -> tuple[bytes, bytes]:
        component = like.components["data"]
        before, after = self._around(like.shape, component)
        if component.digest is not None:
            after += cbor.encode_text(component.digest)[: -len(component.digest)]
        return before, after

    def _emit_object(self, tensor_object: TensorObject) -> bytes:
        if tensor_object.format == "dense" and len(tensor_object.components) == 1:
            component = tensor_object.components.get("data")
            if (
                component is not None
                and component.encoding == "raw"
                and component.extra is None
                and tensor_object.attributes is None
                and tensor_object.extra is None
            ):
                return self._emit_plain(tensor_object.shape, component)
        return self._emit_any(tensor_object)

    def _emit_plain(self, shape: tuple[int, ...], component: Component) -> bytes:
        before, after = self._around(shape, component)
        offset = cbor.encode_uint(component.offset)
        if component.digest is None:
            return before + offset + after
        return before + offset + after + cbor.encode_text(component.digest)

    def _around(self, shape: tuple[int, ...], component: Component) -> tuple[bytes, bytes]:
        """Return what comes before and behind the offset of the commonest object.

        It differs from its like in two places only, and checkpoints hold many tensors of few
        shapes: everything around offset and digest is made once for each (1 us an object instead
        of 15).
        """
        has_digest = component.digest is not None
        key = (shape, component.dtype, component.type, component.length, has_digest)
        around = self._fragments.get(key)
        if around is None:
            mark = (1 << 64) - 1 - component.length  # an offset no real object can have
            sample = dataclasses.replace(component, offset=mark, digest=None)
            fields = list(self._component_fields(sample))
            if has_digest:
                fields.append(("digest", b""))
            data = TensorObject(shape, "dense", {"data": sample})
            whole = self._emit_any(data, plain_fields=fields)
            # The last one: the numbers of a shape can spell the same bytes.
            before, _, after = whole.rpartition(cbor.encode_text("offset") + cbor.encode_uint(mark))
            around = self._fragments[key] = before + cbor.encode_text("offset"), after
        return around

    def _emit_any(
        self,
        tensor_object: TensorObject,
        *,
        plain_fields: list[tuple[str, bytes]] | None = None,
    ) -> bytes:
        fields = [
            ("shape", cbor.array_of(map(cbor.encode_uint, tensor_object.shape))),
            ("format", cbor.encode_text(tensor_object.format)),
        ]
        if tensor_object.attributes is not None:
            fields.append(("attributes", _encode_attributes(tensor_object.attributes, levels=3)))
        components = tensor_object.components
        fields.append(
            (
                "components",
                cbor.map_of(
                    (role, cbor.map_of(plain_fields or self._component_fields(components[role])))
                    for role in sorted(components)
                ),
            )
        )
        return cbor.map_of([*fields, *_unknown(tensor_object.extra)])

    def _component_fields(self, component: Component) -> Iterable[tuple[str, bytes]]:
        dtype, logical = self._spell(component)
        yield "dtype", cbor.encode_text(dtype)
        if logical is not None:
            yield "type", cbor.encode_text(logical)
        yield "offset", cbor.encode_uint(component.offset)
        yield "length", cbor.encode_uint(component.length)
        if component.encoding != "raw":
            if component.decoded_length is not None and self.writes_decoded_length:
                yield "uncompressed_length", cbor.encode_uint(component.decoded_length)
            yield "encoding", cbor.encode_text(component.encoding)
        if component.digest is not None:
            yield "digest", cbor.encode_text(component.digest)
        yield from _unknown(component.extra)


class Emitter11(Emitter12):
    """Writes 1.1.0: its own words for fp8 and complex, no `type`, no `uncompressed_length`."""

    version = "1.1.0"
    writes_decoded_length = False

    def _spell(self, component: Component) -> tuple[str, str | None]:
        if component.type is None:
            return component.dtype, None
        word = _SPELLED_IN_1_1.get((component.dtype, component.type))
        if word is None:
            raise NotRepresentableError(
                f"version 1.1.0 has no logical type {describe(component.type)}; write version "
                f"1.2.0, or pass the {STORAGE_TYPES[component.dtype].long_name} bytes",
                expected=f"one of {', '.join(WORDS_OF_1_1)}",
                found=describe(component.type),
                section="1.1 part II, section 4",
            )
        return word, None

    def check_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise where an attribute is not text: release 1.1.1 then opens no tensor of the file."""
        for key, value in attributes.items():
            if not isinstance(value, str):
                raise NotRepresentableError(
                    f"attribute {describe(key)} of a 1.1.0 file must be text, since the released "
                    "1.1 library reads nothing else there; write version 1.2.0",
                    found=kind_of(value),
                    section="1.1 part II, section 1",
                )
        super().check_attributes(attributes)


def _entries(rows: PlainRows, around: list[tuple[bytes, bytes]], part: range) -> list[str]:
    """Return what follows the names of some rows, as text of one character a byte.

    Rows of one like, with offsets of one length, differ in some columns only; those are filled
    for all of them at once.

    Args:
        rows: all rows.
        around: of each like, what comes before the offset, and after it up to the digest.
        part: the rows wanted.
    """
    window = slice(part.start, part.stop)
    kinds = np.array(rows.kinds[window])
    offsets = np.array(rows.offsets[window], np.uint64)
    entries = [""] * len(part)
    for kind in np.unique(kinds).tolist():
        before, after = around[kind]
        of_kind = np.flatnonzero(kinds == kind)
        for places, encoded in columns.encode_uints(offsets[of_kind]):
            some = of_kind[places].tolist()
            parts: list[bytes | columns.Bytes] = [before, encoded, after]
            digests = "".join(rows.digests[part[place]] or "" for place in some).encode("ascii")
            parts.append(np.frombuffer(digests, np.uint8).reshape(len(some), -1))
            made = columns.side_by_side(len(some), parts)
            if len(made) == len(entries):
                return made
            for place, entry in zip(some, made, strict=True):
                entries[place] = entry
    return entries


def _unknown(extra: Mapping[str, object] | None) -> list[tuple[str, bytes]]:
    """Return fields no version names, so that editing a file loses nothing another writer put."""
    return [
        (key, cbor.encode(value))
        for key, value in sorted((extra or {}).items(), key=lambda item: item[0])
    ]


def _encode_attributes(attributes: Mapping[str, object], *, levels: int) -> bytes:
    """Return attributes as CBOR, refused where a reader would lose them or find them too deep.

    Args:
        attributes: what to write.
        levels: how many maps of the manifest they lie in.
    """
    for key in attributes:
        if not isinstance(key, str):
            raise NotRepresentableError("the name of an attribute is text", found=kind_of(key))
    value: object = dict(attributes)
    for _ in range(levels):
        value = [value]  # one byte each, so that the whole depth is counted
    return cbor.encode(value)[levels:]
