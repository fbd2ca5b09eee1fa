"""Texts of a file in which few characters take more than a byte: all then take two or four."""

from __future__ import annotations

from pathlib import Path

import pytest

import ztensor
from tests.attacks.peaks import peak_of
from tests.attacks.shapes import load, write
from ztensor.limits import Limits

LENGTH = 128 << 10
# Held once: buffers of files that are read in pages, tables of words, steps of columns.
ONCE = 144 << 10
WIDE = [
    (kind, name)
    for kind, shapes in load().items()
    for name in shapes
    if "wide" in name and "numbers" not in name
]


@pytest.mark.parametrize(("kind", "name"), WIDE, ids=map(" ".join, WIDE))
def test_a_wide_text_stays_in_the_budget(kind: str, name: str, tmp_path: Path) -> None:
    """Attack: one wide character makes a text four bytes for each of the file, six for a moment."""
    if kind in ("hdf5", "keras"):
        pytest.importorskip("h5py")
    path, length = write(kind, load()[kind][name], LENGTH, tmp_path)

    def listed(limits: Limits) -> None:
        with ztensor.open(path, limits=limits) as reader:
            for one in reader:
                reader.metadata(one)

    peak_of(lambda: listed(Limits()))  # lazy imports are not the file's cost
    # The budget ends at each of the steps in which such a text is read.
    for quarters in range(0, 48, 3):
        limits = Limits(cost_floor=quarters * length // 4)
        peak, _ = peak_of(lambda limits=limits: listed(limits))  # type: ignore[misc]
        assert peak <= limits.cost_floor + limits.cost_factor * length + ONCE
