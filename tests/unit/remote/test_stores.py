"""Stores are kept for reuse: for the same place, options, process and environment alone."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.remote.conftest import Variables
from ztensor import Remote
from ztensor.remote.urls import place_of

pytest.importorskip("obstore")
RETRY = {"max_retries": 4, "retry_timeout": datetime.timedelta(seconds=1)}
OPTIONS: dict[str, Any] = {
    "region": "x",
    "skip_signature": True,
    "client_options": {"timeout": "30s", "allow_http": True},
    "retry_config": RETRY,
}
URL = "s3://kept/a.zt"


def store_of(url: str = URL, options: dict[str, Any] = OPTIONS) -> Any:
    return place_of(Remote(url, dict(options))).store


def test_the_same_options_in_any_order_give_the_same_store() -> None:
    assert store_of() is store_of("s3://kept/b.zt", dict(reversed(OPTIONS.items())))


@pytest.mark.parametrize(
    ("url", "changed"),
    [
        (URL, {"region": "y"}),
        (URL, {"access_key_id": "k", "secret_access_key": "s"}),
        (URL, {"client_options": {"timeout": "30s"}}),
        (URL, {"retry_config": {**RETRY, "retry_timeout": datetime.timedelta(1)}}),
        ("s3://other/a.zt", {}),
    ],
)
def test_another_place_or_option_is_another_store(url: str, changed: dict[str, Any]) -> None:
    assert store_of() is not store_of(url, {**OPTIONS, **changed})


def test_a_provider_of_credentials_is_asked_anew() -> None:
    options = {"region": "x", "credential_provider": lambda: None}
    assert store_of(URL, options) is not store_of(URL, options)


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "https_proxy", "SSL_CERT_FILE"])
def test_another_environment_is_another_store(variables: Variables, name: str) -> None:
    variables({name: None})
    first = store_of()
    variables({name: "http://127.0.0.1:9"})
    assert store_of() is not first
    variables({name: None})
    assert store_of() is first


@pytest.mark.parametrize(
    ("url", "base", "key"),
    [
        ("http://host:8080/a/b-1.zt", "http://host:8080", "a/b-1.zt"),
        ("https://host/m_2~x.safetensors", "https://host", "m_2~x.safetensors"),
        ("https://host/a/.hidden", "https://host", "a/.hidden"),
        ("https://host/a/..b/c", "https://host", "a/..b/c"),
    ],
)
def test_objects_of_one_host_have_one_store(url: str, base: str, key: str) -> None:
    place = place_of(Remote(url))
    assert (str(place.store.url).rstrip("/"), place.key) == (base, key)
    assert place_of(Remote(f"{base}/other.zt")).store is place.store


@pytest.mark.parametrize(
    "rest",
    [
        "host/a.zt?signature=1", "host/a%20b.zt", "user:word@host/a.zt", "host//a.zt",
        "host/a/../b.zt", "host/a/./b.zt", "host/..", "host/a b", "host/a+b.zt", "host/\u00e4.zt",
    ],
)  # fmt: skip
def test_a_path_that_is_written_differently_as_a_key_has_its_own_store(rest: str) -> None:
    assert place_of(Remote(f"https://{rest}")).key == ""
