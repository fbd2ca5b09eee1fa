"""`ztensor demo`: what the format does, with numbers of this machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from ztensor.cli.exits import ExitCode
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Styled, Terminal

if TYPE_CHECKING:
    from ztensor.demo import Outcome, Step

_WIDTHS = (38, 11, 11, 8)


def demo(
    terminal: Terminal,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A file of any known format, or a set; by default a checkpoint is made.",
            show_default=False,
        ),
    ] = None,
    *,
    folder: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Where to work; by default the system's folder for temporary files.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Save, map, slice and damage a checkpoint, with times.

    A checkpoint is saved raw and compressed, mapped, loaded, sliced and verified, and a bit of a
    copy is flipped. Without MODEL a GPT-2 small of random bfloat16 weights is made, 250 MB.
    Everything is compared with the original. Twice the size of the tensors must be free in the
    folder.

    Output:
      One line for each step, with its time and rate, and what is said of the
      flipped bit. Rates count the bytes of the tensors, for `verify` those of the
      file. Files were just written, so reads are from memory and not from a disk.

    JSON:
      ok, failures    whether all is equal, and sentences of what is not
      tensors, nbytes, raw_nbytes, compressed_nbytes
                      counts and sizes
      first_tensor_seconds
                      from opening the file
      damaged_object, verify_message, read_message
                      the flipped bit
      steps           a list of operation, seconds, nbytes (or null), moved
                      (whether a rate has a meaning)

    Safety:
      It never changes a file of yours, and leaves none behind.

    Exit code:
      0 where all came back bit for bit, 1 where anything differs.

    Examples:
      $ ztensor demo tiny.npz --quiet
        only the exit code says that all came back
    """
    from ztensor.demo import CheckpointShape, build_checkpoint, read_model, run

    if model is None:
        shape = CheckpointShape()
        parameters = f"{shape.parameters / 1e6:.1f} million bfloat16 parameters"
        terminal.line(Styled(f"A checkpoint shaped like GPT-2 small, {parameters}", "bold"))
        with terminal.progress("make the checkpoint") as progress:
            tensors = build_checkpoint(shape, progress=progress)
        attributes: dict[str, object] = {"made_by": "ztensor demo"}
    else:
        tensors, attributes = read_model(model)
        terminal.line(Styled(model, "bold"))
    nbytes = sum(tensor.nbytes for tensor in tensors.values())
    terminal.line(f"{count_text(len(tensors), 'tensor')}, {size_text(nbytes)} in memory")
    terminal.line()
    terminal.line(Styled(_row("operation", "bytes", "seconds", "GB/s"), "bold"))
    outcome = run(
        tensors,
        attributes=attributes,
        folder=folder,
        report=lambda step: _show_step(terminal, step),
        watch=terminal.progress,
    )
    _show_outcome(terminal, outcome)
    terminal.result(dataclasses.asdict(outcome) | {"ok": outcome.ok})


def _row(*cells: str) -> str:
    first, *rest = cells
    padded = [cell.rjust(width) for cell, width in zip(rest, _WIDTHS[1:], strict=True)]
    return first.ljust(_WIDTHS[0]) + "".join(padded)


def _show_step(terminal: Terminal, step: Step) -> None:
    terminal.line(
        _row(
            step.operation,
            "" if step.nbytes is None else size_text(step.nbytes),
            f"{step.seconds:.4f}",
            "" if step.rate is None else f"{step.rate / 1e9:.2f}",
        )
    )


def _show_outcome(terminal: Terminal, outcome: Outcome) -> None:
    ratio = outcome.raw_nbytes / outcome.compressed_nbytes
    terminal.line()
    terminal.facts(
        [
            ("time to first tensor", f"{outcome.first_tensor_seconds * 1000:.2f} ms"),
            ("raw file", size_text(outcome.raw_nbytes)),
            ("compressed file", f"{size_text(outcome.compressed_nbytes)}, 1 : {ratio:.2f}"),
        ]
    )
    terminal.line(
        Styled("Saves are not flushed to disk, and reads find the file in memory.", "dim")
    )
    if outcome.damaged_object is not None:
        terminal.line()
        terminal.line(f"One bit of '{outcome.damaged_object}' was flipped in a copy.")
        terminal.facts(
            [
                ("verify says", outcome.verify_message or "nothing"),
                ("reading says", outcome.read_message or "nothing"),
            ]
        )
    terminal.line()
    if outcome.ok:
        noticed = "" if outcome.damaged_object is None else " The flipped bit was noticed."
        terminal.line(
            Styled("ok", "bold green"),
            f": {count_text(outcome.tensors, 'tensor')} saved raw and compressed, loaded mapped "
            f"and copied, bit for bit the same.{noticed}",
        )
        return
    terminal.fail(ExitCode.FAILED)
    for failure in outcome.failures:
        terminal.problem(Styled("DIFFERS", "bold red"), f": {failure}")
