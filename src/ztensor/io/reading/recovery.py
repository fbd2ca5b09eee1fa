"""Find the last committed state of a torn file. The file is not changed.

A state ends with a footer, and a footer with a magic: a backward scan for the magic finds
candidates. Data may contain the magic too, even whole zTensor files. Only its position
distinguishes a state from a copy.

- 1.x: a commit record states its own end. Without a record, every released writer puts the
  manifest directly behind the last blob.
- 2.x: the footer states offset and hash of the manifest, and follows the last blob (the manifest is
  one). A footer elsewhere is a guard copy, which keeps the state readable during an append, or
  part of the data.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import (
    ContainerError,
    FormatError,
    MissingDependencyError,
    Reason,
    SourceError,
    ZTensorError,
    describe,
)
from ztensor.guard import foreign_bytes
from ztensor.io.reading.manifests import parse_frame
from ztensor.io.source.base import Source
from ztensor.limits import Budget, Limits, caps_of
from ztensor.showing import counted
from ztensor.spec.container.framing import (
    FOOTER_2_BYTES,
    HEAD_BYTES,
    MAGIC_1,
    MAGIC_2,
    PAGE_2,
    TAIL_BYTES,
    Container,
    Frame,
    locate,
)
from ztensor.spec.model.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator


_WINDOW = 8 << 20
# Searched for the hint of an ordinary error, so that it stays quick: 32 ms for 100 MiB.
_QUICK_BYTES = 64 << 20
# Bytes of manifests that may be parsed, per byte searched: nested footers of an attacker must not
# make the search quadratic.
_PARSE_FACTOR = 4
_PARSE_LEAST = 64 << 10
_PARSE_OVERHEAD = 256  # charged for every manifest
# Zeros between manifest and footer of 2.x: they keep the footer within one sector.
_MOST_GAP = PAGE_2
_MOST_CANDIDATES = 1000  # that are reported


class State(NamedTuple):
    """A committed state.

    Attributes:
        frame: offset and length of its manifest.
        manifest: the parsed manifest.
        end: the end of its footer.
    """

    frame: Frame
    manifest: Manifest
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A place that looks like the end of a state.

    Attributes:
        end: the end of its footer.
        objects: the number of objects in its manifest; 0 if that cannot be read.
        fault: the reason it is not a state; None if it is.
        is_commit: whether it has a valid commit record.
    """

    end: int
    objects: int
    fault: str | None
    is_commit: bool


def search(
    source: Source,
    *,
    within: int | None = None,
    accept: int | None = None,
    limits: Limits | None = None,
) -> tuple[State | None, list[Candidate]]:
    """Return the last committed state or None, and the candidates from the last to the first.

    Args:
        source: the file.
        within: the bytes from the end to search; None searches the whole file.
        accept: the end of a state to accept although its position proves nothing.
        limits: safety caps.

    Raises:
        ContainerError: the container is not 1.1, 1.2 or 2.x.
        MissingDependencyError: the library for the hash of 2.x is not installed.
        SourceError: the file cannot be read.
    """
    caps, size = caps_of(limits), source.size
    if not size:
        raise ContainerError("the file is empty", reason=Reason.HEADER_MAGIC, file=source.name)
    magic = bytes(source.read(0, min(HEAD_BYTES, size)))
    if magic not in (MAGIC_1, MAGIC_2):
        raise ContainerError(
            "only files of 1.1, 1.2 and 2.x can be searched for committed states",
            reason=Reason.HEADER_MAGIC,
            file=source.name,
            expected=f"{MAGIC_1!r} or {MAGIC_2!r} at offset 0",
            section="1.2 section 4, File structure",
        )
    candidates: list[Candidate] = []
    left = max(_PARSE_LEAST, _PARSE_FACTOR * min(size, size if within is None else within))
    for end, footer in _footers(source, magic, within):
        frame = _frame_ending(end, footer, caps)
        if frame is None:
            continue  # random bytes, the usual case: not reported
        left -= frame.manifest_length + _PARSE_OVERHEAD
        if left < 0 and accept != end:
            continue
        manifest: Manifest | None = None
        try:
            budget = Budget(caps, size)
            budget.charge_bytes(frame.manifest_length)  # the copy that is read
            with foreign_bytes("the manifest"):
                manifest = parse_frame(source, frame, budget)
            fault = None if accept == end else _misplaced(source, frame, manifest)
        except (SourceError, MissingDependencyError):
            raise
        except ZTensorError as error:
            fault = error.message
        if fault is None or len(candidates) < _MOST_CANDIDATES:
            count = 0 if manifest is None else len(manifest.objects)
            is_commit = manifest is not None and manifest.commit is not None
            candidates.append(Candidate(end, count, fault, is_commit=is_commit))
        if manifest is not None and fault is None:
            return State(frame, manifest, end), candidates
    return None, candidates


