"""The promise, as one call: any bytes give a right result or one error of our family.

`exercise` does with bytes what users do with a file: open, list, read every object as a view and
as a copy, expand, slice, verify. Whatever is refused in good order is noted; whatever is not is
raised: a foreign exception as itself, a broken promise as `PromiseBroken`. So any driver that
feeds it bytes and watches for exceptions is a fuzzer. An error that the guard made of an exception
is an escape, too: no rule foresaw those bytes, or memory or the stack ran out.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import Reader, Tensor
from ztensor.errors import (
    FormatError,
    LimitError,
    Reason,
    UnsupportedError,
    UsageError,
    ZTensorError,
)
from ztensor.ext import LAYOUTS, Quantized
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable


FAMILY = (FormatError, UnsupportedError, LimitError)
# No cap refused: memory or the stack was gone.
EXHAUSTED = (Reason.LIMIT_MEMORY, Reason.LIMIT_STACK)
MESSAGE_MOST = 4000  # characters; text from a file is cut in messages


class PromiseBroken(Exception):
    """Bytes were treated in a way that no user should meet; the message says how."""


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that was refused in good order.

    Attributes:
        stage: `open`, `read`, `view`, `dense`, `slice` or `verify`.
        family: `FormatError`, `UnsupportedError` or `LimitError`.
        reason: the reason code.
        object_name: the object concerned, or None.
    """

    stage: str
    family: str
    reason: str
    object_name: str | None = None


@dataclasses.dataclass(slots=True)
class Outcome:
    """What became of some bytes.

    Attributes:
        opened: whether they were opened as a file.
        verified: whether they were, and verifying found no problem and nothing unknown.
        arrays: copies that were read: name and role to array; the role `dense` is `to_dense()`.
        refusals: the refused calls, in order.
        largest: bytes of the largest result that was held at once.
    """

    opened: bool = False
    verified: bool = False
    arrays: dict[tuple[str, str], Array] = dataclasses.field(default_factory=dict)
    refusals: list[Refusal] = dataclasses.field(default_factory=list)
    largest: int = 0


def exercise(
    data: Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    threads: int = 1,
    keep: bool = False,
    recover: bool = False,
) -> Outcome:
    """Use `data` in every way users use a file, and return the outcome.

    Args:
        data: bytes, a path or a file object; anything that `ztensor.open` takes.
        limits: the caps in force; small ones bound the time a case can take.
        threads: for verifying.
        keep: whether the arrays are kept in the outcome.
        recover: open a torn file at its last committed state, as `ztensor.open` does.

    Raises:
        PromiseBroken: an error has no reason or breaks a message's form, views and copies differ,
            or verifying and reading disagree.
        LimitError: memory ran out, which no bytes may cause: an escape, too (LIMIT_MEMORY).
        Exception: any other one is an escape, too.
    """
    outcome = Outcome()
    reader = _tried(outcome, "open", None, lambda: Reader(data, limits=limits, recover=recover))
    if reader is None:
        return outcome
    with reader:
        outcome.opened = True
        repr(reader)
        names = reader.keys()
        if len(names) != len(reader) or not isinstance(reader.attributes, dict):
            raise PromiseBroken("the mapping disagrees with itself")
        for name in names:
            _exercise_object(outcome, reader, name, keep=keep)
        report = reader.verify(threads=threads)
    for problem in (*report.problems, *report.unsupported):
        _require_message(str(problem))
    outcome.refusals += [
        Refusal("verify", "FormatError", problem.reason, problem.object_name)
        for problem in report.problems
    ]
    if (report.outcome == "damaged") is not bool(report.problems) or report.objects != len(names):
        raise PromiseBroken("the report disagrees with itself")
    wrong = {problem.object_name for problem in report.problems}
    for refusal in outcome.refusals:
        if (refusal.stage, refusal.family) == ("read", "FormatError") and (
            refusal.object_name not in wrong
        ):
            raise PromiseBroken(f"verifying finds nothing wrong where reading does: {refusal}")
    outcome.verified = not report.problems and not report.unsupported
    return outcome


