"""Two managers on one folder: behind each call of the one, the other makes a whole change.

Neither may fail, and what each said is saved is there, as far as the rules of both keep it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import ztensor
from tests.faults.calls import Calls
from tests.faults.folders import DIVIDED_STEPS, FILES, INCREMENTS, Kind, StepChange, is_right, quiet
from tests.faults.judge import Outcome
from tests.faults.trials import Tally
from ztensor import CheckpointManager

_FOUR = (1, 2, 3, 4)
_FEW: dict[str, Any] = {"keep": 1, "keep_best": None}


@dataclasses.dataclass(frozen=True, slots=True)
class Meeting:
    """Two changes of one folder.

    Attributes:
        first: is recorded, and makes way behind each of its calls.
        other: is made then.
        required: the steps that are there once both are done.
        rules: of the other.
    """

    first: StepChange
    other: Callable[[CheckpointManager], object]
    required: frozenset[int]
    rules: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _FEW)

    @property
    def kind(self) -> Kind:
        """Return how the run keeps its steps."""
        return self.first.kind


def _save(kind: Kind) -> StepChange:
    return StepChange(lambda manager: kind.save(manager, 5), _FOUR, (), 5, kind=kind)


def _save_two(kind: Kind) -> Callable[[CheckpointManager], object]:
    def save(manager: CheckpointManager) -> None:
        kind.save(manager, 6)
        kind.save(manager, 7)

    return save


def _prune(kind: Kind) -> StepChange:
    return StepChange(lambda manager: manager.prune(), _FOUR, (), kind=kind, rules=_FEW)


def _meetings(kind: Kind) -> dict[str, Meeting]:
    return {
        "save, save": Meeting(
            _save(kind), lambda manager: kind.save(manager, 6), frozenset({5, 6}), {"keep": 2}
        ),
        # The other removes all that there was, and 5 where it is there already.
        "save, saves": Meeting(_save(kind), _save_two(kind), frozenset({7})),
        "save, prune": Meeting(_save(kind), lambda manager: manager.prune(), frozenset({5})),
        "prune, save": Meeting(_prune(kind), lambda manager: kind.save(manager, 6), frozenset({6})),
        "prune, prune": Meeting(_prune(kind), lambda manager: manager.prune(), frozenset({4})),
    }


MEETINGS: dict[str, Meeting] = {
    f"{prefix}{name}": meeting
    for prefix, kind in {"": FILES, "increment: ": INCREMENTS, "divided: ": DIVIDED_STEPS}.items()
    for name, meeting in _meetings(kind).items()
} | {"save, same": Meeting(_save(FILES), lambda manager: FILES.save(manager, 5), frozenset({5}))}


def meet(meeting: Meeting, folder: Path, *, nameless: bool = True, stride: int = 1) -> Tally:
    """Let two managers meet behind each call, or some, and judge the folder after each."""
    template = folder / "template"
    template.mkdir()
    meeting.first.prepare(template)
    tally = Tally()
    with quiet():
        for number in range(1, 1000, stride):
            tried = folder / "tried"
            shutil.copytree(template, tried)
            is_met, errors = _met(meeting, tried, number, nameless=nameless)
            if is_met:
                tally.add(_outcome(meeting, tried) if not errors else Outcome.LOST)
                tally.errors += errors
            shutil.rmtree(tried)
            if not is_met:
                break
    tally.distinct = tally.states
    return tally


def _met(meeting: Meeting, folder: Path, number: int, *, nameless: bool) -> tuple[bool, list[str]]:
    """Return whether there was such a call, and what either raised."""
    errors: list[str] = []
    seen = [0]

    def meanwhile(count: int) -> None:
        seen[0] += 1
        if seen[0] == number:
            try:
                meeting.other(meeting.kind.manager(folder, **meeting.rules))
            except ztensor.ZTensorError as error:
                errors.append(f"the other, at call {count}: {error}")

    # In one thread: the calls of the two are distinguished by their turn alone.
    one_thread = mock.patch.dict(os.environ, ZTENSOR_NUM_THREADS="1")
    with one_thread, Calls(folder, nameless=nameless, meanwhile=meanwhile):
        try:
            meeting.first.run(folder)
        except ztensor.ZTensorError as error:
            errors.append(f"the first, at call {number}: {error}")
    return seen[0] >= number, errors


def _outcome(meeting: Meeting, folder: Path) -> Outcome:
    manager = meeting.kind.manager(folder)
    whole = {one.step for one in manager.verify() if one.problem is None}
    if not all(is_right(manager, step) for step in whole):
        return Outcome.WRONG
    restored = manager.restore()
    if restored is None or restored.step != max(whole) or restored.skipped:
        return Outcome.LOST
    return Outcome.NEW if meeting.required <= whole else Outcome.LOST
