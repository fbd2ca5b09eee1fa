"""Our root field `commit`: the digest that 1.x has not, over the manifest itself."""

from __future__ import annotations

import re

from ztensor.errors import DigestMismatchError, Reason, describe
from ztensor.spec.container.framing import MAGIC_1, TAIL_BYTES
from ztensor.spec.digest import ALGORITHMS, digest_of
from ztensor.spec.model.manifest import Commit
from ztensor.spec.wire import cbor

# 1.x has no digest of the manifest. Ours is the root field `commit`, which readers ignore: its
# digest is the crc32c of the manifest with the digest's own hexadecimal digits zeroed. It is
# written last, so those eight digits are the manifest's last eight bytes.
_CHECK = ALGORITHMS["crc32c"]
_NO_DIGITS = b"0" * _CHECK.digits
# Its fixed bytes; a number between them, and what may be there in place of one.
_PREV, _END = cbor.encode_text("prev"), cbor.encode_text("end")
_DIGEST = cbor.encode_text("digest") + cbor.encode_text(_CHECK.spell("0" * 8))[:-8]
_UINT = rb"(?:[\0-\x17]|\x18.|\x19.{2}|\x1a.{4}|\x1b.{8})"
_ANY = rb"(?:.|..|.{3}|.{5}|.{9})"


def parse_commit(value: object, data: bytes) -> Commit | None:
    """Return our record, None where the manifest has none, or one of another writer.

    Args:
        value: the field `commit`, None where there is none.
        data: the manifest's bytes.

    Raises:
        DigestMismatchError: the manifest is not what its digest says.
    """
    fields = value if isinstance(value, dict) else {}
    prev, end, text = fields.get("prev"), fields.get("end"), fields.get("digest")
    is_ours = (
        isinstance(text, str)
        and text.startswith("crc32c:0x")
        and data.endswith(cbor.encode_text(text))
    )
    is_whole = is_ours and type(prev) is int and type(end) is int
    if not is_whole and not _is_nearly_ours(data):
        # Not ours to refuse: another writer may use the word for something else, or have kept the
        # field and rewritten the manifest around it.
        return None
    expected = digest_of(_CHECK, (memoryview(data)[: -_CHECK.digits], _NO_DIGITS))
    if is_whole and text == expected:
        return Commit(prev, end)  # type: ignore[arg-type]  # both are integers: it is whole
    raise DigestMismatchError(
        "the manifest does not match the digest its writer put into it; it is damaged",
        reason=Reason.MANIFEST_DIGEST,
        algorithm=_CHECK.name,
        expected=describe(text),
        found=expected,
        actual=expected,
    )


def _is_nearly_ours(data: bytes) -> bool:
    """Return whether a manifest ends with our record but for one of its parts.

    Damage to the record itself would otherwise switch off the check of everything else.
    """
    tail = data[-60:]  # the longest record
    if _PREV not in tail and _END not in tail:
        return False
    marks = (cbor.encode_text("commit") + b"\xa3", _PREV, _END, _DIGEST)
    first, prev, end, digest = ((re.escape(mark), b".{%d}" % len(mark)) for mark in marks)
    parts = [first, prev, (_UINT, _ANY), end, (_UINT, _ANY), digest]
    for wrong in range(len(parts)):
        pattern = b"".join(part[at == wrong] for at, part in enumerate(parts))
        if re.search(pattern + rb".{8}\Z", tail, re.DOTALL):
            return True
    return False


def with_commit(fields: list[tuple[str, bytes]], manifest_offset: int, prev: int) -> bytes:
    """Return the manifest with its commit record, the size field and the footer magic."""
    start = cbor.map_of([*fields, ("commit", b"")])
    # The length depends on `end`, whose head depends on the length: it only ever grows, so a few
    # rounds settle it.
    zeroed = cbor.encode_text(_CHECK.spell("0" * _CHECK.digits))
    end = 0
    while True:
        commit = cbor.map_of(
            (("prev", cbor.encode_uint(prev)), ("end", cbor.encode_uint(end)), ("digest", zeroed))
        )
        reached = manifest_offset + len(start) + len(commit) + TAIL_BYTES
        if reached == end:
            break
        end = reached
    digits = digest_of(_CHECK, (start, commit))[-_CHECK.digits :].encode("ascii")
    size = (len(start) + len(commit)).to_bytes(8, "little")
    return b"".join((start, commit[: -_CHECK.digits], digits, size, MAGIC_1))
