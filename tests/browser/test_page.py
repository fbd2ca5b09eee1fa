"""The page of a model in a real browser: by mouse, by keyboard, with hostile names, with many."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.insight.page.test_report import HOSTILE, hostile_model
from ztensor.insight.page.report import page_of
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from tests.browser.conftest import Opened, Serious

RNG = np.random.default_rng(1)


def tensors() -> dict[str, Any]:
    found: dict[str, Any] = {"embed.weight": RNG.normal(0, 0.02, (300, 64)).astype(np.float32)}
    for i in range(8):
        for part in ("attn.q", "attn.k", "mlp.up"):
            found[f"layers.{i}.{part}.weight"] = RNG.normal(0, 0.04, (96, 64)).astype(np.float32)
        found[f"layers.{i}.norm.weight"] = RNG.normal(1, 0.01, 64).astype(ml_dtypes.bfloat16)
    found["layers.5.mlp.up.weight"] *= 8
    found["outlier.bias"] = np.append(RNG.normal(0, 0.1, 2000), 500.0).astype(np.float32)
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return pages of one model, of two, of one with hostile names, and of 100,000 tensors."""
    folder: Path = tmp_path_factory.mktemp("pages")
    first = tensors()
    save_file(first, folder / "a.zt")
    other = dict(first)
    other["layers.2.attn.q.weight"] = first["layers.2.attn.q.weight"] * np.float32(1.5)
    other["new"] = np.ones((4, 4), np.float32)
    del other["layers.7.norm.weight"]
    save_file(other, folder / "b.zt")
    hostile_model(folder / "hostile.zt")
    ztensor.report(folder / "a.zt", folder / "one.html")
    ztensor.report(folder / "a.zt", folder / "two.html", folder / "b.zt")
    ztensor.report(folder / "hostile.zt", folder / "hostile.html")
    (folder / "many.html").write_text(many(folder / "a.zt"), "utf-8")
    return {name: folder / f"{name}.html" for name in ("one", "two", "hostile", "many")}


def many(path: Path, count: int = 100_000) -> str:
    """Return the page of a model of many tensors, made of the document of a small one."""
    document = ztensor.examine(path, names=["layers.0.attn.q.weight"]).as_json()
    (model,) = document["models"]
    columns = model["tensors"]
    tables = {"shapes", "types", "layouts", "encodings", "digests"}
    for name, column in columns.items():
        if name not in tables:
            columns[name] = column * count
    columns["name"] = [
        f"model.layers.{i // 2500}.experts.{i % 2500 // 5}.w{i % 5}.weight" for i in range(count)
    ]
    columns["rms"] = RNG.random(count).tolist()
    model["object_count"] = count
    model["detail"] = {str(i): {"note": "one of many", "quantiles": []} for i in range(count)}
    return page_of(document, "many", "many")


def text_of(page: Any, selector: str) -> str:
    return " ".join((page.text_content(selector) or "").split())


def rows_of(page: Any) -> list[str]:
    return [row.text_content() or "" for row in page.query_selector_all("#table .row")]


def test_search_filters_and_sorts(pages: dict[str, Path], opened: Opened) -> None:
    page = opened(pages["one"])
    assert text_of(page, "#count") == "34"
    page.fill("#search", "attn Q")
    assert text_of(page, "#count") == "8 of 34"
    assert all("attn.q" in row for row in rows_of(page))
    page.press("#search", "Escape")
    assert text_of(page, "#count") == "34"
    page.click("#chips button:has-text('bfloat16')")
    assert text_of(page, "#count") == "8 of 34"
    page.click("#chips button:has-text('bfloat16')")
    page.click("#chips button:has-text('findings')")
    assert text_of(page, "#count") == "1 of 34"
    page.click("#chips button:has-text('findings')")
    page.click("#table [role=columnheader]:has-text('RMS') >> nth=0")
    assert "norm" in rows_of(page)[1]
    page.click("#table [role=columnheader]:has-text('name')")
    assert "embed.weight" in rows_of(page)[0]


