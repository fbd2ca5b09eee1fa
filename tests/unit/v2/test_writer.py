"""The writer of the 2.x releases accepts and refuses the same arguments as release 2.1.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import v2
from ztensor.errors import ArgumentValueError

NO_BYTES = {"dtype": "f32", "data": b""}
WORDS = {"u1": "u8", "u2": "u16", "i4": "i32", "u4": "u32", "i8": "i64", "u8": "u64"}
ONE = np.ones(3, "f4")


def written(path: Path, shape: list[int], parts: Any, layout: str = "dense", **how: Any) -> None:
    with v2.Writer(path, **{"canonical": False, **how}) as writer:
        writer.add_object("a", shape, parts, layout)


def part(values: Any, dtype: str) -> dict[str, Any]:
    return {"dtype": WORDS[dtype], "data": np.array(values, dtype)}


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("layout", ["dense", "zt.sparse_coo/1", "x.odd/1"])
@pytest.mark.parametrize(
    "shape",
    [[0, 1 << 62], [1 << 63, 0], [0, (1 << 64) - 1], [0, 1 << 62, 1 << 62], [0] * 64],
    ids=str,
)
def test_nothing_is_written_in_every_shape_of_the_format(
    shape: list[int], layout: str, canonical: bool, tmp_path: Path
) -> None:
    parts = {"data": NO_BYTES}
    if layout == "zt.sparse_coo/1":
        parts = {"values": NO_BYTES, "coords": {"dtype": "u32", "data": b""}}
    written(tmp_path / "a.zt", shape, parts, layout, canonical=canonical)
    with v2.open(tmp_path / "a.zt") as source:
        assert source["a"].shape == shape
        source.verify(deep=True)
        if layout == "dense" and len(shape) < 64:  # more than NumPy holds
            handle: Any = source["a"]
            with pytest.raises(ValueError, match="larger than"):
                np.from_dlpack(handle)


@pytest.mark.parametrize("shape", [[1] * 65, [0] * 65, [0, 1 << 64], [-1]], ids=str)
@pytest.mark.parametrize("layout", ["dense", "x.odd/1"])
def test_shapes_that_the_format_has_not_are_wrong_arguments(
    layout: str, shape: list[int], tmp_path: Path
) -> None:
    data = bytes(0 if 0 in shape else 4)
    with pytest.raises(ValueError, match=r"dimension|number|shape") as caught:
        written(tmp_path / "a.zt", shape, {"data": {"dtype": "f32", "data": data}}, layout)
    assert isinstance(caught.value, ztensor.errors.UsageError)
    assert not (tmp_path / "a.zt").exists()


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("count", range(6))
def test_values_that_share_a_byte_may_be_odd_in_number(
    count: int, canonical: bool, tmp_path: Path
) -> None:
    packed = bytes([0x21] * (count // 2) + [0x01] * (count % 2))
    values = {"dtype": "u8", "logical": "f4_e2m1", "data": packed}
    places, ends = list(range(count)), [0, count]
    rows = {"values": values, "indices": part(places, "u4"), "indptr": part(ends, "u4")}
    points = {"values": values, "coords": part([0] * count + places, "u8")}
    with v2.Writer(tmp_path / "a.zt", canonical=canonical) as writer:
        writer.add_object("points", [1, 9], points, "zt.sparse_coo/1")
        writer.add_object("rows", [1, 9], rows, "zt.sparse_csr/1")
    with v2.open(tmp_path / "a.zt") as source:
        assert source["rows"]["values"].tobytes() == packed
        assert source["points"]["values"].tobytes() == packed
    with ztensor.open(tmp_path / "a.zt") as reader:
        expected = [0.5 if place % 2 == 0 else 1 for place in places] + [0] * (9 - count)
        for name in reader:
            assert reader.read(name).to_dense().astype("f4").tolist() == [expected]
        assert reader.verify(deep=True).outcome == "ok"
        assert ztensor.numpy.save(dict(reader.items()), version="2.1")


@pytest.mark.parametrize("ends", WORDS)
@pytest.mark.parametrize("columns", WORDS)
def test_indices_are_kept_or_refused_and_never_others(
    columns: str, ends: str, tmp_path: Path
) -> None:
    parts = {
        "values": {"dtype": "f32", "data": ONE},
        "indices": part([0, 1, 1], columns),
        "indptr": part([0, 2, 3], ends),
    }
    if columns == ends and columns in ("u4", "u8"):
        written(tmp_path / "a.zt", [2, 2], parts, "zt.sparse_csr/1")
        with v2.open(tmp_path / "a.zt") as source:
            assert source["a"]["indices"].dtype == source["a"]["indptr"].dtype == WORDS[ends]
        return
    with pytest.raises(ArgumentValueError) as caught:
        written(tmp_path / "a.zt", [2, 2], parts, "zt.sparse_csr/1")
    assert caught.value.object_name == "a"
    assert not (tmp_path / "a.zt").exists()


@pytest.mark.parametrize("canonical", [False, True])
def test_append_and_publish_exclude_each_other_before_a_file_is_looked_for(
    canonical: bool, tmp_path: Path
) -> None:
    with pytest.raises(ArgumentValueError):
        v2.Writer(tmp_path / "none.zt", canonical=canonical, append=True, publish=True)


@pytest.mark.parametrize("given", [None, {}, {"step": 3}])
def test_attributes_are_none_only_where_nothing_is_said(
    given: dict[str, Any] | None, tmp_path: Path
) -> None:
    with v2.Writer(tmp_path / "a.zt") as writer:
        writer.add("a", ONE, [3], "f32")
        if given is not None:
            writer.set_attributes(given)
    with v2.open(tmp_path / "a.zt") as source:
        assert source.attributes == given
