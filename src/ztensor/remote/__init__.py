"""Objects of stores, HTTP servers and model hubs, read by ranges and written whole.

`ztensor.io.source` has what files on disk need, and a URL with the options of its store
(`ztensor.Remote`); its table of schemes names `source.py` here, which is loaded for the first URL.
Read `urls.py` (the store that a URL means), `stores.py` (stores that are kept), `hub.py` (a model
hub), `source.py` (reading), `cache.py` (what is kept on disk), `upload.py` (writing), `prefixes.py`
(patterns over keys), `hub_tree.py` (what is in a folder of a hub), `whole_folder.py` (a folder
that is written as one), `shards.py` (a set of files in a store), `failures.py` (what stores refuse)
and `requested.py` (how many requests were made).
"""
