"""CBOR: bytes to plain Python values and back. Nothing here knows tensors or versions.

Read `deterministic.py` (the value types that Python lacks, and the writer), `cbor.py` (the reader
of any well-formed item), then `record.py` (a schema for the fields of one decoded map, with
problems instead of exceptions). Nothing here does I/O, or allocates for a declared count before it
is compared with the remaining bytes.
"""
