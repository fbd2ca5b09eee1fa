"""The permissions of a file that replaces another one, or holds another one's bytes.

No user gets more rights than before. Set-id and sticky bits are dropped. If owner, group or access
control list cannot be kept, users that would gain rights lose them instead:

- Members of the new group were "others" before, and members of the old one are "others" now. So
  both get the rights that group and others had in common.
- Without its list the mode of a file says nothing about its group (the bits are the list's mask),
  nor about users that the list excludes. So only the owner keeps rights.

Lists are those of POSIX on Linux; lists of NFS 4, macOS and Windows are ignored.
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
_ENTRY = struct.Struct("<HHI")  # kind, rights, id of user or group
_HEADER_BYTES = 4
# Entries that chmod sets: owner, mask, others.
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
        acl: its access control list as the system stores it; None without one.
    """

    owner: int
    group: int
    mode: int
    acl: bytes | None

    @classmethod
    def of(cls, file: str | int) -> Rights:
        """Return the rights of a file, by its descriptor or its path, which must not be a link.

        Raises:
            OSError: the file does not exist.
        """
        status = os.stat(file)
        return cls(status.st_uid, status.st_gid, status.st_mode & PERMISSIONS, _list_of(file))

    @property
    def shared(self) -> int:
        """Return the rights that group and others have in common, as one digit of a mode."""
        return 0 if self.acl is not None else self.mode >> 3 & self.mode & 0o7


def narrowest_of(files: Iterable[str]) -> Rights | None:
    """Return the narrowest rights of some files; None if no regular file is among them."""
    every = []
    for file in files:
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.lstat(file).st_mode):
                every.append(Rights.of(file))
    return min(every, key=lambda it: (it.shared.bit_count(), it.mode.bit_count()), default=None)


def hand_over(descriptor: int, old: Rights) -> None:
    """Give an open file, which only its owner may open yet, the rights of another.

    Args:
        descriptor: the file.
        old: the rights of the file that it replaces.

    Raises:
        OSError: the system failed.
    """
    if not hasattr(os, "fchmod"):  # Windows before Python 3.13
        return
    if hasattr(os, "fchown"):
        # Only root may change the owner; other users may choose among their groups.
        for owner, group in ((-1, old.group), (old.owner, -1)):
            with contextlib.suppress(OSError):
                os.fchown(descriptor, owner, group)
    mode, acl = old.mode & PERMISSIONS, old.acl
    if os.fstat(descriptor).st_gid != old.group:
        mode &= OWNER_ONLY | old.shared * 0o11
        acl = None
    if not _has_taken_list(descriptor, acl):
        mode &= OWNER_ONLY
    _set_mode(descriptor, mode)


def narrow(descriptor: int, mode: int | None, sources: Iterable[Rights]) -> None:
    """Take rights from a new file that one of its sources does not grant.

    Args:
        descriptor: the file.
        mode: the mode of a new file; None if it has that already.
        sources: the rights of the files that its bytes come from.

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
        # The owner gets this answer only on mounts where all files have one mode: FAT, some FUSE.
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
    """Set the file's list, or remove the one that it inherited from its folder."""
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
    """Return the entries of a list that are not in the mode; None without a list."""
    if acl is None or (len(acl) - _HEADER_BYTES) % _ENTRY.size:
        return None if acl is None else ((-1, -1, -1),)
    entries = _ENTRY.iter_unpack(acl[_HEADER_BYTES:])
    return tuple(entry for entry in entries if entry[0] not in _IN_THE_MODE)
