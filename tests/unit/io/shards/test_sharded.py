"""Several files read as one mapping, and a dict saved as several files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip_object
from tests.refusals import refused
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    DigestMismatchError,
    FormatError,
    LimitError,
    ObjectNotFoundError,
    Reason,
    SourceError,
    SourceNotFoundError,
)
from ztensor.ext import FileSink, Portable
from ztensor.io.shards.naming import shard_paths
from ztensor.numpy import load_file, save, save_file
from ztensor.typing import ShardedReader


def tensors(start: float = 0) -> dict[str, Any]:
    """Return seven arrays of 4,000 bytes, one of them under two names, and a sparse tensor."""
    result: dict[str, Any] = {f"layer.{i}": np.full(1000, start + i, np.float32) for i in range(7)}
    result["tied"] = result["layer.0"]
    result["sparse"] = ztensor.Tensor.csr([start], [2], [0, 1], (1, 3))
    return result


def equal(found: Any, expected: dict[str, Any]) -> bool:
    dense = {name for name in expected if name != "sparse"}
    return (
        set(found) == set(expected)
        and all(np.array_equal(found[name], expected[name]) for name in dense)
        and np.array_equal(found["sparse"].to_dense(), expected["sparse"].to_dense())
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return where four shards and their index were saved."""
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(tensors(), folder / "model.zt", {"format": "np"}, max_shard_size="10KB")
    assert sorted(os.listdir(folder)) == [
        *(f"model-{number:05d}-of-00004.zt" for number in range(1, 5)),
        "model.zt.index.json",
    ]
    return folder / "model.zt"


def shards(model: Path) -> list[Path]:
    return sorted(model.parent.glob("model-*.zt"))


def index_of(model: Path) -> Path:
    return model.with_name("model.zt.index.json")


