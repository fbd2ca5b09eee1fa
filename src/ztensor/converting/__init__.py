"""Anything readable to anything writable: other formats, other versions, other encodings.

`conversion.py` makes a new file (`convert`), `merging.py` one file out of several (`merge`),
`folders.py` a new folder of a model (`convert_folder`), `splitting.py` shards of limited size
(`split`), of which `planning.py` says what is in each and `dividing.py` writes the ones of 2.1;
`migration.py` rewrites a zTensor file (`migrate`), in its place or beside it, and lets the result
take that place only once it was read back and compared. A file goes through one temporary that
replaces the target as a whole. Bytes are copied as they are stored wherever that is possible,
piece by piece wherever it is not.

Read `asking.py` (what a caller may ask for), `source.py` and `target.py` (what is read and what is
written to), `versions.py` and `losses.py` (what the new file can say, and what it cannot),
`trees.py` (of a nested state), `casting.py` (elements of another type), `quantizing.py` (codes in
the place of floats), `copying.py` (one new file), `checking.py` (whether it holds the same),
`files.py` (one file, or shards and their index), `whole_folder.py` (a folder that appears as one),
and `report.py` (what is told of it).
"""

from ztensor.converting.conversion import convert
from ztensor.converting.folders import FolderReport, convert_folder
from ztensor.converting.merging import merge
from ztensor.converting.migration import migrate
from ztensor.converting.report import ConversionReport, Loss
from ztensor.converting.splitting import split

__all__ = [
    "ConversionReport",
    "FolderReport",
    "Loss",
    "convert",
    "convert_folder",
    "merge",
    "migrate",
    "split",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
