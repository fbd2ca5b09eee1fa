"""What a store answers at the end of an upload, and how an object is copied within one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.remote.upload_server import UploadServer
from ztensor.errors import SourceError
from ztensor.io.source.urls import Remote
from ztensor.remote import upload
from ztensor.remote.upload import RemoteSink, copy

obstore = pytest.importorskip("obstore", reason="obstore reaches the stores")
KEY, OLD, NEW = "bucket/k", b"old", bytes(3000)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    from obstore.store import MemoryStore

    monkeypatch.setattr(upload, "PART_BYTES", 1000)
    made = MemoryStore()
    obstore.put(made, KEY, OLD)
    return made


class Upload:
    """An upload whose end is answered with an error."""

    def __init__(self, real: Any, at_the_end: Callable[[Any], None]) -> None:
        self._real, self._at_the_end = real, at_the_end

    def write(self, data: Any) -> None:
        self._real.write(data)

    def close(self) -> None:
        self._at_the_end(self._real)
        raise OSError("connection closed before message completed")

    def __exit__(self, *error: object) -> None:
        self._real.__exit__(*error)


def sink(
    store: Any, monkeypatch: pytest.MonkeyPatch, at_the_end: Callable[[Any], None]
) -> RemoteSink:
    begin = obstore.open_writer
    monkeypatch.setattr(obstore, "open_writer", lambda *a, **k: Upload(begin(*a, **k), at_the_end))
    made = RemoteSink(Remote("memory://bucket/k", store))
    made.write(NEW)
    return made


def test_what_was_sent_is_given_up(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, given_up = obstore.open_writer, []

    class Noted(Upload):
        def __exit__(self, *error: object) -> None:
            given_up.append(error)
            super().__exit__(*error)

    monkeypatch.setattr(
        obstore, "open_writer", lambda *a, **k: Noted(begin(*a, **k), lambda _: None)
    )
    made = RemoteSink(Remote("memory://bucket/k", store))
    made.abort()
    assert given_up == []
    made = RemoteSink(Remote("memory://bucket/k", store))
    made.write(NEW)
    for _ in range(2):
        made.abort()
    assert len(given_up) == 1
    assert there(store) == OLD


@pytest.mark.parametrize("is_raised", [False, True])
def test_what_cannot_be_given_up_is_told_where_an_error_is_raised(
    store: Any, monkeypatch: pytest.MonkeyPatch, *, is_raised: bool
) -> None:
    class Refused(Upload):
        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            raise OSError("connection refused")

    begin = obstore.open_writer
    monkeypatch.setattr(
        obstore, "open_writer", lambda *a, **k: Refused(begin(*a, **k), lambda _: None)
    )
    made = RemoteSink(Remote("memory://bucket/k", store))
    made.write(NEW)
    if not is_raised:
        made.abort()
        return
    problem = ValueError("of the caller")
    try:
        raise problem
    except ValueError:
        made.abort()
    assert ["may cost money" in note for note in problem.__notes__] == [True]


def there(store: Any) -> bytes:
    return bytes(obstore.get(store, KEY).bytes())


def test_an_answer_that_is_lost_is_no_failure(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sink(store, monkeypatch, lambda real: real.close())
    made.commit()
    assert there(store) == NEW


def test_where_nothing_is_new_the_old_object_is_known_to_be_there(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore.put(store, KEY, NEW)  # of the same length
    made = sink(store, monkeypatch, lambda _: None)
    with pytest.raises(SourceError, match="dropped") as caught:
        made.commit()
    assert caught.value.hint is None


@pytest.mark.parametrize("body", [b"another's", None])
def test_what_is_there_then_may_be_anyones(
    store: Any, body: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(_: Any) -> None:
        if body is None:
            obstore.delete(store, KEY)
        else:
            obstore.put(store, KEY, body)

    made = sink(store, monkeypatch, meanwhile)
    with pytest.raises(SourceError, match="dropped") as caught:
        made.commit()
    assert "not known" in (caught.value.hint or "")


def test_nobody_knows_where_the_store_does_not_answer(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore.delete(store, KEY)  # as if there had been none, which a lost look must not read as

    def no_answer(*_: object) -> None:
        raise OSError("connection closed before message completed")

    made = sink(store, monkeypatch, lambda _: monkeypatch.setattr(obstore, "head", no_answer))
    with pytest.raises(SourceError, match="dropped") as caught:
        made.commit()
    assert "not known" in (caught.value.hint or "")


def test_an_object_is_copied_within_one_store(store: Any) -> None:
    assert copy(Remote("memory://bucket/k", store), Remote("memory://bucket/copy", store))
    assert obstore.get(store, "bucket/copy").bytes() == OLD
    with UploadServer() as server:
        server.put("/bucket/a", b"whole")
        options = {
            "endpoint": server.url, "access_key_id": "k", "secret_access_key": "s", "region": "x",
            "client_options": {"allow_http": True},
        }  # fmt: skip
        source = Remote("s3://bucket/a", options)
        assert copy(source, Remote("s3://bucket/b", dict(options)))
        assert server.objects["/bucket/b"] == b"whole"
        server.record.clear()
        assert not copy(source, Remote("s3://other/b", options))
        assert not copy(source, Remote("s3://bucket/c", {**options, "region": "y"}))
        assert not copy(source, Remote("memory://bucket/c", store))
        assert not server.record.seen
