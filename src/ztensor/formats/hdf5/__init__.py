"""HDF5 and Keras weights: read by parsers of our own, written through h5py.

To read the files in this order: `window.py` is how all of them see a file; `superblock.py`,
`header.py`, `messages.py` and `types.py` parse the records, of which `checksum.py` has the sum;
`trees.py`, `arrays.py`, `heaps.py`, `groups.py`, `attributes.py` and `chunks.py` what they lead to.
`datasets.py` says of what type a dataset is, and where; `data.py` and `filters.py` decode it.
`projecting.py` walks the groups. `exporting.py` writes, and is the only file that imports h5py.
"""

from ztensor.formats.hdf5.exporting import export
from ztensor.formats.hdf5.projecting import project

__all__ = ["export", "project"]
