"""CBOR (RFC 8949, before that 7049): reads any well-formed item within caps, writes one form.

Nothing is interpreted: a tag stays a `Tag`, on a big integer too. A map with text keys is a
`dict`; one with any other key is a `Pairs`, since the keys 1, 1.0 and true would be one key of a
`dict`, and numbers a file chooses can be made to collide there.

`values.py` has what Python has no type for, `encoding.py` writes one form, and `decoding.py` reads
any form, or that one alone.
"""

from ztensor.spec.wire.cbor.decoding import (
    ARRAY,
    MAP,
    TAG,
    Decoder,
    decode,
    duplicate_key,
    unsorted,
)
from ztensor.spec.wire.cbor.encoding import (
    array_of,
    encode,
    encode_text,
    encode_uint,
    head,
    key_order,
    map_of,
    map_parts,
)
from ztensor.spec.wire.cbor.values import (
    UINT64_MAX,
    UNDEFINED,
    Pairs,
    Simple,
    Tag,
    with_dicts,
)

__all__ = [
    "ARRAY",
    "MAP",
    "TAG",
    "UINT64_MAX",
    "UNDEFINED",
    "Decoder",
    "Pairs",
    "Simple",
    "Tag",
    "array_of",
    "decode",
    "duplicate_key",
    "encode",
    "encode_text",
    "encode_uint",
    "head",
    "key_order",
    "map_of",
    "map_parts",
    "unsorted",
    "with_dicts",
]
