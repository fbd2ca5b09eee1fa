"""The content of a file, in any version: frozen values without bytes and without I/O.

Read `dtype.py` (storage and logical types), `manifest.py` (component, object, manifest), then
`objects.py` (objects that are built on first access).
Nothing here knows CBOR or a version number's consequences.
"""
