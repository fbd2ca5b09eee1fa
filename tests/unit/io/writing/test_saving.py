"""Dicts, and arrays like others before: the same file as for objects one by one."""

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
from ztensor.numpy import load, load_file, save, save_file

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


# --- Arrays like others before ------------------------------------------------------------------

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
# Arrays that a version cannot hold.
MISSING = {"1.1.0": {"packed"}, "0.1.0": {"tiny", "packed", "complex"}}


def written(options: dict[str, Any], **own: Any) -> bytes:
    """Return a file with each array three times."""
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


def test_options_of_an_object_hold_for_it_alone() -> None:
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


def test_each_bool_of_2_1_is_0_or_1() -> None:
    with ztensor.Writer(io.BytesIO(), version="2.1") as writer:
        writer.write("a", np.array([True, False]))
        with pytest.raises(ztensor.FormatError):
            writer.write("b", np.array([1, 2], np.uint8).view(np.bool_))


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
