"""Find the last committed state of a torn file; nothing is changed.

A state ends with a footer, and that with a magic, so a scan for the magic from the end backwards
finds candidates. Data may hold the magic too, even whole files: what tells a state from its copy
is its position.

- In 1.x our commits say where they end; every released writer puts the manifest directly behind
  the last blob.
- In 2.x the footer says where in the file the manifest lies, and its hash; writers put it right
  behind the last blob, of which the manifest is one. One that lies elsewhere is a copy, put there
  to keep the state readable, or lies in data: an old state of this very file may be stored in it.
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
# What an ordinary error looks at, so that opening a torn file stays quick: 32 ms for 100 MiB.
_QUICK_BYTES = 64 << 20
# Manifests parsed on the way, in bytes per byte searched: footers nested into one another by
# someone who means harm must not make the search quadratic.
_PARSE_FACTOR = 4
_PARSE_LEAST = 64 << 10
_PARSE_OVERHEAD = 256  # what looking at one costs, however short it is
# Zeros between manifest and footer of 2.x: ours has some where it would lie in two sectors.
_MOST_GAP = PAGE_2
_MOST_CANDIDATES = 1000  # that are reported


class State(NamedTuple):
    """A committed state.

    Attributes:
        frame: where its manifest lies.
        manifest: what it says.
        end: the offset behind its footer.
    """

    frame: Frame
    manifest: Manifest
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A place that looks like the end of a state.

    Attributes:
        end: offset behind its footer.
        objects: how many objects its manifest lists; 0 where it could not be read.
        fault: why it is none, or None where it is one.
        is_commit: it carries a commit record whose digest is right.
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
    """Return the last committed state, or None, and what was looked at on the way.

    Args:
        source: the file.
        within: how many bytes from the end to search; all by default.
        accept: take the state that ends at this offset although its position proves nothing.
        limits: safety caps.

    Raises:
        ContainerError: the file is not of a container whose states can be found.
        MissingDependencyError: the library for the hash of 2.x is not installed.
        SourceError: it cannot be read.
    """
    caps, size = caps_of(limits), source.size
    if not size:
        raise ContainerError("the file is empty", reason=Reason.HEADER_MAGIC, file=source.name)
    magic = bytes(source.read(0, min(HEAD_BYTES, size)))
    if magic not in (MAGIC_1, MAGIC_2):
        raise ContainerError(
            "only files that begin as 1.1, 1.2 or 2.x do can be searched for committed states",
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
            continue  # random bytes, the usual case: not worth a line in the report
        left -= frame.manifest_length + _PARSE_OVERHEAD
        if left < 0 and accept != end:
            continue
        manifest: Manifest | None = None
        try:
            budget = Budget(caps, size)
            budget.charge_bytes(frame.manifest_length)  # which is read as a whole
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
    """Yield what ends with the magic as a footer does, and where, from the last to the first."""
    footer = FOOTER_2_BYTES if magic == MAGIC_2 else TAIL_BYTES
    before = footer - len(magic)
    high, start = source.size, source.size if within is None else within
    lowest = max(HEAD_BYTES + before, high - start)
    while high > lowest:
        low = max(lowest, high - _WINDOW)
        # The window reaches over its end, so that a magic across the border is found once.
        stop = min(source.size, high + len(magic) - 1)
        window = bytes(source.read(low - before, stop - low + before))
        at = window.rfind(magic, before)
        while at >= 0:
            yield low - before + at + len(magic), window[at - before : at + len(magic)]
            at = window.rfind(magic, before, at + len(magic) - 1)
        high = low


def _frame_ending(end: int, footer: bytes, limits: Limits) -> Frame | None:
    """Return the frame of a footer that ends at `end`; None where what it says cannot be."""
    if len(footer) == FOOTER_2_BYTES:
        try:
            frame = locate(MAGIC_2, footer, end, limits)
        except ZTensorError:
            return None
        return frame if frame.manifest_length else None  # no state of a file that was changed
    length = int.from_bytes(footer[:8], "little")
    start = end - len(footer) - length
    is_one = 0 < length <= limits.manifest_bytes and start >= HEAD_BYTES
    return Frame(Container.V1, start, length, end) if is_one else None


def _misplaced(source: Source, frame: Frame, manifest: Manifest) -> str | None:
    """Return why a state's position does not prove it, or None."""
    end, commit = frame.file_size, manifest.commit
    last = _blobs_end(manifest) if commit is None else 0  # which takes all objects
    if frame.manifest_hash is not None:
        last = max(frame.manifest_offset + frame.manifest_length, last)
        gap = end - FOOTER_2_BYTES - last
        if gap <= _MOST_GAP and not any(source.read(last, gap)):
            return None
        what = "a copy of the footer of the state whose last blob ends at"
    elif commit is not None:
        if commit.end != end:
            return f"a copy of the state that ends at {commit.end}"
        # A commit of names alone puts its manifest directly behind the footer before it.
        return None if commit.prev <= frame.manifest_offset else "its commit record contradicts it"
    else:
        if last == frame.manifest_offset:
            return None
        what = "a copy of a state: its manifest does not follow its last blob, which ends at"
    return f"{what} {last}, or one that another writer padded; accept={end} takes it"


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
    """Return what was found in a torn file and what to type; None for other faults.

    What only code can do is put into the error.
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
