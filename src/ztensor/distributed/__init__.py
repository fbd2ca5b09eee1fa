"""Save and load checkpoints that many processes write, each into files of its own.

A distributed ("divided") checkpoint is a folder, or a prefix of a store: zTensor files under names
that are never reused, and `checkpoint.zt`, the *root*, which is written last and lists their
contents. The new root replaces the old one in one step, so readers see one save or the other.

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

Read `place.py` (folder or prefix, and file names), `root.py` (the root), `part.py` (the files of
one process), `committing.py` (writing the root), `saves.py` (the save of a part), `columns.py` and
`rows.py` (tables in files), `lazy_files.py` (files opened on first read), `cleaning.py` (removal of
unneeded files), `opened.py` (from a folder or URL to whole tensors), `nested.py` (the nested state
that was saved), `since.py` (chunks taken over from an earlier checkpoint), `verifying.py` and
`repairing.py` (a lost root). `chunks/` has the arithmetic of boxes, the chunk table and the
encoding. `torch/` is the storage for `torch.distributed.checkpoint`, `jax.py` saves arrays of JAX.
Folders that torch itself writes are a format, `formats/dcp/`.
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


# Reading a folder of another library does not import them.
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
