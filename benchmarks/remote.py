"""Files on a server, beside other libraries: the group `remote`, with its goals.

    python -m benchmarks.remote [--rounds N] [--megabytes N]

The server is that of the tests, in a process of its own on this machine: it serves by `sendfile`
and waits 30 ms before each answer where a network is meant, not at all where speed is. Rounds are
interleaved, times are the least of each line, and a ratio is the median of those within a round.
Needs `fsspec[http]` and `obstore`. Where `s3fs` is installed, names are also listed by S3's
protocol; where torch is, checkpoints are saved by it, beside `s3torchconnector[dcp]` and torch's
own writer over `s3fs`, those that are there. These two pin other libraries: they want an
environment of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import numpy as np
import obstore  # noqa: TID253  # a benchmark imports what it measures
from benchmarks.memory import prewarm
from obstore.store import HTTPStore, LocalStore  # noqa: TID253

import ztensor
from ztensor.io.source.stores import source_of
from ztensor.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[1]
TENSORS = 30
PART_BYTES = 8 << 20


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        what: what is done.
        ours: does it with this library, and returns how many requests that took, or None.
        peer: what it is held against.
        theirs: does it with that; None where the goal is in seconds.
        goal: the most that ours may take, times theirs, or in seconds; None where it is shown and
            not judged.
    """

    what: str
    ours: Callable[[], int | None]
    peer: str
    theirs: Callable[[], object] | None
    goal: float | None


def server(folder: Path, delay: float) -> contextlib.AbstractContextManager[str]:
    """Give the address of a server of a folder."""
    return started("tests.remote.range_server", str(folder), "--delay", str(delay))


@contextlib.contextmanager
def started(*module: str) -> Iterator[str]:
    """Give the address of a server in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", *module],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        read, written = process.stdout, process.stdin
        if read is None or written is None:
            raise SystemExit("the server has no pipes")
        try:
            yield f"http://127.0.0.1:{int(read.readline())}"
        finally:
            written.close()


def make(folder: Path, nbytes: int) -> None:
    """Write the files that are served."""
    rng = np.random.default_rng(0)
    model = {f"layers.{n}.weight": rng.random((512, 512), np.float32) for n in range(TENSORS)}
    save_file(model, folder / "model.zt")
    save_file(model, folder / "model.safetensors")
    (folder / "bucket").mkdir()
    for name in ("model.zt", "model.safetensors"):
        os.link(folder / name, folder / "bucket" / name)
    rows = rng.integers(0, 50, (200_000, 64), np.int32)
    save_file({"rows": rows}, folder / "packed.zt", compression=True)
    count = nbytes // 16 // 4
    save_file({f"t{n}": rng.random(count, np.float32) for n in range(16)}, folder / "large.zt")


def listed(url: str) -> int:
    """List names as we do; return the requests."""
    with ztensor.open(f"{url}/model.zt") as reader:
        if len(list(reader)) != TENSORS:
            raise SystemExit("the names are wrong")
        return requests_of(reader)


def requests_of(reader: ztensor.Reader) -> int:
    """Return how many requests a reader has made."""
    sources: Iterator[Any] = (part.source for part in reader.objects.parts())
    return sum(getattr(one, "source", one).requests for one in sources)


def listed_by_fsspec(url: str) -> None:
    """List the names of a safetensors file through a file object, as its users do."""
    files = fsspec.filesystem("http", skip_instance_cache=True)
    read_header(files, f"{url}/model.safetensors")


def read_header(files: Any, path: str) -> None:
    """Read the header of a safetensors file, its length first."""
    with files.open(path, cache_type="none") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        names = json.loads(file.read(length))
    if len(names) < TENSORS:
        raise SystemExit("the names are wrong")


def rows_of_s3(url: str) -> list[Row]:
    """Return the row about names in a store of S3's protocol, where `s3fs` is installed."""
    if importlib.util.find_spec("s3fs") is None:
        return []
    keys = {"access_key_id": "key", "secret_access_key": "secret"}

    def ours() -> int:
        storage = {**keys, "region": "us-east-1", "endpoint": url, "allow_http": "true"}
        with ztensor.open("s3://bucket/model.zt", storage=storage) as reader:
            if len(list(reader)) != TENSORS:
                raise SystemExit("the names are wrong")
            return requests_of(reader)

    def theirs() -> None:
        client = {
            "aws_access_key_id": keys["access_key_id"],
            "aws_secret_access_key": keys["secret_access_key"],
        }
        files = fsspec.filesystem(
            "s3",
            skip_instance_cache=True,
            endpoint_url=url,
            client_kwargs=client,
            config_kwargs={"s3": {"addressing_style": "path"}},
        )
        read_header(files, "bucket/model.safetensors")

    return [Row("list 30 names of S3, 30 ms", ours, "s3fs, safetensors header", theirs, 0.25)]


