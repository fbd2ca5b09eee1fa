"""Locate the manifest from a file's first bytes, last bytes and size.

| container | header | tail |
| --- | --- | --- |
| 0.1 (section 2) | `ZTEN0001` | index size, u64 |
| 1.1, 1.2 (section 4) | `ZTEN1000` | manifest size, u64; `ZTEN1000` |
| of releases 1.0.0, 1.0.1 (no text) | `ZTEN1000` | manifest size, u64 |
| 2.x (sections 2.1 to 2.3) | `89 5A 54 32 0D 0A 1A 0A` | footer of 40 bytes, below |

| footer of 2.x at | bytes | field |
| --- | --- | --- |
| 0 | 8 | manifest offset, a multiple of 4096 |
| 8 | 8 | manifest length; 0 in a data shard, which has no manifest |
| 16 | 8 | XXH3-64 of the manifest |
| 24 | 4 | version, 2 |
| 28 | 4 | nothing |
| 32 | 8 | the header magic again |

All numbers are little-endian. What the blobs between header and manifest are like is `Form`.
"""

from __future__ import annotations

import enum
import operator
import struct
from collections.abc import Mapping
from typing import NamedTuple

from ztensor.errors import (
    ContainerError,
    LimitError,
    NotZTensorError,
    Reason,
    UnsupportedVersionError,
    ZTensorError,
    describe,
)
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.model.manifest import ALIGNMENT

MAGIC_0_1 = b"ZTEN0001"
MAGIC_1 = b"ZTEN1000"
MAGIC_2 = bytes.fromhex("895A54320D0A1A0A")
_MAGICS = MAGIC_1, MAGIC_0_1, MAGIC_2

HEAD_BYTES = 8
TAIL_BYTES = 16  # of 1.x, the longest but for 2.x
FOOTER_2 = struct.Struct("<QQQII8s")
FOOTER_2_BYTES = FOOTER_2.size
LOOK_BYTES = FOOTER_2_BYTES  # so much of a file's end tells where its manifest is, in any version

PAGE_2 = 4096  # in 2.x everything begins at a multiple of it
MANIFEST_2_MOST = 1 << 30

_SECTION_2 = "2.1 section 2.3"


class Container(enum.Enum):
    """The framings a reader can meet."""

    V0_1 = "0.1"
    V1_0 = "1.0"
    V1 = "1"
    V2 = "2"


class Frame(NamedTuple):
    """Where the manifest lies. Blobs lie in `[8, manifest_offset)`; in 2.x anywhere.

    Attributes:
        container: which framing this is.
        manifest_offset: first byte of the manifest.
        manifest_length: bytes of the manifest; 0 only where there is none: in a data shard of 2.x.
        file_size: bytes of the file.
        manifest_hash: XXH3-64 of the manifest where the frame tells it, as in 2.x; else None.
    """

    container: Container
    manifest_offset: int
    manifest_length: int
    file_size: int
    manifest_hash: int | None = None


class Form(NamedTuple):
    """What the blobs of a container are like: all that writing them turns on.

    Attributes:
        alignment: blobs begin at multiples of it, where the caller names no other.
        alignments: those a caller may name.
        checksums: the digests it is written with, the default first; none for those of 1.x, of
            which there may be more than ours.
        encodings: what an encoding is called here that another container calls otherwise.
        indices: types of indices; of several all components of an object have one.
        is_exact: as in 2.x: digests cover decoded bytes, bools are 0 or 1, sparse entries are
            there once, blobs are equal or disjoint, and encoded frames are of one size.
    """

    alignment: int = ALIGNMENT
    alignments: tuple[int, ...] = (ALIGNMENT,)
    checksums: tuple[str, ...] = ()
    encodings: Mapping[str, str] = {"zt.zstd-seekable/1": "zstd"}
    indices: tuple[str, ...] = ("u64",)
    is_exact: bool = False


FORM_1 = Form()


def locate(head: bytes, tail: bytes, file_size: int, limits: Limits = DEFAULT_LIMITS) -> Frame:
    """Return where the manifest lies.

    Args:
        head: the first 8 bytes, or all where there are fewer.
        tail: the last 40 bytes, or all where there are fewer; of 1.x 16 are enough.
        file_size: bytes of the whole file.
        limits: `manifest_bytes` is used.

    Raises:
        NotZTensorError: the first bytes are not those of a zTensor file.
        ContainerError: the file is cut, or its size field cannot be true.
        LimitError: the manifest is larger than the cap.
        UnsupportedVersionError: the container is of a version this release does not read.
    """
    if head in (MAGIC_0_1, MAGIC_1):
        return _locate_1(head, tail, file_size, limits)
    if head == MAGIC_2:
        return _locate_2(tail, file_size, limits)
    if file_size == 0:
        raise ContainerError("the file is empty", reason=Reason.TRUNCATED)
    message, reason = "not a zTensor file", Reason.NOT_ZTENSOR
    if any(magic.startswith(head) for magic in _MAGICS):
        message, reason = "the header magic is cut", Reason.TRUNCATED
    elif head[:4] in (MAGIC_1[:4], MAGIC_2[:4]):
        message, reason = "the header magic is damaged", Reason.HEADER_MAGIC
    expected = f"{MAGIC_1!r}, {MAGIC_0_1!r} or {MAGIC_2!r} at offset 0"
    section = "1.2 section 4, File structure"
    raise _broken(message, reason, expected, describe(head), section, NotZTensorError)


