"""Locate the manifest from a file's first bytes, last bytes and size.

| container | header | tail |
| --- | --- | --- |
| 0.1 (section 2) | `ZTEN0001` | index size, u64 |
| 1.1, 1.2 (section 4) | `ZTEN1000` | manifest size, u64; `ZTEN1000` |
| of releases 1.0.0, 1.0.1 (no text) | `ZTEN1000` | manifest size, u64 |
| 2.x (sections 2.1 to 2.3) | `89 5A 54 32 0D 0A 1A 0A` | footer of 40 bytes, below |

| footer of 2.x: offset | bytes | field |
| --- | --- | --- |
| 0 | 8 | manifest offset, a multiple of 4096 |
| 8 | 8 | manifest length; 0 in a data shard, which has no manifest |
| 16 | 8 | XXH3-64 of the manifest |
| 24 | 4 | version, 2 |
| 28 | 4 | reserved |
| 32 | 8 | the header magic again |

All numbers are little-endian. `Form` describes the blobs between header and manifest.
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
TAIL_BYTES = 16  # of 1.1 and 1.2
FOOTER_2 = struct.Struct("<QQQII8s")
FOOTER_2_BYTES = FOOTER_2.size
LOOK_BYTES = FOOTER_2_BYTES  # the longest tail: enough to locate the manifest of any version

PAGE_2 = 4096  # the alignment of blobs and manifests in 2.x
MANIFEST_2_MOST = 1 << 30

_SECTION_2 = "2.1 section 2.3"


class Container(enum.Enum):
    """The framings that exist."""

    V0_1 = "0.1"
    V1_0 = "1.0"
    V1 = "1"
    V2 = "2"


class Frame(NamedTuple):
    """The extent of the manifest. Blobs are in `[8, manifest_offset)`; in 2.x behind it, too.

    Attributes:
        container: the framing.
        manifest_offset: first byte of the manifest.
        manifest_length: bytes of the manifest; 0 in a data shard of 2.x, which has no manifest.
        file_size: bytes of the file.
        manifest_hash: XXH3-64 of the manifest in 2.x; None before.
    """

    container: Container
    manifest_offset: int
    manifest_length: int
    file_size: int
    manifest_hash: int | None = None


class Form(NamedTuple):
    """The rules of a container for the blobs that are written to it.

    Attributes:
        alignment: default alignment of blobs.
        alignments: alignments that a caller may choose.
        checksums: names of the digests that may be written, the default first; empty for 1.x,
            which allows every registered one.
        encodings: words of other containers to this container's words for the same encoding;
            `raw` if it has none.
        indices: allowed dtypes of indices; all index components of an object have the same.
        of_dense: encodings that only dense tensors may have, as in 1.x they are layouts.
        is_exact: the rules of 2.x apply: digests cover decoded bytes, bools are 0 or 1, sparse
            entries are distinct, blobs equal or disjoint, and encoded frames of one size.
    """

    alignment: int = ALIGNMENT
    alignments: tuple[int, ...] = (ALIGNMENT,)
    checksums: tuple[str, ...] = ()
    encodings: Mapping[str, str] = {"zt.zstd-seekable/1": "zstd"}
    indices: tuple[str, ...] = ("u64",)
    of_dense: tuple[str, ...] = ("pyztensor.planes/1",)
    is_exact: bool = False


FORM_1 = Form()
# Attributes that an object has in 1.x if its layout is an encoding.
RESERVED = frozenset({"dtype", "type"})
# 0.1 and 1.1, whose own libraries know no further layout.
FORM_1_1 = Form(encodings={**FORM_1.encodings, **dict.fromkeys(FORM_1.of_dense, "raw")})


def locate(head: bytes, tail: bytes, file_size: int, limits: Limits = DEFAULT_LIMITS) -> Frame:
    """Locate the manifest.

    Args:
        head: the first 8 bytes, or the whole file if it is shorter.
        tail: the last 40 bytes, or the whole file if it is shorter; 16 are enough for 1.x.
        file_size: bytes of the whole file.
        limits: only `manifest_bytes` is used.

    Raises:
        NotZTensorError: the first bytes are not those of a zTensor file.
        ContainerError: the file is cut, or its size field is impossible.
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


_SECTOR_BYTES = 512  # written atomically by a disk


def may_be_damaged(head: bytes, tail: bytes) -> bool:
    """Return whether bytes that do not parse may be a damaged or cut zTensor file.

    That is so if one end equals a magic in at least half of its bytes, or if the first sector is
    zeros, which file systems leave for data that did not reach the disk.

    Args:
        head: the first bytes, at least a sector.
        tail: the last bytes.
    """
    ends = (head[: len(MAGIC_1)], tail[-len(MAGIC_1) :])
    return not any(head[:_SECTOR_BYTES]) or any(
        2 * sum(map(operator.eq, magic, end)) >= len(end) for magic in _MAGICS for end in ends
    )


def _locate_1(head: bytes, tail: bytes, file_size: int, limits: Limits) -> Frame:
    """Locate the manifest of 0.1 or 1.x by the size field near the end of the file."""
    is_0_1 = head == MAGIC_0_1
    section, after = ("0.1 section 3.3.2", 8) if is_0_1 else ("1.2 section 5", TAIL_BYTES)
    _require_size(file_size, HEAD_BYTES + after, section)
    container = Container.V0_1 if is_0_1 else Container.V1
    length = int.from_bytes(tail[-after:][:8], "little")
    if not is_0_1 and tail[-len(MAGIC_1) :] != MAGIC_1:
        # Releases 1.0.0 and 1.0.1 end with the size alone. The last bytes of a cut file rarely form
        # a size that fits; if they do, the schema finds no manifest there.
        container, after = Container.V1_0, 8
        length = int.from_bytes(tail[-8:], "little")
        if not 0 < length <= min(file_size - HEAD_BYTES - after, limits.manifest_bytes):
            raise footer_missing(tail[-len(MAGIC_1) :])
    # The released 0.1 library accepts an index of no bytes, where the text asks for the one byte of
    # an empty array (0.1 section 7). No release writes it, and a file cut within its first padding
    # looks the same: it must not be read as an empty file.
    least, most = int(is_0_1), file_size - HEAD_BYTES - after
    if not least <= length <= most:
        message = "the manifest's size does not fit the file; the file is cut or damaged"
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
        expected = "offset and hash 0 without a manifest"
    elif length and (offset % PAGE_2 or offset < PAGE_2):
        expected = f"a multiple of {PAGE_2}, at least {PAGE_2}"
    elif length and offset + length > file_size - FOOTER_2_BYTES:
        expected = "the manifest to end before the footer"
    if expected:
        message = "the manifest's extent in the footer is impossible; the file is damaged"
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
        message = "the manifest is larger than Limits.manifest_bytes or its version allow"
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
