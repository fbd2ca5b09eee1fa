"""Exceptions of parsers become ours where bytes enter; all others pass."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.distributed
import ztensor.numpy
from tests.refusals import refused
from ztensor.errors import FormatError, LimitError, Reason, ZTensorError
from ztensor.ext import foreign_bytes

DIGITS = np.arange(4096, dtype=np.int64).reshape(64, 64)


# --- Which exceptions ---------------------------------------------------------------------------


def guarded(error: BaseException) -> None:
    with foreign_bytes("the file", "a.zt"):
        raise error


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (struct.error("unpack requires 8 bytes"), FormatError, Reason.UNFORESEEN),
        (ValueError("bad \x1b[31mname\n"), FormatError, Reason.UNFORESEEN),
        (KeyError("no"), FormatError, Reason.UNFORESEEN),
        (IndexError("no"), FormatError, Reason.UNFORESEEN),
        (OverflowError("no"), FormatError, Reason.UNFORESEEN),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), FormatError, Reason.UNFORESEEN),
        (RecursionError("no"), LimitError, Reason.LIMIT_STACK),
        (MemoryError("no"), LimitError, Reason.LIMIT_MEMORY),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_what_python_raises_on_bad_bytes_becomes_ours(
    error: Exception, kind: type[ZTensorError], reason: Reason
) -> None:
    with refused(ZTensorError, reason) as caught:
        guarded(error)
    assert type(caught.value) is kind
    assert caught.value.file == "a.zt"
    assert caught.value.__cause__ is error
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert str(copy.copy(caught.value)) == str(caught.value)


@pytest.mark.parametrize(
    "error",
    [OSError("a disk"), TypeError("a bug"), AttributeError("a bug"), UserWarning("an error"),
     StopIteration(), KeyboardInterrupt(), GeneratorExit()],
    ids=repr,
)  # fmt: skip
def test_every_other_exception_passes_unchanged(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        guarded(error)
    assert caught.value is error


def test_an_error_of_ours_passes_and_gets_its_file() -> None:
    error = FormatError("ours", reason=Reason.CBOR_UTF8)
    with pytest.raises(FormatError) as caught:
        guarded(error)
    assert caught.value is error
    assert caught.value.file == "a.zt"


def test_memory_is_given_back_before_the_caller_looks() -> None:
    class Large:
        alive = 0

        def __init__(self) -> None:
            Large.alive += 1

        def __del__(self) -> None:
            Large.alive -= 1

    def takes() -> None:
        large = Large()
        assert large.alive
        raise MemoryError

    with pytest.raises(LimitError), foreign_bytes("the file"):
        takes()
    assert Large.alive == 0


# --- Where ---------------------------------------------------------------------------------------


class Samples:
    """Files to read, made before a fault is planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plain = folder / "plain.zt"
        ztensor.numpy.save_file({"w": DIGITS}, self.plain)
        self.packed = folder / "packed.zt"
        with ztensor.Writer(self.packed, compression=True, chunk_rows=8) as writer:
            writer.write("w", DIGITS)
        self.csr = folder / "csr.zt"
        with ztensor.Writer(self.csr) as writer:
            writer.write(
                "w",
                ztensor.Tensor.csr(
                    values=np.ones(2, np.float32), indices=np.arange(2), indptr=np.arange(3),
                    shape=(2, 2),
                ),
            )  # fmt: skip
        self.npz = folder / "a.npz"
        np.savez_compressed(self.npz, w=DIGITS)
        self.tree = folder / "tree.zt"
        ztensor.save_tree({"w": DIGITS, "step": 3}, self.tree)
        self.distributed = folder / "distributed"
        self.distributed.mkdir()
        with ztensor.distributed.PartWriter(self.distributed, compression=True) as part:
            part.add("w", DIGITS)
            record = part.finish()
        ztensor.distributed.commit(self.distributed, [record], {"step": 1})


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return Samples(tmp_path)


