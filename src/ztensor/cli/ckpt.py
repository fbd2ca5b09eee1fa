"""`ztensor ckpt`: the steps of a training run that `ztensor.CheckpointManager` saved."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor import ext
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import DRY_RUN, Option
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import error_as_json
from ztensor.errors import ArgumentValueError, SourceNotFoundError, UsageError, describe

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence


OPTIONS = (
    Option("action", choices=("ls", "verify", "prune"), help="What to do."),
    Option("folder", metavar="DIR", help="The folder of a run, or its URL in a store."),
    Option(
        "--keep",
        metavar="N",
        type=int,
        help="Number of newest steps to keep; by default 1.",
    ),
    Option(
        "--keep-best",
        action="append",
        metavar="METRIC:N:min|max",
        help="Also keep the best steps by a metric; may be repeated.",
    ),
    Option("--keep-every", metavar="N", type=int, help="Also keep the steps that N divides."),
    Option("--damaged", is_flag=True, help="Remove damaged steps, too."),
    DRY_RUN,
)

_COLUMNS = (
    Column("step", numeric=True),
    Column("size", numeric=True),
    Column("metrics"),
    Column("state"),
)


def ckpt(terminal: Terminal, options: Namespace) -> None:
    """List, check or remove the steps of a training run.

    DIR has files that `ztensor.CheckpointManager` saved, such as step-00000100.zt. `ls` opens each
    and reads no data. `verify` reads every byte. `prune` removes the steps that no rule keeps;
    pinned steps and damaged ones stay, unless --damaged is given. Before it removes anything it
    reads the newest steps until one is undamaged; that step stays in any case. Other files are left
    alone. The options are for `prune`.

    Output:
      ls: one line for each step, with its size and metrics, and whether it is
      pinned, or `DAMAGED` and why. verify: one line for each step: `ok`;
      `unchecked` where some bytes have no digest; or `DAMAGED` and why. prune:
      the steps that were removed.

    JSON:
      folder          the argument
      ok              ls, verify: whether no damage was found
      steps           ls, verify: a list of step, file, nbytes, modified (seconds
                      since 1970), metrics, pinned, checked (verify: whether a
                      digest covers every byte), error (null if there is none)
      dry_run         prune: whether nothing was removed
      removed         prune: the steps

    Safety:
      ls and verify never change a file. prune removes steps only, and never the
      newest undamaged one.

    Exit code:
      0 if no damage was found, or all was removed; 1 if a step is damaged, or the
      folder has none.

    Examples:
      $ ztensor ckpt ls run
        the steps; only the ends of the files are read
      $ ztensor ckpt verify run
        one byte of the newest step is wrong; exits with 1
      $ ztensor ckpt prune run --keep 1 --dry-run
        step 200 is the newest undamaged one, and stays
    """
    folder = options.folder
    if not ext.is_remote(folder) and not os.path.isdir(folder):
        raise SourceNotFoundError("the folder does not exist", file=folder)
    with ztensor.CheckpointManager(folder, **_rules(options)) as manager:
        if not manager.newest(0)[0]:
            raise SourceNotFoundError(
                "the folder has no step of a training run",
                file=folder,
                expected="files such as step-00000100.zt, which ztensor.CheckpointManager saves",
            )
        if options.action == "prune":
            _prune(terminal, manager, options)
            return
        steps = manager.checkpoints() if options.action == "ls" else manager.verify()
    (_print_list if options.action == "ls" else _print_verified)(terminal, folder, steps)
    _finish(terminal, folder, steps)


def _rules(options: Namespace) -> dict[str, Any]:
    """Return the arguments of `CheckpointManager` that select the steps to keep.

    Raises:
        UsageError: an option is missing, or the verb removes nothing.
    """
    is_given = options.keep is not None or options.keep_best or options.keep_every is not None
    if options.action != "prune":
        if is_given or options.damaged or options.dry_run:
            raise UsageError(f"{options.action} removes nothing; these options are for prune")
        return {"keep": None}
    if is_given:
        return {
            "keep": 1 if options.keep is None else options.keep,
            "keep_best": [_best(text) for text in options.keep_best],
            "keep_every": options.keep_every,
        }
    if not options.damaged:
        raise UsageError(
            "prune needs a rule for the steps to keep: --keep, --keep-best or --keep-every; "
            "or --damaged, to remove damaged steps only"
        )
    return {"keep": None}


def _best(text: str) -> tuple[str, int, str]:
    metric, _, rest = text.partition(":")
    count, _, mode = rest.partition(":")
    if not metric or not count.isascii() or not count.isdigit() or mode not in ("min", "max"):
        raise ArgumentValueError(
            "--keep-best takes a metric, a number of steps, and min or max",
            expected="such as loss:2:min",
            found=describe(text, 60),
        )
    return metric, int(count), mode


def _print_list(
    terminal: Terminal, folder: str, steps: Sequence[ztensor.training.Checkpoint]
) -> None:
    terminal.table(
        _COLUMNS,
        [
            (
                str(checkpoint.step),
                size_text(checkpoint.nbytes),
                ", ".join(f"{name} {value:g}" for name, value in checkpoint.metrics.items()),
                _state(checkpoint),
            )
            for checkpoint in steps
        ],
    )
    terminal.line(f"{folder}: {count_text(len(steps), 'step')}")


def _state(checkpoint: ztensor.training.Checkpoint) -> str:
    if checkpoint.problem is None:
        return "pinned" if checkpoint.is_pinned else ""
    return f"{'DAMAGED' if checkpoint.is_damaged else 'unknown'}: {checkpoint.problem.message}"


def _print_verified(
    terminal: Terminal, folder: str, steps: Sequence[ztensor.training.Checkpoint]
) -> None:
    for checkpoint in steps:
        if checkpoint.problem is None:
            word = "ok" if checkpoint.is_checked else "unchecked"
            terminal.line(f"step {checkpoint.step}: {word}, {size_text(checkpoint.nbytes)}")
        else:
            word = "DAMAGED" if checkpoint.is_damaged else "not read"
            terminal.problem(f"step {checkpoint.step}: {word}; {checkpoint.problem.told()}")
    counts = {
        "ok": sum(checkpoint.is_checked for checkpoint in steps),
        "unchecked": sum(
            checkpoint.problem is None and not checkpoint.is_checked for checkpoint in steps
        ),
        "damaged": sum(checkpoint.is_damaged for checkpoint in steps),
        "not read": sum(
            checkpoint.problem is not None and not checkpoint.is_damaged for checkpoint in steps
        ),
    }
    facts = ", ".join(f"{n:,} {word}" for word, n in counts.items() if n)
    terminal.line(f"{folder}: {count_text(len(steps), 'step')}: {facts}")


def _finish(terminal: Terminal, folder: str, steps: Sequence[ztensor.training.Checkpoint]) -> None:
    ok = all(checkpoint.problem is None for checkpoint in steps)
    if not ok:
        terminal.fail(ExitCode.FAILED)
    terminal.result(
        {
            "folder": folder,
            "ok": ok,
            "steps": [
                {
                    "step": checkpoint.step,
                    "file": checkpoint.path,
                    "nbytes": checkpoint.nbytes,
                    "modified": checkpoint.modified,
                    "metrics": dict(checkpoint.metrics),
                    "pinned": checkpoint.is_pinned,
                    "checked": checkpoint.is_checked,
                    "error": None
                    if checkpoint.problem is None
                    else error_as_json(checkpoint.problem),
                }
                for checkpoint in steps
            ],
        }
    )


def _prune(terminal: Terminal, manager: ztensor.CheckpointManager, options: Namespace) -> None:
    removed = manager.prune(damaged=options.damaged, dry_run=options.dry_run)
    for step in removed:
        terminal.line(f"step {step}: {'would be removed' if options.dry_run else 'removed'}")
    done = "to remove; nothing is changed" if options.dry_run else "removed"
    terminal.line(f"{options.folder}: {count_text(len(removed), 'step')} {done}")
    terminal.result({"folder": options.folder, "dry_run": options.dry_run, "removed": removed})
