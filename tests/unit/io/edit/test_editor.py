"""Several changes as one commit: bytes written, fields kept, changes refused."""

from __future__ import annotations

import gc
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    FormatError,
    NotRepresentableError,
    NotZTensorError,
    ObjectNotFoundError,
    Reason,
    SourceError,
    UnsupportedVersionError,
    UsageError,
)
from ztensor.numpy import load_file, save_file
from ztensor.testing.builder import VALUES, build, draft

CORPUS = Path(__file__).parents[3] / "corpus"
FOUR = np.arange(4, dtype=np.float32)
LARGE = np.arange(30_000, dtype=np.int64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a file of two dense objects and one compressed."""
    file = tmp_path / "m.zt"
    with ztensor.Writer(file, attributes={"step": 1, "note": ["x", {"y": None}]}) as writer:
        writer.write("a", np.arange(6.0).reshape(2, 3), attributes={"unit": "m"})
        writer.write("b", np.array([True, False]))
        writer.write("z", LARGE, compress=True)
    return file


def root_of(file: Path) -> dict[str, Any]:
    """Return the manifest as another library decodes it."""
    root: dict[str, Any] = cbor2.loads(file.read_bytes()[-16 - size_of_manifest(file) : -16])
    return root


def size_of_manifest(file: Path) -> int:
    return int.from_bytes(file.read_bytes()[-16:-8], "little")


def dense_of(file: Path) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in load_file(file).items()}


# --- One commit -----------------------------------------------------------------------------


def test_several_changes_are_one_commit(path: Path) -> None:
    before = path.read_bytes()
    with ztensor.Editor(path) as editor:
        editor.write("new", FOUR)
        editor.add("newer", FOUR * 2)
        with editor.stream("streamed", (2, 4), "float32") as sink:
            sink.write(FOUR)
            sink.write(FOUR)
        editor.replace("a", np.arange(3))
        editor.remove("b")
        editor.rename({"z": "zz"})
        editor.set_attributes({"step": 2, "note": None})
        assert sorted(editor.keys()) == ["a", "new", "newer", "streamed", "zz"]
    after = path.read_bytes()
    assert after.startswith(before)
    with ztensor.open(path) as reader:
        assert set(reader) == {"new", "newer", "streamed", "a", "zz"}
        assert reader.attributes == {"step": 2}
        assert reader["a"].tolist() == [0, 1, 2]
        assert reader.metadata("a").attributes == {"unit": "m"}
        assert reader["streamed"].tolist() == [FOUR.tolist()] * 2
        assert (reader["zz"] == LARGE).all()
        assert reader.verify().ok
    # The states within: the old one, and this one. Between them nothing ends with a footer.
    assert after.count(b"ZTEN1000", len(before)) == 2  # the last guard, and the commit


def test_nothing_changed_is_nothing_written(path: Path) -> None:
    before, changed_at = path.read_bytes(), path.stat().st_mtime_ns
    with ztensor.Editor(path) as editor:
        editor.rename({"a": "a"})
        editor.remove([])
        assert editor.finish() == len(before)
    with ztensor.Editor(path):
        pass
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == changed_at


def test_an_editor_that_is_forgotten_commits_nothing_and_lets_go(path: Path) -> None:
    old = dense_of(path)
    editor: Any = ztensor.Editor(path)
    editor.write("new", FOUR)
    del editor
    gc.collect()
    assert dense_of(path) == old
    ztensor.edit.remove_tensors(path, names="a")  # the lock is free


def test_finish_returns_the_length_and_ends_it(path: Path) -> None:
    with ztensor.Editor(path) as editor:
        sink = editor.stream("new", (4,), "float32")
        with pytest.raises(UsageError):  # the stream is still open
            editor.finish()
        sink.write(FOUR)
        sink.close()
        assert editor.finish() == path.stat().st_size
    for use in (
        lambda: editor.write("x", FOUR),
        lambda: editor.remove("a"),
        lambda: editor.rename({"a": "x"}),
        lambda: editor.set_attributes({}),
        lambda: editor.replace("a", FOUR),
        editor.finish,
    ):
        with pytest.raises(ClosedError):
            use()
    editor.abort()
    assert "new" in dense_of(path)


# --- Single changes -------------------------------------------------------------------------


WRONG_NAMES: dict[str, tuple[Any, type[Exception], str]] = {  # and the name that is refused
    "taken": ({"a": "b"}, UsageError, "b"),
    "taken by the first": ({"a": "z", "b": "free"}, UsageError, "z"),
    "taken by the second": ({"a": "free", "b": "z"}, UsageError, "z"),
    "twice": ({"a": "new", "b": "new"}, UsageError, "new"),
    "twice and taken": ({"a": "b", "z": "b"}, UsageError, "b"),
    "moved onto another": ({"a": "b", "b": "z"}, UsageError, "z"),
    "missing": ({"missing": "x"}, ObjectNotFoundError, ""),
    "the second missing": ({"a": "x", "missing": "y"}, ObjectNotFoundError, ""),
    "not text": ({"a": 5}, ArgumentTypeError, ""),
    "not UTF-8": ({"a": "\ud800"}, NotRepresentableError, ""),
}


@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
@pytest.mark.parametrize("case", WRONG_NAMES)
def test_names_that_cannot_be(case: str, version: str, tmp_path: Path) -> None:
    names, kind, wrong = WRONG_NAMES[case]
    path = tmp_path / "m.zt"
    save_file(dict.fromkeys("abz", FOUR), path, version=version, deduplicate=False)
    before = path.read_bytes()
    with pytest.raises(kind) as caught:
        ztensor.edit.rename_tensors(path, names)
    error: Any = caught.value
    if kind is UsageError:
        assert error.reason is Reason.DUPLICATE_WRITE
    assert error.object_name == wrong or not wrong
    assert path.read_bytes() == before


def test_a_refused_change_leaves_the_editor_usable(path: Path) -> None:
    with ztensor.Editor(path) as editor:
        refusals: list[Callable[[], object]] = [
            lambda: editor.write("a", FOUR),
            lambda: editor.rename({"a": "b"}),
            lambda: editor.remove(["b", "missing"]),
            lambda: editor.replace("missing", FOUR),
            lambda: editor.replace("a", "text"),
            lambda: editor.set_attributes({"x": object()}),
            lambda: editor.set_attributes({"x": object()}, name="a"),
            lambda: editor.set_attributes({"x": 1}, name="missing"),
        ]
        for refused in refusals:
            with pytest.raises(ztensor.ZTensorError):
                refused()
        editor.write("c", FOUR)
    assert set(dense_of(path)) == {"a", "b", "c", "z"}
    with ztensor.open(path) as reader:
        assert reader.metadata("a").attributes == {"unit": "m"}
        assert reader.attributes["step"] == 1


def test_attributes_are_merged_dropped_and_replaced(path: Path) -> None:
    ztensor.edit.set_attributes(path, {"new": 1.5, "note": None})
    ztensor.edit.set_attributes(path, {"kind": "weights"}, name="a")
    with ztensor.open(path) as reader:
        assert reader.attributes == {"step": 1, "new": 1.5}
        assert reader.metadata("a").attributes == {"unit": "m", "kind": "weights"}
    ztensor.edit.set_attributes(path, {"only": True}, replace=True)
    ztensor.edit.set_attributes(path, {}, name="a", replace=True)
    with ztensor.open(path) as reader:
        assert reader.attributes == {"only": True}
        assert reader.metadata("a").attributes == {}
    assert "attributes" not in root_of(path)["objects"]["a"]


# --- Fields that are kept -------------------------------------------------------------------


def file_from_the_future(version: str) -> bytes:
    new = draft(version)
    new.root["made by"] = {"name": "another library", "steps": [1, 2.5, None, b"\x00\xff"]}
    new.root["zeta"] = False
    new.root["attributes"] = {"license": "x", "deep": "y"}
    new.objects["matrix"]["hint"] = "row major"
    new.objects["matrix"]["attributes"] = {"unit": "m"}
    new.component("matrix")["checked by"] = ["a", "b"]
    new.component("rows", "indptr")["sorted"] = True
    return new.to_bytes()


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_unknown_fields_survive_every_change(version: str, atomic: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(file_from_the_future(version))
    before = root_of(path)
    with ztensor.Editor(path, atomic=atomic) as editor:
        editor.write("new", FOUR)
    ztensor.edit.rename_tensors(path, {"matrix": "table"}, atomic=atomic)
    ztensor.edit.remove_tensors(path, names="flags", atomic=atomic)
    ztensor.edit.set_attributes(path, {"added": "z"}, atomic=atomic)
    ztensor.compact(path)
    after = root_of(path)
    assert after["version"] == version
    assert after["made by"] == before["made by"]
    assert after["zeta"] is False
    assert after["attributes"] == {**before["attributes"], "added": "z"}
    old, new = before["objects"]["matrix"], after["objects"]["table"]
    assert new["hint"] == "row major"
    assert new["attributes"] == {"unit": "m"}
    assert new["components"]["data"]["checked by"] == ["a", "b"]
    assert new["components"]["data"]["digest"] == old["components"]["data"]["digest"]
    assert after["objects"]["rows"]["components"]["indptr"]["sorted"] is True
    with ztensor.open(path) as reader:
        assert reader["table"].tolist() == VALUES["matrix"]
        assert reader.read("rows").to_dense().tolist() == VALUES["rows"]
        assert reader.verify().ok


def test_what_1_1_cannot_say_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(build("1.1.0"))
    before = path.read_bytes()
    editor = ztensor.Editor(path)
    with pytest.raises(NotRepresentableError, match=r"1\.1\.0"):
        editor.write("x", FOUR.astype(ml_dtypes.float8_e4m3fnuz))
    with pytest.raises(NotRepresentableError, match="text"):
        editor.set_attributes({"number": 5})
    editor.abort()
    assert path.read_bytes() == before


def test_a_1_1_file_another_library_appended_to_keeps_its_new_fields(tmp_path: Path) -> None:
    """1.2.3 leaves the version text and adds fields of 1.2; such a file is changed alike."""
    path = tmp_path / "m.zt"
    new = draft("1.1.0")
    new.component("packed")["uncompressed_length"] = 6
    new.root["attributes"] = {"number": 5}
    path.write_bytes(new.to_bytes())
    with ztensor.Editor(path) as editor:
        editor.write("eight bits", FOUR.astype(ml_dtypes.float8_e4m3fnuz))
    root = root_of(path)
    assert root["version"] == "1.1.0"
    assert root["objects"]["packed"]["components"]["data"]["uncompressed_length"] == 6
    ztensor.compact(path)
    with ztensor.open(path) as reader:
        assert reader["eight bits"].tolist() == FOUR.tolist()
        assert reader["packed"].tolist() == VALUES["packed"]
        assert reader.attributes == {"number": 5}


REWRITTEN: dict[str, Callable[[], bytes]] = {
    "0.1.0": lambda: build("0.1.0"),
    "1.0": lambda: next(iter(sorted((CORPUS / "real/1.0.1").glob("*.zt")))).read_bytes(),
}


@pytest.mark.parametrize("version", list(REWRITTEN))
@pytest.mark.parametrize("atomic", [False, True])
def test_a_container_that_cannot_be_extended_is_rewritten_and_says_so(
    version: str, atomic: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(REWRITTEN[version]())
    with ztensor.open(path) as reader:
        old = {name: reader.read(name).to_dense().tobytes() for name in reader}
        attributes = {name: reader.metadata(name).attributes for name in reader}
        assert reader.version == version
    with (
        caplog.at_level(logging.WARNING, "ztensor"),
        ztensor.Editor(path, atomic=atomic) as editor,
    ):
        assert editor.rewritten_from == version
        editor.write("added", FOUR)
    assert "becomes a 1.2.0 file" in caplog.text
    with ztensor.open(path) as reader:
        assert reader.version == "1.2.0"
        assert reader["added"].tolist() == FOUR.tolist()
        for name, value in old.items():
            assert reader.read(name).to_dense().tobytes() == value
            assert reader.metadata(name).attributes == attributes[name]
        assert reader.verify().ok
    with ztensor.Editor(path) as editor:
        assert editor.rewritten_from is None
    path.write_bytes(REWRITTEN[version]())
    with ztensor.Editor(path):  # also without a change
        pass
    assert ztensor.open(path).version == "1.2.0"


@pytest.mark.wing
def test_fields_that_mean_something_later_are_not_carried_into_1_2(tmp_path: Path) -> None:
    """A rewritten file must be readable, whatever unknown fields the old container had."""
    blob = FOUR.tobytes()
    part = {"offset": 64, "length": len(blob), "uncompressed_length": 3, "type": "x", "dtype": "q"}
    tensor = {"dtype": "float32", "shape": [4], "format": "dense", "components": {"data": part}}
    root = {
        "version": "1.0", "generator": "g", "attributes": {}, "objects": 5, "commit": {},
        "tensors": {"a": tensor},
    }  # fmt: skip
    manifest = cbor2.dumps(root)
    path = tmp_path / "m.zt"
    data = b"ZTEN1000" + bytes(56) + blob + manifest + len(manifest).to_bytes(8, "little")
    path.write_bytes(data)
    ztensor.merge([path], tmp_path / "merged.zt")
    ztensor.edit.set_attributes(path, {"k": "v"})
    assert dense_of(path) == dense_of(tmp_path / "merged.zt") == {"a": FOUR.tolist()}
    assert root_of(path)["generator"] == "g"


# --- The file -------------------------------------------------------------------------------


def test_in_place_the_file_stays_the_same_file(path: Path, tmp_path: Path) -> None:
    os.link(path, tmp_path / "hard link")
    inode = path.stat().st_ino
    ztensor.edit.remove_tensors(path, names="a")
    assert path.stat().st_ino == inode
    assert "a" not in dense_of(tmp_path / "hard link")


def test_atomic_puts_a_new_file_in_its_place(path: Path, tmp_path: Path) -> None:
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    os.link(path, tmp_path / "hard link")
    before = path.read_bytes()
    size = len(before)
    with ztensor.open(path) as reader:
        ztensor.edit.replace_tensor(tmp_path / "link", "a", FOUR, atomic=True)
        assert reader["a"].shape == (2, 3)
    assert (tmp_path / "hard link").read_bytes() == before
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert dense_of(path)["a"] == FOUR.tolist()
    assert root_of(path)["commit"]["prev"] == 0
    # No guard, no old manifest: only the replaced blob is dead.
    assert path.stat().st_size < size + 64 + FOUR.nbytes
    assert sorted(os.listdir(tmp_path)) == ["hard link", "link", "m.zt"]


def another_major_version() -> bytes:
    new = draft("1.2.0")
    new.root["version"] = "2.0.0"
    return new.to_bytes()


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], type[Exception], str]] = {
    "torn": (lambda data: data + b"half of something", FormatError, "ztensor repair"),
    "flipped": (
        lambda data: data[:-60] + bytes([data[-60] ^ 1]) + data[-59:],
        FormatError,
        "ztensor repair",
    ),
    "empty": (lambda data: b"", FormatError, "is empty"),
    "npy": (lambda data: b"\x93NUMPY" + data[6:], UsageError, "ztensor convert"),
    "of no format": (lambda data: b"none" + data[4:], NotZTensorError, ""),
    "of another version": (lambda data: another_major_version(), UnsupportedVersionError, ""),
}  # fmt: skip


@pytest.mark.wing
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_file_that_cannot_be_changed_is_refused_with_the_way_out(path: Path, damage: str) -> None:
    damaged, kind, way_out = DAMAGED[damage]
    path.write_bytes(damaged(path.read_bytes()))
    before = path.read_bytes()
    changes: list[Callable[[], object]] = [
        lambda: ztensor.edit.remove_tensors(path, names="a"),
        lambda: ztensor.edit.rename_tensors(path, {"a": "x"}, atomic=True),
        lambda: ztensor.edit.replace_tensor(path, "a", FOUR),
        lambda: ztensor.compact(path),
    ]
    for change in changes:
        with pytest.raises(kind) as caught:
            change()
        assert way_out in str(caught.value)
        assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


# --- The lock -------------------------------------------------------------------------------


@pytest.mark.parametrize("atomic", [False, True])
def test_a_second_writer_is_turned_away(path: Path, atomic: bool) -> None:
    with ztensor.Editor(path, atomic=atomic) as first:
        with refused(SourceError, Reason.SOURCE_LOCKED, match="locked by another process"):
            ztensor.Editor(path)
        with pytest.raises(SourceError):
            ztensor.compact(path)
        first.write("new", FOUR)
    assert "new" in dense_of(path)


def test_without_a_lock_the_caller_answers_for_being_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with pytest.raises(SourceError, match="lock=False") as caught:
        ztensor.edit.remove_tensors(path, names="a")
    assert caught.value.errno == 37
    ztensor.edit.remove_tensors(path, names="a", lock=False)
    assert "a" not in dense_of(path)