# A function to break where bytes enter, and a user's call that runs it. Replacing our functions is
# the only way here: a file that reaches the guard shows a missing rule.
PLACES: dict[str, tuple[str, Callable[[Samples], object]]] = {
    "the manifest": ("ztensor.spec.container.v1:Root", lambda s: ztensor.open(s.plain)),
    "another format": (
        "ztensor.formats.npz.projecting:read_entries", lambda s: ztensor.open(s.npz),
    ),
    "an object read on demand": (
        "ztensor.formats.npz.projecting:_head", lambda s: ztensor.open(s.npz).metadata("w"),
    ),
    "decoding": (
        "ztensor.spec.encoding.zstd.codec:Zstd.require_length",
        lambda s: ztensor.open(s.packed).read("w"),
    ),
    "decoding in pieces": (
        "ztensor.spec.encoding.zstd.codec:Zstd.decode_chunks",
        lambda s: list(ztensor.open(s.packed).decoded_chunks("w")),
    ),
    "decoding a slice": (
        "ztensor.spec.encoding.zstd.codec:Zstd.decode_run",
        lambda s: ztensor.open(s.packed).get_slice("w")[9:12],
    ),
    "the layout of an object": (
        "ztensor.spec.layout.sparse_csr:SparseCsr.require_valid",
        lambda s: ztensor.open(s.csr).read("w"),
    ),
    "a tree": ("ztensor.spec.wire.cbor:decode", lambda s: ztensor.load_tree(s.tree)),
    "a checkpoint of processes": (
        "ztensor.spec.encoding.zstd.codec:Zstd.require_length",
        lambda s: ztensor.open(s.distributed)["w"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_fault_where_bytes_enter_is_ours(
    monkeypatch: pytest.MonkeyPatch, samples: Samples, place: str
) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise KeyError("planted")

    target, use = PLACES[place]
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for attribute in owners:
        owner = getattr(owner, attribute)
    monkeypatch.setattr(owner, name, broken)
    with refused(FormatError, Reason.UNFORESEEN, match="planted"):
        use(samples)
    if place == "decoding in pieces":
        report = ztensor.open(samples.packed).verify()
        assert [problem.reason for problem in report.problems] == [Reason.UNFORESEEN]
        assert report.outcome == "damaged"


# --- Everywhere else ------------------------------------------------------------------------------


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken, KeyError, ValueError, OSError, MemoryError])
@pytest.mark.parametrize(
    "call",
    [
        lambda s, stop: ztensor.numpy.save_file({"w": DIGITS}, s.folder / "b.zt", progress=stop),
        lambda s, stop: ztensor.numpy.load_file(s.packed, progress=stop),
        lambda s, stop: ztensor.open(s.packed).verify(progress=stop),
        lambda s, stop: ztensor.open(s.packed).verify(progress=stop, threads=2),
        lambda s, stop: ztensor.stats(s.packed, progress=stop),
        lambda s, stop: ztensor.diff(s.packed, s.plain, progress=stop),
        lambda s, stop: ztensor.convert(s.npz, s.folder / "b.zt", progress=stop),
        lambda s, stop: ztensor.convert(s.packed, s.folder / "b.npz", progress=stop),
        lambda s, stop: ztensor.merge([s.packed], s.folder / "b.zt", progress=stop),
        lambda s, stop: ztensor.compact(s.packed, progress=stop),
        lambda s, stop: ztensor.load_tree(s.tree, progress=stop),
        lambda s, stop: ztensor.open(s.packed).read(stop(1, 2) for _ in "w"),
    ],
    ids=[
        "save_file", "load_file", "verify", "verify by threads", "stats", "diff", "convert",
        "export", "merge", "compact", "load_tree", "names",
    ],
)  # fmt: skip
def test_what_the_callers_function_raises_passes(
    samples: Samples, call: Callable[[Samples, Any], object], error: type[Exception]
) -> None:
    raised = error()

    def stop(*_: object) -> None:
        raise raised

    with pytest.raises(error) as caught:
        call(samples, stop)
    assert caught.value is raised


def test_what_the_callers_file_object_raises_passes() -> None:
    class File(io.BytesIO):
        ends = False

        def read(self, size: int | None = -1, /) -> bytes:
            if self.ends and size:
                raise Broken
            return super().read(size)

    file = File(ztensor.numpy.save({"w": DIGITS}))
    with ztensor.open(file) as reader:
        file.ends = True
        with pytest.raises(Broken):
            reader.read("w", copy=True)
