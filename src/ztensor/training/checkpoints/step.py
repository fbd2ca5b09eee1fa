"""One step of a run: its name, what its file says of it, and which errors are damage."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING, Any, SupportsFloat

from ztensor import Reader
from ztensor.distributed.opened import root_of
from ztensor.distributed.root import STEP
from ztensor.errors import (
    ArgumentTypeError,
    FormatError,
    LimitError,
    ManifestError,
    Reason,
    SourceError,
    UnsupportedVersionError,
    ZTensorError,
    describe,
)
from ztensor.ext import Shown
from ztensor.training.tree.stored import split_tree

if TYPE_CHECKING:
    from collections.abc import Mapping


_VERSION = 1
SUFFIX = ".zt"
_MOST_DIGITS = 18
# The names of all files of steps, as an expression.
NAMES = r"step-[0-9]{8,18}\.zt"


class NotAStepError(Exception):
    """The cause of a `FormatError` about a file that is intact, and not the step of its name.

    Attributes:
        is_another: whether it is another step.
    """

    def __init__(self, *, is_another: bool) -> None:
        super().__init__("the file is not damaged")
        self.is_another = is_another


@dataclasses.dataclass(frozen=True)
class Checkpoint(Shown):
    """What a folder has of a step.

    Attributes:
        step: its number.
        path: where it is.
        nbytes: its length on disk.
        modified: when it was written, in seconds since 1970; nothing depends on it.
        metrics: name to value, as they were saved.
        is_pinned: whether no rule removes it.
        problem: why it cannot be read; None where it opens.
        is_checked: whether every byte was read, and is what a digest says; only `verify` does so.
    """

    step: int
    path: str
    nbytes: int
    modified: float
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_pinned: bool = False
    problem: ZTensorError | None = None
    is_checked: bool = False

    @property
    def is_damaged(self) -> bool:
        """Return whether its bytes are wrong.

        Another problem may be one of this installation, or that the file is not a step.
        """
        return self.problem is not None and is_damage(self.problem)


def name_of(step: int) -> str:
    """Return the name of a step, without the suffix of its file."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Return the number of a step by the name of its file or folder; None where it is none."""
    name = name.removesuffix(SUFFIX)
    digits = name.removeprefix("step-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    step = int(digits)
    return step if name_of(step) == name else None


def attributes_of(step: int, metrics: Mapping[str, float]) -> dict[str, object]:
    """Return the attributes that make a file of a tree a step."""
    told: dict[str, object] = {"version": _VERSION, "step": step}
    if metrics:
        told["metrics"] = dict(metrics)
    return {STEP: told}


def told_by(
    reader: Reader, step: int, *, is_divided: bool = False
) -> tuple[dict[str, float], bool]:
    """Return the metrics of an open step, and whether it is pinned.

    Of a divided one the value `checkpoint` of the root may say its metrics, as a file does.

    Args:
        reader: the open step.
        step: what its name says.
        is_divided: whether it is a folder.

    Raises:
        FormatError: its metrics are damaged; or it is no step, or another one than its name says,
            see `why_not_a_step`.
    """
    root = root_of(reader.objects.parts()[0])
    if root is not None:
        told = root.values.get(STEP)
        return (metrics_told(told, step, reader.name) if isinstance(told, dict) else {}), False
    if is_divided:
        raise not_a_step("the file is the root of no divided checkpoint", None, reader.name)
    attributes, tree = split_tree(reader.attributes)
    told = attributes.get(STEP)
    if not isinstance(told, dict) or tree is None:
        raise not_a_step("the file is no step of a run", describe(told, 40), reader.name)
    return metrics_told(told, step, reader.name), told.get("pinned") is True


def metrics_told(told: Mapping[str, Any], step: int, name: str) -> dict[str, float]:
    """Return the metrics that a step tells.

    Args:
        told: what it says of itself.
        step: what its name says.
        name: of the file, for messages.

    Raises:
        FormatError: they are damaged, or it is another step than its name says.
    """
    if told.get("step") != step or isinstance(told.get("step"), bool):
        text = "the file is another step than its name says"
        error = not_a_step(text, describe(told.get("step"), 40), name, is_another=True)
        error.expected = str(step)
        raise error
    metrics = told.get("metrics", {})
    if not isinstance(metrics, dict) or not all(
        isinstance(one, str) and isinstance(value, float) for one, value in metrics.items()
    ):
        raise ManifestError(
            "its metrics are no numbers by their names",
            reason=Reason.FIELD_VALUE,
            file=name,
            found=describe(metrics, 60),
        )
    return metrics


def not_a_step(
    message: str, found: str | None, name: str, *, is_another: bool = False
) -> FormatError:
    """Return the error for a file that has the name of a step, and is not that step."""
    error = ManifestError(message, reason=Reason.FIELD_VALUE, file=name, found=found)
    error.__cause__ = NotAStepError(is_another=is_another)
    return error


def why_not_a_step(error: BaseException) -> NotAStepError | None:
    """Return why a file that did not open as a step is intact, and none; None for other errors."""
    return error.__cause__ if isinstance(error.__cause__, NotAStepError) else None


def is_damage(error: BaseException) -> bool:
    """Return whether an error is of the bytes of a file, for which an older step can stand in.

    It is not where the file may well be right: the network is down, a library is missing, the
    caller may not read it. To go back then would lose work that is there. Nor is it where the file
    is intact and not a step.
    """
    if why_not_a_step(error) is not None:
        return False
    if isinstance(error, SourceError):
        return error.errno == errno.EIO or error.reason is Reason.SOURCE_CHANGED
    return isinstance(error, FormatError)


def is_unreadable(error: BaseException) -> bool:
    """Return whether nothing can be read of a file as it is, for which an older step can stand in.

    It is damaged, or says that it is of a newer version or longer than is allowed: a damaged footer
    says so, too. Only damage is a reason to remove it.
    """
    is_newer = isinstance(error, UnsupportedVersionError)
    is_long = isinstance(error, LimitError) and error.reason is Reason.LIMIT_MANIFEST
    return is_newer or is_long or is_damage(error)


def metrics_of(given: Mapping[str, SupportsFloat] | None) -> dict[str, float]:
    """Return metrics as numbers.

    Raises:
        ArgumentTypeError: a name is no text, or a value no number.
    """
    metrics: dict[str, float] = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str):
            raise ArgumentTypeError("the name of a metric is text", found=describe(name, 60))
        try:
            metrics[name] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentTypeError(
                f"the metric {describe(name)} is no number", found=describe(value, 60)
            ) from error
    return metrics