def test_a_finding_the_grid_and_the_tree_lead_to_a_tensor(
    pages: dict[str, Path], opened: Opened
) -> None:
    page = opened(pages["one"])
    assert "Layer out of line" in text_of(page, "#findings")
    page.click("#findings button")
    page.wait_for_selector("#detail-title")
    assert text_of(page, "#detail-title") == "layers.5.mlp.up.weight"
    assert page.locator("#detail canvas").count() == 2
    assert re.fullmatch(r"#t=\d+-[0-9a-f]{4}", page.evaluate("location.hash"))
    box = page.locator("#grid").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 5, box["y"] + 5)
    page.wait_for_selector("#detail-title:has-text('layers.7')")
    page.click("#tree .row:has-text('layers')")
    assert text_of(page, "#count").startswith("32 of 34")
    page.click("#tree .row:has-text('embed')")
    page.wait_for_selector("#detail-title:has-text('embed.weight')")


def test_a_search_is_seen_in_the_tree_the_table_and_the_pictures(
    pages: dict[str, Path], opened: Opened
) -> None:
    page = opened(pages["one"])
    assert page.locator("#tree .row").count() == 3
    page.click("#tabs button:has-text('Treemap')")
    pictures = (
        """() => [...document.querySelectorAll("#grid, #map")].map((one) => one.toDataURL())"""
    )
    before = page.evaluate(pictures)
    page.fill("#search", "layers.3 norm")
    assert text_of(page, "#count") == "1 of 34"
    shown = [" ".join(row.split()) for row in page.locator("#tree .row .cut").all_text_contents()]
    assert shown == ["layers", "3", "norm.weight"]
    after = page.evaluate(pictures)
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert (
        page.evaluate("document.querySelector('#tensors-section').getBoundingClientRect().top")
        < 800
    )
    page.fill("#search", "")
    assert page.evaluate(pictures) == before


def test_the_panel_takes_room_only_with_a_tensor_in_it(
    pages: dict[str, Path], opened: Opened
) -> None:
    page = opened(pages["one"])
    assert text_of(page, "#detail-title") == "layers.5.mlp.up.weight"  # the worst finding
    narrow = page.evaluate("document.querySelector('#table').clientWidth")
    page.click("#detail button:has-text('Close')")
    assert not page.is_visible("#detail")
    assert page.evaluate("document.querySelector('#table').clientWidth") > narrow + 250
    assert page.evaluate("location.hash") == ""
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail-title")
    page.focus("#detail")
    page.keyboard.press("Escape")
    assert not page.is_visible("#detail")
    assert not opened(pages["many"]).is_visible("#detail")  # it has no finding


def test_one_outlier_does_not_squeeze_the_histogram(pages: dict[str, Path], opened: Opened) -> None:
    page = opened(pages["one"])
    page.fill("#search", "outlier")
    page.click("#table .row")
    page.wait_for_selector("#detail-title:has-text('outlier')")
    label = "#detail section canvas >> nth=0"
    assert "Histogram of values from -0." in (page.get_attribute(label, "aria-label") or "")
    page.click("#detail button:has-text('Whole range')")
    assert "to 500;" in (page.get_attribute(label, "aria-label") or "")
    page.click("#detail button:has-text('1 % to 99 %')")
    assert "to 500;" not in (page.get_attribute(label, "aria-label") or "")


@pytest.mark.parametrize(("which", "colours"), [("one", 3), ("two", 4)])
def test_the_map_is_coloured_by_what_is_chosen(
    which: str, colours: int, pages: dict[str, Path], opened: Opened
) -> None:
    page = opened(pages[which])
    assert not page.is_visible("#map-color")
    page.click("#tabs button:has-text('Treemap')")
    names = page.locator("#map-color option").all_text_contents()
    assert len(names) == colours
    seen = set()
    for name in names:
        page.select_option("#map-color select", label=name)
        seen.add(page.evaluate("document.querySelector('#map').toDataURL()"))
        assert f"coloured by {name}" in (page.get_attribute("#map", "aria-label") or "")
    assert len(seen) == colours


def test_by_keyboard_alone(pages: dict[str, Path], opened: Opened) -> None:
    page = opened(pages["one"])
    press = page.keyboard.press
    press("/")
    page.keyboard.type("mlp")
    press("Enter")
    assert page.evaluate("document.activeElement.id") == "table"
    press("ArrowDown")
    press("End")
    press("Home")
    press("ArrowDown")
    active = page.get_attribute("#table", "aria-activedescendant") or ""
    assert "layers.1.mlp.up" in (page.text_content(f"#{active}") or "")
    press("Enter")
    page.wait_for_selector("#detail-title:has-text('layers.1.mlp.up.weight')")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    page.focus("#tree")
    press("End")
    press("ArrowRight")
    press("ArrowDown")
    assert page.get_attribute("#tree .active", "aria-level") == "3"
    press("ArrowLeft")
    press("ArrowLeft")
    assert page.get_attribute("#tree .active", "aria-expanded") == "false"
    page.focus("#grid")
    press("ArrowDown")
    press("ArrowRight")
    assert "times the median" in text_of(page, "#grid-status")
    press("Enter")
    page.wait_for_selector("#detail-title:has-text('layers.1.attn.q')")


