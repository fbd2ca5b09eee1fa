"""A writer and a reader for `torch.distributed.checkpoint`: checkpoints of many processes.

Each process writes files of its own, under names that are never reused, and the coordinator then
writes the root `checkpoint.zt`, which replaces the old checkpoint in one step:
`ztensor.distributed` does both.

Read `writer.py` (torch calls it to save), `reader.py` (to load), `opened.py` (one root, or a root
of each process that saved without collectives), `planner.py` (calls of planners), `agreeing.py`
(the id of a save), `place.py` (the path of a checkpoint, for both).

The planner of a load sees each tensor as a single chunk. It asks for the boxes that a process
needs, and the chunk table of the root says which chunks overlap them. So a million chunks never
become a million objects of torch.
"""

import torch

from ztensor.errors import MissingDependencyError

try:
    import torch.distributed.checkpoint
    from torch.distributed.checkpoint.metadata import StorageMeta  # noqa: F401  # 2.4 and newer
except ImportError as error:
    raise MissingDependencyError(
        "ztensor.torch.StorageWriter and StorageReader need a PyTorch with torch.distributed, "
        "version 2.4 or newer",
        found=f"torch {torch.__version__}",
    ) from error

from ztensor.distributed.torch.reader import StorageReader
from ztensor.distributed.torch.writer import StorageWriter

__all__ = ["StorageReader", "StorageWriter"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
