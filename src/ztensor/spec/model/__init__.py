"""What a file means, in any version: frozen values without bytes and without I/O.

Read `dtype.py` (storage and logical types), `manifest.py` (component, object, manifest),
`objects.py` (objects that are made when one is asked for), then `rules.py` (the rules every version
shares, and the error of all that are broken).
Nothing here knows CBOR or a version number's consequences.
"""
