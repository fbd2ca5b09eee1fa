"""The steps of a training run in a folder: saved beside the run, kept by rules, resumed from.

A step is a file, `step-00000100.zt`, that holds a tree (see `ztensor.training.states`) and, in the
attribute `checkpoint`, its number and metrics. There is no other file about it: a step exists if
its file opens and has the number of its name. So whenever a process ends, the folder has the old
steps, or also the new one, possibly without some steps that the rules do not keep.

Read `step.py` (one step, and which errors are damage), `place.py` (a folder or the prefix of a
store), `rules.py` (which steps are kept), `staging.py` (the copy of a state for a background save),
`background.py` (a save that completes even if the program ends), `folder_lock.py` (locks a folder
while it is written), `listing.py` and `history.py` (list steps and read them back),
`interrupting.py` (signals), `owning.py` (only steps are removed) and `manager.py`, which saves and
removes, with `hints.py`. Trees belong to `ztensor/training/tree/`, atomic files to
`ztensor/io/source/`.
"""

from ztensor.training.checkpoints.history import Restored
from ztensor.training.checkpoints.manager import CheckpointManager
from ztensor.training.checkpoints.step import Checkpoint

__all__ = ["Checkpoint", "CheckpointManager", "Restored"]
