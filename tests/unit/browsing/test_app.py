"""The browser driven by keys, at 80 x 24: what is on the screen, and what is computed when."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.page.test_report import hostile_model
from ztensor.numpy import save_file

pytest.importorskip("textual")

from ztensor.browsing import app as browsing
from ztensor.browsing.app import Browser
from ztensor.browsing.lists import Names, fitted

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)


def driven(path: Path, steps: Callable[[Browser, Any], Coroutine[Any, Any, None]]) -> None:
    """Run a browser on a file, and the steps of a test in it."""

    async def run() -> None:
        with ztensor.open(path, mmap=False) as reader:
            app = Browser(reader)
            async with app.run_test(size=(80, 24)) as pilot:
                await pilot.pause()
                await steps(app, pilot)

    asyncio.run(run())


def panel(app: Browser) -> str:
    return str(app.query_one("#tensor").render())


def screen(app: Browser) -> list[str]:
    names = app.query_one(Names)
    return ["".join(one.text for one in names.render_line(y)) for y in range(names.size.height)]


async def until(pilot: Any, app: Browser, *words: str) -> str:
    for _ in range(200):
        await pilot.pause(0.05)
        if all(word in panel(app) for word in words):
            break
    assert all(word in panel(app) for word in words), panel(app)
    return panel(app)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tensors = {f"layers.{i}.w": RNG.normal(0, 1, (64, 96)).astype("f4") for i in range(3)}
    tensors["layers.1.w"][0, 0] = np.nan
    save_file({**tensors, "embed": np.ones((4, 4), "f4")}, tmp_path / "model.zt")
    return tmp_path / "model.zt"


def test_the_chosen_tensor_is_shown(model: Path) -> None:
    async def steps(app: Browser, pilot: Any) -> None:
        assert "model.zt: 4 tensors" in str(app.query_one("#head").render())
        await until(pilot, app, "embed", "[4, 4]", "dense raw, crc32c", "min    1")
        await pilot.press("down", "down")
        said = await until(pilot, app, "layers.1.w", "kurtosis", "nans", "█")
        assert len(said.splitlines()) <= 21  # what 24 lines have room for
        await pilot.press("up")
        await until(pilot, app, "layers.0.w", "kurtosis")

    driven(model, steps)


def test_names_are_searched_and_shown_as_a_tree(model: Path) -> None:
    async def steps(app: Browser, pilot: Any) -> None:
        await pilot.press("slash", *"LAYERS 2")
        await pilot.pause()
        assert screen(app)[0].split() == ["layers.2.w"]
        await until(pilot, app, "layers.2.w", "kurtosis")
        await pilot.press("enter", "t")
        await pilot.pause()
        assert [line.split()[:2] for line in screen(app)[:3]] == [
            ["-", "layers"], ["-", "2"], ["w"],
        ]  # fmt: skip
        await pilot.press("home", "left")
        await pilot.pause()
        assert screen(app)[0].split() == ["+", "layers", "1"]
        assert "1 tensor" in panel(app)
        await pilot.press("slash", "x")
        await pilot.pause()
        assert "nothing found" in panel(app)

    driven(model, steps)


def test_findings_are_listed(model: Path) -> None:
    async def steps(app: Browser, pilot: Any) -> None:
        await pilot.press("f")
        await until(pilot, app, "finding", "error layers.1.w", "[nan]")
        await pilot.press("escape")
        await until(pilot, app, "embed", "min    1")

    driven(model, steps)


def test_what_is_computed_ends_when_it_is_left(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()
    real = ztensor.stats

    def endless(reader: Any, names: list[str], **options: Any) -> Any:
        if names != ["layers.0.w"]:
            return real(reader, names, **options)
        begun.set()
        try:
            while True:
                options["progress"](0, 1)
        except browsing.Left:
            ended.set()
            raise

    monkeypatch.setattr(browsing, "stats", endless)

    async def steps(app: Browser, pilot: Any) -> None:
        await pilot.press("down")
        for _ in range(100):
            await pilot.pause(0.02)
            if begun.is_set():
                break
        await pilot.press("down")
        await until(pilot, app, "layers.1.w", "kurtosis")
        assert ended.wait(10)

    driven(model, steps)


def test_a_file_that_changes_or_goes_is_said(model: Path) -> None:
    async def steps(app: Browser, pilot: Any) -> None:
        assert not app.query_one("#change").display
        os.remove(model)
        await pilot.pause(browsing.WATCH_SECONDS * 1.5)
        assert app.query_one("#change").display
        assert "model.zt is gone" in str(app.query_one("#change").render())

    driven(model, steps)


def test_every_file_of_a_set_has_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "_WATCHED", 2)
    monkeypatch.setattr(browsing, "WATCH_SECONDS", 0.02)
    files = [tmp_path / f"{i}.zt" for i in range(7)]
    for i, file in enumerate(files):
        save_file({f"layers.{i}.w": np.ones(3)}, file)

    async def steps(app: Browser, pilot: Any) -> None:
        said = app.query_one("#change")
        for file in files:
            kept = file.rename(tmp_path / "aside")
            for _ in range(200):
                await pilot.pause(0.02)
                if said.display:
                    break
            assert f"{file.name} is gone" in str(said.render())
            kept.rename(file)
            await pilot.pause(0.3)
            assert not said.display

    driven(tmp_path, steps)


def test_damage_is_said_of_its_tensor_alone(model: Path) -> None:
    with ztensor.open(model) as reader:
        at = reader.location("layers.0.w").offset
    data = bytearray(model.read_bytes())
    data[at] ^= 1
    model.write_bytes(data)

    async def steps(app: Browser, pilot: Any) -> None:
        await pilot.press("down")
        await until(pilot, app, "layers.0.w", "digest")
        await pilot.press("down")
        await until(pilot, app, "layers.1.w", "kurtosis")

    driven(model, steps)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_hostile_names_are_safe_to_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_color: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    path = hostile_model(tmp_path / "hostile.zt")

    async def steps(app: Browser, pilot: Any) -> None:
        for keys in (["down"] * 2, ["end"], ["up"], ["up"], ["up"] * 3, ["t"], ["enter"]):
            await pilot.press(*keys)
            assert all(line.isprintable() for line in screen(app))
            assert all(line.isprintable() for line in panel(app).splitlines())

    driven(path, steps)


def test_of_many_names_only_those_seen_are_looked_at(tmp_path: Path) -> None:
    few = np.zeros(1, np.float32)
    save_file({f"layers.{i}.w": few for i in range(20_000)}, tmp_path / "many.zt")

    async def steps(app: Browser, pilot: Any) -> None:
        asked: list[int] = []
        real = app.lines.__class__.__getitem__

        class Counted(app.lines.__class__):  # type: ignore[name-defined,misc]
            def __getitem__(self, at: int) -> Any:
                asked.append(at)
                return real(self, at)

        app.lines.__class__ = Counted
        await pilot.press("end")
        await pilot.pause()
        assert max(asked) == 19_999
        assert len(set(asked)) < 100

    driven(tmp_path / "many.zt", steps)


@pytest.mark.parametrize(
    ("text", "right", "width", "expected"),
    [
        ("name", "", 6, "name  "),
        ("name", "f4", 10, "name    f4"),
        ("encoder.weight", "", 9, "enco…ight"),
        ("\u8a9e\u8a9e\u8a9e\u8a9e", "", 6, "\u8a9e …\u8a9e"),
        ("name", "", 1, "…"),
    ],
)
def test_a_line_is_cut_in_its_middle(text: str, right: str, width: int, expected: str) -> None:
    assert fitted(text, right, width) == expected
