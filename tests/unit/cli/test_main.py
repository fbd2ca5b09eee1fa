"""The parts that all verbs share: help, version, exit codes, streams, escaping."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.extent import sample
from tests.unit.cli.conftest import Ended, ExitCode, Run
from ztensor.ext import FORMATS
from ztensor.numpy import save_file

CORPUS = Path(__file__).parents[2] / "corpus"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def ztensor_command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ztensor", *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **options)


def require_plain(ended: Ended) -> None:
    assert not CONTROLS.search(ended.out)
    assert not CONTROLS.search(ended.err)


# --- Help and version -----------------------------------------------------------------------


def test_help_and_version(run: Run) -> None:
    ended = run("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"ztensor {ztensor.__version__}\n", "")
    for words in (("--help",), ("help",), ("ls", "--help"), ("help", "ls"), ("ls", "x", "-h")):
        ended = run(*words)
        assert (ended.code, ended.err) == (0, "")
        of = "ls [OPTIONS] FILE..." if "ls" in words else "VERB [OPTIONS] ARGUMENTS"
        assert ended.lines[0].partition("ztensor ")[2] == of
        for code in ExitCode:
            assert re.search(rf"^ *{code.value} +{code.meaning[:20]}", ended.out, re.MULTILINE)
    ended = run()
    assert (ended.code, ended.out) == (ExitCode.USAGE, run("--help").out)
    suffixes = ended.out.partition("Files may be")[2].partition(" or a model")[0]
    assert re.findall(r"\.\w+", suffixes) == FORMATS.read_suffixes()


# What must not be loaded are names of modules, or how they begin.
LIGHT = [
    (["--help"], ["numpy", "tqdm", "zstandard", "ztensor.cli.", "ztensor.io.opening"]),
    (["--version"], ["numpy", "tqdm", "zstandard", "argparse", "ztensor.io.opening"]),
    (["ls", "--help"], ["numpy", "tqdm", "zstandard", "ztensor.io.opening"]),
    (["append", "--help"], ["numpy", "tqdm", "zstandard", "ztensor.io.opening"]),
    (["ls", "FILE"], ["tqdm", "argcomplete", "torch", "jax", "h5py", "ztensor.formats."]),
    (["mv", "FILE", "bias", "new", "--dry-run"], ["tqdm", "torch", "jax", "h5py"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "heavy"), LIGHT, ids=" ".join)
def test_a_command_loads_only_what_it_needs(
    model: Path, arguments: list[str], heavy: list[str]
) -> None:
    arguments = [str(model) if argument == "FILE" else argument for argument in arguments]
    program = f"""
import sys
from ztensor.cli.main import main
try:
    main({arguments!r})
except SystemExit as end:
    assert end.code == 0
