"""The input files, errors and exit code of any verb."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor import ext
from ztensor.cli.exits import ExitCode
from ztensor.cli.terminal import Terminal, let_go, message_of
from ztensor.errors import ManifestError, SourceError, ZTensorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ztensor import Reader
    from ztensor.cli.parsing import Command

STDIN = "-"


def call(command: Command, words: Sequence[str]) -> ExitCode:
    """Run a verb, print its error if any, and return the exit code."""
    terminal = Terminal()
    terminal.hide(words)
    try:
        if not {"-h", "--help"}.isdisjoint(itertools.takewhile("--".__ne__, words)):
            print(command.explain(), end="")
            return ExitCode.OK
        options = command.parse(words)
        if getattr(options, "files", None):
            options.files = matched(options.files)
        terminal.wants_json, terminal.quiet = options.json, options.quiet
        command.function(terminal, options)
    except OSError as error:
        if not isinstance(error, ZTensorError):
            raise  # of standard output
        _print_error(terminal, error)
    except Exception as error:  # noqa: BLE001  # a bug: its text may quote a file, too
        _print_error(terminal, error)
    terminal.finish()
    return terminal.exit_code


def matched(files: list[str]) -> list[str]:
    """Return files with each pattern replaced by its matches, in a store or on disk.

    Most shells expand local patterns, but few expand `**`, and the shell of Windows expands none.

    Raises:
        ZTensorError: a store fails, or has no match.
    """
    found: list[str] = []
    for file in files:
        if ext.is_remote(file):
            found += ext.Store.of(file).expanded(file)
        elif "://" in file or not set("*?[").intersection(file) or os.path.lexists(file):
            found.append(file)
        else:
            import glob

            found += sorted(glob.glob(file, recursive=True)) or [file]
    return found


def in_order(
    files: Sequence[str], found: Iterable[tuple[Any, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the reports on files in the order of `files`, not of completion."""
    places = {file: place for place, file in enumerate(files)}
    return [report for _, report in sorted(found, key=lambda pair: places[pair[0]])]


def _print_error(terminal: Terminal, error: Exception) -> None:
    details = []
    if not isinstance(error, (ZTensorError, MemoryError)):
        details = ["this is a bug in ztensor, please report it with these lines:"]
        details += "".join(traceback.format_exception(error)).splitlines()
    terminal.error(error, details=details)
    if not terminal.has_result:
        terminal.result({"error": error_as_json(error)})


def code_without_output(error: OSError) -> ExitCode:
    """Print that standard output failed, and return the exit code for it."""
    let_go(sys.stdout)
    if error.errno == errno.EPIPE or (os.name == "nt" and error.errno == errno.EINVAL):
        return ExitCode.BROKEN_PIPE
    terminal = Terminal()
    terminal.error(SourceError.from_os(error, "cannot write", "standard output"))
    with contextlib.suppress(OSError):
        terminal.finish()
    return ExitCode.FAILED


def open_file(file: str) -> Reader:
    """Open a file of the command line; `-` is standard input.

    Standard input is read in place if it is a file, and into memory if it is a pipe.

    Raises:
        ZTensorError: the file cannot be opened.
    """
    if file != STDIN:
        return ztensor.open(file, mmap=False)  # a mapped file may be truncated meanwhile
    stream = sys.stdin.buffer
    try:
        return ztensor.open(stream if stream.seekable() else stream.read())
    except OSError as error:
        if isinstance(error, ZTensorError):
            raise
        raise SourceError.from_os(error, "cannot read", "standard input") from error


def error_as_json(error: Exception) -> dict[str, Any]:
    """Return an error as JSON, the same for every verb."""
    problems = error.problems if isinstance(error, ManifestError) else ()
    reason = error.reason if isinstance(error, ZTensorError) else None
    return {
        "type": type(error).__name__,
        "reason": None if reason is None else reason.value,
        "message": message_of(error),
        "problems": [problem_as_json(problem) for problem in problems],
    }


def problem_as_json(problem: Any) -> dict[str, Any]:
    """Return a problem as JSON, the same for every verb."""
    return {
        "reason": problem.reason.value,
        "message": problem.message,
        "object": problem.object_name,
        "component": problem.component,
        "path": list(problem.path),
        "section": problem.section,
    }
