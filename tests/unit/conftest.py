"""What tests of several rooms need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ztensor.spec.model.dtype import LOGICAL_TYPES


@pytest.fixture
def registry() -> Iterator[None]:
    """Take back what a test registers of logical types."""
    before = dict(LOGICAL_TYPES)
    yield
    LOGICAL_TYPES.clear()
    LOGICAL_TYPES.update(before)
