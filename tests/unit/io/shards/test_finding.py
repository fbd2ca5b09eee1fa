"""Finding sets of files: lists, and models that are split by name only."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import ztensor
from ztensor.numpy import save_file

ARRAYS = {name: np.full(3, value, np.float32) for value, name in enumerate("abc")}


def saved(folder: Path, *names: str) -> list[Path]:
    for name, key in zip(names, ARRAYS, strict=False):
        save_file({key: ARRAYS[key]}, folder / name)
    return [folder / name for name in names]


@pytest.mark.wing
def test_the_url_of_the_first_of_gguf_means_all(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    names = [f"g-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for name, key in zip(names, ARRAYS, strict=True):
        save_file({key: ARRAYS[key]}, ztensor.Remote(f"memory:///x/{name}", store))
    with ztensor.open(ztensor.Remote(f"memory:///x/{names[0]}", store)) as reader:
        assert list(reader) == ["a", "b", "c"]
        assert reader.objects.name == f"memory:///x/{names[0]}"
    with ztensor.open(ztensor.Remote(f"memory:///x/{names[1]}", store)) as reader:
        assert list(reader) == ["b"]


@pytest.mark.skipif(os.name == "nt", reason="no file is called so there")
@pytest.mark.wing
def test_a_line_break_in_a_name_splits_no_model(tmp_path: Path) -> None:
    (file,) = saved(tmp_path, "a\nb-00001-of-00002.gguf")
    with ztensor.open(file) as reader:
        assert list(reader) == ["a"]
        assert reader.objects.paths == (str(file),)
