"""What the values of a parametrised test are called: the same in every process that runs tests."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """Return a value as text without the address it has in this process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(value))
