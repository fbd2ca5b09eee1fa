"""The budgets that need a server, a copy of a file or torch: the rest of `make bench`.

    python -m benchmarks.beside [--rounds N] [--dir FOLDER]

Requests are those of a reader of a server on this machine. A conversion and `shutil.copyfile` of
its source are processes of their own, in turn (see `convert.py`). The pickle is one that torch's
own writer makes, of 500 tensors in 100 chunks each. A row whose library is not installed shows `-`.
"""

from __future__ import annotations

import argparse
import importlib.util
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import convert, report
from benchmarks.goals import Verdict

import ztensor

TENSORS, CHUNKS = 500, 100
RECORD_BYTES = 1500  # of a chunk in torch's file
SPEED_OF_A_COPY = 0.8


def is_installed(*names: str) -> bool:
    """Return whether all these libraries can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in names)


def requests_made() -> Iterator[Verdict]:
    """Yield how many requests it takes to list names, and to take a row of each of 30 tensors."""
    listing, rows = None, None
    detail = "needs obstore and fsspec"
    if is_installed("obstore", "fsspec"):
        from benchmarks import remote

        detail = ""
        with tempfile.TemporaryDirectory() as folder:
            remote.make(Path(folder), 1 << 20)
            with remote.server(Path(folder), 0.0) as url:
                listing = remote.listed(url)
                rows = remote.sliced(url) - listing
    yield Verdict("list 30 names", "a server", "requests", 2, listing, detail)
    yield Verdict("a row of each of 30, once open", "a server", "requests", 3, rows, detail)


def conversion(folder: Path, rounds: int) -> Iterator[Verdict]:
    """Yield how long a conversion of safetensors takes, as a multiple of a copy of the file."""
    base = folder / "base.zt"
    convert.write_base(base, convert.llama(is_full=False))
    case = convert.CASES[0]
    found = convert.run(case._replace(targets=case.targets[:1]), base, folder, rounds)
    base.unlink()
    speed = float(found[-1][convert.COLUMNS.index("of copyfile")])
    title = f"convert {case.name} with crc32c"
    yield Verdict(
        title, "256 MB", convert.COPY, 1 / SPEED_OF_A_COPY, 1 / speed, f"{speed} of its speed"
    )


def strangers_pickle(rounds: int) -> Iterator[Verdict]:
    """Yield how long it takes to open torch's `.metadata` of many chunks."""
    median, detail = None, "needs torch"
    if is_installed("torch"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_checkpoint(folder)
            times = []
            for _ in range(rounds):
                begun = time.perf_counter()
                with ztensor.open(folder) as reader:
                    count = len(reader)
                times.append(time.perf_counter() - begun)
                if count != TENSORS:
                    raise SystemExit("the names are wrong")
        median, detail = statistics.median(times), f"{rounds} rounds"
    what = f"{TENSORS * CHUNKS:,} chunks"
    yield Verdict("open a DCP folder of torch's", what, "s", 0.5, median, detail)


def write_checkpoint(folder: Path) -> None:
    """Write the pickle that torch's writer makes, and files of the right lengths without bytes."""
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    entries: dict[str, Any] = {}
    storage = {}
    for number in range(TENSORS):
        boxes, name = [], f"layers.{number}.weight"
        for chunk in range(CHUNKS):
            offsets = torch.Size((chunk * 4, 0))
            boxes.append(ChunkStorageMetadata(offsets, torch.Size((4, 16))))
            place = _StorageInfo(f"__{chunk}_0.distcp", number * RECORD_BYTES, RECORD_BYTES)
            storage[MetadataIndex(name, offsets, chunk)] = place
        shape = torch.Size((CHUNKS * 4, 16))
        entries[name] = TensorStorageMetadata(TensorProperties(), shape, boxes)
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata(entries, storage_data=storage)))
    for chunk in range(CHUNKS):
        with (folder / f"__{chunk}_0.distcp").open("wb") as file:
            file.truncate(TENSORS * RECORD_BYTES)


def main() -> int:
    """Measure, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where the files go; not a tmpfs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ztensor-bench-", dir=given.dir) as folder:
        verdicts = [
            *requests_made(),
            *conversion(Path(folder), given.rounds),
            *strangers_pickle(given.rounds),
        ]
    print(report.plain(report.table_of(verdicts, {})))
    print(f"\n{report.counted(verdicts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
