"""Objects of stores, HTTP servers and model hubs, read by ranges and written whole.

`ztensor.io.source.stores` names `places.py` here, which is loaded for the first URL: it has all
that the core asks of them. Read `urls.py` (the store that a URL means), `stores.py` (stores that
are kept), `identity.py` (which object a URL names, in which version), `hub.py` (a model hub),
`source.py` (reading, by the requests of `pieces.py`), `cache.py` (files kept on disk),
`upload.py` (writing), `prefixes.py` (patterns over keys), `hub_tree.py` (what is in a folder of a
hub), `failures.py` (what stores refuse) and `requested.py` (how many requests were made).
"""
