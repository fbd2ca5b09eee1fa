"""NumPy's .npz: a zip archive of .npy files, each of them one object.

`projecting.py` says what a member is, makes an object of it and decodes it; `exporting.py` writes.
"""

from ztensor.formats.npz.exporting import export
from ztensor.formats.npz.projecting import project

__all__ = ["export", "project"]
