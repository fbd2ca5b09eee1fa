"""Try an operation under faults, and judge each try; for the tests and `run.py`."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import ztensor
from tests.faults.calls import Calls, Fault
from tests.faults.images import World, after_kill, after_power_cut
from tests.faults.judge import Judge, Outcome, check_repair, read_state, state_of
from tests.faults.operations import TARGET, other_tensors
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from tests.faults.operations import Operation


@dataclasses.dataclass(slots=True)
class Tally:
    """How many states had which outcome.

    Attributes:
        states: states that were judged.
        distinct: different images among them.
        outcomes: verdict to how many.
        litter: states after which a successful save left more than its own file.
        fooled: torn images that a minimal reader accepted, and the library did not.
        repaired: torn images mended by both ways of `repair`.
        torn: states that must not be torn, and are.
        errors: errors that must not be raised.
    """

    states: int = 0
    distinct: int = 0
    outcomes: dict[Outcome, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(Outcome, 0)
    )
    litter: int = 0
    fooled: int = 0
    repaired: int = 0
    torn: int = 0
    errors: list[str] = dataclasses.field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.states += 1
        self.outcomes[outcome] += 1

    def include(self, other: Tally) -> None:
        self.states += other.states
        self.distinct += other.distinct
        self.litter += other.litter
        self.fooled += other.fooled
        self.repaired += other.repaired
        self.torn += other.torn
        self.errors += other.errors
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] += count

    @property
    def bad(self) -> int:
        """Return how many states must not be."""
        wrong = self.outcomes[Outcome.LOST] + self.outcomes[Outcome.WRONG]
        return wrong + self.litter + self.torn


# --- Crashes --------------------------------------------------------------------------------


def recorded(
    operation: Operation,
    folder: Path,
    *,
    nameless: bool = True,
    unflushed: Callable[[int], bool] = lambda number: False,
) -> tuple[Calls, Judge]:
    """Run an operation in an empty folder, and return its calls and the judge of its target."""
    judge = operation.prepare(folder)
    calls = Calls(
        folder, nameless=nameless, unflushed=unflushed, whole_sectors=operation.is_never_torn
    )
    with operation.in_pieces(), calls:
        operation.run(folder)
    assert read_state(folder / operation.target) == judge.new
    return calls, judge


def kill_everywhere(
    operation: Operation,
    folder: Path,
    *,
    nameless: bool = True,
    stride: int = 97,
    dense_bytes: int = 0,
    repair_every: int = 100,
) -> Tally:
    """Judge the folder behind every call and inside every write; see `images.after_kill`."""
    calls, judge = recorded(operation, folder, nameless=nameless)
    states = after_kill(
        calls, stride=stride, dense_bytes=dense_bytes, whole_sectors=operation.is_never_torn
    )
    tally = _judged(operation, calls, judge, (world for _, world in states), folder, repair_every)
    # After the last call the new state is there.
    assert judge.of(_image(operation, _final(calls))) is Outcome.NEW
    return tally


def cut_power(
    operation: Operation,
    folder: Path,
    *,
    count: int,
    seed: int,
    nameless: bool = True,
    unflushed: Callable[[int], bool] = lambda number: False,
    length_first: bool | None = None,
) -> Tally:
    """Judge `count` folders a power cut may leave; a quarter of the cuts come after the return.

    Args:
        operation: the operation.
        folder: an empty folder.
        count: how many.
        seed: of the dice.
        nameless: see `Calls`.
        unflushed: likewise.
        length_first: see `after_power_cut`; by default where the operation may leave a torn end.
    """
    if length_first is None:
        length_first = not operation.is_never_torn
    calls, judge = recorded(operation, folder, nameless=nameless, unflushed=unflushed)
    dice = random.Random(f"{seed} {operation.name}")
    # An earlier commit without flush is promised only once the last one is written.
    earliest = _behind_last_write(calls) if operation.between is not None else 0

    def worlds() -> Iterator[World]:
        for number in range(count):
            has_returned = number % 4 == 0
            moment = len(calls.log) if has_returned else dice.randint(earliest, len(calls.log))
            world = after_power_cut(calls, dice, moment, length_first=length_first)
            if has_returned and judge.of(_image(operation, world)) not in (Outcome.NEW, *_BAD):
                world.names.pop(operation.target, None)  # to be counted as lost: it was promised
                world.names.pop(TARGET, None)
            yield world

    return _judged(operation, calls, judge, worlds(), folder, 50, may_tear=length_first)


_BAD = (Outcome.LOST, Outcome.WRONG)


def _behind_last_write(calls: Calls) -> int:
    return max(number for number, call in enumerate(calls.log, 1) if call.kind == "write")


def _final(calls: Calls) -> World:
    world = World.before(calls)
    for call in calls.log:
        world.apply(call)
    return world


def _image(operation: Operation, world: World) -> bytes | None:
    number = world.names.get(operation.target)
    return None if number is None else bytes(world.contents[number])


def _judged(
    operation: Operation,
    calls: Calls,
    judge: Judge,
    worlds: Iterator[World],
    folder: Path,
    repair_every: int,
    *,
    may_tear: bool = False,
) -> Tally:
    tally = Tally()
    littered: dict[frozenset[str], bool] = {}
    expected = {*calls.files, operation.target}
    workshop = folder / "workshop"
    for world in worlds:
        image = _image(operation, world)
        outcome = judge.of(image)
        tally.add(outcome)
        names = frozenset(world.names)
        if names not in littered:
            littered[names] = not names <= expected and _leaves_litter(
                operation, world, expected, workshop
            )
        tally.litter += littered[names]
        is_torn = outcome is Outcome.RECOVERED
        tally.torn += is_torn and operation.is_never_torn and not may_tear
        if repair_every and is_torn and tally.outcomes[outcome] % repair_every == 1:
            assert image is not None
            assert judge.old is not None
            workshop.mkdir()
            check_repair(image, [judge.old, *judge.between], workshop)
            workshop.rmdir()
            tally.repaired += 1
    tally.distinct = judge.distinct
    tally.fooled = judge.fooled
    return tally


def _leaves_litter(operation: Operation, world: World, expected: set[str], workshop: Path) -> bool:
    """Rebuild the folder, save once more, and return whether anything is left over."""
    workshop.mkdir()
    for name, data in world.files().items():
        (workshop / name).write_bytes(data)
    save_file(other_tensors(), workshop / operation.target, durable=False)
    left = {entry.name for entry in workshop.iterdir()}
    shutil.rmtree(workshop)
    return not left <= expected


# --- Calls that fail ------------------------------------------------------------------------

FAULTS = {
    "write: no space": Fault("write", 0, code=errno.ENOSPC),
    "write: disk full": Fault("write", 0, "full", errno.ENOSPC),
    "write: I/O error": Fault("write", 0, code=errno.EIO),
    "write: short": Fault("write", 0, "short"),
    "flush: I/O error": Fault("flush", 0, code=errno.EIO),
    "flush: no space": Fault("flush", 0, code=errno.ENOSPC),
    "rename: I/O error": Fault("rename", 0, code=errno.EIO),
    "link: no space": Fault("link", 0, code=errno.ENOSPC),
    "open: too many": Fault("open", 0, code=errno.EMFILE),
    "unlink: I/O error": Fault("unlink", 0, code=errno.EIO),
    **{
        f"{kind}: {how}": Fault(kind, 0, how)
        for kind in ("write", "flush", "rename", "link", "cut")
        for how in ("interrupt", "interrupted")
    },
}
# A disk that is full also refuses the cut that gives space back.
COMPOUND = {"write: disk full, cut: I/O error": [FAULTS["write: disk full"], Fault("cut", 1)]}


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of one failing call.

    Attributes:
        number: which call it was.
        error: the error raised; None if the fault was survived.
        outcome: the verdict about the target.
        grown: bytes the target is longer than before.
    """

    number: int
    error: BaseException | None
    outcome: Outcome
    grown: int


