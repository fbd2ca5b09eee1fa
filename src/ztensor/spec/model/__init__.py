"""What a file means, in any version: frozen values without bytes and without I/O.

Read `dtype.py` (storage and logical types), `shape.py`, `manifest.py` (component, object,
manifest), then `rules.py` (the rules every version shares, and the error of all that are broken).
Nothing here knows CBOR, NumPy or a version number's consequences.
"""