def _exercise_object(outcome: Outcome, reader: Reader, name: str, *, keep: bool) -> None:
    metadata = _tried(outcome, "read", name, lambda: reader.metadata(name))
    if metadata is None:  # some formats describe an object only at its data
        return
    for role in metadata.components:
        reader.location(name, role)
    tensor = _tried(outcome, "read", name, lambda: reader.read(name, copy=True))
    if tensor is None:
        return
    repr(tensor)
    if tensor.shape != metadata.shape or tensor.format != metadata.format:
        raise PromiseBroken("tensor and metadata differ")
    held = tensor.nbytes
    dense = _tried(outcome, "dense", name, tensor.to_dense)
    if dense is not None:
        if dense.shape != metadata.shape:
            raise PromiseBroken("to_dense() has another shape than the object")
        held += dense.nbytes
    view = _tried(outcome, "view", name, lambda: reader.read(name))
    if view is not None:
        held += view.nbytes
        for role, array in tensor.components.items():
            if array.dtype != view.components[role].dtype or not is_same(
                array, view.components[role]
            ):
                raise PromiseBroken("view and copy differ")
    layout = LAYOUTS.get(metadata.format)
    has_blocks = isinstance(layout, Quantized) and layout.has_row_bytes
    has_rows = has_blocks and len(metadata.shape) > 1
    if has_rows or metadata.format in ("dense", "sparse_csr", "sparse_coo"):
        piece = _tried(outcome, "slice", name, lambda: _sliced(reader, name))
        same = is_same_number if has_rows else is_same  # blocks are numbers only when computed
        if piece is not None and dense is not None and not same(piece, _part(dense)):
            raise PromiseBroken("a slice differs from the same part of the whole")
    outcome.largest = max(outcome.largest, held)
    if keep:
        outcome.arrays |= {(name, role): array for role, array in tensor.components.items()}
        if dense is not None:
            outcome.arrays[name, "dense"] = dense


def is_same(one: Array, other: Array) -> bool:
    """Return whether two arrays have the same shape and bits."""
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def is_same_number(one: Array, other: Array) -> bool:
    """Return whether two arrays of floats are the same but for the bits of NaNs.

    Which of two NaNs a sum keeps depends on how many elements the processor takes at a time.
    """
    if one.shape != other.shape or np.any(np.isnan(one) != np.isnan(other)):
        return False
    return is_same(*(np.where(np.isnan(array), 0, array) for array in (one, other)))


def _part(array: Any) -> Array:
    part: Array = array[1::2] if array.shape else array[...]
    return part


def _sliced(reader: Reader, name: str) -> Array:
    part: Any = _part(reader.get_slice(name))
    return part.to_dense() if isinstance(part, Tensor) else part


def _tried(outcome: Outcome, stage: str, name: str | None, call: Callable[[], Any]) -> Any:
    """Return the result of a call; None, and note a refusal, if it refuses as promised."""
    try:
        return call()
    except ZTensorError as error:
        if error.reason is Reason.LIMIT_MEMORY:
            raise  # a caller that limits memory may look closer
        outcome.refusals.append(refusal_of(error, stage, name))
        return None


def refusal_of(error: ZTensorError, stage: str, name: str | None = None) -> Refusal:
    """Return an error as a refusal.

    Raises:
        PromiseBroken: bytes may not cause this error, or it lacks a reason or a printable message.
    """
    if isinstance(error, UsageError):
        raise PromiseBroken(f"a right call was called wrong: {error}") from error
    family = next((kind.__name__ for kind in FAMILY if isinstance(error, kind)), None)
    if family is None:
        raise PromiseBroken(f"bytes may not cause a {type(error).__name__}: {error}") from error
    if error.reason in EXHAUSTED:
        raise PromiseBroken(f"no cap refused before it was too late: {error}") from error
    if error.reason is Reason.UNFORESEEN:
        raise PromiseBroken(f"no rule covers the fault: {error}") from error
    if error.reason is None:
        raise PromiseBroken(f"the error has no reason: {error}") from error
    _require_message(str(error))
    return Refusal(stage, family, str(error.reason), name)


def _require_message(message: str) -> None:
    # So that a file can neither steer a terminal nor fill a log.
    if not (message.isascii() and message.isprintable() and len(message) < MESSAGE_MOST):
        raise PromiseBroken(f"a message is unfit to print: {message[:200]!a}")
