"""Folders as a crash may leave them, rebuilt from the recorded calls.

A killed process leaves the effects of its calls up to some point, the last one perhaps in part. A
power cut leaves less: unflushed writes may be there, missing, or there in part, in any order.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.faults.calls import SECTOR, within_a_sector

if TYPE_CHECKING:
    import random

    from tests.faults.calls import Call, Calls

PAGE = 4096


@dataclasses.dataclass(slots=True)
class World:
    """A folder: names to files, files to bytes, and the folders in it."""

    names: dict[str, int]
    contents: dict[int, bytearray]
    folders: set[str]

    @classmethod
    def before(cls, calls: Calls) -> World:
        """Return the folder as it was before the recorded calls."""
        contents = {number: bytearray(data) for number, data in calls.contents.items()}
        return cls(dict(calls.files), contents, set(calls.folders))

    def copy(self) -> World:
        contents = {number: bytearray(data) for number, data in self.contents.items()}
        return World(dict(self.names), contents, set(self.folders))

    def files(self) -> dict[str, bytes]:
        """Return the bytes of every file that has a name; of a folder, `name/`, none.

        A file counts only if its folder is there.
        """
        found = {
            name: bytes(self.contents[number])
            for name, number in self.names.items()
            if os.path.dirname(name) in ("", *self.folders)
        }
        return found | {f"{folder}/": b"" for folder in self.folders}

    def apply(self, call: Call) -> None:
        if call.kind == "create":
            self.contents[call.file] = bytearray()
            if call.name:
                self.names[call.name] = call.file
        elif call.kind == "write":
            _put(self.contents[call.file], call.offset, call.data)
        elif call.kind == "cut":
            del self.contents[call.file][call.offset :]
        else:
            apply_name(self, call)


def apply_name(world: World, call: Call) -> None:
    """Apply a call to the names; without effect if an earlier one is missing."""
    names = world.names
    if call.kind == "make folder":
        world.folders.add(call.name)
    elif call.kind == "remove folder":
        world.folders.discard(call.name)
    elif call.kind == "link" or (call.kind == "create" and call.name):
        names[call.name] = call.file
    elif call.kind == "rename" and call.name in world.folders:
        old, new = f"{call.name}/", f"{call.new_name}/"
        moved = {name: name.replace(old, new, 1) for name in names if name.startswith(old)}
        names.update({new_name: names.pop(name) for name, new_name in moved.items()})
        folders = {f"{name}/".replace(old, new, 1)[:-1] for name in world.folders}
        world.folders.clear()
        world.folders.update(folders)
    elif call.kind == "rename" and call.name in names:
        names[call.new_name] = names.pop(call.name)
    elif call.kind == "unlink":
        names.pop(call.name, None)


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


# --- A killed process -----------------------------------------------------------------------


def after_kill(
    calls: Calls, *, stride: int, dense_bytes: int, whole_sectors: bool = False
) -> Iterator[tuple[str, World]]:
    """Yield the folder after every call, and inside every write.

    Args:
        calls: the record.
        stride: bytes between two cuts inside a write; both ends and page borders are always cut.
        dense_bytes: writes up to this length are cut at every byte.
        whole_sectors: writes within one sector are not cut, as no system does.
    """
    world = World.before(calls)
    yield "before the first call", world
    for number, call in enumerate(calls.log, 1):
        if call.kind == "write" and not (
            whole_sectors and within_a_sector(call.offset, len(call.data))
        ):
            for length in _cuts(call, stride if len(call.data) > dense_bytes else 1):
                torn = world.copy()
                part = dataclasses.replace(call, data=call.data[:length])
                torn.apply(part)
                yield f"byte {length} of call {number}, {call.kind}", torn
        world.apply(call)
        yield f"after call {number}, {call.kind}", world


def _cuts(call: Call, stride: int) -> list[int]:
    size = len(call.data)
    first_page = -call.offset % PAGE
    cuts = {*range(1, size, stride), *range(first_page, size, PAGE), size - 1}
    return sorted(cut for cut in cuts if 0 < cut < size)


# --- A power cut ----------------------------------------------------------------------------


def after_power_cut(
    calls: Calls, dice: random.Random, moment: int, *, length_first: bool = True
) -> World:
    """Return a folder that a power cut after the first `moment` calls may leave.

    Sectors are whole or missing; of the names, any of the changes since the folder was flushed.

    Args:
        calls: the record.
        dice: decides what reached the disk.
        moment: how many calls were made.
        length_first: a file may have its new length, and zeros in the place of its new bytes. Most
            file systems put bytes on disk before the length.
    """
    done = calls.log[:moment]
    world = World.before(calls)
    for number in {call.file for call in done if call.file >= 0}:
        world.contents[number] = _file_after_power_cut(
            bytearray(calls.contents.get(number, b"")),
            [call for call in done if call.file == number],
            dice,
            length_first=length_first,
        )
    flushed = {call.name: i for i, call in enumerate(done) if call.kind == "flush folder"}
    for index, call in enumerate(done):
        if call.file >= 0 and call.kind not in ("create", "link"):
            continue
        if index < flushed.get(os.path.dirname(call.name), -1) or dice.random() < 0.5:
            apply_name(world, call)
    return world


def _file_after_power_cut(
    content: bytearray, calls: list[Call], dice: random.Random, *, length_first: bool
) -> bytearray:
    flushed = max((i for i, call in enumerate(calls) if call.kind == "flush"), default=-1)
    size = len(content)
    for index, call in enumerate(calls):
        if call.kind == "cut":
            size = call.offset
            if index < flushed or dice.random() < 0.5:
                del content[call.offset :]
        elif call.kind == "write":
            size = max(size, call.offset + len(call.data))
            if index < flushed:
                _put(content, call.offset, call.data)
            else:
                _put_some_sectors(content, call, dice)
    if length_first and len(content) < size and dice.random() < 0.5:
        content.extend(bytes(size - len(content)))  # the length reached the disk, the bytes did not
    return content


def _put_some_sectors(content: bytearray, call: Call, dice: random.Random) -> None:
    # Mostly whole or missing, as a write goes out at once; but each sector stands for itself.
    chance = dice.choice((0.0, 0.0, 1.0, 1.0, 1.0, 0.9, 0.5, 0.1))
    first = call.offset // SECTOR
    last = (call.offset + len(call.data) - 1) // SECTOR
    for sector in range(first, last + 1):
        if dice.random() < chance:
            start = max(call.offset, sector * SECTOR)
            stop = min(call.offset + len(call.data), (sector + 1) * SECTOR)
            _put(content, start, call.data[start - call.offset : stop - call.offset])
