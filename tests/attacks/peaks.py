"""Peak memory of opening and listing bytes, for tests that compare it with the budget."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import ztensor
from tests.tracing import traced
from ztensor.errors import ZTensorError
from ztensor.ext import FORMATS
from ztensor.limits import MIB

for _format in FORMATS.values():  # their code is not measured
    importlib.import_module(_format.module)


def peak_of(action: Callable[[], object]) -> tuple[int, object]:
    """Return the most memory an action takes at a time, and its result or our refusal."""
    with traced() as memory:
        try:
            result = action()
        except ZTensorError as error:
            result = error
        return memory()[1], result


def calls_of(call: Callable[[], object]) -> int:
    """Return the number of function calls, which grows with the work."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def require_listed_in_budget(data: bytes) -> object:
    """Return the result of listing a file; fail above 64 MiB and 4 x its length."""
    peak, result = peak_of(lambda: list(ztensor.open(data)))
    assert peak <= 64 * MIB + 4 * len(data)
    return result
