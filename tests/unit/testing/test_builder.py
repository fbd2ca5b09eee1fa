"""The builder's good files are good; each rule it breaks is refused for its reason, in time."""

from __future__ import annotations

import cbor2
import pytest

import ztensor
from ztensor.errors import Reason
from ztensor.testing.builder import (
    RULES,
    VALUES,
    VERSIONS,
    Raw,
    Rule,
    build,
    committed,
    draft,
    item,
    sealed,
)
from ztensor.wire import cbor

BROKEN = [(version, rule) for rule in RULES.values() for version in rule.versions]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_good_file_holds_the_values(version: str) -> None:
    with ztensor.open(build(version)) as reader:
        assert reader.version == version
        assert list(reader) == list(VALUES)[: len(reader)]
        assert len(reader) == (5 if version == "0.1.0" else len(VALUES))
        for name in reader:
            assert reader.read(name, copy=True).to_dense().tolist() == VALUES[name]
        report = reader.verify()
        assert report.ok
        assert not report.unsupported
        assert not report.undigested


def refusal(data: bytes, name: str | None) -> tuple[str, Reason | None, str | None]:
    """Return the first stage at which a file is refused, the reason, and the object."""
    try:
        reader = ztensor.open(data)
    except ztensor.ZTensorError as error:
        return "open", error.reason, error.object_name
    assert name is not None, "nothing refuses this file"
    try:
        tensor = reader.read(name, copy=True)
    except ztensor.ZTensorError as error:
        return "read", error.reason, error.object_name
    try:
        tensor.to_dense()
    except ztensor.ZTensorError as error:
        return "dense", error.reason, name
    (problem,) = reader.verify([name]).problems
    return "verify", problem.reason, problem.object_name


@pytest.mark.parametrize(
    ("version", "rule"), BROKEN, ids=[f"{version}-{rule.name}" for version, rule in BROKEN]
)
def test_each_rule_is_refused_for_its_reason(version: str, rule: Rule) -> None:
    data = build(version, broken=rule.name)
    assert data != build(version)
    assert refusal(data, rule.object_name) == (rule.stage, rule.reason, rule.object_name)


@pytest.mark.parametrize(
    ("version", "rule"),
    [(version, rule) for version, rule in BROKEN if rule.stage != "open"],
    ids=[f"{version}-{rule.name}" for version, rule in BROKEN if rule.stage != "open"],
)
def test_siblings_of_a_bad_object_stay_readable(version: str, rule: Rule) -> None:
    with ztensor.open(build(version, broken=rule.name)) as reader:
        for name in set(reader) - {rule.object_name}:
            assert reader.read(name, copy=True).to_dense().tolist() == VALUES[name]


def test_a_good_file_keeps_the_commit_record() -> None:
    with ztensor.open(build("1.2.0")) as reader:
        commit = reader.objects.parts()[0].manifest.commit
        assert commit is not None
        assert (commit.prev, commit.end) == (0, reader.nbytes)


@pytest.mark.parametrize(
    ("version", "broken"), [("2.0.0", None), ("1.2.0", "no such"), ("0.1.0", "index_range")]
)
def test_what_cannot_be_built(version: str, broken: str | None) -> None:
    with pytest.raises(ztensor.ArgumentValueError):
        build(version, broken=broken)


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 23, 24, 255, 256, 1 << 16, 1 << 32, (1 << 64) - 1, -1, -(1 << 64),
        0.5, "", "\u00e9" * 30, b"\0" * 300, [], [1, [2]], {"a": {"b": []}, "": None},
    ],
    ids=repr,
)  # fmt: skip
def test_item_is_cbor(value: object) -> None:
    assert cbor2.loads(item(value)) == value
    assert cbor.decode(item(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        cbor.UNDEFINED,
        cbor.Simple(7),
        cbor.Simple(200),
        cbor.Tag(55799, [1]),
        cbor.Pairs(((1, 2), ("a", b"")))
    ],
    ids=repr,
)  # fmt: skip
def test_item_takes_what_decode_gives(value: object) -> None:
    assert cbor.decode(item(value)) == value


def test_item_writes_what_is_wrong() -> None:
    assert item([Raw(b"\xff")]) == b"\x81\xff"
    assert item(cbor.Pairs((("a", 1), ("a", 1)))) == b"\xa2\x61a\x01\x61a\x01"
    assert item({"long": 5}, lambda major, count: bytes([major << 5 | 24, count])) == (
        b"\xb8\x01\x78\x04long\x18\x05"
    )
    with pytest.raises(ztensor.ArgumentValueError):
        item(object())


@pytest.mark.parametrize("root", [{}, [], {"commit": 1}, {"commit": {"digest": 2}}], ids=repr)
def test_a_root_without_our_record_stays_as_it_is(root: object) -> None:
    assert committed(root, 64) == item(root)


def test_a_draft_keeps_what_is_set() -> None:
    new = draft("1.2.0")
    new.component("matrix").update(offset=128, length=8)
    with pytest.raises(ztensor.ManifestError) as refused:
        ztensor.open(new.to_bytes())
    assert {problem.reason for problem in refused.value.problems} == {Reason.SIZE_MISMATCH}


def test_a_frame_around_anything() -> None:
    assert sealed(b"ab", b"c") == b"abc" + (1).to_bytes(8, "little")
    assert sealed(b"", b"c", size=9, footer=b"d") == b"c" + (9).to_bytes(8, "little") + b"d"