def test_every_control_is_reached_by_tab(pages: dict[str, Path], opened: Opened) -> None:
    page = opened(pages["two"])
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert {"theme", "search", "tree", "grid", "table", "Treemap", "Change"} <= seen


def test_a_link_opens_its_tensor_and_notices_another_file(
    pages: dict[str, Path], opened: Opened
) -> None:
    page = opened(pages["one"])
    page.click("#findings button")
    page.wait_for_selector("#detail-title")
    link = page.evaluate("location.hash")
    again = opened(pages["one"], hash_=link)
    again.wait_for_selector("#detail-title:has-text('layers.5.mlp.up.weight')")
    moved = opened(pages["one"], hash_="#t=2-" + link[-4:])
    moved.wait_for_selector("#detail-title:has-text('layers.5.mlp.up.weight')")
    other = opened(pages["one"], hash_="#t=3-zzzz")
    assert text_of(other, "#detail-title") == "layers.5.mlp.up.weight"  # the worst finding
    other = opened(pages["hostile"], hash_="#t=3-0000")
    assert "not in this file" in text_of(other, "#detail")


def test_two_models(pages: dict[str, Path], opened: Opened) -> None:
    page = opened(pages["two"])
    assert "a.zt" in text_of(page, "#title")
    page.click("#chips button:has-text('changed')")
    assert text_of(page, "#count") == "1 of 35"
    page.click("#table .row")
    page.wait_for_selector("#detail-title:has-text('layers.2.attn.q.weight')")
    assert "relative change0.5" in text_of(page, "#detail").replace(" 0.5", "0.5")
    lines = page.locator("#detail .quantiles").all_text_contents()
    assert [line.split()[0] for line in lines] == ["a.zt", "b.zt"]
    page.click("#grid-modes button:has-text('RMS after')")
    assert page.get_attribute("#grid-modes button:has-text('RMS after')", "aria-pressed") == "true"
    page.click("#chips button:has-text('changed')")
    page.click("#chips button:has-text('added')")
    assert "new" in rows_of(page)[0]


def test_hostile_names_are_texts(pages: dict[str, Path], opened: Opened) -> None:
    page = opened(pages["hostile"])
    assert text_of(page, "#count") == str(len(HOSTILE))
    rows = rows_of(page)
    assert any("(empty name)" in row for row in rows)
    assert any("(blank name)" in row for row in rows)
    before = page.locator("#findings li").count()  # one for each kind
    while page.locator("#findings .more button").count():
        page.click("#findings .more button >> nth=0")
        assert page.evaluate("document.activeElement.closest('#findings') !== null")
    assert page.locator("#findings li").count() > before
    lines = page.locator("#findings .name").all_text_contents()
    assert max(map(len, lines)) == 160
    page.focus("#table")
    for at in range(len(HOSTILE)):
        page.keyboard.press("Enter")
        page.wait_for_selector(f"body[data-shown='{at}']")
        page.keyboard.press("ArrowDown")
    page.focus("#tree")
    page.keyboard.press("Home")
    last = None
    while (active := page.get_attribute("#tree", "aria-activedescendant")) != last:
        last = active
        page.keyboard.press("ArrowRight")  # opens it, where it can be
        page.keyboard.press("ArrowDown")
    assert page.locator("#tree [aria-expanded='true']").count() > 3
    assert page.locator("#tree [aria-expanded='false']").count() == 0
    page.click("#tabs button:has-text('Treemap')")
    assert page.locator("main img, main svg, main b b").count() == 0
    assert page.evaluate("Object.prototype.hasOwnProperty('x') === false")
    text = page.evaluate("document.body.innerText")
    assert "\u202e" not in text
    assert "\\u202egnp.exe" in page.evaluate("document.body.textContent")


@pytest.mark.parametrize(
    ("which", "width", "dark"),
    [("one", 1440, False), ("one", 400, True), ("two", 1440, True), ("two", 400, False)],
)
def test_no_serious_fault_of_accessibility(
    pages: dict[str, Path],
    opened: Opened,
    serious: Serious,
    which: str,
    width: int,
    dark: bool,
) -> None:
    page = opened(pages[which], width=width, height=500, dark=dark)  # few rows, to be quick
    page.click("#findings button")
    page.wait_for_selector("#detail-title")
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


