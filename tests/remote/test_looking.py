"""Page, server, terminal, frame and sheet of a model in one file, in several, or far away.

All show the same names and numbers in every place, and none shows a secret.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import ztensor
import ztensor.distributed
from tests.remote.range_server import RangeServer
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from tests.remote.s3_server import S3Server

RNG = np.random.default_rng(19)
TENSORS: dict[str, Any] = {
    f"layers.{i}.w": RNG.normal(0, 1, (32, 48)).astype(np.float32) for i in range(4)
}
SECRETS = ("MarkedPassword", "MarkedSignature")


def one_file(folder: Path) -> Path:
    save_file(TENSORS, folder / "model.zt")
    return folder / "model.zt"


def set_of(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        save_file(TENSORS, folder / f"model{suffix}", max_shard_size=13_000)
        assert len(list(folder.glob(f"*-of-*{suffix}"))) > 1
        return folder

    return make


def index_of_a_set(folder: Path) -> Path:
    (index,) = set_of(".zt")(folder).glob("*.index.json")
    return index


def divided(folder: Path) -> Path:
    parts = []
    for process in range(2):
        with ztensor.distributed.PartWriter(folder, process=process) as writer:
            for name, array in TENSORS.items():
                half = array[process * 16 : process * 16 + 16]
                writer.add(name, half, shape=(32, 48), offsets=(process * 16, 0))
            parts.append(writer.finish())
    ztensor.distributed.commit(folder, parts)
    return folder


def tree(folder: Path) -> Path:
    layers = [{"w": array} for array in TENSORS.values()]
    ztensor.save_tree({"layers": layers, "step": 7, "note": "text"}, folder / "model.zt")
    return folder / "model.zt"


SOURCES: dict[str, Callable[[Path], Path]] = {
    "file": one_file,
    "folder": set_of(".zt"),
    "safetensors": set_of(".safetensors"),
    "index": index_of_a_set,
    "divided": divided,
    "tree": tree,
}


OPENED = ("file", "tree", "list")  # at once, also where they are far away


class Place(NamedTuple):
    name: str
    source: Any  # a path, a URL, several
    folder: Path


@pytest.fixture(params=[*SOURCES, *(f"{name} by HTTP" for name in [*SOURCES, "list"])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Give the place of a model."""
    name, _, is_far = request.param.partition(" ")
    folder = tmp_path / "private"
    folder.mkdir()
    path = SOURCES.get(name, index_of_a_set)(folder)
    if not is_far:
        yield Place(name, path, folder)
        return
    pytest.importorskip("obstore", reason="obstore reads URLs")
    if path == folder:  # no server of HTTP lists a folder
        (path,) = [*folder.glob("*.index.json"), *folder.glob("checkpoint.zt")]
    signed = [path] if path.suffix == ".zt" and name != "divided" else []
    if name == "list":  # a signature is good for one object
        signed = sorted(folder.glob("*-of-*"))
    with RangeServer(folder) as server:
        host = f"http://user:MarkedPassword@127.0.0.1:{server.port}"
        urls = [f"{host}/{one.name}?X-Amz-Signature=MarkedSignature" for one in signed]
        one = urls[0] if urls else f"{host}/{path.name}"
        yield Place(request.param, urls if name == "list" else one, folder)


