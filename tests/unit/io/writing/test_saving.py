"""Whole dicts at once: what is written together is what the writer writes one by one."""

from __future__ import annotations

import io
import os
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
from ztensor.errors import ArgumentTypeError, NotRepresentableError, SourceError
from ztensor.io.writing.saving import save_all
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
    st.sampled_from(["1.2.0", "1.1.0", "0.1.0"]),
    st.sampled_from(["crc32c", "sha256", None]),
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
    except NotRepresentableError as error:  # 0.1.0 has no fp8
        with pytest.raises(NotRepresentableError, match=re.escape(str(error)[-40:])):
            save(tensors, deduplicate=False, **options)
    else:
        assert save(tensors, deduplicate=False, **options) == expected


@pytest.mark.slow
def test_thousands_of_many_kinds(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {
        f"é{i}": np.full((i % 7, 3), i % 100).astype(DTYPES[i % 8]) for i in range(3000)
    }
    tensors["large"] = np.zeros(1 << 20)
    save_file(tensors, tmp_path / "m.zt", deduplicate=False)
    assert (tmp_path / "m.zt").read_bytes() == one_by_one(tensors)
    for copy in (False, True):
        found = load_file(tmp_path / "m.zt", copy=copy)
        assert list(found) == sorted(tensors)
        for name, value in found.items():
            assert value.tobytes() == tensors[name].astype(value.dtype).tobytes(), name


# --- Arrays stored once -----------------------------------------------------------------------

BASE = np.arange(600, dtype=np.float32)
TWINS: dict[str, dict[str, Any]] = {
    "one object": dict.fromkeys("ab", BASE),
    "two views": {"a": BASE[10:20], "b": BASE[10:20]},
    "a NaN first": dict.fromkeys("ab", np.array([np.nan, 1])),
    "bfloat16": dict.fromkeys("ab", np.ones(4, ml_dtypes.bfloat16)),
    "a scalar": dict.fromkeys("ab", np.array(3.0)),
    "large": dict.fromkeys("ab", np.zeros(1 << 18)),
    "in columns": dict.fromkeys("ab", np.asfortranarray(BASE.reshape(20, 30))),
}


@pytest.mark.parametrize("checksum", ["crc32c", "sha256", None])
@pytest.mark.parametrize("tensors", TWINS.values(), ids=TWINS)
def test_twins_are_stored_once(tensors: dict[str, Any], checksum: str | None) -> None:
    padding = {f"n{i}": np.full(9, i) for i in range(700)}  # more than one batch
    first = {"0" + name: -value for name, value in padding.items()}
    buffer = io.BytesIO()
    assert save_all({**tensors, **padding, **first}, buffer, None, checksum=checksum) == {"b": "a"}
    with ztensor.open(buffer.getvalue()) as reader:
        assert reader.location("a") == reader.location("b")
        assert reader["b"].tobytes() == tensors["b"].tobytes()


NO_TWINS: dict[str, dict[str, Any]] = {
    "equal bytes": {"a": np.zeros(9), "b": np.zeros(9)},
    "another type": {"a": BASE, "b": BASE.view("i4")},
    "another shape": {"a": BASE, "b": BASE.reshape(2, 300)},
    "neighbours": {"a": BASE[:8], "b": BASE[8:16]},
    "other strides": {"a": BASE.reshape(2, 300)[:, ::3], "b": BASE[:200].reshape(2, 100)},
    "empty": {"a": BASE[:0], "b": BASE[:0]},
}


@pytest.mark.parametrize("checksum", ["crc32c", None])
@pytest.mark.parametrize("tensors", NO_TWINS.values(), ids=NO_TWINS)
def test_others_are_not(tensors: dict[str, Any], checksum: str | None) -> None:
    buffer = io.BytesIO()
    assert save_all(tensors, buffer, None, checksum=checksum) == {}
    found = load(buffer.getvalue())
    assert {name: found[name].tobytes() for name in found} == {
        name: value.tobytes() for name, value in tensors.items()
    }


@pytest.mark.parametrize("checksum", ["crc32c", None])
def test_equal_bytes_are_told_by_content(checksum: str | None) -> None:
    tensors = {"a": np.zeros(9), "b": np.zeros(9), "c": np.zeros(9, ">f8"), "d": np.zeros(1 << 18)}
    shared = save_all(tensors, io.BytesIO(), None, deduplicate="content", checksum=checksum)
    assert shared == {"b": "a", "c": "a"}


def test_a_mapping_that_makes_its_arrays(tmp_path: Path) -> None:
    save_file({f"n{i}": np.full(9, i % 2) for i in range(600)}, tmp_path / "m.zt")
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert save(reader) == (tmp_path / "m.zt").read_bytes()
    kept = MappingProxyType({"a": BASE, "b": BASE})
    assert save_all(kept, io.BytesIO(), None) == {"b": "a"}


# --- What cannot be ---------------------------------------------------------------------------


def test_a_name_that_is_no_text() -> None:
    with pytest.raises(ArgumentTypeError, match="name is text"):
        save({"a": BASE, 3: BASE})  # type: ignore[dict-item]


@pytest.mark.parametrize("value", [BASE[:4], np.zeros(1 << 18)], ids=["small", "large"])
def test_a_name_that_is_no_utf8(value: Any) -> None:
    with pytest.raises(NotRepresentableError, match="lone surrogate"):
        save({"a": BASE[:3], "b\ud800": value})


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    save_file({"a": BASE}, tmp_path / "m.zt")
    before = (tmp_path / "m.zt").read_bytes()
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(SourceError, match="No space left"):
        save_file({f"n{i}": np.full(9, i) for i in range(50)}, tmp_path / "m.zt")
    assert (tmp_path / "m.zt").read_bytes() == before
    assert os.listdir(tmp_path) == ["m.zt"]


def test_metadata_are_the_attributes_of_the_file() -> None:
    pairs = {"a": 1, "b": "two"}
    made = [save({}, metadata=pairs), save({}, pairs)]
    assert len({*made}) == 1
    with ztensor.open(made[0]) as reader:
        assert reader.attributes == pairs
    with ztensor.open(save({})) as reader:
        assert reader.attributes == {}


def test_progress_counts_the_bytes_of_all_tensors(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {"a": np.ones(3), "b": np.ones((1000, 100)), "c": np.ones(5, np.int8)}
    told: list[tuple[int, int]] = []
    save_file(tensors, tmp_path / "m.zt", progress=lambda *numbers: told.append(numbers))
    total = sum(array.nbytes for array in tensors.values())
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert {whole for _, whole in told} == {total}
