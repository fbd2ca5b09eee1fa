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

    A checkpoint is saved raw and compressed, mapped, loaded, sliced and verified. Everything that
    is loaded is compared with the original. Then one bit of a copy is flipped, which must be
    noticed. Without MODEL the checkpoint is a GPT-2 small with random bfloat16 weights, 250 MB. The
    folder needs free space of twice the size of the tensors.

    Output:
      One line for each step, with its time and rate, and the errors about the
      flipped bit. Rates count the bytes of the tensors, for `verify` the bytes of
      the file. The files were just written, so they are read from memory and not
      from a disk.

    JSON:
      ok, failures    whether everything is equal, and sentences about what is not
      tensors, nbytes, raw_nbytes, compressed_nbytes
                      counts and sizes
      first_tensor_seconds
                      from opening the file
      damaged_object, verify_message, read_message
                      the flipped bit
      steps           a list of operation, seconds, nbytes (or null), moved
                      (whether a rate has a meaning)

    Safety:
      It never changes your files, and removes its own.

    Exit code:
      0 if everything was read back bit for bit, 1 if anything differs.

    Examples:
      $ ztensor demo tiny.npz --quiet
        prints nothing; the exit code says whether everything was equal
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