@pytest.mark.slow
def test_keys_of_a_store_are_not_in_the_page(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    s3.put(bucket, "m.zt", one_file(tmp_path).read_bytes())
    keys = {**s3.storage(), "secret_access_key": SECRETS[0], "session_token": SECRETS[1]}
    with ztensor.open(f"s3://{bucket}/m.zt", storage=keys) as reader:
        ztensor.report(reader, tmp_path / "r.html")
        assert_no_secret(reader._repr_html_())
    document = documents((tmp_path / "r.html").read_text("utf-8"))
    assert document["models"][0]["name"] == "m.zt"
    assert names_in(document) == list(TENSORS)


def documents(page: str) -> Any:
    """Return the first block of a page; require that no block has a secret."""
    found = {}
    for name, block in re.findall(r'<script type="text/plain" id="([a-z0-9-]+)">([^<]*)<', page):
        text = gzip.decompress(base64.b64decode(block)).decode()
        assert_no_secret(text)
        found[name] = json.loads(text)
    assert_no_secret(page)
    return found["data"]


def assert_no_secret(text: str) -> None:
    assert not [one for one in SECRETS if one in text]


def names_in(document: Any) -> list[str]:
    columns, names, before = document["models"][0]["tensors"], [], ""
    for shared, rest in zip(columns["shared"], columns["rest"].split("\n"), strict=True):
        before = before[:shared] + rest
        names.append(before)
    return names


def assert_all_there(document: Any, place: Place) -> None:
    names = names_in(document)
    for name in TENSORS:
        assert any(re.sub(r"[/\[\].]+", ".", one).endswith(name) for one in names), names
    (model,) = document["models"]
    assert str(place.folder.parent) not in json.dumps(document)
    assert model["name"] not in ("", "/")


def test_the_report(place: Place, tmp_path: Path) -> None:
    ztensor.report(place.source, tmp_path / "r.html")
    document = documents((tmp_path / "r.html").read_text("utf-8"))
    assert_all_there(document, place)
    assert document["models"][0]["tensors"]["rms"][0] == pytest.approx(1, rel=0.1)
    assert document["findings"] == []
    ztensor.report(place.source, tmp_path / "two.html", place.source)
    document = documents((tmp_path / "two.html").read_text("utf-8"))
    assert set(document["diff"]["kind"]) == {"equal"}


def test_the_server(place: Place) -> None:
    pytest.importorskip("uvicorn", reason="pip install starlette uvicorn")
    pytest.importorskip("starlette", reason="pip install starlette uvicorn")
    from ztensor.insight.serving.server import ViewServer

    def asked(path: str) -> str:
        with urllib.request.urlopen(server.url + path, timeout=30) as answer:  # noqa: S310
            return str(answer.read(), "utf-8")

    with ztensor.open(place.source, mmap=False) as reader:
        server = ViewServer(reader)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            document = documents(asked(""))
            assert_all_there(document, place)
            at = next(at for at, name in enumerate(names_in(document)) if name.endswith("w"))
            detail = asked(f"tensor/0/{at}")
            assert json.loads(detail)["detail"]["rms"] == pytest.approx(1, rel=0.1)
            lines = asked("examine")
            assert json.loads(lines.splitlines()[-1]) == {"whole": True}
            assert_no_secret(detail + lines)
        finally:
            server.stop()
            thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", SOURCES)
def test_a_change_of_any_of_its_files_is_said(name: str, tmp_path: Path) -> None:
    from ztensor.insight.serving.watching import OpenedFiles

    source = SOURCES[name](tmp_path)
    with ztensor.open(source, mmap=False) as reader:
        for path in sorted(tmp_path.iterdir()):
            files = OpenedFiles([reader])
            assert files.changed() is None
            aside = path.rename(path.with_name("aside"))
            assert files.changed() == (path.name, "is gone")
            path.write_bytes(aside.read_bytes())  # another file of the same bytes
            assert files.changed() == (path.name, "has changed")


def test_a_change_far_away_is_said(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore reads URLs")
    pytest.importorskip("uvicorn", reason="pip install starlette uvicorn")
    from ztensor.errors import SourceError
    from ztensor.insight.serving.server import ViewServer

    rng = np.random.default_rng(1)
    large = {f"layers.{i}.w": rng.normal(0, 1, (512, 512)).astype(np.float32) for i in range(4)}
    path = tmp_path / "m.zt"
    save_file(large, path)
    with RangeServer(tmp_path) as far:
        host = f"http://user:MarkedPassword@127.0.0.1:{far.port}"
        url = f"{host}/m.zt?X-Amz-Signature=MarkedSignature"
        with ztensor.open(url, mmap=False) as reader:
            server = ViewServer(reader)
            server.close()  # only its model is used
            viewed = server.viewed
            assert viewed.tensor(0, 0, lambda: None)["detail"]["rms"] == pytest.approx(1, rel=0.1)
            save_file({name: array * 2 for name, array in large.items()}, path)
            with pytest.raises(SourceError, match="was replaced or removed") as raised:
                viewed.tensor(0, 3, lambda: None)
            assert_no_secret(str(raised.value))
            path.unlink()
            with pytest.raises(SourceError) as raised:
                viewed.tensor(0, 2, lambda: None)
            assert_no_secret(str(raised.value))


def test_a_frame_and_a_sheet(place: Place) -> None:
    shown = ztensor.view(place.source)._repr_html_()
    (frame,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert_all_there(documents(html.unescape(frame)), place)
    assert_no_secret(shown)
    with ztensor.open(place.source) as reader:
        sheet = reader._repr_html_()
    assert_no_secret(sheet)
    is_unread = place.name.endswith("by HTTP") and place.name.split()[0] not in OPENED
    assert ("not read yet" if is_unread else "[32, 48]") in sheet
    assert len(sheet) < 50_000
