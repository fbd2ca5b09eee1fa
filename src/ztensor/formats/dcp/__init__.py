"""Checkpoints of many processes by other writers: folders of torch.distributed.checkpoint.

Read without torch and without running anything. Two kinds of folder are read:

| files | what tells of the tensors |
| --- | --- |
| `.metadata` and `__0_0.distcp`, ... | the pickle `.metadata`: shapes, boxes, places |
| `shard-00001-model-00001-of-00001.safetensors`, ... | `DCP_SHARDING_INFO` in each file |

`folders.py` says which folder is one, and `projecting.py` begins there. `vocabulary.py` has what
the pickle may say. `pickles.py` reads it on the machine of `pt`, its runs of records as columns.
`metadata.py` makes a checked table of it (`table.py`), `chunks.py` finds where each chunk is,
`records.py` finds the elements of one box in a `.distcp` file, which is files of `torch.save` one
behind the other. `assembling.py` is the encoding that puts a tensor together when it is read,
`values.py` reads what is no tensor, and `checkpoint.py` makes the manifest. `shards.py` makes the
table of the second kind of folder. `beside.py` finds the files, on disk or in a store.

FSDP, Megatron-LM, Lightning, Accelerate and torchtitan write the first kind, with files of their
own beside it: what this package does not read is told in the account.
"""

from __future__ import annotations

from ztensor.ext import Projection, Source
from ztensor.limits import Budget


def project(source: Source, budget: Budget) -> Projection:
    """Return what a checkpoint holds; see `projecting.project`."""
    from ztensor.formats.dcp import projecting  # who asks what a folder is needs none of it

    return projecting.project(source, budget)
