"""Folders under faults: the steps of a run, and divided checkpoints, at each moment of a change.

The folder of a run is *old* if it has the steps it had; *new* if it has the new one, those that the
rules keep, and maybe some that are still to be removed. A divided checkpoint is *old* if it is the
one that was there (or does not open, if none was), *new* if it is the one that is saved. Anything
else is *lost*; a step or checkpoint that opens with other values is *silently wrong*. The processes
of a divided checkpoint write one after the other here; then one commits.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import logging
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import ztensor
from tests.faults.calls import Calls, Fault
from tests.faults.images import after_kill, after_power_cut
from tests.faults.judge import Outcome
from tests.faults.operations import TARGET, start
from tests.faults.trials import COMPOUND, FAULTS, Tally
from tests.unit.distributed.saving import save as save_parts
from ztensor import CheckpointManager, edit
from ztensor.delta import apply, make
from ztensor.distributed import PartWriter, compact, open_divided
from ztensor.ext import ALGORITHMS
from ztensor.numpy import save_file
from ztensor.training.checkpoints.step import name_of, step_of

_RULES: dict[str, Any] = {"keep": 2, "keep_best": ("loss", 1, "min"), "background": False}
# The best is the first.
_LOSSES = {1: 0.25, 2: 0.5, 3: 0.5, 4: 0.5, 5: 0.75, 6: 0.75, 7: 0.75}
_FROZEN = np.arange(200.0)


def state(step: int) -> dict[str, Any]:
    return {"step": step, "w": np.full(300, step, np.float32), "betas": (0.9, 0.99)}


def _part_state(step: int) -> dict[str, Any]:
    """Return a state with a large tensor that all steps have in common."""
    return {**state(step), "frozen": _FROZEN}


def _save(manager: CheckpointManager, step: int, held: Callable[[int], object] = state) -> None:
    manager.save(step, held(step), {"loss": _LOSSES[step]})
    manager.wait()


def _save_divided(manager: CheckpointManager, step: int) -> None:
    """Save a step that two processes write, one after the other."""

    def write(folder: Any, values: Mapping[str, object]) -> None:
        held = {name: value for name, value in _part_state(step).items() if name != "betas"}
        number = held.pop("step")
        values = {**values, "step": number, "betas": (0.9, 0.99)}
        save_parts(folder, held, processes=2, values=values)

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


class FolderChange(abc.ABC):
    """A change of a folder."""

    @abc.abstractmethod
    def run(self, folder: Path) -> None:
        """Make the change."""

    @abc.abstractmethod
    def prepare(self, folder: Path) -> None:
        """Fill an empty folder with its state before."""

    @abc.abstractmethod
    def look(self, folder: Path) -> tuple[Outcome, bool]:
        """Return the verdict, and whether the next save, made here, leaves unneeded files."""


class FolderJudge:
    """Judges folders that a change may leave; of equal ones the verdict is remembered.

    Args:
        change: the change.
        folder: an empty folder, where images are looked at.
    """

    def __init__(self, change: FolderChange, folder: Path) -> None:
        self._change = change
        self._folder = folder / "image"
        self._known: dict[int, tuple[Outcome, bool]] = {}

    @property
    def distinct(self) -> int:
        """Return how many different folders were judged."""
        return len(self._known)

    def of(self, files: dict[str, bytes]) -> tuple[Outcome, bool]:
        """Return the verdict, and whether the next save leaves unneeded files."""
        key = hash(frozenset(files.items()))
        if key not in self._known:
            self._folder.mkdir()
            try:
                for name in sorted(files):
                    if name.endswith("/"):
                        (self._folder / name).mkdir()
                    else:
                        (self._folder / name).write_bytes(files[name])
                self._known[key] = self._change.look(self._folder)
            finally:
                shutil.rmtree(self._folder)
        return self._known[key]


@dataclasses.dataclass(frozen=True, slots=True)
class StepChange(FolderChange):
    """One change of a run's folder.

    Attributes:
        run_by: makes it, with a manager.
        before: the steps that are there.
        after: those that are there once it is done.
        new: the one that is saved; None if steps are only removed.
        damaged: steps of `before` with wrong bytes, which do not count.
        kind: how steps are kept.
        rules: of the manager, in addition to the kind's.
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

    def look(self, folder: Path) -> tuple[Outcome, bool]:
        self.set_clock_back(folder)
        manager = self.kind.manager(folder)
        whole = {one.step for one in manager.verify() if one.problem is None}
        if any(not is_right(manager, step) for step in whole):
            return Outcome.WRONG, False
        damaged = {*self.damaged}
        old = {*self.before} - damaged
        outcome = Outcome.LOST
        if whole == old:
            outcome = Outcome.OLD
        if {*self.after} - (damaged - {self.new}) <= whole <= old | {self.new}:
            is_new = self.new is None or self.new in whole
            outcome = Outcome.NEW if is_new else outcome
        found = self.kind.manager(folder).restore() if whole else None
        if found is not None and found.step != max(whole):
            outcome = Outcome.WRONG
        with self.kind.manager(folder, overwrite_newer=True) as last:
            last.save(9, state(9))
            there = {name_of(one.step) for one in last.checkpoints()}
        litter = any(path.name.removesuffix(".zt") not in there for path in folder.iterdir())
        return outcome, litter


