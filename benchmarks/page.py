"""Time the page of a model in a browser, by the browser's own clock: `python -m benchmarks.page`.

Prints, for 100,000 tensors: when something and when the rows are painted, how long a search key and
a jump of scrolling take to the next frame, and the longest task while loading and while scrolling.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.browser.installing import ADVICE, found_browser, launched
from tests.browser.test_page import many
from ztensor.numpy import save_file

_COUNT = 100_000
_TASKS = """() => new Promise((resolve) => {
  const found = [];
  const note = (one) => found.push([Math.round(one.startTime), Math.round(one.duration)]);
  new PerformanceObserver((list) => list.getEntries().forEach(note))
    .observe({type: "longtask", buffered: true});
  setTimeout(() => resolve(found), 300);
})"""
_KEYS = """async () => {
  const box = document.getElementById("search"), times = [];
  for (const text of ["l", "la", "lay", "layers.3", "layers.3 e", "w3", "499", ""]) {
    const begun = performance.now();
    box.value = text;
    box.dispatchEvent(new Event("input"));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - begun);
  }
  return times;
}"""
_SCROLL = """async () => {
  const box = document.getElementById("table"), times = [];
  for (let at = 1; at <= 120; at++) {
    const begun = performance.now();
    box.scrollTop = (box.scrollHeight * at) / 120;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - begun);
  }
  return times;
}"""
_PAINTED = """() => ({first: performance.getEntriesByName("first-contentful-paint")[0].startTime,
  rows: performance.getEntriesByName("rows")[0].startTime,
  ready: performance.getEntriesByName("ready")[0].startTime,
  heap: performance.memory ? performance.memory.usedJSHeapSize / 1e6 : 0})"""


def main() -> int:
    """Measure three times, and print the medians."""
    path = found_browser()
    if path is None:
        print(f"no browser: {ADVICE}")
        return 1
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        model = Path(folder) / "model.zt"
        save_file({"layers.0.attn.q.weight": np.zeros((96, 64), np.float32)}, model)
        page_file = Path(folder) / "many.html"
        page_file.write_text(many(model, _COUNT), "utf-8")
        print(f"{_COUNT:,} tensors, {page_file.stat().st_size / 1e6:.2f} MB")
        browser = launched(running.chromium, path)
        rounds = [_round(browser, page_file) for _ in range(3)]
        browser.close()
    for what in rounds[0]:
        print(f"{what:32} {statistics.median(one[what] for one in rounds):8.1f}")
    return 0


def _round(browser: Any, path: Path) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    painted = page.evaluate(_PAINTED)
    loading = page.evaluate(_TASKS)
    end = page.evaluate("performance.now()")
    scrolled = page.evaluate(_SCROLL)
    scrolling = [one for one in page.evaluate(_TASKS) if one[0] > end]
    keys = page.evaluate(_KEYS)
    context.close()
    return {
        "first paint, ms": painted["first"],
        "first rows, ms": painted["rows"],
        "all is there, ms": painted["ready"],
        "longest task while loading, ms": max([length for _, length in loading], default=0),
        "search key to frame, median, ms": statistics.median(keys),
        "search key to frame, most, ms": max(keys),
        "jump to frame, median, ms": statistics.median(scrolled),
        "jump to frame, most, ms": max(scrolled),
        "longest task while scrolling, ms": max([length for _, length in scrolling], default=0),
        "heap, MB": painted["heap"],
    }


if __name__ == "__main__":
    sys.exit(main())
