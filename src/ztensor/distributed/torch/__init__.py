"""A writer and a reader for `torch.distributed.checkpoint`: checkpoints of many processes.

Each process writes files of its own, under names that are never used twice, and the coordinator
writes the root `checkpoint.zt` behind them: `ztensor.distributed` does both. A checkpoint is the
old one until the root is there, and the new one from then on.

Read `writer.py` (what torch calls to save), `reader.py` (what it calls to load), `opened.py` (the
checkpoint that is read: one root, or one of each process where these did not talk), `planner.py`
(how planners are asked), `agreeing.py` (the id of a save), `place.py` (where a checkpoint is, which
torch asks of both).

To the planner of a load each tensor is shown as one chunk, the whole tensor: it then asks for the
box that a process needs, and which chunks of which files overlap it is found in the root's table.
So a table of a million chunks never becomes as many objects of torch.
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
