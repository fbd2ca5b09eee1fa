"""Values of a manifest as messages show them; `container/` tests the rules of records."""

from __future__ import annotations

import pytest

from tests.naming import shown
from ztensor.ext import cbor
from ztensor.spec.wire import record


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
        (cbor.Pairs(((1, 2),)), "a map with keys that are not text"),
        (cbor.Tag(1, 2), "tag"),
        (cbor.UNDEFINED, "simple"),
    ],
    ids=shown,
)
def test_a_value_is_shown_with_its_kind(value: object, expected: str) -> None:
    assert record.kind_of(value) == expected
