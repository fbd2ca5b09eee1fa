"""A kind of place is a file and a line of the table: one from outside works everywhere."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ztensor
import ztensor.numpy as znumpy
from ztensor.cli.main import main
from ztensor.errors import SourceNotFoundError, UsageError
from ztensor.ext import SCHEMES, Place

WEIGHT = np.arange(600, dtype=np.float32).reshape(30, 20)
MODULE = """
from ztensor.errors import SourceNotFoundError
from ztensor.io.source.memory import MemorySource
from ztensor.io.source.stores import Store

FILES = {}


class Demo(Store):
    def open(self, remote, size=None):
        name = remote.url.removeprefix("demo://")
        if name not in FILES:
            raise SourceNotFoundError("nothing is served under this name", file=remote.url)
        return MemorySource(FILES[name], name=remote.url)


class DemoSink:
    def __init__(self, remote, note):
        self.name, self.position = remote.url, 0
        self._remote, self._note, self._written = remote, note, bytearray()

    def write(self, data):
        self._written += data
        self.position += len(data)

    def end_blobs(self):
        return self.position

    def commit(self, manifest=b""):
        self.write(manifest)
        FILES[self.name.removeprefix("demo-rw://")] = bytes(self._written)
        if self._note is not None:
            self._note(self._remote)

    def abort(self):
        pass


class Writable(Demo):
    def open(self, remote, size=None):
        return super().open(type(remote)(remote.url.replace("demo-rw:", "demo:")), size)

    def names_folder(self, url):
        return url.endswith("/")

    def look(self, remote):
        name = remote.url.removeprefix("demo-rw://")
        return Store.Listed(name) if name in FILES else None

    def listed(self, folder):
        start = folder.url.removeprefix("demo-rw://")
        inside = [name.removeprefix(start) for name in FILES if name.startswith(start)]
        return [Store.Listed(name) for name in inside if "/" not in name]

    def require_writable(self, remote):
        pass

    def sink(self, remote, *, expected=None, is_new=False, note=None):
        return DemoSink(remote, note)

    def remove(self, remote):
        FILES.pop(remote.url.removeprefix("demo-rw://"), None)


DEMO, WRITABLE = Demo(), Writable()
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """Give the objects of a scheme `demo`, whose module is outside the package."""
    (tmp_path / "a_source_from_outside.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    outside = importlib.import_module("a_source_from_outside")
    SCHEMES["demo"], SCHEMES["demo-rw"] = outside.DEMO, outside.WRITABLE
    served: dict[str, bytes] = outside.FILES
    served["x"] = znumpy.save({"w": WEIGHT, "b": WEIGHT[0]}, {"note": "here"})
    yield served
    for name in ("demo", "demo-rw"):
        del SCHEMES[name]
    sys.modules.pop("a_source_from_outside")


def test_a_place_from_outside_is_written_to(files: dict[str, bytes]) -> None:
    """With a sink it takes files; with removal and a look also shards, and with lists a folder."""
    url = "demo-rw://run/model.zt"
    znumpy.save_file({"w": WEIGHT, "b": WEIGHT[0]}, url)
    assert (znumpy.load_file(url)["w"] == WEIGHT).all()
    with ztensor.open("demo-rw://run/") as folder:
        assert (folder["b"] == WEIGHT[0]).all()
    with pytest.raises(UsageError, match="overwrite"):
        ztensor.convert("demo://x", url, overwrite=False)
    znumpy.save_file({"w": WEIGHT, "b": WEIGHT[0]}, url, max_shard_size=2000)
    assert sorted(name for name in files if name.startswith("run/")) == [
        "run/model-00001-of-00002.zt",
        "run/model-00002-of-00002.zt",
        "run/model.zt.index.json",
    ]
    assert (znumpy.load_file(url)["w"] == WEIGHT).all()
    znumpy.save_file({"w": WEIGHT}, url, max_shard_size="1MB")
    assert [name for name in files if name.startswith("run/")] == ["run/model.zt"]


def test_a_place_that_is_only_read_says_so(files: dict[str, bytes]) -> None:
    before = dict(files)
    for overwrite in (True, False):
        with pytest.raises(UsageError):
            ztensor.convert("demo://x", "demo://y.zt", overwrite=overwrite)
    for write in (
        lambda: znumpy.save_file({"w": WEIGHT}, "demo://y.zt"),
        lambda: Place.of("demo://y.zt").dry(),
    ):
        with pytest.raises(UsageError):
            write()
    assert files == before


def test_several_are_one_set(files: dict[str, bytes]) -> None:
    files["y"] = znumpy.save({"other": WEIGHT})
    with ztensor.open(["demo://x", "demo://y"]) as reader:
        assert isinstance(reader, ztensor.io.ShardedReader)
        assert reader.files == ["demo://x", "demo://y"]
        assert (reader["other"] == reader["w"]).all()
        assert not reader.verify().problems


CALLS = {"info URL": 0, "merge URL -o new.zt": 0, "rm URL w": 2, "compact URL": 2, "repair URL": 2}
CALLS |= {"split URL": 2, "convert URL --in-place --version 1.1.0": 2}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("call", CALLS)
def test_verbs_read_it_and_change_nothing_in_its_place(
    call: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as end:
        main([word.replace("URL", "demo://x") for word in call.split()])
    printed = capsys.readouterr()
    if CALLS[call]:
        assert end.value.code in (1, 2)
        assert "URL" in printed.err
        assert sorted(tmp_path.iterdir()) == before
    else:
        assert end.value.code == 0, printed


@pytest.mark.parametrize(
    ("path", "is_url"),
    [
        ("ftp://host/m.zt", True), ("HDFS://a/b", True), ("a+b.c-1://x", True),
        ("demo://missing", False), ("m.zt", False), ("folder/m.zt", False), ("c:/m.zt", False),
        ("c://m.zt", False), ("1s://m.zt", False), ("folder/s3://m.zt", False),
        ("://m.zt", False), ("s3:/m.zt", False),
    ],
)  # fmt: skip
def test_only_a_url_of_another_scheme_is_called_one(
    files: dict[str, bytes], path: str, is_url: bool
) -> None:
    with pytest.raises(SourceNotFoundError) as caught:
        ztensor.open(path)
    assert isinstance(caught.value, FileNotFoundError)
    assert ("scheme" in str(caught.value)) is is_url


def test_a_file_on_disk_that_is_called_so(files: dict[str, bytes], tmp_path: Path) -> None:
    for scheme in ("s3", "demo"):
        (tmp_path / f"{scheme}:").mkdir()
        znumpy.save_file({"on disk": WEIGHT}, tmp_path / f"{scheme}:" / "x")
        assert list(znumpy.load_file(f"{scheme}://x")) == ["on disk"]
