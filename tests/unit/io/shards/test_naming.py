"""How large a shard may be, as a caller says it."""

from __future__ import annotations

import pytest

from ztensor.options import parse_size


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, 1),
        ("1", 1),
        ("1B", 1),
        ("1.9", 1),
        (" 2.5kB ", 2500),
        ("1KiB", 1024),
        ("9.5TiB", 19 << 39),
        (f"{(1 << 64) - 2048}", (1 << 64) - 2048),
    ],
)
def test_sizes(size: int | str, expected: int) -> None:
    assert parse_size(size) == expected
