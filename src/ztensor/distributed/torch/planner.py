"""Call planners, which may be torch's or the caller's."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ztensor.errors import UsageError, ZTensorError, describe
from ztensor.torch.values import first_line, is_packed

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def asking(planner: Any, name: str) -> Iterator[None]:
    """Turn an error of a planner into a `UsageError` that names the planner.

    Raises:
        UsageError: the planner raised.
    """
    try:
        yield
    except ZTensorError:
        raise
    except Exception as error:
        raise UsageError(
            f"the planner {type(planner).__name__} failed: {first_line(error)}",
            object_name=name,
            found=type(error).__name__,
        ) from error


def require_shape(name: str, tensor: Any, planned: Any) -> None:
    """Raise if a planner gives a tensor of another shape than it planned.

    Raises:
        UsageError: it does.
    """
    if tuple(tensor.shape) != tuple(planned):
        raise UsageError(
            "the planner gives a tensor of another shape than it planned",
            object_name=name,
            expected=f"shape {describe(tuple(planned))}",
            found=f"shape {describe(tuple(tensor.shape))}",
        )


def elements(sizes: Any, dtype: Any) -> tuple[int, ...]:
    """Return sizes or offsets in elements; torch packs two 4-bit elements along the last axis."""
    return (*sizes[:-1], 2 * sizes[-1]) if sizes and is_packed(dtype) else tuple(sizes)
