"""Dialects: deltas in the files of other programs.

`slime.py` (folders of versions; slime, miles, SGLang), `arc.py` (arc_v1 and arc_v2 of Fireworks)
and `trl.py` (patches of TRL) each read and write one. `loose.py` has their common parts: such files
store differences without shapes and types, which the base has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ztensor.delta.changes import Delta
from ztensor.delta.comparing import Comparison
from ztensor.delta.report import DeltaReport
from ztensor.delta.stream import Values
from ztensor.ext import Registry
from ztensor.typing import Durable, Path, Progress


class Target(NamedTuple):
    """The new file or folder of a dialect, and what it stores.

    Attributes:
        compare: compares the states; called after the arguments are checked.
        path: as for `ztensor.delta.make`, like those below; each dialect ignores some of them.
        threads: how many compute and compress.
    """

    compare: Callable[[], Comparison]
    path: Path
    version: Any
    values: Values
    checksum: Any
    durable: Durable
    threads: int
    progress: Progress | None


class Dialect(NamedTuple):
    """How a dialect is read and written.

    Attributes:
        is_one: returns whether a path has a delta of this dialect; it raises nothing.
        read: returns the open delta of a path.
        write: writes a delta.
    """

    is_one: Callable[[str], bool]
    read: Callable[[str], Delta]
    write: Callable[[Target], DeltaReport]


DIALECTS: Registry[str, Dialect] = Registry(
    {
        "slime": "ztensor.delta.dialects.slime:DIALECT",
        "trl": "ztensor.delta.dialects.trl:DIALECT",
        "arc": "ztensor.delta.dialects.arc:DIALECT",
    }
)
