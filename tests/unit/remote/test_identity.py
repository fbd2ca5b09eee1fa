"""The identity of a remote object: its whole URL, without a complete known signature."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import ztensor
import ztensor.fleet
from tests.refusals import refused
from tests.remote.lying_server import LyingServer
from ztensor import Remote
from ztensor.errors import ArgumentValueError, SourceError, UsageError
from ztensor.numpy import load_file, save
from ztensor.remote.identity import object_id, unsigned
from ztensor.remote.urls import place_of

pytest.importorskip("obstore")

FIRST, SECOND = (save({"w": np.full(100_000, n, np.float32)}) for n in (1, 2))

AWS_4 = (
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=K%2F20260101%2Feu&X-Amz-Date=20260101T0Z&"
    "X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature="
)
SIGNED = {
    "AWS 4": AWS_4,
    "AWS 4 of a session": f"X-Amz-Security-Token=t&{AWS_4}",
    "AWS 2": "AWSAccessKeyId=K&Expires=1767225600&Signature=",
    "Google 4": AWS_4.replace("Amz", "Goog"),
    "Google 2": "GoogleAccessId=a%40b&Expires=1767225600&Signature=",
    "Azure, a service": "sv=2022-11-02&sr=b&sp=r&st=2026-01-01&se=2026-01-02&spr=https&sig=",
    "Azure, an account": "sv=2022-11-02&ss=b&srt=o&sp=r&se=2026-01-02&sig=",
    "Azure, a user": "skoid=1&sktid=2&skt=3&ske=4&sks=b&skv=5&sv=6&sr=b&sp=r&se=2026-01-02&sig=",
    "Azure, a policy": "sv=2022-11-02&sr=b&si=readers&sig=",
    "CloudFront": "Expires=1767225600&Key-Pair-Id=K&Signature=",
    "CloudFront, a policy": "Policy=e30_&Key-Pair-Id=K&Signature=",
}
CHOOSING = [
    "sku", "token", "policy", "skip", "st", "sv", "expires", "sig", "signature", "sp", "ss", "si",
    "id", "part", "access_token", "X-Amz-Signature", "X-Amz-Date", "x-goog-meta", "Key-Pair-Id",
    "Policy", "AWSAccessKeyId", "versionId", "snapshot",
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[LyingServer]:
    """Serve one file, and another of equal length and ETag where `2` ends the query."""
    assert len(FIRST) == len(SECOND)

    def choose(answer: Any) -> None:
        answer.right(SECOND if urlsplit(answer.path).query.endswith("2") else FIRST)

    with LyingServer(FIRST, SECOND, choose) as running:
        yield running


@pytest.mark.parametrize("name", CHOOSING)
def test_a_parameter_that_chooses_the_object_chooses_what_the_cache_gives(
    server: LyingServer, tmp_path: Path, name: str
) -> None:
    for value in (1, 2, 1, 2):
        url = ztensor.Remote(f"{server.url}/m.zt?{name}={value}", cache=tmp_path / "kept")
        assert load_file(url)["w"][0] == value


@pytest.mark.parametrize("query", SIGNED.values(), ids=SIGNED)
def test_a_signature_is_left_out_only_as_a_whole(query: str) -> None:
    url = "https://host/m.zt"
    assert unsigned(f"{url}?{query}one") == url
    assert unsigned(f"{url}?part=2&{query}two&id=1") == f"{url}?part=2&id=1"
    names = [one.partition("=")[0] for one in query.split("&")]
    parts = f"{query}one".split("&")
    for lacking in range(len(parts)):
        if names[lacking] not in ("X-Amz-Security-Token", "st", "spr") and names[0] != "skoid":
            kept = "&".join(parts[:lacking] + parts[lacking + 1 :])
            assert unsigned(f"{url}?{kept}") == f"{url}?{kept}"
    twice = f"{url}?{query}one&{parts[-1]}"  # which of the two signs is not known
    assert unsigned(twice) == twice


def test_another_signature_is_the_same_object(server: LyingServer, tmp_path: Path) -> None:
    for signature in ("1", "other1"):
        url = f"{server.url}/m.zt?{AWS_4}{signature}"
        assert load_file(ztensor.Remote(url, cache=tmp_path / "kept"))["w"][0] == 1
    assert len([path for path in (tmp_path / "kept").rglob("*") if path.is_file()]) == 1


def test_stores_of_two_buckets_have_two_objects_of_one_url() -> None:
    from obstore.store import S3Store

    url = "s3://bucket/m.zt"
    stores = [S3Store(name, region="x", skip_signature=True) for name in ("one", "two")]
    ids = {object_id(url, place_of(Remote(url, store))) for store in stores}
    assert len(ids) == 2


def test_tokens_tell_urls_apart_by_their_query(server: LyingServer) -> None:
    tokens = set()
    for value in (1, 2, 1):
        with ztensor.open(f"{server.url}/m.zt?sku={value}") as reader:
            tokens.add(repr(reader.__dask_tokenize__()))
    assert len(tokens) == 2
    assert not any("sku" in token for token in tokens)


def test_a_list_has_two_files_whose_urls_differ_in_their_query(server: LyingServer) -> None:
    def urls(*values: int) -> list[str]:
        return [f"{server.url}/m.zt?token={value}" for value in values]

    with refused(
        ztensor.FormatError, ztensor.errors.Reason.DUPLICATE_NAME
    ) as caught:  # both have an object named w
        ztensor.open(urls(1, 2))
    assert "token" not in str(caught.value)
    with pytest.raises(ArgumentValueError, match="twice"):
        ztensor.open(urls(1, 1))


def test_files_of_one_new_name_are_refused_without_their_secrets(tmp_path: Path) -> None:
    sources = [f"http://127.0.0.1:9/m.zt?token=s3cret{n}" for n in (1, 2)]
    storage = {"retry_config": {"max_retries": 0}}
    found = list(ztensor.fleet.convert_files(sources, tmp_path, to="zt", storage=storage))
    assert [type(error) for _, error in found] == [SourceError, UsageError]
    assert not any("s3cret" in str(error) for _, error in found)
