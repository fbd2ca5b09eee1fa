"""`ztensor browse`: on a real terminal, and without one."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ztensor.numpy import save_file

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_file({"layers.0.w": np.ones((4, 4), np.float32)}, tmp_path / "model.zt")
    return tmp_path / "model.zt"


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_without_a_terminal_it_prints_what_ls_does(
    run: Run, model: Path, option: list[str]
) -> None:
    ended = run("browse", model, *option)
    assert (ended.code, ended.err) == (0, "")
    assert "layers.0.w" in ended.out
    assert ended.out == run("ls", model, *option).out


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_it_begins_and_ends_on_a_terminal(model: Path) -> None:
    pytest.importorskip("textual")
    termios = pytest.importorskip("termios")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "-W", "error", "-m", "ztensor", "browse", str(model)]
    environment = os.environ | {"TERM": "xterm-256color"}
    said, has_quit, until = b"", False, time.monotonic() + 60
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        while process.poll() is None and time.monotonic() < until:
            if select.select([ours], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # its side is closed
                    said += os.read(ours, 65536)
            elif b"layers.0.w" in said and not has_quit:
                has_quit = os.write(ours, b"q") == 1
        process.kill()
    os.close(ours)
    assert process.returncode == 0
    assert b"model.zt: 1 tensor" in said
