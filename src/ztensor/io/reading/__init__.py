"""An opened source to objects, arrays and slices of them.

Read `manifests.py` (the checked
manifest of a file), `component.py` (one component; the order of all checks), `places.py`
(where plain tensors are), `values.py` (objects as values) and `file.py` (the objects of a file),
`bulk.py` (many small plain ones at once), then `loading.py` (every object at once, or one into
memory of the caller) and `reader.py` (what users call). `portable.py` has objects as 1.2 does.
`selection.py`, `parts.py`, `stored_array.py` and `slices.py` read parts of an object, in that order
from an index to arrays. `verify.py` finds every problem, `walking.py` those of one object,
`overlaps.py` sees to it that bytes several objects share are gone through or copied once,
`recovery.py` finds the last good state of a torn file, `shards.py` joins the files of 2.x. What a
user passes to `open` is not known here.
"""
