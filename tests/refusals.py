"""What must be refused, and for which reason."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TypeVar

import pytest

from ztensor.errors import Reason, ZTensorError

Refusal = TypeVar("Refusal", bound=ZTensorError)


@contextlib.contextmanager
def refused(
    kind: type[Refusal] | tuple[type[Refusal], ...],
    reason: Reason | str | None,
    *,
    match: str | re.Pattern[str] | None = None,
) -> Iterator[pytest.ExceptionInfo[Refusal]]:
    """Expect an error of a kind that has this reason."""
    __tracebackhide__ = True
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert caught.value.reason == reason
