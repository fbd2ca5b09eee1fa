"""Tests beside other libraries: each is skipped where its library is not installed.

`environments.toml` says which libraries a file of tests needs. The warnings of those libraries are
their own; ours stay errors.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.ecosystem.run import HERE, table

NEEDS = {
    test: entry["imports"] for entry in table().values() for test in entry["tests"]
}  # files of tests to names that are imported


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what lacks its library, and let other libraries warn."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        for warnings in ("default", "error:::ztensor", "error:::tests"):
            item.add_marker(pytest.mark.filterwarnings(warnings))
        for name in NEEDS.get(Path(item.path).name, ()):
            if importlib.util.find_spec(name) is None:
                reason = f"{name} is not installed here; `make ecosystem` tests beside it"
                item.add_marker(pytest.mark.skip(reason=reason))
