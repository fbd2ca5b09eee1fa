"""Wrong arguments are a TypeError or a ValueError, before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
import ztensor.v2

X = {"a": np.ones((2, 3), np.float32)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "a.zt"
    ztensor.numpy.save_file(X, place)
    return place


# A call with the path of a file and a free path, its error, and a part of the message.
READS: dict[str, tuple[Callable[[Any, Any], object], type[Exception], str]] = {
    "verify": (
        lambda p, _: ztensor.open(p, verify="yes"),  # type: ignore[arg-type]
        ValueError, "verify must be None, True or False, not 'yes'",
    ),
    "verify is 1": (
        lambda p, _: ztensor.open(p, verify=1),  # type: ignore[arg-type]
        ValueError, "verify must be None, True or False, not 1",
    ),
    "verify of a set": (
        lambda p, _: ztensor.open([p], verify="yes"),  # type: ignore[arg-type]
        ValueError, "verify must be None, True or False, not 'yes'",
    ),
    "limits": (
        lambda p, _: ztensor.open(p, limits=3),  # type: ignore[arg-type]
        TypeError, "limits must be a ztensor.Limits, not 3",
    ),
    "limits of a set": (
        lambda p, _: ztensor.open([p], limits=3),  # type: ignore[arg-type]
        TypeError, "limits must be a ztensor.Limits, not 3",
    ),
    "progress of a load": (
        lambda p, _: ztensor.numpy.load_file(p, progress=3),  # type: ignore[arg-type]
        TypeError, "progress must be a function, not 3",
    ),
    "progress of verify": (
        lambda p, _: ztensor.open(p).verify(progress=3),  # type: ignore[arg-type]
        TypeError, "progress must be a function, not 3",
    ),
    "names": (
        lambda p, _: ztensor.open(p).verify(3),  # type: ignore[arg-type]
        TypeError, "'int' object is not iterable",
    ),
    "a name": (lambda p, _: ztensor.open(p)["b"], KeyError, "no object named 'b' among 1"),
    "no path": (
        lambda _p, _: ztensor.open(3),  # type: ignore[arg-type]
        TypeError, "cannot open this object: 3",
    ),
    "backend": (
        lambda p, _: ztensor.safe_open(p, "np", backend="read"),
        ValueError, "backend must be 'mmap' or 'pread', not 'read'",
    ),
    "a tree's reader": (
        lambda p, _: ztensor.training.LazyTree(p),
        TypeError,
        "reader must be a ztensor.Reader, not ",
    ),
    "fields of a record": (
        lambda _p, _: ztensor.training.Record("some.Class", [1]),  # type: ignore[arg-type]
        TypeError, "fields must be a mapping from names to values, not [1]",
    ),
    "a logical type": (
        lambda _p, _: ztensor.register_logical_type("f32"),  # type: ignore[arg-type]
        TypeError, "logical must be a ztensor.LogicalType, not 'f32'",
    ),
}  # fmt: skip
WRITES: dict[str, tuple[Callable[[Any, Any], object], type[Exception], str]] = {
    "progress": (
        lambda _, new: ztensor.numpy.save_file(X, new, progress=3),  # type: ignore[arg-type]
        TypeError, "progress must be a function, not 3",
    ),
    "no mapping": (
        lambda _, new: ztensor.numpy.save_file([1], new),  # type: ignore[arg-type]
        TypeError, "a mapping from names to arrays",
    ),
    "the path first": (
        lambda _, new: ztensor.numpy.save_file(str(new), X),  # type: ignore[arg-type]
        TypeError, "the tensors come first",
    ),
    "compression": (
        lambda _, new: ztensor.numpy.save_file(X, new, compression=99), ValueError, "99",
    ),
    "threads": (
        lambda _, new: ztensor.Writer(new, threads="2"),  # type: ignore[arg-type]
        ValueError, "threads must be a positive integer: '2'",
    ),
    "durable": (
        lambda _, new: ztensor.numpy.save_file(X, new, durable="never"),  # type: ignore[arg-type]
        ValueError, "durable must be True, False or 'auto', not 'never'",
    ),
    "deduplicate": (
        lambda _, new: ztensor.numpy.save_file(X, new, deduplicate="all"),  # type: ignore[arg-type]
        ValueError, "deduplicate must be 'memory', 'content' or False, not 'all'",
    ),
    "a conflict": (
        lambda p, new: ztensor.merge([p, p], new, on_conflict="any"),  # type: ignore[arg-type]
        ValueError, "on_conflict must be 'error', 'first' or 'last', not 'any'",
    ),
    "new names": (
        lambda p, _: ztensor.edit.rename_tensors(p, ["a"]),  # type: ignore[arg-type]
        TypeError, "names must be a mapping from old names to new ones, not ['a']",
    ),
    "parts of 2.x": (
        lambda _, new: ztensor.v2.Writer(new, canonical=False).add_object(
            "a", [2], ["data"], "x"  # type: ignore[arg-type]
        ),
        TypeError, "parts must be a mapping from roles to parts, not ['data']",
    ),
    "an option": (
        lambda _, new: ztensor.numpy.save_file(X, new, checksm=None),  # type: ignore[call-arg]
        TypeError, "checksm",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READS.values(), ids=READS)
def test_a_wrong_argument_of_a_read_is_named(
    path: Path, tmp_path: Path, case: tuple[Callable[[Any, Any], object], type[Exception], str]
) -> None:
    call, kind, says = case
    with pytest.raises(kind) as caught:
        call(path, tmp_path / "new.zt")
    assert says in str(caught.value)


@pytest.mark.parametrize("case", WRITES.values(), ids=WRITES)
def test_a_wrong_argument_of_a_write_leaves_the_files_as_they_are(
    path: Path, tmp_path: Path, case: tuple[Callable[[Any, Any], object], type[Exception], str]
) -> None:
    before = path.read_bytes()
    call, kind, says = case
    with pytest.raises(kind) as caught:
        call(path, tmp_path / "new.zt")
    assert says in str(caught.value)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.zt"]
