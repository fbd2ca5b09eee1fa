from __future__ import annotations

from random import Random

import pytest

from ztensor.testing.damage import KINDS, Damage, damaged, random_damage

DATA = bytes(range(16))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (Damage("flip", 2, value=4), DATA[:2] + b"\x12" + DATA[3:]),
        (Damage("set", 17, value=0x1FF), DATA[:1] + b"\xff" + DATA[2:]),
        (Damage("number", 6, 2, 258), DATA[:4] + b"\2\1\0\0" + DATA[8:]),
        (Damage("cut", 5), DATA[:5]),
        (Damage("behead", 5), DATA[5:]),
        (Damage("drop", 5, 3), DATA[:5] + DATA[8:]),
        (Damage("zero", 14, 9), DATA[:14] + b"\0\0"),
        (Damage("fill", 0, 2, 7), b"\7\7" + DATA[2:]),
        (Damage("insert", 1, 2, 9), DATA[:1] + b"\t\t" + DATA[1:]),
        (Damage("repeat", 4, 2), DATA[:6] + DATA[4:]),
        (Damage("splice", 4, 2, 8), DATA[:8] + DATA[4:6] + DATA[10:]),
        (Damage("drop", 3, 16), DATA[:3] + DATA[4:]),  # a length of 0 is taken as 1
    ],
    ids=lambda value: value.kind if isinstance(value, Damage) else "",
)
def test_each_kind(damage: Damage, expected: bytes) -> None:
    assert damaged(DATA, [damage]) == expected


def test_every_kind_is_drawn_and_fits() -> None:
    random = Random(1)
    drawn = [random_damage(random, 16) for _ in range(500)]
    assert {damage.kind for damage in drawn} == set(KINDS)
    assert len({damaged(DATA, [damage]) for damage in drawn}) > 200
