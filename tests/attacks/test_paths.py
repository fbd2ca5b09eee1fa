"""A path leads where it must not: out of its folder, to a hidden file, or nowhere at all."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.links import link
from ztensor import edit
from ztensor.errors import ArgumentValueError
from ztensor.ext import Beneath
from ztensor.io.edit import repairing
from ztensor.io.source import beneath
from ztensor.numpy import load_file, save, save_file

TENSORS = {"a": np.arange(1000.0), "b": np.ones(1000)}
SECRET = {"a": np.zeros(1000), "b": np.zeros(1000)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder of two shards and their index, beside a folder of other ones of these names."""
    for name, tensors in (("model", TENSORS), ("outside", SECRET)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "m.zt", max_shard_size=8000)
    return tmp_path / "model"


def swap(model: Path, number: int) -> None:
    """Put a link to the shard outside in a shard's place."""
    name = f"m-0000{number}-of-00002.zt"
    (model / name).unlink()
    link(model / name, model.parent / "outside" / name)


# --- Sets of files --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["file", "folder"])
def test_a_shard_swapped_for_a_link_is_not_followed(how: str, model: Path) -> None:
    """A shard is swapped for a link out of the folder after the index was opened."""
    index = model / "m.zt.index.json"
    if how == "folder":
        (model / "parts").mkdir()
        for number in (1, 2):
            name = f"m-0000{number}-of-00002.zt"
            (model / name).rename(model / "parts" / name)
            text = index.read_text().replace(f'"{name}"', f'"parts/{name}"')
            index.write_text(text)
    with ztensor.open(index) as reader:
        assert reader["a"][1] == 1
        if how == "file":
            swap(model, 2)
        else:
            (model / "parts").rename(model / "was")
            link(model / "parts", model.parent / "outside")
        with pytest.raises(ztensor.UnsupportedError, match="symbolic link") as caught:
            reader["b"]
        assert caught.value.reason is ztensor.Reason.SOURCE_NOT_REGULAR
        with pytest.raises((ztensor.UnsupportedError, ztensor.FormatError)):
            load_file(index)


