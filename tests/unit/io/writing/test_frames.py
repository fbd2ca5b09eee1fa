from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_gguf import blocks_of
from ztensor.errors import ArgumentTypeError, ArgumentValueError
from ztensor.io.source.base import Range
from ztensor.io.source.memory import MemorySource
from ztensor.limits import DEFAULT_LIMITS
from ztensor.numpy import load, save
from ztensor.spec.encoding.zstd.codec import FRAME_BYTES
from ztensor.spec.encoding.zstd.frames import walk_frames
from ztensor.spec.model.manifest import Component, TensorObject

RNG = np.random.default_rng(0)


def lengths(data: bytes, name: str = "w") -> list[int]:
    """Return the decoded bytes of each frame of an object."""
    with ztensor.open(data) as reader:
        place = reader.location(name)
    stored = Range(MemorySource(data), place.offset, place.length)
    return [frame.content_length or 0 for frame in walk_frames(stored, DEFAULT_LIMITS)]


def dense(shape: tuple[int, ...], dtype: str = "f32", type: str | None = None) -> TensorObject:
    return TensorObject(shape, "dense", {"data": Component(dtype, 0, 0, type)})


WRITERS: dict[str, Callable[[Any, int | None], bytes]] = {}


def by_writer(use: Callable[[ztensor.Writer, Any, int | None], None]) -> None:
    def make(array: Any, chunk_rows: int | None) -> bytes:
        target = io.BytesIO()
        with ztensor.Writer(target, compression=True) as writer:
            use(writer, array, chunk_rows)
        return target.getvalue()

    WRITERS[use.__name__] = make


@by_writer
def write(writer: ztensor.Writer, array: Any, rows: int | None) -> None:
    writer.write("w", array, chunk_rows=rows)


@by_writer
def add(writer: ztensor.Writer, array: Any, rows: int | None) -> None:
    writer.add("w", array, chunk_rows=rows)


@by_writer
def write_numpy(writer: ztensor.Writer, array: Any, rows: int | None) -> None:
    writer.write("w", array, chunk_rows=rows)


@by_writer
def stream(writer: ztensor.Writer, array: Any, rows: int | None) -> None:
    with writer.stream("w", array.shape, array.dtype, chunk_rows=rows) as sink:
        for start in range(0, len(array), 11):
            sink.write(array[start : start + 11])


@by_writer
def transposed(writer: ztensor.Writer, array: Any, rows: int | None) -> None:
    writer.write("w", np.asfortranarray(array), chunk_rows=rows)


@pytest.mark.parametrize(
    ("shape", "chunk_rows", "expected"),
    [
        ((100, 10), None, [4000]),
        ((5, 16_384), None, [65_536] * 5),
        ((5, 10_000), None, [40_000] * 5),
        ((2, 16_385), None, [32_832, 32_708] * 2),  # parts of a row, of whole words
        ((40_000,), None, [65_536, 65_536, 28_928]),
        ((100, 10), 30, [1200, 1200, 1200, 400]),
        ((20,), 7, [28, 28, 24]),
        ((430_000, 10), 10**12, [16_777_200, 422_800]),  # no frame is longer than 16 MiB
        ((1, 5 << 20), 1, [10 << 20] * 2),
    ],
    ids=str,
)
def test_frames_end_where_rows_do(
    shape: tuple[int, ...], chunk_rows: int | None, expected: list[int]
) -> None:
    saved = save({"w": np.zeros(shape, np.float32)}, compression=True, chunk_rows=chunk_rows)
    assert lengths(saved) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [None, 1, 7, 100, 10**9])
