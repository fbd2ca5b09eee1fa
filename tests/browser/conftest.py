"""One browser for the tests of a file, one fresh context for each; no request may leave a page.

Without a browser all tests of the folder are skipped, before anything is made for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.installing import ADVICE, found_browser, launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Opened = Callable[..., "Page"]
Serious = Callable[["Page"], list[tuple[str, list[str]]]]


# While it runs, its thread has a loop that others trip over.
@pytest.fixture(scope="module", autouse=True)
def browser() -> Iterator[Browser]:
    """Give a running browser; without one the tests are skipped, and say what to do."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason=f"playwright is not installed: {ADVICE}"
    )
    path = found_browser()
    if path is None:
        pytest.skip(f"no browser: {ADVICE}")
    with playwright.sync_playwright() as running:
        browser: Browser = launched(running.chromium, path)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def serious() -> Serious:
    """Give a function that lists the serious faults of accessibility of a page: axe's rules."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason=f"axe is not installed: {ADVICE}"
    )

    def faults(page: Page) -> list[tuple[str, list[str]]]:
        options = {"resultTypes": ["violations"], "iframes": False}  # not all that is right
        return [
            (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
            for one in axe.Axe().run(page, options=options).response["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    return faults


def watched(page: Page, allowed: tuple[str, ...]) -> list[str]:
    """Return a list to which a page's messages, errors, dialogs and other requests are added.

    Args:
        page: the page, before it is loaded.
        allowed: how the URLs of requests may begin.
    """
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))

    def requested(request: Any) -> None:
        if not request.url.startswith(allowed):
            wrong.append(f"request: {request.url[:200]}")

    page.on("request", requested)
    return wrong


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Open a file as a page; the test fails if the page uses the network or logs anything."""
    contexts: list[Any] = []
    faults: list[list[str]] = []

    def open_page(
        path: Path, *, width: int = 1440, height: int = 900, dark: bool = False, hash_: str = ""
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            offline=True,
        )
        contexts.append(context)
        page = context.new_page()
        faults.append(watched(page, ("file:", "data:")))
        page.goto(path.as_uri() + hash_)
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not any(faults), faults
