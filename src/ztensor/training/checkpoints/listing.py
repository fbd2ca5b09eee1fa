"""List the steps of a place; a file is read again only if it has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor import Reader
from ztensor import open as open_files
from ztensor.errors import FormatError, UnsupportedError, ZTensorError
from ztensor.training.checkpoints.place import Entry, StepPlace, judged
from ztensor.training.checkpoints.step import Checkpoint, is_unreadable, step_data

if TYPE_CHECKING:
    from collections.abc import Iterable


class Listing:
    """The steps of a place.

    Args:
        place: the place.
    """

    def __init__(self, place: StepPlace) -> None:
        self._place = place
        self._read: dict[int, tuple[object, Checkpoint]] = {}
        # Damage found by reading whole files, with the stamp of the file.
        self._damage: dict[int, tuple[object, ZTensorError]] = {}

    def entries(self) -> list[Entry]:
        """Return all entries with names of steps, by number.

        Raises:
            SourceError: they cannot be listed.
        """
        entries = self._place.entries()
        numbers = {entry.step for entry in entries}
        self._read = {step: one for step, one in self._read.items() if step in numbers}
        return entries

    def read(self, entries: Iterable[Entry], *, whole: bool = False) -> list[Checkpoint]:
        """Return the steps of entries, without those that are gone meanwhile.

        Args:
            entries: the entries.
            whole: True reads every byte.

        Raises:
            SourceError: a step cannot be read.
        """
        steps = (self.look(entry, whole=whole) for entry in entries)
        return [step for step in steps if step is not None]

    def look(self, entry: Entry, *, whole: bool = False) -> Checkpoint | None:
        """Return the step of an entry, None if it is gone.

        Raises:
            SourceError: it cannot be read.
        """
        try:
            return self._checkpoint(entry, whole=whole)
        except FileNotFoundError:
            return None

    def note_damage(self, entry: Entry, error: ZTensorError) -> None:
        """Remember that a step is damaged, until another file has its name."""
        self._damage[entry.step] = entry.stamp, error

    def forget_damage(self, step: int) -> None:
        """Forget the damage of a step that was replaced."""
        self._damage.pop(step, None)

    def opens(self, entry: Entry) -> bool:
        """Return whether an entry is a step that can be read, as far as is known."""
        return any(one.problem is None for one in self.read([entry]))

    def _checkpoint(self, entry: Entry, *, whole: bool) -> Checkpoint:
        stamp, error = self._damage.get(entry.step, (None, None))
        if error is not None and stamp == entry.stamp:
            return self._of(entry, problem=error)
        known, checkpoint = self._read.get(entry.step, (None, None))
        if checkpoint is None or whole or known is None or known != entry.stamp:
            checkpoint = self._opened(entry, whole=whole)
            if whole and checkpoint.problem is not None:
                self.note_damage(entry, checkpoint.problem)
            else:
                self._read[entry.step] = entry.stamp, checkpoint
        return checkpoint

    def _opened(self, entry: Entry, *, whole: bool) -> Checkpoint:
        path = self._place.path(entry.file)
        try:
            with judged(self._place, entry), open_files(path, mmap=False) as reader:
                metrics, is_pinned = step_data(reader, entry.step, is_divided=entry.is_divided)
                fields: dict[str, Any] = {"metrics": metrics, "is_pinned": is_pinned}
                fields |= _checked(reader) if whole else {}
            return self._of(entry, **fields)
        except ZTensorError as error:
            if not isinstance(error, (FormatError, UnsupportedError)) and not is_unreadable(error):
                raise
            return self._of(entry, problem=error)

    def _of(self, entry: Entry, **fields: Any) -> Checkpoint:
        path = str(self._place.path(entry.name))
        return Checkpoint(entry.step, path, entry.nbytes, entry.modified, **fields)


def _checked(reader: Reader) -> dict[str, Any]:
    """Read a whole file, and return the fields of `Checkpoint` about it."""
    report = reader.verify()
    if not report.problems:
        return {"is_checked": report.ok}
    problem = report.problems[0]
    error = FormatError(
        problem.message,
        reason=problem.reason,
        file=reader.name,
        object_name=problem.object_name,
        component=problem.component,
    )
    return {"problem": error}
