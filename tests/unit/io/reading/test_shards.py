"""Shards of 2.x: where they are found, their checks, and links that are not followed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import DigestMismatchError, Reason
from ztensor.ext import ALGORITHMS
from ztensor.testing.builder_2 import File2, dense

VALUES = np.arange(4096, dtype=np.float32)


def root_of(shard: bytes, **changes: Any) -> tuple[bytes, str]:
    """Return a root with a tensor of its own and one in the shard `s`, and the shard's digest."""
    hexdigest = hashlib.sha256(shard).hexdigest()
    entry = {"size": len(shard), "digest": f"sha256:{hexdigest}"} | changes
    own = File2()
    here = own.part(np.arange(3))
    there = File2().part(VALUES) | {"shard": "s"}
    objects = {"here": dense(here, [3]), "there": dense(there, [4096])}
    return own.seal({"objects": objects, "shards": {"s": entry}}), hexdigest


def shard_of(values: np.ndarray[Any, Any] = VALUES) -> bytes:
    file = File2()
    file.part(values)
    return file.shard()


@pytest.mark.wing
def test_a_shard_beside_the_root_is_read(tmp_path: Path) -> None:
    shard = shard_of()
    path = tmp_path / "m.zt"
    path.write_bytes(root_of(shard)[0])
    (tmp_path / "m-s.zt").write_bytes(shard)
    with ztensor.open(path) as reader:
        np.testing.assert_array_equal(reader["there"], VALUES)
        np.testing.assert_array_equal(reader.get_slice("there")[7:9], VALUES[7:9])
        assert reader["here"].tolist() == [0, 1, 2]
        assert reader.location("there") == (str(tmp_path / "m-s.zt"), 4096, VALUES.nbytes)
        metadata = reader.metadata("there").components["data"]
        assert (metadata.shard, metadata.offset) == ("s", 4096)
        assert reader.metadata("here").components["data"].shard is None
        assert reader.verify(deep=True).outcome == "ok"
        again = pickle.loads(pickle.dumps(reader))
        np.testing.assert_array_equal(again["there"], VALUES)
        again.close()
    loaded = ztensor.numpy.load_file(path)
    np.testing.assert_array_equal(loaded["there"], VALUES)
    new = tmp_path / "new.zt"
    assert not ztensor.migrate(path, new, version="1.2.0").lost
    np.testing.assert_array_equal(ztensor.open(new)["there"], VALUES)


def test_a_shard_may_have_the_longest_name_of_a_file(tmp_path: Path) -> None:
    shard, stem = shard_of(), "m" * (255 - len("-s.zt"))
    (tmp_path / f"{stem}.zt").write_bytes(root_of(shard)[0])
    (tmp_path / f"{stem}-s.zt").write_bytes(shard)
    with ztensor.open(tmp_path / f"{stem}.zt") as reader:
        np.testing.assert_array_equal(reader["there"], VALUES)


def test_the_digest_of_a_whole_shard_is_for_the_deep_look(tmp_path: Path) -> None:
    shard = shard_of()
    path = tmp_path / "m.zt"
    path.write_bytes(root_of(shard)[0])
    (tmp_path / "m-s.zt").write_bytes(shard[:100] + b"\1" + shard[101:])  # padding
    with ztensor.open(path) as reader:
        assert reader.verify().outcome == "ok"
        done: list[tuple[int, int]] = []
        report = reader.verify(deep=True, progress=lambda *call: done.append(call))
        assert all(0 <= now <= total for now, total in done)
        assert (len(shard), len(shard)) in done
        assert [problem.reason for problem in report.problems] == [Reason.DIGEST_MISMATCH]
        assert report.problems[0].path == ("shards", "s")
    (tmp_path / "m-s.zt").write_bytes(shard_of(VALUES + 1))
    with ztensor.open(path, mmap=False) as reader, pytest.raises(DigestMismatchError):
        reader.read_numpy("there", copy=True)


def refusal(path: Path) -> Reason | None:
    with pytest.raises(ztensor.ZTensorError) as caught:
        ztensor.open(path)
    return caught.value.reason


def test_a_set_of_files_looks_into_their_shards_too(tmp_path: Path) -> None:
    shard = shard_of()
    (tmp_path / "m.zt").write_bytes(root_of(shard)[0])
    (tmp_path / "m-s.zt").write_bytes(shard[:100] + b"\1" + shard[101:])
    with ztensor.open([tmp_path / "m.zt"]) as reader:
        assert reader.verify().outcome == "ok"
        assert reader.verify(deep=True).outcome == "damaged"


