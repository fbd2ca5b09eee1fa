"""Change a finished file without risking it: append, replace, remove, rename, set, compact, repair.

Read `editor.py` first: several changes as one commit, appended behind the old state or, on demand,
as a new file put in its place; `compact` leaves the dead bytes out. `keeping.py` says what a file
keeps that is changed, and `repairing.py` finds the last committed state of a torn one. The module
`ztensor.edit` has each change as a function.
"""

from ztensor.io.edit.editor import Editor, compact
from ztensor.io.edit.repairing import RepairReport, find, repair

__all__ = [
    "Editor",
    "RepairReport",
    "compact",
    "find",
    "repair",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
