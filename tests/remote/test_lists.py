"""Lists of stores: what lies one level beneath a prefix, and lists that do not end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

import ztensor
from tests.remote.counting import Handler, Seen, Server
from ztensor.errors import UsageError
from ztensor.remote import prefixes

if TYPE_CHECKING:
    from tests.remote.s3_server import S3Server

obstore = pytest.importorskip("obstore", reason="obstore reads URLs")
TREES: dict[str, list[str]] = {
    "nothing": [],
    "flat": [f"{number}.zt" for number in range(5)],
    "deeper": ["a.zt", "f", "f/x.zt", "g/h/i.zt", "z.zt"],
    "many deeper": [*(f"d/{number:04d}" for number in range(1100)), "e.zt", "g/x"],
    "many, some deeper": [*(f"{number:04d}" for number in range(1100)), "5/x", "z/x"],
}


def sorted_level(found: dict[str, Any]) -> tuple[list[str], list[str]]:
    return sorted(one["path"] for one in found["objects"]), sorted(found["common_prefixes"])


@pytest.mark.parametrize("tree", TREES)
def test_one_level(tree: str, tmp_path: Path) -> None:
    memory = obstore.store.MemoryStore()
    stores = [memory]
    if not any("/" not in one and f"{one}/" in " ".join(TREES[tree]) for one in TREES[tree]):
        stores.append(obstore.store.LocalStore(tmp_path))
    for store in stores:
        for key in TREES[tree]:
            obstore.put(store, f"a/{key}", b"x")
        obstore.put(store, "ab/c", b"x")
        for prefix in ("a", ""):
            expected = obstore.list_with_delimiter(store, prefix or None)
            found = prefixes.one_level(obstore, store, prefix, "memory://a/")
            assert sorted_level(found) == sorted_level(expected)


def test_one_level_where_consoles_made_folders(s3: S3Server, bucket: str) -> None:
    for key in ("a/", "a/empty/", "a/full/", "a/full/x", "a/y"):
        s3.put(bucket, key, b"x" * (key[-1] != "/"))
    store = obstore.store.S3Store(bucket, client_options={"allow_http": True}, **s3.storage())

    async def ask() -> dict[str, Any]:  # where a loop is running already, as in a notebook
        return prefixes.one_level(obstore, store, "a", "s3://b/a/")

    files, folders = sorted_level(asyncio.run(ask()))
    assert folders == ["a/empty", "a/full"]
    assert [one for one in files if one != "a"] == ["a/y"]  # the mark of the prefix itself


class EndlessLists(Server):
    """A store whose lists of objects go on for ever.

    Args:
        form: of a key, of a running number.
    """

    def __init__(self, form: str) -> None:
        super().__init__(_Endless)
        self.form = form
        self.count = 0


class _Endless(Handler):
    def do_GET(self) -> None:
        owner: EndlessLists = self.server.owner  # type: ignore[attr-defined]
        owner.record.begin()
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
        try:
            self.answer(200 if is_list else 404, {}, body.encode() if is_list else b"")
        finally:
            owner.record.add(Seen(self.command, self.path, {}, 200, len(body)))

    do_HEAD = do_GET


@pytest.mark.slow
@pytest.mark.parametrize("form", ["%09d.zt", "deeper/%09d", "%09d/x"])
def test_lists_without_end(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MOST_LISTED", 3000)
    monkeypatch.setattr(prefixes, "_LEVEL_SECONDS", 0.5)
    with EndlessLists(form) as server:
        keys = {"access_key_id": "k", "secret_access_key": "s", "endpoint": server.url}
        with pytest.raises(UsageError, match="name a file"):
            ztensor.open("s3://bucket/run/", storage=keys)
        if "/" not in form:
            assert server.count <= 5
        manager = ztensor.CheckpointManager("s3://bucket/run", storage=keys)
        with pytest.raises(UsageError):
            manager.steps()
        asked = server.count
        assert len(server.record) >= asked
        assert server.count == asked, "nothing is asked any more"
