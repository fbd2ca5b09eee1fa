"""Leave users' code for frameworks that are not installed out of the doctests."""

from __future__ import annotations

import importlib.util

collect_ignore = [
    f"user_{library}.py"
    for library in ("torch", "jax")
    if importlib.util.find_spec(library) is None
]
