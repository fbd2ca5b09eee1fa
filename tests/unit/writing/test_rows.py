"""Small arrays that are written as rows: the file is the one that objects would make."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, ClosedError, NotRepresentableError, UsageError
from ztensor.numpy import load
from ztensor.writing import rows
from ztensor.writing.creating import create

if TYPE_CHECKING:
    from pathlib import Path

    from ztensor.layout.base import Array

GRID = np.arange(24, dtype=np.float32).reshape(4, 6)
ARRAYS: dict[str, Array] = {
    "plain": GRID,
    "again": GRID + 1,
    "other shape": GRID.reshape(6, 4),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), np.int16),
    "strided": GRID[:, ::2],
    "transposed": GRID.T,
    "swapped": GRID.astype(">f4"),
    "bools": np.array([True, False]),
    "half": GRID.astype(ml_dtypes.bfloat16),
    "tiny": GRID.astype(ml_dtypes.float8_e4m3fn),
    "complex": GRID.astype(np.complex64),
    "longest": np.zeros(8192, np.float32),
    "too long": np.ones(8193, np.float32),
    "\xe9 \u20ac": np.arange(3),
}


def written(version: str, checksum: str | bool | None, **options: Any) -> tuple[bytes, bytes]:
    """The file of a `Writer`, and that of objects."""
    by_rows, by_objects = io.BytesIO(), io.BytesIO()
    names = [name for name in ARRAYS if version != "0.1.0" or name not in ("tiny", "complex")]
    with ztensor.Writer(by_rows, version=version, checksum=checksum, **options) as writer:
        for name in names:
            writer.write_numpy(name, ARRAYS[name])
        writer.write("with", GRID, attributes={"a": 1})
        writer.write("without", GRID, checksum=False)
    with create(by_objects, version=version, checksum=checksum, **options) as output:
        for name in names:
            output.write(name, ARRAYS[name])
        output.write("with", GRID, {"a": 1})
        output.write("without", GRID, checksum=False)
    return by_rows.getvalue(), by_objects.getvalue()


@pytest.mark.parametrize("checksum", [True, "sha256", None])
@pytest.mark.parametrize("version", ["1.2.0", "1.1.0", "2.1"])
def test_the_file_is_that_of_objects(version: str, checksum: str | bool | None) -> None:
    by_rows, by_objects = written(version, checksum)
    assert by_rows == by_objects
    found = load(by_rows)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": True},
        {"canonical": True, "version": "2.1"},
        {"alignment": 4096, "version": "2.1"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_the_file_hold_for_small_arrays(options: dict[str, Any]) -> None:
    data = io.BytesIO(), io.BytesIO()
    names = sorted(["plain", "again", "scalar", "longest", "too long"])
    with ztensor.Writer(data[0], **options) as writer, create(data[1], **options) as output:
        for name in names:
            writer.write(name, ARRAYS[name])
            output.write(name, ARRAYS[name])
    assert data[0].getvalue() == data[1].getvalue()


def test_version_0_1_has_no_digests_and_no_rows_that_differ() -> None:
    by_rows, by_objects = (io.BytesIO() for _ in range(2))
    with (
        ztensor.Writer(by_rows, version="0.1.0", checksum=None) as writer,
        create(by_objects, version="0.1.0", checksum=None) as output,
    ):
        for name in ("plain", "again", "scalar", "bools"):
            writer.write(name, ARRAYS[name])
            output.write(name, ARRAYS[name])
    assert by_rows.getvalue() == by_objects.getvalue()


def test_what_is_wrong_is_what_is_wrong_with_objects(tmp_path: Path) -> None:
    odd: Any = 3
    with ztensor.Writer(tmp_path / "m.zt") as writer:
        writer.write("a", GRID)
        for array in (GRID, np.zeros(10_000)):
            with pytest.raises(UsageError, match="written before"):
                writer.write("a", array)
        with pytest.raises(ArgumentTypeError):
            writer.write(odd, GRID)
        with pytest.raises(NotRepresentableError):
            writer.write("\ud800", GRID)
        with pytest.raises(NotRepresentableError):
            writer.write("b", np.array(["text"]))
        with pytest.raises(NotRepresentableError):
            writer.write("b", np.zeros(3, np.dtype([("x", "f4")])))
        writer.share("b", of="a")
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
    assert sorted(found) == ["a", "b", "c"]
    np.testing.assert_array_equal(found["b"], GRID)


def test_a_row_that_is_interrupted_ends_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    writer = ztensor.Writer(tmp_path / "m.zt")
    writer.write("a", GRID)
    with monkeypatch.context() as patched:
        patched.setattr(rows, "put_small", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.write("b", GRID)
    for use in (lambda: writer.write("c", GRID), writer.finish):
        with pytest.raises(ClosedError):
            use()
    assert list(tmp_path.iterdir()) == []
