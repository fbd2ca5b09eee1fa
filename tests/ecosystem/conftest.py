"""Tests beside other libraries: each is skipped where its library is not installed.

`environments.toml` says which libraries a file of tests needs. The warnings of those libraries are
their own; ours stay errors.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.ecosystem.run import HERE, table

# Run by `torchrun`; its imports may be missing here.
collect_ignore = ["two_processes.py"]

# Files of tests to names that are imported wherever they are run.
NEEDS: dict[str, set[str]] = {}
for entry in table().values():
    for test in entry["tests"]:
        NEEDS[test] = NEEDS.get(test, set(entry["imports"])) & set(entry["imports"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what lacks its library, and let other libraries warn."""
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        for warnings in ("default", "error:::ztensor", "error:::tests"):
            item.add_marker(pytest.mark.filterwarnings(warnings))
        for name in sorted(NEEDS.get(Path(item.path).name, ())):
            if importlib.util.find_spec(name) is None:
                reason = f"{name} is not installed: `make suite SUITE=ecosystem`"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let odd relative paths name nothing in this tree."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