_CUT = """() => [...document.querySelectorAll("#table .row .cut")].map((name) => {
  const mark = name.querySelector(".level");
  return [name.lastChild.getBoundingClientRect().right - name.getBoundingClientRect().right,
          mark ? mark.getBoundingClientRect().width : null, name.title.length];
})"""


@pytest.mark.parametrize("width", [400, 900, 1440])
def test_of_long_names_the_mark_and_the_end_are_seen(
    width: int, pages: dict[str, Path], opened: Opened
) -> None:
    page = opened(pages["hostile"], width=width)
    names = page.evaluate(_CUT)
    page.focus("#table")
    page.keyboard.press("End")
    names += page.evaluate(_CUT)
    assert width < 500 or any(mark and length > 200 for _, mark, length in names)
    assert all(beyond < 1 for beyond, _, _ in names)
    assert all(mark > 5 for _, mark, _ in names if mark is not None)


@pytest.mark.parametrize("dark", [False, True])
def test_paper_is_white_and_the_theme_can_be_switched(
    dark: bool, pages: dict[str, Path], opened: Opened
) -> None:
    page = opened(pages["one"], dark=dark)
    page.click("#findings button")
    back = "getComputedStyle(document.documentElement).getPropertyValue('--back')"
    drawn = "document.getElementById('grid').toDataURL()"
    on_screen, picture = page.evaluate(back), page.evaluate(drawn)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate(back) == "#fff"
    assert (page.evaluate(drawn) == picture) is not dark
    assert page.is_visible("#findings li")
    assert page.is_visible("#detail h2")
    for control in ("#theme", "#detail .quiet", ".slice", "#tabs"):
        assert not page.locator(control).first.is_visible(), control
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert (page.evaluate(back), page.evaluate(drawn)) == (on_screen, picture)
    page.click("#theme")
    assert page.evaluate(back) != on_screen
    page.click("#theme")
    assert page.evaluate(back) == on_screen


def test_100_000_tensors(pages: dict[str, Path], opened: Opened) -> None:
    page = opened(pages["many"])
    assert text_of(page, "#count") == "100.0 k"
    assert page.locator("#table .row").count() < 60
    page.fill("#search", "layers.39 experts.499 w3")
    assert text_of(page, "#count") == "1 of 100.0 k"
    page.click("#table .row")
    page.wait_for_selector("#detail:has-text('one of many')")
    page.fill("#search", "")
    page.focus("#table")
    page.keyboard.press("End")
    page.wait_for_selector("#table .row[data-at='99999']")
    assert "layers.39.experts.499.w4" in (page.text_content("#table .row[data-at='99999']") or "")
    page.click("#tree .row:has-text('7') >> nth=0")
    page.click("#tabs button:has-text('Treemap')")
    assert page.locator("#map").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#print-table tr").count() == 201
    assert "2,300 more" in text_of(page, "#print-table")  # of the layer that is chosen
    assert not page.is_visible("#side")


def test_without_a_script_the_page_says_what_there_is(pages: dict[str, Path], browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["hostile"].as_uri())
    assert f"{len(HOSTILE)} tensors" in page.inner_text("body")
    context.close()


def test_a_part_of_the_map_by_mouse_and_by_keyboard(pages: dict[str, Path], opened: Opened) -> None:
    page = opened(pages["one"])
    page.click("#table .row >> nth=0")
    page.wait_for_selector("section.map canvas[aria-label^='32 by 64 tiles']")
    page.fill("input[aria-label='end of rows']", "40")
    page.fill("input[aria-label='first column']", "60")
    page.keyboard.press("Enter")
    page.wait_for_selector("section.map canvas[aria-label^='5 by 4 tiles']")
    page.focus("section.map canvas")
    page.keyboard.press("ArrowDown")
    assert re.search(r"rows \d+\u2013\d+, columns 60: RMS about", text_of(page, "section.map"))
    page.fill("input[aria-label='first column']", "64")
    page.keyboard.press("Enter")
    assert "Rows are 0 to 300, columns 0 to 64" in text_of(page, "section.map [role=status]")
    page.click("section.map button:has-text('Whole')")
    page.wait_for_selector("section.map canvas[aria-label^='32 by 64 tiles']")
