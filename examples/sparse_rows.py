"""Keep a SciPy matrix in a file and take rows out of it, reading nothing else.

python examples/sparse_rows.py [folder]      needs scipy
"""

import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse

import ztensor
from ztensor import Tensor
from ztensor.numpy import save_file

ROWS, COLUMNS = 4_000, 5_000


class Counting(io.FileIO):
    """A file that counts the bytes that are read from it."""

    count = 0

    def readinto(self, buffer: memoryview) -> int:
        count = super().readinto(buffer)
        self.count += count
        return count

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def same(a: scipy.sparse.csr_array, b: scipy.sparse.csr_array) -> bool:
    parts = ("data", "indices", "indptr")
    return a.shape == b.shape and all(
        np.array_equal(getattr(a, part), getattr(b, part)) for part in parts
    )


def main(folder: Path) -> None:
    path = folder / "ratings.zt"
    matrix = scipy.sparse.random(
        ROWS, COLUMNS, density=0.01, format="csr", dtype=np.float32, random_state=0
    )
    save_file({"ratings": Tensor.from_scipy(matrix)}, path)
    dense = ROWS * COLUMNS * matrix.dtype.itemsize
    print(f"{matrix.nnz:,} entries: {path.stat().st_size:,} bytes, dense they are {dense:,}")

    with ztensor.open(path) as reader:
        back = reader.read("ratings").to_scipy()
    print("the matrix:", "equal" if same(back, matrix) else "DIFFERENT")
    assert same(back, matrix)

    with ztensor.open(path) as reader:
        for role in ("indptr", "indices", "values"):
            print(f"  {role:8} {reader.location('ratings', role).length:12,} bytes")

    with Counting(path) as file, ztensor.open(file) as reader:
        lazy = reader.get_slice("ratings")
        opening, file.count = file.count, 0
        rows = lazy[2000:2010]
        print(f"opened with {opening:,} bytes, 10 rows with {file.count:,}")
        assert isinstance(rows, Tensor)
        assert same(rows.to_scipy(), matrix[2000:2010])
        assert file.count < path.stat().st_size / 100


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
