"""The table of libraries and the tests beside it."""

from __future__ import annotations

import re

from tests.ecosystem.run import AGES, HERE, environments, table


def test_every_test_file_is_run_somewhere() -> None:
    listed = {test for entry in table().values() for test in entry["tests"]}
    there = {path.name for path in HERE.glob("test_*.py")} - {"test_table.py"}
    assert listed == there


def test_every_library_is_pinned_and_named() -> None:
    assert environments([])
    for name, entry in table().items():
        assert set(entry) <= {*AGES, "imports", "tests"}, name
        assert entry["imports"], name
        requirements = [one for age in AGES for one in entry.get(age, ())]
        assert requirements, name
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", one) for one in requirements), requirements
        assert entry.get("oldest") != entry.get("newest"), name
