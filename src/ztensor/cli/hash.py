"""`ztensor hash`: an id of what files hold, whatever their layout on disk, and a check of it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ztensor.cli.choosing import chosen
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import Choice, Jobs, ThreadsOption
from ztensor.cli.spelling import count_text
from ztensor.cli.terminal import Styled, Terminal
from ztensor.cli.verb import error_as_json, in_order, open_file
from ztensor.digest import CONTENT_ALGORITHMS
from ztensor.errors import FormatError, SourceError, UsageError, ZTensorError, describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class _How(NamedTuple):
    """What of a file the id is of; see the options."""

    choice: Choice
    attributes: bool
    threads: int | None
    content: str | None  # algorithm of a content digest, where that is asked for
    jobs: Jobs


_Ids = tuple[str, "Mapping[str, str]"]  # of all that was chosen, and of each tensor


_LINE = re.compile(r"(\S+) [ *](.+)")
_IDS = re.compile(r"xxh3:[0-9a-f]{16}|(?:sha256:)?[0-9a-f]{64}")


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
    content: Annotated[
        bool,
        typer.Option(
            "--content", help="Print the content digest of 2.x files, from their manifest alone."
        ),
    ] = False,
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="|".join(CONTENT_ALGORITHMS),
            help="Of the content digest.",
            autocompletion=lambda: [*CONTENT_ALGORITHMS],
        ),
    ] = CONTENT_ALGORITHMS[0],
    threads: ThreadsOption = None,
    jobs: Jobs,
) -> None:
    """Print an id of the contents, independent of the storage.

    Two files have the same id if they have the same names, shapes, types and elements. Compression,
    version, format, order and number of files do not matter: a safetensors file and the .zt made
    from it have the same id. Everything is read and checked against its digest; a damaged file has
    no id.

    --content prints the id that the 2.x format defines. It is computed from the manifest and the
    digests in it, and no data is read. It exists only for 2.x files in which every component has a
    digest.

    Output:
      One line for each file, like those of sha256sum: the id, two spaces, the
      path. With --content the id begins with its algorithm and a colon. With
      --check: whether each file of the list has the listed id; an id with a colon
      is a content digest.

    JSON:
      attributes      whether the id covers them
      files           a list of file, id, with --tensors also tensors (name to
                      id), or error; with --check of file, expected, id, ok
      ok              with --check: whether all files have the listed id

    Safety:
      It never changes a file.

    Exit code:
      0 if all files have an id and, with --check, the listed one; 1 if one
      differs.

    Examples:
      $ ztensor hash tiny.safetensors tiny.npz
        the same tensors in two formats
      $ ztensor hash model.zt --tensors --include 'layers.*'
        an id of each tensor, which does not depend on its name
      $ ztensor hash tiny.npz > tiny.ids
        a list to keep
      $ ztensor hash --content two.zt
        what other programs of 2.x call its content digest
      $ ztensor hash --check tiny.ids
        whether the file is still the same
    """
    if (check is None) == (not files):
        raise UsageError("give files, or --check and a list of ids")
    if check is not None and tensors:
        raise UsageError("--check compares whole files: it cannot be combined with --tensors")
    if content and (tensors or attributes or choice.is_given):
        raise UsageError("a content digest always covers all objects with their attributes")
    if jobs.is_given and (content or threads is not None):
        raise UsageError("--jobs reads each file by one thread, and --content reads none")
    how = _How(choice, attributes, threads, algorithm if content else None, jobs)
    if check is not None:
        _check(terminal, check, how)
    else:
        several = _each(terminal, files or (), how)
        results = in_order(
            files or (),
            ((file, _told(terminal, file, found, tensors=tensors)) for file, found in several),
        )
        terminal.result({"attributes": attributes, "files": results})


def _told(
    terminal: Terminal, file: str, found: _Ids | ZTensorError, *, tensors: bool
) -> dict[str, Any]:
    if isinstance(found, ZTensorError):
        terminal.error(found)
        return {"file": file, "error": error_as_json(found)}
    whole, ids = found
    terminal.line(f"{whole}  {file}")
    result: dict[str, Any] = {"file": file, "id": whole}
    if tensors:
        for name, text in ids.items():
            terminal.line(Styled(f"{text}  {name}", "dim"))
        result["tensors"] = ids
    return result


def _each(
    terminal: Terminal, files: Sequence[str], how: _How
) -> Iterator[tuple[str, _Ids | ZTensorError]]:
    """Yield files and their ids, or the error, as they are done."""
    if not how.jobs.is_given:
        for file in files:
            yield file, _tried(terminal, file, how)
        return
    from ztensor.cli.jobs import executing
    from ztensor.fleet import FileHash, hash_files

    with executing(how.jobs, files) as workers, terminal.progress("files") as progress:
        for file, found in hash_files(
            files,
            **workers,
            **how.choice.arguments,
            attributes=how.attributes,
            progress=progress,
        ):
            yield file, (found.id, found.tensors) if isinstance(found, FileHash) else found


def _tried(terminal: Terminal, file: str, how: _How) -> _Ids | ZTensorError:
    try:
        return _ids(terminal, file, how)
    except ZTensorError as error:
        return error


def _ids(terminal: Terminal, file: str, how: _How) -> _Ids:
    from ztensor.analysis.identity import combined, content_digest, tensor_hashes

    if how.content is not None:
        with open_file(file) as reader:
            return content_digest(reader, how.content), {}
    with open_file(file) as reader, terminal.progress(os.path.basename(file)) as progress:
        names = chosen([reader], how.choice)
        ids = tensor_hashes(
            reader, names, attributes=how.attributes, threads=how.threads, progress=progress
        )
        return combined(ids, reader.attributes if how.attributes else None), ids


def _check(terminal: Terminal, listing: str, how: _How) -> None:
    expected = _read(listing)
    plain = [file for text, file in expected if ":" not in text]
    # A file may be listed twice, with ids of two kinds.
    found = {(file, ""): one for file, one in _each(terminal, list(dict.fromkeys(plain)), how)}
    results = []
    for text, file in expected:
        algorithm = text.partition(":")[0] if ":" in text else ""
        if algorithm:
            found[file, algorithm] = _tried(terminal, file, how._replace(content=algorithm))
        results.append(_compared(terminal, file, text, found[file, algorithm]))
    ok = sum(result["ok"] for result in results)
    if len(results) > 1:
        terminal.line(f"{ok:,} of {count_text(len(results), 'file')} as listed")
    terminal.result({"ok": ok == len(results), "files": results})


def _compared(
    terminal: Terminal, file: str, expected: str, found: _Ids | ZTensorError
) -> dict[str, Any]:
    result: dict[str, Any] = {"file": file, "expected": expected, "ok": False}
    if isinstance(found, ZTensorError):
        terminal.error(found)
        return {**result, "error": error_as_json(found)}
    result |= {"id": found[0], "ok": found[0] == expected}
    if result["ok"]:
        terminal.line(f"{file}: ", Styled("ok", "green"))
    else:
        terminal.problem(f"{file}: ", Styled("DIFFERENT", "bold red"))
        terminal.fail(ExitCode.FAILED)
    return result


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
        if match is None or not _IDS.fullmatch(match[1].lower()):
            raise FormatError(
                f"line {number} is no line of `ztensor hash`",
                file=listing,
                expected="an id, two spaces and a path",
                found=describe(line),
            )
        found.append((match[1].lower(), match[2]))
    if not found:
        raise FormatError("the list is empty", file=listing)
    return found
