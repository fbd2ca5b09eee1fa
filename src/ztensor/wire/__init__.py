"""Bytes to plain Python values and back; has never heard of tensors.

Read `cbor/` (any well-formed item in, one deterministic form out), then `record.py` (typed
fields of one decoded map, with problems in place of exceptions). `columns.py` writes many items at
a time. Nothing here does I/O, knows a version, or trusts a count before it is compared with the
bytes that are there.
"""
