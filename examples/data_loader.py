"""Feed a torch DataLoader from one file: its workers share a reader and read single samples.

python examples/data_loader.py [folder]      needs torch
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import ztensor
from ztensor.numpy import save_file

SAMPLES, SHAPE, BATCH = 4096, (3, 32, 32), 64


class Images(Dataset):
    """Samples of a file. Workers get the path, not the data: readers pickle by path."""

    def __init__(self, reader: ztensor.Reader) -> None:
        self.images = reader.get_slice("images")
        self.labels = reader.get_slice("labels")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[int, np.ndarray, np.int64]:
        return index, self.images[index], self.labels[index]


def main(folder: Path) -> None:
    path = folder / "images.zt"
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (SAMPLES, *SHAPE), np.uint8)
    labels = rng.integers(0, 10, SAMPLES)
    save_file({"images": images, "labels": labels}, path)
    print(f"{path.name}: {SAMPLES} samples, {path.stat().st_size:,} bytes")

    with ztensor.open(path) as reader:
        loader = DataLoader(
            Images(reader),
            batch_size=BATCH,
            shuffle=True,
            generator=torch.Generator().manual_seed(0),
            num_workers=2,
            multiprocessing_context="spawn",  # as on every system; each worker opens the file
        )
        seen = []
        start = 0.0
        for indices, pictures, answers in loader:
            start = start or time.perf_counter()  # workers have started
            seen.append(indices)
            assert np.array_equal(pictures, images[indices])
            assert np.array_equal(answers, labels[indices])
        seconds = time.perf_counter() - start

    order = torch.cat(seen)
    assert not torch.equal(order, torch.arange(SAMPLES))  # it was shuffled,
    assert torch.equal(order.sort().values, torch.arange(SAMPLES))  # and each came once
    rate = (SAMPLES - BATCH) / seconds
    print(f"{len(seen)} shuffled batches equal the source, {rate:,.0f} samples/s by 2 workers")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
