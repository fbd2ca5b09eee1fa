"""Divided checkpoints under faults: what each moment of a save of several processes leaves.

The processes write one after the other here, each its own files; then one commits. A state is
*old* where the folder has the checkpoint it had, or does not open where it had none, *new* where it
has the one that is saved. A folder that opens with anything else is *silently wrong*.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ztensor
from tests.faults.judge import Outcome
from tests.faults.steps import FolderJudge
from tests.unit.distributed.saving import save
from ztensor.distributed import PartWriter, compact, open_divided


def _save(folder: Path, step: int, **options: Any) -> None:
    tensors = {"w": np.full((4, 30), step, "f4"), "frozen": np.arange(200.0)}
    save(folder, tensors, processes=2, values={"step": step}, **options)


def _leave_dead(folder: Path) -> None:
    with PartWriter(folder, process=7) as part:
        part.add("w", np.zeros(50))
        part.finish()


@dataclasses.dataclass(frozen=True, slots=True)
class DividedChange:
    """One change of the folder of a divided checkpoint.

    Attributes:
        run: makes it.
        before: the step that is there; None for none.
        after: the step that is there once it is done.
        has_dead: there are files of a save that died.
    """

    run: Callable[[Path], object]
    before: int | None
    after: int
    has_dead: bool = False

    def prepare(self, folder: Path) -> None:
        if self.before is not None:
            _save(folder, self.before, checksum="xxh3-128")
        if self.has_dead:
            _leave_dead(folder)

    def judge(self, folder: Path) -> FolderJudge:
        return DividedJudge(self, folder)


DIVIDED: dict[str, DividedChange] = {
    "first save": DividedChange(lambda folder: _save(folder, 2), None, 2),
    "save": DividedChange(lambda folder: _save(folder, 2), 1, 2),
    "save, several files": DividedChange(
        lambda folder: _save(folder, 2, max_shard_size=300), 1, 2, has_dead=True
    ),
    "increment": DividedChange(lambda folder: _save(folder, 2, since=folder), 1, 2),
    "compact": DividedChange(compact, 1, 1, has_dead=True),
}


class DividedJudge(FolderJudge):
    """Knows what may be in the folder of a divided checkpoint.

    Args:
        change: the change.
        folder: as for `FolderJudge`.
    """

    def __init__(self, change: DividedChange, folder: Path) -> None:
        super().__init__(folder)
        self._change = change

    def look(self, folder: Path) -> tuple[Outcome, bool]:
        """Return what a folder is, and whether the next save leaves what no root names."""
        change = self._change
        found: int | None = None
        try:
            with open_divided(folder) as checkpoint:
                found = checkpoint.root.values["step"]
                whole = checkpoint.objects.array("w", copy=True)
                frozen = checkpoint.objects.array("frozen", copy=True)
        except ztensor.ZTensorError:
            # The first save is not flushed, as nothing is replaced: it may be there in part, which
            # is an error. Of a checkpoint that was there none may come.
            if change.before is not None:
                return Outcome.LOST, False
        else:
            if not (whole == found).all() or not (frozen == np.arange(200.0)).all():
                return Outcome.WRONG, False
        outcome = Outcome.LOST
        if found == change.before:
            outcome = Outcome.OLD
        if found == change.after:
            outcome = Outcome.NEW
        _save(folder, 9)
        with contextlib.closing(open_divided(folder)) as checkpoint:
            named = {file.name for file in checkpoint.root.files} | {"checkpoint.zt"}
        return outcome, bool({path.name for path in folder.iterdir()} - named)
