"""`ztensor hash`: an id of what files hold, whatever their layout on disk, and a check of it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ztensor.cli.choosing import chosen
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import Choice, ThreadsOption
from ztensor.cli.spelling import count_text
from ztensor.cli.terminal import Styled, Terminal
from ztensor.cli.verb import error_as_json, open_file
from ztensor.errors import FormatError, SourceError, UsageError, ZTensorError, describe

if TYPE_CHECKING:
    from collections.abc import Sequence


class _How(NamedTuple):
    """What of a file the id is of; see the options."""

    choice: Choice
    attributes: bool
    threads: int | None


_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def hash_(
    terminal: Terminal,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files of any known format; - is standard input."),
    ] = None,
    *,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Check files against a list of ids that this verb printed before.",
            show_default=False,
        ),
    ] = None,
    choice: Choice,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Print an id of each tensor, too.")
    ] = False,
    attributes: Annotated[
        bool,
        typer.Option("--attributes", help="Include the attributes of file and objects in the id."),
    ] = False,
    threads: ThreadsOption = None,
) -> None:
    """Print an id of what files hold, however it is stored.

    Two files have the same id if they hold the same names, shapes, types and elements, whatever
    their compression, version, format, order or number of files: a safetensors file and the .zt
    made from it have the same id. Everything is read and checked against its digest; a damaged file
    has no id.

    Output:
      One line for each file, as sha256sum has them: the id, two spaces, the path.
      With --check: whether each file of the list is as listed.

    JSON:
      attributes      whether they were taken in
      files           a list of file, id, with --tensors also tensors (name to
                      id), or error; with --check of file, expected, id, ok
      ok              with --check: whether all files are as listed

    Safety:
      It never changes a file.

    Exit code:
      0 where all files have an id and, with --check, the one listed; 1 where one
      differs.

    Examples:
      $ ztensor hash tiny.safetensors tiny.npz
        two formats, one content
      $ ztensor hash model.zt --tensors --include 'layers.*'
        an id of each tensor; its name has no part in it
      $ ztensor hash tiny.npz > tiny.ids
        a list to keep
      $ ztensor hash --check tiny.ids
        whether the file is still the same
    """
    if (check is None) == (not files):
        raise UsageError("give files, or --check and a list of ids")
    if check is not None and tensors:
        raise UsageError("--check compares whole files; --tensors does not go with it")
    how = _How(choice, attributes, threads)
    if check is not None:
        _check(terminal, check, how)
    else:
        results = [_hash(terminal, file, how, tensors=tensors) for file in files or ()]
        terminal.result({"attributes": attributes, "files": results})


def _hash(terminal: Terminal, file: str, how: _How, *, tensors: bool) -> dict[str, Any]:
    try:
        whole, ids = _ids(terminal, file, how)
    except ZTensorError as error:
        terminal.error(error)
        return {"file": file, "error": error_as_json(error)}
    terminal.line(f"{whole}  {file}")
    result: dict[str, Any] = {"file": file, "id": whole}
    if tensors:
        for name, text in ids.items():
            terminal.line(Styled(f"{text}  {name}", "dim"))
        result["tensors"] = ids
    return result


def _ids(terminal: Terminal, file: str, how: _How) -> tuple[str, dict[str, str]]:
    from ztensor.analysis.identity import combined, tensor_hashes

    with open_file(file) as reader, terminal.progress(os.path.basename(file)) as progress:
        names = chosen([reader], how.choice)
        ids = tensor_hashes(
            reader, names, attributes=how.attributes, threads=how.threads, progress=progress
        )
        return combined(ids, reader.attributes if how.attributes else None), ids


def _check(terminal: Terminal, listing: str, how: _How) -> None:
    results = []
    for expected, file in _read(listing):
        result: dict[str, Any] = {"file": file, "expected": expected, "ok": False}
        try:
            result["id"], _ = _ids(terminal, file, how)
        except ZTensorError as error:
            terminal.error(error)
            result["error"] = error_as_json(error)
        else:
            result["ok"] = result["id"] == expected
            if result["ok"]:
                terminal.line(f"{file}: ", Styled("ok", "green"))
            else:
                terminal.problem(f"{file}: ", Styled("DIFFERENT", "bold red"))
                terminal.fail(ExitCode.FAILED)
        results.append(result)
    ok = sum(result["ok"] for result in results)
    if len(results) > 1:
        terminal.line(f"{ok:,} of {count_text(len(results), 'file')} as listed")
    terminal.result({"ok": ok == len(results), "files": results})


def _read(listing: str) -> Sequence[tuple[str, str]]:
    """Return ids and paths of a list.

    Raises:
        FormatError: a line is none of the list's form, or there is none.
        SourceError: it cannot be read.
    """
    from ztensor.source.paths import path_text

    try:
        with open(path_text(listing), "rb") as lines:
            text = lines.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise SourceError.from_os(error, "cannot open for reading", listing) from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise FormatError(
                f"line {number} is no line of `ztensor hash`",
                file=listing,
                expected="an id of 64 hexadecimal digits, two spaces and a path",
                found=describe(line),
            )
        found.append((match[1].lower(), match[2]))
    if not found:
        raise FormatError("the list is empty", file=listing)
    return found
