"""NumPy's .npz: a zip archive of .npy files, each of them one object.

`projecting.py` makes an object of each member; `exporting.py` writes.
"""

from ztensor.formats.npz.exporting import export
from ztensor.formats.npz.projecting import project

__all__ = ["export", "project"]