# --- Any file of the size and digest ----------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["sha256", "xxh3", "crc32c"])
def test_a_shard_of_any_name_is_found_by_size_and_digest(tmp_path: Path, algorithm: str) -> None:
    shards = [shard_of(VALUES + number) for number in range(3)]  # of one size
    digests = [ALGORITHMS[algorithm].of([shard]).lower().replace("0x", "") for shard in shards]
    table = {
        f"s{number}": {"size": len(shard), "digest": digest}
        for number, (shard, digest) in enumerate(zip(shards, digests, strict=True))
    }
    objects = {
        f"w{number}": dense(File2().part(VALUES + number) | {"shard": f"s{number}"}, [4096])
        for number in range(3)
    }
    (tmp_path / "m.zt").write_bytes(File2().seal({"objects": objects, "shards": table}))
    for name, shard in zip(("c.zt", "b", "a.bin"), shards, strict=True):
        (tmp_path / name).write_bytes(shard)
    with ztensor.open(tmp_path / "m.zt") as reader:
        for number in range(3):
            np.testing.assert_array_equal(reader[f"w{number}"], VALUES + number)
        assert reader.location("w0").path == str(tmp_path / "c.zt")
        assert reader.verify(deep=True).outcome == "ok"


def in_its_place(file: Path, shard: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(shard)


def out_of_the_folder(file: Path, shard: bytes) -> None:
    del shard
    file.symlink_to(file.parent.parent / "away")


def as_fifo(file: Path, shard: bytes) -> None:
    del shard
    os.mkfifo(file)


# What is in the folder instead of the shard `m-s.zt`, and the reason of the refusal; None if the
# shard is found.
FOLDERS: dict[str, tuple[dict[str, Callable[[Path, bytes], object]], Reason | None]] = {
    "another file in its place": (
        {"m-s.zt": lambda file, shard: file.write_bytes(shard + b"x"), "other": in_its_place}, None,
    ),
    "a folder in its place": (
        {"m-s.zt": lambda file, _: file.mkdir(), "other": in_its_place}, None,
    ),
    "in blobs by its digest": ({f"blobs/sha256/{root_of(shard_of())[1]}": in_its_place}, None),
    "only a link out of the folder": ({"m-s.zt": out_of_the_folder}, Reason.SOURCE_NOT_REGULAR),
    "a FIFO in its place": ({"m-s.zt": as_fifo, "other": in_its_place}, None),
    "a link inside the folder": (
        {"m-s.zt": lambda file, _: file.symlink_to("nothing"), "b.zt": in_its_place,
         "a.zt": lambda file, _: file.symlink_to("b.zt")},
        None,
    ),
    "other bytes of its size": (
        {"a": lambda file, shard: file.write_bytes(bytes(len(shard))), "b": in_its_place}, None,
    ),
    "only a folder": ({"m-s.zt": lambda file, _: file.mkdir()}, Reason.SOURCE_NOT_REGULAR),
    "only a FIFO": ({"m-s.zt": as_fifo}, Reason.SOURCE_NOT_REGULAR),
    "only another file": ({"a.zt": lambda file, _: file.write_bytes(b"x")}, Reason.SHARD_FILE),
    "a hidden file": ({".s.zt": in_its_place}, Reason.SHARD_FILE),
    "a temporary file": ({"s.zt.tmp": in_its_place}, Reason.SHARD_FILE),
    "another link out of the folder": ({"a.zt": out_of_the_folder}, Reason.SHARD_FILE),
    "a subfolder": ({"sub/a.zt": in_its_place}, Reason.SHARD_FILE),
    "nothing": ({}, Reason.SHARD_FILE),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDERS)
def test_the_folder_of_the_root_is_searched(tmp_path: Path, case: str) -> None:
    entries, reason = FOLDERS[case]
    shard, folder = shard_of(), tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "away").write_bytes(shard)
    (folder / "m.zt").write_bytes(root_of(shard)[0])
    for name, make in entries.items():
        make(folder / name, shard)
    if reason is not None:
        assert refusal(folder / "m.zt") is reason
        return
    with ztensor.open(folder / "m.zt") as reader:
        np.testing.assert_array_equal(reader["there"], VALUES)
        assert reader.verify(deep=True).outcome == "ok"


# Entries of the table that no file fits: each is an error at once.
@pytest.mark.parametrize(
    "entry",
    [
        {"digest": "md5:00"},  # unknown here
        {"digest": "sha256:00"},  # not its number of digits
        {"size": 1 << 50},
        {"size": 1 << 40},
        {"size": (1 << 64) - 1},
    ],
    ids=str,
)
def test_a_shard_without_a_fitting_file_is_missing(tmp_path: Path, entry: dict[str, Any]) -> None:
    shard = shard_of()
    (tmp_path / "m.zt").write_bytes(root_of(shard, **entry)[0])
    (tmp_path / "a.zt").write_bytes(shard)
    for size in (1 << 50, 1 << 40):  # holes, which nothing reads
        with contextlib.suppress(OSError), (tmp_path / f"huge {size}").open("wb") as file:
            file.truncate(size)
    assert refusal(tmp_path / "m.zt") is Reason.SHARD_FILE


