"""Stores that are kept: the same for the same place, options, process and environment alone."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from ztensor.io.source.urls import Remote
from ztensor.remote import stores
from ztensor.remote.stores import store_of
from ztensor.remote.urls import place_of


class Made:
    """A store that counts how many there are."""

    count = 0

    def __init__(self, place: str, **options: Any) -> None:
        Made.count += 1
        self.place, self.options = place, options


@pytest.fixture(autouse=True)
def _none_kept() -> Iterator[None]:
    stores._kept.clear()
    Made.count = 0
    yield
    stores._kept.clear()


OPTIONS: dict[str, Any] = {
    "region": "x",
    "client_options": {"timeout": "30s", "allow_http": True},
    "retry_config": {"max_retries": 4, "retry_timeout": datetime.timedelta(seconds=1)},
}


def test_the_same_store_is_given_again() -> None:
    first = store_of(Made, "bucket", OPTIONS)
    assert store_of(Made, "bucket", dict(reversed(OPTIONS.items()))) is first
    assert first.options == OPTIONS


@pytest.mark.parametrize(
    "other",
    [
        {**OPTIONS, "region": "y"},
        {**OPTIONS, "secret_access_key": "s"},
        {**OPTIONS, "client_options": {"timeout": "30s", "allow_http": 1}},
        {**OPTIONS, "client_options": {"timeout": "30s"}},
        {**OPTIONS, "retry_config": {"max_retries": 4, "retry_timeout": datetime.timedelta(1)}},
    ],
)
def test_other_options_are_another_store(other: dict[str, Any]) -> None:
    assert store_of(Made, "bucket", OPTIONS) is not store_of(Made, "bucket", other)


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "https_proxy", "SSL_CERT_FILE"])
def test_another_environment_is_another_store(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(name, raising=False)
    first = store_of(Made, "bucket", OPTIONS)
    monkeypatch.setenv(name, "new")
    assert store_of(Made, "bucket", OPTIONS) is not first
    monkeypatch.delenv(name)
    assert store_of(Made, "bucket", OPTIONS) is first


def test_other_places_kinds_and_processes_are_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Made):
        pass

    first = store_of(Made, "bucket", OPTIONS)
    assert store_of(Made, "other", OPTIONS) is not first
    assert store_of(Other, "bucket", OPTIONS) is not first
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert store_of(Made, "bucket", OPTIONS) is not first


def test_a_provider_of_credentials_is_asked_anew() -> None:
    options = {**OPTIONS, "credential_provider": lambda: None}
    assert store_of(Made, "bucket", options) is not store_of(Made, "bucket", options)
    assert not stores._kept


HTTP = [
    ("http://host:8080/a/b-1.zt", "http://host:8080", "a/b-1.zt"),
    ("https://host/m_2~x.safetensors", "https://host", "m_2~x.safetensors"),
    ("https://host/a/.hidden", "https://host", "a/.hidden"),
    ("https://host/a/..b/c", "https://host", "a/..b/c"),
]
APART = [
    "https://host/a.zt?signature=1",
    "https://host/a%20b.zt",
    "https://user:word@host/a.zt",
    "https://host//a.zt",
    "https://host/a/../b.zt",
    "https://host/a/./b.zt",
    "https://host/..",
    "https://host/a b",
    "https://host/a+b.zt",
    "https://host/\u00e4.zt",
]


@pytest.mark.parametrize(("url", "base", "key"), HTTP)
def test_objects_of_one_host_have_one_store(url: str, base: str, key: str) -> None:
    pytest.importorskip("obstore")
    place = place_of(Remote(url))
    assert (str(place.store.url).rstrip("/"), place.key) == (base, key)
    assert place_of(Remote(f"{base}/other.zt")).store is place.store


@pytest.mark.parametrize("url", APART)
def test_what_may_be_written_otherwise_as_a_key_has_its_own(url: str) -> None:
    pytest.importorskip("obstore")
    assert place_of(Remote(url)).key == ""


def test_a_store_of_s3_is_kept_for_its_bucket_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    first = place_of(Remote("s3://bucket/a.zt"))
    assert place_of(Remote("s3://bucket/b.zt")).store is first.store
    assert place_of(Remote("s3://other/b.zt")).store is not first.store
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "two")
    assert place_of(Remote("s3://bucket/a.zt")).store is not first.store
