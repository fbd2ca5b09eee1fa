"""Find the last committed state of a torn file; nothing is changed.

A state ends with manifest, size and footer magic, so a scan for the magic from the end backwards
finds candidates. Data may hold the magic too, even whole files: what tells a state from its copy
is its position. Our commits say where they end; every released writer puts the manifest directly
behind the last blob.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ztensor.container.framing import HEAD_BYTES, MAGIC_1, TAIL_BYTES, Container, Frame
from ztensor.errors import ContainerError, FormatError, Reason, SourceError, ZTensorError, describe
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.reading.listing import parse_frame
from ztensor.source.base import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.model.manifest import Manifest
    from ztensor.source.base import Source

_WINDOW = 8 << 20
# What an ordinary error looks at, so that opening a torn file stays quick: 32 ms for 100 MiB.
_QUICK_BYTES = 64 << 20
# Manifests parsed on the way, in bytes per byte searched: footers nested into one another by
# someone who means harm must not make the search quadratic.
_PARSE_FACTOR = 4
_PARSE_LEAST = 64 << 10
_PARSE_OVERHEAD = 256  # what looking at one costs, however short it is
_MOST_CANDIDATES = 1000  # that are reported


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """A committed state.

    Attributes:
        frame: where its manifest lies; `file_size` is where the state ends.
        manifest: what it says.
    """

    frame: Frame
    manifest: Manifest

    @property
    def end(self) -> int:
        """Return the offset behind its footer."""
        return self.frame.file_size


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
        ContainerError: the file is not of the container whose states can be found.
        SourceError: it cannot be read.
    """
    caps = DEFAULT_LIMITS if limits is None else limits
    size = source.size
    if not size:
        raise ContainerError("the file is empty", reason=Reason.HEADER_MAGIC, file=source.name)
    if size < HEAD_BYTES or bytes(read_bytes(source, 0, HEAD_BYTES)) != MAGIC_1:
        raise ContainerError(
            "only files that begin as 1.1 and 1.2 do can be searched for committed states",
            reason=Reason.HEADER_MAGIC,
            file=source.name,
            expected=f"{MAGIC_1!r} at offset 0",
            section="1.2 section 4, File structure",
        )
    candidates: list[Candidate] = []
    left = max(_PARSE_LEAST, _PARSE_FACTOR * min(size, size if within is None else within))
    budget = Budget(caps, size)
    before = budget.bytes_left
    for position, length in _footers(source, within):
        frame = _frame_ending(position, length, caps)
        if frame is None:
            continue  # random bytes, the usual case: not worth a line in the report
        if accept != frame.file_size:
            left -= frame.manifest_length + _PARSE_OVERHEAD
            if left < 0:
                continue
        budget.release_to(before)  # what the one before was decoded to is gone
        try:
            budget.charge_bytes(frame.manifest_length)  # which is read as a whole
            manifest = parse_frame(source, frame, budget)
        except SourceError:
            raise
        except ZTensorError as error:
            if len(candidates) < _MOST_CANDIDATES:
                candidates.append(Candidate(frame.file_size, 0, error.message, is_commit=False))
            continue
        state = State(frame, manifest)
        fault = None if accept == state.end else _misplaced(state)
        count, is_commit = len(manifest.objects), manifest.commit is not None
        if fault is None or len(candidates) < _MOST_CANDIDATES:
            candidates.append(Candidate(state.end, count, fault, is_commit=is_commit))
        if fault is None:
            return state, candidates
    return None, candidates


def _footers(source: Source, within: int | None) -> Iterator[tuple[int, int]]:
    """Yield offset of the magic and the size before it, from the last to the first."""
    least = HEAD_BYTES + TAIL_BYTES - len(MAGIC_1)
    start = source.size if within is None else within
    lowest = max(least, source.size - start)
    high = source.size
    while high > lowest:
        low = max(lowest, high - _WINDOW)
        # The window reaches over its end, so that a magic across the border is found once.
        stop = min(source.size, high + len(MAGIC_1) - 1)
        window = bytes(read_bytes(source, low - 8, stop - low + 8))
        at = window.rfind(MAGIC_1, 8)
        while at >= 0:
            yield low - 8 + at, int.from_bytes(window[at - 8 : at], "little")
            at = window.rfind(MAGIC_1, 8, at + len(MAGIC_1) - 1)
        high = low


def _frame_ending(position: int, length: int, limits: Limits) -> Frame | None:
    """Return the frame whose footer magic lies at `position`; None where the size cannot be."""
    start = position - 8 - length
    if length == 0 or start < HEAD_BYTES or length > limits.manifest_bytes:
        return None
    return Frame(Container.V1, start, length, position + len(MAGIC_1))


def _misplaced(state: State) -> str | None:
    frame, manifest = state.frame, state.manifest
    commit = manifest.commit
    if commit is not None:
        if commit.end != frame.file_size:
            return f"a copy of the state that ends at {commit.end}"
        # A commit of names alone puts its manifest directly behind the footer before it.
        return None if commit.prev <= frame.manifest_offset else "its commit record contradicts it"
    last = max(
        (
            component.offset + component.length
            for tensor_object in manifest.objects.values()
            for component in tensor_object.components.values()
        ),
        default=HEAD_BYTES,
    )
    if last == frame.manifest_offset:
        return None
    return (
        f"its manifest does not follow its last blob, which ends at {last}: a copy of a state, or "
        f"one another writer padded; accept={frame.file_size} takes it"
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
        f"its last committed state, {len(state.manifest.objects)} objects, ends at byte "
        f"{state.end}: `ztensor repair {describe(source.path, 200)}` shows it"
    )
