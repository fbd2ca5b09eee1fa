"""Sizes, counts and escaped text."""

from __future__ import annotations

import pytest

from ztensor.insight.text import shape_text, shown_name, size_text, visible
from ztensor.showing import counted


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (77_194_752, "77.2 MB"),
        (2**40, "1.1 TB"),
        (999_950_000_000, "1.0 TB"),
        ((1 << 64) - 1, "18.4 EB"),
        (1 << 64, "over 18 EB"),
        pytest.param(10**5000, "over 18 EB", id="5000 digits"),
    ],
)
def test_a_size_has_at_most_four_digits(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 objects"),
        (1, "1 object ('a')"),
        (3, "3 objects ('a', 'b', 'c')"),
        (4, "4 objects ('a', 'b', 'c', ...)"),
        (1234, "1,234 objects ('a', 'b', 'c', ...)"),
    ],
)
def test_the_first_three_names_are_shown(count: int, text: str) -> None:
    names = "abcd"[: min(count, 4)]
    assert counted(count, "object", names) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße, 世界 😀", "Grüße, 世界 😀"),
        ("h.0.attn.c_attn.weight", "h.0.attn.c_attn.weight"),
        ("Gewicht_ä 重み вес", "Gewicht_ä 重み вес"),
        ("e\u0301", "e\u0301"),
        ("\x00\x1b\x7f", r"\x00\x1b\x7f"),
        ("a\nb\rc\td", r"a\x0ab\x0dc\x09d"),
        ("\x80\x9b\xa0\xad", r"\x80\x9b\xa0\xad"),
        ("\u202a\u202e\u2066\u2069\u200e\u200f", r"\u202a\u202e\u2066\u2069\u200e\u200f"),
        ("\u200b\u200c\u200d\ufeff\u2028", r"\u200b\u200c\u200d\ufeff\u2028"),
        ("\ud800x\udc80", r"\ud800x\udc80"),
        ("\U000e0001", r"\U000e0001"),
        ("\u3164\ufe0f\u2800", r"\u3164\ufe0f\u2800"),
        ("\u0301a", r"\u0301a"),
        ("a" + "\u0301" * 6, "a" + "\u0301" * 4 + r"\u0301\u0301"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("\x85ü", r"\x85ü"),
        ("ü\u202e", r"ü\u202e"),
        ("ü" + "\u0301" * 5 + "a", "ü" + "\u0301" * 4 + r"\u0301a"),
        ("ü" + "\u0301\u20dd" * 3, "ü" + "\u0301\u20dd" * 2 + r"\u0301\u20dd"),
        ("ü\u0301" * 9, "ü\u0301" * 9),
    ],
)
def test_invisible_characters_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a" * 10, "a" * 10),
        ("a" * 6 + "b" * 5, "aaaaa...(11 characters)...bbbbb"),
    ],
)
def test_a_long_name_is_cut_in_its_midst(name: str, shown: str) -> None:
    assert shown_name(name, 10) == shown


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((), "[]"),
        ([50257, 768], "[50257, 768]"),
        (range(8), "[0, 1, 2, 3, 4, 5, 6, 7]"),
        (range(9), "[0, 1, 2, 3, 4, 5, ... 9 dimensions]"),
    ],
)
def test_a_shape_of_many_dimensions_is_cut(shape: range | tuple[()], text: str) -> None:
    assert shape_text(shape) == text


@pytest.mark.slow
def test_every_character_is_printable_once_visible() -> None:
    everything = visible("".join(map(chr, range(0x110000))))
    assert everything.isprintable()
    assert visible(everything) == everything
