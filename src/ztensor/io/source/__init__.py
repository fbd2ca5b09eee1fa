"""Where bytes come from and go to; knows offsets, not formats.

Read `base.py` (the contract of a source and a sink), `local.py` (a file on disk), `memory.py`,
`joined.py` (several files as one), `beneath.py` (files that others lead to), `paths.py`,
`stores.py` (which of them a path, a URL or an object gives). Then the way out: `stream.py` (how
bytes are gathered), `sink.py` (a file that appears as a whole), `targets.py` (what may be written
over), `rights.py`, `reserving.py` (room on a disk), `appending.py` (a file changed in place, in one
of two orders of writes), `locking.py` and `removal.py`.
For URLs: `urls.py` (one with what opens its store; `stores.py` has the table of the places they
lead to, which `ztensor.remote` has), and `ahead.py` (long reads where each request
costs much).
`open` and `mmap` live here and nowhere else in the library.
"""
