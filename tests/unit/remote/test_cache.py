"""Remote objects kept on disk: fetched once, of one version, complete, up to a size."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.remote.conftest import Variables
from tests.remote.range_server import RangeServer
from ztensor import Remote
from ztensor.errors import ArgumentTypeError, ArgumentValueError, SourceNotFoundError
from ztensor.ext import source_of
from ztensor.numpy import load_file, save_file

pytest.importorskip("obstore")

MIB = 1 << 20
DATA = np.random.default_rng(0).integers(0, 256, 5 * MIB + 77, np.uint8).tobytes()
MODEL: dict[str, Any] = {
    "w": np.random.default_rng(1).random((600, 1000)),
    "b": np.arange(10, dtype=np.float32),
}


@pytest.fixture(autouse=True)
def none_set(variables: Variables) -> None:
    variables(dict.fromkeys(("ZTENSOR_CACHE", "ZTENSOR_CACHE_BYTES")))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "data").write_bytes(DATA)
    save_file(MODEL, tmp_path / "served" / "m.zt")
    with RangeServer(tmp_path / "served") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def source_at(server: RangeServer, folder: Path, name: str = "data") -> Any:
    return source_of(Remote(f"{server.url}/{name}", None, str(folder)), mapped=False)


def read(source: Any, offset: int, length: int) -> bytes:
    buffer = bytearray(length)
    source.read_into(offset, memoryview(buffer))
    return bytes(buffer)


def whole(server: RangeServer, folder: Path, name: str = "data") -> tuple[bytes, int]:
    """Return an object read through the cache, and how many bytes the server sent for it."""
    server.record.clear()
    source = source_at(server, folder, name)
    data = read(source, 0, source.size)
    source.close()
    return data, sum(one.sent for one in server.record.seen if one.status < 400)


def kept(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_second_reader_gets_no_data_from_the_server(server: RangeServer, folder: Path) -> None:
    url = f"{server.url}/m.zt"
    for expected in (None, ["HEAD"]):
        server.record.clear()
        with ztensor.open(url, cache=folder) as reader:
            assert sorted(reader) == ["b", "w"]
            assert reader.verify().problems == ()
            assert (reader.get_slice("w")[3:5] == MODEL["w"][3:5]).all()
        loaded = load_file(ztensor.Remote(url, cache=folder))
        assert all((loaded[name] == MODEL[name]).all() for name in MODEL)
        seen = server.record.seen
        if expected is None:
            assert server.record.sent < os.path.getsize(server.folder / "m.zt") + 2 * MIB
        else:
            assert {one.method for one in seen} == {"HEAD"}
            assert (len(seen), server.record.sent) == (2, 0)  # it was opened twice


@pytest.mark.slow
def test_reads_in_any_order(server: RangeServer, folder: Path) -> None:
    random = np.random.default_rng(2)
    for _ in range(3):
        source = source_at(server, folder)
        for length in (1, 1000, 300_000, 2 * MIB + 3):
            for offset in random.integers(0, len(DATA) - length, 6).tolist():
                assert read(source, offset, length) == DATA[offset : offset + length]
        starts = sorted(random.integers(0, len(DATA) - 9000, 200).tolist())
        parts = [(start, memoryview(bytearray(9000))) for start in starts]  # they overlap
        source.read_many(parts)
        assert all(memory == DATA[start : start + 9000] for start, memory in parts)
    assert whole(server, folder) == (DATA, 0)


def test_a_changed_object_is_read_anew(server: RangeServer, folder: Path) -> None:
    assert whole(server, folder)[0] == DATA
    for other in (DATA[::-1], DATA[:MIB], b"", DATA):
        new = server.folder / "new"
        new.write_bytes(other)
        new.replace(server.folder / "data")
        found, sent = whole(server, folder)
        assert found == other
        assert sent >= len(other)
    source = source_at(server, folder)
    (server.folder / "data").unlink()
    assert read(source, 0, len(DATA)) == DATA  # the version that was opened
    with pytest.raises(SourceNotFoundError):
        whole(server, folder)


@pytest.mark.parametrize("validator", ["date", None])
def test_without_an_etag_nothing_is_kept(server: RangeServer, folder: Path, validator: Any) -> None:
    server.validator = validator
    assert whole(server, folder)[0] == DATA
    assert kept(folder) == []


@pytest.mark.parametrize("data", [DATA[:-1], DATA + b"x", b""], ids=["cut", "longer", "empty"])
def test_a_file_of_another_length_is_fetched_again(
    server: RangeServer, folder: Path, data: bytes
) -> None:
    whole(server, folder)
    (file,) = kept(folder)
    file.write_bytes(data)
    found, sent = whole(server, folder)
    assert found == DATA
    assert sent >= len(DATA)
    assert whole(server, folder) == (DATA, 0)  # it was replaced


def test_a_file_that_is_cut_while_it_is_read(server: RangeServer, folder: Path) -> None:
    source = source_at(server, folder)
    assert read(source, 2 * MIB, MIB) == DATA[2 * MIB : 3 * MIB]
    (file,) = kept(folder)
    os.truncate(file, 100)
    assert read(source, MIB, 3 * MIB) == DATA[MIB : 4 * MIB]
    source.close()


def test_listing_a_file_does_not_fetch_it(server: RangeServer, folder: Path) -> None:
    with ztensor.open(f"{server.url}/m.zt", cache=folder) as reader:
        assert sorted(reader) == ["b", "w"]
        assert kept(folder) == []
        assert reader["b"][1] == 1
    assert len(kept(folder)) <= 1


@pytest.mark.slow
def test_the_folder_is_held_to_a_size(
    server: RangeServer, folder: Path, variables: Variables
) -> None:
    limit = 11 * MIB
    variables({"ZTENSOR_CACHE_BYTES": limit})
    folder.mkdir()
    (folder / "of the user").write_bytes(DATA)  # other files are left alone
    for number in range(4):
        (server.folder / f"other{number}").write_bytes(DATA[number:])
    for number in range(4):
        assert whole(server, folder, f"other{number}")[0] == DATA[number:]
        room = folder / "ztensor-files-1"
        assert 0 < sum(path.stat().st_size for path in kept(room)) <= limit
    assert (folder / "of the user").read_bytes() == DATA
    assert len(kept(room)) == 2
    variables({"ZTENSOR_CACHE_BYTES": MIB})
    assert whole(server, folder, "other0")[0] == DATA  # a longer object is not kept
    assert len(kept(room)) == 2


def test_the_last_used_copies_stay(server: RangeServer, folder: Path, variables: Variables) -> None:
    variables({"ZTENSOR_CACHE_BYTES": 11 * MIB})
    for name in ("first", "second", "third"):
        (server.folder / name).write_bytes(DATA)
    for name in ("first", "second"):
        whole(server, folder, name)
    for path in kept(folder):
        os.utime(path, (1, 1))
    assert whole(server, folder, "first")[1] == 0  # of the two it is used again
    whole(server, folder, "third")
    assert [whole(server, folder, name)[1] for name in ("first", "third")] == [0, 0]
    assert whole(server, folder, "second")[1] > 0


@pytest.mark.parametrize("text", ["many", "-1", "1e9", "1" * 30])
def test_a_malformed_size_is_refused(
    server: RangeServer, folder: Path, text: str, variables: Variables
) -> None:
    variables({"ZTENSOR_CACHE_BYTES": text})
    with pytest.raises(ArgumentValueError, match="ZTENSOR_CACHE_BYTES"):
        whole(server, folder)


def test_the_variable_names_the_folder(
    server: RangeServer, folder: Path, variables: Variables
) -> None:
    variables({"ZTENSOR_CACHE": folder})
    assert (ztensor.open(f"{server.url}/m.zt")["w"] == MODEL["w"]).all()
    assert kept(folder)
    variables({"ZTENSOR_CACHE": folder / "none"})
    assert ztensor.open(f"{server.url}/m.zt", cache="")["b"][3] == 3
    assert not (folder / "none").exists()


def test_a_cache_goes_with_a_url_and_through_a_pickle(server: RangeServer, folder: Path) -> None:
    given = Remote(f"{server.url}/m.zt", cache=folder)
    assert pickle.loads(pickle.dumps(given)).cache == str(folder)
    assert given.beside("other").cache == str(folder)
    with pytest.raises(ArgumentValueError, match="cache="):
        ztensor.open(folder, cache=folder)
    with pytest.raises(ArgumentTypeError):
        ztensor.open(f"{server.url}/m.zt", cache=5)  # type: ignore[arg-type]


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
def test_only_the_owner_reads_it_and_no_name_has_a_secret(
    server: RangeServer, folder: Path
) -> None:
    old = os.umask(0)
    try:
        whole(server, folder, "data?X-Amz-Signature=hunter2&sig=hunter3&password=hunter4")
    finally:
        os.umask(old)
    assert not any("hunter" in str(path) for path in folder.rglob("*"))
    for path in [folder, *folder.rglob("*")]:
        wanted = 0o600 if path.is_file() else 0o700
        assert stat.S_IMODE(path.stat().st_mode) == wanted


# --- Folders that fail ----------------------------------------------------------------------


Failing = Callable[[int, str, "list[str]"], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Failing:
    """Return a function that makes calls of the system fail for paths in the cache's folder."""

    def fail(number: int, text: str, calls: list[str]) -> None:
        for call in calls:
            real = getattr(os, call)

            def refuse(path: Any, *rest: Any, real: Any = real, **more: Any) -> Any:
                if str(path).startswith(str(folder)):
                    raise OSError(number, text)
                return real(path, *rest, **more)

            monkeypatch.setattr(os, call, refuse)

    return fail


