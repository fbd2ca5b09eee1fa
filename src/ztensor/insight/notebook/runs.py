"""Sheets of a training run, its steps and restored states."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztensor.errors import counted, describe, without_secrets
from ztensor.insight.notebook.sheet import FileText, Number, Sheet, Table
from ztensor.insight.notebook.values import value_text
from ztensor.insight.text import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ztensor import CheckpointManager, training

_COLUMNS = ("step", "size", "written", "metrics", "state")


def of_checkpoint(checkpoint: training.Checkpoint) -> Sheet:
    """Return the sheet of a step."""
    return Sheet(
        "ztensor.training.Checkpoint", without_secrets(checkpoint.path), list(_facts(checkpoint))
    )


def _facts(checkpoint: training.Checkpoint) -> Iterator[tuple[str, str]]:
    yield "step", f"{checkpoint.step:,}"
    yield "size", size_text(checkpoint.nbytes)
    yield "written", _when(checkpoint.modified)
    yield from _metrics(checkpoint.metrics)
    yield "state", FileText(_state(checkpoint))


def _metrics(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    some = list(metrics.items())[:50]
    return [(f"metric {describe(name, 60)}", f"{value:.6g}") for name, value in some]


def _state(checkpoint: training.Checkpoint) -> str:
    if checkpoint.problem is not None:
        return f"{'damaged' if checkpoint.is_damaged else 'cannot be read'}: {checkpoint.problem}"
    pinned = ", pinned" if checkpoint.is_pinned else ""
    return f"{'every byte checked' if checkpoint.is_checked else 'opens'}{pinned}"


def _when(modified: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(modified))
    except (ValueError, OverflowError, OSError):  # out of the calendar's range
        return f"{modified:.6g}"


def of_manager(manager: CheckpointManager) -> Sheet:
    """Return the sheet of a run: the newest steps of a folder, or the address of a store."""
    if manager.is_remote:
        return Sheet(
            "ztensor.CheckpointManager",
            without_secrets(manager.name),
            [("steps", "in a store, which is not listed here")],
            ways="manager.checkpoints()",
        )
    count, newest = manager.newest()
    table = Table(f"{counted(count, 'step')}, the newest first", _COLUMNS, map(_row, newest), count)
    return Sheet(
        "ztensor.CheckpointManager",
        manager.name,
        [("steps", f"{count:,}")],
        [table] if count else [],
        "manager.checkpoints(), manager.restore()",
    )


def _row(checkpoint: training.Checkpoint) -> Sequence[str]:
    metrics = ", ".join(
        f"{name}={value:.6g}" for name, value in list(checkpoint.metrics.items())[:10]
    )
    return (
        Number(f"{checkpoint.step:,}"),
        Number(size_text(checkpoint.nbytes)),
        _when(checkpoint.modified),
        FileText(metrics),
        FileText(_state(checkpoint)),
    )


def of_restored(restored: training.Restored) -> Sheet:
    """Return the sheet of a restored step, without the values of its state."""
    facts = [("step", f"{restored.step:,}")]
    facts += _metrics(restored.metrics)
    tables = []
    if restored.skipped:
        rows = ((Number(f"{step:,}"), FileText(str(error))) for step, error in restored.skipped)
        columns = ("step", "why")
        tables.append(Table("newer steps that are damaged", columns, rows, len(restored.skipped)))
    tree: Any = restored.tree
    if isinstance(tree, Mapping):
        cells = ((FileText(str(key)), FileText(value_text(value))) for key, value in tree.items())
        tables.append(Table(f"state: {value_text(tree)}", ("key", "value"), cells, len(tree)))
    else:
        facts.append(("state", FileText(value_text(tree))))
    return Sheet("ztensor.training.Restored", "", facts, tables)
