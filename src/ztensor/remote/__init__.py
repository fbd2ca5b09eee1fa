"""Objects of stores, HTTP servers and model hubs: read by ranges, written atomically.

The core reaches this package through `places.py`, which is loaded for the first URL. Read the files
in this order: `urls.py` (the store that a URL means), `fsspec_options.py` (options by the names of
fsspec), `stores.py` (stores kept for reuse), `identity.py` (the object and version that a URL
names), `hub.py` (files and folders of a model hub), `source.py` (reading; `pieces.py` plans the
requests), `cache.py` (objects kept on disk), `upload.py` (writing), `prefixes.py` (lists of a
store, patterns over its keys), `failures.py` (errors of stores) and `requested.py` (a count of
requests).
"""