def _save_5(kind: Kind) -> Callable[[CheckpointManager], object]:
    return lambda manager: kind.save(manager, 5)


_FOUR = (1, 2, 3, 4)
STEPS: dict[str, FolderChange] = {
    "first save": StepChange(_save_5(FILES), (), (5,), 5),
    "save": StepChange(_save_5(FILES), _FOUR, (1, 4, 5), 5),
    "save, aside": StepChange(_save_5(FILES), _FOUR, (1, 4, 5), 5, rules={"background": True}),
    "save, damaged": StepChange(
        lambda manager: _save(_restored(manager), 4), _FOUR, (1, 3, 4), 4, damaged=(4,)
    ),
    "save, several damaged": StepChange(
        lambda manager: _save(_restored(manager), 4), _FOUR, _FOUR, 4, damaged=(3, 4)
    ),
    "save, older": StepChange(
        lambda manager: _save(manager, 3), (1, 2, 4), (1, 2, 3), 3, rules={"overwrite_newer": True}
    ),
    "save, clock back": StepChange(_save_5(FILES), _FOUR, (1, 4, 5), 5, has_clock_back=True),
    "prune": StepChange(
        lambda manager: manager.prune(),
        _FOUR,
        (3, 4),
        damaged=(4,),
        rules={"keep": 1, "keep_best": None},
    ),
    "pin": StepChange(lambda manager: manager.pin(2), (1, 2), (1, 2)),
    "increment, first": StepChange(_save_5(INCREMENTS), (), (5,), 5, kind=INCREMENTS),
    "increment": StepChange(_save_5(INCREMENTS), _FOUR, (1, 4, 5), 5, kind=INCREMENTS),
    "increment, damaged": StepChange(
        lambda manager: INCREMENTS.save(_restored(manager), 4),
        _FOUR,
        (1, 3, 4),
        4,
        damaged=(4,),
        kind=INCREMENTS,
    ),
    "increment, clock back": StepChange(
        _save_5(INCREMENTS), _FOUR, (1, 4, 5), 5, kind=INCREMENTS, has_clock_back=True
    ),
    "increment, prune": StepChange(
        lambda manager: manager.prune(),
        _FOUR,
        (4,),
        kind=INCREMENTS,
        rules={"keep": 1, "keep_best": None},
    ),
    "divided, first": StepChange(_save_5(DIVIDED_STEPS), (), (5,), 5, kind=DIVIDED_STEPS),
    "divided": StepChange(_save_5(DIVIDED_STEPS), _FOUR, (1, 4, 5), 5, kind=DIVIDED_STEPS),
}


def is_right(manager: CheckpointManager, step: int) -> bool:
    """Return whether a step has the state that was saved under its number."""
    tree = ztensor.load_tree(manager.path(step))
    return bool(
        (tree["w"] == np.full(300, step, np.float32)).all()
        and tree["step"] == step
        and tree["betas"] == (0.9, 0.99)
        and ("frozen" not in tree or (tree["frozen"] == _FROZEN).all())
    )


# --- Divided checkpoints ----------------------------------------------------------------------


