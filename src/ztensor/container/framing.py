"""Locate the manifest from a file's first bytes, last bytes and size.

| container | header | tail |
| --- | --- | --- |
| 0.1 (section 2) | `ZTEN0001` | index size, u64 |
| 1.1, 1.2 (section 4) | `ZTEN1000` | manifest size, u64; `ZTEN1000` |
| of releases 1.0.0, 1.0.1 (no text) | `ZTEN1000` | manifest size, u64 |
| 2.x (not read here) | `89 5A 54 32 0D 0A 1A 0A` | - |

All sizes are little-endian.
"""

from __future__ import annotations

import dataclasses
import enum
import struct

from ztensor.errors import (
    ContainerError,
    LimitError,
    NotZTensorError,
    Reason,
    UnsupportedVersionError,
    describe,
)
from ztensor.limits import DEFAULT_LIMITS, Limits

MAGIC_0_1 = b"ZTEN0001"
MAGIC_1 = b"ZTEN1000"
MAGIC_2 = bytes.fromhex("895A54320D0A1A0A")

HEAD_BYTES = 8
TAIL_BYTES = 16

_SIZE = struct.Struct("<Q")
_SECTION_0_1 = "0.1 section 3.3.2"
_SECTION_1 = "1.2 section 5"


class Container(enum.Enum):
    """The framings a reader can meet."""

    V0_1 = "0.1"
    V1_0 = "1.0"
    V1 = "1"


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """Where the manifest lies. Blobs lie in `[8, manifest_offset)`.

    Attributes:
        container: which framing this is.
        manifest_offset: first byte of the manifest.
        manifest_length: bytes of the manifest.
        file_size: bytes of the file.
    """

    container: Container
    manifest_offset: int
    manifest_length: int
    file_size: int


def locate(head: bytes, tail: bytes, file_size: int, limits: Limits = DEFAULT_LIMITS) -> Frame:
    """Return where the manifest lies.

    Args:
        head: the first 8 bytes, or all where there are fewer.
        tail: the last 16 bytes, or all where there are fewer.
        file_size: bytes of the whole file.
        limits: `manifest_bytes` is used.

    Raises:
        NotZTensorError: the first bytes are not those of a zTensor file.
        ContainerError: the file is cut, or its size field cannot be true.
        LimitError: the manifest is larger than the cap.
        UnsupportedVersionError: the container is of a version this release does not read.
    """
    if head == MAGIC_0_1:
        return _locate_0_1(tail, file_size, limits)
    if head == MAGIC_1:
        return _locate_1(tail, file_size, limits)
    if head == MAGIC_2:
        raise UnsupportedVersionError(
            "this is a zTensor 2.x container, which this release does not read; "
            "the ztensor 2.x library does",
            found=describe(head),
        )
    if file_size == 0:
        raise ContainerError("the file is empty", reason=Reason.TRUNCATED)
    cut = MAGIC_1.startswith(head) or MAGIC_0_1.startswith(head)
    broken = not cut and head[:4] == MAGIC_1[:4]
    raise NotZTensorError(
        "not a zTensor file" if not (cut or broken) else "the header magic is damaged",
        reason=Reason.NOT_ZTENSOR
        if not (cut or broken)
        else (Reason.TRUNCATED if cut else Reason.HEADER_MAGIC),
        expected=f"{MAGIC_1!r} or {MAGIC_0_1!r} at offset 0",
        found=describe(head),
        section="1.2 section 4, File structure",
    )


def _locate_0_1(tail: bytes, file_size: int, limits: Limits) -> Frame:
    _require_size(file_size, HEAD_BYTES + _SIZE.size, _SECTION_0_1)
    (length,) = _SIZE.unpack_from(tail, len(tail) - _SIZE.size)
    # The released 0.1 library reads a file whose index has no bytes at all, where the text wants
    # the one byte of an empty array (0.1 section 7). No release writes that, and a file cut down
    # to its first padding looks so: it must not pass for an empty one.
    if length == 0:
        raise ContainerError(
            "the index's size field is zero; the file is cut or damaged",
            reason=Reason.MANIFEST_SIZE,
            expected="at least 1 byte",
            found="0",
            section=_SECTION_0_1,
        )
    return _frame(Container.V0_1, length, _SIZE.size, file_size, limits, _SECTION_0_1)


def _locate_1(tail: bytes, file_size: int, limits: Limits) -> Frame:
    _require_size(file_size, HEAD_BYTES + TAIL_BYTES, _SECTION_1)
    if tail[-len(MAGIC_1) :] == MAGIC_1:
        (length,) = _SIZE.unpack_from(tail, len(tail) - TAIL_BYTES)
        return _frame(Container.V1, length, TAIL_BYTES, file_size, limits, _SECTION_1)
    # Releases 1.0.0 and 1.0.1 end with the size alone. A torn file's last bytes seldom give a
    # size that fits, and the schema then finds no manifest there.
    (length,) = _SIZE.unpack_from(tail, len(tail) - _SIZE.size)
    if 0 < length <= min(file_size - HEAD_BYTES - _SIZE.size, limits.manifest_bytes):
        return Frame(Container.V1_0, file_size - _SIZE.size - length, length, file_size)
    raise footer_missing(tail[-len(MAGIC_1) :])


def footer_missing(found: bytes) -> ContainerError:
    """Return the error for a 1.x file that does not end with its footer magic."""
    return ContainerError(
        "the footer magic is missing; the file is cut, or writing it was interrupted",
        reason=Reason.FOOTER_MAGIC,
        expected=f"{MAGIC_1!r} as the last 8 bytes",
        found=describe(found),
        section="1.2 section 5, step 2",
    )


def _require_size(file_size: int, least: int, section: str) -> None:
    if file_size < least:
        raise ContainerError(
            "the file is cut",
            reason=Reason.TRUNCATED,
            expected=f"at least {least} bytes",
            found=f"{file_size}",
            section=section,
        )


def _frame(
    container: Container,
    length: int,
    tail_bytes: int,
    file_size: int,
    limits: Limits,
    section: str,
) -> Frame:
    room = file_size - HEAD_BYTES - tail_bytes
    if length > room:
        raise ContainerError(
            "the manifest's size field does not fit the file; the file is cut or damaged",
            reason=Reason.MANIFEST_SIZE,
            expected=f"at most {room} bytes",
            found=f"{length}",
            section=section,
        )
    if length > limits.manifest_bytes:
        raise LimitError(
            "the manifest is larger than Limits.manifest_bytes",
            reason=Reason.LIMIT_MANIFEST,
            expected=f"at most {limits.manifest_bytes} bytes",
            found=f"{length}",
            section=section,
        )
    return Frame(container, file_size - tail_bytes - length, length, file_size)
