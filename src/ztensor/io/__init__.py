"""Open, read, write and edit zTensor files; every change of a file is atomic.

Read the packages in this order: `source/` (read and write bytes), `reading/` (from a source to
arrays), `writing/` (from arrays to a sink), `edit/` (from a finished file to its next state),
`shards/` (sets of files).

- `opening.py`: `open` and `Reader`; `contents.py`: from a path to the objects of one file;
  `formats.py`: the registry of other formats; `losses.py`: loss reports;
- `tensor/`, `metadata.py`, `attributes.py`, `protocols.py`, `frameworks.py`: values that users
  hold, and their exchange with other libraries;
- `collecting.py`: pauses Python's cycle collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.registry import Registry

if TYPE_CHECKING:
    from ztensor.io.metadata import ComponentMetadata
    from ztensor.io.opening import ShardedReader
    from ztensor.io.reading.file import Location
    from ztensor.io.reading.shards import ShardFolder
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.writing.stream import ObjectSink
else:
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.io.metadata": "ComponentMetadata",
            "ztensor.io.opening": "ShardedReader",
            "ztensor.io.reading.file": "Location",
            "ztensor.io.reading.shards": "ShardFolder",
            "ztensor.io.reading.verify": "VerifyReport",
            "ztensor.io.writing.stream": "ObjectSink",
        },
    )

__all__ = [
    "ComponentMetadata",
    "Location",
    "ObjectSink",
    "ShardFolder",
    "ShardedReader",
    "VerifyReport",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
