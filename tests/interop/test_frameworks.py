"""Every element type goes from every framework to every other, in every layout, bit for bit.

Each test is a cell of the table in `docs/guides/frameworks.md`, which
`make suite SUITE=frameworks` prints.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.interop import frameworks
from tests.interop.frameworks import FRAMEWORKS, LAYOUTS, TYPES, Framework

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "frameworks.md"
TITLES = {layout: title for title, layout in LAYOUTS.items()}
COLUMNS = [(one, layout) for one in FRAMEWORKS for layout in one.layouts]
TABLE = re.search(r"^```text\n( +numpy .*?\n)```$", PAGE.read_text("utf-8"), re.M | re.S)


def table() -> str:
    assert TABLE is not None, f"{PAGE.name} shows no table"
    return TABLE[1]


def shown() -> list[Any]:
    """Return each cell with the sign the page shows for it."""
    cells = []
    for line in table().splitlines()[2:]:
        word, *signs = line.split()
        for (framework, layout), sign in zip(COLUMNS, signs, strict=True):
            name = f"{word}-{framework.name}-{TITLES[layout]}"
            cells.append(pytest.param(word, framework, layout, sign, id=name))
    return cells


@pytest.mark.parametrize(("word", "framework", "layout", "sign"), shown())
def test_a_cell(word: str, framework: Framework, layout: str, sign: str, tmp_path: Path) -> None:
    if not frameworks.is_installed(framework):
        pytest.skip(f"{framework.name} is not installed")
    found = frameworks.cell(TYPES[word], framework, layout, tmp_path)
    if framework.name != "numpy" and (found, sign) == ("-", "="):
        pytest.skip(f"this release of {framework.name} has no {word}, and the error says so")
    assert found == sign


def test_the_page_has_every_type() -> None:
    assert [line.split()[0] for line in table().splitlines()[2:]] == list(TYPES)


@pytest.mark.slow
def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    missing = [one.name for one in FRAMEWORKS if not frameworks.is_installed(one)]
    if missing:
        pytest.skip(f"the page shows all frameworks; not installed: {', '.join(missing)}")
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("the page shows a torch that has 4-bit elements")
    assert frameworks.main() == 0
    assert capsys.readouterr().out == table()
