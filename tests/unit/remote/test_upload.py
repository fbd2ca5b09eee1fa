"""What goes into a store: as a whole or not at all, from buffers that may change at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import ClosedError, UsageError
from ztensor.io.source.sink import Place, sink_of
from ztensor.io.source.urls import Remote
from ztensor.numpy import load_file, save_file
from ztensor.remote import upload
from ztensor.remote.upload import RemoteSink, part_bytes_of

pytest.importorskip("obstore", reason="obstore reaches the stores")
MIB = 1 << 20


@pytest.fixture
def store() -> Any:
    from obstore.store import MemoryStore

    return MemoryStore()


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", MIB)


def there(store: Any, key: str = "bucket/k") -> bytes | None:
    import obstore

    try:
        return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return None


def remote(store: Any, key: str = "k") -> Remote:
    return Remote(f"memory://bucket/{key}", store)


def _write(sink: RemoteSink, data: bytes) -> None:
    sink.write(data)
    sink.commit()


@pytest.mark.parametrize("count", [0, 1, 1000, MIB - 1, MIB, MIB + 1, 5 * MIB + 17])
def test_what_is_written_is_there_after_the_end(store: Any, count: int, short_parts: None) -> None:
    sink = RemoteSink(remote(store))
    data = np.random.default_rng(count).integers(0, 256, count, np.uint8)
    for start in range(0, count, 300_007):
        buffer = bytearray(data[start : start + 300_007].tobytes())
        sink.write(memoryview(buffer))
        buffer[:] = b"\xaa" * len(buffer)  # a caller may use it for the next
    assert there(store) is None
    assert sink.end_blobs() == sink.position == count
    sink.commit()
    assert there(store) == data.tobytes()
    sink.abort()  # has no effect now
    assert there(store) == data.tobytes()


@pytest.mark.parametrize("count", [10, 3 * MIB])
def test_an_abort_leaves_what_was_there(store: Any, count: int, short_parts: None) -> None:
    RemoteSink(remote(store)).commit()
    assert there(store) == b""
    sink = RemoteSink(remote(store))
    sink.write(bytes(count))
    sink.abort()
    sink.abort()
    assert there(store) == b""
    with pytest.raises(ClosedError):
        sink.write(b"more")
    with pytest.raises(ClosedError):
        sink.commit()


@pytest.mark.parametrize("count", [10, 3 * MIB])
def test_only_where_nothing_is(store: Any, count: int, short_parts: None) -> None:
    sink = RemoteSink(remote(store), is_new=True)
    sink.write(bytes(count))
    sink.commit()
    with pytest.raises(UsageError, match="exists already"):
        _write(RemoteSink(remote(store), is_new=True), b"x" * count)
    assert there(store) == bytes(count)


def test_one_that_came_meanwhile_stays(store: Any, short_parts: None) -> None:
    sink = RemoteSink(remote(store), is_new=True)
    sink.write(bytes(3 * MIB))
    other = RemoteSink(remote(store))
    other.write(b"the other's")
    other.commit()
    with pytest.raises(UsageError, match="exists already"):
        sink.commit()
    assert there(store) == b"the other's"


def test_parts_grow_with_what_is_expected() -> None:
    assert part_bytes_of(None) == part_bytes_of(10) == 16 * MIB
    for size in (1 << 37, 1 << 40, 5 << 40):
        part = part_bytes_of(size)
        assert part % MIB == 0
        assert -(-size // part) <= 9000
        assert part == 16 * MIB or -(-size // (part - MIB)) > 9000


def test_small_pieces_go_together(store: Any) -> None:
    sink = sink_of(remote(store), durable=False)
    assert isinstance(sink, RemoteSink)
    for piece in (b"ab", np.arange(3, dtype=np.uint16).tobytes(), b""):
        sink.write(piece)
    sink.commit()
    assert there(store) == b"ab" + np.arange(3, dtype=np.uint16).tobytes()
    assert sink_of(sink, durable=False) is sink


def test_what_is_only_read_is_refused(tmp_path: Path) -> None:
    for url in ("https://host/k.zt", "http://host/k.zt", "hf://org/repo/k.zt"):
        with pytest.raises(UsageError, match="not written to"):
            RemoteSink(Remote(url))
    with pytest.raises(UsageError, match="without file://"):
        RemoteSink(Remote(f"file://{tmp_path}/k.zt"))
    with pytest.raises(UsageError, match="not written to"):
        save_file({"a": np.zeros(2)}, "https://host/k.zt")


def test_free_or_not(store: Any) -> None:
    Place.of(remote(store)).require_free(overwrite=False)
    Place.of(remote(store)).dry().write(b"a dry run")
    assert there(store) is None
    Place("memory://bucket/k", remote=remote(store)).sink(durable=True).commit()
    Place.of(remote(store)).require_free(overwrite=True)
    with pytest.raises(UsageError, match="overwrite=True") as caught:
        Place.of(remote(store)).require_free(overwrite=False)
    assert caught.value.file == "memory://bucket/k"
    with pytest.raises(UsageError, match="--force"):
        Place.of(remote(store)).require_free(overwrite=False, allowed_by="--force")


def test_an_exception_in_the_body_leaves_nothing(store: Any, short_parts: None) -> None:
    def fail() -> None:
        with ztensor.Writer(remote(store, "w.zt")) as writer:
            writer.write("a", np.zeros(MIB))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert there(store, "bucket/w.zt") is None
    with ztensor.Writer(remote(store, "w.zt")) as writer:
        writer.write("a", np.arange(MIB))
    assert (load_file(remote(store, "w.zt"))["a"] == np.arange(MIB)).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*")  # of Python, and of JAX where another test used it
def test_after_a_fork_it_raises_at_once(store: Any) -> None:
    RemoteSink(remote(store)).commit()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            RemoteSink(remote(store)).commit()
        except UsageError as error:
            code = 0 if "spawn" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
