"""The permissions of a file that takes another one's place, or holds another one's bytes.

No user gets more than before. Set-id and sticky bits are never carried on. Where owner, group or
access control list cannot be kept, the users that would gain by that lose instead:

- Members of the new group were others before, and members of the old one are others now. So both
  get what both had.
- Without its list the bits of a file say nothing about its group (they are the list's mask), nor
  about users the list shuts out. So only the owner is left.

Lists are those of POSIX, as Linux keeps them; those of NFS 4, macOS and Windows are not looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIST = "system.posix_acl_access"
_ENTRY = struct.Struct("<HHI")  # what kind, rights, whose
_HEADER_BYTES = 4
# Entries that chmod sets: the owner's, the mask, and that of others.
_IN_THE_MODE = (0x01, 0x10, 0x20)
_NO_LIST = {errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP}
_NO_MODES = {errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
_UNKNOWN = b"?"

PERMISSIONS = 0o777
OWNER_ONLY = 0o700


class Rights(NamedTuple):
    """The owner and the permissions of a file.

    Attributes:
        owner: id of a user.
        group: id of a group.
        mode: the bits for owner, group and others.
        acl: its access control list as the system stores it; None where it has none.
    """

    owner: int
    group: int
    mode: int
    acl: bytes | None

    @classmethod
    def of(cls, file: str | int) -> Rights:
        """Return the rights of a file, by its descriptor or its path, which is no link.

        Raises:
            OSError: there is no such file.
        """
        status = os.stat(file)
        return cls(status.st_uid, status.st_gid, status.st_mode & PERMISSIONS, _list_of(file))

    @property
    def shared(self) -> int:
        """Return what members of the group and others both may do, as one digit of a mode."""
        return 0 if self.acl is not None else self.mode >> 3 & self.mode & 0o7


def narrowest_of(files: Iterable[str]) -> Rights | None:
    """Return the rights of the file that grants the fewest; None where they have none."""
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.lstat(file).st_mode):
                found.append(Rights.of(file))
    return min(found, key=lambda one: (one.shared.bit_count(), one.mode.bit_count()), default=None)


def hand_over(descriptor: int, old: Rights) -> None:
    """Give an open file, which nobody but its owner may open yet, the rights of another.

    Args:
        descriptor: the file.
        old: the rights of the file whose place it takes.

    Raises:
        OSError: the system failed.
    """
    if not hasattr(os, "fchmod"):  # Windows before Python 3.13
        return
    if hasattr(os, "fchown"):
        # Only root may give a file away; other users may give theirs to a group they are in.
        for owner, group in ((-1, old.group), (old.owner, -1)):
            with contextlib.suppress(OSError):
                os.fchown(descriptor, owner, group)
    mode, acl = old.mode & PERMISSIONS, old.acl
    if os.fstat(descriptor).st_gid != old.group:
        mode = mode & OWNER_ONLY | old.shared * 0o11
        acl = None
    if not _has_taken_list(descriptor, acl):
        mode &= OWNER_ONLY
    _set_mode(descriptor, mode)


def narrow(descriptor: int, mode: int | None, sources: Iterable[Rights]) -> None:
    """Take from a new file what some of its sources grant to nobody, or to others.

    Args:
        descriptor: the file.
        mode: the bits of a new file; None where it has them already.
        sources: the rights of the files whose bytes it holds.

    Raises:
        OSError: the system failed.
    """
    if not hasattr(os, "fchmod"):
        return
    ours = Rights.of(descriptor)
    mode = ours.mode if mode is None else mode
    for source in sources:
        is_alike = ours.group == source.group and _entries(ours.acl) == _entries(source.acl)
        mode &= OWNER_ONLY | (source.mode if is_alike else source.shared * 0o11)
    if mode != ours.mode:
        _set_mode(descriptor, mode)


def _set_mode(descriptor: int, mode: int) -> None:
    try:
        os.fchmod(descriptor, mode)
    except OSError as error:
        # To the owner only mounts say this on which all files have one mode: FAT, some of FUSE.
        if error.errno not in _NO_MODES:
            raise


def _list_of(file: str | int) -> bytes | None:
    if not hasattr(os, "getxattr"):
        return None
    try:
        return os.getxattr(file, _LIST)
    except OSError as error:
        return None if error.errno in _NO_LIST else _UNKNOWN


def _has_taken_list(descriptor: int, acl: bytes | None) -> bool:
    """Make a list the file's own, or take away the one its folder gave it."""
    if _list_of(descriptor) == acl:
        return True
    try:
        if acl is None:
            os.removexattr(descriptor, _LIST)
        else:
            os.setxattr(descriptor, _LIST, acl)
    except OSError:
        return False
    return True


def _entries(acl: bytes | None) -> tuple[tuple[int, int, int], ...] | None:
    """Return what a list says beside the mode; None without a list."""
    if acl is None or (len(acl) - _HEADER_BYTES) % _ENTRY.size:
        return None if acl is None else ((-1, -1, -1),)
    entries = _ENTRY.iter_unpack(acl[_HEADER_BYTES:])
    return tuple(entry for entry in entries if entry[0] not in _IN_THE_MODE)
