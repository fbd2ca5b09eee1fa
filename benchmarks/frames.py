"""What the size of zstd frames costs and saves: the table of `docs/guides/slices.md`.

    python benchmarks/frames.py [MiB of each tensor, by default 64]

One process, bytes in memory, digests written and checked, the best of seven rounds. Seconds are
those of processors, so work that threads share counts as if one did it. `one by one` takes random
rows, each with an index of its own as a data loader does, `gathered` takes 1,000 with one.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

import ztensor
from ztensor.numpy import load, save

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, MIB = 512, 1 << 20
ROUNDS = 7
SIZES = (16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)


def tensors(nbytes: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return tensors as models have them, of about so many bytes each."""
    rng = np.random.default_rng(0)

    def normal(width: int) -> np.ndarray[Any, Any]:
        rows = nbytes // WIDTH // width
        return rng.standard_normal((rows, WIDTH), np.float32) * np.float32(0.02)

    weight = normal(4)
    return {
        "float32 weights": weight,
        "bfloat16 weights": normal(2).astype(ml_dtypes.bfloat16),
        "int8 weights": np.clip(np.rint(normal(1) * 2000), -128, 127).astype(np.int8),
        "float32, 90 % zeros": np.where(rng.random(weight.shape) < 0.1, weight, np.float32(0)),
        "int32 tokens": rng.zipf(1.3, weight.shape).clip(0, 50_000).astype(np.int32),
    }


def seconds(act: Callable[[], object]) -> float:
    """Return how long a call took, in time of processors: others may be busy with them, too."""
    start = time.process_time()
    act()
    return time.process_time() - start


class Measured:
    """One tensor in frames of one size, measured again and again; the best counts.

    Args:
        array: the tensor.
        size: bytes of a frame; None stores raw.
    """

    def __init__(self, array: np.ndarray[Any, Any], size: int | None) -> None:
        self.array, self.size = array, size
        self.nbytes = 0
        self.times: dict[str, float] = {}

    def measure(self) -> None:
        """Do everything once."""
        array, size = self.array, self.size
        chunk = None if size is None else size // (array.nbytes // len(array))
        how: dict[str, Any] = {"compression": size is not None, "chunk_rows": chunk}
        saved: list[bytes] = []
        self._keep("save", seconds(lambda: saved.append(save({"w": array}, **how))))
        (data,) = saved
        self.nbytes = len(data)
        self._keep("load", seconds(lambda: load(data)))
        places = np.random.default_rng(1).integers(0, len(array), 1000)
        with ztensor.open(data) as reader:
            part = reader.get_slice("w")
            part[0]
            few = places[: 1000 if size is None or size < MIB else 100].tolist()
            self._keep("one", seconds(lambda: [part[place] for place in few]) / len(few))
            self._keep("many", seconds(lambda: part[places]) / len(places))
            if part[places].tobytes() != array[places].tobytes():
                raise SystemExit("the rows are wrong")

    def _keep(self, what: str, found: float) -> None:
        self.times[what] = min(self.times.get(what, found), found)

    def cells(self) -> list[str]:
        """Return the cells of its row."""
        times, nbytes = self.times, self.array.nbytes
        return [
            f"{self.nbytes / nbytes:.4f}",
            *(f"{nbytes / times[what] / 1e6:,.0f}" for what in ("save", "load")),
            *(f"{1 / times[what]:,.0f}" for what in ("one", "many")),
        ]


def main(nbytes: int) -> None:
    """Print one table."""
    head = ("tensor", "frame", "size", "save MB/s", "load MB/s", "rows/s, one by one", "gathered")
    print("| " + " | ".join(head) + " |")
    print("| " + " | ".join("---" for _ in head) + " |")
    for name, array in tensors(nbytes).items():
        rows = [Measured(array, size) for size in (None, *SIZES)]
        for _ in range(ROUNDS):  # in turn: a busy moment of the machine hits all alike
            for row in rows:
                row.measure()
        for row in rows:
            frame = "raw" if row.size is None else f"{row.size >> 10} KiB"
            print("| " + " | ".join((name, frame, *row.cells())) + " |", flush=True)


if __name__ == "__main__":
    main(int(float(sys.argv[1] if len(sys.argv) > 1 else 64) * MIB))
