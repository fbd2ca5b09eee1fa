"""Dialects: deltas in the files of other programs.

`slime.py` (folders of versions; slime, miles, SGLang), `arc.py` (arc_v1 and arc_v2 of Fireworks)
and `trl.py` (patches of TRL) each read and write one. `loose.py` has their common parts: such files
store differences without shapes and types, which the base has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ztensor.delta.changes import Delta
from ztensor.delta.report import DeltaReport
from ztensor.ext import Registry


class Dialect(NamedTuple):
    """How a dialect is read and written.

    Attributes:
        is_one: returns whether a path has a delta of this dialect; it raises nothing.
        read: returns the open delta of a path.
        write: takes a function that returns a `Comparison`, which it calls after it has checked its
            arguments, and a path; keywords as in `ztensor.delta.make`.
    """

    is_one: Callable[[str], bool]
    read: Callable[[str], Delta]
    write: Callable[..., DeltaReport]


DIALECTS: Registry[str, Dialect] = Registry(
    {
        "slime": "ztensor.delta.dialects.slime:DIALECT",
        "trl": "ztensor.delta.dialects.trl:DIALECT",
        "arc": "ztensor.delta.dialects.arc:DIALECT",
    }
)
