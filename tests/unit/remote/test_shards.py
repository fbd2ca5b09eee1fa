"""Shards behind a URL: beside an older set they have other names until its index is replaced."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import ztensor
from ztensor import v2
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


def test_of_a_root_by_its_url_no_folder_is_searched(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    obstore = pytest.importorskip("obstore")
    base, root = tmp_path / "base.zt", tmp_path / "m.zt"
    save_file({"w": np.arange(9)}, base, version="2.1", alignment=4096)
    with v2.Writer(root, canonical=False) as writer:
        writer.add_shard("s", base)
        writer.link("s")
    place = ztensor.Remote("memory:///x/m.zt", store)
    for name, path in (("x/m.zt", root), ("x/renamed.zt", base)):
        obstore.put(store, name, path.read_bytes())
    with pytest.raises(ztensor.FormatError) as caught:
        ztensor.open(place)
    assert caught.value.reason is ztensor.Reason.SHARD_FILE
    away = ztensor.Remote("memory:///x/renamed.zt", store)
    found = iter((base, away, str(base), base.read_bytes()))
    for _ in range(4):
        with ztensor.open(place, resolver=lambda _: next(found)) as reader:
            assert reader["w"].tolist() == list(range(9))
            assert reader.verify(deep=True).ok
    with ztensor.open(root, resolver=lambda _: away) as reader:  # a root on disk
        assert reader["w"].tolist() == list(range(9))
    obstore.put(store, "x/m-s.zt", base.read_bytes())
    with ztensor.open(place) as reader:
        assert reader["w"].tolist() == list(range(9))
