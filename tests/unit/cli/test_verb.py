"""A verb is a function and a line of the list: one from outside works as ours do."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from ztensor.cli.main import VERBS, Verb, app, command_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

MODULE = '''
from typing import Annotated

import typer

from ztensor.cli.options import Choice, FileArgument, NewFile
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import open_file


def shout(
    terminal: Terminal,
    file: FileArgument,
    *,
    mark: Annotated[str, typer.Option(metavar="MARK", help="Behind each name.")] = "!",
    choice: Choice,
    how: NewFile,
) -> None:
    """Print names in capitals.

    Output:
      A name to a line.

    JSON:
      names           a list

    Safety:
      It never changes a file.

    Exit code:
      0 where the file could be opened.

    Examples:
      $ ztensor shout tiny.npz --include 'layers.*'
        some of the names
    """
    with open_file(file) as reader:
        names = [name.upper() + mark for name in filter(choice.keep, reader)]
    for name in names:
        terminal.line(name)
    terminal.result({"names": names, "dry_run": how.dry_run})
'''


@pytest.fixture
def shout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The command with one more verb, whose module lies outside the package."""
    (tmp_path / "a_verb_from_outside.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    line = Verb("Print names in capitals.", "a_verb_from_outside:shout")
    monkeypatch.setitem(VERBS["Look into files of any format"], "shout", line)
    yield typer.main.get_command(app)
    command_of.cache_clear()
    sys.modules.pop("a_verb_from_outside", None)


def said(command: Any, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, object]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        command.main(list(words), prog_name="ztensor")
    return capsys.readouterr().out, end.value.code


def test_a_verb_from_outside(shout: Any, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code = said(shout, capsys, "shout", str(model), "--include", "h.*", "--mark", "?")
    assert (text.splitlines(), code) == (["H.10.FP8?", "H.10.W?", "H.2.W?"], 0)
    text, _ = said(shout, capsys, "shout", str(model), "--exclude", "h.*", "--json", "--dry-run")
    assert json.loads(text)["names"][0] == "BIAS!"
    assert json.loads(text)["dry_run"]
    assert said(shout, capsys, "shout", "missing.zt")[1] == 1
    assert said(shout, capsys, "shout")[1] == 2


def test_it_is_in_the_help_and_on_the_page(shout: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "  shout        Print names in capitals." in said(shout, capsys, "--help")[0].split("\n")
    text, _ = said(shout, capsys, "shout", "--help")
    assert [word in text for word in ("--mark", "--include", "--force", "--json")] == [True] * 4
    place = Path(__file__).parents[3] / "docs" / "make_cli.py"
    spec = importlib.util.spec_from_file_location("make_cli", place)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert "| [`shout`](#ztensor-shout) | Print names in capitals. |" in generator.overview()
    page = generator.page()
    assert "## `ztensor shout`\n\n```text\nztensor shout [OPTIONS] FILE\n```" in page
    assert "LAYERS.0.BIAS!\n" in page
