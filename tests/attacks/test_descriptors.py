"""Files that are closed, or cut, while they are read: right bytes or our errors, and no signal.

Two classes. A number of an open file that is given back while a read uses it belongs to another
file, whose bytes are then returned, or written over. A map that another process cuts
kills the process that touches it: only views that a caller holds may be maps.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.descriptors import open_files
from tests.extent import IS_FULL, amount
from ztensor.errors import ClosedError, ZTensorError
from ztensor.ext import FileSink
from ztensor.io.source.local import FileSource
from ztensor.numpy import save, save_file

W = np.random.default_rng(0).normal(size=(300, 256)).astype(np.float32)
TENSORS = {"v": W + 1, "w": W}


def filled(reader: ztensor.Reader) -> Any:
    target = np.empty_like(W)
    reader.read_into("w", target)
    return target


OPERATIONS: dict[str, Callable[[ztensor.Reader], Any]] = {
    "view": lambda reader: reader["w"],
    "read": lambda reader: reader.read("w", copy=True).numpy(),
    "read_into": filled,
    "slice": lambda reader: reader.get_slice("w")[5:],
    "rows": lambda reader: reader.get_slice("w")[[5, 7, 200]],
    "element": lambda reader: reader.get_slice("w")[17, 3],
    "read all": lambda reader: reader.read(list(reader), copy=True)["w"].numpy(),
    "views": lambda reader: reader.read(list(reader))["w"].numpy(),
    "chunks": lambda reader: b"".join(map(bytes, reader.decoded_chunks("w"))),
    "iterate": lambda reader: {name: reader[name] for name in reader}["w"],
    "verify": lambda reader: reader.verify(threads=2).ok,
    "stats": lambda reader: repr(ztensor.stats(reader, threads=2)),
}


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


@pytest.fixture(scope="module", params=[False, True], ids=["raw", "zstd"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("closing") / "m.zt"
    save_file(TENSORS, path, compression=request.param)
    return path


class Pause:
    """Blocks the first system call of a kind on one open file until `go_on` is set."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real
        self.number = -1
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, descriptor: int, *arguments: Any, **options: Any) -> Any:
        if descriptor == self.number and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(20)
        return self._real(descriptor, *arguments, **options)


@contextlib.contextmanager
def all_numbers_taken(path: Path) -> Iterator[list[int]]:
    """Open a file again and again, so that any number given back leads to it."""
    taken = [os.open(path, os.O_RDWR) for _ in range(16)]
    try:
        yield taken
    finally:
        for number in taken:
            os.close(number)


def is_open(path: Path) -> bool:
    return str(path) in open_files()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("call", ["preadv", "fstat", "mmap"])