@pytest.mark.parametrize("call", ["open", "replace"])
def test_a_file_that_cannot_be_written_is_read_from_the_server(
    server: RangeServer, folder: Path, failing: Failing, caplog: Any, call: str
) -> None:
    failing(errno.ENOSPC, "No space left on device", [call])
    assert whole(server, folder)[0] == DATA
    assert "No space left" in caplog.text
    assert kept(folder) == []


def test_a_file_system_that_is_mounted_read_only(
    server: RangeServer, folder: Path, failing: Failing
) -> None:
    whole(server, folder)
    before = kept(folder)
    failing(errno.EROFS, "Read-only file system", ["utime", "makedirs", "replace"])
    assert whole(server, folder) == (DATA, 0)
    assert whole(server, folder, "m.zt")[1] > 0
    assert kept(folder) == before


def test_a_file_in_place_of_the_folder(server: RangeServer, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert whole(server, tmp_path / "file")[0] == DATA
    assert "cannot be used" in caplog.text


def test_a_folder_that_others_write_to(
    server: RangeServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room = folder / "ztensor-files-1"
    room.mkdir(parents=True)
    room.chmod(0o777)
    assert whole(server, folder)[0] == DATA
    assert "others may write" in caplog.text
    assert kept(folder) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_read_only_folder_is_read(server: RangeServer, folder: Path) -> None:
    whole(server, folder)
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o500)
    try:
        assert whole(server, folder) == (DATA, 0)
        assert whole(server, folder, "m.zt")[1] > 0
    finally:
        for path in folders:
            path.chmod(0o700)


def test_a_folder_that_vanishes(server: RangeServer, folder: Path) -> None:
    source = source_at(server, folder)
    read(source, 0, 2 * MIB)
    folder.rename(folder.with_name("elsewhere"))
    assert read(source, 0, 5 * MIB) == DATA[: 5 * MIB]
    assert whole(server, folder)[0] == DATA
    assert kept(folder)  # made again


# --- Several processes ----------------------------------------------------------------------

_READER = """
import sys, hashlib
import ztensor
from ztensor.ext import source_of
for _ in range(3):
    source = source_of(ztensor.Remote(sys.argv[1], None, sys.argv[2]), mapped=False)
    memory = bytearray(source.size)
    source.read_into(0, memoryview(memory))
    print(hashlib.sha256(memory).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1 << 30, 6 * MIB])
def test_several_processes_at_once(server: RangeServer, folder: Path, limit: int) -> None:
    import hashlib

    environment = {**os.environ, "ZTENSOR_CACHE_BYTES": str(limit)}
    command = [sys.executable, "-c", _READER, f"{server.url}/data", str(folder)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    expected = hashlib.sha256(DATA).hexdigest()
    for one in running:
        said, _ = one.communicate(timeout=60)
        assert said.split() == [expected] * 3
        assert one.returncode == 0
    assert not any(path.name.startswith(".") for path in kept(folder))
    assert whole(server, folder) == (DATA, 0)


@pytest.mark.skipif(os.name == "nt", reason="makes links")
def test_only_files_of_ours_make_room(
    server: RangeServer, folder: Path, variables: Variables
) -> None:
    whole(server, folder)
    (mine,) = kept(folder)
    other = folder.parent / "other"
    other.write_bytes(b"mine")
    (mine.parent / "notes.txt").write_bytes(DATA)
    (mine.parent / f"{'0' * 40}-{'0' * 40}").symlink_to(other)
    dead = mine.parent / ".0123456789abcdef"  # left by a process that died while it wrote
    dead.write_bytes(DATA)
    for path in folder.rglob("*"):
        os.utime(path, ns=(0, 0), follow_symlinks=False)
    variables({"ZTENSOR_CACHE_BYTES": len(DATA) + 1})
    (server.folder / "new").write_bytes(DATA)
    whole(server, folder, "new")
    assert other.read_bytes() == b"mine"
    assert (mine.parent / "notes.txt").read_bytes() == DATA
    assert not mine.exists()
    assert not dead.exists()
    assert whole(server, folder, "new") == (DATA, 0)
