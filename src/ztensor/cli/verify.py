"""`ztensor verify`: read every byte of files and list all that is wrong."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ztensor.cli.choosing import ExcludeOption, IncludeOption, chosen
from ztensor.cli.exits import ExitCode
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Styled, Terminal
from ztensor.cli.verb import (
    FilesArgument,
    JsonOption,
    QuietOption,
    error_as_json,
    open_file,
    problem_as_json,
    running,
)
from ztensor.errors import ManifestError, ZTensorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ztensor.reading.verify import VerifyReport


def verify(
    files: FilesArgument,
    *,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check every byte of files, and list all that is wrong.

    Digests, encodings to their last byte, bools, sparse indices: everything is read, and nothing
    stops at the first problem. What this release does not know (a layout, an encoding) is said, and
    is no damage.

    Output:
      One line for each file, and one for each problem: the object, the component,
      what was expected and found, the section of the specification, and in
      brackets the reason, one of `ztensor.Reason`. With --quiet only what is
      damaged, on standard error. A file that cannot be opened gives its error,
      and all problems of a manifest that breaks several rules.

    JSON:
      ok              whether all files are
      files           a list: file, ok, objects (how many were walked), checked
                      (components whose digest matches), undigested (those that
                      have none), nbytes, seconds, problems, unsupported; or file,
                      ok, error where it could not be opened

    Safety:
      It never changes a file; `ztensor repair` mends what can be.

    Exit code:
      0 where all files are whole, 1 where one is damaged or could not be read, 4
      where one is so damaged that it cannot be opened.

    Examples:
      $ ztensor verify model.zt
        nothing is wrong
      $ ztensor verify model.zt damaged.zt
        one bit is wrong in the second; exits with 1
    """
    with running(json=json, quiet=quiet) as terminal:
        results = [_verify_file(terminal, file, include, exclude) for file in files]
        ok = all(result["ok"] for result in results)
        if len(files) > 1:
            _show_total(terminal, results)
        terminal.result({"ok": ok, "files": results})


def _verify_file(
    terminal: Terminal,
    file: Path,
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> dict[str, Any]:
    import ztensor.reading.verify  # noqa: F401  # before the clock starts

    begin = time.monotonic()
    try:
        with open_file(file) as reader, terminal.progress(file.name) as progress:
            names = chosen([reader], include, exclude) if include or exclude else None
            report = reader.verify(names, progress=progress)
    except ZTensorError as error:
        problems = error.problems if isinstance(error, ManifestError) else ()
        terminal.error(error, details=[str(problem) for problem in problems])
        return {"file": str(file), "ok": False, "error": error_as_json(error)}
    seconds = time.monotonic() - begin
    if not report.ok:
        terminal.fail(ExitCode.FAILED)
    _show_report(terminal, str(file), report, seconds)
    return {
        "file": str(file),
        "ok": report.ok,
        "objects": report.objects,
        "checked": report.checked,
        "undigested": report.undigested,
        "nbytes": report.nbytes,
        "seconds": round(seconds, 6),
        "problems": [problem_as_json(problem) for problem in report.problems],
        "unsupported": [problem_as_json(problem) for problem in report.unsupported],
    }


def _show_report(terminal: Terminal, file: str, report: VerifyReport, seconds: float) -> None:
    facts = [count_text(report.objects, "object"), count_text(report.checked, "digest") + " match"]
    if report.checked == 1:
        facts[-1] += "es"
    if report.undigested:
        facts.append(f"{count_text(report.undigested, 'component')} without a digest to check")
    facts.append(f"{size_text(report.nbytes)} in {seconds:.2f} s")
    if report.ok:
        terminal.line(f"{file}: ", Styled("ok", "green"), f", {', '.join(facts)}")
    else:
        damaged = f"DAMAGED, {count_text(len(report.problems), 'problem')}"
        terminal.problem(f"{file}: ", Styled(damaged, "bold red"), f"; {', '.join(facts)}")
    for problem in report.problems:
        terminal.problem("  ", *_sentence(problem))
    for problem in report.unsupported:
        terminal.line("  not checked in full: ", *_sentence(problem))


def _sentence(problem: Any) -> Sequence[str | Styled]:
    place = "" if problem.object_name is None else f"'{problem.object_name}'"
    if problem.component is not None:
        place += f" {problem.component}"
    if problem.path and problem.path[0] != "objects":  # of a set: the file comes first
        place = ", ".join(filter(None, (os.path.basename(problem.path[0]), place)))
    section = f" ({problem.section})" if problem.section else ""
    return f"{place}: " if place else "", problem.message + section, f" [{problem.reason.value}]"


def _show_total(terminal: Terminal, results: Sequence[Mapping[str, Any]]) -> None:
    ok = sum(result["ok"] for result in results)
    unopened = sum("error" in result for result in results)
    facts = [f"{ok:,} ok", f"{len(results) - ok - unopened:,} damaged"]
    if unopened:
        facts.append(f"{unopened:,} could not be read")
    terminal.line(Styled(f"{count_text(len(results), 'file')}: {', '.join(facts)}", "bold"))
