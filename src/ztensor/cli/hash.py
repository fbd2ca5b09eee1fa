"""`ztensor hash`: ids of the contents of files, independent of storage, and a check of them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor import ext
from ztensor.cli import jobs
from ztensor.cli.choosing import chosen
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import CHOICE, JOBS, THREADS, Option, patterns
from ztensor.cli.spelling import count_text
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import error_as_json, in_order, open_file
from ztensor.errors import FormatError, SourceError, UsageError, ZTensorError, describe
from ztensor.insight.analysis.identity import combined

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

_Ids = tuple[str, "Mapping[str, str]"]  # the id of all chosen tensors, and of each

OPTIONS = (
    Option(
        "files",
        nargs="*",
        metavar="FILE",
        help="Files of any known format; - is standard input.",
    ),
    Option(
        "--check",
        metavar="LIST",
        help="Check files against a list of ids that this verb printed before.",
    ),
    *CHOICE,
    Option("--tensors", is_flag=True, help="Print an id of each tensor, too."),
    Option(
        "--attributes",
        is_flag=True,
        help="Include the attributes of file and objects in the id.",
    ),
    Option(
        "--content",
        is_flag=True,
        help="Print the content digest of 2.x files, from their manifest alone.",
    ),
    Option(
        "--algorithm",
        choices=("xxh3", "sha256"),
        default="xxh3",
        help="Algorithm of the content digest; by default xxh3.",
    ),
    THREADS,
    *JOBS,
)

_LINE = re.compile(r"(\S+) [ *](.+)")
_IDS = re.compile(r"xxh3:[0-9a-f]{16}|(?:sha256:)?[0-9a-f]{64}")


def hash_(terminal: Terminal, options: Namespace) -> None:
    """Print an id of the contents, independent of the storage.

    Two files have the same id if they have the same names, shapes, types and elements. Compression,
    version, format, order and number of files do not matter: a safetensors file and the .zt made
    from it have the same id. Everything is read and checked against its digest; a damaged file has
    no id.

    --content prints the id that the 2.x format defines. It is computed from the manifest and the
    digests in it, and no data is read. It exists only for 2.x files in which every component has a
    digest.

    Output:
      One line for each file, as sha256sum prints: the id, two spaces, the path.
      With --content the id begins with its algorithm and a colon. With --check:
      whether each file of the list has the listed id; an id with a colon is a
      content digest.

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
        the content digest, as other programs for 2.x compute it
      $ ztensor hash --check tiny.ids
        whether the file is still the same
    """
    files, tensors = options.files, options.tensors
    if (options.check is None) == (not files):
        raise UsageError("give files, or --check and a list of ids")
    if options.check is not None and tensors:
        raise UsageError("--check compares whole files: it cannot be combined with --tensors")
    if options.content and (tensors or options.attributes or options.include or options.exclude):
        raise UsageError("a content digest always covers all objects with their attributes")
    if jobs.are_asked(options) and (options.content or options.threads is not None):
        raise UsageError("--jobs reads each file by one thread, and --content reads none")
    if options.check is not None:
        _check(terminal, options.check, options)
        return
    reports = (
        (file, _report(terminal, file, ids, tensors=tensors))
        for file, ids in _each(terminal, files, options)
    )
    terminal.result({"attributes": options.attributes, "files": in_order(files, reports)})


def _report(
    terminal: Terminal, file: str, result: _Ids | ZTensorError, *, tensors: bool
) -> dict[str, Any]:
    if isinstance(result, ZTensorError):
        terminal.error(result)
        return {"file": file, "error": error_as_json(result)}
    whole, ids = result
    terminal.line(f"{whole}  {file}")
    if not tensors:
        return {"file": file, "id": whole}
    for name, text in ids.items():
        terminal.line(f"{text}  {name}")
    return {"file": file, "id": whole, "tensors": ids}


def _each(
    terminal: Terminal, files: Sequence[str], options: Namespace
) -> Iterator[tuple[str, _Ids | ZTensorError]]:
    """Yield files with their ids or errors, in the order of completion."""
    if not jobs.are_asked(options):
        algorithm = options.algorithm if options.content else None
        for file in files:
            yield file, _ids(terminal, file, options, algorithm)
        return
    keywords = {**patterns(options), "attributes": options.attributes}
    with jobs.executing(options, files) as workers, terminal.progress("files") as progress:
        for file, report in ztensor.fleet.hash_files(
            files, **workers, **keywords, progress=progress
        ):
            yield (
                file,
                (report.id, report.tensors)
                if isinstance(report, ztensor.fleet.FileHash)
                else report,
            )


def _ids(
    terminal: Terminal, file: str, options: Namespace, algorithm: str | None
) -> _Ids | ZTensorError:
    """Return the ids of a file, or the error.

    Args:
        terminal: where progress is shown.
        file: the file.
        options: the verb's options.
        algorithm: the algorithm of the content digest; None for the id.
    """
    try:
        with open_file(file) as reader, terminal.progress(os.path.basename(file)) as progress:
            if algorithm is not None:
                return ztensor.insight.content_digest(reader, algorithm), {}
            ids = ztensor.insight.tensor_hashes(
                reader,
                chosen([reader], options),
                attributes=options.attributes,
                threads=options.threads,
                progress=progress,
            )
            return combined(ids, reader.attributes if options.attributes else None), ids
    except ZTensorError as error:
        return error


def _check(terminal: Terminal, listing: str, options: Namespace) -> None:
    expected = _read(listing)
    plain = [file for text, file in expected if ":" not in text]
    # A file may be listed twice, with ids of two kinds.
    ids = {
        (file, ""): report for file, report in _each(terminal, list(dict.fromkeys(plain)), options)
    }
    results = []
    for text, file in expected:
        algorithm = text.partition(":")[0] if ":" in text else ""
        if algorithm:
            ids[file, algorithm] = _ids(terminal, file, options, algorithm)
        results.append(_compared(terminal, file, text, ids[file, algorithm]))
    ok = sum(result["ok"] for result in results)
    if len(results) > 1:
        terminal.line(f"{ok:,} of {count_text(len(results), 'file')} as listed")
    terminal.result({"ok": ok == len(results), "files": results})


def _compared(
    terminal: Terminal, file: str, expected: str, ids: _Ids | ZTensorError
) -> dict[str, Any]:
    result: dict[str, Any] = {"file": file, "expected": expected, "ok": False}
    if isinstance(ids, ZTensorError):
        terminal.error(ids)
        return {**result, "error": error_as_json(ids)}
    result |= {"id": ids[0], "ok": ids[0] == expected}
    if result["ok"]:
        terminal.line(f"{file}: ok")
    else:
        terminal.problem(f"{file}: DIFFERENT")
        terminal.fail(ExitCode.FAILED)
    return result


def _read(listing: str) -> Sequence[tuple[str, str]]:
    """Return ids and paths of a list.

    Raises:
        FormatError: a line is malformed, or the list is empty.
        SourceError: the list cannot be read.
    """
    try:
        with open(ext.path_text(listing), "rb") as lines:
            text = lines.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise SourceError.from_os(error, "cannot open for reading", listing) from error
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or not _IDS.fullmatch(match[1].lower()):
            raise FormatError(
                f"line {number} is not one that `ztensor hash` prints",
                file=listing,
                expected="an id, two spaces and a path",
                found=describe(line),
            )
        pairs.append((match[1].lower(), match[2]))
    if not pairs:
        raise FormatError("the list is empty", file=listing)
    return pairs
