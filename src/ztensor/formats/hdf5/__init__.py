"""HDF5 and Keras weights: read by parsers of our own, written through h5py.

Read the files in this order: `window.py` reads the file for all others; `superblock.py`,
`header.py`, `messages.py` and `types.py` parse the records, and `checksum.py` checks them;
`trees.py`, `arrays.py`, `heaps.py`, `groups.py`, `attributes.py` and `chunks.py` parse indexes and
heaps. `datasets.py` finds the type and the place of a dataset; `data.py` and `filters.py` decode
it. `projecting.py` walks the groups. `exporting.py` writes, and alone imports h5py.
"""

from ztensor.formats.hdf5.exporting import export
from ztensor.formats.hdf5.projecting import project

__all__ = ["export", "project"]
