"""Bytes to plain Python values and back; has never heard of tensors.

Read `deterministic.py` (what CBOR has and Python has not, and the one form that is written),
`cbor.py` (any well-formed item in), then `record.py` (the fields of one decoded map by a table,
with problems in place of exceptions). Nothing here does I/O, knows a version, or trusts a count
before it is compared with the bytes that are there.
"""
