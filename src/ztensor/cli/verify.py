"""`ztensor verify`: check every byte of files and list all problems."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli import jobs
from ztensor.cli.choosing import chosen_or_all
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import CHOICE, FILES, JOBS, Option, patterns
from ztensor.cli.spelling import count_text, named_text, size_text
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import error_as_json, in_order, open_file, problem_as_json
from ztensor.errors import ManifestError, UsageError, ZTensorError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence


OPTIONS = (
    FILES,
    *CHOICE,
    Option(
        "--require-digests",
        is_flag=True,
        help="Fail if any byte is not covered by a matching digest.",
    ),
    Option(
        "--deep",
        is_flag=True,
        help="Also check the digests of whole shards that a file of 2.x names.",
    ),
    Option(
        "--signed-by", metavar="KEY", help="Also require a signature by this public key, in PEM."
    ),
    Option(
        "--signature",
        metavar="SIG",
        help="The signature; by default FILE.sig, or model.sig in the folder.",
    ),
    Option(
        "--ignore-unsigned",
        is_flag=True,
        help="Of a signed folder: accept files that are not signed.",
    ),
    *JOBS,
)


def verify(terminal: Terminal, options: Namespace) -> None:
    """Check every byte of files, and list all that is wrong.

    Everything is read: digests, encodings to their last byte, bools, sparse indices. It does not
    stop at the first problem. A layout or encoding that this release does not know is reported, but
    is not damage.

    With --signed-by the signature is verified first (see `ztensor sign`), then that the files are
    the signed ones: whole files, and of .zt files each component. With --include or --exclude only
    the components of the chosen objects are read.

    Output:
      One line for each file. `ok`: a digest covers every byte, and all digests
      match. `unchecked`: no damage was found, but some bytes have no digest and
      may have changed; the line says which objects, and why. `DAMAGED`: one line
      for each problem: the object, the component, the expected and the found value,
      the section of the specification, and in brackets the reason, one of
      `ztensor.Reason`. With --quiet only damaged files, on standard error. If a
      file cannot be opened, its error, and all problems of its manifest.

    JSON:
      ok              whether all files are
      files           a list: file, ok, outcome (`ok`, `unchecked` or `damaged`),
                      objects (how many were walked), checked (components whose
                      digest matches), undigested (those that have none),
                      unchecked (a list of object and why), nbytes, seconds
                      (null with --jobs or --scheduler), problems, unsupported;
                      or file, ok, error if it could not be opened
      signature       of each file with --signed-by: key (the fingerprint), files
                      (whole files checked), components (checked), signed
                      (components that the signature covers)

    Safety:
      It never changes a file; `ztensor repair` repairs what can be repaired.

    Exit code:
      0 if no damage was found, 1 if a file is damaged or could not be read, 4 if
      a file is so damaged that it cannot be opened, or its signature is not
      valid; with --require-digests 5 if no damage was found, but some bytes have
      no digest.

    Examples:
      $ ztensor verify model.zt
        nothing is wrong
      $ ztensor verify model.zt damaged.zt
        one bit of the second is wrong; exits with 1
      $ ztensor verify model.zt tiny.npz --jobs 2 --quiet
        several at a time; damaged files are printed as they are found
    """
    _require_signed_by(options)
    if jobs.are_asked(options):
        results = _verify_at_once(terminal, options)
    else:
        results = [_verify_file(terminal, file, options) for file in options.files]
    ok = all(result["ok"] for result in results)
    is_whole = all(result.get("outcome", "damaged") != "damaged" for result in results)
    if options.require_digests and is_whole and not ok:
        terminal.fail(ExitCode.UNCHECKED)
    if len(results) > 1:
        _show_total(terminal, results)
    terminal.result({"ok": ok, "files": results})


def _require_signed_by(options: Namespace) -> None:
    if options.signed_by is None and (options.signature or options.ignore_unsigned):
        raise UsageError("--signature and --ignore-unsigned need --signed-by and a key")
    if options.signed_by is not None and (jobs.are_asked(options) or options.deep):
        raise UsageError("--signed-by cannot be combined with --deep, --jobs and --scheduler")
    if options.signature is not None and len(options.files) > 1:
        raise UsageError("--signature is of one file")


def _verify_at_once(terminal: Terminal, options: Namespace) -> list[dict[str, Any]]:
    files = options.files
    keywords = {**patterns(options), "deep": options.deep}
    with jobs.executing(options, files) as workers, terminal.progress("files") as progress:
        reports = ztensor.fleet.verify_files(files, **workers, **keywords, progress=progress)
        return in_order(
            files, ((file, _report(terminal, file, report)) for file, report in reports)
        )


def _verify_file(terminal: Terminal, file: str, options: Namespace) -> dict[str, Any]:
    begin = time.monotonic()
    try:
        if options.signed_by is not None:
            return _verify_signed(terminal, file, options, begin)
        with open_file(file) as reader, terminal.progress(os.path.basename(file)) as progress:
            names = chosen_or_all([reader], options)
            report = reader.verify(names, deep=options.deep, progress=progress)
    except ZTensorError as error:
        return _report(terminal, file, error)
    return _report(terminal, file, report, time.monotonic() - begin)


def _verify_signed(
    terminal: Terminal, file: str, options: Namespace, begin: float
) -> dict[str, Any]:
    key, how, names = options.signed_by, {"signature": options.signature}, None
    if options.include or options.exclude:
        with ztensor.signing.open(file, key, **how, mmap=False) as reader:
            names = chosen_or_all([reader], options)
    with terminal.progress(os.path.basename(file)) as progress:
        how |= {"names": names, "ignore_unsigned": options.ignore_unsigned, "progress": progress}
        signed = ztensor.signing.verify(file, key, **how)
    result = _report(terminal, file, signed.contents, time.monotonic() - begin)
    covered = [count_text(signed.files, "whole file")] if signed.files else []
    if signed.signed:
        covered.insert(0, f"manifest and {signed.components:,} of {signed.signed:,} components")
    terminal.line(f"  signed by key {signed.key}; checked {', '.join(covered)}")
    shown = ("key", "files", "components", "signed")
    return {**result, "signature": {name: getattr(signed, name) for name in shown}}


def _report(
    terminal: Terminal,
    file: str,
    report: ztensor.io.VerifyReport | ZTensorError,
    seconds: float | None = None,
) -> dict[str, Any]:
    if isinstance(report, ZTensorError):
        problems = report.problems if isinstance(report, ManifestError) else ()
        terminal.error(report, details=[str(problem) for problem in problems])
        return {"file": file, "ok": False, "error": error_as_json(report)}
    if report.outcome == "damaged":
        terminal.fail(ExitCode.FAILED)
    _show_report(terminal, file, report, seconds)
    return {
        "file": file,
        "ok": report.ok,
        "outcome": report.outcome,
        "objects": report.objects,
        "checked": report.checked,
        "undigested": report.undigested,
        "unchecked": [{"object": name, "why": why} for name, why in report.unchecked.items()],
        "nbytes": report.nbytes,
        "seconds": None if seconds is None else round(seconds, 6),
        "problems": [problem_as_json(problem) for problem in report.problems],
        "unsupported": [problem_as_json(problem) for problem in report.unsupported],
    }


def _show_report(
    terminal: Terminal, file: str, report: ztensor.io.VerifyReport, seconds: float | None
) -> None:
    facts = [count_text(report.objects, "object"), count_text(report.checked, "digest") + " match"]
    if report.checked == 1:
        facts[-1] += "es"
    took = "" if seconds is None else f" in {seconds:.2f} s"
    facts.append(size_text(report.nbytes) + took)
    if report.outcome == "damaged":
        damaged = f"DAMAGED, {count_text(len(report.problems), 'problem')}"
        terminal.problem(f"{file}: {damaged}; {', '.join(facts)}")
    else:
        terminal.line(f"{file}: {report.outcome}, {', '.join(facts)}")
    for problem in report.problems:
        terminal.problem(f"  {_sentence(problem)}")
    whys: dict[str, list[str]] = {}
    for name, why in report.unchecked.items():
        whys.setdefault(why, []).append(name)
    for why, names in whys.items():
        terminal.line(f"  not verified: {named_text(names)}: {why}")
    for problem in report.unsupported:
        terminal.line(f"  not checked in full: {_sentence(problem)}")


def _sentence(problem: Any) -> str:
    place = "" if problem.object_name is None else f"'{problem.object_name}'"
    if problem.component is not None:
        place += f" {problem.component}"
    path = problem.path
    if len(path) > 1 and path[-2] == "shards":
        path, place = path[:-2], f"shard '{path[-1]}'"
    if path and path[0] != "objects":  # of a set: the file comes first
        place = ", ".join(filter(None, (os.path.basename(path[0]), place)))
    section = f" ({problem.section})" if problem.section else ""
    lead = f"{place}: " if place else ""
    return f"{lead}{problem.message}{section} [{problem.reason.value}]"


def _show_total(terminal: Terminal, results: Sequence[Mapping[str, Any]]) -> None:
    ok = sum(result["ok"] for result in results)
    unopened = sum("error" in result for result in results)
    unchecked = sum(result.get("outcome") == "unchecked" for result in results)
    facts = [f"{ok:,} ok", f"{len(results) - ok - unchecked - unopened:,} damaged"]
    if unchecked:
        facts.insert(1, f"{unchecked:,} unchecked")
    if unopened:
        facts.append(f"{unopened:,} could not be read")
    terminal.line(f"{count_text(len(results), 'file')}: {', '.join(facts)}")
