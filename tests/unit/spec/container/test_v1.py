from __future__ import annotations

from typing import Any

import cbor2
import pytest

from tests.refusals import refused
from tests.unit.spec.container.readings import nested
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    LimitError,
    ManifestError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    UnsupportedVersionError,
)
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container import EMITTERS, SCHEMAS
from ztensor.spec.container.framing import (
    HEAD_BYTES,
    LOOK_BYTES,
    MAGIC_1,
    TAIL_BYTES,
    Container,
    Frame,
    locate,
)
from ztensor.spec.container.v1 import parse_manifest
from ztensor.spec.model.manifest import Component, Manifest, TensorObject

END = 4096  # where the blobs of these tests end


def parse(manifest: bytes, limits: Limits = DEFAULT_LIMITS) -> Manifest:
    frame = Frame(Container.V1, END, len(manifest), END + len(manifest) + TAIL_BYTES)
    return parse_manifest(manifest, frame, Budget(limits, frame.file_size))


def parse_file(file: bytes) -> Manifest:
    frame = locate(file[:HEAD_BYTES], file[-LOOK_BYTES:], len(file))
    manifest = file[frame.manifest_offset : frame.manifest_offset + frame.manifest_length]
    return SCHEMAS[frame.container](manifest, frame, Budget(DEFAULT_LIMITS, frame.file_size))


def emit(manifest: Manifest, version: str = "1.2.0") -> bytes:
    return EMITTERS[version]().emit(manifest, END)[:-TAIL_BYTES]


DATA = {"dtype": "f32", "offset": 64, "length": 8}


def obj(**changes: Any) -> dict[str, Any]:
    """Return a good object, with some fields changed; ABSENT takes one away."""
    fields = {"shape": [2], "format": "dense", "components": {"data": DATA}, **changes}
    return {key: value for key, value in fields.items() if value is not ABSENT}


def component(**changes: Any) -> dict[str, Any]:
    fields = {key: value for key, value in {**DATA, **changes}.items() if value is not ABSENT}
    return obj(components={"data": fields})


def root(objects: object = None, **changes: Any) -> dict[str, Any]:
    fields = {"version": "1.2.0", "objects": {} if objects is None else objects, **changes}
    return {key: value for key, value in fields.items() if value is not ABSENT}


ABSENT = object()

# --- Writing ------------------------------------------------------------------------------------

DENSE = TensorObject((2,), "dense", {"data": Component("f32", 64, 8)})
RICH = TensorObject(
    (3, 0, 2**64 - 1),
    "sparse_csr",
    {
        "values": Component(
            "u8", 128, 5, "f8_e4m3fn", "zstd", "crc32c:0x00000001", 9, extra={"later": 1}
        ),
        "indptr": Component("u64", 64, 0),
        "späte": Component("no such", 64, 1, "open", "lz4", "md5:00"),
    },
    {"bits": 4, "nested": {"a": [1.5, None, b"\x00", True]}},
    {"note": "kept"},
)


def manifest_of(**objects: TensorObject) -> Manifest:
    return Manifest("1.2.0", objects)


@pytest.mark.parametrize(
    "manifest",
    [
        manifest_of(),
        manifest_of(w=DENSE),
        Manifest("1.2.0", {"": RICH, "b\0": DENSE, "é": DENSE}, {"k": [1]}, None, {"x": {"y": 1}}),
        Manifest("1.2.0", {}, {}),
        Manifest("1.2.7", {"w": DENSE}),
    ],
    ids=["nothing", "one", "rich", "no attributes", "a later minor"],
)
def test_what_is_emitted_is_parsed(manifest: Manifest) -> None:
    parsed = parse(emit(manifest))
    assert parsed.commit is not None
    assert parsed.commit.prev == 0
    assert parsed._replace(commit=None) == manifest


def test_emitted_by_1_1_is_parsed() -> None:
    objects = {
        "plain": DENSE,
        "f8": TensorObject((2,), "dense", {"data": Component("u8", 64, 2, "f8_e4m3fn")}),
        "c": TensorObject((1,), "dense", {"data": Component("f32", 64, 8, "complex64")}),
    }
    parsed = parse(emit(Manifest("1.1.0", objects), "1.1.0"))
    assert parsed.version == "1.1.0"
    for name, tensor_object in objects.items():
        found = parsed.objects[name].components["data"]
        assert found.digest_may_cover_decoded  # one reading of 1.1's sentence
        assert found._replace(digest_may_cover_decoded=False) == (tensor_object.components["data"])


