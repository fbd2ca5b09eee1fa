"""Where bytes come from and go to; knows offsets, not formats.

Read `base.py` (the contract), `descriptor.py`, `memory.py`, `local.py`, `joined.py` (several files
as one), `table.py` (which of them a path, a URL or an object gives), then `sink.py` and `stream.py`
for the way out, with `gathering.py` (how bytes are written), `flushing.py` (what is on disk) and
`targets.py` (what may be written over). `appending.py` changes a file in place, in the orders of
`guards.py` and under the lock of `locking.py`; `rights.py`, `removal.py` and `caching.py` (the page
cache) stand beside both ways.
Of stores and HTTP servers: `reference.py` (a URL with the options of its store), `urls.py` (the
store it means), `stores.py` (those that are kept), `hub.py` (the same of a model hub), `remote.py`
(reading), `pieces.py` (which requests that takes), `cache.py` (what is kept of it on disk),
`identity.py` (which object a URL names, in which version), `ahead.py` (long reads for a file that
is read in order), `at_once.py` (many parts by few requests), `upload.py` (writing), `prefixes.py`
(patterns over keys), `folders.py` and `hub_tree.py` (what is in a folder) and `failures.py` (what
they refuse); `requested.py` counts requests.
`open` and `mmap` live here and nowhere else in the library.
"""
