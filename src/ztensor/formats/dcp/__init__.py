"""Checkpoints of many processes by other writers: folders of torch.distributed.checkpoint.

Read without torch; nothing in them is executed. Two kinds of folder are read:

| files | shapes and chunks |
| --- | --- |
| `.metadata` and `__0_0.distcp`, ... | in the pickle `.metadata` |
| `shard-00001-model-00001-of-00001.safetensors`, ... | in `DCP_SHARDING_INFO` of each file |

Read `folders.py` (which folders are checkpoints) and `projecting.py` (the entry point) first.
`vocabulary.py` lists the names that the pickle may use, `pickles.py` reads it on the machine of
`pt` with long runs of records as columns, and `chunks.py` matches chunks with their places.
`metadata.py` checks all that and makes the table of a `.metadata`, `shards.py` the table of
safetensors files (`table.py`). `checkpoint.py` turns a table into a manifest: the assembler of
`distributed` puts tensors together, and `records.py` locates the elements of a chunk in a `.distcp`
file, a sequence of files of `torch.save`. `values.py` reads everything else, `beside.py` opens the
files.

FSDP, Megatron-LM, Lightning, Accelerate and torchtitan write the first kind, with files of their
own beside it; files that are not read are in the loss report.
"""

from __future__ import annotations

from ztensor.ext import Projection, Source
from ztensor.limits import Budget


def project(source: Source, budget: Budget) -> Projection:
    """Return the contents of a checkpoint; see `projecting.project`."""
    from ztensor.formats.dcp import projecting  # recognizing a folder does not need it

    return projecting.project(source, budget)
