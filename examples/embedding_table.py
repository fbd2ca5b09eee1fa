"""Write a table of 100 MB piece by piece, and serve rows of it: memory stays small throughout.

Then the same of a compressed copy, whose frames are of a few rows.

python examples/embedding_table.py [folder]
"""

import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

import ztensor

ROWS, WIDTH, PIECE = 200_000, 128, 5_000


def rows_of(first: int, count: int) -> np.ndarray:
    """Return rows of the table as training would; each piece can be made again."""
    return np.random.default_rng(first).standard_normal((count, WIDTH), np.float32)


def main(folder: Path) -> None:
    path = folder / "embeddings.zt"
    # Every array counts, and code that is loaded when first used: some 8 MB. Pages of a mapped file
    # do not, the system drops them.
    tracemalloc.start()
    with ztensor.Writer(path) as writer:
        with writer.stream("table", (ROWS, WIDTH), "float32") as sink:
            for first in range(0, ROWS, PIECE):
                sink.write(rows_of(first, PIECE))
        writer.add("norms", np.ones(ROWS, np.float32))
    size, peak = path.stat().st_size, tracemalloc.get_traced_memory()[1]
    print(f"{path.name}: {size:,} bytes written, {peak:,} bytes of memory at most")
    assert peak < size / 6

    tokens = np.random.default_rng(7).integers(0, ROWS, (100, 64))  # requests of 64 tokens
    tracemalloc.reset_peak()
    with ztensor.open(path) as reader:
        table = reader.get_slice("table")
        start = time.perf_counter()
        answers = [table[request] for request in tokens]
        seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    print(f"{tokens.size:,} rows served, {tokens.size / seconds:,.0f}/s, {peak:,} bytes at most")
    assert peak < size / 6

    small = folder / "compressed.zt"
    ztensor.convert(path, small, compression=True, chunk_rows=64)  # frames of 32 KiB
    tracemalloc.reset_peak()
    with ztensor.open(small) as reader:
        table = reader.get_slice("table")
        start = time.perf_counter()
        for request, answer in zip(tokens, answers, strict=True):
            assert np.array_equal(table[request], answer)
        seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    rate = f"{tokens.size / seconds:,.0f}/s, {peak:,} bytes at most"
    print(f"{small.name}: {small.stat().st_size:,} bytes; the same rows, {rate}")
    assert peak < size / 4

    for request, answer in zip(tokens[:5], answers, strict=False):
        for token, row in zip(request, answer, strict=True):
            first = token - token % PIECE
            same = np.array_equal(row, rows_of(first, token - first + 1)[-1])
            assert same, f"row {token}"
    print(f"{5 * tokens.shape[1]} of them made again: equal")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
