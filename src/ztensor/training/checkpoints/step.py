"""One step of a run: its name, its attributes, and the errors that mean damage."""

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
    """The cause of a `FormatError` about an intact file that is not the step of its name.

    Attributes:
        is_another: True if it is another step.
    """

    def __init__(self, *, is_another: bool) -> None:
        super().__init__("the file is not damaged")
        self.is_another = is_another


@dataclasses.dataclass(frozen=True)
class Checkpoint(Shown):
    """A step as it is in its folder.

    Attributes:
        step: its number.
        path: its path or URL.
        nbytes: its length on disk.
        modified: when it was written, in seconds since 1970; for information only.
        metrics: values by name, as they were saved.
        is_pinned: True if no rule removes it.
        problem: the error if it cannot be read, else None.
        is_checked: True if every byte was read and matches a digest; only `verify` does this.
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

        Other problems are of this installation, or the file is not a step.
        """
        return self.problem is not None and is_damage(self.problem)


def name_of(step: int) -> str:
    """Return the name of a step, without the suffix of its file."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Return the number of a step from its name, None for other names."""
    name = name.removesuffix(SUFFIX)
    digits = name.removeprefix("step-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    step = int(digits)
    return step if name_of(step) == name else None


def attributes_of(step: int, metrics: Mapping[str, float]) -> dict[str, object]:
    """Return the attribute that makes the file of a tree a step."""
    attribute: dict[str, object] = {"version": _VERSION, "step": step}
    if metrics:
        attribute["metrics"] = dict(metrics)
    return {STEP: attribute}


def step_data(
    reader: Reader, step: int, *, is_divided: bool = False
) -> tuple[dict[str, float], bool]:
    """Return the metrics of an open step, and whether it is pinned.

    The metrics of a distributed step are in the value `checkpoint` of its root.

    Args:
        reader: the open step.
        step: the number in its name.
        is_divided: whether it is a folder.

    Raises:
        FormatError: its metrics are damaged; or it is not a step, or not the step of its name, see
            `why_not_a_step`.
    """
    root = root_of(reader.objects.parts()[0])
    if root is not None:
        attribute = root.values.get(STEP)
        return (
            parsed_metrics(attribute, step, reader.name) if isinstance(attribute, dict) else {}
        ), False
    if is_divided:
        raise not_a_step("the file is not the root of a distributed checkpoint", None, reader.name)
    attributes, tree = split_tree(reader.attributes)
    attribute = attributes.get(STEP)
    if not isinstance(attribute, dict) or tree is None:
        raise not_a_step("the file is not a step of a run", describe(attribute, 40), reader.name)
    return parsed_metrics(attribute, step, reader.name), attribute.get("pinned") is True


def parsed_metrics(attribute: Mapping[str, Any], step: int, name: str) -> dict[str, float]:
    """Return the metrics of a step from its attribute.

    Args:
        attribute: the attribute or value `checkpoint`.
        step: the number in its name.
        name: name of the file, for messages.

    Raises:
        FormatError: they are damaged, or the step is not the one of its name.
    """
    if attribute.get("step") != step or isinstance(attribute.get("step"), bool):
        text = "the file is another step than its name says"
        error = not_a_step(text, describe(attribute.get("step")), name, is_another=True)
        error.expected = str(step)
        raise error
    metrics = attribute.get("metrics", {})
    if not isinstance(metrics, dict) or not all(
        isinstance(one, str) and isinstance(value, float) for one, value in metrics.items()
    ):
        raise ManifestError(
            "its metrics are not numbers by name",
            reason=Reason.FIELD_VALUE,
            file=name,
            found=describe(metrics, 60),
        )
    return metrics


def not_a_step(
    message: str, found: str | None, name: str, *, is_another: bool = False
) -> FormatError:
    """Return the error for a file that has the name of a step but is not that step."""
    error = ManifestError(message, reason=Reason.FIELD_VALUE, file=name, found=found)
    error.__cause__ = NotAStepError(is_another=is_another)
    return error


def why_not_a_step(error: BaseException) -> NotAStepError | None:
    """Return the cause of an error about an intact file that is not a step, or None."""
    return error.__cause__ if isinstance(error.__cause__, NotAStepError) else None


def is_damage(error: BaseException) -> bool:
    """Return whether an error is damage to a file, so that an older step may be used instead.

    It is not if the file may be intact: the network is down, a library is missing, permission is
    denied. Going back to an older step would then lose work. Nor is it if the file is intact but
    not a step.
    """
    if why_not_a_step(error) is not None:
        return False
    if isinstance(error, SourceError):
        return error.errno == errno.EIO or error.reason is Reason.SOURCE_CHANGED
    return isinstance(error, FormatError)


def is_unreadable(error: BaseException) -> bool:
    """Return whether a file is unreadable, so that an older step may be used instead.

    It is damaged, or claims a newer version or an excessive length, as a damaged footer may. Only
    damage is a reason to remove it.
    """
    is_newer = isinstance(error, UnsupportedVersionError)
    is_long = isinstance(error, LimitError) and error.reason is Reason.LIMIT_MANIFEST
    return is_newer or is_long or is_damage(error)


def metrics_of(given: Mapping[str, SupportsFloat] | None) -> dict[str, float]:
    """Return metrics as numbers.

    Raises:
        ArgumentTypeError: a name is not text, or a value not a number.
    """
    metrics: dict[str, float] = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str):
            raise ArgumentTypeError("the name of a metric must be text", found=describe(name, 60))
        try:
            metrics[name] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentTypeError(
                f"the metric {describe(name)} is not a number", found=describe(value, 60)
            ) from error
    return metrics
