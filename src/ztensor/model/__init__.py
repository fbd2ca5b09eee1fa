"""What a file means, in any version: frozen values without bytes and without I/O.

Read `dtype.py` (storage and logical types), `shape.py`, `manifest.py` (component, object,
manifest), `problem.py` (a broken rule as a value), then `rules.py` (the rules every version
shares). `formats.py` is the table of formats that are not ours.
Nothing here knows CBOR, NumPy or a version number's consequences.
"""
