"""Sources and sinks of bytes; this package knows offsets, not formats.

Read `base.py` (the contracts), `local.py` (a file on disk), `memory.py`, `joined.py` (several files
as one source), `beneath.py` (files that another file or a folder names), `paths.py`, `stores.py`
(the source for a path, a URL or an object). Then the sinks: `stream.py` (the write buffer),
`sink.py` (a file that is put in place atomically), `targets.py` (checks of a target), `rights.py`,
`reserving.py` (disk space), `appending.py` (a file changed in place, in one of two orders of
writes), `locking.py` and `removal.py`.
For URLs: `urls.py` (a URL with the options of its store; the table of stores is in `stores.py`,
the stores are in `ztensor.remote`), and `ahead.py` (prefetch for sources with slow requests).
No other package calls `open` or `mmap`.
"""
