"""NumPy's .npz: a zip archive of .npy files, each of them one object; or SciPy's, which is one.

`members.py` says what a member is and decodes it; `projecting.py` makes objects of them all;
`sparse.py` makes one of those that SciPy wrote of a sparse matrix, by `scipy_layouts.py`.
`exporting.py` writes.
"""

from ztensor.formats.npz.exporting import export
from ztensor.formats.npz.projecting import project

__all__ = ["export", "project"]
