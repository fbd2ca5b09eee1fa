"""Checkpoints that many processes write, each into files of its own, and one root names.

A divided checkpoint is a folder, or a prefix of a store: files of ours whose names are never used
twice, and `checkpoint.zt`, the *root*, which is written last and tells what is in them. Until the
root is there nothing of a save counts; from then on nothing of the one before does.

>>> import numpy, tempfile
>>> from ztensor.divided import PartWriter, commit, open_divided
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

Read `root.py` (what the root says, as columns), `part.py` (what one process writes), `commit.py`
(how a save becomes the checkpoint), `saves.py` (which save a part is of), `columns.py`
(tables in files), `cleaning.py` (what is removed then), `opened.py` (a folder or
URL to whole tensors), `nested.py` (the state that was saved), `verifying.py`, `repair.py` (a lost
root), and `sending.py` (what a process wrote as bytes, for those that exchange no more). The
arithmetic of boxes and the encoding are in `ztensor/chunks/`.
"""

from ztensor.divided.cleaning import compact
from ztensor.divided.commit import commit
from ztensor.divided.opened import DividedCheckpoint, open_divided
from ztensor.divided.part import PartRecord, PartWriter
from ztensor.divided.repair import RootReport, repair
from ztensor.divided.root import Root, read_root

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


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
