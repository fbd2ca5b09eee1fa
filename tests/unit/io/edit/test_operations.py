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
    "another type": (np.array(["NaN"], float).astype(np.float16) * 0 + 2, None),
    "another layout": (SPARSE, [[0, 3], [4, 0]]),
    "not contiguous": (np.arange(12).reshape(3, 4).T[::2], [[0, 4, 8], [2, 6, 10]]),
    "byte-swapped": (np.arange(3, dtype=">i8"), [0, 1, 2]),
    "a list": ([1, 2, 3], [1, 2, 3]),
}


@pytest.mark.wing
@pytest.mark.parametrize("options", [{}, {"atomic": True}, {"durable": False}, {"compression": 3}])
@pytest.mark.parametrize("kind", list(REPLACEMENTS))
def test_anything_takes_the_place_of_a_tensor(
    path: Path, kind: str, options: dict[str, Any]
) -> None:
    data, expected = REPLACEMENTS[kind]
    assert ztensor.edit.replace_tensor(path, "matrix", data, **options) == path.stat().st_size
    found = values(path)
    if expected is not None:
        assert found["matrix"] == expected
    rest = {name: value for name, value in found.items() if name != "matrix"}
    assert rest == {name: value for name, value in VALUES.items() if name != "matrix"}


@pytest.mark.wing
def test_a_tensor_of_another_layout_is_replaced_by_an_array(path: Path) -> None:
    ztensor.edit.replace_tensor(path, "rows", np.eye(2))
    assert values(path)["rows"] == [[1, 0], [0, 1]]


@pytest.mark.wing
@pytest.mark.parametrize(
    "names",
    [lambda: "matrix", lambda: ["matrix"], lambda: {"matrix", "rows"}, lambda: iter(["matrix"])],
    ids=["text", "list", "set", "iterator"],
)
def test_names_are_removed(path: Path, names: Callable[[], Any]) -> None:
    assert ztensor.edit.remove_tensors(path, names=names()) == path.stat().st_size
    left = values(path)
    assert "matrix" not in left
    assert left == {name: VALUES[name] for name in left}


def test_all_names_are_removed(path: Path) -> None:
    ztensor.edit.remove_tensors(path, names=list(VALUES))
    assert values(path) == {}
    with ztensor.Editor(path) as writer:
        writer.write("first", np.arange(3))
    assert values(path) == {"first": [0, 1, 2]}


@pytest.mark.wing
@pytest.mark.parametrize("durable", ["auto", True, False])
def test_the_rest_goes_into_another_file(path: Path, tmp_path: Path, durable: Any) -> None:
    before = path.read_bytes()
    output = tmp_path / "rest.zt"
    size = ztensor.edit.remove_tensors(path, output, ["matrix", "rows"], durable=durable)
    assert size == output.stat().st_size
    assert path.read_bytes() == before
    assert values(output) == {
        name: value for name, value in VALUES.items() if name not in ("matrix", "rows")
    }
    with ztensor.open(output) as reader:
        assert reader.attributes == {"made for": "tests"}


@pytest.mark.wing
def test_the_rest_may_replace_the_file_itself(path: Path) -> None:
    ztensor.edit.remove_tensors(path, path, ["matrix"])
    assert "matrix" not in values(path)


@pytest.mark.parametrize("output", [None, "out.zt"])
def test_names_that_cannot_be_removed(path: Path, tmp_path: Path, output: str | None) -> None:
    before = path.read_bytes()
    target = None if output is None else tmp_path / output
    with pytest.raises(ObjectNotFoundError):
        ztensor.edit.remove_tensors(path, target, ["matrix", "missing"])
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.zt"]


def test_removing_nothing_is_a_copy_or_a_mistake(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ArgumentValueError):
        ztensor.edit.remove_tensors(path, names=[])
    assert path.read_bytes() == before
    ztensor.edit.remove_tensors(path, tmp_path / "copy.zt", [])
    with ztensor.open(path) as old, ztensor.open(tmp_path / "copy.zt") as new:
        assert set(old.keys()) == set(new.keys())
