"""What a reader holds as plain arrays: which there are, what they are called, and what is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import ztensor
import ztensor.numpy
from ztensor.formats.parts import Part, parts_of
from ztensor.io.reading.reader import ObjectReader

UNKNOWN = Path(__file__).parents[2] / "corpus" / "spec" / "0.1.0" / "unknown_values.zt"
CSR = ztensor.Tensor.csr(np.ones(2, np.float32), [1, 3], [0, 1, 2], (2, 4))

Losses = list[tuple[str | None, str]]


def parts(reader: ObjectReader) -> tuple[dict[str, Part], Losses]:
    """Return the arrays by their names, and what is lost."""
    lost: Losses = []
    found = parts_of(reader, lambda name, what: lost.append((name, what)))
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}, lost


def saved(tensors: dict[str, Any]) -> ztensor.Reader:
    return ztensor.open(ztensor.numpy.save(tensors))


def test_components_beside_the_data_of_a_dense_object_are_told_and_kept() -> None:
    both = ztensor.Tensor(
        {"data": np.zeros((2, 3), np.int16), "mask": np.ones(6, np.uint8)}, shape=(2, 3)
    )
    with saved({"a": both}) as reader:
        found, lost = parts(reader)
    assert {name: one.shape for name, one in found.items()} == {"a": (2, 3), "a.mask": (6,)}
    assert lost == [("a", "components beside 'data' become arrays of their own: 'mask'")]


def test_a_name_that_another_component_has_is_not_given_again() -> None:
    """`a` has a component `b.c`, and `a.b` a component `c`."""
    tensors = {
        "a": ztensor.Tensor({"data": np.zeros(1), "b.c": np.zeros(3)}, shape=(1,)),
        "a.b": ztensor.Tensor({"data": np.zeros(1), "c": np.zeros(2)}, shape=(1,)),
    }
    with saved(tensors) as reader:
        found, lost = parts(reader)
    assert {name: one.object_name for name, one in found.items()} == {
        "a": "a",
        "a.b.c": "a",
        "a.b": "a.b",
    }
    assert ("a.b", "component 'c' is left out: 'a.b.c' is taken") in lost


def test_what_nothing_tells_the_bytes_of_is_left_out() -> None:
    with ztensor.open(UNKNOWN) as reader:
        found, lost = parts(reader)
    assert sorted(found) == ["good", "good2"]
    left = {name: what for name, what in lost if "left out" in what}
    assert sorted(map(str, left)) == ["odd_dtype", "odd_encoding", "odd_layout"]
    assert "the layout is unknown" in left["odd_layout"]


STORED = {
    "bits": (ml_dtypes.bfloat16, (2, 3), (2, 3)),
    "bytes": (ml_dtypes.float8_e4m3fn, (2, 3), (2, 3)),
    "halves of a byte": (ml_dtypes.float4_e2m1fn, (2, 3), (3,)),
    "pairs": (np.complex64, (2, 3), (2, 3, 2)),
    "one pair": (np.complex128, (), (2,)),
    "plain": (np.float32, (2, 3), (2, 3)),
}
