"""Frames of compressed tensors: where they end, and tensors that they make no smaller."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_gguf import blocks_of
from tests.unit.io.reading.counted import Near, reader_of
from tests.unit.io.writing.test_writer import written as all_written
from ztensor.errors import ArgumentTypeError, ArgumentValueError
from ztensor.ext import Range, source_of
from ztensor.limits import DEFAULT_LIMITS
from ztensor.numpy import load, save
from ztensor.spec.encoding.zstd.frames import walk_frames

RNG = np.random.default_rng(0)
FRAME_BYTES = 1 << 16  # by default


def lengths(data: bytes, name: str = "w") -> list[int]:
    """Return the decoded bytes of each frame of an object."""
    with ztensor.open(data) as reader:
        place = reader.location(name)
    stored = Range(source_of(data, mapped=False), place.offset, place.length)
    return [frame.content_length or 0 for frame in walk_frames(stored, DEFAULT_LIMITS)]


written = functools.partial(all_written, compression=True)


def streamed(array: Any, rows: int | None, step: int) -> Callable[[ztensor.Writer], None]:
    def use(writer: ztensor.Writer) -> None:
        with writer.stream("w", array.shape, array.dtype, chunk_rows=rows) as sink:
            for start in range(0, len(array), step):
                sink.write(array[start : start + step])

    return use


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
    turned = np.asfortranarray(array)
    made = {
        save({"w": array}, compression=True, chunk_rows=rows),
        written(streamed(array, rows, 11)),
        *(
            written(lambda writer: writer.write("w", array, chunk_rows=rows), threads=threads)
            for threads in (1, 2, 5)
        ),
        written(lambda writer: writer.add("w", array, chunk_rows=rows)),
        written(lambda writer: writer.write("w", turned, chunk_rows=rows)),
    }
    assert len(made) == 1
    data = made.pop()
    whole, rest = divmod(530, chunk)
    assert lengths(data) == [chunk * row] * whole + [rest * row] * bool(rest)
    assert load(data)["w"].tobytes() == array.tobytes()


def test_rows_of_gguf_blocks() -> None:
    data = blocks_of("q4_k", 64).reshape(-1) & 3
    tensor = ztensor.Tensor({"data": data}, shape=(16, 1024), format="gguf.q4_k")
    saved = save({"w": tensor}, compression=True, chunk_rows=5)
    assert lengths(saved) == [5 * 576] * 3 + [576]


def test_rows_are_given_for_a_writer_an_object_an_edit_or_a_conversion(tmp_path: Path) -> None:
    array = RNG.integers(0, 9, (100, 50), np.int8)
    path, other = tmp_path / "m.zt", tmp_path / "n.zt"
    with ztensor.Writer(path, compression=True, chunk_rows=30) as writer:
        writer.write("w", array)
        writer.write("v", array, chunk_rows=50)
    with ztensor.Editor(path, compression=True, chunk_rows=80) as editor:
        editor.write("u", array)
    found = {name: lengths(path.read_bytes(), name) for name in "uvw"}
    assert found == {"u": [4000, 1000], "v": [2500, 2500], "w": [1500, 1500, 1500, 500]}
    ztensor.convert(path, other, compression=True, chunk_rows=40, check=True)
    assert lengths(other.read_bytes()) == [2000, 2000, 1000]
    ztensor.migrate(path, compression=3, chunk_rows=60)
    assert lengths(path.read_bytes()) == [3000, 2000]


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ArgumentValueError), (-1, ArgumentValueError), ("9", ArgumentTypeError),
     (True, ArgumentTypeError), (1.0, ArgumentTypeError)],
)  # fmt: skip
def test_other_numbers_of_rows_are_refused(
    value: Any, error: type[Exception], tmp_path: Path
) -> None:
    source = tmp_path / "m.zt"
    ztensor.numpy.save_file({"w": np.ones(3)}, source)
    calls: list[Callable[[ztensor.Writer], object]] = [
        lambda writer: ztensor.Writer(io.BytesIO(), chunk_rows=value),
        lambda writer: save({"w": np.ones(3)}, compression=True, chunk_rows=value),
        lambda writer: writer.write("w", np.ones(3), chunk_rows=value),
        lambda writer: writer.stream("w", (3,), "f4", chunk_rows=value),
        lambda writer: ztensor.convert(source, "n.zt", compression=True, chunk_rows=value),
    ]
    with ztensor.Writer(io.BytesIO()) as writer:
        for call in calls:
            with pytest.raises(error):
                call(writer)


def test_rows_are_only_for_compressed_tensors_of_zt(tmp_path: Path) -> None:
    source = tmp_path / "m.zt"
    ztensor.numpy.save_file({"w": np.ones(3)}, source)
    for target, compression in (("n.zt", None), ("n.zt", False), ("n.npz", None)):
        with pytest.raises(ArgumentValueError, match="chunk_rows"):
            ztensor.convert(source, tmp_path / target, compression=compression, chunk_rows=3)
    with pytest.raises(ArgumentValueError, match="chunk_rows"):
        ztensor.numpy.save_file({"w": np.ones(3)}, tmp_path / "n.npz", chunk_rows=3)
    assert [path.name for path in tmp_path.iterdir()] == ["m.zt"]


# --- Tensors that compressing does not make smaller ---------------------------------------------


def encodings(data: bytes) -> dict[str, str]:
    with ztensor.open(data) as reader:
        assert reader.verify().ok
        return {name: reader.metadata(name).components["data"].encoding for name in reader}


NOISE = RNG.integers(0, 256, (9000, 1024), np.uint8)
LATE = np.concatenate([NOISE, np.zeros_like(NOISE)])  # more noise than is held
SMALL = {"empty": np.zeros((0, 3)), "few": np.arange(3.0), "scalar": np.array(2.5)}


def test_noise_is_stored_raw(tmp_path: Path) -> None:
    tensors = {"noise": NOISE, "late": LATE, "zeros": np.zeros(1000), **SMALL}
    data = save(tensors, compression=True)
    assert {name for name, encoding in encodings(data).items() if encoding == "raw"} == {
        "noise", *SMALL
    }  # fmt: skip
    loaded = load(data)
    assert all(np.array_equal(loaded[name], value) for name, value in tensors.items())
    # A copy that is compressed on the way is treated alike.
    done: list[int] = []
    target = io.BytesIO()
    with ztensor.open(save(tensors)) as reader, ztensor.Writer(target) as writer:
        for name in reader:
            writer.copy(name, reader, compress=True, progress=done.append)
    assert encodings(target.getvalue()) == encodings(data)
    assert sum(done) == sum(array.nbytes for array in tensors.values())


def test_only_the_end_of_a_large_stream_decides() -> None:
    assert encodings(written(streamed(NOISE[:4096], None, 11)))["w"] == "raw"
    data = written(streamed(NOISE, None, 11))  # more than is held
    assert encodings(data)["w"] == "zstd"
    assert len(data) < NOISE.nbytes * 1.001
    assert written(streamed(LATE, None, 7), threads=4) == save({"w": LATE}, compression=True)


@pytest.mark.parametrize(("noise", "is_read_again"), [(7, False), (9, True)])
def test_frames_are_held_up_to_8_mib_until_they_save(noise: int, is_read_again: bool) -> None:
    half = NOISE[: noise << 10]
    source = Near(save({"w": np.concatenate([half, np.zeros_like(half)])}))
    reader = reader_of(source)
    assert encodings(written(lambda writer: writer.copy("w", reader, compress=True)))["w"] == "zstd"
    nbytes = sum(length for request in source.asked for _, length in request)
    assert (nbytes > 2 * half.nbytes) is is_read_again
