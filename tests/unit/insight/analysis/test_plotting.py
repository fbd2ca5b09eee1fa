from __future__ import annotations

import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import plot
from ztensor.numpy import save

pytest.importorskip("matplotlib", reason="matplotlib draws pictures")

ARRAYS = {
    "layers.0.weight": np.random.default_rng(0).normal(size=(60, 50)),
    "<&\x1b\u202e>" + "long" * 40: np.arange(9),
    "bad": np.array([np.nan, np.inf, 1.0, 2.0]),
    "nothing": np.full(2, np.nan),
    "empty": np.zeros(0),
    "one value": np.ones(3),
}
SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: ztensor.insight.Picture) -> Any:
    return ElementTree.fromstring(picture.svg())  # noqa: S314  # our own text


def texts(picture: ztensor.insight.Picture) -> list[str]:
    return [element.text or "" for element in parsed(picture).iter(f"{SVG}text")]


def bars(picture: ztensor.insight.Picture) -> list[list[float]]:
    """Return, for each histogram, the points of its outline, y falling as bars rise."""
    paths = [p for p in parsed(picture).iter(f"{SVG}path") if "#4a90d9" in p.get("style", "")]
    pairs = [re.findall(r"[ML] \S+ (\S+)", path.attrib["d"]) for path in paths]
    return [[float(y) for y in levels] for levels in pairs]


def test_a_picture_has_what_people_read() -> None:
    picture = plot(save(ARRAYS), title="model.zt")
    assert len(bars(picture)) == 4  # two have nothing to draw
    assert texts(plot(save({}), title="empty")) == ["empty"]
    shown = texts(picture)
    assert "model.zt" in shown
    assert {"layers.0.weight", "[60, 50] float64", "1 NaN, 1 inf", "2 NaN"} <= set(shown)
    assert {"no finite values", "no values"} <= set(shown)
    assert not any("\x1b" in text or "\u202e" in text for text in shown)
    assert any(text.startswith(r"<&\x1b\u202e>long") and "…" in text for text in shown)


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", ["layers.0.weight", "$x^2$ \\frac{1}{0}", "long" * 60, "重" * 60])
def test_names_fit_over_their_panel(name: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    picture = plot(save({name: np.array([np.nan, 1.0]), "other": np.ones(3)}), title=name * 9)
    assert picture.png().startswith(b"\x89PNG")
    assert name in texts(picture) or len(name) > 50  # no formula
    renderer = FigureCanvasAgg(picture.figure).get_renderer()  # type: ignore[no-untyped-call]
    for panel in picture.figure.axes:
        left, right = panel.get_window_extent().intervalx
        for text in panel.texts:
            extent = text.get_window_extent(renderer)
            assert left - 1 <= extent.x0
            assert extent.x1 <= right + 1
    (title,) = picture.figure.texts
    assert title.get_window_extent(renderer).x1 <= picture.figure.bbox.width


def test_the_same_tensors_give_the_same_picture() -> None:
    assert plot(save(ARRAYS)).svg() == plot(save(ARRAYS), threads=1)._repr_svg_()


@pytest.mark.parametrize("options", [{"scale": "log"}, {"log_counts": True}, {"bins": 7}], ids=str)
def test_options_change_the_bars(options: dict[str, Any]) -> None:
    data = save({"w": ARRAYS["layers.0.weight"]})
    assert bars(plot(data)) != bars(plot(data, **options))


def test_one_value_among_many_is_seen() -> None:
    values = np.append(np.zeros(100_000), 1.0)
    (levels,) = bars(plot(save({"w": values}), bins=10))
    bottom, top = max(levels), min(levels)
    lowest = min(bottom - y for y in levels if y < bottom)
    assert lowest == pytest.approx((bottom - top) / 40, rel=1e-3)


def test_pictures_are_saved(tmp_path: Path) -> None:
    picture = plot(save(ARRAYS), title="model.zt")
    picture.save(tmp_path / "p.SVG")
    assert (tmp_path / "p.SVG").read_text("utf-8") == picture.svg()
    picture.save(str(tmp_path / "p.png"))
    data = (tmp_path / "p.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    size = picture.figure.get_size_inches() * picture.figure.dpi
    assert struct.unpack(">II", data[16:24]) == tuple(size.round().astype(int))
    with pytest.raises(ztensor.errors.ArgumentValueError, match=r"\.svg or \.png"):
        picture.save(tmp_path / "p.pdf")
    with pytest.raises(ztensor.SourceError):
        picture.save(tmp_path / "no" / "p.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.SVG", "p.png"]


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ztensor.MissingDependencyError, match="pip install matplotlib"):
        plot(save(ARRAYS))


def test_a_png_of_too_many_objects() -> None:
    with pytest.raises(ztensor.errors.ArgumentValueError, match="too many objects"):
        ztensor.insight.Picture(plot(save(ARRAYS)).figure, rows=1000).png()
