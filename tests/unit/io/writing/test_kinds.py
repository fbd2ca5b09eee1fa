"""Small arrays that are like one before are written in fewer steps; the file is the same."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, ClosedError, NotRepresentableError, UsageError
from ztensor.numpy import load

GRID = np.arange(24, dtype=np.float32).reshape(4, 6)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "plain": GRID,
    "other shape": GRID.reshape(6, 4),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), np.int16),
    "strided": GRID[:, ::2],
    "transposed": GRID.T,
    "swapped": GRID.astype(">f4"),
    "bools": np.array([True, False]),
    "half": GRID.astype(ml_dtypes.bfloat16),
    "tiny": GRID.astype(ml_dtypes.float8_e4m3fn),
    "packed": GRID.astype(ml_dtypes.float4_e2m1fn),
    "complex": GRID.astype(np.complex64),
    "longest": np.zeros(8192, np.float32),
    "too long": np.ones(8193, np.float32),
    "\xe9 \u20ac": np.arange(3),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "1.2": {},
    "1.1": {"version": "1.1.0"},
    "0.1": {"version": "0.1.0", "checksum": None},
    "2.1": {"version": "2.1"},
    "sha256": {"checksum": "sha256"},
    "no digest": {"checksum": None},
    "compressed": {"compression": True},
    "canonical": {"version": "2.1", "canonical": True},
    "aligned": {"version": "2.1", "alignment": 4096},
}
# Of these versions: what they have no word for.
MISSING = {"1.1.0": {"packed"}, "0.1.0": {"tiny", "packed", "complex"}}


def written(options: dict[str, Any], **own: Any) -> bytes:
    """Return a file with each array three times, of which the later two are like the first."""
    target = io.BytesIO()
    missing = MISSING.get(options.get("version", ""), set())
    with ztensor.Writer(target, **options) as writer:
        for name in sorted(set(ARRAYS) - missing):
            for number in range(3):
                writer.write(f"{name} {number}", ARRAYS[name] + (number > 1), **own)
    return target.getvalue()


@pytest.mark.parametrize("case", OPTIONS)
def test_the_file_is_that_of_objects_one_by_one(case: str) -> None:
    data = written(OPTIONS[case])
    assert data == written(OPTIONS[case], attributes={})  # which is written in all steps
    for name, array in load(data).items():
        expected = ARRAYS[name[:-2]] + name.endswith("2")
        assert array.tobytes() == expected.astype(array.dtype).tobytes(), name


def test_options_of_an_object_hold_beside_those_like_it() -> None:
    target = io.BytesIO()
    with ztensor.Writer(target) as writer:
        for name in ("a", "b"):
            writer.write(name, GRID)
        writer.write("attributes", GRID, attributes={"k": 1})
        writer.write("bare", GRID, checksum=False)
        writer.write("encoded", np.zeros((4, 6), np.float32), compress=True)
        writer.write("c", GRID)
    with ztensor.open(target.getvalue()) as reader:
        parts = {name: reader.metadata(name).components["data"] for name in reader}
        assert reader.metadata("attributes").attributes == {"k": 1}
        assert parts["bare"].digest is None
        assert parts["encoded"].encoding == "zstd"
        assert len({parts[name].digest for name in ("a", "b", "c", "attributes")}) == 1


def test_a_bool_of_2_1_is_looked_at_in_each_array() -> None:
    with ztensor.Writer(io.BytesIO(), version="2.1") as writer:
        writer.write("a", np.array([True, False]))
        with pytest.raises(ztensor.FormatError):
            writer.write("b", np.array([1, 2], np.uint8).view(np.bool_))


def test_what_is_wrong_is_what_is_wrong_with_others(tmp_path: Path) -> None:
    odd: Any = 3
    with ztensor.Writer(tmp_path / "m.zt") as writer:
        for name in ("a", "a2"):
            writer.write(name, GRID)
        for array in (GRID, np.zeros(10_000)):
            with pytest.raises(UsageError, match="written before"):
                writer.write("a", array)
        with pytest.raises(ArgumentTypeError):
            writer.write(odd, GRID)
        with pytest.raises(NotRepresentableError):
            writer.write("\ud800", GRID)
        writer.share("b", of="a2")
        with pytest.raises(UsageError):
            writer.write("b", GRID)
        stream = writer.stream("c", (1,), "f4")
        with pytest.raises(UsageError, match="stream"):
            writer.write("d", GRID)
        stream.write(GRID[0, :1])
        stream.close()
    with pytest.raises(ClosedError):
        writer.write("e", GRID)
    found = load((tmp_path / "m.zt").read_bytes())
    assert sorted(found) == ["a", "a2", "b", "c"]
    np.testing.assert_array_equal(found["b"], GRID)


class Interrupted(io.BytesIO):
    def write(self, data: Any, /) -> int:
        raise KeyboardInterrupt


def test_a_write_that_is_interrupted_ends_the_file() -> None:
    writer = ztensor.Writer(Interrupted())
    array = ARRAYS["longest"][:8000]
    for number in range(32):
        writer.write(f"{number}", array)
    with pytest.raises(KeyboardInterrupt):  # more than is gathered
        writer.write("32", array)
    for use in (lambda: writer.write("c", GRID), writer.finish):
        with pytest.raises(ClosedError):
            use()
