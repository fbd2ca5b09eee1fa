"""The page that `ztensor view` serves, in a real browser: by mouse, by keyboard, and attacked."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.browser.conftest import watched
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Serious
    from ztensor.insight.serving.server import ViewServer

pytest.importorskip("uvicorn", reason="pip install starlette uvicorn")
pytest.importorskip("starlette", reason="pip install starlette uvicorn")

RNG = np.random.default_rng(1)


class Looked:
    """A page, its server, and what went wrong in it."""

    def __init__(self, page: Page, server: ViewServer) -> None:
        self.page, self.server = page, server
        self.wrong = watched(page, (server.url, "data:"))

    def text(self, selector: str) -> str:
        found: str = self.page.inner_text(selector)
        return found


View = Callable[..., Looked]


@pytest.fixture
def view(browser: Any) -> Iterator[View]:
    """Serve models and open the page; at the end nothing failed, and all servers have ended."""
    from ztensor.insight.serving.server import ViewServer

    with contextlib.ExitStack() as stack:

        def look(
            *paths: Path, width: int = 1440, height: int = 900, dark: bool = False, hash_: str = ""
        ) -> Looked:
            first, *rest = [stack.enter_context(ztensor.open(path, mmap=False)) for path in paths]
            server = ViewServer(first, rest[0] if rest else None, None)
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
            )
            found = Looked(context.new_page(), server)

            def end() -> None:
                wrong = list(found.wrong)
                context.close()
                server.stop()
                thread.join(20)
                assert not thread.is_alive()
                assert wrong == []

            stack.callback(end)
            found.page.goto(server.url + hash_)
            found.page.wait_for_selector("body[data-ready]")
            return found

        yield look


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("view")
    first: dict[str, Any] = {"conv.weight": RNG.normal(0, 0.1, (16, 8, 3, 3)).astype(np.float32)}
    for i in range(8):
        for part in ("q", "k"):
            first[f"layers.{i}.{part}.weight"] = RNG.normal(0, 0.04, (96, 64)).astype(np.float32)
        first[f"layers.{i}.norm"] = RNG.normal(1, 0.01, 64).astype(ml_dtypes.bfloat16)
    first["layers.5.q.weight"] *= 8
    save_file(first, found / "a.zt")
    other = dict(first)
    other["layers.2.k.weight"] = first["layers.2.k.weight"] * np.float32(1.5)
    other["new"] = np.ones((4, 4), np.float32)
    save_file(other, found / "b.zt")
    return found


def chosen(looked: Looked, name: str) -> None:
    looked.page.wait_for_selector(f"#detail-title:has-text('{name}')")
    looked.page.wait_for_selector("#detail dl")
    looked.page.wait_for_selector("#detail .missing", state="detached")


def test_nothing_is_read_until_it_is_looked_at(folder: Path, view: View) -> None:
    looked = view(folder / "a.zt")
    assert "Look at all tensors" in looked.text("#findings-section")
    assert looked.page.locator("#table .row >> nth=0").inner_text().count("\u2013") == 2
    looked.page.click("#table .row >> nth=0")
    chosen(looked, "conv.weight")
    assert looked.page.locator("#detail canvas").count() == 2
    assert looked.page.locator("#table .row >> nth=0").inner_text().count("\u2013") == 0


def test_all_by_mouse(folder: Path, view: View) -> None:
    looked = view(folder / "a.zt")
    page = looked.page
    page.click("#table .row >> nth=3")
    chosen(looked, "layers.0.q.weight")
    page.click("#examine")
    page.wait_for_selector("#findings button:has-text('layers.5.q.weight')")
    assert looked.text("#findings-title") == "Findings (1)"
    chosen(looked, "layers.0.q.weight")  # still
    page.click("#findings button")
    chosen(looked, "layers.5.q.weight")
    page.click(".singular")
    page.wait_for_selector(".singular-facts:has-text('all 64')")
    page.fill("input[aria-label='end of rows']", "5")
    page.fill("input[aria-label='end of columns']", "7")
    page.click("#detail h2")
    page.wait_for_selector("canvas[aria-label^='5 by 7 values']")
    box = page.locator("section.map canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    assert "row 0, column 0: " in looked.text("section.map")
    page.click("section.map button:has-text('Whole')")
    page.wait_for_selector("canvas[aria-label*='tiles']")


def test_axes_and_places_are_chosen(folder: Path, view: View) -> None:
    looked = view(folder / "a.zt")
    page = looked.page
    page.click("#table .row >> nth=0")
    chosen(looked, "conv.weight")
    page.select_option("select[aria-label='axis of columns']", "1")
    page.wait_for_selector("canvas[aria-label^='16 by 8 values']")
    page.fill("input[aria-label='place on axis 2']", "2")
    page.keyboard.press("Enter")
    page.select_option("select[aria-label='axis of rows']", "1")
    page.wait_for_selector("section.map [role=status]:has-text('two axes')")
    page.select_option("select[aria-label='axis of rows']", "3")
    page.wait_for_selector("canvas[aria-label^='3 by 8 values']")
    page.fill("input[aria-label='first row']", "9")
    page.keyboard.press("Enter")
    page.wait_for_selector("section.map [role=status]:has-text('Rows are 0 to 3')")


def test_a_late_answer_hides_nothing_that_was_said_since(folder: Path, view: View) -> None:
    looked = view(folder / "a.zt")
    page = looked.page
    page.click("#table .row >> nth=0")
    chosen(looked, "conv.weight")
    asked, answer, original = threading.Event(), threading.Event(), looked.server.viewed.slice

    def late(*rest: Any) -> dict[str, Any]:
        asked.set()
        assert answer.wait(20)
        return original(*rest)

    looked.server.viewed.slice = late  # type: ignore[assignment]
    page.fill("input[aria-label='place on axis 2']", "2")
    page.keyboard.press("Enter")
    assert asked.wait(20)
    page.select_option("select[aria-label='axis of rows']", "3")
    answer.set()
    page.wait_for_timeout(500)
    assert "two axes" in looked.text("section.map [role=status]")


def test_all_by_keyboard_alone(folder: Path, view: View) -> None:
    looked = view(folder / "a.zt")
    page = looked.page

    def focus(condition: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate(f"document.activeElement.matches({condition!r})"):
                return
        raise AssertionError(condition)

    page.keyboard.press("/")
    page.keyboard.type("layers.3 k")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    chosen(looked, "layers.3.k.weight")
    focus("input[aria-label='end of rows']")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    page.wait_for_selector("canvas[aria-label^='3 by 64 values']")
    focus("section.map canvas")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert "row 1, column 1: " in looked.text("section.map")
    focus(".singular")
    page.keyboard.press("Enter")
    page.wait_for_selector(".singular-facts")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    focus("#examine")
    page.keyboard.press("Enter")
    page.wait_for_selector("#findings button:has-text('layers.5.q.weight')")


def test_two_models(folder: Path, view: View) -> None:
    looked = view(folder / "a.zt", folder / "b.zt")
    page = looked.page
    page.fill("#search", "layers.2.k")
    page.click("#table .row")
    chosen(looked, "layers.2.k.weight")
    page.wait_for_selector("#detail:has-text('relative change')")
    assert "changed (values)" in looked.text("#detail")
    page.fill("#search", "")
    page.click("#examine")
    page.wait_for_selector("#findings li")
    page.click("#chips button:has-text('changed')")
    assert looked.text("#count") == "1 of 26"


def test_an_examination_can_be_stopped(folder: Path, view: View) -> None:
    looked = view(folder / "a.zt")
    begun, ended = threading.Event(), threading.Event()

    def examine(progress: Callable[[int, int], None]) -> None:
        begun.set()
        try:
            while True:
                progress(1, 2)
        finally:
            ended.set()

    looked.server.viewed.examine = examine  # type: ignore[method-assign]
    looked.page.click("#examine")
    looked.page.wait_for_selector("progress")
    assert begun.wait(10)
    looked.page.keyboard.press("Enter")  # Stop has the focus
    looked.page.wait_for_selector("#examination:has-text('Stopped.')")
    assert ended.wait(10)


def test_work_for_a_tensor_that_was_left_stops(folder: Path, view: View) -> None:
    looked = view(folder / "a.zt")
    ended, original = threading.Event(), looked.server.viewed.tensor

    def tensor(number: int, index: int, check: Callable[[], None]) -> dict[str, Any]:
        if index:
            return original(number, index, check)
        try:
            while True:
                check()
        finally:
            ended.set()

    looked.server.viewed.tensor = tensor  # type: ignore[method-assign]
    looked.page.click("#table .row >> nth=0")
    looked.page.wait_for_selector("#detail .missing:has-text('Reading')")
    looked.page.click("#table .row >> nth=1")
    chosen(looked, "layers.0.k.weight")
    assert ended.wait(10)


def test_a_file_that_changed_and_the_end_of_the_server_are_said(
    folder: Path, view: View, tmp_path: Path
) -> None:
    path = tmp_path / "a.zt"
    path.write_bytes((folder / "a.zt").read_bytes())
    looked = view(path)
    looked.page.click("#table .row >> nth=0")
    chosen(looked, "conv.weight")
    path.unlink()
    looked.page.click("#table .row >> nth=1")
    looked.page.wait_for_selector("#detail .missing:has-text('is gone since it was opened')")
    assert str(tmp_path) not in looked.text("body")
    looked.wrong.clear()  # the browser's own line on a refusal
    looked.server.stop()
    looked.page.wait_for_selector("#problem:has-text('The server has ended')")


@pytest.mark.parametrize(
    ("width", "dark"), [(1440, False), (1440, True), (400, False), (400, True)]
)
def test_no_serious_fault_of_accessibility(
    folder: Path, view: View, serious: Serious, width: int, dark: bool
) -> None:
    looked = view(folder / "a.zt", width=width, height=500, dark=dark)  # few rows, to be quick
    looked.page.click("#table .row >> nth=0")
    chosen(looked, "conv.weight")
    looked.page.click(".singular")
    looked.page.wait_for_selector(".singular-facts")
    assert serious(looked.page) == []
    assert looked.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


HOSTILE_PAGE = """<!doctype html><title>evil</title><body><script>
window.results = {};
const note = (name, promise) => promise.then((r) => { results[name] = "got " + (r && r.status); },
  () => { results[name] = "refused"; });
