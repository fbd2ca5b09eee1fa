"""CBOR (RFC 8949, before that 7049): reads any well-formed item within caps, writes one form.

Nothing is interpreted: a tag stays a `Tag`, on a big integer too. A map with text keys is a
`dict`; one with any other key is a `Pairs`, since the keys 1, 1.0 and true would be one key of a
`dict`, and numbers a file chooses can be made to collide there.

Neither direction recurses: no nesting, and no caller deep in its own stack, exhausts Python's.

`values.py` has what Python has no type for, `encoding.py` writes one form, `form.py` tells it from
others, and `decoding.py` reads any of them, or that one alone.
"""

from ztensor.wire.cbor.decoding import (
    array_head,
    decode,
    decode_item,
    duplicate_key,
    map_head,
    tag_head,
    too_deep,
    trailing,
    truncated,
)
from ztensor.wire.cbor.encoding import (
    ENCODE_DEPTH,
    UINT_SIZES,
    array_of,
    encode,
    encode_text,
    encode_uint,
    head,
    map_of,
    map_parts,
)
from ztensor.wire.cbor.values import (
    UINT64_MAX,
    UNDEFINED,
    Pairs,
    Simple,
    Tag,
    Undefined,
    with_dicts,
)

__all__ = [
    "ENCODE_DEPTH",
    "UINT64_MAX",
    "UINT_SIZES",
    "UNDEFINED",
    "Pairs",
    "Simple",
    "Tag",
    "Undefined",
    "array_head",
    "array_of",
    "decode",
    "decode_item",
    "duplicate_key",
    "encode",
    "encode_text",
    "encode_uint",
    "head",
    "map_head",
    "map_of",
    "map_parts",
    "tag_head",
    "too_deep",
    "trailing",
    "truncated",
    "with_dicts",
]
