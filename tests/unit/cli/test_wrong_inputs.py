"""Messages of every verb and function for inputs that are missing or not models."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.flipping import flip
from tests.unit.cli.conftest import Run
from ztensor.errors import (
    NotZTensorError,
    ObjectNotFoundError,
    SourceError,
    ZTensorError,
)
from ztensor.numpy import save_file

HEADER = b"\x20\0\0\0\0\0\0\0"


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "nothing")


def _tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, "readme.txt")


def _npz(path: Path) -> None:
    np.savez(path, a=np.ones(3), o=np.array([None], dtype=object))
    flip(path, path.read_bytes().index(b"NUMPY") + 80)


# The input, its maker, and words of the message.
WRONG: dict[str, tuple[bytes | Callable[[Path], object] | None, str]] = {
    "missing.zt": (None, "No such file"),
    "folder": (Path.mkdir, "folder"),
    "/dev/null": (None, "a device"),
    "/proc/cpuinfo": (None, "of the system"),
    "ftp://host/model.zt": (None, "URL"),  # of schemes that are read: tests/remote
    "hf://org": (None, "URL"),  # names no repository
    "": (None, "empty path"),
    "empty.safetensors": (b"", "empty"),
    "page.safetensors": (b"<!DOCTYPE html>\n<html><head>", "web page"),
    "pointer.zt": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
    "docs.zip": (_zip, "zip archive"),
    "docs.tar": (_tar, "tar archive"),
    "text.txt": (b"hello, this is text", "a text"),
    "config.json": (b'{"hidden_size": 64}', "JSON"),
    "image.png": (b"\x89PNG\r\n\x1a\n" + bytes(40), "PNG"),
    "saved_model.pb": (b"\x08\x01\x12\x10\x0a\x0e\x12\x03abc" + bytes(8), "SavedModel"),
    "noise.bin": (b"\xff\xfe\xfd" * 50, "expected the first bytes"),
    "cut.safetensors": (HEADER + b'{"a":', "safetensors"),
    "damaged.npz": (_npz, ""),
}
LINUX_ONLY = {"/dev/null", "/proc/cpuinfo"}

# How each verb is called with something wrong in the place of a file that is read.
CALLS: dict[str, tuple[str, ...]] = {
    "ls": ("ls", "{}"),
    "info": ("info", "{}"),
    "show": ("show", "{}", "a"),
    "stats": ("stats", "{}"),
    "plot": ("plot", "{}"),
    "diff": ("diff", "{}", "good.zt"),
    "diff, second": ("diff", "good.zt", "{}"),
    "report": ("report", "{}", "-o", "page.html"),
    "report, second": ("report", "good.zt", "{}"),
    "view": ("view", "{}", "--no-browser", "--seconds", "0.01"),
    "verify": ("verify", "{}"),
    "hash": ("hash", "{}"),
    "hash of a list": ("hash", "--check", "{}"),
    "convert": ("convert", "{}", "new.zt"),
    "merge": ("merge", "good.zt", "{}", "-o", "new.zt"),
    "split": ("split", "{}", "--into", "shards"),
    "append": ("append", "{}", "good.zt"),
    "append, input": ("append", "good.zt", "{}"),
    "replace": ("replace", "{}", "a", "good.zt"),
    "replace, input": ("replace", "good.zt", "a", "{}"),
    "rm": ("rm", "{}", "a"),
    "mv": ("mv", "{}", "a", "b"),
    "set": ("set", "{}", "a=b"),
    "compact": ("compact", "{}"),
    "repair": ("repair", "{}"),
    "convert in place": ("convert", "{}", "--in-place"),
}
# The message says that a line is malformed.
OWN_WORDS = {"hash of a list"}

# What no message of the command may have: a call or an argument of Python, unless it says so.
CODE = re.compile(r"\w+\.\w+\([^)]*\)|\b\w+\([^)]*=[^)]*\)|\b[a-z_]+=(?=\S)|limits=|\bto=")


def require_plain(message: str, given: str) -> None:
    """Raise where a message is one that a newcomer would be misled by."""
    message = re.sub(r"; in Python, .*|\([^()]*in Python\)|\(in Python [^()]*\)", "", message)
    assert CODE.search(message) is None, message
    assert f"found {given!r}" not in message
    assert "bug" not in message
    if "://" in given:
        assert given.replace("//", "/") not in message.replace(given, "")
        assert given in message
    if not given.endswith(".zt"):
        assert re.search(r"\b\d\.\d section", message) is None, message


def make(folder: Path, given: str) -> None:
    save_file({"a": np.ones((2, 3), np.float32), "b": np.ones(3)}, folder / "good.zt")
    maker = WRONG[given][0]
    if isinstance(maker, bytes):
        (folder / given).write_bytes(maker)
    elif maker is not None:
        maker(folder / given)


@pytest.mark.parametrize("given", WRONG)
@pytest.mark.parametrize("call", CALLS)
def test_messages_of_verbs(run: Run, here: Path, call: str, given: str) -> None:
    if given in LINUX_ONLY and not os.path.exists(given):
        pytest.skip("this system has no such file")
    make(here, given)
    before = sorted(os.listdir(here))
    ended = run(*(argument.replace("{}", given) for argument in CALLS[call]))
    if given == "damaged.npz":  # some verbs do not read the damaged part
        require_plain(ended.err, given)
        return
    assert ended.code != 0
    assert ended.err.startswith("error: ") or ended.err.startswith("good.zt: ")
    require_plain(ended.err, given)
    if call not in OWN_WORDS:
        assert WRONG[given][1] in ended.err
    assert sorted(os.listdir(here)) == before


@pytest.mark.parametrize("given", WRONG)
def test_messages_of_functions(here: Path, given: str) -> None:
    if given in LINUX_ONLY and not os.path.exists(given):
        pytest.skip("this system has no such file")
    make(here, given)
    if given == "damaged.npz":
        return
    for call in (ztensor.open, ztensor.numpy.load_file, ztensor.Reader):
        with pytest.raises(ZTensorError) as caught:
            call(given)
        message = str(caught.value)
        assert WRONG[given][1] in message
        require_plain(caught.value.told(), given)
        if given.endswith((".txt", ".png", ".json", ".pb", ".zip", ".tar", ".bin")):
            assert isinstance(caught.value, NotZTensorError)


@pytest.mark.parametrize("target", ["ftp://host/model.zt", "no/such/folder/a.zt", "/proc/a.zt"])
def test_where_no_file_can_be_written(run: Run, here: Path, target: str) -> None:
    make(here, "missing.zt")
    for call in (("convert", "good.zt"), ("merge", "good.zt", "-o")):
        ended = run(*call, target)
        assert ended.code == 1
        require_plain(ended.err, target)
    with pytest.raises(SourceError) as caught:
        save_file({}, target)
    assert "found" not in str(caught.value)
    if target.startswith("/proc"):
        assert "not exist" not in str(caught.value)
    if "://" in target:
        assert "URL" in str(caught.value)


# --- Names, and values ----------------------------------------------------------------------

BY_NAME = {
    "show": ("show", "good.zt", "layer.weigth"),
    "rm": ("rm", "good.zt", "layer.weigth"),
    "mv": ("mv", "good.zt", "layer.weigth", "c"),
    "set": ("set", "good.zt", "a=b", "--object", "layer.weigth"),
    "replace": ("replace", "good.zt", "layer.weigth", "good.zt"),
    "replace, from": ("replace", "good.zt", "b", "good.zt", "--from", "layer.weigth"),
}


@pytest.fixture
def good(here: Path) -> Path:
    save_file({"layer.weight": np.ones((2, 3), np.float32), "b": np.ones(3)}, "good.zt")
    return here / "good.zt"


@pytest.mark.parametrize("call", BY_NAME)
def test_a_name_that_is_not_there_and_one_like_it(run: Run, good: Path, call: str) -> None:
    ended = run(*BY_NAME[call])
    assert ended.code == 2
    assert "no object named 'layer.weigth'" in ended.err
    assert "did you mean 'layer.weight'?" in ended.err
    require_plain(ended.err, "layer.weigth")


def test_a_name_in_functions(good: Path) -> None:
    reader = ztensor.open(good)
    handle = ztensor.safe_open(good, framework="np")
    calls: list[Callable[[str], Any]] = [
        reader.__getitem__, reader.read, reader.metadata, reader.get_slice, handle.get_tensor,
        handle.get_slice, reader.location, lambda name: reader.verify([name]),
        lambda name: ztensor.edit.remove_tensors(good, names=[name]),
        lambda name: ztensor.edit.rename_tensors(good, {name: "c"}),
        lambda name: ztensor.edit.replace_tensor(good, name, np.ones(1)),
        lambda name: ztensor.edit.set_attributes(good, {"a": 1}, name=name),
        lambda name: ztensor.stats(good, [name]),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ObjectNotFoundError, match=r"did you mean 'layer\.weight'") as caught:
            call("layer.weigth")
        assert caught.value.found == "'layer.weigth'"
        require_plain(str(caught.value), "layer.weigth")


def test_advice_for_python_is_marked(run: Run, good: Path) -> None:
    data = good.read_bytes()
    good.write_bytes(data + b"\0" * 8)
    ended = run("ls", good)
    assert "ztensor repair" in ended.err
    assert "; in Python, ztensor.open(path, recover=True)" in ended.err
    with pytest.raises(ZTensorError) as caught:
        ztensor.open(good)
    assert str(caught.value).endswith("; ztensor.open(path, recover=True) reads that state")
    limits = ztensor.Limits(manifest_bytes=8)
    good.write_bytes(data)
    with pytest.raises(ztensor.LimitError) as refused:
        ztensor.open(good, limits=limits)
    assert "limits=ztensor.Limits(manifest_bytes=...)" in str(refused.value)
    assert "ztensor" not in refused.value.told().replace(str(good), "")


BY_PATTERN = [
    ("ls",), ("stats",), ("plot",), ("diff", "good.zt"), ("verify",), ("hash",), ("rm",),
    ("split",),
    ("convert", "o.zt"), ("merge", "-o", "o.zt"), ("append", "good.zt"),
]  # fmt: skip


@pytest.mark.parametrize("call", BY_PATTERN, ids=lambda call: call[0])
def test_a_pattern_that_matches_nothing(run: Run, good: Path, call: tuple[str, ...]) -> None:
    verb, *others = call
    ended = run(verb, good, *others, "--include", "nope.*")
    assert ended.code == 2
    assert "'nope.*'" in ended.err
    require_plain(ended.err, "nope.*")
    assert os.listdir(good.parent) == ["good.zt"]
    near = run(verb, good, *others, "--include", "layer.weigth")
    assert "'layer.weight'" in near.err
