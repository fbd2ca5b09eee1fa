"""Which save a part belongs to, and of how many processes: compared wherever parts are joined.

Boxes alone do not tell: half of one dead save and half of another fill every tensor as well as one
whole save does. So each part says the id of its save and how many processes have one, and the last
file of a part how many files it has. What does not say so is never taken for proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.distributed.chunks.table import ChunkTable, broken
from ztensor.errors import UsageError, counted, describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


MOST_SHOWN = 4


class Save(NamedTuple):
    """A save, as far as is known.

    Attributes:
        id: what no other save into the folder has; None where it is unknown.
        processes: how many write parts of it; None where that is unknown.
    """

    id: str | None = None
    processes: int | None = None

    def told(self) -> dict[str, object]:
        """Return what the attributes of a file say of it; None for what is unknown."""
        return {"save": self.id, "processes": self.processes}


def save_of(told: Mapping[str, Any]) -> Save:
    """Return the save that the attributes of a root or a part name.

    Raises:
        FormatError: they are malformed.
    """
    save_id, processes = told.get("save"), told.get("processes")
    if not (save_id is None or isinstance(save_id, str)):
        raise broken("the id of the save is not a text", found=describe(save_id))
    if not (processes is None or (type(processes) is int and processes > 0)):
        raise broken("the number of processes is not a positive integer", found=describe(processes))
    return Save(save_id, processes)


class FileOfPart(NamedTuple):
    """A file of a process, as repair finds it.

    Attributes:
        name: of the file.
        table: its chunks.
        save: which save it is of.
        process: whose it is; None where it does not say.
        part: a token of the writer; a process that tried again has another.
        number: which file of the part it is.
        files: how many the part has; only its last one says so.
        has_older: whether the part also has chunks in files of an older checkpoint.
    """

    name: str
    table: ChunkTable
    save: Save
    process: int | None = None
    part: str | None = None
    number: int | None = None
    files: int | None = None
    has_older: bool = False


def file_of_part(name: str, table: ChunkTable, told: Mapping[str, Any]) -> FileOfPart:
    """Return a file of a process with what its attributes say.

    Raises:
        FormatError: they are malformed.
    """
    numbers = {}
    for key in ("process", "number", "files"):
        value = numbers[key] = told.get(key)
        if not (value is None or (type(value) is int and value >= 0)):
            raise broken(f"{key!r} of a part is not a number", found=describe(value))
    part = told.get("part")
    return FileOfPart(
        name,
        table,
        save_of(told),
        part=part if isinstance(part, str) else None,
        has_older=bool(told.get("older")),
        **numbers,
    )


def require_one_save(
    folder: str, files: Iterable[FileOfPart], *, one_save: bool
) -> list[FileOfPart]:
    """Return the files of the one save that is there as a whole.

    Files of saves that are not whole do not count: nothing was ever made of these.

    Args:
        folder: for messages.
        files: all files of processes.
        one_save: whether the caller vouches for files that do not say which save they are of.

    Raises:
        UsageError: no save is proven to be whole, or several may be.
    """
    saves: dict[str | None, list[FileOfPart]] = {}
    for file in files:
        saves.setdefault(file.save.id, []).append(file)
    whole = [key for key, some in saves.items() if key is not None and _missing(some) is None]
    if len(whole) == 1 and None not in saves:
        return _without_older(folder, saves[whole[0]])
    if saves.keys() == {None}:
        if one_save:
            return _without_older(folder, saves[None])
        error = UsageError(
            "the files do not say which save they are of, so they may be of several, or be only a "
            "part of one",
            file=folder,
            found=_names(saves[None]),
        )
        error.hint = (
            "if you know that they are of one save and that none is missing, say so: "
            "`ztensor repair --one-save`, or one_save=True"
        )
        raise error
    if len(saves) == 1:
        (some,) = saves.values()
        raise UsageError(
            f"only a part of one save is there: {_missing(some)}", file=folder, found=_names(some)
        )
    error = UsageError(
        "the files are of several saves",
        file=folder,
        expected="one save of which all files are there",
        found="; ".join(f"{describe(key, 40)}: {_names(some)}" for key, some in _first(saves)),
    )
    error.hint = "move the files of the other saves out of the folder"
    raise error


def _first(saves: Mapping[str | None, list[FileOfPart]]) -> Iterable[Any]:
    return list(saves.items())[:MOST_SHOWN]


def _without_older(folder: str, files: list[FileOfPart]) -> list[FileOfPart]:
    """Return the files where all chunks of the save are in them.

    Raises:
        UsageError: others are in files of an older checkpoint.
    """
    older = [file for file in files if file.has_older]
    if older:
        raise UsageError(
            "the save took chunks over from an older checkpoint, and which of them it still needed "
            "only the lost root told",
            file=folder,
            found=_names(older),
        )
    return files


def _missing(files: list[FileOfPart]) -> str | None:
    """Return what of a save is not there, or not proven to be; None where nothing is missing."""
    counts = {file.save.processes for file in files}
    (processes,) = counts if len(counts) == 1 else (None,)
    if processes is None:
        return "its files do not say of how many processes it is"
    parts: dict[int | None, list[FileOfPart]] = {}
    for file in files:
        parts.setdefault(file.process, []).append(file)
    lost = [number for number in range(processes) if number not in parts]
    if lost:
        some = ", ".join(map(str, lost[:MOST_SHOWN]))
        return f"{counted(len(lost), 'process')} of {processes} left nothing: {some}"
    if len(parts) != processes:
        return "it has files of more processes than it says"
    for number, part in parts.items():
        if len({file.part for file in part}) != 1:
            return f"process {number} wrote more than once"
        ends = [file.files for file in part if file.files is not None]
        if len(ends) != 1 or sorted(file.number or 0 for file in part) != list(range(ends[0])):
            return f"files of process {number} are missing"
    return None


def _names(files: Sequence[FileOfPart]) -> str:
    names = sorted(file.name for file in files)
    more = f", and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more
