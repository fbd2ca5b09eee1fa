"""Files of ours on disk: opened, read, written and edited, whole or not at all.

Read `source/` (bytes at an offset; bytes to a file), `reading/` (an opened source to arrays),
`writing/` (arrays to a sink), `edit/` (a finished file to its next state) and `shards/` (models in
several files). `contents.py` says what a path holds, `formats.py` finds what reads other formats,
`opening.py` makes a reader of it. `tensor/`, `metadata.py`, `protocols.py` and `frameworks.py` have
what users hold.
"""
