"""Which store and key a URL means, and that no secret is shown or pickled."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import ztensor
import ztensor.numpy as znumpy
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MissingDependencyError,
    UsageError,
)
from ztensor.io.source.urls import Remote, with_storage
from ztensor.remote.urls import place_of

pytest.importorskip("obstore")

KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "wJalrXUtnFEMI"}
PLACES = [
    ("s3://bucket/a/m.zt", KEYS, "a/m.zt"),
    ("S3://bucket/m?x", KEYS, "m?x"),
    ("gs://bucket/a", {"skip_signature": True}, "a"),
    ("az://box/a", {"account_name": "acc", "skip_signature": True}, "a"),
    ("abfs://box@acc.dfs.core.windows.net/a/b", {"skip_signature": True}, "a/b"),
    ("https://host/a/b?sig=1", {}, ""),
]


@pytest.mark.parametrize(("url", "storage", "key"), PLACES)
def test_the_key_of_a_url(url: str, storage: dict[str, Any], key: str) -> None:
    place = place_of(Remote(url, storage))
    assert place.key == key
    assert "sig=1" not in place.name


@pytest.mark.parametrize("url", ["s3://", "az:///k", "https://"])
def test_a_url_that_names_nothing(url: str) -> None:
    with pytest.raises(ArgumentValueError, match="names no"):
        ztensor.open(url)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["s3://bucket", "gs://b/", "s3://b/folder/", "hf://org/repo"])
def test_a_folder_where_one_object_is_meant(url: str) -> None:
    for use in (ztensor.Reader, lambda url: znumpy.save_file({}, url)):
        with pytest.raises(UsageError, match=r"folder|not written"):
            use(url)


def test_an_option_that_is_none_of_the_stores() -> None:
    with pytest.raises(ArgumentValueError, match="'nonsense'") as caught:
        ztensor.open("s3://bucket/key", storage={"nonsense": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_storage_goes_with_a_url(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError):
        ztensor.open(tmp_path / "m.zt", storage={})
    with pytest.raises(ArgumentTypeError, match="a dict of options"):
        ztensor.open("s3://b/k", storage=5)  # type: ignore[arg-type]
    assert with_storage(["s3://b/k"], KEYS)[0].storage is KEYS


def test_no_secret_is_shown_or_pickled() -> None:
    remote = Remote("s3://bucket/m.zt", {**KEYS, "AWS_REGION": "eu-west-1", "token": "t0ken"})
    for shown in (repr(remote), str(pickle.dumps(remote)), str(place_of(remote))):
        assert not any(secret in shown for secret in (*KEYS.values(), "t0ken"))
    assert pickle.loads(pickle.dumps(remote)).storage == {"AWS_REGION": "eu-west-1"}
    hidden = Remote(
        "https://host/m", {"client_options": {"default_headers": {"a": "s3cret"}, "timeout": "9s"}}
    )
    assert pickle.loads(pickle.dumps(hidden)).storage == {"client_options": {"timeout": "9s"}}
    for url in ("https://host/m?sig=s3cret", "https://me:s3cret@host/m"):
        assert "s3cret" not in repr(Remote(url))
        assert "s3cret" not in ztensor.SourceError("no", file=url).told()
        with pytest.raises(UsageError, match="not pickled") as caught:
            pickle.dumps(Remote(url))
        assert "s3cret" not in str(caught.value)


def test_a_store_that_is_ready_is_not_pickled() -> None:
    from obstore.store import MemoryStore

    with pytest.raises(UsageError, match="not pickled"):
        pickle.dumps(Remote("memory:///m.zt", MemoryStore()))


def test_what_lies_beside() -> None:
    assert Remote("s3://b/a/x.json").beside("c d/y.zt").url == "s3://b/a/c d/y.zt"
    assert Remote("https://h/a/x.json").beside("c d").url == "https://h/a/c%20d"
    with pytest.raises(UsageError, match="signed"):
        Remote("https://h/a/x.json?sig=1").beside("y")


def test_a_file_url_is_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.zt"
    znumpy.save_file({"w": [1, 2]}, path)
    with ztensor.open(path.as_uri()) as reader:
        assert reader["w"].tolist() == [1, 2]
    with pytest.raises(ArgumentValueError, match="of this machine"):
        ztensor.open("file://elsewhere/m.zt")


def test_memory_needs_its_store() -> None:
    with pytest.raises(ArgumentValueError, match="storage="):
        ztensor.open("memory:///m.zt")


def test_what_is_given_again_takes_the_place_of_what_was(tmp_path: Path) -> None:
    remote = with_storage("s3://b/k", KEYS, tmp_path / "a")
    assert (remote.storage, remote.cache) == (KEYS, str(tmp_path / "a"))
    other = with_storage(remote, {"region": "x"})
    assert (other.storage, other.cache) == ({"region": "x"}, remote.cache)
    other = with_storage(remote, None, tmp_path / "b")
    assert (other.storage, other.cache) == (KEYS, str(tmp_path / "b"))
    assert with_storage(remote, None) is remote


def test_no_cache_is_told_from_one_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert with_storage("s3://b/k", {}).cache is None
    assert with_storage("s3://b/k", None, "").cache == ""
    assert with_storage("s3://b/k", None, "kept").cache == str(tmp_path / "kept")
    assert with_storage("s3://b/k", None, ".").cache == str(tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"storage": {}}, "storage= and cache="), ({"cache": "kept"}, "storage= and cache=")],
)
def test_what_is_no_url_takes_neither(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentValueError, match=says):
        ztensor.open("m.zt", **options)


def test_a_ready_store_of_a_server_has_what_lies_beneath_its_url() -> None:
    from obstore.store import HTTPStore, S3Store

    store = HTTPStore("https://host/a")
    assert place_of(Remote("https://host/a/b%20c/m.zt", store)).key == "b c/m.zt"
    with pytest.raises(ArgumentValueError, match="no query"):  # it may choose the object
        place_of(Remote("https://host/a/m.zt?x=1", store))
    with pytest.raises(ArgumentValueError, match="another place"):
        place_of(Remote("https://host/b/m.zt", store))
    s3 = S3Store("bucket", region="x", skip_signature=True)
    assert place_of(Remote("https://host/a/m.zt", s3)).key == "a/m.zt"


@pytest.mark.parametrize(
    ("options", "variables", "is_asked"),
    [
        ({}, {}, True),
        ({"skip_signature": True}, {}, False),
        ({"AWS_ACCESS_KEY_ID": "k", "secret_access_key": "s"}, {}, False),
        ({"region": "x"}, {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}, False),
        ({"region": "x"}, {}, True),
    ],
)
def test_a_profile_is_asked_where_no_keys_are_given(
    options: dict[str, Any],
    variables: dict[str, str],
    is_asked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "ZTENSOR_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)  # as if boto3 were missing
    if is_asked:
        with pytest.raises(MissingDependencyError, match="boto3"):
            place_of(Remote("s3://bucket/k", options))
    else:
        assert place_of(Remote("s3://bucket/k", options)).key == "k"


def test_the_variable_is_of_the_clouds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZTENSOR_STORAGE", "nonsense=1")
    with pytest.raises(ArgumentValueError, match="nonsense"):
        place_of(Remote("gs://bucket/k"))
    assert place_of(Remote("https://host/k")).key == "k"
