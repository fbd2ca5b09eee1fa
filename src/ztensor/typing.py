"""Names for what public functions take and give, for annotations of your own.

For type checkers; nothing here loads a framework, and no class its module before it is used. Where
torch or JAX is not installed, what comes from it is Any to the checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ztensor.accepted import (
    Array,
    Bytes,
    Durable,
    ElementType,
    Index,
    JaxArray,
    JaxDevice,
    JaxSharding,
    Openable,
    Path,
    Progress,
    ReadableFile,
    Resolver,
    ShardIdentity,
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
from ztensor.registry import Registry

if TYPE_CHECKING:
    from ztensor.io.edit.repairing import RepairReport
    from ztensor.io.opening import ShardedReader
    from ztensor.io.reading.reader import ObjectReader
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.writing.stream import ObjectSink
else:
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.io.edit.repairing": "RepairReport",
            "ztensor.io.opening": "ShardedReader",
            "ztensor.io.reading.verify": "VerifyReport",
            "ztensor.io.writing.stream": "ObjectSink",
        },
    )

__all__ = [
    "Array",
    "Bytes",
    "ConvertOptions",
    "Durable",
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
    "ObjectSink",
    "OpenOptions",
    "Openable",
    "PartOptions",
    "Path",
    "Progress",
    "Readable",
    "ReadableFile",
    "RemoveOptions",
    "RepairReport",
    "Resolver",
    "RewriteOptions",
    "SaveOptions",
    "ShardIdentity",
    "ShardedReader",
    "Storage",
    "Target",
    "TensorLike",
    "TorchDevice",
    "TorchTensor",
    "TreeOptions",
    "VerifyReport",
    "WritableFile",
    "WriteOptions",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


Readable: TypeAlias = "Openable | ObjectReader"
"""A source of `ztensor.open`, or an open reader."""