def test_a_link_put_in_the_way_of_the_open_is_not_followed(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link is put in place between the question where a path leads and its opening."""
    real = beneath._descend
    (model / "sub").mkdir()
    for name in ("m-00001-of-00002.zt", "sub"):
        place = Beneath(str(model / name / "x" if name == "sub" else model / name), [str(model)])
        if name == "sub":
            (model / name / "x").write_bytes(b"abc")

        def late(root: str, parts: list[str], flags: int, name: str = name) -> Any:
            (model / name).rename(model / f"{name}.was")
            link(model / name, model.parent / "outside" / name)
            return real(root, parts, flags)

        monkeypatch.setattr(beneath, "_descend", late)
        with pytest.raises(ztensor.SourceError) as caught:
            place.open()
        assert caught.value.reason is ztensor.Reason.SOURCE_CHANGED
        assert caught.value.file == place.path


@pytest.mark.parametrize("how", ["shards", "index", "single", "gguf"])
def test_a_link_does_not_lead_out_of_a_folder(how: str, model: Path) -> None:
    """A downloaded folder without an index holds links to files elsewhere."""
    opened = model
    if how == "gguf":
        opened = model / "m-00001-of-00002.gguf"
        for number in (1, 2):
            (model / f"m-0000{number}-of-00002.zt").unlink()
            ztensor.convert(
                save({"ab"[number - 1]: TENSORS["a"].astype(np.float32)}),
                model / f"m-0000{number}-of-00002.gguf",
            )
        (model / "m.zt.index.json").unlink()
        assert len(ztensor.open(opened)) == 2
        second = model / "m-00002-of-00002.gguf"
        second.rename(model.parent / "outside" / "x.gguf")
        link(second, model.parent / "outside" / "x.gguf")
    elif how == "index":
        (model / "m.zt.index.json").unlink()
        link(model / "m.zt.index.json", model.parent / "outside" / "m.zt.index.json")
    else:
        (model / "m.zt.index.json").unlink()
        if how == "single":
            for number in (1, 2):
                (model / f"m-0000{number}-of-00002.zt").unlink()
            save_file(SECRET, model.parent / "outside" / "whole.zt")
            link(model / "whole.zt", model.parent / "outside" / "whole.zt")
        else:
            swap(model, 2)
    with pytest.raises(ztensor.UnsupportedError, match="symbolic link"):
        ztensor.open(opened)
    if how == "single":  # a link that the caller names is followed
        assert set(ztensor.open(model / "whole.zt")) == set(ztensor.open([model / "whole.zt"]))


def test_a_folder_of_the_hubs_cache_is_read(model: Path, tmp_path: Path) -> None:
    """A rule against links breaks the cache of the hub, which is made of them."""
    blobs = tmp_path / "hub" / "blobs"
    revision = tmp_path / "hub" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    revision.mkdir(parents=True)
    for number in (1, 2):
        name = f"m-0000{number}-of-00002.zt"
        (model / name).rename(blobs / str(number))
        link(revision / name, f"../../blobs/{number}")
    assert set(load_file(revision)) == set(TENSORS)
    with ztensor.open(revision) as reader:
        again = pickle.loads(pickle.dumps(reader))
        assert again["b"][0] == 1
        again.close()
    (revision / "m-00002-of-00002.zt").unlink()
    link(revision / "m-00002-of-00002.zt", tmp_path / "outside" / "m-00002-of-00002.zt")
    with pytest.raises(ztensor.UnsupportedError, match="symbolic link"):
        ztensor.open(revision)


def test_a_pickled_reader_of_a_folder_stays_in_it(model: Path) -> None:
    """A reader of a folder is sent to a worker, which opens the files by their paths."""
    (model / "m.zt.index.json").unlink()
    with ztensor.open(model) as reader:
        sent = pickle.dumps(reader)
    swap(model, 2)
    with pytest.raises(ztensor.UnsupportedError, match="symbolic link"):
        pickle.loads(sent)


# --- Hidden files ---------------------------------------------------------------------------

HIDDEN = [".ssh/id_rsa", ".env", "a/.git/config", "./.x", "a/..b"]


@pytest.mark.parametrize("name", HIDDEN)
def test_external_data_must_not_be_hidden(name: str, tmp_path: Path) -> None:
    """ONNX external data reads `.ssh/id_rsa` beside the model."""
    with pytest.raises(ztensor.FormatError, match="hidden") as caught:
        Beneath.parts_of(name)
    assert caught.value.reason is ztensor.Reason.FIELD_VALUE


def test_a_link_to_a_hidden_file_is_not_followed(tmp_path: Path) -> None:
    """External data is a link to `.ssh/id_rsa` beside the model."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_bytes(b"secret")
    link(tmp_path / "w.bin", ".ssh/id_rsa")
    with pytest.raises(ztensor.UnsupportedError, match="hidden"):
        Beneath.beside(str(tmp_path / "m.onnx"), ("w.bin",)).open()


def test_a_hidden_folder_may_hold_a_model(model: Path) -> None:
    """The rule is for names in a file, not for the path that the caller gives."""
    hidden = model.rename(model.with_name(".cache"))
    assert set(load_file(hidden)) == set(TENSORS)


@pytest.mark.parametrize("name", HIDDEN)
def test_an_index_must_not_name_a_hidden_file(name: str, model: Path) -> None:
    """The index of a set names `.ssh/id_rsa` beside it; the error shows its first bytes."""
    target = model / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"-----BEGIN")
    index = model / "m.zt.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ztensor.FormatError, match="hidden") as caught:
        ztensor.open(index)
    assert caught.value.reason is ztensor.Reason.SHARD_INDEX
    assert "BEGIN" not in str(caught.value)


# --- Paths that are none --------------------------------------------------------------------


def save_model(path: Any) -> object:
    torch = pytest.importorskip("torch")
    return ztensor.torch.save_model(torch.nn.Linear(2, 2), path)


def opened(path: Any) -> object:
    with ztensor.open(path) as reader:
        return list(reader)