def rewrite(model: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    path = index_of(model)
    index = json.loads(path.read_text("ascii"))
    change(index)
    path.write_text(json.dumps(index), "ascii")
    return path


SPELLINGS: dict[str, Callable[[Path], Any]] = {
    "index": index_of,
    "index as text": lambda model: str(index_of(model)),
    "folder": lambda model: model.parent,
    "list": shards,
    "tuple of texts": lambda model: tuple(map(str, shards(model))),
    "name of the whole": lambda model: model,
}


# --- Reading --------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SPELLINGS.values(), ids=SPELLINGS)
def test_a_set_reads_as_one_mapping(model: Path, source: Callable[[Path], Any]) -> None:
    expected = tensors()
    with ztensor.open(source(model)) as reader:
        assert isinstance(reader, ShardedReader)
        assert isinstance(reader, ztensor.Reader)
        assert set(reader) == set(reader.keys()) == set(expected)
        assert len(reader) == len(expected)
        assert "tied" in reader
        assert "x" not in reader
        assert equal(reader, expected)
        assert (reader.format, reader.version) == ("zt", "1.2.0")
        assert reader.attributes == {"format": "np"}
        assert reader.files == [str(path) for path in shards(model)]
        assert reader.nbytes == sum(path.stat().st_size for path in shards(model))
        is_list = isinstance(source(model), (list, tuple))
        assert reader.index_metadata == ({} if is_list else {"total_size": 8 * 4000 + 32})
        assert f"{len(expected)} objects in 4 files" in repr(reader)
    assert equal(load_file(source(model)), expected)
    assert equal(load_file(source(model), copy=True, verify=True), expected)


def test_what_a_reader_does_is_done_by_the_one_of_the_file(model: Path) -> None:
    with ztensor.open(model) as reader:
        assert reader.metadata("layer.3").shape == (1000,)
        assert [found.name for found in reader.metadata(["tied", "layer.6"])] == ["tied", "layer.6"]
        assert reader.read("layer.2").shape == (1000,)
        assert set(reader.read(["layer.2", "layer.5"])) == {"layer.2", "layer.5"}
        assert reader.read_numpy("layer.4", copy=True)[0] == 4
        assert reader.get_slice("layer.5")[:2].tolist() == [5, 5]
        target = np.zeros(1000, np.float32)
        reader.read_into("layer.6", target)
        assert target[0] == 6
        for name in reader:
            place = reader.location(name, next(iter(reader.metadata(name).components)))
            assert place.path == reader.reader_of(name).name
            assert isinstance(reader, ztensor.io.ShardedReader)
            assert place.path in reader.files
        assert Portable().stored(reader.objects.part("layer.1"), "layer.1") is not None


@pytest.mark.parametrize("source", SPELLINGS.values(), ids=SPELLINGS)
def test_a_set_is_pickled_by_path(
    model: Path, source: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    with ztensor.open(source(model), verify=True) as reader:
        text = pickle.dumps(reader)
    monkeypatch.chdir(model.parent.parent)
    with pickle.loads(text) as again:
        assert equal(again, tensors())
        assert again.objects._how["verify"] is True


def test_a_closed_set(model: Path) -> None:
    reader = ztensor.open(model)
    assert isinstance(reader, ShardedReader)
    reader["layer.0"]
    reader.close()
    reader.close()
    for use in (
        lambda: reader["layer.0"],
        lambda: reader["layer.5"],
        lambda: reader.attributes,
        lambda: reader.version,
        reader.verify,
        lambda: pickle.dumps(reader),
        reader.__enter__,
    ):
        with pytest.raises(ClosedError):
            use()


def test_names_that_are_not_there(model: Path) -> None:
    with ztensor.open(model) as reader:
        assert isinstance(reader, ShardedReader)
        with pytest.raises(ObjectNotFoundError, match=r"did you mean 'layer\.6'"):
            reader["layer.66"]
        with pytest.raises(ObjectNotFoundError):
            reader.verify(["x"])
        with pytest.raises(ObjectNotFoundError):
            reader.shard("x")
        with pytest.raises(ArgumentTypeError):
            reader[5]  # type: ignore[index]


def test_progress_and_order(model: Path) -> None:
    seen: list[tuple[int, int]] = []
    loaded = load_file(model, progress=lambda done, total: seen.append((done, total)))
    with ztensor.open(model) as reader:
        assert list(loaded) == list(reader)
    total = sum(path.stat().st_size for path in shards(model))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert len(seen) == 4
    assert seen[-1] == (total, total)


def test_a_load_has_the_order_of_the_index(model: Path) -> None:
    rewrite(
        model,
        lambda index: index.update(weight_map=dict(reversed(index["weight_map"].items()))),
    )
    with ztensor.open(model) as reader:
        names = list(reader)
    for copy in (False, True):
        assert list(load_file(model, copy=copy)) == names
    assert names != sorted(names)


def test_an_index_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.zt.index.json"
    path.write_text('{"weight_map": {}}')
    assert load_file(path) == {}
    with ztensor.open(path) as reader:
        assert len(reader) == 0
        assert reader.attributes == {}
        assert reader.verify().ok
        with pytest.raises(FormatError):
            _ = reader.version


def test_shards_in_folders_of_their_own(model: Path) -> None:
    (model.parent / "parts").mkdir()
    for shard in shards(model):
        shard.rename(model.parent / "parts" / shard.name)

    def move(index: dict[str, Any]) -> None:
        index["weight_map"] = {name: f"parts/{f}" for name, f in index["weight_map"].items()}

    assert equal(load_file(rewrite(model, move)), tensors())


def test_every_version_in_one_set(tmp_path: Path) -> None:
    weight_map = {}
    for version in ("0.1.0", "1.1.0", "1.2.0"):
        save_file({version: np.arange(3)}, tmp_path / f"{version}.zt", version=version)
        weight_map[version] = f"{version}.zt"
    (tmp_path / "m.zt.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for source in (tmp_path / "m.zt.index.json", tmp_path):
        found = load_file(source)
        assert set(found) == set(weight_map)
        assert all(array.tolist() == [0, 1, 2] for array in found.values())


# --- Folders --------------------------------------------------------------------------------


def test_a_whole_file_comes_before_its_shards(model: Path) -> None:
    """It is newer: a save in one file removes the index behind it."""
    save_file(tensors(50), model)
    assert equal(load_file(model.parent), tensors(50))
    assert equal(load_file(model), tensors(50))
    assert equal(load_file(index_of(model)), tensors())


def test_an_index_of_other_files_counts_where_there_are_no_others(model: Path) -> None:
    index_of(model).rename(model.parent / "other.index.json")
    for shard in shards(model):
        shard.rename(shard.with_suffix(".bin"))
    text = (model.parent / "other.index.json").read_text()
    (model.parent / "other.index.json").write_text(text.replace(".zt", ".bin"))
    assert equal(load_file(model.parent), tensors())
    save_file({"x": np.zeros(1)}, model.parent / "x.zt")
    assert set(load_file(model.parent)) == {"x"}


def test_a_folder_with_some_shards_and_no_index(model: Path) -> None:
    index_of(model).unlink()
    shards(model)[2].unlink()
    with pytest.raises(SourceNotFoundError, match="1 missing, the first is 3") as caught:
        ztensor.open(model.parent)
    assert caught.value.file == str(model.parent)
    with ztensor.open(shards(model)) as reader:  # the way out
        assert len(reader) < len(tensors())


# --- Sets that are wrong --------------------------------------------------------------------


def test_a_shard_that_is_missing(model: Path) -> None:
    shards(model)[1].unlink()
    for source in (index_of(model), model, model.parent):
        with pytest.raises(FileNotFoundError) as caught:
            ztensor.open(source)
        assert isinstance(caught.value, SourceNotFoundError)
        assert caught.value.file == str(index_of(model))
        for part in ("model-00002-of-00004.zt", "layer.2", "1 of 4", "a list of their paths"):
            assert part in str(caught.value)


def test_objects_the_index_promises_and_the_shard_has_not(model: Path) -> None:
    def add(index: dict[str, Any]) -> None:
        for number in range(5):
            index["weight_map"][f"ghost.{number}"] = "model-00001-of-00004.zt"

    rewrite(model, add)
    with ztensor.open(model) as reader:
        assert "ghost.0" in reader
        assert reader["layer.6"][0] == 6
        for name in ("ghost.0", "layer.0"):  # the file is not the one the index is about
            with refused(FormatError, Reason.SHARD_INDEX) as caught:
                reader[name]
            for part in ("'ghost.0', 'ghost.1', 'ghost.2' and 2 more", "model-00001-of-00004.zt"):
                assert part in str(caught.value)
        report = reader.verify()
        assert [problem.path for problem in report.problems] == [(str(shards(model)[0]),)]
    with pytest.raises(FormatError):
        load_file(model)


def damage(path: Path, name: str) -> None:
    flip_object(path, name)


def test_damage_names_the_shard(model: Path) -> None:
    damage(shards(model)[1], "layer.2")
    with ztensor.open(model) as reader:
        with pytest.raises(DigestMismatchError) as caught:
            reader.read_numpy("layer.2", copy=True)
        assert (caught.value.file, caught.value.object_name) == (str(shards(model)[1]), "layer.2")
        report = reader.verify()
    assert not report.ok
    (problem,) = report.problems
    assert problem.path[:3] == (str(shards(model)[1]), "objects", "layer.2")
    assert problem.object_name == "layer.2"
    assert report.objects == 9
    with pytest.raises(DigestMismatchError, match="model-00002-of-00004"):
        load_file(model, copy=True)


def test_a_shard_that_is_no_file_of_ours(model: Path) -> None:
    shards(model)[3].write_bytes(b"not a file")
    with ztensor.open(model) as reader:
        assert reader["layer.0"][0] == 0
        with pytest.raises(FormatError) as caught:
            reader["layer.6"]
        assert caught.value.file == str(shards(model)[3])
        report = reader.verify()
        assert {problem.path[0] for problem in report.problems} == {str(shards(model)[3])}
        assert report.objects == sum(len(ztensor.open(path)) for path in shards(model)[:3])


def test_verify_reports_everything_once(model: Path) -> None:
    seen: list[tuple[int, int]] = []
    with ztensor.open(model) as reader:
        report = reader.verify(progress=lambda done, total: seen.append((done, total)))
        assert report.ok
        assert report.objects == 9
        assert report.checked == 8 + 3
        assert seen[-1] == (report.nbytes, report.nbytes)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert reader.verify("layer.3").objects == 1
        assert reader.verify(["layer.3", "tied"]).nbytes == 8000


@pytest.mark.wing
def test_the_digests_of_an_index_are_checked(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "m.zt")
    paths = ztensor.split(tmp_path / "m.zt", max_shard_size="10KB")
    seen: list[tuple[int, int]] = []
    with ztensor.open(paths[-1]) as reader:
        assert reader.verify(progress=lambda done, total: seen.append((done, total))).ok
    assert seen[-1][0] == seen[-1][1]
    ztensor.edit.set_attributes(paths[0], {"new": "1"})
    with ztensor.open(paths[-1]) as reader:
        report = reader.verify()
        assert [problem.reason for problem in report.problems] == [Reason.DIGEST_MISMATCH]
        assert report.problems[0].path == (paths[0],)
        assert reader.verify(list(reader)).ok
    index = json.loads(Path(paths[-1]).read_text())
    name = os.path.basename(paths[1])
    index["metadata"]["digests"] = {name: "sha256:zz", "another": "x"}
    Path(paths[-1]).write_text(json.dumps(index))
    with ztensor.open(paths[-1]) as reader:
        assert [p.reason for p in reader.verify().problems] == [Reason.DIGEST_MALFORMED]
    index["metadata"]["digests"] = {name: "md77:0011"}
    Path(paths[-1]).write_text(json.dumps(index))
    with ztensor.open(paths[-1]) as reader:
        assert reader.verify().ok


def test_a_set_that_was_saved_anew_is_not_mixed(model: Path) -> None:
    with ztensor.open(model) as reader:
        assert reader["layer.0"][0] == 0
        save_file(tensors(100), model, max_shard_size="10KB")
        assert reader["layer.1"][0] == 1  # of the file that is open
        with refused(SourceError, Reason.SOURCE_CHANGED):
            reader["layer.6"]
    assert equal(load_file(model), tensors(100))


LISTS: dict[str, tuple[Any, type[Exception]]] = {
    "empty": ([], ArgumentValueError),
    "numbers": ([1], ArgumentTypeError),
    "bytes": ([b"x"], ArgumentTypeError),
    "None": ([None], ArgumentTypeError),
    "nothing there": (["no such file.zt"], FileNotFoundError),
    "twice": (["a.zt", "a.zt"], ArgumentValueError),
}


@pytest.mark.parametrize(("given", "kind"), LISTS.values(), ids=LISTS)
def test_lists_that_are_none(given: Any, kind: type[Exception], tmp_path: Path) -> None:
    for use in (ztensor.open, load_file):
        with pytest.raises(kind) as caught:
            use(given)
        assert isinstance(caught.value, ztensor.ZTensorError)


def test_a_list_closes_what_it_opened_before_it_failed(model: Path) -> None:
    bad = model.parent / "bad.zt"
    bad.write_bytes(b"x")
    with pytest.raises(FormatError):
        ztensor.open([*shards(model), bad])  # an open file left behind is a warning, an error here


# --- Hostile indexes ------------------------------------------------------------------------


def of(weight_map: object, **more: object) -> str:
    return json.dumps({"weight_map": weight_map, **more})


HOSTILE: dict[str, tuple[str | bytes, type[ztensor.ZTensorError], Reason]] = {
    "empty": ("", FormatError, Reason.SHARD_INDEX),
    "binary": (bytes(range(256)), FormatError, Reason.SHARD_INDEX),
    "a file of ours": (save({"a": np.zeros(1)}), FormatError, Reason.SHARD_INDEX),
    "more behind it": ('{"weight_map": {}} {}', FormatError, Reason.SHARD_INDEX),
    "huge number": (f'{{"weight_map": {"9" * 10_000}}}', FormatError, Reason.SHARD_INDEX),
    "no map": ('{"metadata": {}}', FormatError, Reason.SHARD_INDEX),
    "map of another type": (of(["a"]), FormatError, Reason.SHARD_INDEX),
    "files of another type": (of({"a": 5}), FormatError, Reason.SHARD_INDEX),
    "nested file": (of({"a": {"b": "c"}}), FormatError, Reason.SHARD_INDEX),
    "metadata of another type": (of({}, metadata=[1]), FormatError, Reason.SHARD_INDEX),
    "deep": ("[" * 200_000, LimitError, Reason.LIMIT_DEPTH),
    "a name twice": (
        '{"weight_map": {"a": "b.zt", "c": "b.zt", "a": "b.zt"}}',
        FormatError,
        Reason.DUPLICATE_NAME,
    ),
    "two maps": ('{"weight_map": {}, "weight_map": {}}', FormatError, Reason.DUPLICATE_NAME),
}


@pytest.mark.parametrize(("text", "kind", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_index(
    text: str | bytes, kind: type[ztensor.ZTensorError], reason: Reason, tmp_path: Path
) -> None:
    path = tmp_path / "m.zt.index.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    for source in (path, tmp_path, tmp_path / "m.zt"):
        with refused(kind, reason) as caught:
            ztensor.open(source)
        assert caught.value.file == str(path)
        assert len(str(caught.value)) < 600 + len(str(path))
    with pytest.raises(kind):
        load_file(path)


def test_an_index_over_the_cap(model: Path) -> None:
    length = index_of(model).stat().st_size
    with ztensor.open(model, limits=ztensor.Limits(index_bytes=length)) as reader:
        assert len(reader) == 9
    with refused(LimitError, Reason.LIMIT_MANIFEST, match="index_bytes"):
        ztensor.open(model, limits=ztensor.Limits(index_bytes=length - 1))
    with index_of(model).open("r+b") as file:
        file.truncate(1 << 40)  # a hole: takes no space
    with pytest.raises(LimitError):
        ztensor.open(model)


OUTSIDE = {
    "up": "../secret.zt",
    "root": "/secret.zt",
    "drive": "C:\\secret.zt",
    "NUL": "a\0.zt",
    "empty": "",
    "half a letter": "\ud800.zt",
}


@pytest.mark.parametrize("file", OUTSIDE.values(), ids=OUTSIDE)
def test_an_index_does_not_lead_outside(file: str, tmp_path: Path) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "secret.zt")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "m.zt.index.json").write_text(of({"a": file}))
    with refused(FormatError, Reason.SHARD_INDEX, match="leads out of its folder") as caught:
        ztensor.open(folder)
    assert caught.value.file == str(folder / "m.zt.index.json")


# --- Saving ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "most", "count"),
    [
        ((8000, 8000, 8000), 16_000, 2),
        ((8000, 8000, 8000), 15_999, 3),
        ((80_000, 8), 100, 2),  # an object larger than the size has a shard of its own
        ((8000, 8000), "5GB", 1),
        ((), 1, 1),
    ],
)
def test_a_shard_is_at_most_as_long_as_was_said(
    sizes: tuple[int, ...], most: int | str, count: int, tmp_path: Path
) -> None:
    arrays = {str(number): np.zeros(size // 8) for number, size in enumerate(sizes)}
    seen: list[tuple[int, int]] = []
    save_file(
        arrays, tmp_path / "m.zt", max_shard_size=most, compression=True, version="1.1.0",
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    files = sorted(tmp_path.glob("*.zt"))
    assert len(files) == count
    assert (tmp_path / "m.zt").exists() is (count == 1)
    assert {ztensor.open(file).version for file in files} == {"1.1.0"}
    assert seen == sorted(seen)
    assert not sizes or seen[-1] == (sum(sizes), sum(sizes))
    assert load_file(tmp_path / "m.zt").keys() == arrays.keys()


@pytest.mark.parametrize("size", ["", "x", 0, -1, True, 1.5, "5XB"])
def test_sizes_that_are_none(size: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError):
        save_file(tensors(), tmp_path / "m.zt", max_shard_size=size)
    assert os.listdir(tmp_path) == []


def test_a_file_object_has_no_name_for_shards(tmp_path: Path) -> None:
    with (tmp_path / "m.zt").open("wb") as file, pytest.raises(ArgumentTypeError):
        save_file(tensors(), file, max_shard_size=100)
    with pytest.raises(ArgumentTypeError, match="mapping"):
        save_file([1], tmp_path / "m.zt", max_shard_size=100)  # type: ignore[arg-type]


CHANGES: dict[str, tuple[Any, Any]] = {
    "same count": ("10KB", "10KB"),
    "fewer": ("5KB", "10KB"),
    "more": ("10KB", "5KB"),
    "to one file": ("10KB", "5GB"),
    "from one file": ("5GB", "10KB"),
}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_a_new_save_replaces_the_old_one(before: Any, after: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.zt"
    (tmp_path / "config.json").write_text("{}")
    save_file(tensors(), path, max_shard_size=before)
    views = load_file(path)
    save_file(tensors(100), path, max_shard_size=after)
    assert equal(load_file(path), tensors(100))
    assert equal(load_file(tmp_path), tensors(100))
    assert equal(views, tensors())
    del views
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    save_file(tensors(100), fresh / "model.zt", max_shard_size=after)
    assert sorted(os.listdir(tmp_path)) == sorted([*os.listdir(fresh), "config.json", "fresh"])


def test_saving_what_was_loaded_from_the_same_set(model: Path) -> None:
    loaded = load_file(model)
    loaded["layer.3"][:] = 33
    save_file(loaded, model, max_shard_size="10KB")
    expected = tensors()
    expected["layer.3"] = np.full(1000, 33, np.float32)
    assert equal(load_file(model), expected)


def test_an_old_index_that_is_damaged_is_replaced(model: Path) -> None:
    index_of(model).write_text("{")
    save_file(tensors(100), model, max_shard_size="10KB")
    assert equal(load_file(model), tensors(100))


STEPS = ["link", "replace", "unlink"]


@pytest.mark.parametrize("before", ["10KB", "5KB", "5GB"])
@pytest.mark.parametrize("after", ["10KB", "5GB"])
def test_at_every_moment_the_folder_has_one_whole_set(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each rename, the folder has the old set or the new one."""
    path = tmp_path / "model.zt"
    save_file(tensors(), path, max_shard_size=before)
    seen: list[str] = []

    def watched(name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def run(*arguments: Any, **options: Any) -> Any:
            with monkeypatch.context() as patch:
                for step in STEPS:
                    patch.setattr(os, step, original[step])
                found = load_file(tmp_path, copy=True)
                seen.append("old" if equal(found, tensors()) else "new")
                assert seen[-1] == "old" or equal(found, tensors(100))
            return call(*arguments, **options)

        return run

    original = {step: getattr(os, step) for step in STEPS}
    with monkeypatch.context() as patch:
        for step in STEPS:
            patch.setattr(os, step, watched(step))
        save_file(tensors(100), path, max_shard_size=after)
    assert seen == sorted(seen, reverse=True)  # old, old, ..., new, new
    assert seen[0] == "old"
    assert equal(load_file(tmp_path), tensors(100))


def test_without_hard_links_shards_keep_other_names(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        patch.delattr(os, "O_TMPFILE", raising=False)
        save_file(tensors(100), model, max_shard_size="10KB")
    assert equal(load_file(model), tensors(100))
    assert equal(load_file(model.parent), tensors(100))
    assert len(os.listdir(model.parent)) == 5
    save_file(tensors(200), model, max_shard_size="10KB")  # and get their own the next time
    assert equal(load_file(model), tensors(200))
    assert sorted(os.listdir(model.parent)) == [
        *(os.path.basename(path) for path in shard_paths("model.zt", 4)),
        "model.zt.index.json",
    ]


@pytest.mark.parametrize("number", [1, 2])
def test_an_index_that_is_in_place_though_its_flush_failed(
    number: int, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shards must stay, although the call failed."""
    commit, indexes = FileSink.commit, 0

    def failing(sink: FileSink, manifest: bytes = b"") -> None:
        nonlocal indexes
        commit(sink, manifest)
        indexes += sink.name.endswith(".json")
        if indexes == number:
            raise SourceError("the new file is in place", errno=errno.EIO, file=sink.name)

    with monkeypatch.context() as patch:
        patch.setattr(FileSink, "commit", failing)
        with pytest.raises(SourceError) if number == 1 else contextlib.nullcontext():
            save_file(tensors(100), model, max_shard_size="10KB")
    assert equal(load_file(model, copy=True), tensors(100))
    save_file(tensors(200), model, max_shard_size="10KB")
    assert equal(load_file(model.parent), tensors(200))
    assert len(os.listdir(model.parent)) == 5


def test_what_a_killed_save_left_is_swept(model: Path) -> None:
    left = model.parent / "model-00001-of-00004.0123abcd.zt"
    others = model.parent / "others-00001-of-00004.0123abcd.zt"
    for path in (left, others):
        shutil.copy(shards(model)[0], path)
    index_of(model).unlink()
    assert equal(load_file(model.parent), tensors())  # it counts for nothing
    save_file(tensors(100), model, max_shard_size="10KB")
    assert not left.exists()
    assert others.exists()
    assert equal(load_file(model.parent), tensors(100))
