"""Objects written in pieces: pieces give the file of `write`, or change nothing."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ztensor
from tests.extent import examples
from tests.unit.io.writing.test_writer import written
from ztensor import Writer
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    NotRepresentableError,
    UsageError,
    ZTensorError,
)
from ztensor.numpy import load, save

FOUR = np.arange(4, dtype=np.float32)
GRID = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


def streamed(shape: Any, dtype: Any, *pieces: Any, flat: int = 0, **options: Any) -> bytes:
    """Return a file of one stream; `flat` of its pieces are written without their shape."""

    def fill(writer: Writer) -> None:
        with writer.stream("x", shape, dtype) as sink:
            for number, piece in enumerate(pieces):
                sink.write(piece, flat=number < flat)

    return written(fill, **options)


@given(
    count=st.integers(0, 300),
    sizes=st.lists(st.integers(0, 90), min_size=1, max_size=9).filter(any),
    dtype=st.sampled_from(["f32", "int8", ml_dtypes.bfloat16, ml_dtypes.float4_e2m1fn]),
    compression=st.booleans(),
)
@settings(max_examples=examples(150), deadline=None)
def test_pieces_of_any_size_give_the_file_of_write(
    count: int, sizes: list[int], dtype: Any, compression: bool
) -> None:
    array = (np.arange(count) % 7).astype({"f32": "f4"}.get(dtype, dtype))
    if dtype is ml_dtypes.float4_e2m1fn:
        sizes = [size * 2 for size in sizes]
    ends = list(itertools.takewhile(lambda end: end < count, itertools.accumulate(
        itertools.cycle(sizes))))  # fmt: skip
    pieces = [array[start:stop] for start, stop in itertools.pairwise([0, *ends, count])]
    how: dict[str, Any] = {"compression": compression, "chunk_rows": 16}  # several frames
    assert streamed((count,), dtype, *pieces, **how) == save({"x": array}, **how)


@pytest.mark.parametrize(
    "dtype", ["f32", "float32", "f4", np.float32, np.dtype("<f4"), ">f4"], ids=str
)
def test_an_element_type_may_be_named_in_any_way(dtype: Any) -> None:
    def fill(writer: Writer) -> None:
        sink = writer.stream("x", [2, 2], dtype)
        assert (sink.name, sink.shape, sink.dtype) == ("x", (2, 2), np.dtype("f4"))
        sink.write(FOUR.reshape(2, 2)[:1])
        sink.write(FOUR.astype(">f4")[2:].reshape(1, 2))  # of whatever byte order
        sink.close()

    assert written(fill) == save({"x": FOUR.reshape(2, 2)})


@pytest.mark.parametrize(
    ("dtype", "storage", "logical"),
    [
        ("complex64", "float32", "complex64"),
        ("f8_e5m2", "uint8", "f8_e5m2"),
        ("bf16", "bfloat16", None),
    ],
)
def test_streams_of_other_types(dtype: str, storage: str, logical: str | None) -> None:
    with ztensor.open(streamed((0, 7), dtype)) as reader:
        found = reader.metadata("x")
        assert (found.shape, found.dtype, found.type) == ((0, 7), storage, logical)


RUNS: dict[str, tuple[Any, ...]] = {
    "whole": (GRID,),
    "rows": (GRID[:1], GRID[1:]),
    "single rows": (GRID[0], GRID[1:3], GRID[3]),  # with one dimension less
    "none": (GRID[:0], GRID),
    "other memory order": (np.asfortranarray(GRID[:2]), GRID[2:]),
    "flat, then rows": (GRID.reshape(-1)[:7], GRID.reshape(-1)[7:12].reshape(5, 1), GRID[2:]),
}


@pytest.mark.parametrize("run", RUNS)
def test_pieces_are_runs_of_rows(run: str) -> None:
    pieces = RUNS[run]
    found = streamed(GRID.shape, "f32", *pieces, flat=2 if "flat" in run else 0)
    assert found == save({"x": GRID})


def test_a_scalar_is_its_one_row() -> None:
    assert streamed((), "f32", np.float32(3)) == save({"x": np.array(3, np.float32)})


FP4 = np.zeros(5).astype(ml_dtypes.float4_e2m1fn)
# The shape and type of the stream, the piece that does not fit, and the right one.
WRONG_PIECES: dict[str, tuple[Any, Any, Any, Any, type[Exception]]] = {
    "too many": ((4,), "f32", np.zeros(5, np.float32), FOUR, ArgumentValueError),
    "double": ((4,), "f32", np.zeros(2), FOUR, ArgumentTypeError),
    "integers": ((4,), "f32", np.zeros(2, np.int32), FOUR, ArgumentTypeError),
    "text": ((4,), "f32", ["a"], FOUR, ArgumentTypeError),
    "nothing": ((4,), "f32", None, FOUR, ArgumentTypeError),
    "half a byte": ((5,), "f4_e2m1", FP4[:3], FP4, ArgumentValueError),
    **{
        f"rows of {shape}": (GRID.shape, "f32", np.zeros(shape, "f4"), GRID, ArgumentValueError)
        for shape in [
            (2, 2, 3), (6, 2), (12,), (2, 6), (1, 2, 3, 2), (2, 3), (), (0,), (4, 3, 1),
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_PIECES)
def test_a_piece_that_does_not_fit_changes_nothing(case: str) -> None:
    shape, dtype, wrong, right, kind = WRONG_PIECES[case]

    def fill(writer: Writer) -> None:
        with writer.stream("x", shape, dtype) as sink:
            with pytest.raises(kind) as caught:
                sink.write(wrong)
            assert isinstance(caught.value, ZTensorError)
            sink.write(right)
            with pytest.raises(ArgumentValueError):
                sink.write(right[:1])

    assert written(fill) == save({"x": right})


def test_flat_pieces_end_at_a_row_before_rows_come() -> None:
    def fill(writer: Writer) -> None:
        with writer.stream("x", GRID.shape, "f32") as sink:
            sink.write(GRID.reshape(-1)[:7], flat=True)
            with pytest.raises(ArgumentValueError):
                sink.write(GRID[1:])
            sink.write(GRID.reshape(-1)[7:], flat=True)

    assert written(fill) == save({"x": GRID})


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ((-1,), "f32", ArgumentValueError),
        (("a",), "f32", ArgumentTypeError),
        ((1.5,), "f32", ArgumentTypeError),
        (5, "f32", ArgumentTypeError),
        ((2**64,), "f32", NotRepresentableError),
        ((1,), "no such", ArgumentValueError),
        ((1,), object, NotRepresentableError),
        ((1,), "int1", NotRepresentableError),
    ],
    ids=str,
)
def test_a_stream_that_cannot_be(shape: Any, dtype: Any, kind: type[Exception]) -> None:
    def fill(writer: Writer) -> None:
        with pytest.raises(kind):
            writer.stream("x", shape, dtype)
        writer.write("x", FOUR)

    assert list(load(written(fill))) == ["x"]


def test_one_stream_at_a_time_and_nothing_beside_it() -> None:
    def fill(writer: Writer) -> None:
        sink = writer.stream("x", (4,), "f32")
        for other in (
            lambda: writer.write("y", FOUR),
            lambda: writer.stream("y", (1,), "f32"),
            lambda: writer.share("y", "x"),
            writer.finish,
            sink.close,  # elements are missing
        ):
            with pytest.raises(UsageError):
                other()
        sink.write(FOUR)
        sink.close()
        for closed in (sink.close, lambda: sink.write(FOUR[:0])):
            with pytest.raises(ClosedError):
                closed()
        writer.write("y", FOUR)

    assert written(fill) == save({"x": FOUR, "y": FOUR.copy()})
