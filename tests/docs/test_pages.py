"""The pages keep their word: Python blocks run, and commands print what they are shown to."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ztensor.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in [*ROOT.glob("docs/*.md"), ROOT / "README.md"] if path.is_file())
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class FakeTerminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in _BLOCK.findall(page.read_text("utf-8"))]


def execute(code: str, names: dict[str, Any], page: Path) -> None:
    exec(compile(code, page.name, "exec"), names)  # noqa: S102  # our own page


def console(text: str) -> list[tuple[str, str]]:
    """Return the commands of a block, and what each is shown to print."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for kind, text in blocks(page):
        if kind == "python":
            execute(text, names, page)


def test_the_story_of_a_torn_file_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in their order; paths are shown without their folder, times are whatever they are."""
    page = ROOT / "docs" / "safety.md"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    names: dict[str, Any] = {}
    code: object = 0
    commands = 0
    for kind, text in blocks(page):
        if kind == "python":
            execute(text, names, page)
            continue
        for command, shown in console(text):
            commands += 1
            if command == "echo $?":
                assert shown == f"{code}\n"
                continue
            terminal = FakeTerminal()
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", terminal)
                patch.setattr(sys, "stderr", terminal)
                code = 0
                try:
                    app(shlex.split(command)[1:], prog_name="ztensor")
                except SystemExit as end:
                    code = end.code
            printed = terminal.text.replace(f"{tmp_path.resolve()}/", "")
            assert timeless(printed) == timeless(shown), command
    assert commands >= 5


def timeless(text: str) -> str:
    return re.sub(r"\d+\.\d+ s", "0.00 s", text)