def sliced(url: str) -> int:
    """Take a row of each tensor; return the requests, those of opening among them."""
    with ztensor.open(f"{url}/model.zt") as reader:
        if len(reader.read_slices(dict.fromkeys(reader, 100))) != TENSORS:
            raise SystemExit("the rows are wrong")
        return requests_of(reader)


def sliced_by_fsspec(url: str) -> None:
    """Take the same rows one by one, of places that are known already."""
    files = fsspec.filesystem("http", skip_instance_cache=True)
    for number in range(TENSORS):
        start = 4096 + number * (1 << 20)
        files.cat_file(f"{url}/model.safetensors", start=start, end=start + 2048)


def packed_rows(url: str) -> int:
    """Take 100 rows of a compressed tensor."""
    with ztensor.open(f"{url}/packed.zt") as reader:
        if reader.get_slice("rows")[70_000:70_100].shape != (100, 64):
            raise SystemExit("the rows are wrong")
        return requests_of(reader)


def loaded(url: str) -> None:
    """Load all tensors, each checked."""
    load_file(f"{url}/large.zt", copy=True)


def loaded_by_fsspec(url: str) -> None:
    """Fetch the bytes of the file."""
    fsspec.filesystem("http", skip_instance_cache=True).cat_file(f"{url}/large.zt")


def loaded_by_obstore(url: str) -> None:
    """Fetch the bytes of the file by ranges, eight at a time, into memory that is there."""
    store = HTTPStore(url, client_options={"allow_http": True})
    size = obstore.head(store, "large.zt")["size"]
    memory = np.empty(size, np.uint8)

    def fetch(start: int) -> None:
        stop = min(size, start + PART_BYTES)
        data = memoryview(obstore.get_range(store, "large.zt", start=start, end=stop))
        memory[start:stop] = np.frombuffer(data, np.uint8)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, range(0, size, PART_BYTES)))


def uploaded(target: str, tensors: dict[str, Any], folder: Path) -> None:
    """Save to a store of obstore, digests written."""
    save_file(tensors, ztensor.Remote(f"file:///{target}", LocalStore(str(folder))))


def uploaded_by_obstore(target: str, tensors: dict[str, Any], folder: Path) -> None:
    """Write the same arrays through obstore's own writer."""
    with obstore.open_writer(
        LocalStore(str(folder)), target, buffer_size=16 << 20, max_concurrency=4
    ) as writer:
        for array in tensors.values():
            writer.write(memoryview(array).cast("B"))


