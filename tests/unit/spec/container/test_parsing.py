"""Manifests of 0.1, 1.0, 1.1, 1.2 and 2.x: their content, and the place of each broken rule.

The corpora have a file for almost every rule, with its reason code; here is where it is found, how
many are reported, and the caps.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.refusals import refused
from tests.unit.spec.container.parsing import END, nested, parse, refusal
from ztensor.errors import (
    MOST_PROBLEMS,
    ContainerError,
    LimitError,
    Reason,
    UnsupportedVersionError,
    ZTensorError,
)
from ztensor.ext import Component, Manifest, TensorObject, cbor
from ztensor.limits import Limits

ABSENT = object()


def some(fields: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return fields with some changed; ABSENT takes one away."""
    return {key: value for key, value in {**fields, **changes}.items() if value is not ABSENT}


def entry(**changes: Any) -> dict[str, Any]:
    """Return a tensor of 0.1."""
    fields = {"name": "w", "offset": 64, "size": 8, "dtype": "float32", "shape": [2]}
    return some({**fields, "encoding": "raw"}, **changes)


def tensor(**changes: Any) -> dict[str, Any]:
    """Return a tensor of 1.0."""
    data = {"offset": 64, "length": 8}
    fields = {"dtype": "float32", "shape": [2], "format": "dense", "components": {"data": data}}
    return some(fields, **changes)


