"""A broken rule as a value: nested checks return these, and one error carries them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import ManifestError, Reason, describe
from ztensor.showing import counted

if TYPE_CHECKING:
    from collections.abc import Sequence


# So many are kept; a file that breaks more rules is not looked at further. To tell of each of a
# million would take far longer, and far more memory, than the file.
MOST_PROBLEMS = 256


class Problem(NamedTuple):
    """One broken rule, with the path from the file's root to the place.

    Attributes:
        reason: the rule's code.
        message: one sentence: what was expected, what was found.
        path: steps from the root, such as `("objects", "w", "components", "data", "offset")`.
        section: the specification's section.
        object_name: the object concerned, or None for the file as a whole.
        component: the component's role, or None.
    """

    reason: Reason
    message: str
    path: tuple[str | int, ...] = ()
    section: str | None = None
    object_name: str | None = None
    component: str | None = None

    def under(self, *steps: str | int) -> Problem:
        """Return the same problem seen from further up: `steps` come before its path."""
        return self._replace(path=(*steps, *self.path))

    def about(self, object_name: str, component: str | None = None) -> Problem:
        """Return the same problem with the object, and perhaps the component, it concerns."""
        return self._replace(object_name=object_name, component=self.component or component)

    def __str__(self) -> str:
        """Return path, sentence and section on one line, safe to print."""
        path = "".join(f"[{describe(step, 60)}]" for step in self.path)
        text = f"{path}: {self.message}" if path else self.message
        return f"{text} ({self.section})" if self.section else text


def manifest_error(problems: Sequence[Problem]) -> ManifestError:
    """Return the one error that carries all of `problems`; its place is the first one's."""
    first = problems[0]
    more = f"; and {counted(len(problems) - 1, 'more problem')}" if len(problems) > 1 else ""
    if len(problems) >= MOST_PROBLEMS:
        more += ", or others behind them"
    return ManifestError(
        f"the manifest breaks a rule: {first}{more}",
        reason=first.reason,
        object_name=first.object_name,
        component=first.component,
        problems=problems,
    )
