"""What reads as a URL, and is no file's name."""

from __future__ import annotations

import pytest

from ztensor.io.source.paths import is_url


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/m.zt", True),
        ("HTTPS://host", True),
        ("a+b.c-1://x", True),
        ("m.zt", False),
        ("folder/m.zt", False),
        ("c:/m.zt", False),
        ("c://m.zt", False),
        ("1s://m.zt", False),
        ("folder/s3://m.zt", False),
        ("://m.zt", False),
        ("s3:/m.zt", False),
        ("", False),
    ],
)
def test_what_reads_as_a_url(path: str, expected: bool) -> None:
    assert is_url(path) is expected
