"""The builder's good files are good; each rule it breaks is refused for its reason, in time."""

from __future__ import annotations

import pytest

import ztensor
from ztensor.errors import Reason
from ztensor.testing.builder import (
    RULES,
    VALUES,
    VERSIONS,
    Rule,
    build,
)

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


@pytest.mark.parametrize(
    ("version", "broken"), [("2.0.0", None), ("1.2.0", "no such"), ("0.1.0", "index_range")]
)
def test_what_cannot_be_built(version: str, broken: str | None) -> None:
    with pytest.raises(ztensor.errors.ArgumentValueError):
        build(version, broken=broken)