def test_close_in_the_midst_of_a_call(
    saved: Path, tmp_path: Path, operation: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """close() during a read: the descriptor's number went to another file, which was read."""
    if call == "preadv" and not hasattr(os, "preadv"):
        pytest.skip("this system has no preadv")
    run = OPERATIONS[operation]
    with ztensor.open(saved) as before:
        expected = plain(run(before))
    other = tmp_path / "other"
    other.write_bytes(b"\xff" * saved.stat().st_size)
    module = mmap if call == "mmap" else os
    pause = Pause(getattr(module, call))
    monkeypatch.setattr(module, call, pause)
    reader = ztensor.open(saved)
    source = reader.objects.parts()[0].source
    assert isinstance(source, FileSource)
    descriptor = source._descriptor
    assert descriptor is not None
    pause.number = descriptor.number
    del descriptor
    outcomes: list[Any] = []

    def work() -> None:
        try:
            outcomes.append(plain(run(reader)))
        except BaseException as error:  # noqa: BLE001  # checked below
            outcomes.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive() and not pause.reached.wait(0.01):
        pass
    reader.close()
    with all_numbers_taken(other) as taken:
        if pause.reached.is_set():
            assert pause.number not in taken
        pause.go_on.set()
        thread.join(30)
    (outcome,) = outcomes
    assert isinstance(outcome, ClosedError) or outcome == expected, outcome
    del outcome
    outcomes.clear()
    if operation not in ("view", "slice", "views", "iterate"):  # a map keeps a number of its own
        assert not is_open(saved)


@pytest.mark.parametrize("is_set", [False, True], ids=["file", "shards"])
def test_close_beside_many_reads(saved: Path, tmp_path: Path, is_set: bool) -> None:
    """close() at any moment beside reads of four threads: the system reuses the number at once."""
    wrong: list[object] = []

    def work(reader: ztensor.Reader) -> None:
        target = np.empty_like(W)
        while True:
            try:
                for name, expected in TENSORS.items():
                    target.fill(0)
                    reader.read_into(name, target)
                    if not np.array_equal(target, expected):
                        wrong.append("other bytes")
            except ClosedError:
                return
            except BaseException as error:  # noqa: BLE001  # checked below
                wrong.append(error)
                return

    if is_set:
        ztensor.split(saved, tmp_path, max_shard_size=W.nbytes)
    for _ in range(amount(10, full=40)):
        reader = ztensor.open(tmp_path if is_set else saved)
        threads = [threading.Thread(target=work, args=(reader,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        reader.close()
        with all_numbers_taken(saved):
            for thread in threads:
                thread.join(30)
    assert not wrong


def read_for_ever(reader: ztensor.Reader) -> None:
    while True:
        assert np.array_equal(filled(reader), W)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_close_in_a_signal_handler(saved: Path) -> None:
    """A handler that closes the reader the same thread is reading: a lock would never come free."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals go to the main thread")
    old = signal.signal(signal.SIGALRM, lambda *_: reader.close())
    try:
        for round in range(20):
            reader = ztensor.open(saved)
            signal.setitimer(signal.ITIMER_REAL, 0.001 + round / 20_000)
            with pytest.raises(ClosedError):
                read_for_ever(reader)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@pytest.mark.slow
def test_close_in_a_progress_callback(saved: Path) -> None:
    """The callback of verify closes the reader it reports on."""
    reader = ztensor.open(saved)
    with contextlib.suppress(ClosedError):
        reader.verify(threads=2, progress=lambda *_: reader.close())
    with pytest.raises(ClosedError):
        reader.verify()
    assert not is_open(saved)


# --- Writers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "pwrite"])
def test_abort_in_the_midst_of_a_write(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """abort() during a write: the descriptor's number went to another file: overwritten."""
    if not hasattr(os, call):
        pytest.skip(f"this system has no {call}")
    other = tmp_path / "other"
    other.write_bytes(bytes(100))
    old = tmp_path / "old.zt"
    save_file({"w": W}, old)
    pause = Pause(getattr(os, call))
    monkeypatch.setattr(os, call, pause)
    writer: Any
    if call == "pwrite":
        writer = ztensor.Editor(old)
        pause.number = number_of(writer._locked)
        steps = [lambda: writer.write("more", np.zeros(3 << 20)), writer.finish]
    else:
        sink = FileSink(str(tmp_path / "new"))
        pause.number = number_of(sink)
        writer = sink
        sizes = [*[1 << 14] * 65, 4 << 20]  # gathered, and not
        steps = [functools.partial(sink.write, bytes(size)) for size in 2 * sizes]
    found: list[BaseException] = []

    def work() -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:  # noqa: BLE001  # checked below
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert pause.reached.wait(20)
    writer.abort()
    with all_numbers_taken(other) as taken:
        assert pause.number not in taken
        pause.go_on.set()
        thread.join(30)
    assert [type(error) for error in found if not isinstance(error, ZTensorError)] == []
    assert other.read_bytes() == bytes(100)
    if call == "pwrite":
        with ztensor.open(old) as reader:
            assert np.array_equal(reader["w"], W)
    else:
        assert not (tmp_path / "new").exists()


def number_of(sink: Any) -> int:
    descriptor = sink._descriptor
    return int(getattr(descriptor, "number", descriptor))


# --- Files that are cut ---------------------------------------------------------------------------

_CHILD = """
import json, os, shutil, sys
import numpy as np
import ztensor
from ztensor.numpy import load_file
from ztensor.io.source import local

folder, is_full = sys.argv[1], sys.argv[2] == "True"
statuses = []
for original in sys.argv[3:]:  # imports happen once: each file has a child
    child = os.fork()
    if not child:
        break
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    sys.exit(str(statuses) if any(statuses) else 0)
path = os.path.join(folder, "cut" + os.path.splitext(original)[1])
out = os.path.join(folder, "out")
left = None

def cut():
    global left
    if left is not None:
        os.truncate(path, left)
        left = None

real_unchanged, real_read = local.FileSource.require_unchanged, local.FileSource.read_into

def unchanged(self):
    real_unchanged(self)
    if self.path == path and opened and when == "checked":
        cut()

def read_into(self, offset, destination):
    global reads
    if self.path == path and opened:
        reads += 1
        if reads == 2 and when == "read":
            cut()
    real_read(self, offset, destination)

local.FileSource.require_unchanged, local.FileSource.read_into = unchanged, read_into

def filled(reader, name):
    target = np.empty_like(expected[name])
    reader.read_into(name, target)
    return target

def whole(read):
    def run(reader):
        for name in reader:
            value = read(reader, name)
            assert np.array_equal(np.asarray(value), expected[name]), "other bytes"
    return run

def for_each(work):
    def run(reader):
        for name in reader:
            work(reader, name)
    return run

operations = {
    "verify": lambda reader: reader.verify(threads=1),
    "verify, threads": lambda reader: reader.verify(threads=3),
    "read": whole(lambda reader, name: reader.read(name, copy=True).to_dense()),
    "read_into": whole(filled),
    "load": lambda reader: load_file(path, copy=True),
    "rows": for_each(lambda reader, name: reader.get_slice(name)[[0, 2, -1]]),
    "element": for_each(lambda reader, name: reader.get_slice(name)[(-1,) * expected[name].ndim]),
    "chunks": for_each(lambda reader, name: sum(len(c) for c in reader.decoded_chunks(name))),
    "stats": lambda reader: ztensor.stats(reader),
    "hash": lambda reader: ztensor.content_hash(reader),
    "hash by path": lambda reader: ztensor.content_hash(path),
    "compare": lambda reader: ztensor.diff(reader, original),
    "to zt": lambda reader: ztensor.convert(reader, out + ".zt"),
    "to zstd": lambda reader: ztensor.convert(reader, out + ".zt", compression=True),
    "to npz": lambda reader: ztensor.convert(reader, out + ".npz", strict=False),
    "merge": lambda reader: ztensor.merge([path], out + ".zt"),
    "split": lambda reader: ztensor.split(path, folder + "/parts"),
}
if original.endswith(".zt"):
    operations["compact"] = lambda reader: ztensor.compact(path)
    operations["migrate"] = lambda reader: ztensor.migrate(path, compression=3)
    operations["repair"] = lambda reader: ztensor.open(path, recover=True).verify()
with ztensor.open(original) as reader:
    expected = {name: reader.read(name, copy=True).to_dense() for name in reader}
found = []
for number, (operation, run) in enumerate(operations.items()):
    for turn, when in enumerate(("opened", "checked", "read")):
        for share in (0.3, 0.9) if is_full else ((0.3, 0.9)[(number + turn) % 2],):
            print(operation, when, share, file=sys.stderr, flush=True)
            shutil.copyfile(original, path)
            opened, reads, left = False, 0, int(os.path.getsize(path) * share)
            try:
                with ztensor.open(path) as reader:
                    whole = reader.objects.parts()[0].source.view()
                    assert whole is not None  # mapped while all of it is there
                    assert not reader.verify(threads=1).problems
                    opened = True
                    if when == "opened":
                        cut()
                    run(reader)
                outcome = "right"
            except ztensor.ZTensorError as error:
                outcome = str(error.reason)
            except Exception as error:
                outcome = f"ESCAPED {error!r}"
            found.append([operation, when, share, outcome])
print(json.dumps([os.path.basename(original), found]), flush=True)
"""


def _pt(path: Path, arrays: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    torch.save({name: torch.from_numpy(array).T for name, array in arrays.items()}, path)


def _h5(path: Path, arrays: dict[str, Any]) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
            file.create_dataset(name + ".gz", data=array, compression="gzip", chunks=(50, 256))


def _exported(path: Path, arrays: dict[str, Any]) -> None:
    ztensor.convert(ztensor.open(save(arrays)), path, strict=False)


_FILES: dict[str, tuple[str, Callable[[Path, dict[str, Any]], object]]] = {
    "raw": ("zt", lambda path, arrays: save_file(arrays, path)),
    "zstd": ("zt", lambda path, arrays: save_file(arrays, path, compression=True)),
    "safetensors": ("safetensors", _exported),
    "gguf": ("gguf", _exported),
    "npz, stored": ("npz", lambda path, arrays: np.savez(path, **arrays)),
    "npz, deflated": ("npz", lambda path, arrays: np.savez_compressed(path, **arrays)),
    "npy, Fortran": ("npy", lambda path, arrays: np.save(path, np.asfortranarray(arrays["w"]))),
    "pt, transposed": ("pt", _pt),
    "h5": ("h5", _h5),
}


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows does not cut open files")
def test_a_cut_file_kills_no_process_without_a_view(tmp_path: Path) -> None:
    """Another process cuts the file before, between and in reads: SIGBUS killed the reader."""
    originals = []
    for kind, (suffix, write) in _FILES.items():
        original = tmp_path / f"{kind}.{suffix}"
        with contextlib.suppress(pytest.skip.Exception):  # a library is missing
            write(original, {"w": W, "v": W[:, ::-1].copy()})
            originals.append(str(original))
    (tmp_path / "work").mkdir()
    child = subprocess.run(
        [
            *(sys.executable, "-c", textwrap.dedent(_CHILD)),
            *(str(tmp_path / "work"), str(IS_FULL)),
            *originals,
        ],
        capture_output=True,
        text=True,
        timeout=1000,
        env={**os.environ, "ZTENSOR_NUM_THREADS": "2"},
        check=False,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    every = dict(map(json.loads, child.stdout.splitlines()))
    assert len(every) == len(originals)
    for kind, found in every.items():
        assert not [case for case in found if case[3].startswith("ESCAPED")], kind
        looks = [case for case in found if case[0] in ("read", "chunks", "hash")]
        cut = [case for case in looks if case[1] == "opened"]
        assert cut, kind
        assert not [case for case in cut if case[3] == "right"], kind
