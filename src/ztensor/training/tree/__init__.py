"""Encode nested states as named leaves and columns of plain values, and decode them; no files.

A training state is a tree: dicts with integer keys, tuples, counters, and tensors here and there.
It is split into its *leaves*, which are saved as the objects of an ordinary file, and its *shape*,
bytes that describe everything else. Nothing is pickled, and no class is imported by name.

Read `columns.py` (the bytes of a shape), `kinds.py` (a table of the types that are kept),
`encode.py` and `decode.py` (loops with a stack, so that depth costs nothing), `adapters.py` (values
of frameworks), `names.py` (names of leaves, places of values), `record.py` (classes that a file
only names), `fitting.py` (fit a loaded tree to a live one), `flattening.py` (values by path),
`separating.py` (leaves that share bytes in a file but not in the tree), `stored.py` (the attribute
of a file). `ztensor.training.states` saves and loads files with these, and
`ztensor.training.stored_tree` describes the tree of a file. Other packages import only from here.

`TreeAdapter` in `adapters.py` is the protocol for the types of a framework.
"""

from ztensor.training.tree.adapters import decode_as, decode_kept
from ztensor.training.tree.decode import decode
from ztensor.training.tree.encode import Encoded, encode
from ztensor.training.tree.fitting import fit
from ztensor.training.tree.kinds import Leaf
from ztensor.training.tree.names import unique
from ztensor.training.tree.record import Record
from ztensor.training.tree.stored import has_tree

__all__ = [
    "Encoded",
    "Leaf",
    "Record",
    "decode",
    "decode_as",
    "decode_kept",
    "encode",
    "fit",
    "has_tree",
    "unique",
]