def fail_each(
    operation: Operation,
    faults: list[Fault],
    template: Path,
    folder: Path,
    judge: Judge,
    *,
    nameless: bool = True,
) -> Iterator[Attempt]:
    """Let the first call fail, then the second, until the operation gets through; check each.

    Args:
        operation: the operation.
        faults: the faults; the number of the first is counted up.
        template: a prepared folder.
        folder: where it is tried; made and removed here.
        judge: of the target.
        nameless: see `Calls`.
    """
    number = 0
    while True:
        number += 1
        shutil.copytree(template, folder)
        attempt = _attempt(operation, faults, number, folder, judge, nameless=nameless)
        shutil.rmtree(folder)
        if attempt is None:
            return
        yield attempt


def fail_everywhere(operation: Operation, nameless: bool, folder: Path) -> Tally:
    """Let each call fail in each way, in an empty folder; every check is an assert within."""
    template = folder / "template"
    template.mkdir()
    judge = operation.prepare(template)
    tally = Tally()
    for faults in [*([fault] for fault in FAULTS.values()), *COMPOUND.values()]:
        for attempt in fail_each(
            operation, faults, template, folder / "tried", judge, nameless=nameless
        ):
            tally.add(attempt.outcome)
            tally.torn += operation.is_never_torn and attempt.outcome is Outcome.RECOVERED
    tally.distinct = judge.distinct
    return tally


