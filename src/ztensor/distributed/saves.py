"""Compare the saves of parts wherever parts are joined.

Boxes alone are no proof: half of one dead save and half of another tile every tensor. So each part
has the id of its save and its number of processes, and the last file of a part the number of its
files. Parts without them are never joined unless the caller vouches for them.
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
    """A save, as far as it is known.

    Attributes:
        id: unique among the saves into a folder; None if unknown.
        processes: number of processes that write parts; None if unknown.
    """

    id: str | None = None
    processes: int | None = None

    def attributes(self) -> dict[str, object]:
        """Return its attributes in a file, None for unknown values."""
        return {"save": self.id, "processes": self.processes}


def save_of(attributes: Mapping[str, Any]) -> Save:
    """Return the save from the attributes of a root or a part.

    Raises:
        FormatError: they are malformed.
    """
    save_id, processes = attributes.get("save"), attributes.get("processes")
    if not (save_id is None or isinstance(save_id, str)):
        raise broken("the id of the save is not a text", found=describe(save_id))
    if not (processes is None or (type(processes) is int and processes > 0)):
        raise broken("the number of processes is not a positive integer", found=describe(processes))
    return Save(save_id, processes)


class FileOfPart(NamedTuple):
    """One file of a part, as `repair` reads it.

    Attributes:
        name: its name.
        table: its chunks.
        save: its save.
        process: number of its process, or None.
        part: token of the writer; a process that tried again has another.
        number: index among the files of the part.
        files: number of files of the part, only in its last file.
        has_older: True if the part also uses chunks of an older checkpoint.
    """

    name: str
    table: ChunkTable
    save: Save
    process: int | None = None
    part: str | None = None
    number: int | None = None
    files: int | None = None
    has_older: bool = False


def file_of_part(name: str, table: ChunkTable, attributes: Mapping[str, Any]) -> FileOfPart:
    """Return a file of a part with the values of its attributes.

    Raises:
        FormatError: they are malformed.
    """
    numbers = {}
    for key in ("process", "number", "files"):
        value = numbers[key] = attributes.get(key)
        if not (value is None or (type(value) is int and value >= 0)):
            raise broken(f"{key!r} of a part is not a number", found=describe(value))
    part = attributes.get("part")
    return FileOfPart(
        name,
        table,
        save_of(attributes),
        part=part if isinstance(part, str) else None,
        has_older=bool(attributes.get("older")),
        **numbers,
    )


def require_one_save(
    folder: str, files: Iterable[FileOfPart], *, one_save: bool
) -> list[FileOfPart]:
    """Return the files of the only complete save.

    Files of incomplete saves are ignored, since no root ever named them.

    Args:
        folder: for messages.
        files: all files of processes.
        one_save: True if the caller vouches for files without a save id.

    Raises:
        UsageError: no save is proven to be complete, or several may be.
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
    """Return the files if they have all chunks of the save.

    Raises:
        UsageError: other chunks are in files of an older checkpoint.
    """
    older = [file for file in files if file.has_older]
    if older:
        raise UsageError(
            "the save took over chunks of an older checkpoint; only the lost root listed which",
            file=folder,
            found=_names(older),
        )
    return files


def _missing(files: list[FileOfPart]) -> str | None:
    """Return the reason why a save is not proven to be complete, None if it is."""
    counts = {file.save.processes for file in files}
    (processes,) = counts if len(counts) == 1 else (None,)
    if processes is None:
        return "its files do not say how many processes wrote it"
    parts: dict[int | None, list[FileOfPart]] = {}
    for file in files:
        parts.setdefault(file.process, []).append(file)
    lost = [number for number in range(processes) if number not in parts]
    if lost:
        numbers = ", ".join(map(str, lost[:MOST_SHOWN]))
        return f"{counted(len(lost), 'process')} of {processes} left nothing: {numbers}"
    if len(parts) != processes:
        return "it has files of more processes than they say"
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
