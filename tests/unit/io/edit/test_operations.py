"""Each change as a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import (
    ArgumentValueError,
    ObjectNotFoundError,
)
from ztensor.testing.builder import VALUES, build

SPARSE = ztensor.Tensor(
    {
        "indices": np.array([1, 0], np.int32),
        "indptr": np.array([0, 1, 2], np.int64),
        "values": np.array([3, 4], np.float32),
    },
    shape=(2, 2),
    format="sparse_csr",
)


@pytest.fixture(params=["1.1.0", "1.2.0"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Give the builder's file."""
    file = tmp_path / "m.zt"
    file.write_bytes(build(request.param))
    return file


def values(path: Path) -> dict[str, Any]:
    with ztensor.open(path) as reader:
        assert reader.verify().ok
        return {name: reader.read(name).to_dense().tolist() for name in reader}


REPLACEMENTS: dict[str, tuple[Any, Any]] = {
    "same shape": (np.zeros((2, 3), np.int32), [[0] * 3] * 2),
    "larger": (np.ones((50, 60), np.int32), [[1] * 60] * 50),
    "smaller": (np.int32(7), 7),
    "empty": (np.zeros((0, 4)), []),
    "another type": (np.array([2], np.float16), [2]),
    "another layout": (SPARSE, [[0, 3], [4, 0]]),
    "not contiguous": (np.arange(12).reshape(3, 4).T[::2], [[0, 4, 8], [2, 6, 10]]),
    "byte-swapped": (np.arange(3, dtype=">i8"), [0, 1, 2]),
    "a list": ([1, 2, 3], [1, 2, 3]),
}


@pytest.mark.wing
@pytest.mark.parametrize("options", [{}, {"atomic": True}, {"durable": False}, {"compression": 3}])
@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_anything_takes_the_place_of_a_tensor(
    path: Path, kind: str, options: dict[str, Any]
) -> None:
    data, expected = REPLACEMENTS[kind]
    for name in ("matrix", "rows"):  # of which one is sparse
        assert ztensor.edit.replace_tensor(path, name, data, **options) == path.stat().st_size
        assert values(path)[name] == expected
    rest = {name: value for name, value in values(path).items() if name not in ("matrix", "rows")}
    assert rest == {name: value for name, value in VALUES.items() if name in rest}


@pytest.mark.wing
@pytest.mark.parametrize(
    "names",
    [
        lambda: "matrix",
        lambda: ["matrix"],
        lambda: {"matrix", "rows"},
        lambda: iter(["matrix"]),
        lambda: list(VALUES),
    ],
    ids=["text", "list", "set", "iterator", "all"],
)
@pytest.mark.parametrize("output", [None, "m.zt", "rest.zt"])
def test_names_are_removed_or_the_rest_is_copied(
    path: Path, tmp_path: Path, names: Callable[[], Any], output: str | None
) -> None:
    before = path.read_bytes()
    gone = {names()} if isinstance(names(), str) else set(names())
    target = path if output is None else tmp_path / output
    size = ztensor.edit.remove_tensors(path, output and target, names())
    assert size == target.stat().st_size
    assert values(target) == {name: VALUES[name] for name in VALUES if name not in gone}
    assert (path.read_bytes() == before) is (output == "rest.zt")
    with ztensor.open(target) as reader:
        assert reader.attributes == {"made for": "tests"}
    with ztensor.Editor(target) as writer:
        writer.write("first", np.arange(3))
    assert values(target)["first"] == [0, 1, 2]


@pytest.mark.parametrize("output", [None, "out.zt"])
@pytest.mark.wing
def test_names_that_cannot_be_removed(path: Path, tmp_path: Path, output: str | None) -> None:
    before = path.read_bytes()
    target = None if output is None else tmp_path / output
    with pytest.raises(ObjectNotFoundError):
        ztensor.edit.remove_tensors(path, target, ["matrix", "missing"])
    with pytest.raises(ArgumentValueError):
        ztensor.edit.remove_tensors(path, names=[])
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.zt"]
    ztensor.edit.remove_tensors(path, tmp_path / "copy.zt", [])  # nothing is left out of the copy
    assert values(tmp_path / "copy.zt") == VALUES