def _attempt(
    operation: Operation,
    faults: list[Fault],
    number: int,
    folder: Path,
    judge: Judge,
    *,
    nameless: bool,
) -> Attempt | None:
    """Return the outcome; None if there are fewer calls than `number`."""
    target = folder / operation.target
    before = target.read_bytes() if target.exists() else None
    names = {entry.name for entry in folder.iterdir()}
    first = dataclasses.replace(faults[0], number=number)
    calls = Calls(
        folder,
        faults=[first, *faults[1:]],
        nameless=nameless,
        whole_sectors=operation.is_never_torn,
    )
    error: BaseException | None = None
    with contextlib.ExitStack() as stack:
        if before is not None:
            early = stack.enter_context(ztensor.open(target, verify=False))
        try:
            with operation.in_pieces(), calls:
                operation.run(folder)
        except (ztensor.ZTensorError, KeyboardInterrupt) as caught:
            error = caught
        if before is not None:
            # An open reader keeps its state: same bytes, and no false alarm.
            assert state_of(early) == judge.old
    if not calls.has_struck:
        assert error is None
        assert judge.of(target.read_bytes()) is Outcome.NEW
        return None
    image = target.read_bytes() if target.exists() else None
    outcome = judge.of(image)
    if isinstance(error, ztensor.ZTensorError):
        assert isinstance(error, ztensor.SourceError), error
        assert error.errno == first.code, error
        assert error.file is not None
        says_so = "is in place" in str(error) or "is written" in str(error)
        assert says_so == (outcome is Outcome.NEW and image != before), error
    elif error is None:
        assert outcome is Outcome.NEW
    if before is not None and image is not None and not operation.puts_in_place:
        assert image[: len(before)] == before
    if outcome in (Outcome.OLD, Outcome.NEW) and image is not None:
        with ztensor.open(target) as reader:
            report = reader.verify()
            assert report.ok or (reader.format != "zt" and not report.problems)
    left = {entry.name for entry in folder.iterdir()} - names - {operation.target}
    if isinstance(error, Exception) and first.kind != "unlink":
        assert not left, left
    save_file(other_tensors(), target, durable=False)
    left = {entry.name for entry in folder.iterdir()} - names - {operation.target}
    assert not left, left
    grown = len(image or b"") - len(before or b"")
    return Attempt(number, error, outcome, grown)