def rows_of_uploads(url: str, nbytes: int) -> list[Row]:
    """Return the rows about checkpoints of torch that are saved to a store of S3's protocol."""
    if importlib.util.find_spec("torch") is None:
        return []
    import torch
    import torch.distributed.checkpoint as dcp

    import ztensor.torch as ztorch

    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    os.environ.update(keys, AWS_REGION="us-east-1", AWS_ENDPOINT_URL=url)
    state = {f"t{number}": torch.rand(nbytes // 16 // 4) for number in range(16)}

    def save(writer: Any) -> None:
        dcp.save(state, storage_writer=writer, no_dist=True)

    def ours() -> None:
        save(ztorch.StorageWriter("s3://bucket/ours"))

    def by_fsspec() -> None:
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

        save(FsspecWriter("s3://bucket/fsspec", config_kwargs={"s3": {"addressing_style": "path"}}))

    def by_connector() -> None:
        from s3torchconnector import S3ClientConfig
        from s3torchconnector.dcp import S3StorageWriter

        config = S3ClientConfig(force_path_style=True)
        writer = S3StorageWriter("us-east-1", "s3://bucket/torch/", s3client_config=config)
        writer.fs._client._endpoint = url  # its writer takes none
        save(writer)

    what = "save a checkpoint to S3, digests written"
    peers = {"s3fs": ("torch's FsspecWriter", by_fsspec)}
    peers["s3torchconnector"] = ("its S3StorageWriter", by_connector)
    return [
        Row(what, ours, f"{package}, {does}", theirs, 1.0)
        for package, (does, theirs) in peers.items()
        if importlib.util.find_spec(package) is not None
    ]


def peak_of(act: Callable[[], object]) -> int:
    """Return by how many bytes this process grew at most during a call, looked at every 2 ms."""
    page = 4096

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    before, most, is_done = resident(), [0], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.002):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    act()
    most[0] = max(most[0], resident())
    is_done.set()
    watcher.join()
    return most[0] - before


def seconds(act: Callable[[], object], nbytes: int) -> float:
    """Return how long a call took that needs memory for so many bytes."""
    prewarm(nbytes)
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def measure(rows: list[Row], rounds: int, nbytes: int) -> None:
    """Print the table."""
    print("| what | ours | requests | beside | theirs | ratio | goal | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        row.ours()  # the first of all is no measure of either
        times: list[tuple[float, float]] = []
        for _ in range(rounds):
            ours = seconds(row.ours, nbytes)
            times.append((ours, 0.0 if row.theirs is None else seconds(row.theirs, nbytes)))
        ours, theirs = (min(column) for column in zip(*times, strict=True))
        count = row.ours()
        found = ours
        if row.theirs is not None:
            found = statistics.median(one / other for one, other in times)
        shown = ["-", "-"] if row.theirs is None else [f"{theirs:.3f} s", f"{found:.2f}"]
        goal = "-" if row.goal is None else f"{row.goal}{' s' * (row.theirs is None)}"
        outcome = "-" if row.goal is None else "met" if found <= row.goal else "missed"
        print(
            f"| {row.what} | {ours:.3f} s | {count or '-'} | {row.peer} | {shown[0]} | {shown[1]} "
            f"| {goal} | {outcome} |",
            flush=True,
        )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=500)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        make(folder, given.megabytes * 10**6)
        slow = stack.enter_context(server(folder, 0.03))
        fast = stack.enter_context(server(folder, 0.0))
        large = load_file(folder / "large.zt", copy=True)
        nbytes = sum(array.nbytes for array in large.values())
        files = "fsspec"
        store = stack.enter_context(started("tests.remote.upload_server"))
        rows = [
            Row("list 30 names, 30 ms", lambda: listed(slow), f"{files}, safetensors header",
                lambda: listed_by_fsspec(slow), None),
            *rows_of_s3(slow),
            Row("a row of each of 30, 30 ms", lambda: sliced(slow), f"{files}, one by one",
                lambda: sliced_by_fsspec(slow), 0.1),
            Row("100 rows of zstd, 30 ms", lambda: packed_rows(slow), "-", None, 0.15),
            Row("load, checked", lambda: loaded(fast), f"{files} cat_file",
                lambda: loaded_by_fsspec(fast), 0.5),
            Row("load, checked", lambda: loaded(fast), "obstore, parallel ranges",
                lambda: loaded_by_obstore(fast), 1.2),
            Row("upload to a folder", lambda: uploaded("ours.zt", large, folder),
                "obstore's writer, no digests", lambda: uploaded_by_obstore("t", large, folder),
                None),
            *rows_of_uploads(store, min(nbytes, 200 * 10**6)),
        ]  # fmt: skip
        measure(rows, given.rounds, nbytes)
        grown = peak_of(lambda: load_file(f"{fast}/large.zt", copy=True))
        print(f"memory of a load: {grown / nbytes:.2f} x data (goal 1.05)")
        grown = peak_of(lambda: uploaded("ours.zt", large, folder))
        print(f"memory of an upload of {nbytes >> 20} MiB: {grown >> 20} MiB (goal 128)")
        with contextlib.closing(source_of(f"{fast}/large.zt", mapped=False)) as source:
            print(f"the file: {source.size:,} bytes")


if __name__ == "__main__":
    main()
