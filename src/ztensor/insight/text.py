"""Names, sizes and shapes as text for people, with all invisible characters escaped."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ztensor import TensorMetadata

_GGUF = "gguf."  # prefix of GGUF's types in the names of layouts
_NAME_CHARACTERS = 500

# Printable by Unicode's definition, but invisible: fillers, joiners, variation selectors. Control,
# format, surrogate, private and unassigned characters, with C0, C1, bidi and zero-width ones, are
# not printable, and of spaces only U+0020 is.
_INVISIBLE = frozenset(
    (
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800),
        *(0x3164, 0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    )
)
# Scripts need about three marks on a letter; more of them would cover other lines.
_MARKS = 4


def visible(text: str) -> str:
    r"""Return text with every invisible character as `\x..`, `\u....` or `\U........`.

    Everything printed is escaped here: names, attributes, types, file names and messages.

    >>> print(visible("a\x1b[31m\n\u202eb"))
    a\x1b[31m\x0a\u202eb
    """
    if text.isascii():
        return text if text.isprintable() else "".join(map(_visible_character, text))
    shown = []
    marks = _MARKS  # a leading mark is escaped: it would sit on other text
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        escape = marks > _MARKS or ord(character) in _INVISIBLE
        shown.append(_escape(character) if escape else _visible_character(character))
    return "".join(shown)


def _visible_character(character: str) -> str:
    return character if character.isprintable() else _escape(character)


def _escape(character: str) -> str:
    code = ord(character)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else (f"\\U{code:08x}")
    )


def shown_name(name: str, most: int = _NAME_CHARACTERS) -> str:
    """Return an escaped name; a long one is cut in the middle and its length added.

    Args:
        name: any text.
        most: the number of characters to show.
    """
    if len(name) <= most:
        return visible(name)
    half = most // 2
    return f"{visible(name[:half])}...({len(name):,} characters)...{visible(name[-half:])}"


def size_text(nbytes: int) -> str:
    """Return a number of bytes for people, in powers of 1000 as disks and networks count.

    >>> size_text(999), size_text(77_194_752)
    ('999 B', '77.2 MB')
    """
    if nbytes >= 1 << 64:  # only a wrong shape claims that many
        return "over 18 EB"
    if nbytes < 1000:
        return f"{nbytes} B"
    amount = nbytes / 1000
    units = iter(("kB", "MB", "GB", "TB", "PB", "EB"))
    unit = next(units)
    while amount >= 999.95:  # would be rounded to 1000.0
        amount, unit = amount / 1000, next(units)
    return f"{amount:.1f} {unit}"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as text; the first six of more than eight dimensions."""
    if len(shape) > 8:
        return f"[{', '.join(map(str, shape[:6]))}, ... {len(shape)} dimensions]"
    return f"[{', '.join(map(str, shape))}]"


def element_text(metadata: TensorMetadata) -> str:
    """Return the element type; for a quantized object the type of its codes, not of their storage.

    Examples: `q5_0` for blocks of GGUF, `int4 g64` for 4-bit codes in groups of 64, else the type.
    """
    if metadata.format.startswith(_GGUF):
        return metadata.format.removeprefix(_GGUF)
    bits, group = metadata.attributes.get("bits"), metadata.attributes.get("group_size")
    if "quant" in metadata.format and isinstance(bits, int):
        element = metadata.attributes.get("element", "integer")
        name = f"int{bits}" if element == "integer" else visible(str(element))[:40]
        return f"{name} g{group}" if isinstance(group, int) and group > 0 else name
    return metadata.type or metadata.dtype or "unknown"


def short_repr(kind: str, facts: Iterable[str], ways: str = "") -> str:
    """Return the short `repr` of a result: its class, facts, and expressions for the rest.

    Args:
        kind: the public name of its class, without `ztensor.`.
        facts: phrases on its contents.
        ways: expressions that return everything.
    """
    shown = f"<ztensor.{kind}: {', '.join(facts)}"
    return f"{shown}; all: {ways}>" if ways else f"{shown}>"
