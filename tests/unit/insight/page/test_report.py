"""The text of the page: its parts, and that no data of a model becomes code."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html.parser
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.insight.page.report import SCRIPTS, html_of, page_text
from ztensor.numpy import save_file

W = np.linspace(-1, 1, 96 * 64, dtype=np.float32).reshape(96, 64)

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "<!--<script>",
    "-->]]>",
    "{{script}}{{data}}",
    "javascript:alert(1)",
    "${alert(1)}`",
    "line\u2028\u2029separators",
    "safe\u202egnp.exe",
    "\u2066isolates\u2069",
    "nul\x00esc\x1b[31mcr\r\nlf",
    "__proto__",
    "constructor.prototype.x",
    "hasOwnProperty",
    "...",
    "",
    " ",
    "a",
    "a.b",
    "a/b",
    "&lt;b&gt;&amp;",
    "e\u0301.nfd",
    "\u00e9.nfd",
    "\U0001f600.\U0001f600",
    "x" * 100_000,
    "y." * 5_000,
    "%00%0a#t=1",
    "\u0301" * 40,
)


def hostile_model(path: Path, **extra: Any) -> Path:
    with ztensor.Writer(path, attributes={one: one for one in HOSTILE[:12]}) as writer:
        for at, name in enumerate(HOSTILE):
            values = W * (at + 1)
            values[0, 0] = np.nan if at % 5 == 0 else 0
            writer.write(name, values, attributes={"note": name[:50]})
        for name, array in extra.items():
            writer.write(name, array)
    return path


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(dict(attrs).get("id") or tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside:
            key = self._inside[-1]
            self.texts[key] = self.texts.get(key, "") + data


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    tags.close()
    return tags


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = hostile_model(tmp_path_factory.mktemp("page") / "<b>&{{data}}.zt")
    return html_of(ztensor.examine(path))


def test_hostile_names_add_no_tag_and_no_attribute(page: str, tmp_path: Path) -> None:
    save_file({"w": W}, tmp_path / "plain.zt")
    plain = parsed(html_of(ztensor.examine(tmp_path / "plain.zt")))
    found = parsed(page)

    def shape(tags: Tags) -> list[tuple[str, tuple[str, ...]]]:
        return [
            (tag, tuple(sorted(attributes)))
            for tag, attributes in tags.found
            if not (attributes.get("id") or "").startswith("detail-")
        ]

    assert shape(found) == shape(plain)
    # The data is base64, nothing else; whatever a file says is there or escaped.
    for tag, attributes in found.found:
        if tag == "script" and "id" in attributes:
            assert attributes["type"] == "text/plain"
            assert re.fullmatch(r"[A-Za-z0-9+/=]+", found.texts[attributes["id"] or ""])
    for sign in ("\u2028", "\u202e", "\u2066", "\x00", "\x1b", "<img", "<svg"):
        assert sign not in page


def test_names_are_shown_as_our_display_shows_them(page: str) -> None:
    block = parsed(page).texts["data"]
    document = json.loads(gzip.decompress(base64.b64decode(block)))
    rest = document["models"][0]["tensors"]["rest"].split("\n")
    text = json.dumps(document, ensure_ascii=False)
    assert len(rest) == len(HOSTILE)
    assert any("gnp.exe" in one for one in rest)
    assert "\\u202e" in "".join(rest)
    assert "(100,000 characters)" in "".join(rest)
    assert all(letter.isprintable() or letter == "\n" for letter in "".join(rest))
    assert "\u2028" not in text
    assert len(text) < 400_000


def test_the_policy_is_that_of_the_bytes_in_the_page(page: str) -> None:
    found = parsed(page)
    policy = next(
        attributes["content"] or ""
        for tag, attributes in found.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        digest = base64.b64encode(hashlib.sha256(found.texts[tag].encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_page_names_no_other_place(page: str) -> None:
    for tag, attributes in parsed(page).found:
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} {name}"
            assert name != "style"
            if name in ("src", "href", "action"):
                assert value in ("data:,", "#table")
    assert "//" not in re.sub(r"(?m)^\s*//.*$|\s// .*$", "", "".join(map(page_text, SCRIPTS)))


FORBIDDEN = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
    'setAttribute("style"', 'setAttribute("on', "localStorage", "fetch(", "XMLHttpRequest",
    "WebSocket", "sendBeacon", "import(", "</script", "<!--", "srcdoc", ".cookie",
)  # fmt: skip


@pytest.mark.parametrize("name", [*SCRIPTS, "page.css", "page.html"])
def test_the_pages_own_text_has_nothing_that_makes_code_of_data(name: str) -> None:
    text = page_text(name)
    if name != "page.html":
        found = [word for word in FORBIDDEN if word in text]
        assert found == (["fetch("] if name == "live.js" else [])  # which asks a server of ours
        assert "{{" not in text
    assert "\r" not in text
    assert text.isascii()


def test_the_same_file_gives_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for folder, threads in (("one", 1), ("two", 3)):
        (tmp_path / folder).mkdir()
        path = hostile_model(tmp_path / folder / "m.zt")
        ztensor.report(path, tmp_path / folder / "page.html", threads=threads)
        texts.append((tmp_path / folder / "page.html").read_bytes())
    assert texts[0] == texts[1]
    assert str(tmp_path).encode() not in texts[0]
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ztensor.SourceError):
        ztensor.report(tmp_path / "one" / "m.zt", tmp_path / "folder.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.html", "one", "two"]
    save_file({}, tmp_path / "empty.zt")
    ztensor.report(tmp_path / "empty.zt", tmp_path / "empty.html")
    assert "0 tensors" in (tmp_path / "empty.html").read_text("utf-8")


def test_two_models(tmp_path: Path) -> None:
    first = hostile_model(tmp_path / "a.zt")
    second = hostile_model(tmp_path / "b.zt", new=W)
    insight = ztensor.report(first, tmp_path / "page.html", second)
    assert [pair.kind for pair in insight.pairs].count("added") == 1
    found = parsed((tmp_path / "page.html").read_text("utf-8"))
    document = json.loads(gzip.decompress(base64.b64decode(found.texts["data"])))
    assert document["diff"]["kind"].count("equal") == len(HOSTILE)
    # Of the second model only what differs is there in detail.
    details = json.loads(gzip.decompress(base64.b64decode(found.texts["detail-1-0"])))
    assert len(details) == 1


@pytest.mark.slow
def test_names_of_10_mb_and_very_many_parts_are_cut(tmp_path: Path) -> None:
    long = {"z" * 10_000_000: W, "a." * 5_000_000: W, "\u202e" * 3_000_000: W, "a": W, "a.b": W}
    path = tmp_path / "long.zt"
    with ztensor.Writer(path) as writer:
        for name, array in long.items():
            writer.write(name, array)
    with ztensor.open(path) as reader:
        ztensor.report(reader, tmp_path / "long.html")
        sheet = reader._repr_html_()
        shown = ztensor.view(reader)._repr_html_()
    assert (tmp_path / "long.html").stat().st_size < 400_000
    assert len(sheet) < 50_000
    assert len(shown) < 600_000
    assert "10,000,000 characters" in sheet
