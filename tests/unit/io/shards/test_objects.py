"""Sets of files: what is opened, found by name, pickled and verified; parts without a root."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import SourceNotFoundError
from ztensor.io.shards.naming import shard_paths
from ztensor.numpy import save_file
from ztensor.typing import ShardedReader

ARRAYS = {name: np.full(1000, value, np.float32) for value, name in enumerate("abcd")}


def store() -> Any:
    return pytest.importorskip("obstore.store").MemoryStore()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two models: four shards with an index, and a split one of GGUF."""
    save_file(ARRAYS, tmp_path / "m.zt", max_shard_size="4KB")
    save_file({"a": ARRAYS["a"]}, tmp_path / "g-00001-of-00002.gguf")
    save_file({"b": ARRAYS["b"]}, tmp_path / "g-00002-of-00002.gguf")
    (tmp_path / "alone").mkdir()
    for number in (1, 2):
        name = f"m-0000{number}-of-00002.zt"
        save_file({str(number): ARRAYS["a"]}, tmp_path / "alone" / name)
    return tmp_path


SHARDS = [f"m-{number:05d}-of-00004.zt" for number in range(1, 5)]
GGUF = [f"g-{number:05d}-of-00002.gguf" for number in (1, 2)]
PLAIN = [f"alone/m-{number:05d}-of-00002.zt" for number in (1, 2)]
# The argument of open, and the local files of the set.
ON_DISK: dict[str, tuple[str | list[str], list[str]]] = {
    "an index": ("m.zt.index.json", ["m.zt.index.json", *SHARDS]),
    "a list": (SHARDS[:2], SHARDS[:2]),
    "a list of files of a folder": (PLAIN[:1], PLAIN[:1]),
    "a folder without an index": ("alone", PLAIN),
    "the first of GGUF": (GGUF[0], GGUF),
}


def opened(folder: Path, names: str | list[str]) -> ShardedReader:
    source = folder / names if isinstance(names, str) else [folder / name for name in names]
    reader = ztensor.open(source)
    assert isinstance(reader, ShardedReader)
    return reader


@pytest.mark.parametrize("what", ON_DISK)
@pytest.mark.wing
def test_a_copy_of_a_reader_opens_what_was_opened(folder: Path, what: str) -> None:
    """Not the folder instead of a file of it, or files by themselves instead of their folder."""
    with opened(folder, ON_DISK[what][0]) as reader, pickle.loads(pickle.dumps(reader)) as again:
        assert again.objects.name == reader.objects.name
        assert again.objects.set[:5] == reader.objects.set[:5]
        assert list(again) == list(reader)


@pytest.mark.parametrize(("count", "name"), [(1, SHARDS[0]), (3, f"{SHARDS[0]} and 2 more")])
@pytest.mark.wing
def test_a_list_has_the_name_of_its_first_file(folder: Path, count: int, name: str) -> None:
    with opened(folder, SHARDS[:count]) as reader:
        assert reader.objects.name == os.path.join(folder, name)


@pytest.mark.wing
def test_a_copy_of_a_reader_opens_the_url() -> None:
    memory = store()
    place = ztensor.Remote("memory:///x/m.zt", memory)
    save_file(ARRAYS, place, max_shard_size="4KB")
    with ztensor.open(ztensor.Remote("memory:///x/m.zt.index.json", memory)) as reader:
        source: Any = reader.objects.__reduce__()[1][0]
        assert source.name == "memory:///x/m.zt.index.json"


@pytest.mark.wing
def test_what_has_to_be_fetched_is_not_known_before(folder: Path) -> None:
    with opened(folder, "m.zt.index.json") as reader:
        assert reader.objects.is_known("a")
        assert reader["a"].shape == (1000,)
        assert reader.objects.is_known("a")
    memory = store()
    place = ztensor.Remote("memory:///x/m.zt", memory)
    save_file(ARRAYS, place, max_shard_size="4KB")
    with ztensor.open(ztensor.Remote("memory:///x/m.zt.index.json", memory)) as reader:
        assert not reader.objects.is_known("a")
        assert reader["a"].shape == (1000,)
        assert reader.objects.is_known("a")
        assert not reader.objects.is_known("d")


@pytest.mark.wing
@pytest.mark.parametrize("suffix", ["zt", "safetensors"])
def test_parts_of_processes_in_a_store_need_their_root(suffix: str) -> None:
    """Files of that name that are not parts of a distributed checkpoint are shards."""
    place = store()
    for number, name in enumerate("ab", 1):
        file = f"memory:///x/m-{number:05d}-of-00002.{suffix}"
        metadata = {"divided": "no part of one"} if suffix == "safetensors" else None
        save_file({name: ARRAYS[name]}, ztensor.Remote(file, place), metadata)
    with ztensor.open(ztensor.Remote("memory:///x/", place)) as reader:
        assert list(reader) == ["a", "b"]
    if suffix == "zt":
        part = ztensor.Remote("memory:///x/m-00002-of-00002.zt", place)
        save_file({"b": ARRAYS["b"]}, part, {"divided": "a part of one"})
        with pytest.raises(SourceNotFoundError) as caught:
            ztensor.open(ztensor.Remote("memory:///x/", place))
        assert caught.value.file == "memory:///x/checkpoint.zt"
        assert "ztensor repair" in str(caught.value.hint)


@pytest.mark.wing
def test_sets_behind_urls_have_different_tokens() -> None:
    """By their files: Dask treats values with equal tokens as equal."""
    memory, found = store(), []
    for folder in ("x", "y"):
        save_file(ARRAYS, ztensor.Remote(f"memory:///{folder}/m.zt", memory), max_shard_size="4KB")
        with ztensor.open(ztensor.Remote(f"memory:///{folder}/", memory)) as reader:
            found.append(reader.objects.identity())
            assert reader.objects.identity() == found[-1]
    assert found[0] != found[1]


THREE = {name: np.full(3, value, np.float32) for value, name in enumerate("abc")}


def saved(folder: Path, *names: str) -> list[Path]:
    for name, key in zip(names, THREE, strict=False):
        save_file({key: THREE[key]}, folder / name)
    return [folder / name for name in names]


@pytest.mark.wing
def test_the_url_of_the_first_of_gguf_means_all(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    names = [f"g-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for name, key in zip(names, THREE, strict=True):
        save_file({key: THREE[key]}, ztensor.Remote(f"memory:///x/{name}", store))
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


def test_only_files_that_hold_what_is_asked_for_are_looked_at(tmp_path: Path) -> None:
    save_file({name: np.ones(1000, "f4") for name in "abc"}, tmp_path / "m.zt", max_shard_size=4000)
    broken = tmp_path / shard_paths("m.zt", 3)[2]
    broken.write_bytes(broken.read_bytes()[:-9])
    with ztensor.open(tmp_path) as reader:
        for names, objects in (("a", 1), (["a", "b"], 2)):
            report = reader.verify(names)
            assert (report.objects, report.problems) == (objects, ())
        assert [one.path[0] for one in reader.verify("c").problems] == [str(broken)]
        assert [one.path[0] for one in reader.verify().problems] == [str(broken)]
