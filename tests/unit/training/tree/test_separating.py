"""Equal tensors that a file stores once are one memory only where the tree says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.training.tree.alike import assert_alike
from ztensor.numpy import load_file, save_file


def _canonical(path: Path) -> Path:
    ztensor.compact(path, canonical=True)
    return path


def _converted(path: Path) -> Path:
    ztensor.convert(path, path.with_name("new.zt"), version="2.1", canonical=True)
    return path.with_name("new.zt")


def _saved(path: Path) -> Path:
    with ztensor.open(path) as reader:
        attributes = reader.attributes
    new = path.with_name("new.zt")
    save_file(load_file(path), new, attributes, deduplicate="content", version="2.1")
    return new


def _shared(path: Path) -> Path:
    new = path.with_name("new.zt")
    with ztensor.open(path) as reader, ztensor.Writer(new, attributes=reader.attributes) as writer:
        writer.write("a", reader["a"])
        for name in list(reader)[1:]:
            writer.share(name, "a")
    return new


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("rewritten", [_canonical, _converted, _saved, _shared])
def test_no_rewrite_of_a_file_makes_one_memory_of_two_states(
    tmp_path: Path, rewritten: Callable[[Path], Path], copy: bool
) -> None:
    tied = np.zeros(1 << 15)
    tree = {"a": tied, "b": np.zeros(1 << 15), "list": [np.zeros(1 << 15)], "tied": tied}
    ztensor.save_tree(tree, tmp_path / "state.zt", version="2.1")
    path = rewritten(tmp_path / "state.zt")
    assert path.stat().st_size < 3 * tied.nbytes  # it is stored once
    found = ztensor.load_tree(path, copy=copy)
    assert_alike(found, tree)
    assert found["tied"] is found["a"]
    found["a"][:] = 1
    assert not found["b"].any()
    assert not found["list"][0].any()