_SECTOR_BYTES = 512  # what a disk writes as a whole


def may_be_damaged(head: bytes, tail: bytes) -> bool:
    """Return whether bytes that do not parse may be a file of ours, damaged or cut.

    Then one end is like a magic, in at least half of its bytes. Or the first sector is zeros, as
    file systems leave what did not reach the disk.

    Args:
        head: the first bytes, a sector or more.
        tail: the last bytes.
    """
    ends = (head[: len(MAGIC_1)], tail[-len(MAGIC_1) :])
    return not any(head[:_SECTOR_BYTES]) or any(
        2 * sum(map(operator.eq, magic, end)) >= len(end) for magic in _MAGICS for end in ends
    )


def _locate_1(head: bytes, tail: bytes, file_size: int, limits: Limits) -> Frame:
    """Return where the manifest of 1.x, or of 0.1, is: its size is near the file's end."""
    is_0_1 = head == MAGIC_0_1
    section, after = ("0.1 section 3.3.2", 8) if is_0_1 else ("1.2 section 5", TAIL_BYTES)
    _require_size(file_size, HEAD_BYTES + after, section)
    container = Container.V0_1 if is_0_1 else Container.V1
    length = int.from_bytes(tail[-after:][:8], "little")
    if not is_0_1 and tail[-len(MAGIC_1) :] != MAGIC_1:
        # Releases 1.0.0 and 1.0.1 end with the size alone. A torn file's last bytes seldom give a
        # size that fits, and the schema then finds no manifest there.
        container, after = Container.V1_0, 8
        length = int.from_bytes(tail[-8:], "little")
        if not 0 < length <= min(file_size - HEAD_BYTES - after, limits.manifest_bytes):
            raise footer_missing(tail[-len(MAGIC_1) :])
    # The released 0.1 library reads a file whose index has no bytes at all, where the text wants
    # the one byte of an empty array (0.1 section 7). No release writes that, and a file cut down
    # to its first padding looks so: it must not pass for an empty one.
    least, most = int(is_0_1), file_size - HEAD_BYTES - after
    if not least <= length <= most:
        message = "the manifest's size field does not fit the file; the file is cut or damaged"
        expected = f"{least} to {most} bytes"
        raise _broken(message, Reason.MANIFEST_SIZE, expected, f"{length}", section)
    _require_cap(length, limits.manifest_bytes, section)
    return Frame(container, file_size - after - length, length, file_size)


def _locate_2(tail: bytes, file_size: int, limits: Limits) -> Frame:
    _require_size(file_size, HEAD_BYTES + FOOTER_2_BYTES, "2.1 section 2.1")
    offset, length, digest, version, _, magic = FOOTER_2.unpack(tail[-FOOTER_2_BYTES:])
    if magic != MAGIC_2:
        raise footer_missing(magic, MAGIC_2, _SECTION_2)
    if version != 2:
        message = "the container is of another version; a newer reader is needed"
        found = str(version)
        raise UnsupportedVersionError(message, expected="2", found=found, section=_SECTION_2)
    expected = ""
    if not length and (offset or digest):
        expected = "zeros for offset and hash where there is no manifest"
    elif length and (offset % PAGE_2 or offset < PAGE_2):
        expected = f"a multiple of {PAGE_2}, at least {PAGE_2}"
    elif length and offset + length > file_size - FOOTER_2_BYTES:
        expected = "the manifest to end before the footer"
    if expected:
        message = "the footer does not say where the manifest is; the file is damaged"
        found = f"offset {offset}, length {length}"
        raise _broken(message, Reason.MANIFEST_SIZE, expected, found, _SECTION_2)
    _require_cap(length, min(limits.manifest_bytes, MANIFEST_2_MOST), _SECTION_2)
    return Frame(Container.V2, offset, length, file_size, digest)


def footer_missing(
    found: bytes, magic: bytes = MAGIC_1, section: str = "1.2 section 5, step 2"
) -> ZTensorError:
    """Return the error for a file that does not end with its footer magic."""
    message = "the footer magic is missing; the file is cut, or writing it was interrupted"
    expected = f"{magic!r} as the last 8 bytes"
    return _broken(message, Reason.FOOTER_MAGIC, expected, describe(found), section)


def _require_size(file_size: int, least: int, section: str) -> None:
    if file_size < least:
        expected = f"at least {least} bytes"
        raise _broken("the file is cut", Reason.TRUNCATED, expected, f"{file_size}", section)


def _require_cap(length: int, most: int, section: str) -> None:
    if length > most:
        message = "the manifest is larger than Limits.manifest_bytes, or than its version allows"
        expected, found = f"at most {most} bytes", f"{length}"
        raise _broken(message, Reason.LIMIT_MANIFEST, expected, found, section, LimitError)


def _broken(
    message: str,
    reason: Reason,
    expected: str,
    found: str,
    section: str,
    kind: type[ZTensorError] = ContainerError,
) -> ZTensorError:
    return kind(message, reason=reason, expected=expected, found=found, section=section)
