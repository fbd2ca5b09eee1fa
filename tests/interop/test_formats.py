"""Every format is read and written as by its own library, column by column.

Each test is a cell of the table in `docs/guides/formats.md`; `make suite SUITE=formats` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import formats
from tests.interop.format_files import FORMATS, Format, missing
from tests.interop.formats import COLUMNS, Sample

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "formats.md"
TABLE = re.search(r"^```text\n(format +read equal .*?\n)```$", PAGE.read_text("utf-8"), re.M | re.S)
CELLS = [
    pytest.param(format_, column, id=f"{format_.title}-{column}")
    for format_ in FORMATS
    for column in COLUMNS
]


def table() -> str:
    assert TABLE is not None, f"{PAGE.name} shows no table"
    return TABLE[1]


def shown(title: str) -> list[str]:
    """Return the signs of a row of the page."""
    row = next(line for line in table().splitlines() if line.startswith(f"{title}  "))
    return re.split(r" {2,}", row)[1:]


@pytest.fixture(scope="module")
def sample_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Format], Sample]:
    made: dict[str, Sample] = {}

    def sample(format_: Format) -> Sample:
        if format_.title not in made:
            made[format_.title] = Sample(format_, tmp_path_factory.mktemp("format"))
        return made[format_.title]

    return sample


@pytest.mark.slow
@pytest.mark.parametrize(("format_", "column"), CELLS)
def test_a_cell(format_: Format, column: str, sample_of: Callable[[Format], Sample]) -> None:
    if needed := missing(format_):
        pytest.skip(f"not installed: {', '.join(needed)}")
    found = COLUMNS[column](sample_of(format_))
    on_page = shown(format_.title)[list(COLUMNS).index(column)]
    assert found == on_page, f"{PAGE.name} differs from `make suite SUITE=formats`"


def test_the_page_has_every_row_and_column() -> None:
    head, *rows = [re.split(r" {2,}", line) for line in table().splitlines()]
    assert head == ["format", *COLUMNS]
    assert [row[0] for row in rows] == [one.title for one in FORMATS]


def test_the_page_shows_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The signs are taken from the page: `test_a_cell` checks them."""

    def given(column: str) -> Callable[[Sample], str]:
        return lambda sample: shown(sample.format.title)[list(COLUMNS).index(column)]

    if any(missing(one) for one in FORMATS):
        pytest.skip("the page shows all formats, and some library is not installed")
    monkeypatch.setattr(formats, "COLUMNS", {column: given(column) for column in COLUMNS})
    assert formats.main() == 0
    assert capsys.readouterr().out == table()