def tensors(objects: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the root that releases 1.0.0 and 1.0.1 wrote."""
    fields = {"version": "1.0", "generator": "zt", "attributes": {}, "tensors": objects}
    return some(fields, **changes)


DATA = {"dtype": "f32", "offset": 64, "length": 8}


def obj(**changes: Any) -> dict[str, Any]:
    """Return an object of 1.2."""
    return some({"shape": [2], "format": "dense", "components": {"data": DATA}}, **changes)


def component(**changes: Any) -> dict[str, Any]:
    return obj(components={"data": some(DATA, **changes)})


def root(objects: object = None, **changes: Any) -> dict[str, Any]:
    """Return a root of 1.2."""
    return some({"version": "1.2.0", "objects": {} if objects is None else objects}, **changes)


def dense(**fields: Any) -> TensorObject:
    known = {"dtype": "f32", "offset": 64, "length": 8, **fields}
    return TensorObject((2,), "dense", {"data": Component(**known)})


# --- Content --------------------------------------------------------------------------------


def dense_0_1(**fields: Any) -> TensorObject:
    return dense(nonzero_is_true=True, **fields)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, dense_0_1()),
        ({"layout": "dense"}, dense_0_1()),
        ({"layout": None, "checksum": None, "data_endianness": None}, dense_0_1()),
        ({"data_endianness": "little"}, dense_0_1()),
        ({"data_endianness": "big"}, dense_0_1(byte_order="big")),
        # The byte order is defined for raw elements wider than a byte only.
        ({"data_endianness": "big", "encoding": "zstd"}, dense_0_1(encoding="zstd")),
        ({"data_endianness": "big", "dtype": "int8"}, dense_0_1(dtype="i8")),
        ({"data_endianness": "big", "dtype": "odd"}, dense_0_1(dtype="odd")),
        ({"dtype": "bfloat16"}, dense_0_1(dtype="bf16")),
        ({"encoding": "lz4"}, dense_0_1(encoding="lz4")),
        ({"checksum": "md5:00"}, dense_0_1(digest="md5:00")),
        ({"mine": [1], "é": {}}, dense_0_1()._replace(attributes={"mine": [1], "é": {}})),
    ],
    ids=str,
)
def test_a_tensor_of_0_1(changes: dict[str, Any], expected: TensorObject) -> None:
    assert parse("0.1", [entry(**changes)]) == Manifest("0.1.0", {"w": expected})


def test_an_empty_index_of_0_1_has_one_byte() -> None:
    """0.1 section 7. An index of no bytes may be all that a cut left."""
    assert parse("0.1", b"\x80") == Manifest("0.1.0", {})
    assert refusal("0.1", b"").reason is Reason.CBOR_TRUNCATED


@pytest.mark.parametrize(
    ("fields", "extras"),
    [
        (root({"w": obj()}, later=1), ({"later": 1}, None, None)),
        (root({"w": obj(later={"a": [1]})}), (None, {"later": {"a": [1]}}, None)),
        (root({"w": component(later=b"x")}), (None, None, {"later": b"x"})),
    ],
    ids=["root", "object", "component"],
)
def test_unknown_fields_are_ignored_and_kept(
    fields: dict[str, Any], extras: tuple[object, ...]
) -> None:
    manifest = parse("1", fields)
    found = manifest.objects["w"]
    assert (found.shape, found.components["data"].offset) == ((2,), 64)
    assert (manifest.extra, found.extra, found.components["data"].extra) == extras


@pytest.mark.parametrize(
    "fields",
    [
        {"type": None, "digest": None, "encoding": None, "uncompressed_length": None},
        {"encoding": "raw", "type": "f32"},
    ],
    ids=["null", "the default"],
)
def test_optional_fields_have_defaults(fields: dict[str, Any]) -> None:
    fields = root({"w": {**component(**fields), "attributes": None}}, attributes=None)
    assert parse("1", fields) == Manifest("1.2.0", {"w": dense()})


def test_the_tag_that_marks_cbor_is_skipped() -> None:
    assert parse("1", cbor.Tag(55799, root({"w": obj()}))) == Manifest("1.2.0", {"w": dense()})
    assert refusal("1", cbor.Tag(55798, root())).reason is Reason.FIELD_TYPE


@pytest.mark.parametrize(
    "text", ["1.2.0", "1.1.0", "1.0", "1", "1.999.3-rc", "01.2", "one", "", "v2"]
)
def test_any_minor_version_is_read(text: str) -> None:
    """A minor version adds optional fields only; a text without a number names no version."""
    assert parse("1", root(version=text)).version == text


@pytest.mark.parametrize("text", ["2.0.0", "0.1.0", "0", "10.1", "2", "11", "99999999999.0"])
def test_another_major_version_is_refused(text: str) -> None:
    with refused(UnsupportedVersionError, Reason.UNKNOWN_VERSION):
        parse("1", root(version=text))


# --- Broken rules ---------------------------------------------------------------------------

EMPTY_2: dict[str, Any] = {"dtype": "u8", "blob": [4096, 0]}


def dense_2(**changes: Any) -> dict[str, Any]:
    fields = {"shape": [0], "layout": "dense", "parts": {"data": EMPTY_2}, **changes}
    return {"objects": {"w": fields}}


OF_W, OF_DATA = ("objects", "w"), ("objects", "w", "components", "data")
IN_1_0 = ("tensors", "w", "components", "data")
BROKEN: list[tuple[str, object, tuple[str | int, ...], Reason]] = [
    ("0.1", [1], (0,), Reason.FIELD_TYPE),
    ("0.1", [entry(name=ABSENT)], (0, "name"), Reason.FIELD_MISSING),
    ("0.1", [entry(), entry(name="v", offset=END)], (1, "offset"), Reason.OUT_OF_BOUNDS),
    ("0.1", [entry(data_endianness="middle")], (0, "data_endianness"), Reason.FIELD_VALUE),
    ("0.1", [entry(checksum="crc32c:1")], (0, "checksum"), Reason.DIGEST_MALFORMED),
    ("0.1", [entry(), entry()], (1, "name"), Reason.DUPLICATE_NAME),
    ("1.0", tensors({}, attributes=1), ("attributes",), Reason.FIELD_TYPE),
    *(
        ("1.0", tensors({"w": tensor(**{field: None})}), ("tensors", "w", field), Reason.FIELD_TYPE)
        for field in ("dtype", "components")
    ),
    *(
        ("1.0", tensors({"w": tensor(components={"data": data})}), (*IN_1_0, *field), reason)
        for data, field, reason in (
            ({"offset": 64}, ("length",), Reason.FIELD_MISSING),
            ({"offset": END, "length": 8}, ("offset",), Reason.OUT_OF_BOUNDS),
            ({"offset": 64, "length": 8, "digest": "x"}, ("digest",), Reason.DIGEST_MALFORMED),
        )
    ),
    ("1", [], (), Reason.FIELD_TYPE),
    ("1", root(objects=ABSENT), ("objects",), Reason.FIELD_MISSING),
    ("1", root(attributes=[]), ("attributes",), Reason.FIELD_TYPE),
    ("1", root({"w": None}), OF_W, Reason.FIELD_TYPE),
    ("1", root({"w": obj(shape=[-1])}), (*OF_W, "shape"), Reason.FIELD_VALUE),
    ("1", root({"w": obj(attributes=1)}), (*OF_W, "attributes"), Reason.FIELD_TYPE),
    ("1", root({"w": obj(components={"data": 1})}), OF_DATA, Reason.FIELD_TYPE),
    *(
        ("1", root({"w": component(**{field: value})}), (*OF_DATA, place), reason)
        for field, value, place, reason in (
            ("offset", 65, "offset", Reason.OFFSET_ALIGNMENT),
            ("length", 2**64 - 1, "offset", Reason.OUT_OF_BOUNDS),
            ("length", cbor.Tag(2, b"\1" + bytes(8)), "length", Reason.FIELD_TYPE),  # 2^64
            ("uncompressed_length", "8", "uncompressed_length", Reason.FIELD_TYPE),
            ("digest", "crc32c:0", "digest", Reason.DIGEST_MALFORMED),
        )
    ),
    ("2", dense_2(parts={}), (*OF_W, "parts"), Reason.COMPONENT_MISSING),
    ("2", dense_2(parts=None), (*OF_W, "parts"), Reason.FIELD_TYPE),
    *(
        ("2", dense_2(parts={"data": part}), (*OF_W, "parts", "data", field), Reason.FIELD_MISSING)
        for part, field in (
            (EMPTY_2 | {"encoding": "a.b/1"}, "decoded_length"),
            (EMPTY_2 | {"decoded_length": 0}, "encoding"),
        )
    ),
]


@pytest.mark.parametrize(
    ("version", "fields", "path", "reason"),
    BROKEN,
    ids=[f"{row[0]}-{'/'.join(map(str, row[2]))}-{at}" for at, row in enumerate(BROKEN)],
)
def test_a_broken_rule_is_named_with_its_place(
    version: str, fields: object, path: tuple[str | int, ...], reason: Reason
) -> None:
    error = refusal(version, fields)
    (problem,) = error.problems
    assert (problem.reason, problem.path) == (reason, path)
    assert error.reason is reason
    if version != "0.1":
        assert error.object_name == ("w" if "w" in path else None)
        assert error.component == ("data" if "data" in path else None)


def test_a_blob_outside_the_file_is_named_with_its_end() -> None:
    (problem,) = refusal("1", root({"w": component(length=2**63)})).problems
    assert f"[64, {2**63 + 64})" in problem.message


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (
            "0.1",
            [entry(offset=1), entry(name="v"), entry(name="v", size=-1), 3],
            [
                (Reason.OFFSET_ALIGNMENT, "w"),
                (Reason.FIELD_VALUE, "v"),
                (Reason.DUPLICATE_NAME, "v"),
                (Reason.FIELD_TYPE, None),
            ],
        ),
        (
            "1",
            root(
                {
                    "a": component(offset=1, digest="crc32c:"),
                    "b": obj(shape="x", format=1),
                    "c": obj(),
                    "d": 0,
                },
                attributes=3,
            ),
            [
                (Reason.FIELD_TYPE, None),
                (Reason.OFFSET_ALIGNMENT, "a"),
                (Reason.DIGEST_MALFORMED, "a"),
                (Reason.FIELD_TYPE, "b"),
                (Reason.FIELD_TYPE, "b"),
                (Reason.FIELD_TYPE, "d"),
            ],
        ),
    ],
    ids=["0.1", "1.2"],
)
def test_all_broken_rules_are_listed(
    version: str, fields: object, expected: list[tuple[Reason, str | None]]
) -> None:
    problems = refusal(version, fields).problems
    assert [(problem.reason, problem.object_name) for problem in problems] == expected


@pytest.mark.parametrize(
    "manifest",
    [b"\xff", b"\x00\x00", [], {}, root(), {"version": "1.0", "tensors": []}, b"\x81" * 200],
    ids=["malformed", "trailing", "array", "empty", "1.2", "tensors", "deep"],
)
def test_bytes_other_than_a_manifest_of_1_0_are_a_cut_file(manifest: object) -> None:
    """The container is recognised by its missing footer."""
    with refused(ContainerError, Reason.FOOTER_MAGIC):
        parse("1.0", manifest)


# --- Caps -----------------------------------------------------------------------------------


def of(components: Any, word: str = "components") -> dict[str, Any]:
    """Return an object of no elements that is one of 1.0, 1.2 and 2.x."""
    fields = {"dtype": "float32", "shape": [0], "format": "dense", "layout": "dense"}
    return {**fields, word: components}


WRONG = {"dtype": "f32", "offset": 65, "length": 8}
WRONG_2 = {"dtype": "f99", "blob": [END, 0]}
SHARD = {"size": 1, "digest": "xxh3:" + "0" * 16}
MANY: dict[str, tuple[str, Any]] = {
    "0.1": ("0.1", lambda names: [entry(name=name, offset=65) for name in names]),
    "1.0": ("1.0", lambda names: tensors(dict.fromkeys(names, of({"data": WRONG})))),
    "1.0, components": ("1.0", lambda names: tensors({"w": of(dict.fromkeys(names, WRONG))})),
    "1.2": ("1", lambda names: root(dict.fromkeys(names, of({"data": WRONG})))),
    "1.2, components": ("1", lambda names: root({"w": of(dict.fromkeys(names, WRONG))})),
    "2": ("2", lambda names: {"objects": dict.fromkeys(names, of({"data": WRONG_2}, "parts"))}),
    "2, parts": (
        "2",
        lambda names: {"objects": {"w": of(dict.fromkeys(names, WRONG_2), "parts")}},
    ),
    "2, shards": ("2", lambda names: {"objects": {}, "shards": dict.fromkeys(names, SHARD)}),
}


@pytest.mark.parametrize("count", [MOST_PROBLEMS - 1, MOST_PROBLEMS, MOST_PROBLEMS + 9])
@pytest.mark.parametrize("case", MANY)
def test_the_number_of_problems_is_capped(case: str, count: int) -> None:
    version, make = MANY[case]
    error = refusal(version, make([f"{at:04}" for at in range(count)]))
    assert len(error.problems) == min(count, MOST_PROBLEMS)


def test_problems_of_many_objects_are_reported_within_the_budget() -> None:
    objects = {f"{at:03}": {"shape": [70_000] * 200, "format": 1} for at in range(200)}
    error = refusal("1", root(objects), Limits(cost_floor=1 << 20, cost_factor=0))
    assert error.problems[0].path == ("objects", "000", "format")


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x81\xff", b"\x19", b"\xbf\x61a", b"\x1c"], ids=bytes.hex
)
def test_malformed_cbor_in_an_object_is_an_error_of_the_manifest(data: bytes) -> None:
    head = b"\xa2\x67version\x651.2.0\x67objects\xa1\x61w"
    assert refusal("1", head + data).expected == "an item"


DEEP: dict[str, tuple[str, Any, int]] = {
    "0.1": ("0.1", [entry(k=nested(2))], 4),
    "0.1, deeper": ("0.1", [entry(k=nested(20))], 22),
    "attributes": ("1", root({}, attributes={"a": nested(20)}), 22),
    "object": ("1", root({"w": of({}) | {"attributes": {"x": nested(20)}}}), 24),
    "root": ("1", root({"w": of({})}, more=nested(20)), 21),
}


@pytest.mark.parametrize("case", DEEP)
def test_the_cap_on_nesting_counts_from_the_root(case: str) -> None:
    version, data, levels = DEEP[case]
    assert parse(version, data, Limits(depth=levels))
    for most in {levels - 1, levels // 2}:
        with refused(LimitError, Reason.LIMIT_DEPTH) as caught:
            parse(version, data, Limits(depth=most))
        assert caught.value.expected == f"at most {most} levels"


def test_the_cap_on_nesting_holds_for_names() -> None:
    data = cbor.encode(root({"w": 1})).replace(b"\x61w", cbor.encode(nested(20)))
    with refused(LimitError, Reason.LIMIT_DEPTH):
        parse("1", data, Limits(depth=12))


COSTLY = Limits(cost_floor=20_000, cost_factor=1, depth=20)


@pytest.mark.parametrize(
    ("version", "fields", "kind", "reason"),
    [
        ("0.1", [entry(k=[1.5] * 5000)], LimitError, Reason.LIMIT_COST),
        ("1.0", tensors({"w": tensor()}, more=[1.5] * 5000), LimitError, Reason.LIMIT_COST),
        # Bytes without tensors, or that nest too deep, may be of a cut file of another version.
        ("1.0", {"more": [1.5] * 5000}, ContainerError, Reason.FOOTER_MAGIC),
        ("1.0", tensors({"w": tensor()}, more=nested(30)), ContainerError, Reason.FOOTER_MAGIC),
    ],
    ids=["0.1", "1.0", "1.0, no tensors", "1.0, deep"],
)
def test_a_manifest_over_the_budget(
    version: str, fields: object, kind: type[ZTensorError], reason: Reason
) -> None:
    with refused(kind, reason):
        parse(version, fields, COSTLY)
