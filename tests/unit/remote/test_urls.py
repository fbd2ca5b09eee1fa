"""The store and key of a URL; no secret is shown or pickled."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import ztensor
import ztensor.numpy as znumpy
from tests.remote.conftest import Variables
from ztensor import Remote
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MissingDependencyError,
    UsageError,
)
from ztensor.io.source.urls import with_storage
from ztensor.remote.urls import place_of

pytest.importorskip("obstore")

KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "wJalrXUtnFEMI"}
PLACES = [
    ("s3://bucket/a/m.zt", KEYS, "a/m.zt"),
    ("S3://bucket/m?x", KEYS, "m?x"),
    ("gs://bucket/a", {"skip_signature": True}, "a"),
    ("gcs://bucket/a", {"skip_signature": True}, "a"),
    ("az://box/a", {"account_name": "acc", "skip_signature": True}, "a"),
    ("abfs://box@acc.dfs.core.windows.net/a/b", {"skip_signature": True}, "a/b"),
    ("https://host/a/b?sig=1", {}, ""),
]


@pytest.mark.parametrize(("url", "storage", "key"), PLACES)
def test_the_key_of_a_url(url: str, storage: dict[str, Any], key: str) -> None:
    place = place_of(Remote(url, storage))
    assert place.key == key
    assert "sig=1" not in place.name


@pytest.mark.parametrize("url", ["s3://", "az:///k", "https://", "memory:///m.zt"])
def test_a_url_that_names_nothing(url: str) -> None:
    with pytest.raises(ArgumentValueError, match=r"names no|storage="):
        ztensor.open(url)


@pytest.mark.parametrize("url", ["s3://bucket", "gs://b/", "s3://b/folder/", "hf://org/repo"])
def test_a_folder_in_place_of_an_object(url: str) -> None:
    for use in (ztensor.Reader, lambda url: znumpy.save_file({}, url)):
        with pytest.raises(UsageError, match=r"folder|not written"):
            use(url)


def test_an_unknown_option_of_a_store() -> None:
    with pytest.raises(ArgumentValueError, match="'nonsense'") as caught:
        ztensor.open("s3://bucket/key", storage={"nonsense": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_storage_and_cache_go_with_a_url() -> None:
    each: list[dict[str, Any]] = [{"storage": {}}, {"cache": "kept"}, {"storage_options": {}}]
    for options in each:
        with pytest.raises(ArgumentValueError, match="need a URL"):
            ztensor.open("m.zt", **options)
    with pytest.raises(ArgumentTypeError, match="a dict of options"):
        ztensor.open("s3://b/k", storage=5)  # type: ignore[arg-type]
    assert with_storage(["s3://b/k"], KEYS)[0].storage is KEYS


# As s3fs, gcsfs, adlfs and fsspec's HTTP file system take them; and by obstore's names.
SPELLINGS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("s3://b/k", {}, {}),
    ("s3://b/k", {"key": None, "anon": False}, {}),
    ("s3://b/k", {"anon": True, "requester_pays": True},
     {"skip_signature": True, "request_payer": True}),
    ("s3a://b/k", {"key": "s3cret", "secret": "s3cret", "token": "s3cret"},
     {"access_key_id": "s3cret", "secret_access_key": "s3cret", "session_token": "s3cret"}),
    ("s3://b/k", {"client_kwargs": {"endpoint_url": "http://h:1", "region_name": "eu"}},
     {"endpoint": "http://h:1", "region": "eu"}),
    ("s3://b/k", {"endpoint_url": "http://h:1", "client_kwargs": {"verify": False}},
     {"endpoint": "http://h:1", "client_options": {"allow_invalid_certificates": True}}),
    ("gs://b/k", {"token": "anon"}, {"skip_signature": True}),
    ("gcs://b/k", {"token": "google_default"}, {}),
    ("gs://b/k", {"token": "anon", "endpoint_url": "http://h:1"},
     {"skip_signature": True, "base_url": "http://h:1"}),
    ("az://b/k", {"account_name": "a", "account_key": "czNjcmV0"},
     {"account_name": "a", "account_key": "czNjcmV0"}),
    ("abfs://b/k", {"account_name": "a", "sas_token": "?sv=1&sig=s3cret"},
     {"account_name": "a", "sas_key": "?sv=1&sig=s3cret"}),
    ("az://b/k",
     {"connection_string": "AccountName=a;AccountKey=czNjcmV0MQ==;BlobEndpoint=http://h:1/a;X=y"},
     {"account_name": "a", "account_key": "czNjcmV0MQ==", "endpoint": "http://h:1/a"}),
    ("https://h/k", {"headers": {"authorization": "s3cret"}},
     {"client_options": {"default_headers": {"authorization": "s3cret"}}}),
    ("https://h/k", {"client_kwargs": {"headers": {"a": "s3cret"}}},
     {"client_options": {"default_headers": {"a": "s3cret"}}}),
    ("hf://org/repo/k", {"token": "s3cret"}, {"token": "s3cret"}),
]  # fmt: skip


@pytest.mark.parametrize(("url", "options", "expected"), SPELLINGS)
def test_options_as_fsspec_has_them(
    url: str, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    remote = Remote(url, storage_options=options)
    assert remote.storage == expected
    assert remote.beside("m.zt").storage == expected
    shown = [repr(remote), str(pickle.dumps(remote))]
    assert place_of(remote).store is not None  # the store knows them
    assert not any(secret in text for text in shown for secret in ("s3cret", "czNjcmV0"))


@pytest.mark.parametrize(
    ("url", "options", "error", "text"),
    [
        ("s3://b/k", {"regoin": "s3cret"}, ArgumentValueError, "'regoin', expected one of key, "),
        ("s3://b/k", {"client_kwargs": {"x": "s3cret"}}, ArgumentValueError, "client_kwargs.x"),
        ("az://b/k", {"connection_string": "s3cret"}, ArgumentValueError, "connection_string"),
        ("gs://b/k", {"token": "s3cret"}, ArgumentValueError, "'anon'"),
        ("s3://b/k", {"profile": "none of ours"}, ArgumentValueError, "profile"),
        ("s3://b/k", ["s3cret"], ArgumentTypeError, "a dict"),
        ("s3://b/k", {"client_kwargs": ["s3cret"]}, ArgumentTypeError, "a dict"),
        ("s3://b/k", {"client_kwargs": "s3cret"}, ArgumentTypeError, "a dict"),
        ("gs://b/k", {"token": {"private_key": b"s3cret"}}, ArgumentValueError, "JSON"),
        ("gs://b/k", {"token": {("s3cret",): 1}}, ArgumentValueError, "JSON"),
        ("m.zt", {"anon": True}, ArgumentValueError, "a URL"),
    ],
)
def test_options_that_fsspec_has_not(
    url: str, options: Any, error: type[Exception], text: str, variables: Variables
) -> None:
    variables({"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull})
    with pytest.raises(error) as caught:
        ztensor.open(url, storage_options=options)
    assert text in str(caught.value)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ArgumentValueError, match="not both"):
        ztensor.open(url, storage={}, storage_options=options)


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


def test_urls_beside_another() -> None:
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


def test_later_options_replace_earlier_ones(tmp_path: Path) -> None:
    remote = with_storage("s3://b/k", KEYS, tmp_path / "a")
    assert (remote.storage, remote.cache) == (KEYS, str(tmp_path / "a"))
    other = with_storage(remote, {"region": "x"})
    assert (other.storage, other.cache) == ({"region": "x"}, remote.cache)
    other = with_storage(remote, None, tmp_path / "b")
    assert (other.storage, other.cache) == (KEYS, str(tmp_path / "b"))
    assert with_storage(remote, None) is remote


@pytest.mark.parametrize("cache", [None, "", "kept", "."])
def test_a_relative_cache_is_in_the_working_folder(cache: str | None) -> None:
    expected = str(Path.cwd() / cache) if cache else cache
    assert with_storage("s3://b/k", {}, cache).cache == expected


def test_a_ready_store_of_a_server_has_the_paths_below_its_url() -> None:
    from obstore.store import HTTPStore, S3Store

    store = HTTPStore("https://host/a")
    assert place_of(Remote("https://host/a/b%20c/m.zt", store)).key == "b c/m.zt"
    with pytest.raises(ArgumentValueError, match="no query"):  # it may choose the object
        place_of(Remote("https://host/a/m.zt?x=1", store))
    with pytest.raises(ArgumentValueError, match="another place"):
        place_of(Remote("https://host/b/m.zt", store))
    s3 = S3Store("bucket", region="x", skip_signature=True)
    assert place_of(Remote("https://host/a/m.zt", s3)).key == "a/m.zt"


NO_KEYS: dict[str, dict[str, Any]] = {"nothing": {}, "a region": {"region": "x"}}
KEYS_ARE_GIVEN: dict[str, dict[str, Any]] = {
    "unsigned": {"skip_signature": True},
    "names as the environment has them": {"AWS_ACCESS_KEY_ID": "k", "secret_access_key": "s"},
}


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch, variables: Variables) -> None:
    """Set a profile of AWS and nothing else, without boto3."""
    others = [name for name in os.environ if name.startswith(("AWS_", "ZTENSOR_"))]
    variables({**dict.fromkeys(others), "AWS_PROFILE": "unknown"})
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)


def test_a_profile_is_used_if_no_keys_are_given(profile: None, variables: Variables) -> None:
    for options in NO_KEYS.values():
        with pytest.raises(MissingDependencyError, match="boto3"):
            place_of(Remote("s3://bucket/k", options))
    for options in KEYS_ARE_GIVEN.values():
        assert place_of(Remote("s3://bucket/k", options)).key == "k"
    variables({"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"})
    assert place_of(Remote("s3://bucket/k", {"region": "x"})).key == "k"


@pytest.mark.parametrize("options", ["nonsense=1", "nonsense"])
def test_options_in_the_environment_are_for_clouds_alone(
    variables: Variables, options: str
) -> None:
    variables({"ZTENSOR_STORAGE": options})
    assert place_of(Remote("https://host/k")).key == "k"
    with pytest.raises(ArgumentValueError, match=r"nonsense|ZTENSOR_STORAGE"):
        place_of(Remote("gs://bucket/k"))


URLS = ["s3://b/m.zt", "gs://b/m.zt", "az://b/m.zt", "https://h/m.zt", "hf://o/r/m.zt", "hf://o/r"]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("door", [ztensor.open, znumpy.load_file, ztensor.Reader])
def test_a_url_without_the_library_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, url: str, door: Any
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)  # as if it was not installed
    with pytest.raises(MissingDependencyError, match="pip install"):
        door(url)


@pytest.mark.parametrize("how", ["option", "AWS_ENDPOINT_URL"])
def test_an_endpoint_without_a_scheme_is_an_argument(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000" if how != "option" else "")
    storage = {"endpoint": "localhost:9000"} if how == "option" else None
    with pytest.raises(ztensor.UsageError, match="http://"):
        ztensor.open("s3://bucket/m.zt", storage=storage)


@pytest.mark.parametrize("url", ["memory://m.zt", "simplecache::memory://m.zt"])
def test_a_url_that_only_fsspec_knows_is_read_by_its_file_object(url: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/m.zt", znumpy.save({"w": [1, 2]}))
    with fsspec.open(url) as file, ztensor.open(file) as reader:
        assert reader["w"].tolist() == [1, 2]
