"""A run's steps under faults: what each moment of a save or a removal leaves in the folder.

A state is *old* where the folder has the steps it had, *new* where it has the new one, those that
the rules keep, and maybe some that are still to be removed. Whatever else it has is *lost*; a step
that opens and has other bytes than were saved is *silently wrong*.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import logging
import random
import shutil
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import ztensor
from tests.faults.calls import Calls, Fault
from tests.faults.images import after_kill, after_power_cut
from tests.faults.judge import Outcome
from tests.faults.trials import COMPOUND, FAULTS, Tally
from ztensor import CheckpointManager
from ztensor.checkpoints.step import step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_RULES: dict[str, Any] = {"keep": 2, "keep_best": ("loss", 1, "min"), "background": False}
# The best is the first.
_LOSSES = {1: 0.25, 2: 0.5, 3: 0.5, 4: 0.5, 5: 0.75}


def state(step: int) -> dict[str, Any]:
    """Return what a step holds."""
    return {"step": step, "w": np.full(300, step, np.float32), "betas": (0.9, 0.99)}


def _save(manager: CheckpointManager, step: int) -> None:
    manager.save(step, state(step), {"loss": _LOSSES[step]})
    manager.wait()


def _save_next(folder: Path) -> None:
    _save(CheckpointManager(folder, **_RULES), 5)


def _save_aside(folder: Path) -> None:
    _save(CheckpointManager(folder, **{**_RULES, "background": True}), 5)


def _save_restored(folder: Path) -> None:
    manager = CheckpointManager(folder, **_RULES)
    manager.restore()
    _save(manager, 4)


def _save_older(folder: Path) -> None:
    _save(CheckpointManager(folder, **_RULES, overwrite_newer=True), 3)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One change of a run's folder.

    Attributes:
        run: makes it.
        before: the steps that are there.
        after: those that are there once it is done.
        new: the one that is saved; None where steps are only removed.
        damaged: those of `before` whose bytes are wrong, and which count for nothing.
    """

    run: Callable[[Path], object]
    before: tuple[int, ...]
    after: tuple[int, ...]
    new: int | None = None
    damaged: tuple[int, ...] = ()

    def prepare(self, folder: Path) -> None:
        """Save the steps there are."""
        with CheckpointManager(folder, keep=None, durable=False, background=False) as manager:
            for step in self.before:
                _save(manager, step)
        for step in self.damaged:
            path = folder / f"step-{step:08d}.zt"
            data = bytearray(path.read_bytes())
            data[100] ^= 1
            path.write_bytes(data)

    def judge(self, folder: Path) -> FolderJudge:
        """Return what knows what may be in a folder while this is made."""
        return StepJudge(self, folder)


class AnyChange(Protocol):
    """A change of a folder, whatever is in it."""

    @property
    def before(self) -> object:
        """Return what was there before."""
        ...

    @property
    def run(self) -> Callable[[Path], object]:
        """Return what makes it."""
        ...

    def prepare(self, folder: Path) -> None:
        """Make what is there before."""
        ...

    def judge(self, folder: Path) -> FolderJudge:
        """Return what knows what may be in a folder while it is made."""
        ...


CHANGES = {
    "first save": Change(_save_next, (), (5,), 5),
    "save": Change(_save_next, (1, 2, 3, 4), (1, 4, 5), 5),
    "save, aside": Change(_save_aside, (1, 2, 3, 4), (1, 4, 5), 5),
    "save, damaged": Change(_save_restored, (1, 2, 3, 4), (1, 3, 4), 4, damaged=(4,)),
    "save, several damaged": Change(_save_restored, (1, 2, 3, 4), (1, 2, 3, 4), 4, damaged=(3, 4)),
    "save, older": Change(_save_older, (1, 2, 4), (1, 2, 3), 3),
    "prune": Change(
        lambda folder: CheckpointManager(folder, keep=1).prune(), (1, 2, 3, 4), (3, 4), damaged=(4,)
    ),
    "pin": Change(lambda folder: CheckpointManager(folder).pin(2), (1, 2), (1, 2)),
}