const all = URLS.flatMap((url) => [
  note("fetch " + url, fetch(url)),
  note("credentials " + url, fetch(url, {credentials: "include"})),
  note("post " + url, fetch(url, {method: "POST", body: "x"})),
  note("socket " + url, new Promise((yes, no) => {
    const socket = new WebSocket(url.replace("http", "ws"));
    socket.onopen = yes; socket.onerror = no; })),
  note("script " + url, new Promise((yes, no) => {
    const made = document.createElement("script"); made.src = url; made.onload = yes;
    made.onerror = no; document.body.append(made); })),
  note("image " + url, new Promise((yes, no) => {
    const made = new Image(); made.src = url; made.onload = yes; made.onerror = no; })),
]);
Promise.allSettled(all).then(() => { document.body.dataset.done = "1"; });
const frame = document.createElement("iframe"); frame.src = URLS[0]; document.body.append(frame);
</script>"""


def test_a_hostile_page_gets_nothing_even_with_the_token(
    folder: Path, view: View, browser: Any
) -> None:
    looked = view(folder / "a.zt")
    port, token = looked.server.port, looked.server.token
    urls = [f"http://{host}:{port}/{token}/{path}"
            for host in ("127.0.0.1", "localhost") for path in ("", "tensor/0/0")]  # fmt: skip
    body = HOSTILE_PAGE.replace("URLS", str(urls)).encode()

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://localhost:{server.server_port}/")
        page.wait_for_selector("body[data-done]", timeout=20_000)
        results = page.evaluate("window.results")
        frames = [frame.content() for frame in page.frames[1:]]
        context.close()
    finally:
        server.shutdown()
        server.server_close()
    assert len(results) >= 20
    assert set(results.values()) == {"refused"}, results
    assert not any("layers.0" in text or 'id="data"' in text for text in frames)


def test_the_file_that_leads_to_the_page_works(folder: Path, view: View, tmp_path: Path) -> None:
    looked = view(folder / "a.zt")
    leads = tmp_path / "model.html"
    leads.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0;url={looked.server.url}">'
    )
    page = looked.page.context.new_page()
    page.goto(leads.as_uri())
    page.wait_for_selector("body[data-ready]")
    page.click("#table .row >> nth=0")
    page.wait_for_selector("#detail canvas")
