"""Folders behind URLs are models by the same rules as local folders."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
from tests.remote.conftest import Variables
from tests.remote.fault_proxy import Fault, FaultProxy
from tests.remote.hub_server import TOKEN, HubServer, entry
from tests.remote.range_server import RangeServer
from tests.unit.io.shards.test_folders import MEANT, SEVERAL
from ztensor import Remote
from ztensor.errors import (
    MissingDependencyError,
    SourceError,
    SourceNotFoundError,
    SourcePermissionError,
    UsageError,
)
from ztensor.ext import Store
from ztensor.numpy import load_file, save, save_file

if TYPE_CHECKING:
    from tests.remote.s3_server import S3Server

obstore = pytest.importorskip("obstore", reason="obstore reads URLs")
pytest.importorskip("huggingface_hub", reason="it lists folders of hubs")
SHARDED = {"a": np.arange(1000.0), "b": np.ones(1000)}
# Of these cases a server without lists cannot know.
NO_USUAL_NAME = (
    "shards of .bin, no index", "an index of .bin, of a variant", "one npz", "one gguf",
    "one file with no suffix", "one pt beside a file of no format",
)  # fmt: skip
PLACES = ("local store", "memory", "s3", "hub", "http")


class Kinds:
    """Places that have copies of a local folder.

    Args:
        top: a folder on disk that servers serve.
    """

    def __init__(self, top: Path, s3: S3Server, bucket: str, hub: HubServer, web: RangeServer):
        self.top, self.s3, self.bucket, self.hub, self.web = top, s3, bucket, hub, web

    def folder(self, kind: str, local: Path) -> Any:
        """Return the URL, with a slash at its end, of a copy of a folder below `top`."""
        name = local.relative_to(self.top).as_posix()
        if kind == "local store":
            return ztensor.Remote(f"file:///{name}/", obstore.store.LocalStore(self.top))
        if kind == "hub":
            return f"hf://{name.replace('/main', '', 1)}/"
        if kind == "http":
            return f"{self.web.url}/{name}/"
        store = obstore.store.MemoryStore()
        for path in sorted(local.rglob("*")):
            if path.is_file():
                key = f"{name}/{path.relative_to(local).as_posix()}"
                if kind == "memory":
                    obstore.put(store, key, path.read_bytes())
                else:
                    self.s3.put(self.bucket, key, path.read_bytes())
        if kind == "memory":
            return ztensor.Remote(f"memory:///{name}/", store)
        return ztensor.Remote(f"s3://{self.bucket}/{name}/", self.s3.storage())


@pytest.fixture
def kinds(
    tmp_path: Path, s3: S3Server, bucket: str, hub: HubServer, hub_files: RangeServer
) -> Kinds:
    return Kinds(tmp_path, s3, bucket, hub, hub_files)


def made(folder: Path, fills: list[Callable[[Path], object]]) -> Path:
    folder.mkdir(parents=True)
    for fill in fills:
        fill(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLACES)
def test_what_a_local_folder_means(kinds: Kinds, kind: str) -> None:
    for number, (what, (fills, value)) in enumerate(MEANT.items()):
        if kind in ("s3", "memory") and number % 4:
            continue  # a store like the others
        if "bin" in what or "pt" in what.split():
            pytest.importorskip("torch")
        local = made(kinds.top / f"org/m{number}/main", fills)
        place = kinds.folder(kind, local)
        if kind == "http" and what in NO_USUAL_NAME:
            with pytest.raises(SourceNotFoundError, match="name a file"):
                ztensor.open(place)
            continue
        with ztensor.open(place) as reader:
            assert isinstance(reader, ztensor.io.ShardedReader)
            name = next(iter(reader))
            assert reader[name][0] == value, what


@pytest.mark.parametrize("kind", [kind for kind in PLACES if kind != "http"])
def test_of_several_models_the_error_names_each(kinds: Kinds, kind: str) -> None:
    for number, (what, (fills, named, error)) in enumerate(SEVERAL.items()):
        place = kinds.folder(kind, made(kinds.top / f"org/s{number}/main", fills))
        with pytest.raises(error) as caught:
            ztensor.open(place)
        assert caught.value.hint is not None, what
        assert all(name in caught.value.hint for name in named), what
        assert "://" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLACES)
def test_shards_by_their_folder_and_by_the_name_they_had_whole(kinds: Kinds, kind: str) -> None:
    local = kinds.top / "org/sharded/main"
    local.mkdir(parents=True)
    save_file(SHARDED, local / "model.zt", max_shard_size=8000)
    assert not (local / "model.zt").exists()
    folder = kinds.folder(kind, local)
    remote = folder if isinstance(folder, Remote) else Remote(folder)
    bare = Remote(remote.url.rstrip("/"), remote.storage)
    for place in (remote, *([] if kind == "http" else [bare]), remote.beside("model.zt")):
        with ztensor.open(place) as reader:
            assert isinstance(reader, ztensor.io.ShardedReader)
            assert (reader["a"] == SHARDED["a"]).all()
            if kind in ("hub", "http"):
                with pickle.loads(pickle.dumps(reader)) as again:
                    assert (again["b"] == SHARDED["b"]).all()
        assert (load_file(place)["b"] == SHARDED["b"]).all()
        with ztensor.io.ShardedReader(place) as reader:
            assert len(reader) == 2
    with pytest.raises(SourceNotFoundError):
        ztensor.open(remote.beside("other.zt"))
    with pytest.raises(SourceNotFoundError):
        ztensor.open(remote.beside("other/"))


def test_a_folder_deeper_in_a_repository(kinds: Kinds) -> None:
    local = kinds.top / "org/deep/v1/a/b"
    local.mkdir(parents=True)
    save_file(SHARDED, local / "model.safetensors")
    for url in ("hf://org/deep@v1/a/b", "hf://org/deep@v1/a/b/"):
        assert sorted(load_file(url)) == ["a", "b"]
    assert all("/v1" in one.path for one in kinds.hub.record.seen)


def test_a_list_takes_the_token_to_the_hub_alone(kinds: Kinds, variables: Variables) -> None:
    save_file(SHARDED, made(kinds.top / "org/closed/main", []) / "model.safetensors")
    with pytest.raises(SourcePermissionError, match="HF_TOKEN"):
        ztensor.open("hf://org/closed")
    assert sorted(ztensor.open("hf://org/closed", storage={"token": TOKEN})) == ["a", "b"]
    variables({"HF_TOKEN": TOKEN})
    assert sorted(ztensor.open("hf://org/closed")) == ["a", "b"]
    assert all("authorization" not in one.headers for one in kinds.web.record.seen)


def test_a_redirected_list_takes_no_token_to_another_host(
    kinds: Kinds, variables: Variables
) -> None:
    made(kinds.top / "org/moved/main", [])
    with FaultProxy(kinds.hub.url) as proxy:
        # Another host: `localhost` is not `127.0.0.1`.
        other = f"http://localhost:{kinds.web.port}"
        proxy.faults = [Fault("redirected", path="/tree/", count=None, to=other)]
        variables({"HF_ENDPOINT": proxy.url, "HF_TOKEN": TOKEN})
        with pytest.raises(SourceNotFoundError):
            ztensor.open("hf://org/moved")
        assert "authorization" in proxy.record.seen[0].headers
    assert kinds.web.record.seen
    assert not any("authorization" in one.headers for one in kinds.web.record.seen)


def test_a_list_of_many_pages_leaves_names_out_that_lead_elsewhere(kinds: Kinds) -> None:
    folder = made(kinds.top / "org/pages/main", [])
    for number in range(7):
        (folder / f"note-{number}.txt").write_text("x")
    save_file(SHARDED, folder / "z.zt")
    for path in ("../x.zt", "a/../../x.zt", "http://elsewhere/x.zt", ".zt"):
        kinds.hub.entries.append(entry(path))
    assert sorted(ztensor.open("hf://org/pages")) == ["a", "b"]
    assert kinds.hub.record.seen[0].path.partition("?")[0].endswith("/tree/main")
    assert len(kinds.hub.record) == 6 + 2


HOSTILE_LISTS: list[bytes] = [b"", b"{", b"[1]", b'[{"type": "file"}]', b"[" * 100_000]


@pytest.mark.parametrize("body", HOSTILE_LISTS, ids=[repr(body[:20]) for body in HOSTILE_LISTS])
def test_an_answer_that_is_not_a_list(kinds: Kinds, body: bytes) -> None:
    made(kinds.top / "org/odd/main", [])
    kinds.hub.body = body
    with pytest.raises(SourceError):
        ztensor.open("hf://org/odd/")


@pytest.mark.slow  # makes a list of 100,001 entries
def test_a_list_ends_at_a_limit(kinds: Kinds) -> None:
    made(kinds.top / "org/odd/main", [])
    kinds.hub.page = 10_000
    kinds.hub.entries = [entry(f"{number}.txt") for number in range(100_001)]
    with pytest.raises(UsageError, match="name a file"):
        ztensor.open("hf://org/odd/")


def test_without_huggingface_hub_a_folder_names_what_to_install(
    kinds: Kinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file(SHARDED, made(kinds.top / "org/bare/main", []) / "model.safetensors")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert sorted(load_file("hf://org/bare/model.safetensors")) == ["a", "b"]
    for url in ("hf://org/bare", "hf://org/bare/", "hf://org/bare@main"):
        with pytest.raises(MissingDependencyError, match="pip install"):
            ztensor.open(url)


@pytest.mark.slow
def test_a_store_that_forbids_lists(kinds: Kinds, proxy: FaultProxy) -> None:
    local = made(kinds.top / "org/closed/main", [])
    save_file(SHARDED, local / "model.zt", max_shard_size=8000)
    folder = Remote(kinds.folder("s3", local).url, kinds.s3.storage(proxy.url))
    proxy.faults = [Fault("403", path="list-type", count=None)]
    assert sorted(load_file(folder)) == ["a", "b"]
    with pytest.raises(SourcePermissionError):
        ztensor.open(folder.beside("none/"))


def test_how_many_requests(kinds: Kinds) -> None:
    local = made(kinds.top / "org/count/main", [])
    save_file(SHARDED, local / "model.safetensors")
    with ztensor.open("hf://org/count") as reader:
        assert len(reader) == 2
    assert len(kinds.hub.record) == 3  # the list, and the file's head and end
    kinds.web.record.clear()
    with pytest.raises(SourceNotFoundError):
        ztensor.open(f"{kinds.web.url}/none.zt")
    # The object, the root of a divided checkpoint, an index: no folder is looked for.
    assert len(kinds.web.record) <= 5


def test_a_server_has_no_lists() -> None:
    folder = Remote("https://host/f/")
    ready = Remote("https://host/", obstore.store.HTTPStore("https://host/"))
    assert [Store.of(place.url).listed(place) for place in (folder, ready)] == [None, None]


def test_odd_names_in_a_folder_are_left_out() -> None:
    store = obstore.store.MemoryStore()
    for name in ("odd:name.zt", "per%cent.zt", "new\\line.zt", "f/x.zt", "f"):
        obstore.put(store, f"a/{name}", b"x")
    obstore.put(store, "a/m.zt", save(SHARDED))
    with ztensor.open(Remote("memory:///a/", store)) as reader:
        assert sorted(reader) == ["a", "b"]


def test_a_file_url_of_a_folder(tmp_path: Path) -> None:
    save_file(SHARDED, tmp_path / "model.zt", max_shard_size=8000)
    for url in (tmp_path.as_uri(), tmp_path.as_uri() + "/"):
        with ztensor.open(url) as reader:
            assert isinstance(reader, ztensor.io.ShardedReader)
            assert sorted(reader) == ["a", "b"]
