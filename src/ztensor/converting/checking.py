"""Comparison of a finished file with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor import Reader, Remote, insight
from ztensor.converting.report import Loss
from ztensor.errors import FormatError, Reason, ZTensorError, counted
from ztensor.ext import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Progress = Callable[[int, int], None]


def require_sums(reader: Reader) -> None:
    """Check the checksums over whole files, which copying objects does not compare.

    Raises:
        FormatError: a checksum does not match.
    """
    for file in reader.objects.parts():
        for checksum in file.sums:
            checksum.check()


def require_equal(
    reader: Reader,
    place: str | Remote,
    target: str,
    attributes: Mapping[str, object] | None,
    lost: Sequence[Loss],
    threads: int | None,
    progress: Progress | None,
) -> None:
    """Raise unless a finished file equals its source, except for reported losses.

    Raises:
        FormatError: it differs.
    """
    affected = {loss.object_name for loss in lost}
    names = [name for name in reader if name not in affected]
    ours = attributes is not None
    half = None if progress is None else _halves(progress)
    before = insight.tensor_hashes(
        reader, names, attributes=ours, threads=threads, progress=half and half(0)
    )
    try:
        with Reader(place) as result:
            missing = [name for name in names if name not in result]
            after = (
                {}
                if missing
                else insight.tensor_hashes(
                    result, names, attributes=ours, threads=threads, progress=half and half(1)
                )
            )
            same = not ours or cbor.encode(result.attributes) == cbor.encode(dict(attributes or {}))
    except ZTensorError as error:
        error.file = target  # not the temporary's name
        raise
    wrong = missing or [name for name in names if before[name] != after[name]]
    if wrong or not same:
        raise FormatError(
            "the written file differs from its source when read back, and was discarded",
            reason=Reason.DIGEST_MISMATCH,
            file=target,
            object_name=wrong[0] if wrong else None,
            found=counted(len(wrong), "other object") if wrong else "other attributes",
        )


def _halves(progress: Progress) -> Callable[[int], Progress]:
    """Return a function that returns progress functions for the two halves of the work."""
    return lambda part: lambda done, total: progress(done if part == 0 else total + done, 2 * total)