# --- The caller's resolver --------------------------------------------------------------------

RESOLVED: dict[str, Callable[[Path], Any]] = {
    "text": str,
    "path": lambda path: path,
    "URL": lambda path: path.as_uri(),
    "bytes": Path.read_bytes,
    "file object": lambda path: io.BytesIO(path.read_bytes()),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.wing if kind == "URL" else ()) for kind in RESOLVED],
)
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "bytes"])
def test_a_resolver_finds_shards(tmp_path: Path, kind: str, is_file: bool) -> None:
    shard, asked = shard_of(), []
    root, hexdigest = root_of(shard)
    path, away = tmp_path / "m.zt", tmp_path / "folder" / "anything"
    path.write_bytes(root)
    away.parent.mkdir()
    away.write_bytes(shard)

    def resolve(wanted: ztensor.typing.ShardIdentity) -> Any:
        asked.append((wanted.name, wanted.size, wanted.digest))
        return RESOLVED[kind](away)

    with ztensor.open(path if is_file else root, resolver=resolve) as reader:
        np.testing.assert_array_equal(reader["there"], VALUES)
        assert reader.verify(deep=True).outcome == "ok"
    assert asked == [("s", len(shard), f"sha256:{hexdigest}")]


WRONG: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "a number": (lambda _: 3, TypeError),
    "several paths": (lambda folder: [folder], TypeError),
    "an error of its own": (lambda folder: dict[Path, str]()[folder], KeyError),
    "a missing file": (lambda folder: folder / "no", FileNotFoundError),
    "a folder": (lambda folder: folder, ztensor.SourceError),
    "other bytes": (lambda _: bytes(99), ztensor.FormatError),
    "a file of 1.x": (lambda folder: folder / "old.zt", ztensor.FormatError),
    "no bytes": (lambda _: b"", ztensor.FormatError),
    "nothing": (lambda _: None, ztensor.FormatError),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_resolver_returns_is_checked(tmp_path: Path, case: str) -> None:
    answer, kind = WRONG[case]
    with ztensor.Writer(tmp_path / "old.zt") as writer:
        writer.write("w", np.arange(8000.0))
    size = (tmp_path / "old.zt").stat().st_size
    (tmp_path / "m.zt").write_bytes(root_of(shard_of(), size=size)[0])
    with pytest.raises(kind):
        ztensor.open(tmp_path / "m.zt", resolver=lambda _: answer(tmp_path))
    not_a_function: Any = "m-s.zt"
    with pytest.raises(TypeError):
        ztensor.open(tmp_path / "m.zt", resolver=not_a_function)


def test_a_resolver_goes_with_the_other_options(tmp_path: Path) -> None:
    shard, store = shard_of(), tmp_path / "store"
    store.mkdir()
    (tmp_path / "m.zt").write_bytes(root_of(shard)[0])
    (store / "renamed").write_bytes(shard)
    path = tmp_path / "m.zt"
    how: dict[str, Any] = {"resolver": ztensor.io.ShardFolder(store)}
    np.testing.assert_array_equal(ztensor.numpy.load_file(path, **how)["there"], VALUES)
    assert [name for name, _ in ztensor.iterate(path, **how)] == ["here", "there"]
    with ztensor.safe_open(path, "np", **how) as handle:
        np.testing.assert_array_equal(handle.get_tensor("there"), VALUES)
    with ztensor.open([path], **how) as several, ztensor.open(path, **how) as reader:
        np.testing.assert_array_equal(several["there"], VALUES)
        again = pickle.loads(pickle.dumps(reader))
        np.testing.assert_array_equal(again["there"], VALUES)
        again.close()
    with pytest.raises(FileNotFoundError):
        ztensor.io.ShardFolder(tmp_path / "no")


def test_a_root_that_is_its_own_shard_ends_the_search(tmp_path: Path) -> None:
    def root(size: int) -> bytes:
        file = File2()
        part = file.part(np.arange(3))
        objects = {"w": dense(part, [3]), "v": dense(part | {"shard": "s"}, [3])}
        shards = {"s": {"size": size, "digest": "xxh3:" + "0" * 16}}
        return file.seal({"objects": objects, "shards": shards})

    path = tmp_path / "m.zt"
    path.write_bytes(root(len(root(9999))))
    assert refusal(path) is Reason.SHARD_FILE
    with ztensor.open(path, resolver=lambda _: path) as reader:
        assert reader["v"].tolist() == [0, 1, 2]
        assert reader.verify(deep=True).outcome == "damaged"
