"""Damage small HDF5 files at random, as a process of its own: libhdf5 may crash.

Run as `python hdf5_damage.py FIRST COUNT FILE...`; prints each seed before it is tried.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import ztensor
from ztensor.testing.damage import damaged, random_damage
from ztensor.testing.promise import exercise


def main(first: int, count: int, paths: list[str]) -> None:
    good = [Path(path).read_bytes() for path in paths]
    limits = ztensor.Limits(decoded_bytes=1 << 20)
    opened = 0
    for seed in range(first, first + count):
        print(seed, flush=True)  # noqa: T201  # the last one is what a crash is about
        random = Random(seed)
        data = good[seed % len(good)]
        changes = [random_damage(random, len(data)) for _ in range(1 + seed % 3)]
        opened += exercise(damaged(data, changes), limits=limits).opened
    print("opened", opened)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
