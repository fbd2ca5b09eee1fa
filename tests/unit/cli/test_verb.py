"""A verb is a function and a line of the list: one from outside works as ours do."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from ztensor.cli.main import VERBS, Verb

pytestmark = pytest.mark.slow

MODULE = '''
from argparse import Namespace

from ztensor.cli.choosing import name_filter
from ztensor.cli.options import CHOICE, FILE, NEW_FILE, Option
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import open_file

OPTIONS = (
    FILE,
    Option("--mark", metavar="MARK", default="!", help="Behind each name."),
    *CHOICE,
    *NEW_FILE,
)


def shout(terminal: Terminal, options: Namespace) -> None:
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
    with open_file(options.file) as reader:
        names = [name.upper() + options.mark for name in filter(name_filter(options), reader)]
    for name in names:
        terminal.line(name)
    terminal.result({"names": names, "dry_run": options.dry_run})
'''


@pytest.fixture
def shout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have one more verb, whose module lies outside the package."""
    (tmp_path / "a_verb_from_outside.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    line = Verb("Print names in capitals.", "a_verb_from_outside:shout")
    monkeypatch.setitem(VERBS["Look into files of any format"], "shout", line)
    yield
    sys.modules.pop("a_verb_from_outside", None)


@pytest.mark.usefixtures("shout")
def test_a_verb_from_outside(run: Run, model: Path) -> None:
    ended = run("shout", model, "--include", "h.*", "--mark", "?")
    assert (ended.lines, ended.code) == (["H.10.FP8?", "H.10.W?", "H.2.W?"], 0)
    found = run("shout", model, "--exclude", "h.*", "--json", "--dry-run").json
    assert (found["names"][0], found["dry_run"]) == ("BIAS!", True)
    assert run("shout", "missing.zt").code == 1
    assert run("shout").code == 2


@pytest.mark.usefixtures("shout")
def test_it_is_in_the_help_and_on_the_page(run: Run) -> None:
    assert "  shout        Print names in capitals." in run("--help").lines
    text = run("shout", "--help").out
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
