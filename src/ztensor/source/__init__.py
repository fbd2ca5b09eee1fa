"""Where bytes come from and go to; knows offsets, not formats.

Read `base.py` (the contract), `memory.py`, `local.py`, then `sink.py` for the way out. `open` and
`mmap` live here and nowhere else in the library.
"""