class FolderJudge(abc.ABC):
    """Knows what may be in a folder while a change is made.

    Args:
        folder: an empty folder, where images are looked at.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "image"
        self._known: dict[int, tuple[Outcome, bool]] = {}

    @property
    def distinct(self) -> int:
        """Return how many different folders were looked at."""
        return len(self._known)

    def of(self, files: dict[str, bytes]) -> tuple[Outcome, bool]:
        """Return what a folder is, and whether the next save leaves anything that is not needed."""
        key = hash(frozenset(files.items()))
        if key not in self._known:
            self._folder.mkdir()
            try:
                for name in sorted(files):
                    if name.endswith("/"):
                        (self._folder / name).mkdir()
                    else:
                        (self._folder / name).write_bytes(files[name])
                self._known[key] = self.look(self._folder)
            finally:
                shutil.rmtree(self._folder)
        return self._known[key]

    @abc.abstractmethod
    def look(self, folder: Path) -> tuple[Outcome, bool]:
        """Return the same of a folder that is there; it is saved to."""


class StepJudge(FolderJudge):
    """Knows what may be in the folder of a run.

    Args:
        change: the change.
        folder: as for `FolderJudge`.
    """

    def __init__(self, change: Change, folder: Path) -> None:
        super().__init__(folder)
        self._change = change

    def look(self, folder: Path) -> tuple[Outcome, bool]:
        """Return the same of a folder that is there; it is saved to."""
        change = self._change
        manager = CheckpointManager(folder, **_RULES)
        whole = {one.step for one in manager.verify() if one.problem is None}
        if any(
            ztensor.load_tree(folder / f"step-{step:08d}.zt")["w"].tolist() != [step] * 300
            for step in whole
        ):
            return Outcome.WRONG, False
        damaged = {*change.damaged}
        old = {*change.before} - damaged
        outcome = Outcome.LOST
        if whole == old:
            outcome = Outcome.OLD
        if {*change.after} - (damaged - {change.new}) <= whole <= old | {change.new}:
            is_new = change.new is None or change.new in whole
            outcome = Outcome.NEW if is_new else outcome
        found = CheckpointManager(folder).restore() if whole else None
        if found is not None and found.step != max(whole):
            outcome = Outcome.WRONG
        with CheckpointManager(folder, **_RULES, overwrite_newer=True) as last:
            last.save(9, state(9))
        litter = any(step_of(path.name) is None for path in folder.iterdir())
        return outcome, litter


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: steps that are damaged, and saves that fail, are the point."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _recorded(change: AnyChange, folder: Path, **options: Any) -> Calls:
    run = folder / "run"
    run.mkdir()
    change.prepare(run)
    with _quiet(), Calls(run, **options) as calls:
        change.run(run)
    return calls


def _tally(judge: FolderJudge, worlds: Iterator[dict[str, bytes]]) -> Tally:
    tally = Tally()
    with _quiet():
        for files in worlds:
            outcome, litter = judge.of(files)
            tally.add(outcome)
            tally.litter += litter
    tally.distinct = judge.distinct
    return tally


def kill_run(change: AnyChange, folder: Path, *, stride: int, nameless: bool = True) -> Tally:
    """Judge the folder behind every call, and inside every write."""
    calls = _recorded(change, folder, nameless=nameless)
    worlds = after_kill(calls, stride=stride, dense_bytes=0)
    return _tally(change.judge(folder), (world.files() for _, world in worlds))


def cut_power_of_run(
    change: AnyChange,
    folder: Path,
    *,
    count: int,
    seed: int,
    unflushed: Callable[[int], bool] = lambda number: False,
) -> Tally:
    """Judge `count` folders that a power cut may leave."""
    calls = _recorded(change, folder, unflushed=unflushed)
    dice = random.Random(f"{seed} {change.before}")

    def worlds() -> Iterator[dict[str, bytes]]:
        for _ in range(count):
            moment = dice.randint(0, len(calls.log))
            yield after_power_cut(calls, dice, moment).files()

    return _tally(change.judge(folder), worlds())


def fail_run(change: AnyChange, folder: Path, *, faults: tuple[str, ...] | None = None) -> Tally:
    """Let each call fail in each way, until the change gets through; judge what is there then."""
    template = folder / "template"
    template.mkdir()
    change.prepare(template)
    judge = change.judge(folder)
    every = {name: [fault] for name, fault in FAULTS.items()} | COMPOUND
    tally = Tally()
    with _quiet():
        for name in faults or every:
            for number in range(1, 1000):
                tried = folder / "tried"
                shutil.copytree(template, tried)
                with Calls(tried, faults=_numbered(every[name], number)) as calls:
                    raised = _raised_by(change, tried)
                if raised is None and not calls.has_struck:
                    shutil.rmtree(tried)
                    break
                outcome, litter = judge.look(tried)
                tally.add(outcome if raised is not None or outcome is not Outcome.OLD else _SILENT)
                tally.litter += litter
                shutil.rmtree(tried)
    return tally


# A save that said nothing, and saved nothing.
_SILENT = Outcome.LOST


def _numbered(faults: list[Fault], number: int) -> list[Fault]:
    return [dataclasses.replace(faults[0], number=number), *faults[1:]]


def _raised_by(change: AnyChange, folder: Path) -> BaseException | None:
    try:
        change.run(folder)
    except (ztensor.ZTensorError, KeyboardInterrupt) as error:
        return error
    return None
