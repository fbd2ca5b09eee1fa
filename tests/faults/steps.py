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
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import ztensor
from tests.faults.calls import Calls, Fault
from tests.faults.images import after_kill, after_power_cut
from tests.faults.judge import Outcome
from tests.faults.trials import COMPOUND, FAULTS, Tally
from tests.unit.distributed.saving import save as save_parts
from ztensor import CheckpointManager
from ztensor.training.checkpoints.step import name_of, step_of

_RULES: dict[str, Any] = {"keep": 2, "keep_best": ("loss", 1, "min"), "background": False}
# The best is the first.
_LOSSES = {1: 0.25, 2: 0.5, 3: 0.5, 4: 0.5, 5: 0.75, 6: 0.75, 7: 0.75}
_FROZEN = np.arange(200.0)


def state(step: int) -> dict[str, Any]:
    return {"step": step, "w": np.full(300, step, np.float32), "betas": (0.9, 0.99)}


def _part_state(step: int) -> dict[str, Any]:
    """Return what a step holds of which steps share much."""
    return {**state(step), "frozen": _FROZEN}


def _save(manager: CheckpointManager, step: int, held: Callable[[int], object] = state) -> None:
    manager.save(step, held(step), {"loss": _LOSSES[step]})
    manager.wait()


def _save_divided(manager: CheckpointManager, step: int) -> None:
    """Save a step that two processes write, one after the other."""

    def write(folder: Any, values: Mapping[str, object]) -> None:
        held = {name: value for name, value in _part_state(step).items() if name != "betas"}
        number = held.pop("step")
        told = {**values, "step": number, "betas": (0.9, 0.99)}
        save_parts(folder, held, processes=2, values=told)

    manager.save_divided(step, write, {"loss": _LOSSES[step]})


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """How a run keeps its steps.

    Attributes:
        save: saves a step.
        rules: of its managers.
    """

    save: Callable[[CheckpointManager, int], object] = _save
    rules: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def manager(self, folder: Path, **more: Any) -> CheckpointManager:
        return CheckpointManager(folder, **{**_RULES, **self.rules, **more})


FILES = Kind()
INCREMENTS = Kind(lambda manager, step: _save(manager, step, _part_state), {"increments": True})
DIVIDED_STEPS = Kind(_save_divided)


