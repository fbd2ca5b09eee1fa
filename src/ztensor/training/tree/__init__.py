"""Nested states to named leaves and a few columns of plain values, and back; no files.

A training state is a tree: dicts with integer keys, tuples, counters, and tensors here and there.
Here it becomes its *leaves*, which are saved as the objects of an ordinary file, and its *shape*,
bytes that say what lies around them. Nothing is pickled, and no class is imported by its name.

Read `columns.py` (the bytes of a shape), `kinds.py` (what is kept of each exact type, one table),
`encode.py` and `decode.py` (both loops with a stack: depth costs nothing), `adapters.py` (with the
values of a framework, or to be encoded again),
`names.py` (what leaves are called, and where a value is), `record.py` (classes that a file only
names), `fitting.py` (a loaded tree laid over a live one), `flattening.py` (its values by path),
`separating.py` (leaves that a file stores once and the tree does not share), `stored.py` (the
attribute of a file that is a tree). The module `ztensor.training.states` saves and loads files with
these, and `ztensor.training.told` says what is in one. Other packages take what they need from
here: nothing is imported from these files.

A framework's types are told by its adapter: see `TreeAdapter` in `adapters.py`.
"""

from ztensor.training.tree.adapters import decode_as, decode_kept
from ztensor.training.tree.decode import decode
from ztensor.training.tree.encode import Encoded, encode
from ztensor.training.tree.fitting import fit
from ztensor.training.tree.kinds import Leaf
from ztensor.training.tree.names import unique
from ztensor.training.tree.record import Record
from ztensor.training.tree.stored import tells_tree

__all__ = [
    "Encoded",
    "Leaf",
    "Record",
    "decode",
    "decode_as",
    "decode_kept",
    "encode",
    "fit",
    "tells_tree",
    "unique",
]
