"""Dicts: the same file as for objects one by one, and arrays stored once."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ztensor
from tests.extent import examples
from ztensor.errors import NotRepresentableError
from ztensor.numpy import load_file, save, save_file

DTYPES = ["f4", ">f4", "?", "i1", "u8", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


def one_by_one(tensors: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with ztensor.Writer(buffer, **options) as writer:
        for name in sorted(tensors):
            writer.write(name, tensors[name])
    return buffer.getvalue()


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    shape = draw(st.sampled_from([(), (3,), (0, 2), (5, 7), (64,), (1, 1 << 14)]))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    value = np.full(shape, draw(st.integers(0, 3))).astype(dtype)
    return value.T if draw(st.booleans()) else value


@settings(max_examples=examples(200))
@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), arrays()),
    st.sampled_from(["2.1", "1.2.0", "1.1.0", "0.1.0"]),
    st.sampled_from([True, "sha256", None]),
    st.sampled_from([False, True]),
)
def test_the_bytes_are_those_of_the_writer(
    tensors: dict[str, Any], version: str, checksum: str | None, compression: bool
) -> None:
    options: dict[str, Any] = {
        "version": version, "checksum": checksum, "compression": compression
    }  # fmt: skip
    try:
        expected = one_by_one(tensors, **options)
    except NotRepresentableError as error:  # 0.1.0 has no fp8, 2.1 not all names
        with pytest.raises(NotRepresentableError, match=re.escape(str(error)[-40:])):
            save(tensors, deduplicate=False, **options)
    else:
        assert save(tensors, deduplicate=False, **options) == expected


# --- Arrays stored once -------------------------------------------------------------------------

BASE = np.arange(600, dtype=np.float32)
LARGE = np.zeros(1 << 18)
TWINS: dict[str, tuple[Any, Any]] = {
    "one object": (BASE, BASE),
    "two views": (BASE[10:20], BASE[10:20]),
    "a NaN first": (np.array([np.nan, 1]),) * 2,
    "bfloat16": (np.ones(4, ml_dtypes.bfloat16),) * 2,
    "a scalar": (np.array(3.0),) * 2,
    "large": (LARGE, LARGE),
    "in columns": (np.asfortranarray(BASE.reshape(20, 30)),) * 2,
}
EQUAL: dict[str, tuple[Any, Any]] = {
    "equal bytes": (np.zeros(9), np.zeros(9)),
    "another byte order": (np.zeros(9), np.zeros(9, ">f8")),
    "equal and large": (LARGE, LARGE.copy()),
}
OTHERS: dict[str, tuple[Any, Any]] = {
    "another type": (BASE, BASE.view("i4")),
    "another shape": (BASE, BASE.reshape(2, 300)),
    "neighbours": (BASE[:8], BASE[8:16]),
    "other strides": (BASE.reshape(2, 300)[:, ::3], BASE[:200].reshape(2, 100)),
    "empty": (BASE[:0], BASE[:0]),
}


@pytest.mark.parametrize(
    ("version", "checksum"),
    [("0.1.0", True), ("1.1.0", None), ("1.2.0", "sha256"), ("1.2.0", True), ("2.1", None)],
)
@pytest.mark.parametrize("by", ["memory", "content"])
@pytest.mark.parametrize("case", TWINS | EQUAL | OTHERS)
def test_twins_are_stored_once(
    tmp_path: Path, case: str, version: str, by: Any, checksum: Any
) -> None:
    """Equal bytes are twins only where contents are compared."""
    pair = (TWINS | EQUAL | OTHERS)[case]
    count = 700 if version == "1.2.0" else 0  # more than are written in one go
    padding = {f"n{i}": np.full(9, i + 1.0) for i in range(count)}
    path, options = tmp_path / "m.zt", {"version": version, "checksum": checksum}
    shared = save_file({"a": pair[0], "b": pair[1], **padding}, path, deduplicate=by, **options)
    is_twin = case in TWINS or (case in EQUAL and by == "content")
    assert shared == ({"b": "a"} if is_twin else {})
    with ztensor.open(path) as reader:
        if pair[0].size:
            assert (reader.location("a") == reader.location("b")) is is_twin
        assert reader["b"].tobytes() == pair[1].astype(reader["b"].dtype).tobytes()
        assert not reader.verify(["a", "b"]).problems


def test_arrays_that_a_mapping_makes_on_request_are_not_twins(tmp_path: Path) -> None:
    """Their addresses are used again as soon as they are gone."""
    save_file({f"n{i}": np.full(9, i % 2) for i in range(600)}, tmp_path / "m.zt")
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert save(reader) == (tmp_path / "m.zt").read_bytes()
    assert save_file(MappingProxyType({"a": BASE, "b": BASE}), tmp_path / "m.zt") == {"b": "a"}
    save_file({f"t{i}": np.full(5000, i) for i in range(9)}, tmp_path / "a.zt", compression=True)
    with ztensor.open(tmp_path / "a.zt") as reader:
        assert save_file(reader, tmp_path / "b.zt") == {}
    assert all(
        (array == int(name[1:])).all() for name, array in load_file(tmp_path / "b.zt").items()
    )
