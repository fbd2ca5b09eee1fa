"""Lists of stores: patterns over keys, one level beneath a prefix, endless lists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import ztensor
from tests.remote.conftest import Variables
from tests.remote.counting import Handler, Server
from tests.remote.upload_server import UploadServer
from ztensor import Remote
from ztensor.errors import ArgumentValueError, SourceNotFoundError, UsageError
from ztensor.ext import Store
from ztensor.numpy import save
from ztensor.remote import prefixes
from ztensor.remote.prefixes import expression

if TYPE_CHECKING:
    from tests.remote.s3_server import S3Server


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
        ("a[[b&&c]", ["a&"], ["aa"]),
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


def test_a_reversed_range_is_refused() -> None:
    with pytest.raises(ArgumentValueError):
        expression("run/[z-a].zt")


def expanded(url: str) -> list[str]:
    return Store.of(url).expanded(url)


@pytest.fixture
def bucket(variables: Variables) -> Iterator[UploadServer]:
    pytest.importorskip("obstore", reason="obstore reaches the stores")
    with UploadServer() as server:
        for name in ("run/a.zt", "run/b.zt", "run/notes.txt", "other/a.zt"):
            server.put(f"/bucket/{name}", b"x")
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "x"}
        variables({"AWS_ENDPOINT_URL": server.url, **keys})
        yield server


def test_a_pattern_means_the_objects_it_matches(bucket: UploadServer) -> None:
    found = ["s3://bucket/run/a.zt", "s3://bucket/run/b.zt"]
    assert expanded("s3://bucket/run/*.zt") == found
    assert expanded("s3://bucket/run/[b-z].zt") == found[1:]
    assert expanded("s3://bucket/**/a.zt") == ["s3://bucket/other/a.zt", found[0]]
    for url in ("https://host/a?b=*", "hf://o/r/[x].zt", "s3://bucket/plain.zt"):
        assert expanded(url) == [url]  # not a pattern
    with pytest.raises(SourceNotFoundError, match="no object matches") as caught:
        expanded("s3://bucket/run/*.gguf")
    assert caught.value.found == "3 below 'run'"
    with pytest.raises(UsageError, match="not in the bucket"):
        expanded("s3://buck*t/run/a.zt")


# --- One level --------------------------------------------------------------------------------

MANY = [f"{number:04d}" for number in range(1100)]  # more than a page
TREES: dict[str, list[str]] = {
    "nothing": [],
    "flat": [f"{number}.zt" for number in range(5)],
    "deeper": ["a.zt", "f", "f/x.zt", "g/h/i.zt", "z.zt"],
    "many deeper": [*(f"d/{number}" for number in MANY), "e.zt", "g/x"],
    "many, some deeper": [*MANY, "5/x", "z/x"],
}


def level(url: str, store: Any) -> tuple[list[str], list[str]]:
    """Return the names of files and of folders directly in a folder."""
    entries = Store.of(url).listed(Remote(url, store)) or []
    return tuple(sorted(e.name for e in entries if e.is_folder == kind) for kind in (False, True))  # type: ignore[return-value]


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("prefix", ["a/", ""])
def test_one_level(tree: str, prefix: str) -> None:
    obstore = pytest.importorskip("obstore", reason="obstore reaches the stores")
    store = pytest.importorskip("obstore.store").MemoryStore()
    for key in TREES[tree]:
        obstore.put(store, f"{prefix}{key}", b"x")
    if prefix:
        obstore.put(store, "ab/c", b"x")
    files = sorted({key for key in TREES[tree] if "/" not in key})
    folders = sorted({key.partition("/")[0] for key in TREES[tree] if "/" in key})
    assert level(f"memory:///{prefix}", store) == (files, folders)


@pytest.mark.parametrize("name", ["a\\b.zt", "a:b.zt", "..zt", "a?b.zt", "a%b.zt"])
def test_names_that_no_index_may_have_are_passed_over(name: str) -> None:
    obstore = pytest.importorskip("obstore")
    store = obstore.store.MemoryStore()
    for key in ("m.zt", name):
        obstore.put(store, f"run/{key}", save({"w": np.ones(2)}))
    assert list(ztensor.open(Remote("memory:///run/", store))) == ["w"]


def test_one_level_where_consoles_made_folders(s3: S3Server, bucket_of_s3: str) -> None:
    for key in ("a/", "a/empty/", "a/full/", "a/full/x", "a/y"):
        s3.put(bucket_of_s3, key, b"x" * (key[-1] != "/"))

    async def ask() -> tuple[list[str], list[str]]:  # a loop is running already, as in a notebook
        return level(f"s3://{bucket_of_s3}/a/", s3.storage())

    assert asyncio.run(ask()) == (["y"], ["empty", "full"])


class EndlessLists(Server):
    """A store with endless lists of objects.

    Args:
        form: of a key, of a running number.
    """

    def __init__(self, form: str) -> None:
        super().__init__(_Endless)
        self.form = form
        self.count = 0


class _Endless(Handler):
    def respond(self, owner: EndlessLists) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        is_list, start = "list-type" in asked, asked.get("prefix", [""])[0]
        owner.count += is_list
        keys = (start + owner.form % (owner.count * 1000 + number) for number in range(1000))
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>5</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        body = (
            f"<ListBucketResult><IsTruncated>true</IsTruncated>{entries}"
            f"<NextContinuationToken>{owner.count}</NextContinuationToken></ListBucketResult>"
        )
        self.answer(200 if is_list else 404, {}, body.encode() if is_list else b"")


@pytest.mark.slow  # asks for 100,000 names
@pytest.mark.parametrize("form", ["%09d.zt", "deeper/%09d", "%09d/x"])
def test_lists_without_end(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore", reason="obstore reaches the stores")
    monkeypatch.setattr(prefixes, "_LEVEL_SECONDS", 0.5)  # the clock: a minute otherwise
    with EndlessLists(form) as server:
        keys = {"access_key_id": "k", "secret_access_key": "s", "endpoint": server.url}
        with pytest.raises(UsageError, match="name a file"):
            ztensor.open("s3://bucket/run/", storage=keys)
        if "/" not in form:
            assert server.count <= 102
        manager = ztensor.CheckpointManager("s3://bucket/run", storage=keys)
        with pytest.raises(UsageError):
            manager.steps()
        asked = server.count
        assert len(server.record) >= asked
        assert server.count == asked, "no request follows"
