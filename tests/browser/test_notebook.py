"""What notebooks show, in a real browser: sheets of any style, and the page in a frame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ztensor
from tests.unit.insight.page.test_report import hostile_model

if TYPE_CHECKING:
    from tests.browser.conftest import Opened, Serious


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page with the outputs of a notebook, of a model with hostile names."""
    folder: Path = tmp_path_factory.mktemp("notebook")
    path = hostile_model(folder / "model.zt")
    with ztensor.open(path) as reader:
        outputs: list[Any] = [reader, ztensor.stats(reader), ztensor.examine(reader)]
        outputs.append(ztensor.view(reader))
        text = "".join(one._repr_html_() for one in outputs)
    found = folder / "notebook.html"
    found.write_text(
        f'<!doctype html><html lang="en"><title>n</title><body data-ready>{text}', "utf-8"
    )
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_sheets_run_nothing_and_may_be_used_by_all(
    page: Path, opened: Opened, serious: Serious, *, dark: bool
) -> None:
    found = opened(page, dark=dark)
    assert found.locator("script, img, svg, style, a").count() == 0
    assert "\\u202egnp.exe" in found.inner_text("div.ztensor-sheet >> nth=0")
    assert serious(found) == []


def test_the_page_in_the_frame_works(page: Path, opened: Opened) -> None:
    found = opened(page)
    frame = found.frame_locator("iframe")
    frame.locator("body[data-ready]").wait_for()
    frame.locator("#table .row").nth(3).click()
    frame.locator("body[data-shown]").wait_for()
    assert frame.locator("#detail-title").count() == 1
    assert frame.locator("#detail a", has_text="Link").count() == 0
    assert found.url == page.as_uri()
