"""Where bytes come from and go to; knows offsets, not formats.

Read `base.py` (the contract), `descriptor.py`, `memory.py`, `local.py`, `joined.py` (several files
as one), `table.py` (which of them a path, a URL or an object gives), then `sink.py` and `stream.py`
for the way out, with `gathering.py` (how bytes are written), `flushing.py` (what is on disk) and
`targets.py` (what may be written over). `appending.py` changes a file in place, in the orders of
`guards.py` and under the lock of `locking.py`; `rights.py`, `removal.py` and `caching.py` (the page
cache) stand beside both ways.
For stores and servers, which `ztensor.remote` reaches: `reference.py` (a URL with what opens its
store), `pieces.py` (which requests a read takes), `identity.py` (which object a URL names, in which
version), `ahead.py` (long reads for a file that is read in order), `at_once.py` (many parts by few
requests) and `folders.py` (what is in a folder).
`open` and `mmap` live here and nowhere else in the library.
"""
