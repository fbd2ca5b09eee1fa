"""Models in several files: a set of them read as one mapping, and a dict written as such a set.

`naming.py` has the names of shards, `index.py` what an index says, `finding.py` which files a
caller means, in a folder on disk or behind a URL, too, `objects.py` the objects in them,
`verifying.py` the check of all bytes, and `saving.py` which dict becomes a set, and how that is put
in place of an earlier one. The index is the one the Hugging Face hub has: `weight_map` says
in which file every object is, and `metadata` holds what else there is to say.
"""
