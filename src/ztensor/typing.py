"""Names for what public functions take and give, for annotations of your own.

For type checkers; nothing here loads a framework. Where torch or JAX is not installed, what comes
from it is Any to the checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ztensor.accepted import (
    Array,
    Bytes,
    ElementType,
    Index,
    JaxArray,
    JaxDevice,
    JaxSharding,
    Openable,
    Path,
    Progress,
    ReadableFile,
    Storage,
    Target,
    TensorLike,
    TorchDevice,
    TorchTensor,
    WritableFile,
)
from ztensor.options import (
    ConvertOptions,
    EditOptions,
    FileOptions,
    FleetOptions,
    LoadOptions,
    ModelOptions,
    ObjectOptions,
    OpenOptions,
    PartOptions,
    RemoveOptions,
    RewriteOptions,
    SaveOptions,
    TreeOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from ztensor.io.reading.reader import ObjectReader

__all__ = [
    "Array",
    "Bytes",
    "ConvertOptions",
    "EditOptions",
    "ElementType",
    "FileOptions",
    "FleetOptions",
    "Index",
    "JaxArray",
    "JaxDevice",
    "JaxSharding",
    "LoadOptions",
    "ModelOptions",
    "ObjectOptions",
    "OpenOptions",
    "Openable",
    "PartOptions",
    "Path",
    "Progress",
    "Readable",
    "ReadableFile",
    "RemoveOptions",
    "RewriteOptions",
    "SaveOptions",
    "Storage",
    "Target",
    "TensorLike",
    "TorchDevice",
    "TorchTensor",
    "TreeOptions",
    "WritableFile",
    "WriteOptions",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


Readable: TypeAlias = "Openable | ObjectReader"
"""What is opened, or an open reader."""
