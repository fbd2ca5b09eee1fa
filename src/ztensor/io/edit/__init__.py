"""Change a finished file without risking it: append, replace, remove, rename, set, compact, repair.

Read `editor.py` first: several changes as one commit, appended behind the old state or, on demand,
written as a new file that replaces the old one; `compact` omits the dead bytes. `keeping.py` reads
the version, alignment and digest that a changed file keeps, and `repairing.py` finds the last
committed state of a torn file. The module `ztensor.edit` has each change as a function.
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
