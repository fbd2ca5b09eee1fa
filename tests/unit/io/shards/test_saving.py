"""Saving a dict: the format of a file that has no name, and options that only one format has."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentValueError
from ztensor.numpy import save_file

ARRAYS = {"a": np.arange(6.0), "b": np.ones(3)}


@pytest.mark.wing
@pytest.mark.parametrize(
    ("format", "expected"), [(None, "zt"), *((one, one) for one in ("zt", "safetensors", "npz"))]
)
def test_a_file_without_a_name_has_the_format_that_is_asked_for(
    format: str | None, expected: str
) -> None:
    file = io.BytesIO()
    save_file(ARRAYS, file, format=format)
    with ztensor.open(file.getvalue()) as reader:
        assert reader.format == expected
        assert reader["a"].tolist() == ARRAYS["a"].tolist()


@pytest.mark.wing
@pytest.mark.parametrize("size", [None, "40"])
def test_a_version_is_refused_where_the_format_has_none(tmp_path: Path, size: str | None) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(ArgumentValueError, match="version"):
        save_file(ARRAYS, path, version="1.1.0", max_shard_size=size)
    assert not list(tmp_path.iterdir())
    save_file(ARRAYS, path, version="1.2.0", max_shard_size=size)  # the default
    with ztensor.open(tmp_path) as reader:
        assert set(reader) == {"a", "b"}
