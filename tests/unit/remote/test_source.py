"""Objects of stores: numbers of requests, one version, threads."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy as znumpy
from tests.refusals import refused
from tests.remote.lying_server import DATE, LyingServer
from tests.remote.range_server import RangeServer
from ztensor import Remote
from ztensor.errors import ClosedError, Reason, SourceError, SourceNotFoundError
from ztensor.ext import source_of

obstore = pytest.importorskip("obstore")

RANDOM = np.random.default_rng(0)
DATA = RANDOM.integers(0, 256, 40 << 20, np.uint8).tobytes()
KIB, MIB = 1 << 10, 1 << 20


def store_of(data: bytes, key: str = "m.zt") -> Any:
    from obstore.store import MemoryStore

    store = MemoryStore()
    obstore.put(store, key, data)
    return store


def source_at(url: str, store: Any = None, **options: Any) -> Any:
    return source_of(Remote(url, store, **options), mapped=False)


def opened(data: bytes = DATA, key: str = "m.zt") -> tuple[Any, Any]:
    store = store_of(data, key)
    return source_at(f"memory:///{key}", store), store


def read(source: Any, offset: int, length: int) -> bytes:
    buffer = bytearray(length)
    source.read_into(offset, memoryview(buffer))
    return bytes(buffer)


@pytest.mark.parametrize("size", [0, 1, 4095, 300 * KIB, 600 * KIB, 5 * MIB])
@pytest.mark.parametrize("key", ["m.zt", "m.safetensors", "m.gguf", "m"])
def test_any_part_of_any_size(size: int, key: str) -> None:
    source, _ = opened(DATA[:size], key)
    assert source.size == size
    assert source.requests <= 4
    for offset in {0, 1, size // 2, max(0, size - 1)}:
        for length in (0, 1, 1000, 256 * KIB, 257 * KIB, size):
            if offset + length <= size:
                assert read(source, offset, length) == DATA[offset : offset + length]
    with refused(SourceError, Reason.SOURCE_CHANGED):
        read(source, size, 1)


def test_opening_is_two_requests_and_the_ends_are_kept() -> None:
    source, _ = opened()
    for offset, length in ((0, 4 * KIB), (len(DATA) - 256 * KIB, 256 * KIB)):
        read(source, offset, length)
    assert source.requests == 2


# Reads of (offset, length), and the most requests for all of them.
READS: dict[str, tuple[str, list[tuple[int, int]], int]] = {
    "a long read is made of parts": ("m.zt", [(5, 30 * MIB)], 4),
    "a read is kept for the next": ("m.zt", [(MIB, 256 * KIB)] * 2, 1),
    "reads that follow each other": (
        "m.zt", [(offset, 64 * KIB) for offset in range(MIB, 33 * MIB, 64 * KIB)], 7,
    ),
    "reads that follow the head": (
        "m.safetensors", [(offset, 64 * KIB) for offset in range(0, 2 * MIB, 64 * KIB)], 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("reads", READS)
def test_how_many_requests_reads_take(reads: str) -> None:
    key, places, most = READS[reads]
    source, _ = opened(key=key)
    before = source.requests
    for offset, length in places:
        assert read(source, offset, length) == DATA[offset : offset + length]
    assert source.requests - before <= most


def test_neighbours_are_one_request() -> None:
    source, _ = opened()
    before = source.requests
    parts = [(5 * MIB + number * 100 * KIB, memoryview(bytearray(64))) for number in range(30)]
    source.read_many(parts)
    assert source.requests - before == 1
    assert all(memory == DATA[offset : offset + 64] for offset, memory in parts)


def test_several_threads_read_right() -> None:
    source, _ = opened()

    def look(seed: int) -> None:
        random = np.random.default_rng(seed)
        for offset in random.integers(0, 30 * MIB, 50).tolist():
            length = int(random.integers(1, 400 * KIB))
            assert read(source, offset, length) == DATA[offset : offset + length]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(look, range(8)))


@pytest.mark.parametrize("change", ["replaced", "shrunk", "grown", "deleted"])
@pytest.mark.parametrize("length", [100, 20 * MIB])
def test_another_object_by_now(change: str, length: int) -> None:
    source, store = opened()
    if change == "deleted":
        obstore.delete(store, "m.zt")
    else:
        sizes = {"replaced": len(DATA), "shrunk": 10 * MIB, "grown": len(DATA) + 1}
        obstore.put(store, "m.zt", bytes(sizes[change]))
    with refused(SourceError, Reason.SOURCE_CHANGED) as caught:
        read(source, 12 * MIB, length)
    assert "memory:///m.zt" in str(caught.value)


def test_nothing_there() -> None:
    with pytest.raises(SourceNotFoundError, match="no such object"):
        ztensor.open("memory:///other.zt", storage=store_of(b"x"))


def test_a_closed_one() -> None:
    source, _ = opened()
    source.close()
    source.close()
    for length in (1, 20 * MIB):
        with pytest.raises(ClosedError):
            read(source, 0, length)


@pytest.mark.parametrize("is_cached", [False, True])
def test_parts_that_share_requests_are_all_filled(tmp_path: Path, *, is_cached: bool) -> None:
    store = store_of(DATA)
    cache = {"cache": str(tmp_path)} if is_cached else {}
    places = [
        (0, 20 * MIB + 1),  # several requests
        (20 * MIB + 1, 3 * MIB),  # shares one with that before
        (5 * MIB, 17 * MIB),  # over both
        (24 * MIB, 0),
        (30 * MIB, 10 * MIB),  # its end came with opening
        (len(DATA) - 10, 10),  # all of it did
    ]
    for _ in range(1 + is_cached):
        source = source_at("memory:///m.zt", store, **cache)
        memory = [bytearray(length) for _, length in places]
        source.read_many([(at, memoryview(m)) for (at, _), m in zip(places, memory, strict=True)])
        assert memory == [DATA[at : at + length] for at, length in places]


@pytest.mark.slow
def test_a_digest_that_fails_ends_the_load_while_the_rest_arrives() -> None:
    count = 5 * MIB
    store = store_of(b"")
    target = Remote("memory:///m.zt", store)
    znumpy.save_file({f"t{n}": np.full(count, n, np.int32) for n in range(4)}, target)
    data = bytearray(obstore.get(store, "m.zt").bytes())
    data[len(data) // 4 + MIB] ^= 1
    obstore.put(store, "m.zt", bytes(data))
    before = set(threading.enumerate())
    with pytest.raises(ztensor.DigestMismatchError) as caught:
        znumpy.load_file(target, copy=True)
    assert caught.value.object_name == "t1"
    begun = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in begun if name.startswith("ThreadPool")]


class PanicException(BaseException):
    """Raised by obstore for its own bugs; not an `Exception`."""


@pytest.mark.parametrize("raised", [PanicException, KeyboardInterrupt])
def test_a_panic_of_the_library_is_an_error_and_an_interrupt_is_none(
    raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = opened()

    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(obstore, "get", fail)
    with pytest.raises(SourceError if raised is PanicException else raised):
        read(source, MIB, 10)


Mark = tuple[str | None, str | None]
MARKS: list[Mark] = [
    (e_tag, date) for e_tag in ('"1"', '"2"', 'W/"1"', None) for date in (DATE, None)
]


@pytest.mark.parametrize("first", MARKS)
@pytest.mark.parametrize("later", MARKS)
def test_a_mark_of_the_version_that_only_one_answer_has_tells_two_versions(
    first: Mark, later: Mark
) -> None:
    now = first

    def answer(liar: Any) -> None:
        liar.right(ETag=now[0], Last_Modified=now[1])

    with LyingServer(DATA[: 4 * MIB], b"", answer) as server:
        source = source_at(f"{server.url}/data")
        assert read(source, MIB, KIB) == DATA[MIB : MIB + KIB]
        now = later
        is_same = first == later or (first[0] == later[0] and first[0] in ('"1"', '"2"'))
        asking = functools.partial(source.require_unchanged, ask=True)
        for ask in (asking, lambda: read(source, 2 * MIB, KIB)):
            if is_same:
                ask()
                continue
            with refused(SourceError, Reason.SOURCE_CHANGED):
                ask()


@pytest.mark.parametrize("is_too_long", [False, True])
def test_a_server_without_ranges_gives_the_whole_up_to_64_mib(
    tmp_path: Path, *, is_too_long: bool
) -> None:
    with (tmp_path / "m").open("wb") as file:
        file.write(DATA[: 2 * MIB])
        file.truncate(64 * MIB + 1 if is_too_long else 2 * MIB)
    with RangeServer(tmp_path, ranges=False) as server:
        if is_too_long:
            with pytest.raises(SourceError, match="gives no ranges"):
                source_at(f"{server.url}/m")
        else:
            assert read(source_at(f"{server.url}/m"), 0, 2 * MIB) == DATA[: 2 * MIB]


@pytest.mark.parametrize("size", [512 * KIB, 324 * KIB, 324 * KIB + 1])
def test_without_suffix_ranges_the_ends_are_asked_for_by_the_size(
    tmp_path: Path, size: int
) -> None:
    (tmp_path / "m").write_bytes(DATA[:size])
    with RangeServer(tmp_path, suffix=False) as server:
        source = source_at(f"{server.url}/m")
        assert read(source, 0, size) == DATA[:size]


@pytest.mark.parametrize(
    ("validator", "header"), [("etag", "if-match"), ("date", "if-unmodified-since"), (None, "")]
)
def test_each_request_names_the_version(tmp_path: Path, validator: Any, header: str) -> None:
    (tmp_path / "m").write_bytes(DATA[: 2 * MIB])
    with RangeServer(tmp_path, validator=validator) as server:
        source = source_at(f"{server.url}/m")
        server.record.clear()
        assert read(source, MIB, 10) == DATA[MIB : MIB + 10]
        (request,) = server.record.seen
    named = {"if-match", "if-unmodified-since"} & request.headers.keys()
    if header:
        assert named == {header}
