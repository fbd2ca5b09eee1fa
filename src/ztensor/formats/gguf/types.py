"""GGUF's numbers of the types of metadata and of tensors, and its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import ManifestError, Reason
from ztensor.quantization.gguf_blocks import BLOCK_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPES = "GGUF.types"
MAGIC = b"GGUF"
HEADER = "4sIQQ"  # magic, version, how many tensors, how many keys
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32
MOST_RANK = 4
SECTION = "GGUF"
SWAPPED = "gguf.big_endian"

# Types of metadata: GGUF's number, and the word in `GGUF.types`.
_STR, ARRAY = 8, 9
WORDS: Mapping[int, str] = {
    0: "u8",
    1: "i8",
    2: "u16",
    3: "i16",
    4: "u32",
    5: "i32",
    6: "f32",
    7: "bool",
    _STR: "str",
    10: "u64",
    11: "i64",
    12: "f64",
}
NUMBERS = {word: number for number, word in WORDS.items()}
ARRAYS = {word: f"[{word}]" for word in NUMBERS}
DTYPES = {"bool": "u1"} | {
    word: f"{word[0]}{int(word[1:]) // 8}" for word in NUMBERS if word not in ("bool", "str")
}

# Types of tensors with elements of a storage type; all others consist of blocks.
PLAIN = {
    0: "f32",
    1: "f16",
    24: "i8",
    25: "i16",
    26: "i32",
    27: "i64",
    28: "f64",
    30: "bf16",
}
PLAIN_NUMBERS = {dtype: number for number, dtype in PLAIN.items()}
BLOCKS = {block_type.number: block_type for block_type in BLOCK_TYPES}
LAYOUTS = {block_type.layout: block_type for block_type in BLOCK_TYPES}


def is_alignment(value: object) -> bool:
    """Return whether a value is a power of two."""
    return type(value) is int and value > 0 and value & (value - 1) == 0


def broken(message: str, **details: Any) -> ManifestError:
    """Return the error for a broken rule of the format."""
    return ManifestError(message, **{"reason": Reason.FIELD_VALUE, "section": SECTION, **details})
