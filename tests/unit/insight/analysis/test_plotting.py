from __future__ import annotations

import builtins
import re
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import plot
from ztensor.insight import Picture
from ztensor.numpy import save

ARRAYS = {
    "layers.0.weight": np.random.default_rng(0).normal(size=(60, 50)),
    "<&\x1b\u202e>" + "long" * 40: np.arange(9),
    "bad": np.array([np.nan, np.inf, 1.0, 2.0]),
    "nothing": np.full(2, np.nan),
    "empty": np.zeros(0),
    "one value": np.ones(3),
}
SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: Picture) -> Any:
    return ElementTree.fromstring(picture.svg())  # noqa: S314  # our own text


def texts(picture: Picture) -> list[str]:
    return [element.text or "" for element in parsed(picture).iter(f"{SVG}text")]


def test_a_picture_has_what_people_read() -> None:
    shown = texts(plot(save(ARRAYS), title="model.zt"))
    assert shown[0] == "model.zt"
    assert {"layers.0.weight", "[60, 50] float64", "1 NaN, 1 inf", "2 NaN"} <= set(shown)
    assert {"no finite values", "no values"} <= set(shown)
    assert not any("\x1b" in text or "\u202e" in text for text in shown)
    assert any(text.startswith(r"<&\x1b\u202e>long") and "…" in text for text in shown)


def test_every_panel_has_its_bars() -> None:
    root = parsed(plot(save(ARRAYS)))
    assert len(list(root.iter(f"{SVG}path"))) == 4  # two have nothing to draw
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"


def test_nothing_reaches_out_of_the_picture_or_into_another_panel() -> None:
    picture = plot(save(ARRAYS), title="n" * 500)
    for element in parsed(picture).iter(f"{SVG}text"):
        x, size = float(element.attrib["x"]), float(element.attrib["font-size"])
        width = len(element.text or "") * size * 0.66
        left = {"end": x - width, "middle": x - width / 2}.get(
            element.attrib.get("text-anchor", "start"), x
        )
        assert left >= 0
        assert left + width <= picture.width
        if size < 14:
            assert (left - 12) // 328 == (left + width - 13) // 328


@pytest.mark.parametrize(
    ("names", "size", "is_whole"),
    [
        (["w", "layers.0.weight"], 12, True),
        (["w", "encoder.layer.0.attention.self.query.weight"], 11, True),
        (["w", "encoder.layer.0.attention.output.LayerNorm.weight"], 10, True),
        (["w", "encoder.layer.0.attention.output.LayerNorm.weight.and.more"], 10, False),
        (["w", "W" * 40], 10, False),
        (["w", "重" * 40], 10, False),
    ],
    ids=lambda case: case[1][-12:] if isinstance(case, list) else None,
)
def test_names_are_whole_where_smaller_letters_make_them_fit(
    names: list[str], size: int, is_whole: bool
) -> None:
    found = list(parsed(plot(save(dict.fromkeys(names, np.ones(3))))).iter(f"{SVG}text"))
    titles = [element for element in found if element.attrib.get("font-weight") == "bold"]
    assert {element.attrib["font-size"] for element in titles} == {str(size)}
    (shown,) = (element.text or "" for element in titles if element.text != "w")
    assert (shown == names[1]) == is_whole
    if not is_whole:
        head, tail = shown.split("…")
        assert names[1].startswith(head)
        assert names[1].endswith(tail)
        assert abs(len(head) - len(tail)) <= 3


def test_the_same_tensors_give_the_same_picture() -> None:
    assert plot(save(ARRAYS)).svg() == plot(save(ARRAYS), threads=1)._repr_svg_()


@pytest.mark.parametrize("options", [{"scale": "log"}, {"log_counts": True}, {"bins": 7}], ids=str)
def test_options_change_the_bars(options: dict[str, Any]) -> None:
    data = save({"w": ARRAYS["layers.0.weight"]})
    plain, other = (list(parsed(p).iter(f"{SVG}path")) for p in (plot(data), plot(data, **options)))
    assert plain[0].attrib["d"] != other[0].attrib["d"]


def test_one_value_among_many_is_seen() -> None:
    values = np.append(np.zeros(100_000), 1.0)
    (bars,) = parsed(plot(save({"w": values}))).iter(f"{SVG}path")
    levels = [float(part) for part in re.findall(r"V([0-9.]+)", bars.attrib["d"])]
    bottom = max(levels)
    assert levels[-2:] == [bottom - 2, bottom]  # up to the last bin, and down at its end
    assert levels.count(bottom) == 2  # the empty bins between are no bars


def test_no_objects_make_an_empty_picture() -> None:
    assert texts(plot(save({}), title="empty")) == ["empty"]


def test_an_svg_is_saved(tmp_path: Path) -> None:
    picture = plot(save(ARRAYS))
    picture.save(tmp_path / "p.SVG")
    assert (tmp_path / "p.SVG").read_text("utf-8") == picture.svg()


@pytest.mark.slow
def test_a_png_is_saved(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow draws PNG")
    picture = plot(save(ARRAYS), title="model.zt")
    picture.save(str(tmp_path / "p.png"))
    data = (tmp_path / "p.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (picture.width * 2, picture.height * 2)
    with image.open(tmp_path / "p.png") as opened:
        colours = {colour for _, colour in opened.convert("RGB").getcolors(1 << 20)}
    assert {(255, 255, 255), (0x4A, 0x90, 0xD9)} <= colours


def test_a_png_without_pillow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ztensor.MissingDependencyError, match=r"pyztensor\[plot\]"):
        plot(save(ARRAYS)).save(tmp_path / "p.png")
    assert not list(tmp_path.iterdir())


def test_a_png_of_too_many_objects() -> None:
    pytest.importorskip("PIL", reason="Pillow draws PNG")
    with pytest.raises(ztensor.errors.ArgumentValueError, match="too many objects"):
        Picture(1000, 100_000, ()).png()


def test_another_ending(tmp_path: Path) -> None:
    with pytest.raises(ztensor.errors.ArgumentValueError, match=r"\.svg or \.png"):
        plot(save({"w": np.ones(1)})).save(tmp_path / "p.pdf")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ztensor.SourceError):
        plot(save({"w": np.ones(1)})).save(tmp_path / "no" / "p.svg")