def test_every_way_of_writing_gives_the_same_frames(rows: int | None, dtype: Any) -> None:
    array = RNG.integers(-9, 9, (530, 300)).astype(dtype)
    row = array.itemsize * 300
    chunk = min(530, FRAME_BYTES // row if rows is None else rows)
    made = {make(array, rows) for make in WRITERS.values()}
    made.add(save({"w": array}, compression=True, chunk_rows=rows))
    assert len(made) == 1
    data = made.pop()
    whole, rest = divmod(530, chunk)
    assert lengths(data) == [chunk * row] * whole + [rest * row] * bool(rest)
    assert load(data)["w"].tobytes() == array.tobytes()


def test_the_number_of_threads_does_not_change_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    array = RNG.standard_normal((5000, 300), np.float32)
    made = set()
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("ZTENSOR_NUM_THREADS", threads)
        made.add(save({"w": array}, compression=1, chunk_rows=9))
    assert len(made) == 1


def test_rows_of_gguf_blocks() -> None:
    data = blocks_of("q4_k", 64).reshape(-1) & 3
    tensor = ztensor.Tensor({"data": data}, shape=(16, 1024), format="gguf.q4_k")
    saved = save({"w": tensor}, compression=True, chunk_rows=5)
    assert lengths(saved) == [5 * 576] * 3 + [576]


def test_a_writers_measure_is_for_all_its_objects(tmp_path: Path) -> None:
    array = RNG.integers(0, 9, (100, 50), np.int8)
    path = tmp_path / "m.zt"
    with ztensor.Writer(path, compression=True, chunk_rows=30) as writer:
        writer.write("w", array)
        writer.write("v", array, chunk_rows=50)
    data = path.read_bytes()
    assert lengths(data) == [1500, 1500, 1500, 500]
    assert lengths(data, "v") == [2500, 2500]
    with ztensor.Editor(path, compression=True, chunk_rows=80) as editor:
        editor.write("u", array)
    assert lengths(path.read_bytes(), "u") == [4000, 1000]


def test_convert_and_migrate_cut_anew(tmp_path: Path) -> None:
    array = RNG.integers(0, 9, (100, 50), np.int8)
    path, other = tmp_path / "m.zt", tmp_path / "n.zt"
    ztensor.numpy.save_file({"w": array}, path, compression=True)
    ztensor.convert(path, other, compression=True, chunk_rows=40, check=True)
    assert lengths(other.read_bytes()) == [2000, 2000, 1000]
    ztensor.migrate(path, compression=3, chunk_rows=60)
    assert lengths(path.read_bytes()) == [3000, 2000]


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ArgumentValueError), (-1, ArgumentValueError), ("9", ArgumentTypeError),
     (True, ArgumentTypeError), (1.0, ArgumentTypeError)],
)  # fmt: skip
def test_what_is_no_number_of_rows(value: Any, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        ztensor.Writer(io.BytesIO(), chunk_rows=value)
    with pytest.raises(error):
        save({"w": np.ones(3)}, compression=True, chunk_rows=value)
    with ztensor.Writer(io.BytesIO()) as writer:
        for refuse in (
            lambda: writer.write("w", np.ones(3), chunk_rows=value),
            lambda: writer.stream("w", (3,), "f4", chunk_rows=value),
        ):
            with pytest.raises(error):
                refuse()
    source = tmp_path / "m.zt"
    ztensor.numpy.save_file({"w": np.ones(3)}, source)
    with pytest.raises(error):
        ztensor.convert(source, tmp_path / "n.zt", compression=True, chunk_rows=value)


@pytest.mark.parametrize(
    ("target", "compression"), [("n.zt", None), ("n.zt", False), ("n.npz", True)]
)
def test_rows_of_what_is_not_compressed(
    target: str, compression: bool | None, tmp_path: Path
) -> None:
    source = tmp_path / "m.zt"
    ztensor.numpy.save_file({"w": np.ones(3)}, source)
    with pytest.raises(ArgumentValueError, match="chunk_rows"):
        ztensor.convert(source, tmp_path / target, compression=compression, chunk_rows=3)
    with pytest.raises(ArgumentValueError, match="chunk_rows"):
        ztensor.numpy.save_file({"w": np.ones(3)}, tmp_path / "n.npz", chunk_rows=3)
    assert [path.name for path in tmp_path.iterdir()] == ["m.zt"]


# --- What compressing does not make smaller ---------------------------------------------------


def how_stored(data: bytes) -> dict[str, tuple[str, int]]:
    with ztensor.open(data) as reader:
        return {
            name: (part.encoding, part.length)
            for name in reader
            for part in reader.metadata(name).components.values()
        }


NOISE = RNG.integers(0, 256, (9000, 1024), np.uint8)
LATE = np.concatenate([NOISE, np.zeros_like(NOISE)])  # more noise than is held
SMALL = {"empty": np.zeros((0, 3)), "few": np.arange(3.0), "scalar": np.array(2.5)}


def test_noise_is_stored_raw_and_what_becomes_smaller_is_not() -> None:
    tensors = {"noise": NOISE, "late": LATE, "zeros": np.zeros(1000), **SMALL}
    data = save(tensors, compression=True)
    stored = how_stored(data)
    assert {name for name, (encoding, _) in stored.items() if encoding == "raw"} == {
        "noise", *SMALL
    }  # fmt: skip
    assert stored["late"][1] < LATE.nbytes * 0.51
    loaded = load(data)
    assert all(np.array_equal(loaded[name], value) for name, value in tensors.items())
    with ztensor.open(data) as reader:
        assert reader.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "4"])
def test_noise_at_the_beginning_does_not_change_the_frames(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", threads)
    made = {make(LATE, None) for make in WRITERS.values()}
    assert len(made) == 1
    assert lengths(made.pop()) == [FRAME_BYTES] * (LATE.nbytes // FRAME_BYTES) + (
        [LATE.nbytes % FRAME_BYTES] if LATE.nbytes % FRAME_BYTES else []
    )


def test_only_the_end_of_a_large_stream_tells() -> None:
    def streamed(array: Any) -> bytes:
        return WRITERS["stream"](array, None)

    assert how_stored(streamed(NOISE[:4096]))["w"] == ("raw", 4 << 20)
    encoding, length = how_stored(streamed(NOISE))["w"]
    assert encoding == "zstd"
    assert length < NOISE.nbytes * 1.001


def test_what_is_recoded_is_raw_where_that_is_smaller(tmp_path: Path) -> None:
    source, target = tmp_path / "a.zt", tmp_path / "b.zt"
    ztensor.numpy.save_file({"noise": NOISE, "late": LATE}, source)
    done: list[int] = []
    with ztensor.open(source) as reader, ztensor.Writer(target) as writer:
        for name in reader:
            writer.copy(name, reader, compress=True, progress=done.append)
    stored = how_stored(target.read_bytes())
    assert (stored["noise"][0], stored["late"][0]) == ("raw", "zstd")
    assert sum(done) == NOISE.nbytes + LATE.nbytes
    assert all(count > 0 for count in done)


@pytest.mark.slow
def test_a_piece_may_be_changed_when_it_was_written() -> None:
    """Its frames may be compressed later, on other threads."""
    whole = RNG.integers(0, 9, (20_000, 1024), np.uint8)
    target = io.BytesIO()
    with (
        ztensor.Writer(target, compression=True, threads=4) as writer,
        writer.stream("w", whole.shape, "uint8") as sink,
    ):
        for start, stop in ((0, 100), (100, 9000), (9000, 9001), (9001, 20_000)):
            piece = whole[start:stop].copy()
            sink.write(piece)
            piece[:] = 255
    assert np.array_equal(load(target.getvalue())["w"], whole)
