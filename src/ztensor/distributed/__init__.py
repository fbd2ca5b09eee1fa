"""Checkpoints that many processes write, each into files of its own, and one root names.

A divided checkpoint is a folder, or a prefix of a store: files of ours whose names are never used
twice, and `checkpoint.zt`, the *root*, which is written last and tells what is in them. Until the
root is there nothing of a save counts; from then on nothing of the one before does.

>>> import numpy, tempfile
>>> from ztensor.distributed import PartWriter, commit, open_divided
>>> folder = tempfile.mkdtemp()
>>> records = []
>>> save = {"save_id": "step 100, attempt 1", "processes": 2}
>>> for process in range(2):  # each in a process of its own, as a rule
...     with PartWriter(folder, process=process, **save) as part:
...         rows = numpy.full((4, 3), process, "float32")
...         part.add("weight", rows, shape=(8, 3), offsets=(4 * process, 0))
...         records.append(part.finish())
>>> commit(folder, records, values={"step": 100})
>>> with open_divided(folder) as checkpoint:
...     checkpoint.objects.array("weight", copy=True).sum(), checkpoint.root.values["step"]
(np.float32(12.0), 100)

Read `place.py` (where a checkpoint lies), `root.py` (what the root says, as columns), `part.py`
(what one process writes), `committing.py` (how a save becomes the checkpoint), `saves.py` (which
save a part is of), `columns.py` and `rows.py` (tables in files), `lazy_files.py` (those opened when
they are read), `cleaning.py` (what is removed then), `opened.py` (a folder or URL to whole
tensors), `nested.py` (the state that was saved), `since.py` (what an earlier checkpoint has
already), `verifying.py` and `repairing.py` (a lost root). The arithmetic of boxes and the encoding
are in `chunks/`. `torch/` is what `torch.distributed.checkpoint` saves and loads with, `jax.py` the
same for arrays of JAX. The folders that torch itself writes are a format, `formats/dcp/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.distributed.cleaning import compact
from ztensor.distributed.committing import commit
from ztensor.distributed.opened import DividedCheckpoint, open_divided
from ztensor.distributed.part import PartRecord, PartWriter
from ztensor.distributed.repairing import RootReport, repair
from ztensor.distributed.root import Root, read_root
from ztensor.ext import Registry

__all__ = [
    "DividedCheckpoint",
    "PartRecord",
    "PartWriter",
    "Root",
    "RootReport",
    "commit",
    "compact",
    "open_divided",
    "read_root",
    "repair",
]


# Reading a folder of another library needs none of them.
if not TYPE_CHECKING:
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.distributed.cleaning": "compact",
            "ztensor.distributed.committing": "commit",
            "ztensor.distributed.opened": "DividedCheckpoint open_divided",
            "ztensor.distributed.part": "PartRecord PartWriter",
            "ztensor.distributed.repairing": "RootReport repair",
            "ztensor.distributed.root": "Root read_root",
        },
    )


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
