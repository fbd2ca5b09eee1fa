"""The format's words for types of elements, and its limits."""

from __future__ import annotations

from collections.abc import Mapping

from ztensor.ext import Component

METADATA = "__metadata__"
MOST_HEADER = 100_000_000  # the format's own cap, in bytes
MOST = (1 << 64) - 1
_NONE_HAS = 1 << 64  # bytes: no tensor is as long, as offsets have 64 bits

# Bits of an element, storage type, logical type. Files are sorted by this order of types.
TYPES: Mapping[str, tuple[int, str, str | None]] = {
    "BOOL": (8, "bool", None),
    "F4": (4, "u8", "f4_e2m1"),
    "F6_E2M3": (6, "u8", "f6_e2m3"),
    "F6_E3M2": (6, "u8", "f6_e3m2"),
    "U8": (8, "u8", None),
    "I8": (8, "i8", None),
    "F8_E5M2": (8, "u8", "f8_e5m2"),
    "F8_E4M3": (8, "u8", "f8_e4m3fn"),
    "F8_E8M0": (8, "u8", "f8_e8m0"),
    "F8_E4M3FNUZ": (8, "u8", "f8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, "u8", "f8_e5m2fnuz"),
    "I16": (16, "i16", None),
    "U16": (16, "u16", None),
    "F16": (16, "f16", None),
    "BF16": (16, "bf16", None),
    "I32": (32, "i32", None),
    "U32": (32, "u32", None),
    "F32": (32, "f32", None),
    "C64": (64, "f32", "complex64"),
    "F64": (64, "f64", None),
    "I64": (64, "i64", None),
    "U64": (64, "u64", None),
}
WORDS = {(dtype, type): word for word, (_, dtype, type) in TYPES.items()}
RANKS = {word: rank for rank, word in enumerate(TYPES)}


def word_of(component: Component) -> str:
    """Return the format's word for the type of a tensor; an unknown word as it was read."""
    return WORDS.get((component.dtype, component.type), component.dtype)


def width_of(word: str) -> int:
    """Return the bytes of an element: tensors are best aligned to them. At least 1."""
    return max(TYPES[word][0] // 8, 1) if word in TYPES else 1


def length_of(word: str, shape: tuple[int, ...]) -> int | None:
    """Return the length of a tensor in bytes, or None for an unknown type."""
    count = 1
    for dimension in shape:
        count *= dimension
        if count > MOST:
            return _NONE_HAS  # even if a dimension of 0 follows, as in the format's library
    if word not in TYPES:
        return None
    whole, rest = divmod(count * TYPES[word][0], 8)
    return _NONE_HAS if rest else whole
