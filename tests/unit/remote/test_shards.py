"""Shards behind a URL: beside an older set they have other names until its index is replaced."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ztensor
from ztensor.numpy import save_file

FILES = 3
FIRST = re.compile(r"m-\d{5}-of-\d{5}\.zt")
LATER = re.compile(r"m-\d{5}-of-\d{5}\.[0-9a-f]{8}\.zt")


def test_shards_have_other_names_only_beside_an_older_set() -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    obstore = pytest.importorskip("obstore")
    place = ztensor.Remote("memory:///x/m.zt", store)
    for value, pattern in ((0, FIRST), (1, LATER), (2, LATER)):
        arrays = {f"{number}": np.full(1000, value, "f4") for number in range(FILES)}
        save_file(arrays, place, max_shard_size="4KB")
        names = [one["path"].removeprefix("x/") for one in obstore.list(store).collect()]
        names.remove("m.zt.index.json")
        assert len(names) == FILES
        assert all(pattern.fullmatch(name) for name in names)
        with ztensor.open(ztensor.Remote("memory:///x/", store)) as reader:
            assert all((reader[name] == value).all() for name in reader)
