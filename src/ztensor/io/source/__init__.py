"""Where bytes come from and go to; knows offsets, not formats.

Read `base.py` (the contract), `descriptor.py`, `memory.py`, `local.py`, `joined.py` (several files
as one), `table.py` (which of them a path, a URL or an object gives), then `sink.py` and `stream.py`
for the way out, with `gathering.py` (how bytes are written), `flushing.py` (what is on disk) and
`targets.py` (what may be written over). `appending.py` changes a file in place, in the orders of
`guards.py` and under the lock of `locking.py`; `rights.py`, `removal.py` and `caching.py` (the page
cache) stand beside both ways.
For URLs: `reference.py` (one with what opens its store), `schemes.py` (the places they lead to,
which `ztensor.remote` has), `folders.py` (what is in a folder there), `pieces.py` (which requests
a read takes), `ahead.py` (long reads for a file that is read in order) and `at_once.py` (many parts
by few requests).
`open` and `mmap` live here and nowhere else in the library.
"""
