"""Patterns over keys: a star stays within a part, two do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.remote.upload_server import UploadServer
from ztensor.errors import ArgumentValueError, SourceNotFoundError, UsageError
from ztensor.remote import prefixes
from ztensor.remote.prefixes import expanded, expression, one_level


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("run/*.zt", ["run/a.zt", "run/.zt"], ["run/a/b.zt", "run/a.zts", "xrun/a.zt"]),
        ("run/**/*.zt", ["run/a.zt", "run/1/2/a.zt"], ["run.zt", "other/a.zt"]),
        ("**", ["a", "a/b"], []),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("[0-9]/[!ab].zt", ["1/c.zt"], ["x/c.zt", "1/a.zt", "1//.zt"]),
        ("a.b+c(", ["a.b+c("], ["aXb+c("]),
        ("[^x]", ["^", "x"], ["a"]),
        ("*a*b*.zt", ["ab.zt", "xaybz.zt", "aabb.zt.zt"], ["ba.zt", "a/b.zt", "ab.zt/"]),
        ("*a?*a/*b*", ["aaa/b", "xaxa/bb"], ["aa/b", "axa/a"]),
        ("**/a*b/*c*.zt", ["ab/c.zt", "1/2/axb/ac.zt"], ["ab/c/d.zt", "a/b/c.zt"]),
        ("*" + "a*" * 30 + "b", ["a" * 30 + "b"], ["a" * 1024]),  # ends only if it is linear
    ],
)
def test_what_a_pattern_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    made = expression(pattern)
    assert [key for key in matching if not made.fullmatch(key)] == []
    assert [key for key in others if made.fullmatch(key)] == []


def test_what_is_no_pattern() -> None:
    with pytest.raises(ArgumentValueError):
        expression("run/[z-a].zt")
    assert expression("a[[b&&c]").fullmatch("a&")


def test_other_paths_stay_as_they_are() -> None:
    for url in ("https://host/a?b=*", "hf://o/r/[x].zt", "s3://bucket/plain.zt"):
        assert expanded(url) == [url]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[UploadServer]:
    pytest.importorskip("obstore", reason="obstore reaches the stores")
    with UploadServer() as server:
        for name in ("run/a.zt", "run/b.zt", "run/notes.txt", "other/a.zt"):
            server.put(f"/bucket/{name}", b"x")
        for name, value in {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "x",
        }.items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_pattern_means_the_objects_it_matches(bucket: UploadServer) -> None:
    found = ["s3://bucket/run/a.zt", "s3://bucket/run/b.zt"]
    assert expanded("s3://bucket/run/*.zt") == found
    assert expanded("s3://bucket/run/[b-z].zt") == found[1:]
    assert expanded("s3://bucket/**/a.zt") == ["s3://bucket/other/a.zt", found[0]]
    with pytest.raises(SourceNotFoundError, match="no object matches") as caught:
        expanded("s3://bucket/run/*.gguf")
    assert caught.value.found == "3 beneath 'run'"
    with pytest.raises(UsageError, match="not in the bucket"):
        expanded("s3://buck*t/run/a.zt")


@pytest.mark.parametrize(
    "kinds", ["flat", "deep", "with a mark"], ids=lambda kind: kind.replace(" ", "-")
)
def test_so_many_names_are_in_a_folder(kinds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    obstore = pytest.importorskip("obstore", reason="obstore reaches the stores")
    from obstore.store import MemoryStore

    monkeypatch.setattr(prefixes, "MOST_LISTED", 3)
    store: Any = MemoryStore()
    obstore.put(store, "run/a", b"" if kinds == "with a mark" else b"x")
    obstore.put(store, "run/b", b"x")
    obstore.put(store, "run/c" if kinds == "flat" else "run/c/deep", b"x")
    obstore.put(store, "other", b"x")
    found = one_level(obstore, store, "run", "memory:///run")
    names = sorted([one["path"] for one in found["objects"]] + list(found["common_prefixes"]))
    assert names == ["run/a", "run/b", "run/c"]
    obstore.put(store, "run/d", b"x")
    if kinds == "deep":  # its pages tell all of it
        assert len(one_level(obstore, store, "run", "memory:///run")["objects"]) == 3
    else:
        with pytest.raises(UsageError, match="more than 3 objects"):
            one_level(obstore, store, "run", "memory:///run")
