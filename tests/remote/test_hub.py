"""Files of a hub: read by ranges from the host it sends them to, which never gets the token."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.remote.conftest import Variables
from tests.remote.hub_server import TOKEN, HubServer
from tests.remote.range_server import RangeServer
from ztensor.errors import SourceNotFoundError, SourcePermissionError, UsageError
from ztensor.numpy import load_file, save_file

pytest.importorskip("obstore", reason="obstore reads URLs")
MODEL = {"w": np.arange(300_000.0), "b": np.ones(3, np.float32)}


@pytest.fixture(autouse=True)
def repositories(tmp_path: Path) -> None:
    for repo in ("org/open/main", "org/closed/main", "org/open/refs/pr/1"):
        (tmp_path / repo / "sub").mkdir(parents=True)
        save_file(MODEL, tmp_path / repo / "model.safetensors")
        save_file(MODEL, tmp_path / repo / "sub" / "model.zt")


def authorizations(server: HubServer | RangeServer) -> set[str | None]:
    return {one.headers.get("authorization") for one in server.record.seen}


@pytest.mark.parametrize(
    "url",
    [
        "hf://org/open/model.safetensors",
        "hf://org/open/sub/model.zt",
        "hf://org/open@main/model.safetensors",
        "hf://org/open@refs%2Fpr%2F1/model.safetensors",
    ],
)
def test_a_file_is_read_where_the_hub_sends_it(
    hub: HubServer, hub_files: RangeServer, url: str
) -> None:
    with ztensor.open(url) as reader:
        assert sorted(reader) == ["b", "w"]
        assert len(hub.record) <= 2
        assert (reader["w"] == MODEL["w"]).all()
        assert reader.verify().problems == ()
    assert authorizations(hub) == {None}
    assert all("range" in one.headers for one in hub_files.record.seen)


@pytest.mark.parametrize("way", ["HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "storage"])
def test_the_token_goes_to_the_hub_alone(
    hub: HubServer,
    hub_files: RangeServer,
    tmp_path: Path,
    variables: Variables,
    way: str,
) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    ways: dict[str, object] = {
        "HF_TOKEN": TOKEN, "HF_TOKEN_PATH": tmp_path / "token", "HF_HOME": tmp_path,
    }  # fmt: skip
    variables({way: ways[way]} if way in ways else {})
    storage = {"token": TOKEN} if way == "storage" else None
    with ztensor.open("hf://org/closed/model.safetensors", storage=storage) as reader:
        assert (reader["w"] == MODEL["w"]).all()
        assert TOKEN not in repr(reader)
        assert TOKEN.encode() not in pickle.dumps(reader)
    assert authorizations(hub) == {f"Bearer {TOKEN}"}
    assert authorizations(hub_files) == {None}


def test_without_a_token_it_says_what_is_missing(hub: HubServer, variables: Variables) -> None:
    with pytest.raises(SourcePermissionError, match="HF_TOKEN"):
        load_file("hf://org/closed/model.safetensors")
    variables({"HF_TOKEN": TOKEN, "HF_HUB_DISABLE_IMPLICIT_TOKEN": 1})
    with pytest.raises(SourcePermissionError, match="HF_TOKEN"):
        load_file("hf://org/closed/model.safetensors")
    with pytest.raises(SourcePermissionError) as caught:
        ztensor.open("hf://org/closed/model.safetensors", storage={"token": "hf_wrong"})
    assert "hf_wrong" not in str(caught.value)


def test_a_file_of_a_hub_is_kept_on_disk(
    hub: HubServer, hub_files: RangeServer, tmp_path: Path
) -> None:
    url = ztensor.Remote("hf://org/open/model.safetensors", cache=tmp_path / "kept")
    assert (load_file(url)["w"] == MODEL["w"]).all()
    hub_files.record.clear()
    assert (load_file(url)["w"] == MODEL["w"]).all()
    assert {one.method for one in hub_files.record.seen} == {"HEAD"}


def test_what_is_not_there(hub: HubServer) -> None:
    with pytest.raises(SourceNotFoundError):
        ztensor.open("hf://org/open/none.zt")
    for url in ("hf://org", "hf:///a/b/c"):
        with pytest.raises(UsageError):
            ztensor.open(url)
    with pytest.raises(UsageError):
        save_file(MODEL, "hf://org/open/new.zt")
