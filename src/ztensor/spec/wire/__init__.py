"""Bytes to plain Python values and back; has never heard of tensors.

Read `cbor/` (any well-formed item in, one deterministic form out), then `record.py` (the fields of
one decoded map by a table, with problems in place of exceptions). Nothing here does I/O, knows a
version, or trusts a count before it is compared with the bytes that are there.
"""
