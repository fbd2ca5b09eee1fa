"""The page in a notebook: one frame, shut off and bounded, and a sentence beside it."""

from __future__ import annotations

import html.parser
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.insight.page.test_report import hostile_model
from ztensor.numpy import save_file

pytestmark = pytest.mark.slow


class Frame(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.frame: dict[str, str | None] = {}
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "iframe":
            self.frame = dict(attrs)

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_page_is_in_one_frame_without_an_origin(tmp_path: Path) -> None:
    path = hostile_model(tmp_path / "model.zt")
    found = ztensor.view(path, height=500)
    frame = Frame(found._repr_html_())
    assert frame.tags == ["iframe", "p", "code"]
    assert frame.frame["sandbox"] == "allow-scripts"
    assert frame.frame["height"] == "500"
    assert frame.frame["title"] == "model.zt"
    ztensor.report(path, tmp_path / "model.html")
    assert frame.frame["srcdoc"] == (tmp_path / "model.html").read_text("utf-8")
    assert "28 tensors" in frame.words
    assert repr(found).startswith("<ztensor.insight.ModelView: 28 tensors, ")


def test_the_page_is_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {f"layers.{i}.w": rng.normal(size=(64, 96)).astype("f2") for i in range(900)}
    save_file(tensors, tmp_path / "many.zt")
    with ztensor.open(tmp_path / "many.zt") as reader:
        text = ztensor.view(reader)._repr_html_()
    assert len(text) < 2_100_000
    with pytest.raises(ztensor.errors.ArgumentValueError):
        ztensor.view("missing.zt", height=5)  # before anything is read