GOLDEN = Manifest(
    "1.2.0",
    {
        "w": TensorObject(
            (2, 1), "dense", {"data": Component("u8", 128, 11, "f8_e5m2", "zstd", "md5:0", 2)}
        ),
        "a": DENSE,
    },
    {"by": "us"},
)


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_the_order_of_dicts_does_not_matter(version: str) -> None:
    emitter = EMITTERS[version]()
    names = ["b", "a", "\U0001f600", "\uffff", ""]
    forward = Manifest(version, dict.fromkeys(names, DENSE))
    backward = Manifest(version, dict.fromkeys(reversed(names), DENSE))
    assert emitter.emit(forward, END) == emitter.emit(backward, END)
    assert list(cbor2.loads(emitter.emit(forward, END)[:-16])["objects"]) == [
        "", "a", "b", "\uffff", "\U0001f600",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "logical"),
    [("1.1.0", "f8_e4m3fnuz"), ("1.1.0", "f4_e2m1"), ("1.1.0", "something")],
)
def test_a_type_1_1_has_no_word_for(version: str, logical: str) -> None:
    tensor_object = TensorObject((1,), "dense", {"data": Component("u8", 0, 0, logical)})
    with pytest.raises(NotRepresentableError) as caught:
        EMITTERS[version]().require_object(tensor_object)
    assert "1.2.0" in str(caught.value)
    EMITTERS["1.2.0"]().require_object(tensor_object)


def test_a_shape_may_spell_the_bytes_of_a_field() -> None:
    """The commonest objects are put together from fragments; no number may confuse that."""
    key = b"\x66offset"  # as CBOR has it; behind it comes the largest number
    shape = (int.from_bytes(b"\x01" + key, "big"), 2**64 - 1, 0)
    made = TensorObject(shape, "dense", {"data": Component("f32", 64, 0)})
    assert parse(emit(manifest_of(w=made))).objects["w"] == made


