"""The error of deltas, with reasons of its own."""

from __future__ import annotations

import enum
from typing import Any

from ztensor.errors import ZTensorError, describe


class DeltaReason(enum.StrEnum):
    """What is wrong between a delta and a state. Closed."""

    BASE = "delta_base"  # the state is not the one that the delta starts from
    APPLIED = "delta_applied"  # the state has the result already
    CHAIN = "delta_chain"  # links with a gap, a fork, or two ends
    TENSOR = "delta_tensor"  # a name is missing, or there is one too many
    SHAPE = "delta_shape"  # a tensor has another shape or type than the delta says
    RESULT = "delta_result"  # the right base gave a wrong result: the delta is damaged
    NEEDS_BASE = "delta_needs_base"  # positions or values cannot be known without the base
    DIALECT = "delta_dialect"  # a dialect, or a part of one, that is not read or written
    MALFORMED = "delta_malformed"  # the bytes break a rule of the delta format


# Where a dialect has no ids, these two cannot be told apart.
OTHER_OR_DAMAGED = "the base is not the right one, or the delta is damaged"


class DeltaError(ZTensorError, ValueError):
    """A delta does not fit a state, or breaks a rule of its format.

    The target of `apply` is unchanged when it is raised.

    Attributes:
        reason: the rule that is broken.
    """

    reason: DeltaReason  # type: ignore[assignment]  # deltas have reasons of their own

    def __init__(self, message: str, *, reason: DeltaReason, **details: Any) -> None:
        super().__init__(message, **details)
        self.reason = reason


def wrong_result(*, has_ids: bool, **details: Any) -> DeltaError:
    """Return the error for a tensor or a state that is not as a delta records it.

    Args:
        has_ids: whether the delta has ids, and so the base is known to be the right one.
        details: of the error, such as the file.
    """
    cause = "it is damaged: fetch it again" if has_ids else OTHER_OR_DAMAGED
    message = f"the delta gives another tensor than it records: {cause}"
    return DeltaError(message, reason=DeltaReason.RESULT, **details)


def needs_base(message: str) -> DeltaError:
    """Return the error for positions or values that are unknown without the base."""
    error = DeltaError(message, reason=DeltaReason.NEEDS_BASE)
    error.hint = "give the base, or make deltas of new values"
    return error


def malformed(message: str, **details: Any) -> DeltaError:
    """Return the error for bytes that break a rule of the delta format."""
    return DeltaError(message, reason=DeltaReason.MALFORMED, **details)


def require(
    is_met: object,
    message: str,
    found: object,
    *,
    expected: object = None,
    reason: DeltaReason = DeltaReason.MALFORMED,
    **details: Any,
) -> None:
    """Require that a rule is met.

    Args:
        is_met: whether it is.
        message: the error's, if not.
        found: the value that breaks the rule.
        expected: another value, which does not; None without one.
        reason: by default that bytes break a rule of the delta format.
        details: of the error, such as its file.

    Raises:
        DeltaError: it is not.
    """
    if not is_met:
        if expected is not None:
            details["expected"] = expected if isinstance(expected, str) else describe(expected)
        raise DeltaError(message, reason=reason, found=describe(found), **details)
