from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import ExitCode, Run

pytest.importorskip("argcomplete", reason="pip install argcomplete")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_is_of_the_shell(run: Run, shell: str) -> None:
    ended = run("completions", shell)
    assert ended.code == 0
    assert "ztensor" in ended.out
    assert "_ARGCOMPLETE" in ended.out
    assert "\\x" not in ended.out.replace("\\x0", "")  # no text of it was escaped
    if shell == "bash" and (bash := shutil.which("bash")) is not None:
        script = ended.out.encode()
        done = subprocess.run([bash, "-n"], input=script, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    assert run("completions", "csh").code == ExitCode.USAGE


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the words go through a file descriptor")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ztensor s", {"show", "sign", "stats", "split", "set"}),
        ("ztensor convert --del", {"--delete-input"}),
        ("ztensor ls --sort o", {"offset"}),
        ("ztensor show model.zt h.1", {"h.10.fp8", "h.10.w"}),
        ("ztensor rm model.zt sc", {"scalar"}),
        ("ztensor mv model.zt fl", {"flags"}),
        ("ztensor replace model.zt emp", {"empty"}),
        ("ztensor set model.zt --object bi", {"bias"}),
        ("ztensor show missing.zt h.1", set()),
        ("ztensor show hostile.zt str", {"strange"}),  # the only one that no shell would change
    ],
)
def test_words_are_completed(model: Path, hostile: Path, line: str, offered: set[str]) -> None:
    """As the script of bash asks for it."""
    answer = model.with_name("answer")
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    asked |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    command = [sys.executable, "-m", "ztensor"]
    done = subprocess.run(
        command, capture_output=True, check=False, cwd=model.parent, env={**os.environ, **asked}
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    found = {word.strip() for word in answer.read_text().split("\x0b") if word.strip()}
    assert found == offered
