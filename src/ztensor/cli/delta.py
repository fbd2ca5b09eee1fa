"""`ztensor delta`: differences of two states of a model, as files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from argparse import Namespace
from typing import Any

from ztensor import delta as deltas
from ztensor.cli.changing import require_free, require_target
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import CHOICE, NEW_FILE, THREADS, Option, patterns
from ztensor.cli.spelling import as_json, count_text, shape_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import error_as_json
from ztensor.errors import UsageError

_ACTIONS = ("make", "apply", "show", "log", "fold", "verify")
OPTIONS = (
    Option("action", choices=_ACTIONS, help="What to do."),
    Option(
        "files",
        nargs="+",
        metavar="FILE",
        help="The states before and after, for make. Deltas or a folder of them, for the others; "
        "then the state before, for apply.",
    ),
    Option("--output", "-o", metavar="OUT", help="For make, apply and fold: the new file."),
    Option("--in-place", is_flag=True, help="For apply: change the state before itself."),
    Option("--to", metavar="STATE", help="For apply: stop at this id or label."),
    Option("--skip-applied", is_flag=True, help="For apply: accept a file that has the result."),
    Option(
        "--verify", choices=("touched", "full", "none"), help="For apply: the tensors to compare."
    ),
    Option("--small", is_flag=True, help="For make and fold: fewer bytes, for more time."),
    Option("--values", choices=("difference", "new"), help="For make: new elements need no base."),
    Option("--ids", choices=("sha256", "xxh3-128"), help="For make: the algorithm of ids."),
    Option(
        "--dialect",
        choices=("zt", "slime", "trl", "arc"),
        help="The kind of files: written by make; else found by content, but for arc.",
    ),
    Option(
        "--version",
        metavar="VERSION",
        help="For make: the version of the .zt file; of other dialects the number of the state.",
    ),
    Option("--label", metavar="TEXT", help="For make: text to find the delta by, such as a step."),
    Option("--base", metavar="FILE", help="For fold and verify: the state before."),
    Option("--new", metavar="FILE", help="For verify: the state after."),
    *CHOICE,
    THREADS,
    *NEW_FILE,
)
# The options of each action, by the names of their values.
_TAKES = {
    "make": "output small values ids dialect version label include exclude threads force "
    "no_durable",
    "apply": "output in_place to skip_applied verify dialect threads force dry_run no_durable",
    "show": "dialect",
    "log": "dialect",
    "fold": "output small dialect base force",
    "verify": "dialect base new",
}
_LINKS = (
    Column("delta"),
    Column("label", optional=True),
    Column("tensors", numeric=True),
    Column("changed", numeric=True),
    Column("size", numeric=True),
    Column("result"),
)
_CHANGES = (
    Column("name"),
    Column("change", optional=True),
    Column("shape"),
    Column("type", optional=True),
    Column("changed", numeric=True),
    Column("size", numeric=True),
    Column("coding", optional=True),
)


def delta(terminal: Terminal, options: Namespace) -> None:
    """Make, apply, list, fold and check differences of states.

    A delta is a file with the elements that differ between two states of a model, such as two steps
    of a training run. `make` writes the difference of two files of any format, `apply` the state
    after one or more deltas: as a new file in the format of the state before, or in place. Deltas
    are ordered by the ids of states, never by their names, so a folder of them is a chain. `show`
    lists the tensors of a delta, `log` the links of a chain, from manifests only. `fold` writes one
    delta for several; it needs the state before, as --base, if values are unknown without it.
    `verify` checks bytes, streams and the chain; with --base it computes every changed tensor, too,
    and with --new it compares the last result. Deltas of slime and TRL are found by content; those
    of arc need --dialect.

    Output:
      make, apply, fold: a summary. show: one line for each tensor: how it
      differs, the share of its elements that change, and bytes. log: one line
      for each delta, then forks, gaps and other files. verify: each problem, and
      whether the states were checked.

    JSON:
      make, fold      file, base, result (ids), tensors, changed (elements), nbytes
      apply           file, base, result, deltas (applied, in order), tensors,
                      nbytes, verified, dry_run
      show            file, dialect, base, result, label, changed, elements,
                      nbytes, attributes (null: removed), removed (names),
                      tensors: a list of name, kind (`changed`, `added`,
                      `replaced`), shape, layout, type, changed, nbytes,
                      codings; null where the dialect does not store it
      log             folder, ok, starts, ends (ids), forks (id to files),
                      unreachable, others (files), damaged (file to error),
                      links: a list of file, dialect, base, result, label,
                      tensors, changed, elements, nbytes
      verify          ok, deltas, tensors, undecoded (changes that need --base),
                      states_checked, problems (a list of errors)

    Safety:
      make, fold and apply -o write a new file, which replaces an existing one
      only with --force. apply leaves the state before or the one after, whatever
      stops it, and never changes a base that the delta was not made from.

    Exit code:
      0 if done; log and verify: 0 if there is one chain and no problem, else 1.

    Examples:
      $ ztensor delta make model.zt changed.zt -o 1.zt --label 1
        the difference of two files
      $ ztensor delta show 1.zt
        the tensors that it changes
      $ ztensor delta apply 1.zt model.zt -o new.zt
        the second file again, from the first one and the delta
      $ ztensor delta verify 1.zt --base model.zt --new changed.zt
        every byte, and every tensor
    """
    action = options.action
    for name in {word for words in _TAKES.values() for word in words.split()}:
        is_given = getattr(options, name) not in (None, False, [])
        if is_given and name not in _TAKES[action].split():
            raise UsageError(f"{action} has no option --{name.replace('_', '-')}")
    if action in ("make", "fold") and options.output is None:
        raise UsageError(f"{action} needs --output")
    if action == "make" and len(options.files) != 2:
        raise UsageError("make takes two files: the states before and after")
    if options.output is not None and action != "apply":
        is_ours = action == "fold" or options.dialect in (None, "zt")
        (require_target if is_ours else require_free)(options.output, force=options.force)
    options.deltas = options.files[:-1] if action == "apply" else options.files
    with contextlib.ExitStack() as opened:
        if options.dialect is not None and action != "make":
            options.deltas = [
                opened.enter_context(deltas.open(path, dialect=options.dialect))
                for path in options.deltas
            ]
        _VERBS[action](terminal, options)


def _make(terminal: Terminal, options: Namespace) -> None:
    base, new = options.files
    report = deltas.make(
        base,
        new,
        options.output,
        effort="small" if options.small else "fast",
        values=options.values or "difference",
        ids=options.ids or "sha256",
        dialect=options.dialect or "zt",
        version=_version(options),
        label=options.label,
        durable=not options.no_durable,
        threads=options.threads,
        **patterns(options),
    )
    _print_made(terminal, report)


def _version(options: Namespace) -> str | int | None:
    text: str | None = options.version
    if options.dialect in (None, "zt") or text is None or not text.isdecimal():
        return text
    return int(text)


def _fold(terminal: Terminal, options: Namespace) -> None:
    report = deltas.fold(
        options.deltas,
        options.output,
        base=options.base,
        effort="small" if options.small else None,
    )
    _print_made(terminal, report)


def _print_made(terminal: Terminal, report: deltas.DeltaReport) -> None:
    of = f"{count_text(report.tensors, 'tensor')}, {count_text(report.changed, 'element')} changed"
    terminal.line(f"{report.path}: {of}, {size_text(report.nbytes)}")
    terminal.result(_fields(report))


def _apply(terminal: Terminal, options: Namespace) -> None:
    if not options.deltas:
        raise UsageError("apply takes deltas, and then the state before")
    if (options.output is None) is not options.in_place:
        raise UsageError("apply needs --output or --in-place, and not both")
    if options.output is not None:
        require_free(options.output, force=options.force)
    report = deltas.apply(
        options.deltas,
        options.files[-1],
        options.output,
        in_place=options.in_place,
        to=options.to,
        verify=None if options.verify == "none" else options.verify or "touched",
        if_applied="skip" if options.skip_applied else "error",
        durable=not options.no_durable,
        threads=options.threads,
        dry_run=options.dry_run,
    )
    done = "would be applied" if options.dry_run else "applied"
    of = f"{count_text(len(report.deltas), 'delta')} {done}"
    of += f", {count_text(report.tensors, 'new tensor')}"
    state = f", the state {_short(report.result)}" if report.verified == "full" else ""
    terminal.line(f"{report.path}: {of}{state}")
    terminal.result({**_fields(report), "dry_run": options.dry_run})


def _show(terminal: Terminal, options: Namespace) -> None:
    shown = []
    for source in options.deltas:
        with source if options.dialect is not None else deltas.open(source) as delta:
            shown.append(_shown(terminal, delta))
    terminal.result(shown[0] if len(shown) == 1 else shown)


def _shown(terminal: Terminal, delta: deltas.Delta) -> dict[str, Any]:
    """Print a delta, and return it as JSON has it."""
    words = ("dialect", "base", "result", "label", "changed", "elements", "nbytes")
    tensors = [_tensor(change, is_bound=delta.is_bound) for change in delta.values()]
    rows = [
        (
            each["name"],
            each["kind"],
            "-" if each["shape"] is None else shape_text(each["shape"]),
            each["type"] or "-",
            "-" if each["changed"] is None else f"{each['changed']:,}",
            size_text(each["nbytes"]),
            ", ".join(each["codings"]),
        )
        for each in tensors
    ]
    terminal.table(_CHANGES, rows)
    for name in delta.removed:
        terminal.line(f"removed: {name}")
    terminal.line(f"{delta.name}: {_short(delta.base)} -> {_short(delta.result)}")
    of = f"{count_text(len(tensors), 'tensor')}, {_share(delta.changed, delta.elements)} changed"
    terminal.line(f"{delta.name}: {of}, {size_text(delta.nbytes)}")
    return {
        "file": delta.name,
        **{word: getattr(delta, word) for word in words},
        "attributes": as_json(delta.attributes),
        "removed": list(delta.removed),
        "tensors": tensors,
    }


def _tensor(change: deltas.Change, *, is_bound: bool) -> dict[str, Any]:
    part = change.parts.get("data")
    type_ = None if part is None else part.header.type or part.header.dtype
    return {
        "name": change.name,
        "kind": change.kind,
        "shape": list(change.shape) if is_bound else None,
        "layout": change.layout,
        "type": type_ if is_bound else None,
        "changed": change.changed,
        "nbytes": change.stored,
        "codings": list(dict.fromkeys(part.coding for part in change.parts.values())),
    }


def _log(terminal: Terminal, options: Namespace) -> None:
    chain = deltas.log(options.deltas)
    terminal.table(_LINKS, [_row(link) for link in chain.links])
    for state, files in chain.forks.items():
        terminal.problem(f"fork at {_short(state)}: {', '.join(map(os.path.basename, files))}")
    for state in chain.starts[1:]:
        terminal.problem(f"gap: no delta gives {_short(state)}")
    for file, error in chain.damaged.items():
        terminal.problem(f"{file}: DAMAGED: {error.told()}")
    nbytes = sum(link.nbytes for link in chain.links)
    terminal.line(f"{count_text(len(chain.links), 'delta')}, {size_text(nbytes)}")
    if not chain.ok:
        terminal.fail(ExitCode.FAILED)
    damaged = {file: error_as_json(error) for file, error in chain.damaged.items()}
    facts = {**_fields(chain), "damaged": damaged, "links": [_fields(link) for link in chain.links]}
    terminal.result({"folder": options.files[0], "ok": chain.ok, **facts})


def _row(link: deltas.Link) -> tuple[str, ...]:
    changed = _share(link.changed, link.elements)
    name, label = os.path.basename(link.path), link.label or ""
    return name, label, f"{link.tensors:,}", changed, size_text(link.nbytes), _short(link.result)


def _verify(terminal: Terminal, options: Namespace) -> None:
    report = deltas.verify(options.deltas, base=options.base, new=options.new)
    for problem in report.problems:
        terminal.problem(f"WRONG: {problem.told()}")
    if report.undecoded:
        terminal.line(f"{count_text(report.undecoded, 'change')} not decoded without --base")
    if not report.states_checked:
        terminal.line("states not checked: --base has the state before")
    words = "ok" if report.ok else count_text(len(report.problems), "problem")
    of = f"{count_text(report.deltas, 'delta')}, {count_text(report.tensors, 'change')}"
    terminal.line(f"{of}: {words}")
    if not report.ok:
        terminal.fail(ExitCode.FAILED)
    problems = [error_as_json(problem) for problem in report.problems]
    terminal.result({"ok": report.ok, **_fields(report), "problems": problems})


_VERBS = {
    "make": _make,
    "apply": _apply,
    "show": _show,
    "log": _log,
    "fold": _fold,
    "verify": _verify,
}


def _fields(report: Any) -> dict[str, Any]:
    """Return the fields of a report as JSON has them; a path is a file."""
    fields = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
    return {"file" if name == "path" else name: value for name, value in fields.items()}


def _share(changed: int | None, count: int | None) -> str:
    if changed is None or not count:
        return "-"
    return f"{changed / count:.2%}" if changed * 10_000 >= count or not changed else "<0.01%"


def _short(state: str | None) -> str:
    """Return the start of an id, which --to takes."""
    return "-" if state is None else state.rpartition(":")[2][:12]
