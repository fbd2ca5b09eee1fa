"""The help of every verb, its examples, and the page that is made of both."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from ztensor.cli.main import VERBS

DOCS = Path(__file__).parents[3] / "docs"
SUMMARIES = {name: verb.summary for verbs in VERBS.values() for name, verb in verbs.items()}
SECTIONS = ["Output", "JSON", "Safety", "Exit code", "Examples"]


def load_generator() -> Any:
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE_CLI = load_generator()


@pytest.fixture(scope="module")
def samples() -> Iterator[Path]:
    with MAKE_CLI.samples() as folder:
        yield folder


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {path.stem: path.read_text("utf-8") for path in MAKE_CLI.FOLDER.glob("*.md")}


def require_library(verb: str | None) -> None:
    """Skip the test of a verb whose examples need a library that is missing."""
    if verb == "sign":
        pytest.importorskip("cryptography", reason="signatures need cryptography")


# --- The help -------------------------------------------------------------------------------


def test_every_function_that_is_a_verb_is_in_the_list() -> None:
    found = [
        node.name.rstrip("_")
        for path in (DOCS.parent / "src" / "ztensor" / "cli").glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and "Examples:" in (ast.get_docstring(node) or "")
    ]
    assert sorted(found) == sorted(SUMMARIES)


@pytest.mark.parametrize("verb", SUMMARIES)
def test_help_of_a_verb_is_a_page_of_a_manual(verb: str) -> None:
    about = MAKE_CLI.help_of(verb)
    assert about.paragraphs[0] == SUMMARIES[verb]
    assert list(about.sections) == SECTIONS
    assert "never" in " ".join(about.sections["Safety"]) or "As of" in about.sections["Safety"][0]
    assert about.examples
    for option in MAKE_CLI.command_of(verb).options:
        assert re.fullmatch(r"[^a-z].*\.|[a-z]+, .*\.", option.help), option.words
    prose, entries = MAKE_CLI.prose_and_entries(about.sections["JSON"])
    assert all(meaning for _, meaning in entries)
    if not entries:
        other = re.fullmatch(r"As of `ztensor (\w+)`\.", prose)
        assert other is not None
        assert other[1] in SUMMARIES


@pytest.mark.parametrize("verb", [None, *SUMMARIES], ids=str)
def test_help_fits_a_terminal_and_is_whole(
    run: Run, monkeypatch: pytest.MonkeyPatch, verb: str | None
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(*([] if verb is None else [verb]), "--help")
    assert ended.code == 0
    for line in ended.lines:
        assert len(line) <= 80
        assert not re.search(r"[a-z,]\.\.\.$", line), line
    if verb is None:
        assert {f"  {name:<11}  {text}" for name, text in SUMMARIES.items()} <= set(ended.lines)


@pytest.mark.parametrize("verb", SUMMARIES)
def test_the_help_explains_every_key_of_json(run: Run, verb: str, samples: Path) -> None:
    """Every key of the document, and of the entries of its lists."""
    require_library(verb)
    with MAKE_CLI.anew(samples):
        for command, _ in MAKE_CLI.help_of(verb).examples:  # the first may be another verb's
            ended = run(*shlex.split(command.split(" >")[0].replace("--quiet", ""))[1:], "--json")
            if command.startswith(f"ztensor {verb} "):
                break
    printed = set(ended.json)
    for value in ended.json.values():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            printed |= set(value[0])
    said = " ".join(MAKE_CLI.help_of(verb).sections["JSON"])
    if said.startswith("As of"):
        said = " ".join(MAKE_CLI.help_of(said.split()[3].strip("`.")).sections["JSON"])
    assert printed <= set(re.findall(r"\w+", said))


# --- The examples and the page --------------------------------------------------------------


@pytest.mark.parametrize("verb", [None, *SUMMARIES], ids=str)
def test_examples_do_what_they_say_and_print_what_the_page_shows(
    verb: str | None, samples: Path, pages: dict[str, str]
) -> None:
    require_library(verb)
    with MAKE_CLI.anew(samples):
        for command, effect in MAKE_CLI.help_of(verb).examples:
            shown, code = MAKE_CLI.run(command)
            said = re.search(r"exits with (\d+)", effect)
            assert code == (int(said[1]) if said else 0), command
            assert f"```console\n$ {command}\n{shown}" in pages[verb or "index"]


@pytest.mark.slow
def test_the_pages_are_what_the_generator_writes(pages: dict[str, str]) -> None:
    """Where they are not, `make suite SUITE=pages` writes them anew."""
    assert pages == MAKE_CLI.pages()


def test_each_verb_has_a_page_and_the_first_page_leads_there(pages: dict[str, str]) -> None:
    assert sorted(pages) == sorted(["index", *SUMMARIES])
    for verb in SUMMARIES:
        assert pages[verb].startswith(f"# `ztensor {verb}`\n")
        assert f"]({verb}.md)" in pages["index"]
