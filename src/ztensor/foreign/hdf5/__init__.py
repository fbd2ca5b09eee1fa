"""HDF5 and Keras weights, read and written through h5py.

`projecting.py` says what a file holds and where; `data.py` and `filters.py` decode what is not
plain bytes; `exporting.py` writes; `file.py` is the only file that imports h5py.
"""

from ztensor.foreign.hdf5.exporting import export
from ztensor.foreign.hdf5.projecting import project

__all__ = ["export", "project"]
