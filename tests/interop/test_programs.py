"""Programs written for released APIs run unchanged: those of 1.2.3 on `ztensor`, of 2.1.2 on `v2`.

`make interop` runs them on the wheels.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ztensor.v2
from tests.interop import programs_1_2, programs_2
from tests.interop.programs import SAME, Program, Raises, fits, outcome

DOCS = Path(__file__).parents[2] / "docs"
APIS: dict[str, tuple[Any, dict[str, Program]]] = {
    "migrating.md": (ztensor, programs_1_2.PROGRAMS),
    "migrating-2.md": (ztensor.v2, programs_2.PROGRAMS),
}
ALL = [
    pytest.param(program, zt, id=f"{page.removesuffix('.md')}-{name}")
    for page, (zt, programs) in APIS.items()
    for name, program in programs.items()
]
# These raise an error of Python or JSON: a missing key of a dict, a wrong call.
PYTHONS = {"a component as JSON", "no view", "appending canonically"}


@pytest.mark.parametrize(("program", "zt"), ALL)
def test_program(
    program: Program, zt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program.needs:
        pytest.importorskip(program.needs, reason=f"the program uses {program.needs}")
    monkeypatch.chdir(tmp_path)
    found = outcome(program, zt)
    assert fits(program.gives, found), found
    if isinstance(program.gives, Raises) and program.name not in PYTHONS:
        is_of_1_2 = zt is ztensor
        allowed = {"TypeError", "ValueError"} if is_of_1_2 else set()
        is_frozen = program.heading == "Read-only"
        assert {"ZTensorError", *allowed} & set(found["raises"]) or is_frozen


@pytest.mark.parametrize("page", APIS)
def test_every_difference_is_on_the_page(page: str) -> None:
    programs = APIS[page][1].values()
    text = (DOCS / "guides" / page).read_text("utf-8")
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", text, re.MULTILINE)
    headings = {program.heading for program in programs if program.heading}
    assert len(rows) == len(set(rows))
    assert set(rows) == headings if page == "migrating.md" else set(rows) >= headings
    for program in programs:
        assert bool(program.heading) == (program.on_wheel is not SAME), program.name
        assert program.gives != program.on_wheel, program.name
