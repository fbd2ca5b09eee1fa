"""The steps of a training run in a folder: saved beside the run, kept by rules, resumed from.

A step is a file, `step-00000100.zt`, that holds a tree (see `ztensor.training.states`) and, in the
attribute `checkpoint`, its number and metrics. No other file says anything about it: a step exists
where its file opens and says the number of its name. So whatever ends a process, the folder has the
old steps, or the new one beside them, or it without some of those that the rules do not keep.

Read `step.py` (one step, and what is damage), `place.py` (a folder or the prefix of a store),
`rules.py` (which steps are kept), `staging.py` (the one copy that a save in the background takes),
`background.py` (a thread that ends although the program does), `folder_lock.py` (a folder that is
written), `listing.py` and `history.py` (what there is, and reading it back), `interrupting.py`
(signals), `owning.py` (what is removed is a step) and `manager.py`, which saves and removes, with
`hints.py`. What a tree is belongs to
`ztensor/training/tree/`, how a file becomes whole to `ztensor/io/source/`.
"""

from ztensor.training.checkpoints.history import Restored
from ztensor.training.checkpoints.manager import CheckpointManager
from ztensor.training.checkpoints.step import Checkpoint

__all__ = ["Checkpoint", "CheckpointManager", "Restored"]
