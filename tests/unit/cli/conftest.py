from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.terminals import FakeTerminal
from ztensor.cli.exits import ExitCode
from ztensor.cli.main import main
from ztensor.numpy import save_file

__all__ = ["Ended", "ExitCode", "Run"]


@dataclasses.dataclass(frozen=True)
class Ended:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output, read as strictly as JSON can be."""

        def refuse(word: str) -> Any:
            raise AssertionError(f"{word} is no JSON")

        return json.loads(self.out, parse_constant=refuse)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, its output not a terminal."""

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code: object = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        assert isinstance(code, int)
        return Ended(code, printed.out, printed.err)

    return run


@pytest.fixture
def run_on_terminal(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process, as if on a terminal of `width` columns."""

    def run(*arguments: object, width: int = 80) -> Ended:
        out, err = FakeTerminal(), FakeTerminal()
        code: object = 0
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            patch.setattr("sys.stdout", out)
            patch.setattr("sys.stderr", err)
            try:
                main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = end.code
        assert isinstance(code, int)
        return Ended(code, out.text, err.text)

    return run


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """Make the folder of the test the working one."""
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with an object of every layout and of some types."""
    weight = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
    tensors = {
        "h.2.w": weight,
        "h.10.w": weight.astype(ml_dtypes.bfloat16),
        "h.10.fp8": weight.astype(ml_dtypes.float8_e4m3fn),
        "bias": np.array([1.0, np.nan, np.inf, -3.0]),
        "scalar": np.array(7),
        "empty": np.zeros((0, 4), np.float16),
        "flags": np.array([True, False, True]),
        "sparse": ztensor.Tensor.csr(
            np.array([1.5, -2.5], np.float32), [1, 3], [0, 1, 1, 2], (3, 4)
        ),
        "int4": ztensor.Tensor.quantize(weight, bits=4, group_size=32),
    }
    path = tmp_path / "model.zt"
    save_file(tensors, path, {"format": "pt", "blob": b"\x00\xff"})
    return path


# Control sequences for terminals and pagers, invisible characters, and markup.
HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://example.org\x1b\\link",
    "\x9b31mC1",
    "back\x08\x08space",
    "line\nfeed\r\ttab\x0b\x0c",
    "del\x7f",
    "nul\x00",
    "bidi\u202e\u2066\u200e\u200f",
    "zero\u200b\u200d\ufeffwidth",
    "\u2028\u2029\x85",
    "[red]x[/red]",
    "[link=http://example.org]x[/link]",
    "[/]",
    ":smile:",
    "private\ue000 unassigned\U000e0fff",
    "marks" + "\u0301" * 50,
    "\u0301mark first",
    "\u3164filler",
    "x" * 2000,
)


@pytest.fixture
def hostile_names() -> tuple[str, ...]:
    return HOSTILE


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A file with hostile names, attributes and values."""
    path = tmp_path / "hostile.zt"
    with ztensor.Writer(
        path, attributes={text: [text, {text: text}] for text in HOSTILE}
    ) as writer:
        for index, name in enumerate(HOSTILE):
            writer.write(name, np.arange(index), attributes={name: name})
        # An unknown layout and role.
        strange = ztensor.Tensor(
            {"\x1b[1mrole": np.zeros(2)}, shape=(2,), format="\x1b[2Jformat[bold]"
        )
        writer.write("strange", strange)
    return path
