"""Models in several files: a set of them read as one mapping, and a dict written as such a set.

`naming.py` has the names and the sizes of shards, `index.py` what an index says, `choosing.py`
which files of a folder, on disk or behind a URL, are its model, `finding.py` which files a caller
means, `objects.py` the objects in them, `verifying.py` the check of all bytes, `earlier.py` what an
earlier save left, and `saving.py` how a set is put in place. The index
is the one the Hugging Face hub has: `weight_map` says in which file every object is, and
`metadata` holds what else there is to say.
"""
