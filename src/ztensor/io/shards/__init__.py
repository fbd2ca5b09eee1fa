"""Models in several files: a set of them read as one mapping, and a dict written as such a set.

`naming.py` has the names and the sizes of shards, `index.py` what an index says, `finding.py` which
files a caller means, `folders.py` what is in a folder on disk or behind a URL, `choosing.py` which
of that is its model, `objects.py` the objects in them, `verifying.py` the check of all bytes,
`saving.py` how a set is put in place, `in_store.py` the same in a store. The index is the one the
Hugging Face hub has: `weight_map` tells the file of every object, and `metadata` holds what else
there is to say.
"""
