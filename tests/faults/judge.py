"""Verdicts about a file: its old state, its new one, a torn end behind the old one, or worse."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ztensor
from tests.faults.plain_reader import MAGIC, MAGIC_2, plain_state
from ztensor.edit import repair

State = dict[str, Any]


class Outcome(enum.StrEnum):
    """The verdict about one folder."""

    OLD = "old"
    NEW = "new"
    RECOVERED = "torn, recovered"
    LOST = "lost"
    WRONG = "silently wrong"


def state_of(reader: ztensor.Reader) -> State:
    """Return the contents of a file, in comparable values, without digests."""
    objects = {}
    for name in reader:
        tensor = reader.read(name)
        parts = {role: array.tobytes() for role, array in tensor.components.items()}
        objects[name] = (tuple(tensor.shape), parts, dict(reader.metadata(name).attributes))
    return {"objects": objects, "attributes": reader.attributes}


def read_state(source: Any, *, recover: bool = False) -> State:
    """Open a file with the library, digests ignored, and return its contents."""
    with ztensor.open(source, verify=False, recover=recover) as reader:
        return state_of(reader)


@dataclasses.dataclass(slots=True)
class Judge:
    """Knows the states before and after an operation.

    Attributes:
        old: the state before; None if there was no file.
        new: the state after.
        between: states of steps between; they count as old.
        fooled: damaged images that a minimal reader accepted, and the library did not.
    """

    old: State | None
    new: State
    between: Sequence[State] = ()
    fooled: int = 0
    _known: dict[bytes, Outcome] = dataclasses.field(default_factory=dict)

    def of(self, image: bytes | None) -> Outcome:
        """Return the verdict about a file's bytes; `image` is None if there is no file."""
        if image is None:
            return Outcome.OLD if self.old is None else Outcome.LOST
        key = hashlib.blake2b(image, digest_size=16).digest()
        if key not in self._known:
            self._known[key] = self._of(image)
        return self._known[key]

    @property
    def distinct(self) -> int:
        """Return how many different images were judged."""
        return len(self._known)

    def _of(self, image: bytes) -> Outcome:
        try:
            state = read_state(image)
        except ztensor.FormatError:
            outcome = self._recovered(image)
        else:
            outcome = self._named(state)
        if image[:8] in (MAGIC, MAGIC_2) and self._plain(image) is Outcome.WRONG:
            if outcome in (Outcome.OLD, Outcome.NEW, Outcome.WRONG):
                return Outcome.WRONG
            self.fooled += 1
        return outcome

    def _plain(self, image: bytes) -> Outcome | None:
        try:
            state = plain_state(image)
        except Exception:  # noqa: BLE001  # a minimal reader fails in any way
            return None
        return self._named(state)

    def _recovered(self, image: bytes) -> Outcome:
        try:
            state = read_state(image, recover=True)
        except ztensor.ZTensorError:
            return Outcome.LOST
        outcome = self._named(state)
        return Outcome.RECOVERED if outcome is not Outcome.WRONG else outcome

    def _named(self, state: State) -> Outcome:
        if state == self.new:  # first: a change may keep the old state
            return Outcome.NEW
        return Outcome.OLD if state == self.old or state in self.between else Outcome.WRONG


def check_repair(image: bytes, olds: Sequence[State], folder: Path) -> None:
    """Mend a torn image by both ways of `repair`, and compare with the allowed states."""
    torn = folder / "torn.zt"
    torn.write_bytes(image)
    message = ""
    try:
        ztensor.open(torn).close()
    except ztensor.FormatError as error:
        message = str(error)
    assert "torn.zt" in message
    report = repair(torn, write=folder / "mended.zt")
    assert report.end is not None
    assert report.damaged == ()
    assert torn.read_bytes() == image
    assert read_state(folder / "mended.zt") in olds
    report = repair(torn, in_place=True)
    assert report.tail_path is not None
    with open(report.tail_path, "rb") as tail:
        assert torn.read_bytes() + tail.read() == image
    assert read_state(torn) in olds
    for entry in list(folder.iterdir()):
        os.unlink(entry)