print(*sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    modules = done.stdout.splitlines()[-1].split()
    needed = {f"ztensor.cli.{name}" for name in ("main", "exits", "parsing", "options")}
    found = [name for name in modules if f"{name}.".startswith(tuple(heavy))]
    assert set(found) <= {"ztensor.cli", *needed}


@pytest.mark.slow
def test_the_address_of_a_page_is_said_before_a_server_is_loaded(model: Path) -> None:
    pytest.importorskip("starlette", reason="pip install starlette uvicorn")
    pytest.importorskip("uvicorn", reason="pip install starlette uvicorn")
    program = f"""
import sys, ztensor.insight.serving.server as server
server.ViewServer.run = lambda self: print(*sys.modules)
from ztensor.cli.main import main
try:
    main(["view", {str(model)!r}, "--no-browser", "--seconds", "60"])
except SystemExit as end:
    assert end.code == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    address, modules = done.stdout.splitlines()
    assert address.startswith("http://127.0.0.1:")
    slow = {"asyncio", "uvicorn", "starlette", "webbrowser"}
    slow |= {"ztensor.insight.analysis", "ztensor.insight.page", "ztensor.formats"}
    assert slow.isdisjoint(modules.split())


# --- The words behind a verb ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ls", "--sumary", "x"), "did you mean --summary?"),
        (("ls", "x", "--sort", "y"), "choose from"),
        (("ls",), "required: FILE"),
        (("info", "x", "y"), "unexpected argument 'y'"),
        (("show", "x", "y", "--value"), "did you mean --values?"),
        (("plot", "x", "--height", "0"), "'0' is not from 1 to 100"),
        (("verify", "x", "--jobs", "two"), "'two' is not a whole number"),
        (("rm", "x", "y", "--timeout", "nan"), "'nan' is not at least 0"),
        (("diff", "x", "y", "--atol"), "expected one argument"),
        (("ls", "x", "--json", "--quiet"), "exclude each other"),
        (("lst", "x"), "did you mean 'ls'?"),
        (("--nonsense",), "no option '--nonsense'"),
        ((str(CORPUS / "real" / "1.2.3" / "shapes.zt"),), "ztensor ls FILE"),
        (("show", "model.zt"), "`ztensor ls` lists the names"),
        # Words of other commands.
        (("list", "x"), "did you mean 'ls'?"),
        (("cat", "x"), "did you mean 'show'?"),
        (("delete", "x"), "did you mean 'rm'?"),
        (("check", "x"), "did you mean 'verify'?"),
        (("browse", "x"), "ztensor view"),
        (("bench", "x"), "timeit"),
        (("demo", "x"), "make demo"),
        (("export", "x"), "ztensor convert IN OUT"),
        (("migrate", "x"), "--in-place --version"),
        (("compress", "x"), "--in-place --compression"),
        (("decompress", "x"), "--in-place --compression"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_command_lines(run: Run, words: tuple[str, ...], said: str) -> None:
    ended = run(*words)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_options_and_arguments_come_in_any_order(run: Run, model: Path) -> None:
    expected = run("stats", model, "h.*", "bias", "--quantiles", "0.5", "--json").out
    assert expected
    assert run("stats", "--json", model, "--quantiles=0.5", "h.*", "bias").out == expected
    assert run("stats", model, "--json", "h.*", "--quantiles", "0.5", "--", "bias").out == expected


# --- Exit codes -----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["ls", "info", "verify"])
@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("corpus/real/1.2.3/shapes.zt", 0),
        ("corpus/reject/cbor_trailing.zt", 4),
        ("corpus2/reject/version_3.zt", 3),
        ("missing.zt", 1),
    ],
)
def test_exit_code_of_a_file(run: Run, verb: str, file: str, code: int) -> None:
    """Also where it is quiet, and in JSON, which has the error too."""
    path = CORPUS.parent / file
    ended, quiet, in_json = (run(verb, path, *more) for more in ((), ("--quiet",), ("--json",)))
    assert ended.code == quiet.code == in_json.code == code
    assert ended.err.startswith("error: ") == bool(code)
    assert (quiet.out, quiet.err) == ("", ended.err)
    if code == 4:
        found = in_json.json
        error = found["error"] if verb == "info" else found["files"][0]["error"]
        assert (error["type"], error["reason"]) == ("ManifestError", "cbor_trailing")
        assert error["message"] in in_json.err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), ["MemoryError"]),
        (
            ValueError("bad \x1b[31mname\u202e"),  # a bug of ours
            [r"error: bad \x1b[31mname\u202e", "please report", "in failing"],
        ),
    ],
    ids=["memory", "bug"],
)
def test_any_exception_is_printed_safely(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: list[str]
) -> None:
    def failing(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("ztensor.open", failing)
    ended = run("info", model, "--json")
    assert ended.code == 1
    assert all(word in ended.err for word in words)
    require_plain(ended)
    assert ended.json["error"]["type"] == type(error).__name__


@pytest.mark.parametrize("verb", ["ls", "verify"])
def test_with_several_files_the_highest_code_counts(run: Run, model: Path, verb: str) -> None:
    bad = CORPUS / "reject" / "cbor_trailing.zt"
    ended = run(verb, bad, model.parent / "missing.zt", model)
    assert ended.code == 4
    assert ended.err.count("error: ") == 2
    assert "scalar" in ended.out if verb == "ls" else "model.zt: ok" in ended.out


# --- Streams --------------------------------------------------------------------------------


@pytest.mark.slow
def test_standard_input_in_place_and_through_a_pipe(model: Path) -> None:
    expected = json.loads(ztensor_command("info", "--json", str(model)).stdout)
    with model.open("rb") as file:
        redirected = ztensor_command("info", "--json", "-", stdin=file)
    piped = ztensor_command("info", "--json", "-", input=model.read_bytes())
    for done in (redirected, piped):
        assert done.returncode == 0
        assert json.loads(done.stdout) == {**expected, "file": "-"}


PRINTING = [("ls",), ("ls", "--json"), ("info",), ("verify",), ("stats",), ("hash",)]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no shell that closes streams")
@pytest.mark.parametrize(
    "words", [*PRINTING, ("--version",), ("--help",), ("ls", "--help")], ids=" ".join
)
@pytest.mark.parametrize("how", ["closed", "full"])
def test_output_that_cannot_be_written_is_one_error(
    model: Path, words: tuple[str, ...], how: str
) -> None:
    command = [sys.executable, "-m", "ztensor", *words]
    if words in PRINTING:
        command.append(str(model))
    if how == "closed":
        # The shell closes it: a function for the child would be a fork of this process.
        script = ["/bin/sh", "-c", f"exec {shlex.join(command)} >&-"]
        done = subprocess.run(script, stderr=subprocess.PIPE, check=False, text=True)
    elif not os.path.exists("/dev/full"):
        pytest.skip("only Linux has a full device")
    else:
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, check=False, text=True
            )
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.startswith("error: standard output")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGPIPE and no closed streams")
def test_a_reader_that_goes_away_and_letters_the_output_lacks(tmp_path: Path) -> None:
    save_file({"重み": np.zeros(1)}, tmp_path / "letters.zt")
    command = [sys.executable, "-m", "ztensor", "ls", str(tmp_path / "letters.zt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # long before anything is printed
        assert process.stderr.read() == b""
        assert process.wait() == ExitCode.BROKEN_PIPE
    script = f"exec {shlex.join(command)} 2>&-"
    how: dict[str, Any] = {"env": {**os.environ, "PYTHONIOENCODING": "ascii"}}
    done = subprocess.run(["/bin/sh", "-c", script], stdout=subprocess.PIPE, check=True, **how)
    assert rb"\u91cd\u307f" in done.stdout  # although standard error is closed


# --- Hostile files --------------------------------------------------------------------------


def commands(path: Path, names: tuple[str, ...]) -> list[tuple[object, ...]]:
    return [
        ("ls", path),
        ("ls", path, path),
        ("info", path),
        ("verify", path),
        *(("show", path, name) for name in (*names, "strange")),
    ]


@pytest.mark.parametrize("how", ["in a pipe", "on a terminal", "--json"])
def test_hostile_text_is_escaped_in_every_verb(
    run: Run, run_on_terminal: Run, hostile: Path, hostile_names: tuple[str, ...], how: str
) -> None:
    call = run_on_terminal if how == "on a terminal" else run
    options = ("--json",) if how == "--json" else ()
    for command in commands(hostile, hostile_names):
        ended = call(*command, *options)
        assert ended.code == 0, ended.err
        require_plain(ended)
        assert not options or ended.json
    if options:
        (listed,) = run("ls", hostile, "--json").json["files"]
        assert {found["name"] for found in listed["objects"]} == {*hostile_names, "strange"}
        return
    listing = call("ls", hostile).out
    for shown in ("[red]x[/red]", "[link=http://example.org]x[/link]", "[/]", ":smile:"):
        assert shown in listing  # as it is: not interpreted, not taken away
    if how == "in a pipe":
        assert r"\x1b[31mred\x1b[0m" in listing
        assert r"line\x0afeed\x0d\x09tab\x0b\x0c" in listing
        assert len(listing.splitlines()) == 1 + len(hostile_names) + 1


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="names on Windows are Unicode")
def test_file_names_that_are_no_text(tmp_path: Path, hostile: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\x1b.zt"
    try:
        os.rename(hostile, path)
    except OSError:
        pytest.skip("this file system takes only text as names")
    plain = ztensor_command("verify", os.fsdecode(path))
    assert plain.returncode == 0
    assert rb"\udcff\x1b.zt: ok" in plain.stdout
    found = json.loads(ztensor_command("verify", "--json", os.fsdecode(path)).stdout)
    assert found["files"][0]["file"].endswith("\udcff\x1b.zt")


@pytest.mark.parametrize("verb", ["ls", "info", "verify", "show"])
@pytest.mark.parametrize("folder", ["real", "spec", "reject"])
def test_every_file_of_the_corpus(run: Run, folder: str, verb: str) -> None:
    """Any file ends with a documented code, plain output, and strict JSON."""
    files = sorted((CORPUS / folder).rglob("*.zt"))
    for path in sample(files, 3 if folder != "reject" else 24, lambda path: path.parent.name):
        names = ["-"]
        if verb == "show":
            try:
                names = ztensor.open(path).keys()[:8]
            except ztensor.ZTensorError:
                continue
        for name in names:
            arguments = (verb, path, "--", name) if verb == "show" else (verb, path)
            plain = run(*arguments)
            assert plain.code in (0, 1, 3, 4), path
            assert bool(plain.err) == (plain.code in (3, 4)), path
            require_plain(plain)
            as_json = run(*arguments[:2], "--json", *arguments[2:])
            assert as_json.code == plain.code
            require_plain(as_json)
            assert isinstance(as_json.json, dict)


def test_standard_input_that_cannot_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    stream = io.TextIOWrapper(io.BufferedReader(Broken()))
    monkeypatch.setattr("sys.stdin", stream)
    ended = run("info", "-")
    assert ended.code == 1
    assert "standard input" in ended.err
