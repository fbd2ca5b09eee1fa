from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from ztensor.cli.exits import ExitCode

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_is_of_the_shell(run: Run, shell: str) -> None:
    ended = run("completions", shell)
    assert ended.code == 0
    assert "ztensor" in ended.out
    variable = "_ZTENSOR_COMPLETE"
    assert variable in ended.out
    assert "\\x" not in ended.out  # nothing of it was taken for a stranger's text


def test_bash_takes_it(run: Run) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    script = run("completions", "bash").out
    done = subprocess.run([bash, "-n"], input=script.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_unknown_shell(run: Run) -> None:
    assert run("completions", "csh").code == ExitCode.USAGE
