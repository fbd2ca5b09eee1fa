"""The one error that carries all problems of a manifest, and how many problems are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ManifestError
from ztensor.showing import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.errors import Problem


# So many are kept; a file that breaks more rules is not looked at further. To tell of each of a
# million would take far longer, and far more memory, than the file.
MOST_PROBLEMS = 256


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
