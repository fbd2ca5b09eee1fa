"""Damaged files of every format: a right result, or one error of ours."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import ztensor
from tests.extent import amount
from ztensor.testing.damage import damaged, random_damage
from ztensor.testing.promise import exercise

ACCEPT = Path(__file__).parents[2] / "corpus" / "foreign" / "accept"
LIMITS = ztensor.Limits(decoded_bytes=1 << 20)
FILES = {
    format_: [path for path in sorted((ACCEPT / format_).rglob("*")) if path.suffix in suffixes]
    for format_, suffixes in {
        "gguf": (".gguf",),
        "hdf5": (".h5",),
        "npz": (".npy", ".npz"),
        "onnx": (".onnx",),
        "pt": (".pt",),
        "safetensors": (".safetensors",),
    }.items()
}


@pytest.mark.parametrize("format_", FILES)
def test_damage_gives_a_right_result_or_an_error_of_ours(format_: str) -> None:
    """`exercise` raises on any other; some files must still open, or nothing was looked at."""
    assert FILES[format_]
    good = [path.read_bytes() for path in FILES[format_]]
    random, opened, tries = Random(format_), 0, amount(240, full=3000)
    for index in range(tries):
        data = good[index % len(good)]
        changes = [random_damage(random, len(data)) for _ in range(1 + index % 3)]
        opened += exercise(damaged(data, changes), limits=LIMITS).opened
    assert tries // 100 < opened < tries
