"""Uploads to a store: atomic, from buffers that may change at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.remote.fault_proxy import Fault, FaultProxy
from tests.remote.upload_server import UploadServer
from ztensor import Remote
from ztensor.errors import ClosedError, SourceError, UsageError
from ztensor.ext import Place, Store
from ztensor.numpy import load_file, save_file
from ztensor.remote.upload import part_bytes_of

obstore: Any = pytest.importorskip("obstore", reason="obstore reaches the stores")
MIB = 1 << 20
PART = 16 * MIB  # a longer object is sent in several requests
SIZES = (10, PART + 10)


@pytest.fixture
def store() -> Any:
    from obstore.store import MemoryStore

    return MemoryStore()


def body_of(store: Any, key: str = "bucket/k") -> bytes | None:
    try:
        return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return None


def remote(store: Any, key: str = "k") -> Remote:
    return Remote(f"memory://bucket/{key}", store)


def sink_of(place: Remote, **options: Any) -> Any:
    return Place(place.url, remote=place, **options).sink(durable=False)


def write(place: Remote, data: bytes, **options: Any) -> None:
    sink = sink_of(place, **options)
    sink.write(data)
    sink.commit()


@pytest.mark.parametrize("count", [0, 1, PART - 1, PART, PART + 1, 2 * PART + 17])
def test_an_object_appears_at_the_commit(store: Any, count: int) -> None:
    sink = sink_of(remote(store))
    data = np.random.default_rng(count).integers(0, 256, count, np.uint8)
    for start in range(0, count, 3_000_007):
        buffer = bytearray(data[start : start + 3_000_007].tobytes())
        sink.write(memoryview(buffer))
        buffer[:] = bytes(len(buffer))  # the caller's own again
    assert body_of(store) is None
    assert sink.end_blobs() == sink.position == count
    sink.commit()
    sink.abort()  # without effect now
    assert body_of(store) == data.tobytes()


@pytest.mark.parametrize("count", SIZES)
def test_an_abort_leaves_the_old_object(store: Any, count: int) -> None:
    write(remote(store), b"")
    sink = sink_of(remote(store))
    sink.write(bytes(count))
    for _ in range(2):
        sink.abort()
    assert body_of(store) == b""
    for use in (lambda: sink.write(b"more"), sink.commit):
        with pytest.raises(ClosedError):
            use()


@pytest.mark.parametrize("count", SIZES)
def test_a_new_object_replaces_none(store: Any, count: int) -> None:
    write(remote(store), bytes(count), is_new=True)
    with pytest.raises(UsageError, match="exists already"):
        write(remote(store), b"x" * count, is_new=True)
    sink = sink_of(remote(store, "other"), is_new=True)
    sink.write(bytes(count))
    write(remote(store, "other"), b"meanwhile")
    with pytest.raises(UsageError, match="exists already"):
        sink.commit()
    assert (body_of(store), body_of(store, "bucket/other")) == (bytes(count), b"meanwhile")


def test_parts_grow_with_the_expected_size() -> None:
    assert part_bytes_of(None) == part_bytes_of(10) == PART
    for size in (1 << 37, 1 << 40, 5 << 40):
        part = part_bytes_of(size)
        assert part % MIB == 0
        assert -(-size // part) <= 9000
        assert part == PART or -(-size // (part - MIB)) > 9000


def test_places_that_are_only_read_are_refused(tmp_path: Path) -> None:
    for url in ("https://host/k.zt", "http://host/k.zt", "hf://org/repo/k.zt"):
        with pytest.raises(UsageError, match="not written to"):
            save_file({"a": np.zeros(2)}, url)
    with pytest.raises(UsageError, match="without file://"):
        sink_of(Remote(f"file://{tmp_path}/k.zt"))


def test_a_taken_name_is_refused_by_the_option_that_allows_it(store: Any) -> None:
    place = Place.of(remote(store))
    place.require_free(overwrite=False)
    place.dry().write(b"a dry run")
    assert body_of(store) is None
    write(remote(store), b"")
    place.require_free(overwrite=True)
    for options, text in (({}, "overwrite=True"), ({"allowed_by": "--force"}, "--force")):
        with pytest.raises(UsageError, match=text) as caught:
            place.require_free(overwrite=False, **options)
        assert caught.value.file == "memory://bucket/k"


def test_an_exception_in_the_body_leaves_nothing(store: Any) -> None:
    place = remote(store, "w.zt")

    def fail() -> None:
        with ztensor.Writer(place) as writer:
            writer.write("a", np.zeros(3 * MIB))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert body_of(store, "bucket/w.zt") is None
    with ztensor.Writer(place) as writer:
        writer.write("a", np.arange(3 * MIB))
    assert (load_file(place)["a"] == np.arange(3 * MIB)).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")  # of Python, and of JAX where another test used it
def test_after_a_fork_a_store_is_refused_at_once(store: Any) -> None:
    write(remote(store), b"")
    source = ztensor.ext.source_of(remote(store), mapped=False)
    child = os.fork()
    if child == 0:
        refused = 0
        uses: list[Callable[[], object]] = [
            lambda: write(remote(store), b""),
            lambda: source.require_unchanged(ask=True),
        ]
        for use in uses:
            try:
                use()
            except UsageError as error:
                refused += "spawn" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


# --- Answers at the end of an upload ----------------------------------------------------------

OLD, NEW = b"old", bytes(PART + 1)


@pytest.fixture
def server() -> Iterator[tuple[UploadServer, FaultProxy]]:
    with UploadServer() as behind, FaultProxy(behind.url) as proxy:
        behind.put("/bucket/k", OLD)
        yield behind, proxy


def options_of(server: UploadServer | FaultProxy) -> dict[str, Any]:
    return {
        "endpoint": server.url, "access_key_id": "k", "secret_access_key": "s", "region": "x",
        "client_options": {"allow_http": True}, "retry_config": {"max_retries": 0},
    }  # fmt: skip


def delete(server: UploadServer) -> None:
    server.objects.pop("/bucket/k")


# What happens to the completing request and before it; whether the user learns that the outcome is
# unknown; None if the upload succeeds.
ENDS: dict[str, tuple[str, Callable[[UploadServer], object] | None, bool | None]] = {
    "done, and the answer lost": ("unheard", None, None),
    "not done": ("dropped", None, False),
    "another's object meanwhile": ("then", lambda server: server.put("/bucket/k", b"other"), True),
    "removed meanwhile": ("then", delete, True),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_silent", [False, True], ids=["answering", "silent"])
def test_a_lost_answer_is_looked_into(
    server: tuple[UploadServer, FaultProxy], end: str, *, is_silent: bool
) -> None:
    behind, proxy = server
    kind, change, is_unknown = ENDS[end]

    def act() -> None:
        if change is not None:
            change(behind)
        raise ConnectionResetError

    sink = sink_of(Remote("s3://bucket/k", options_of(proxy)))
    sink.write(NEW)
    faults = [Fault(kind, method="POST", path="uploadId", action=act)]
    proxy.faults = [*faults, *([Fault("dropped", method="HEAD", count=None)] if is_silent else [])]
    if is_unknown is None and not is_silent:
        sink.commit()
        assert behind.objects["/bucket/k"] == NEW
        return
    with pytest.raises(SourceError) as caught:
        sink.commit()
    assert ("not known" in (caught.value.hint or "")) == (is_silent or is_unknown)


@pytest.mark.parametrize("is_raised", [False, True])
def test_parts_that_cannot_be_given_up_are_noted_in_the_callers_error(
    server: tuple[UploadServer, FaultProxy], *, is_raised: bool
) -> None:
    _, proxy = server
    sink = sink_of(Remote("s3://bucket/k", options_of(proxy)))
    sink.write(NEW)
    proxy.faults = [Fault("dropped", method="DELETE", count=None)]
    if not is_raised:
        sink.abort()
        return
    problem = ValueError("of the caller")
    try:
        raise problem
    except ValueError:
        sink.abort()
    assert ["may cost money" in note for note in problem.__notes__] == [True]


def test_an_object_is_copied_within_one_store(
    store: Any, server: tuple[UploadServer, FaultProxy]
) -> None:
    def copy(source: Remote, target: Remote) -> bool:
        return Store.of(source.url).copy(source, target)

    write(remote(store), OLD)
    assert copy(remote(store), remote(store, "copy"))
    assert body_of(store, "bucket/copy") == OLD
    behind, _ = server
    options = options_of(behind)
    source = Remote("s3://bucket/k", options)
    assert copy(source, Remote("s3://bucket/b", dict(options)))
    assert behind.objects["/bucket/b"] == OLD
    behind.record.clear()
    for target in (
        Remote("s3://other/b", options),
        Remote("s3://bucket/c", {**options, "region": "y"}),
        remote(store, "c"),
    ):
        assert not copy(source, target)
    assert not behind.record.seen
