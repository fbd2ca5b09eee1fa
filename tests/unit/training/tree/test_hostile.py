"""Files of trees that were made to cost much, given to all that looks into them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import FormatError, LimitError
from ztensor.ext import ENCODINGS, cbor
from ztensor.numpy import save_file
from ztensor.training.tree.columns import Node

MILLION = 1_000_000
_KEY = "k" * 300_000


def u64(values: Any) -> bytes:
    return np.array(values, "<u8").tobytes()


def u32(values: Any) -> bytes:
    return np.array(values, "<u4").tobytes()


def texts(*words: str) -> dict[str, bytes]:
    return {"text": "".join(words).encode(), "text_lengths": u32([len(word) for word in words])}


def leaves(count: int) -> dict[str, bytes]:
    """Return a list of one tensor over and over."""
    return {
        "kinds": bytes([Node.LIST]) + bytes([Node.LEAF]) * count,
        "counts": u64([count] + [0] * count),
        "words": u32([0] * count),
        "leaves": u32([1]),
        **texts("", "a"),
    }


def levels(count: int) -> dict[str, bytes]:
    return {
        "kinds": bytes([Node.LIST]) * count + bytes([Node.LEAF]),
        "counts": u64([1] * count + [0]),
        "words": u32([0]),
        "leaves": u32([1]),
        **texts("", "a"),
    }


def long_keys(count: int) -> dict[str, bytes]:
    """Return dicts in dicts, each under the same long key: no path may have all of them."""
    return {
        "kinds": bytes([Node.TEXT_DICT]) * count + bytes([Node.LEAF]),
        "counts": u64([1] * count + [0]),
        "words": u32([0] * count + [1]),
        "leaves": u32([2]),
        **texts(_KEY, "", "a"),
    }


SHAPES: dict[str, Callable[[], dict[str, bytes]]] = {
    "a million leaves": lambda: leaves(MILLION),
    "a million levels": lambda: levels(MILLION),
    "thousands of levels": lambda: levels(5_000),
    "long keys": lambda: long_keys(1_000),
    "a list of more than there is": lambda: {"kinds": bytes([Node.LIST]), "counts": u64([1 << 62])},
    "records of nothing": lambda: {
        "kinds": bytes([Node.LIST]) + bytes([Node.RECORD]) * 2_000,
        "counts": u64([2_000] + [0] * 2_000),
        "words": u32([0] * 4_000),
        **texts("type"),
    },
}
CALLS: dict[str, Callable[[Path], object]] = {
    "load": ztensor.load_tree,
    "load a part": lambda path: ztensor.load_tree(path, only="a.*"),
    "open": lambda path: len(ztensor.open_tree(path)),
    "diff": lambda path: ztensor.diff(path, path.with_name("other.zt")),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_small_file_costs_little_or_is_refused(tmp_path: Path, shape: str) -> None:
    raw = cbor.encode(SHAPES[shape]())
    stored = b"".join(ENCODINGS["zstd"].encode(memoryview(raw), level=3))
    attribute = {"version": 1, "shape": stored, "encoding": "zstd", "length": len(raw)}
    path = tmp_path / "state.zt"
    save_file({"a": np.zeros(4)}, path, {"tree": attribute})
    ztensor.save_tree({"a": np.zeros(4), "b": 1}, path.with_name("other.zt"))
    assert path.stat().st_size < 200_000
    outcomes = {}
    for name, call in CALLS.items():
        tracemalloc.start()
        try:
            call(path)
            outcomes[name] = "done"
        except (FormatError, LimitError) as error:
            outcomes[name] = type(error).__name__
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 256 << 20, (name, peak)
    if shape.startswith("a million"):
        assert set(outcomes.values()) - {"done"} == {LimitError.__name__}


def test_ten_thousand_levels_are_saved_and_loaded(tmp_path: Path) -> None:
    tree: Any = {"w": np.arange(3)}
    for level in range(10_000):
        tree = {"next": tree} if level % 2 else [tree]
    ztensor.save_tree(tree, tmp_path / "state.zt")
    found = ztensor.load_tree(tmp_path / "state.zt")
    for level in reversed(range(10_000)):
        found = found["next"] if level % 2 else found[0]
    assert found["w"].tolist() == [0, 1, 2]
    with ztensor.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, tree)
