"""Files of ours on disk: opened, read, written and edited, whole or not at all.

Read `source/` (bytes at an offset; bytes to a file), `reading/` (an opened source to arrays),
`writing/` (arrays to a sink), `edit/` (a finished file to its next state) and `shards/` (models in
several files). `contents.py` says what a path holds, `formats.py` finds what reads other formats,
`losses.py` counts what those do not give, `opening.py` makes a reader of it. `tensor/`,
`metadata.py`, `attributes.py`, `protocols.py` and `frameworks.py` have what users hold;
`collecting.py` keeps Python's collector out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.registry import Registry

if TYPE_CHECKING:
    from ztensor.io.metadata import ComponentMetadata
    from ztensor.io.opening import ShardedReader
    from ztensor.io.reading.file import Location
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.writing.stream import ObjectSink
else:
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.io.metadata": "ComponentMetadata",
            "ztensor.io.opening": "ShardedReader",
            "ztensor.io.reading.file": "Location",
            "ztensor.io.reading.verify": "VerifyReport",
            "ztensor.io.writing.stream": "ObjectSink",
        },
    )

__all__ = [
    "ComponentMetadata",
    "Location",
    "ObjectSink",
    "ShardedReader",
    "VerifyReport",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
