"""The table of formats: what it says of them is so, in the code and on the pages."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from ztensor.errors import ArgumentValueError
from ztensor.model.formats import (
    FORMATS,
    named_as,
    read_suffixes,
    require_ours,
    written_formats,
)
from ztensor.numpy import save_file

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \| yes \| (.*?) ?\| .*\|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_read_and_written_where_the_table_says(name: str) -> None:
    module = importlib.import_module(FORMATS[name].module)
    assert callable(module.project)
    assert hasattr(module, "export") == FORMATS[name].is_written


@pytest.mark.parametrize("name", FORMATS)
def test_the_page_has_a_row_of_each(name: str) -> None:
    one = FORMATS[name]
    words = (one.program, *(f"`{suffix}`" for suffix in one.suffixes))
    found = [bool(written) for row, written in ROWS if any(word in row for word in words)]
    assert one.is_written in found


@pytest.mark.parametrize("suffix", [s for all_of in written_formats().values() for s in all_of])
def test_a_suffix_that_is_written_is_in_the_docstring(suffix: str) -> None:
    assert suffix == ".zt" or f"`{suffix}`" in (save_file.__doc__ or "")


def test_no_suffix_is_of_two_formats() -> None:
    suffixes = read_suffixes()
    assert len(set(suffixes)) == len(suffixes)
    assert named_as("a/MODEL.H5") == "hdf5"
    assert named_as("model.bin") is None


def test_what_is_written_object_by_object_is_a_ztensor_file() -> None:
    require_ours("m.zt")
    require_ours("m.npz", format="zt")
    for path, format, found in (("a/m.npz", None, ".npz"), ("m.zt", "npz", "npz")):
        with pytest.raises(ArgumentValueError) as caught:
            require_ours(path, format)
        assert str(caught.value.found).strip("'") == found
        assert caught.value.hint is not None
        assert "save_file(tensors, path) writes npz" in caught.value.hint
