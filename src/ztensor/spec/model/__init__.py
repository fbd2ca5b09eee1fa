"""What a file means, in any version: frozen values without bytes and without I/O.

Read `dtype.py` (storage and logical types), `shape.py`, `manifest.py` (component, object,
manifest), `problem.py` (the error of all problems), then `rules.py` (the rules every version
shares).
Nothing here knows CBOR, NumPy or a version number's consequences.
"""
