"""The page on versions is what the code that writes them says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from ztensor.spec.container import EMITTERS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator() -> Any:
    spec = importlib.util.spec_from_file_location("make_versions", DOCS / "make_versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_is_generated(generator: Any) -> None:
    """`make suite SUITE=pages` writes it anew."""
    assert (DOCS / "specification" / "versions.md").read_text("utf-8") == generator.page()


def test_every_version_has_a_column_and_every_line_a_cell_for_each(generator: Any) -> None:
    assert list(EMITTERS) == generator.VERSIONS
    lines = [line for rows in generator.SECTIONS.values() for line in rows()]
    assert len(lines) > 40
    assert all(len(cells) == len(EMITTERS) and all(cells) for _, cells in lines)


def test_the_table_is_no_list_of_yes(generator: Any) -> None:
    """A version that cannot say something is asked, and says no."""
    known = {name: dict(zip(generator.VERSIONS, cells, strict=True))
             for rows in generator.SECTIONS.values() for name, cells in rows()}  # fmt: skip
    assert known["`f4_e2m1`"] == {"0.1.0": "-", "1.1.0": "-", "1.2.0": "yes", "2.1": "yes"}
    assert known["attribute values: CBOR tags"]["2.1"] == "-"
    assert known["several files, named inside one of them"]["1.2.0"] == "-"
