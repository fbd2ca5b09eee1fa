"""What every verb does around its work: its options, its input, and how it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import inspect
import os
import sys
import traceback
import typing
from typing import TYPE_CHECKING, Any

import typer

from ztensor.cli.exits import ExitCode
from ztensor.cli.options import Output
from ztensor.cli.terminal import Terminal, let_go, message_of
from ztensor.errors import ManifestError, SourceError, ZTensorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ztensor.opening import Reader

STDIN = "-"


def as_command(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb as typer takes it: each option a parameter of its own.

    Args:
        verb: takes a `Terminal`, which it gets here, then arguments, options, and bundles of
            options; see `options.py`. `--json` and `--quiet` are added.
    """
    bundles: dict[str, tuple[type[Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    _, *own = inspect.signature(verb, eval_str=True).parameters.values()
    for parameter in own:
        kind = parameter.annotation
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            options = list(_options_of(kind))
            bundles[parameter.name] = kind, [option.name for option in options]
            parameters += options
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    parameters += _options_of(Output)

    def call(**values: Any) -> None:
        with running(json=values.pop("json"), quiet=values.pop("quiet")) as terminal:
            terminal.hide(values.values())
            for name, (bundle, names) in bundles.items():
                values[name] = bundle(**{option: values.pop(option) for option in names})
            if values.get("files"):
                values["files"] = matched(values["files"])
            verb(terminal, **values)

    vars(call)["__signature__"] = inspect.Signature(parameters)
    return call


def matched(files: list[str]) -> list[str]:
    """Return files, each pattern replaced by what matches it, in a store or here.

    Most shells do that with names here, but none with `**` everywhere, and that of Windows never.

    Raises:
        ZTensorError: a store cannot be asked, or has nothing that matches.
    """
    if any("://" in one for one in files):
        from ztensor.source.prefixes import expanded

        files = expanded(files)
    found: list[str] = []
    for file in files:
        if "://" in file or not set("*?[").intersection(file) or os.path.lexists(file):
            found.append(file)
            continue
        import glob

        found += sorted(glob.glob(file, recursive=True)) or [file]
    return found


def in_order(
    files: Sequence[str], found: Iterable[tuple[Any, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return what was found of files in their order, not in that in which they were done."""
    places = {file: place for place, file in enumerate(files)}
    return [one for _, one in sorted(found, key=lambda pair: places[pair[0]])]


def _options_of(bundle: type[Any]) -> Iterator[inspect.Parameter]:
    """Yield the options of a bundle, its own before those of the bundles it is made of."""
    kinds = typing.get_type_hints(bundle, include_extras=True)
    for base in bundle.__mro__:
        for name in inspect.get_annotations(base):
            yield inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(bundle, name),
                annotation=kinds[name],
            )


@contextlib.contextmanager
def running(*, json: bool, quiet: bool) -> Iterator[Terminal]:
    """Give a verb its terminal; print the error it ends with, and leave with the code that fits.

    Raises:
        typer.Exit: the code is not 0.
    """
    if json and quiet:
        raise typer.BadParameter("--json and --quiet exclude each other")
    terminal = Terminal(json=json, quiet=quiet)
    try:
        try:
            yield terminal
        except (OSError, typer.Exit, typer.BadParameter) as error:
            if not isinstance(error, ZTensorError):
                raise
            _tell(terminal, error)
        except Exception as error:  # noqa: BLE001  # a bug: its text may be a stranger's, too
            _tell(terminal, error)
        terminal.finish()
    except OSError as error:
        raise typer.Exit(code_without_output(error)) from None
    if terminal.exit_code:
        raise typer.Exit(terminal.exit_code)


def _tell(terminal: Terminal, error: Exception) -> None:
    details = []
    if not isinstance(error, (ZTensorError, MemoryError)):
        details = ["this is a bug in ztensor, please report it with these lines:"]
        details += "".join(traceback.format_exception(error)).splitlines()
    terminal.error(error, details=details)
    if not terminal.has_result:
        terminal.result({"error": error_as_json(error)})


def code_without_output(error: OSError) -> ExitCode:
    """Tell that what was printed could not be handed on, and return the exit code for that."""
    let_go(sys.stdout)
    if error.errno == errno.EPIPE or (os.name == "nt" and error.errno == errno.EINVAL):
        return ExitCode.BROKEN_PIPE
    terminal = Terminal()
    terminal.error(SourceError.from_os(error, "cannot write", "standard output"))
    with contextlib.suppress(OSError):
        terminal.finish()
    return ExitCode.FAILED


def open_file(file: str) -> Reader:
    """Open what an argument names.

    Standard input is read in place where it is a file, and into memory where it is a pipe.

    Raises:
        ZTensorError: it cannot be opened.
    """
    import ztensor

    if file != STDIN:
        return ztensor.open(file, mmap=False)  # no view outlives a verb, and no map can be cut
    stream = sys.stdin.buffer
    try:
        return ztensor.open(stream if stream.seekable() else stream.read())
    except OSError as error:
        if isinstance(error, ZTensorError):
            raise
        raise SourceError.from_os(error, "cannot read", "standard input") from error


def error_as_json(error: Exception) -> dict[str, Any]:
    """Return an error as the JSON of every verb has it."""
    problems = error.problems if isinstance(error, ManifestError) else ()
    reason = error.reason if isinstance(error, ZTensorError) else None
    return {
        "type": type(error).__name__,
        "reason": None if reason is None else reason.value,
        "message": message_of(error),
        "problems": [problem_as_json(problem) for problem in problems],
    }


def problem_as_json(problem: Any) -> dict[str, Any]:
    """Return one broken rule as the JSON of every verb has it."""
    return {
        "reason": problem.reason.value,
        "message": problem.message,
        "object": problem.object_name,
        "component": problem.component,
        "path": list(problem.path),
        "section": problem.section,
    }