def _footers(source: Source, magic: bytes, within: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield (end, footer bytes) for every magic, from the last to the first."""
    footer = FOOTER_2_BYTES if magic == MAGIC_2 else TAIL_BYTES
    before = footer - len(magic)
    high, start = source.size, source.size if within is None else within
    lowest = max(HEAD_BYTES + before, high - start)
    while high > lowest:
        low = max(lowest, high - _WINDOW)
        # Windows overlap by less than a magic: one across their border is found once.
        stop = min(source.size, high + len(magic) - 1)
        window = bytes(source.read(low - before, stop - low + before))
        at = window.rfind(magic, before)
        while at >= 0:
            yield low - before + at + len(magic), window[at - before : at + len(magic)]
            at = window.rfind(magic, before, at + len(magic) - 1)
        high = low


def _frame_ending(end: int, footer: bytes, limits: Limits) -> Frame | None:
    """Return the frame of a footer that ends at `end`; None if its numbers are impossible."""
    if len(footer) == FOOTER_2_BYTES:
        try:
            frame = locate(MAGIC_2, footer, end, limits)
        except ZTensorError:
            return None
        return frame if frame.manifest_length else None  # length 0: the footer of a data shard
    length = int.from_bytes(footer[:8], "little")
    start = end - len(footer) - length
    is_possible = 0 < length <= limits.manifest_bytes and start >= HEAD_BYTES
    return Frame(Container.V1, start, length, end) if is_possible else None


def _misplaced(source: Source, frame: Frame, manifest: Manifest) -> str | None:
    """Return the reason if a candidate's position does not prove it to be a state, else None."""
    end, commit = frame.file_size, manifest.commit
    last = _blobs_end(manifest) if commit is None else 0
    if frame.manifest_hash is not None:
        last = max(frame.manifest_offset + frame.manifest_length, last)
        gap = end - FOOTER_2_BYTES - last
        if gap <= _MOST_GAP and not any(source.read(last, gap)):
            return None
        reason = "a copy of the footer of the state whose last blob ends at"
    elif commit is not None:
        if commit.end != end:
            return f"a copy of the state that ends at {commit.end}"
        # A commit of names alone puts its manifest directly behind the footer before it.
        return None if commit.prev <= frame.manifest_offset else "its commit record contradicts it"
    else:
        if last == frame.manifest_offset:
            return None
        reason = "a copy of a state: its manifest does not follow its last blob, which ends at"
    return f"{reason} {last}, or one that another writer padded; accept={end} takes it"


def _blobs_end(manifest: Manifest) -> int:
    return max(
        (
            component.offset + component.length
            for tensor_object in manifest.objects.values()
            for component in tensor_object.components.values()
            if component.shard is None
        ),
        default=HEAD_BYTES,
    )


def describe_torn(source: Source, error: FormatError, limits: Limits) -> str | None:
    """Return a hint for a torn file: its last state and the command; None for other faults.

    The Python call is put into `error.in_python`.
    """
    torn = error.reason in (Reason.FOOTER_MAGIC, Reason.MANIFEST_SIZE, Reason.MANIFEST_DIGEST)
    if source.path is None or not (torn or "cbor" in str(error.reason)):
        return None
    try:
        state, _ = search(source, within=_QUICK_BYTES, limits=limits)
    except ZTensorError:
        return None  # a container that cannot be searched
    if state is None:
        return f"no committed state was found in its last {_QUICK_BYTES >> 20} MiB"
    error.in_python = "ztensor.open(path, recover=True) reads that state"
    return (
        f"its last committed state, {counted(len(state.manifest.objects), 'object')}, ends at byte "
        f"{state.end}: `ztensor repair {describe(source.path, 200)}` shows it"
    )
