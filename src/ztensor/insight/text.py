"""Text and numbers of files for people: every character is seen, and no size needs counting."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ztensor import TensorMetadata

_GGUF = "gguf."  # before the types of GGUF in the names of formats
_NAME_CHARACTERS = 500

# Printable by Unicode's word, and yet nothing is seen: fillers, joiners, variation selectors. The
# control, format, surrogate, private and unassigned characters, C0, C1, bidi and zero-width ones
# among them, are not printable to begin with; nor is any space but U+0020.
_INVISIBLE = frozenset(
    (
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800),
        *(0x3164, 0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    )
)
# Scripts need up to about three marks on a letter; towers of them climb over other lines.
_MARKS = 4


def visible(text: str) -> str:
    r"""Return text with everything that is not plainly seen as `\x..`, `\u....` or `\U........`.

    Everything printed goes through here: names, attributes, type words, file names and messages.

    >>> print(visible("a\x1b[31m\n\u202eb"))
    a\x1b[31m\x0a\u202eb
    """
    if text.isascii():
        return text if text.isprintable() else "".join(map(_visible_character, text))
    shown = []
    marks = _MARKS  # as if many came before: a mark in front would sit on what is not ours
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
    """Return a name as `visible` does; a long one is cut in the middle, and tells its length.

    Args:
        name: whatever it is.
        most: characters of it that are shown.
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
    if nbytes >= 1 << 64:  # no file has them: a shape claims so
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
    """Return a shape for people; of more than eight dimensions the first six."""
    if len(shape) > 8:
        return f"[{', '.join(map(str, shape[:6]))}, ... {len(shape)} dimensions]"
    return f"[{', '.join(map(str, shape))}]"


def element_text(found: TensorMetadata) -> str:
    """Return what the elements of an object are: of a quantized one its codes, not their storage.

    It is `q5_0` of GGUF's, `int4 g64` of codes of four bits in groups of 64, else the type.
    """
    if found.format.startswith(_GGUF):
        return found.format.removeprefix(_GGUF)
    bits, group = found.attributes.get("bits"), found.attributes.get("group_size")
    if "quant" in found.format and isinstance(bits, int):
        element = found.attributes.get("element", "integer")
        name = f"int{bits}" if element == "integer" else visible(str(element))[:40]
        return f"{name} g{group}" if isinstance(group, int) and group > 0 else name
    return found.type or found.dtype or "unknown"


def short_repr(kind: str, facts: Iterable[str], ways: str = "") -> str:
    """Return what a result is and holds, and how to see all of it.

    Args:
        kind: the public name of its class, without `ztensor.`.
        facts: what it holds, as phrases.
        ways: expressions that give all.
    """
    shown = f"<ztensor.{kind}: {', '.join(facts)}"
    return f"{shown}; all: {ways}>" if ways else f"{shown}>"