def _restored(manager: CheckpointManager) -> CheckpointManager:
    manager.restore()
    return manager


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One change of a run's folder.

    Attributes:
        run_by: makes it, with a manager.
        before: the steps that are there.
        after: those that are there once it is done.
        new: the one that is saved; None where steps are only removed.
        damaged: those of `before` whose bytes are wrong, and which count for nothing.
        kind: how steps are kept.
        rules: of the manager, beside those of the kind.
        has_clock_back: whether the clock was set back between any two steps, so that the newest
            files look oldest; some are older than 1970, some are of tomorrow.
    """

    run_by: Callable[[CheckpointManager], object]
    before: tuple[int, ...]
    after: tuple[int, ...]
    new: int | None = None
    damaged: tuple[int, ...] = ()
    kind: Kind = FILES
    rules: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    has_clock_back: bool = False

    def run(self, folder: Path) -> None:
        self.run_by(self.kind.manager(folder, **self.rules))

    def prepare(self, folder: Path) -> None:
        with self.kind.manager(folder, keep=None, keep_best=None, durable=False) as manager:
            for step in self.before:
                self.kind.save(manager, step)
        for step in self.damaged:
            path = folder / f"step-{step:08d}.zt"
            if path.exists():
                data = bytearray(path.read_bytes())
                data[100] ^= 1
            else:
                path = folder / f"step-{step:08d}" / "checkpoint.zt"
                data = bytearray(path.read_bytes()[:-50])
            path.write_bytes(data)
        self.set_clock_back(folder)

    def set_clock_back(self, folder: Path) -> None:
        """Give the files of a folder the times they have where the clock was set back."""
        if self.has_clock_back:
            for path in folder.rglob("*"):
                step = step_of(path.name) or step_of(path.parent.name) or 0
                tomorrow = time.time() + 86_400
                os.utime(path, (tomorrow, tomorrow - step * tomorrow / 3))

    def judge(self, folder: Path) -> FolderJudge:
        """Return what knows what may be in a folder while this is made."""
        return StepJudge(self, folder)


class AnyChange(Protocol):
    """A change of a folder, whatever is in it."""

    @property
    def before(self) -> object: ...

    @property
    def run(self) -> Callable[[Path], object]: ...

    def prepare(self, folder: Path) -> None: ...

    def judge(self, folder: Path) -> FolderJudge:
        """Return what knows what may be in a folder while it is made."""
        ...


def _save_5(kind: Kind) -> Callable[[CheckpointManager], object]:
    return lambda manager: kind.save(manager, 5)


_FOUR = (1, 2, 3, 4)
CHANGES = {
    "first save": Change(_save_5(FILES), (), (5,), 5),
    "save": Change(_save_5(FILES), _FOUR, (1, 4, 5), 5),
    "save, aside": Change(_save_5(FILES), _FOUR, (1, 4, 5), 5, rules={"background": True}),
    "save, damaged": Change(
        lambda manager: _save(_restored(manager), 4), _FOUR, (1, 3, 4), 4, damaged=(4,)
    ),
    "save, several damaged": Change(
        lambda manager: _save(_restored(manager), 4), _FOUR, _FOUR, 4, damaged=(3, 4)
    ),
    "save, older": Change(
        lambda manager: _save(manager, 3), (1, 2, 4), (1, 2, 3), 3, rules={"overwrite_newer": True}
    ),
    "save, clock back": Change(_save_5(FILES), _FOUR, (1, 4, 5), 5, has_clock_back=True),
    "prune": Change(
        lambda manager: manager.prune(),
        _FOUR,
        (3, 4),
        damaged=(4,),
        rules={"keep": 1, "keep_best": None},
    ),
    "pin": Change(lambda manager: manager.pin(2), (1, 2), (1, 2)),
    "increment, first": Change(_save_5(INCREMENTS), (), (5,), 5, kind=INCREMENTS),
    "increment": Change(_save_5(INCREMENTS), _FOUR, (1, 4, 5), 5, kind=INCREMENTS),
    "increment, damaged": Change(
        lambda manager: INCREMENTS.save(_restored(manager), 4),
        _FOUR,
        (1, 3, 4),
        4,
        damaged=(4,),
        kind=INCREMENTS,
    ),
    "increment, clock back": Change(
        _save_5(INCREMENTS), _FOUR, (1, 4, 5), 5, kind=INCREMENTS, has_clock_back=True
    ),
    "increment, prune": Change(
        lambda manager: manager.prune(),
        _FOUR,
        (4,),
        kind=INCREMENTS,
        rules={"keep": 1, "keep_best": None},
    ),
    "divided, first": Change(_save_5(DIVIDED_STEPS), (), (5,), 5, kind=DIVIDED_STEPS),
    "divided": Change(_save_5(DIVIDED_STEPS), _FOUR, (1, 4, 5), 5, kind=DIVIDED_STEPS),
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
        change.set_clock_back(folder)
        manager = change.kind.manager(folder)
        whole = {one.step for one in manager.verify() if one.problem is None}
        if any(not is_right(manager, step) for step in whole):
            return Outcome.WRONG, False
        damaged = {*change.damaged}
        old = {*change.before} - damaged
        outcome = Outcome.LOST
        if whole == old:
            outcome = Outcome.OLD
        if {*change.after} - (damaged - {change.new}) <= whole <= old | {change.new}:
            is_new = change.new is None or change.new in whole
            outcome = Outcome.NEW if is_new else outcome
        found = change.kind.manager(folder).restore() if whole else None
        if found is not None and found.step != max(whole):
            outcome = Outcome.WRONG
        with change.kind.manager(folder, overwrite_newer=True) as last:
            last.save(9, state(9))
            there = {name_of(one.step) for one in last.checkpoints()}
        litter = any(path.name.removesuffix(".zt") not in there for path in folder.iterdir())
        return outcome, litter


def is_right(manager: CheckpointManager, step: int) -> bool:
    """Return whether a step holds what was saved under its number."""
    tree = ztensor.load_tree(manager.path(step))
    return bool(
        (tree["w"] == np.full(300, step, np.float32)).all()
        and tree["step"] == step
        and tree["betas"] == (0.9, 0.99)
        and ("frozen" not in tree or (tree["frozen"] == _FROZEN).all())
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
    with quiet(), Calls(run, **options) as calls:
        change.run(run)
    return calls


def _tally(judge: FolderJudge, worlds: Iterator[dict[str, bytes]]) -> Tally:
    tally = Tally()
    with quiet():
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
    with quiet():
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
