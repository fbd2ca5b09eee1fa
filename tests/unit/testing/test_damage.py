from __future__ import annotations

from random import Random

from ztensor.testing.damage import KINDS, damaged, random_damage

DATA = bytes(range(16))


def test_every_kind_is_drawn_and_fits() -> None:
    random = Random(1)
    drawn = [random_damage(random, 16) for _ in range(500)]
    assert {damage.kind for damage in drawn} == set(KINDS)
    assert len({damaged(DATA, [damage]) for damage in drawn}) > 200
