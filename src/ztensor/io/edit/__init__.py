"""Change a finished file without risking it: append, replace, remove, rename, set, compact, repair.

Read `editor.py` first: several changes as one commit, appended behind the old state or, on
demand, as a new file put in its place. `rewriting.py` says what
a file is written again as, and leaves the dead bytes out, and `repairing.py` finds the last
committed state of a torn file. The module `ztensor.edit` has each change as a function.
"""

from ztensor.io.edit.editor import Editor
from ztensor.io.edit.repairing import RepairReport, find, repair
from ztensor.io.edit.rewriting import compact

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
