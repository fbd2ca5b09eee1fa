"""The Python surface of the 2.x releases, over this library: `import ztensor.v2 as ztensor`.

A program written for `ztensor` 2.0 to 2.1 runs with that line changed, and reads files of 1.x and
0.1 as well. `docs/guides/migrating-2.md` lists the differences.

| file | has |
| --- | --- |
| `raising.py` | our errors as the `ValueError` of the releases |
| `source.py` | `Source`; `open`, `index`, `verify`, `detect` |
| `tensor.py` | `Tensor`, `Caps`, `Location` |
| `linking.py` | shards of a file that is written, for `Writer.link` |
| `sink.py` | `Sink` |
| `writer.py` | `Writer`, `convert` |

Nothing else in the library imports this package. New code finds more in `ztensor` itself.
"""

from ztensor.v2.sink import Sink
from ztensor.v2.source import Source, detect, index, open, page_size, verify
from ztensor.v2.tensor import Caps, Location, Tensor, Verification
from ztensor.v2.writer import Writer, convert

__all__ = [
    "Caps",
    "Location",
    "Sink",
    "Source",
    "Tensor",
    "Verification",
    "Writer",
    "convert",
    "detect",
    "index",
    "open",
    "page_size",
    "verify",
]