# Every public function that takes a path, to read or to change the file.
TAKING: dict[str, Callable[[Any], object]] = {
    "open": opened,
    "Reader": ztensor.Reader,
    "ShardedReader": ztensor.io.ShardedReader,
    "load_file": load_file,
    "torch": lambda path: pytest.importorskip("torch") and ztensor.torch.load_file(path),
    "jax": lambda path: pytest.importorskip("jax") and ztensor.jax.load_file(path),
    "find": repairing.find,
    "repair": ztensor.repair,
    "repair in place": lambda path: ztensor.repair(path, in_place=True),
    "append": ztensor.Editor,
    "append atomic": lambda path: ztensor.Editor(path, atomic=True),
    "append dry": lambda path: ztensor.Editor(path, dry_run=True),
    "replace": lambda path: ztensor.edit.replace_tensor(path, "a", np.ones(3)),
    "remove": lambda path: ztensor.edit.remove_tensors(path, names="a"),
    "remove nothing": ztensor.edit.remove_tensors,
    "rename": lambda path: ztensor.edit.rename_tensors(path, {"a": "x"}),
    "set": lambda path: ztensor.edit.set_attributes(path, {"k": 1}),
    "compact": ztensor.compact,
    "compact dry": lambda path: ztensor.compact(path, dry_run=True),
    "migrate": ztensor.migrate,
    "split": ztensor.split,
    "plan split": edit.plan_split,
}
# And every one that writes a new file.
MAKING: dict[str, Callable[[Any, Path], object]] = {
    "save_file": lambda path, _: save_file(TENSORS, path),
    "save shards": lambda path, _: save_file(TENSORS, path, max_shard_size=100),
    "Writer": lambda path, _: ztensor.Writer(path).finish(),
    "convert": lambda path, good: ztensor.convert(good, path, to="zt"),
    "convert dry": lambda path, good: ztensor.convert(good, path, to="npz", dry_run=True),
    "migrate": lambda path, good: ztensor.migrate(good, path),
    "merge": lambda path, good: ztensor.merge([good], path),
    "merge dry": lambda path, good: ztensor.merge([good], path, dry_run=True),
    "merge inputs": lambda path, good: ztensor.merge([path], good.with_name("o.zt")),
    "open list": lambda path, good: ztensor.open([good, path]),
    "convert input": lambda path, good: ztensor.convert(path, good.with_name("o.zt")),
    "remove": lambda path, good: ztensor.edit.remove_tensors(good, path, names="a"),
    "repair": lambda path, good: ztensor.repair(good, write=path),
    "repair dry": lambda path, good: ztensor.repair(good, write=path, dry_run=True),
    "save_model": lambda path, _: save_model(path),
    "split folder": lambda path, good: ztensor.split(good, path),
}
NO_PATH = {"NUL": "{}/a\0b.zt", "surrogate": "{}/\ud800.zt", "empty": ""}
NO_FILE: dict[str, Callable[[str], Any]] = {
    "dot": lambda _: ".",
    "folder": lambda folder: folder,
    "slash": lambda folder: f"{folder}/good.zt/",
    "through a file": lambda folder: f"{folder}/good.zt/x.zt",
    "name of 256": lambda folder: f"{folder}/{'x' * 256}.zt",
    "path of 5000": lambda folder: f"{folder}/{'x/' * 2500}m.zt",
    "dangling": lambda folder: f"{folder}/nowhere/../dangling.zt",
    "loop": lambda folder: f"{folder}/loop.zt",
    "memory": lambda _: "/proc/self/mem",
    "zeros": lambda _: "/dev/zero",
    "missing": lambda folder: f"{folder}/no/m.zt",
    "bytes": lambda folder: os.fsencode(f"{folder}/no.zt"),
    "number": lambda _: 12,
    "nothing": lambda _: None,
}


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "good.zt"
    save_file(TENSORS, path)
    link(tmp_path / "loop.zt", "loop.zt")
    link(tmp_path / "dangling.zt", "nowhere/m.zt")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return path


@pytest.mark.parametrize("name", NO_PATH)
def test_an_impossible_path_is_the_callers_mistake(name: str, good: Path) -> None:
    """A NUL in a path: bare `ValueError` from append, compact, set, repair and convert."""
    path = NO_PATH[name].format(good.parent)
    before = sorted(os.listdir(good.parent))
    wrong = []
    for call in [*TAKING, *MAKING]:
        try:
            if call in TAKING:
                TAKING[call](path)
            if call in MAKING:
                MAKING[call](path, good)
        except ArgumentValueError:
            continue
        wrong.append(call)
    assert wrong == []
    assert sorted(os.listdir(good.parent)) == before


@pytest.mark.parametrize("name", NO_FILE)
def test_a_path_to_no_file_is_an_error_of_ours(name: str, good: Path) -> None:
    """A folder, a device, a link that leads nowhere, a name too long for the system."""
    path = NO_FILE[name](str(good.parent))
    for take in TAKING.values():
        with pytest.raises(ztensor.ZTensorError):
            take(path)
    if path is None:  # which some take for the input itself
        return
    before = good.read_bytes()
    for make in MAKING.values():
        try:
            make(path, good)
        except ztensor.ZTensorError:
            continue
    assert good.read_bytes() == before
