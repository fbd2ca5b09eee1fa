"""How messages call the values of a manifest; the rules of records are those of the containers."""

from __future__ import annotations

import pytest

from tests.naming import shown
from ztensor.spec.wire.cbor import UNDEFINED, Pairs, Tag
from ztensor.spec.wire.record import kind_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "boolean True"),
        (1, "integer 1"),
        (1.5, "float 1.5"),
        ("a", "text 'a'"),
        (b"a", "byte string b'a'"),
        ([1], "an array"),
        ({}, "a map"),
        (Pairs(((1, 2),)), "a map with keys that are not text"),
        (Tag(1, 2), "tag"),
        (UNDEFINED, "simple"),
    ],
    ids=shown,
)
def test_values_are_called_by_their_kind(value: object, expected: str) -> None:
    assert kind_of(value) == expected
