"""Print the table of `ztensor.quantization.gguf_grids`.

Run `python -m tests.corpus.foreign.make_gguf_grids`.

Which points a grid has is taken from the package `gguf` (0.19): it has no other source.
"""

from __future__ import annotations

import base64
import sys
import textwrap
import zlib
from typing import Any

import numpy as np

GRIDS = ("iq1_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")


def points_of(name: str) -> np.ndarray[Any, Any]:
    """Return the package's points, (points, coordinates)."""
    import gguf as package

    kind = getattr(package.quants, name.upper())
    kind.init_grid()
    found: np.ndarray[Any, Any] = kind.grid.reshape(kind.grid_shape)
    return found


def text_of(points: np.ndarray[Any, Any]) -> str:
    """Return which points there are, as `Grid.members` has it."""
    values, digits = np.unique(points, return_inverse=True)
    digits = digits.reshape(points.shape)
    numbers = (digits * len(values) ** np.arange(points.shape[1])).sum(axis=1)
    if (np.diff(numbers) <= 0).any():
        raise SystemExit("the points do not rise: a set does not say their order")
    bits = np.zeros(len(values) ** points.shape[1], bool)
    bits[numbers] = True
    return base64.b85encode(zlib.compress(np.packbits(bits).tobytes(), 9)).decode()


def main() -> None:
    for name in GRIDS:
        sys.stdout.write(f"{name}\n")
        for line in textwrap.wrap(text_of(points_of(name)), 88):
            sys.stdout.write(f'        b"{line}"\n')


if __name__ == "__main__":
    main()