@pytest.mark.parametrize(
    "changes",
    [
        {"attributes": {1: "a"}},
        {"attributes": {"a": object()}},
        {"attributes": {"a": 2**64}},
        {"attributes": {"a": "\ud800"}},
        {"attributes": {"a": nested(61)}},
        {"format": "\ud800"},
        {"shape": (2**64,)},
        {"components": {"\ud800": Component("u8", 0, 0)}},
        {"components": {"data": Component("u8", 0, 0, "\ud800")}},
    ],
    ids=lambda changes: ascii(changes)[:40],
)
@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_what_could_not_be_written_is_refused_before_a_byte_is(
    version: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(NotRepresentableError):
        EMITTERS[version]().require_object(DENSE._replace(**changes))


def test_attributes_nest_as_deep_as_they_are_read() -> None:
    deep = Manifest(
        "1.2.0",
        {"w": DENSE._replace(attributes={"a": nested(60)})},
        {"a": nested(62)},
    )
    EMITTERS["1.2.0"]().require_object(deep.objects["w"])
    EMITTERS["1.2.0"]().require_attributes(deep.attributes or {})
    assert parse(emit(deep)).attributes == deep.attributes
    with pytest.raises(NotRepresentableError):
        EMITTERS["1.2.0"]().require_attributes({"a": nested(63)})


@pytest.mark.parametrize("value", [1, None, ["a"], b"a", {"a": "b"}], ids=str)
def test_attributes_of_a_1_1_file_are_text(value: object) -> None:
    """Release 1.1.1 opens no tensor of a file with others."""
    EMITTERS["1.1.0"]().require_attributes({"k": "v"})
    with pytest.raises(NotRepresentableError):
        EMITTERS["1.1.0"]().require_attributes({"k": value})
    EMITTERS["1.2.0"]().require_attributes({"k": value})


# --- The commit record --------------------------------------------------------------------------

NUMBERS = (0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1)


@pytest.mark.parametrize(
    "near", [24, 256, 65_536, 2**32, 2**40], ids=["1 byte", "2", "4", "8", "8, long"]
)
@pytest.mark.parametrize("prev", [0, 23, 2**32])
def test_the_end_is_the_end_of_the_file_whatever_its_head_takes(near: int, prev: int) -> None:
    """`end` stands in the manifest, and its own length counts: no offset may confuse it."""
    emitter = EMITTERS["1.2.0"]()
    for offset in range(max(0, near - 160), near, 1 if near == 65_536 else 7):
        emitted = emitter.emit(manifest_of(), offset, prev=prev)
        commit = cbor2.loads(emitted[:-16])["commit"]
        assert (commit["prev"], commit["end"]) == (prev, offset + len(emitted))


def small_file() -> bytes:
    blobs = MAGIC_1 + bytes(56) + bytes(range(8)) + bytes(56) + b"12345678901"
    return blobs + EMITTERS["1.2.0"]().emit(GOLDEN, len(blobs))


def test_no_flipped_bit_of_the_manifest_goes_unnoticed() -> None:
    """Each one is an error, or hits nothing that has a meaning (the commit record's own bytes)."""
    file = small_file()
    whole = parse_file(file)
    start = locate(file[:8], file[-16:], len(file)).manifest_offset
    reasons = set()
    for position in range(start, len(file)):
        for bit in range(8):
            damaged = bytearray(file)
            damaged[position] ^= 1 << bit
            try:
                found = parse_file(bytes(damaged))
            except (FormatError, UnsupportedError, LimitError) as error:
                reasons.add(error.reason)
                continue
            assert (found.objects, found.version, found.attributes) == (
                whole.objects,
                whole.version,
                whole.attributes,
            )
    assert Reason.MANIFEST_DIGEST in reasons


def test_the_error_says_that_the_manifest_is_damaged() -> None:
    file = small_file()
    with refused(DigestMismatchError, Reason.MANIFEST_DIGEST) as caught:
        parse_file(file.replace(b"by", b"bx"))
    assert caught.value.algorithm == "crc32c"


OURS = {"prev": 0, "end": 1, "digest": "crc32c:0x12345678"}


@pytest.mark.parametrize(
    "fields",
    [
        {"commit": 5},
        {"commit": None},
        {"commit": "crc32c:0x12345678"},
        {"commit": {}},
        {"commit": {1: 2}},
        {"commit": {"prev": 0, "end": 1}},
        {"commit": {**OURS, "digest": "sha256:" + "0" * 64}},
        {"commit": {**OURS, "digest": "by hand"}},
        {"commit": {**OURS, "prev": "0", "end": "1"}},
        {"commit": OURS, "more": 1},
    ],
    ids=str,
)
def test_another_writers_commit_is_ignored(fields: dict[str, Any]) -> None:
    """Also ours, where another library rewrote the manifest and kept the field."""
    manifest = parse(cbor2.dumps({**root({"w": obj()}), **fields}))
    assert manifest.commit is None
    assert list(manifest.objects) == ["w"]


@pytest.mark.parametrize(
    "fields",
    [
        {"commit": {**OURS, "digest": b"crc32c:0x12345678"}},
        {"commit": {**OURS, "prev": "0"}},
        {"commit": {**OURS, "end": None}},
        {"commit": {"pref": 0, "end": 1, "digest": OURS["digest"]}},
        {"commit": {"prev": 0, "eng": 1, "digest": OURS["digest"]}},
        {"commis": OURS},
    ],
    ids=str,
)
def test_our_commit_with_one_part_damaged_is_not_another_writers(fields: dict[str, Any]) -> None:
    """Else one byte of the record would switch off the check of all the others."""
    with refused(DigestMismatchError, Reason.MANIFEST_DIGEST):
        parse(cbor2.dumps({**root({"w": obj()}), **fields}))


# --- Reading ------------------------------------------------------------------------------------


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
    manifest = parse(cbor2.dumps(fields))
    found = manifest.objects["w"]
    assert (found.shape, found.components["data"].offset) == ((2,), 64)
    assert (manifest.extra, found.extra, found.components["data"].extra) == extras
    assert parse(emit(manifest))._replace(commit=None) == manifest


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
    assert parse(cbor2.dumps(fields)) == manifest_of(w=DENSE)


def test_the_tag_that_says_this_is_cbor_means_nothing_else() -> None:
    tagged = cbor2.dumps(cbor2.CBORTag(55799, root({"w": obj()})))
    assert parse(tagged) == manifest_of(w=DENSE)
    with refused(ManifestError, Reason.FIELD_TYPE):
        parse(cbor2.dumps(cbor2.CBORTag(55798, root())))


@pytest.mark.parametrize(
    "text", ["1.2.0", "1.1.0", "1.0", "1", "1.999.3-rc", "01.2", "one", "", "v2"]
)
def test_versions_that_are_read(text: str) -> None:
    """A minor version adds optional fields only; text without a number says nothing."""
    assert parse(cbor2.dumps(root(version=text))).version == text


@pytest.mark.parametrize("text", ["2.0.0", "0.1.0", "0", "10.1", "2", "11", "99999999999.0"])
def test_another_major_version_is_not_read(text: str) -> None:
    with refused(UnsupportedVersionError, Reason.UNKNOWN_VERSION):
        parse(cbor2.dumps(root(version=text)))


@pytest.mark.parametrize(
    ("fields", "path", "reason"),
    [
        ([], (), Reason.FIELD_TYPE),
        ({1: 2}, (), Reason.FIELD_TYPE),
        (root(version=ABSENT), ("version",), Reason.FIELD_MISSING),
        (root(version=1.2), ("version",), Reason.FIELD_TYPE),
        (root(objects=ABSENT), ("objects",), Reason.FIELD_MISSING),
        (root([]), ("objects",), Reason.FIELD_TYPE),
        (root({b"w": obj()}), ("objects",), Reason.FIELD_TYPE),
        (root(attributes=[]), ("attributes",), Reason.FIELD_TYPE),
        (root({"w": None}), ("objects", "w"), Reason.FIELD_TYPE),
        (root({"w": obj(shape=ABSENT)}), ("objects", "w", "shape"), Reason.FIELD_MISSING),
        (root({"w": obj(shape=[-1])}), ("objects", "w", "shape"), Reason.FIELD_VALUE),
        (root({"w": obj(format=ABSENT)}), ("objects", "w", "format"), Reason.FIELD_MISSING),
        (root({"w": obj(attributes=1)}), ("objects", "w", "attributes"), Reason.FIELD_TYPE),
        (root({"w": obj(components=[])}), ("objects", "w", "components"), Reason.FIELD_TYPE),
        (
            root({"w": obj(components={"data": 1})}),
            ("objects", "w", "components", "data"),
            Reason.FIELD_TYPE,
        ),
    ],
    ids=lambda value: None if isinstance(value, (list, dict)) else str(value),
)
def test_a_broken_rule_is_named_with_its_place(
    fields: object, path: tuple[str, ...], reason: Reason
) -> None:
    with refused(ManifestError, reason) as caught:
        parse(cbor2.dumps(fields))
    (problem,) = caught.value.problems
    assert (problem.reason, problem.path) == (reason, path)
    assert caught.value.object_name == ("w" if "w" in path else None)


@pytest.mark.parametrize(
    ("field", "value", "step", "reason"),
    [
        ("dtype", ABSENT, "dtype", Reason.FIELD_MISSING),
        ("dtype", 4, "dtype", Reason.FIELD_TYPE),
        ("offset", ABSENT, "offset", Reason.FIELD_MISSING),
        ("offset", -64, "offset", Reason.FIELD_VALUE),
        ("offset", 64.0, "offset", Reason.FIELD_TYPE),
        ("offset", 65, "offset", Reason.OFFSET_ALIGNMENT),
        ("offset", 0, "offset", Reason.OUT_OF_BOUNDS),
        ("offset", END, "offset", Reason.OUT_OF_BOUNDS),
        ("offset", 2**64 - 64, "offset", Reason.OUT_OF_BOUNDS),
        ("length", 2**64 - 1, "offset", Reason.OUT_OF_BOUNDS),
        ("length", ABSENT, "length", Reason.FIELD_MISSING),
        ("length", 2**64, "length", Reason.FIELD_TYPE),  # in CBOR that is a tag
        ("length", True, "length", Reason.FIELD_TYPE),
        ("encoding", 1, "encoding", Reason.FIELD_TYPE),
        ("type", 1, "type", Reason.FIELD_TYPE),
        ("uncompressed_length", "8", "uncompressed_length", Reason.FIELD_TYPE),
        ("digest", b"crc32c:00000000", "digest", Reason.FIELD_TYPE),
        ("digest", "crc32c:0", "digest", Reason.DIGEST_MALFORMED),
    ],
)
def test_a_broken_component_is_named_with_its_place(
    field: str, value: object, step: str, reason: Reason
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(cbor2.dumps(root({"w": component(**{field: value})})))
    (problem,) = caught.value.problems
    assert problem.path == ("objects", "w", "components", "data", step)
    assert problem.reason is caught.value.reason is reason
    assert (caught.value.object_name, caught.value.component) == ("w", "data")


def test_all_broken_rules_are_listed() -> None:
    fields = root(
        {
            "a": component(offset=1, digest="crc32c:"),
            "b": obj(shape="x", format=1),
            "c": obj(),
            "d": 0,
        },
        attributes=3,
    )
    with pytest.raises(ManifestError) as caught:
        parse(cbor2.dumps(fields))
    assert [(p.reason, p.object_name, p.component) for p in caught.value.problems] == [
        (Reason.FIELD_TYPE, None, None),
        (Reason.OFFSET_ALIGNMENT, "a", "data"),
        (Reason.DIGEST_MALFORMED, "a", "data"),
        (Reason.FIELD_TYPE, "b", None),
        (Reason.FIELD_TYPE, "b", None),
        (Reason.FIELD_TYPE, "d", None),
    ]