def _save_checkpoint(folder: Path, step: int, **options: Any) -> None:
    tensors = {"w": np.full((4, 30), step, "f4"), "frozen": _FROZEN}
    save_parts(folder, tensors, processes=2, values={"step": step}, **options)


def _leave_dead(folder: Path) -> None:
    with PartWriter(folder, process=7) as part:
        part.add("w", np.zeros(50))
        part.finish()


@dataclasses.dataclass(frozen=True, slots=True)
class DividedChange(FolderChange):
    """One change of the folder of a divided checkpoint.

    Attributes:
        make: makes it.
        before: the step that is there, if any.
        after: the step that is there once it is done.
        has_dead: there are files of a save that died.
    """

    make: Callable[[Path], object]
    before: int | None
    after: int
    has_dead: bool = False

    def run(self, folder: Path) -> None:
        self.make(folder)

    def prepare(self, folder: Path) -> None:
        if self.before is not None:
            _save_checkpoint(folder, self.before, checksum="xxh3-128")
        if self.has_dead:
            _leave_dead(folder)

    def look(self, folder: Path) -> tuple[Outcome, bool]:
        found: int | None = None
        try:
            with open_divided(folder) as checkpoint:
                found = checkpoint.root.values["step"]
                whole = checkpoint.objects.array("w", copy=True)
                frozen = checkpoint.objects.array("frozen", copy=True)
        except ztensor.ZTensorError:
            # The first save is not flushed, as nothing is replaced: it may be there in part, which
            # is an error. Of a checkpoint that was there none may come.
            if self.before is not None:
                return Outcome.LOST, False
        else:
            if not (whole == found).all() or not (frozen == _FROZEN).all():
                return Outcome.WRONG, False
        outcome = Outcome.LOST
        if found == self.before:
            outcome = Outcome.OLD
        if found == self.after:
            outcome = Outcome.NEW
        _save_checkpoint(folder, 9)
        with contextlib.closing(open_divided(folder)) as checkpoint:
            named = {file.name for file in checkpoint.root.files} | {"checkpoint.zt"}
        return outcome, bool({path.name for path in folder.iterdir()} - named)


DIVIDED: dict[str, FolderChange] = {
    "first save": DividedChange(lambda folder: _save_checkpoint(folder, 2), None, 2),
    "save": DividedChange(lambda folder: _save_checkpoint(folder, 2), 1, 2),
    "save, several files": DividedChange(
        lambda folder: _save_checkpoint(folder, 2, max_shard_size=300), 1, 2, has_dead=True
    ),
    "increment": DividedChange(lambda folder: _save_checkpoint(folder, 2, since=folder), 1, 2),
    "compact": DividedChange(compact, 1, 1, has_dead=True),
}


# --- Shards -----------------------------------------------------------------------------------

INDEX = f"{TARGET}.index.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Split(FolderChange):
    """A split of a file beside the folder.

    A folder without an index is old; with one it must be a complete set, which is new.

    Attributes:
        before: whether the shards of another split are there, under the same names.
    """

    before: bool = False

    def run(self, folder: Path) -> None:
        edit.split(folder.parent / TARGET, folder, max_shard_size=2000, durable=True)

    def prepare(self, folder: Path) -> None:
        start(folder.parent)
        if self.before:
            self.run(folder)
            edit.set_attributes(folder.parent / TARGET, {"step": "5"})

    def look(self, folder: Path) -> tuple[Outcome, bool]:
        outcome = self._verdict(folder)
        self.run(folder)
        names = {path.name for path in folder.iterdir()}
        return outcome, len(names) != 3 or self._verdict(folder) is not Outcome.NEW

    def _verdict(self, folder: Path) -> Outcome:
        if not (folder / INDEX).exists():
            return Outcome.LOST if self.before else Outcome.OLD
        try:
            index = json.loads((folder / INDEX).read_text())
        except ValueError:
            return Outcome.LOST
        digests = index["metadata"]["digests"]
        if set(index["weight_map"].values()) != set(digests):
            return Outcome.WRONG
        for shard, digest in digests.items():
            data = (folder / shard).read_bytes() if (folder / shard).exists() else b""
            if ALGORITHMS["sha256"].of((data,)) != digest:
                return Outcome.WRONG
        with ztensor.open(folder / INDEX) as reader:
            return Outcome.NEW if set(reader) == set(index["weight_map"]) else Outcome.WRONG


