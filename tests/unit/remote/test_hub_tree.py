"""The list of a hub: asked again where that may help, within limits, its token for it alone."""

from __future__ import annotations

import json
import time

import pytest

from tests.remote.counting import Handler, Seen, Server
from ztensor.errors import SourceError, SourceNotFoundError, SourcePermissionError
from ztensor.remote import hub_tree
from ztensor.remote.hub_tree import tree

LIST = json.dumps([{"type": "file", "path": "a.zt"}, {"type": "directory", "path": "b"}]).encode()
TOKEN = {"Authorization": "Bearer not-a-real-one"}


class Hub(Server):
    """Answers each request with the next of some answers, and with a list after the last."""

    def __init__(self, *answers: tuple[int, dict[str, str]]) -> None:
        super().__init__(_Answers)
        self.answers = list(answers)

    def found(self) -> tuple[list[str], list[str]]:
        found = tree(f"{self.url}/tree", "", TOKEN, "hf://o/r/")
        folders = sorted(one.name for one in found if one.is_folder)
        return sorted(one.name for one in found if not one.is_folder), folders


class _Answers(Handler):
    def do_GET(self) -> None:
        hub: Hub = self.server.owner  # type: ignore[attr-defined]
        hub.record.begin()
        status, headers = hub.answers.pop(0) if hub.answers else (200, {})
        self.answer(status, headers, LIST if status == 200 else b"no")
        hub.record.add(Seen(self.command, self.path, self.plain_headers(), status, 0))


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_asked_again(status: int, waits: list[float]) -> None:
    with Hub((status, {}), (status, {})) as hub:
        assert hub.found() == (["a.zt"], ["b"])
        assert len(hub.record) == 3
    assert waits[0] < waits[1]
    with Hub(*[(status, {})] * 3) as hub:
        with pytest.raises(SourceError, match=f"status {status}"):
            hub.found()
        assert len(hub.record) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, SourceError), (403, SourcePermissionError), (404, SourceNotFoundError)],
)
def test_what_will_not_pass_is_asked_once(status: int, kind: type[SourceError]) -> None:
    with Hub((status, {})) as hub:
        with pytest.raises(kind, match=f"status {status}"):
            hub.found()
        assert len(hub.record) == 1


def test_a_redirect_keeps_the_token_with_its_host() -> None:
    with Hub() as other, Hub((302, {"Location": "/moved"})) as hub:
        assert hub.found() == (["a.zt"], ["b"])
        hub.answers.append((302, {"Location": f"{other.url}/moved"}))
        assert hub.found() == (["a.zt"], ["b"])
        here, elsewhere = hub.record.seen, other.record.seen
    assert [one.headers.get("authorization") for one in here] == [TOKEN["Authorization"]] * 3
    assert [one.path for one in elsewhere] == ["/moved"]
    assert "authorization" not in elsewhere[0].headers


@pytest.mark.parametrize("place", ["ftp://127.0.0.1:1/list", "file:///etc/hostname"])
def test_a_redirect_off_the_web_is_not_followed(place: str) -> None:
    with Hub((302, {"Location": place})) as hub:
        with pytest.raises(SourceError, match="status 302"):
            hub.found()
        assert len(hub.record) == 1


@pytest.mark.parametrize("place", ["http://[", "http://a b/", "http://h:port/"])
def test_a_redirect_to_what_is_no_url_is_our_error(place: str) -> None:
    with Hub(*[(302, {"Location": place})] * 3) as hub, pytest.raises(SourceError):
        hub.found()


@pytest.mark.parametrize(
    ("link", "query"),
    [
        ('<https://h/t?cursor=a%2F>; rel="next"', "?cursor=a%2F"),
        ("<http://[?cursor=1#part>; rel=next", "?cursor=1"),
        ('<https://h/?a>; rel="prev", <https://h/?b>; rel="next"', "?b"),
        ("<https://h/?a>; <https://h/?b>; rel=next", "?b"),  # nothing is searched from each `<`
    ],
)
def test_the_next_page(link: str, query: str) -> None:
    with Hub((200, {"Link": link})) as hub:
        assert hub.found() == (["a.zt", "a.zt"], ["b", "b"])
        assert hub.record.seen[1].path == f"/tree{query}"


def test_a_page_may_be_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub() as hub:
        monkeypatch.setattr(hub_tree, "_PAGE_BYTES", len(LIST))
        assert hub.found() == (["a.zt"], ["b"])
        monkeypatch.setattr(hub_tree, "_PAGE_BYTES", len(LIST) - 1)
        with pytest.raises(SourceError, match="too long"):
            hub.found()