SPLITS: dict[str, FolderChange] = {"first": Split(), "over another": Split(before=True)}


# --- A delta of shards ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class AppliedDelta(FolderChange):
    """A delta that is applied to shards, into a new folder beside them.

    Without that folder all is old; with it the shards in it must be complete and have the new
    state. The old shards never change.

    Attributes:
        suffix: of the shards.
    """

    suffix: str

    def run(self, folder: Path) -> None:
        apply(folder / "delta.zt", folder / "old", folder / "new", durable=True)

    def prepare(self, folder: Path) -> None:
        old = folder / "old"
        old.mkdir()
        (old / "config.json").write_text("{}")
        path = old / f"model.{self.suffix}"
        save_file(_shards(1), path, max_shard_size=700, durable=False)
        make(old, _shards(2), folder / "delta.zt")

    def look(self, folder: Path) -> tuple[Outcome, bool]:
        outcome = self._verdict(folder)
        with contextlib.suppress(ztensor.errors.UsageError):  # it is there
            self.run(folder)
        names = {path.name for path in folder.iterdir()}
        return outcome, names != {"old", "new", "delta.zt"}

    def _verdict(self, folder: Path) -> Outcome:
        if not _holds(folder / "old", _shards(1)):
            return Outcome.LOST
        if not (folder / "new").exists():
            return Outcome.OLD
        is_whole = (folder / "new" / "config.json").read_text() == "{}"
        return Outcome.NEW if is_whole and _holds(folder / "new", _shards(2)) else Outcome.WRONG


def _shards(step: int) -> dict[str, Any]:
    return {"a": _FROZEN, "b": np.full(60, step, np.float32), "c": np.arange(80)}


def _holds(folder: Path, tensors: Mapping[str, Any]) -> bool:
    with ztensor.open(folder) as reader:
        found = {name: reader[name].tobytes() for name in reader}
    return found == {name: array.tobytes() for name, array in tensors.items()}


DELTAS: dict[str, FolderChange] = {
    "zt": AppliedDelta("zt"),
    "safetensors": AppliedDelta("safetensors"),
}


# --- The tries --------------------------------------------------------------------------------


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Log nothing: steps that are damaged, and saves that fail, are the point."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _recorded(change: FolderChange, folder: Path, **options: Any) -> Calls:
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


def kill_run(change: FolderChange, folder: Path, *, stride: int, nameless: bool = True) -> Tally:
    """Judge the folder behind every call, and inside every write."""
    calls = _recorded(change, folder, nameless=nameless)
    worlds = after_kill(calls, stride=stride, dense_bytes=0)
    return _tally(FolderJudge(change, folder), (world.files() for _, world in worlds))


def cut_power_of_run(
    change: FolderChange,
    folder: Path,
    *,
    count: int,
    seed: int,
    unflushed: Callable[[int], bool] = lambda number: False,
) -> Tally:
    """Judge `count` folders that a power cut may leave."""
    calls = _recorded(change, folder, unflushed=unflushed)
    dice = random.Random(seed)

    def worlds() -> Iterator[dict[str, bytes]]:
        for _ in range(count):
            moment = dice.randint(0, len(calls.log))
            yield after_power_cut(calls, dice, moment).files()

    return _tally(FolderJudge(change, folder), worlds())


def fail_run(change: FolderChange, folder: Path, *, faults: tuple[str, ...] | None = None) -> Tally:
    """Let each call fail in each way, until the change gets through; judge the folder."""
    template = folder / "template"
    template.mkdir()
    change.prepare(template)
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
                outcome, litter = change.look(tried)
                tally.add(outcome if raised is not None or outcome is not Outcome.OLD else _SILENT)
                tally.litter += litter
                shutil.rmtree(tried)
    return tally


# A save that raised nothing, and saved nothing.
_SILENT = Outcome.LOST


def _numbered(faults: list[Fault], number: int) -> list[Fault]:
    return [dataclasses.replace(faults[0], number=number), *faults[1:]]


def _raised_by(change: FolderChange, folder: Path) -> BaseException | None:
    try:
        change.run(folder)
    except (ztensor.ZTensorError, KeyboardInterrupt) as error:
        return error
    return None
