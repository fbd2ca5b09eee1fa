"""Every read pattern of the corpus from every kind of place: the same, with few requests.

Ends, blocks and windows are made small, so that small files are read by ranges as large ones are.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy as znumpy
from tests.corpus.foreign import make_onnx
from tests.extent import sample
from tests.refusals import refused
from tests.remote import requests
from tests.remote.patterns import CORPUS, TESTS, patterns
from tests.remote.range_server import RangeServer
from ztensor.errors import (
    FormatError,
    Reason,
    SourceError,
    SourceNotFoundError,
    UsageError,
)
from ztensor.ext import FORMATS
from ztensor.io.source import ahead
from ztensor.remote import pieces
from ztensor.remote import source as remote

if TYPE_CHECKING:
    from tests.remote.s3_server import S3Server

obstore = pytest.importorskip("obstore")

# Every so many files of a folder: the ways of reading differ, not the content.
EACH = 8
# One of each folder where each request takes a while.
SOME = [next(files) for _, files in itertools.groupby(CORPUS, key=lambda path: path.parent)]
# Of each suffix, for the places that answer slowest and for other ways of one place.
FEW = sample(SOME, 2, lambda path: path.suffix)
# Sets are left out: a store of one object lacks their other files.
ALONE = [path for path in CORPUS if "sharded" not in str(path)]


def called(path: Path) -> str:
    return str(path.relative_to(TESTS))


@functools.cache
def by_path(path: Path) -> dict[str, Any]:
    return patterns(lambda: path)


def hold(place: Callable[[], Any], path: Path) -> None:
    found = patterns(place)
    for name, expected in by_path(path).items():
        assert found[name] == expected, name


# Files of the corpora fit one request: without these sizes none would be read by ranges.
SMALL: list[tuple[Any, str, object]] = [
    (remote, "_FIRST", {".zt": (16, 64), ".npz": (64, 100)}),
    (remote, "_FIRST_OF_OTHERS", (64, 64)),
    (remote, "_BLOCK_BYTES", 256),
    (remote, "PART_BYTES", 4096),
    (pieces, "PART_BYTES", 4096),
    (pieces, "GAP_BYTES", 100),
    (ahead, "_WINDOW_BYTES", 2048),
    (ahead, "_FIRST_BYTES", 512),
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


FOLDERS = sorted({path.parent for path in CORPUS})


def within(folder: Path) -> list[Path]:
    return [path for path in CORPUS if path.parent == folder]


@pytest.mark.parametrize("folder", FOLDERS, ids=called)
def test_a_local_store(folder: Path, small: None) -> None:
    from obstore.store import LocalStore

    store = LocalStore(folder)
    for path in within(folder)[::EACH]:
        hold(lambda path=path: ztensor.Remote(f"file:///{path.name}", store), path)  # type: ignore[misc]


@pytest.mark.slow
def test_bytes_file_objects_and_a_store_in_memory(small: None) -> None:
    from obstore.store import MemoryStore

    store = MemoryStore()
    for path in SOME:
        if path in ALONE:
            data = path.read_bytes()
            obstore.put(store, path.name, data)
            hold(lambda data=data: data, path)  # type: ignore[misc]
            hold(lambda data=data: io.BytesIO(data), path)  # type: ignore[misc]
            hold(lambda path=path: ztensor.Remote(f"memory:///{path.name}", store), path)  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"validator": "date"}, {"suffix": False}, {"ranges": False}])
def test_http(how: dict[str, Any], small: None) -> None:
    with RangeServer(TESTS, **how) as server:
        for path in FEW if how else SOME:
            hold(lambda path=path: f"{server.url}/{called(path)}", path)  # type: ignore[misc]


@pytest.mark.slow
def test_s3(s3: S3Server, bucket: str, small: None) -> None:
    for path in FEW:
        s3.put(bucket, called(path), path.read_bytes())
        url = f"s3://{bucket}/{called(path)}"
        hold(lambda url=url: ztensor.Remote(url, s3.storage()), path)  # type: ignore[misc]


@pytest.mark.slow
def test_through_a_cache(s3: S3Server, bucket: str, small: None, tmp_path: Path) -> None:
    with RangeServer(TESTS) as server:
        for path in FEW:
            s3.put(bucket, called(path), path.read_bytes())
            for url in (f"{server.url}/{called(path)}", f"s3://{bucket}/{called(path)}"):
                place = ztensor.Remote(
                    url, s3.storage() if url.startswith("s3:") else None, tmp_path
                )
                for _ in range(2):
                    hold(lambda place=place: place, path)  # type: ignore[misc]


# --- Requests -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 24 MiB in each format, and as a set."""
    folder = tmp_path_factory.mktemp("models")
    requests.build(folder)
    znumpy.save_file(requests.arrays(), folder / "set.zt", max_shard_size="10MB")
    return folder


@pytest.fixture
def server(models: Path) -> Iterator[RangeServer]:
    with RangeServer(models) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("name", requests.BUDGETS)
def test_how_many_requests(server: RangeServer, name: str) -> None:
    if not (server.folder / name).exists():
        pytest.skip("what writes it is not installed")
    found = requests.count(server, name)
    limit = requests.most(name, found.nbytes)
    assert all(one <= most for one, most in zip(found[:4], limit, strict=True)), (found, limit)
    assert found.share <= 1.4


def test_every_format_is_in_the_table() -> None:
    kinds = {FORMATS.named_as(name) for name in requests.BUDGETS}
    assert kinds == {"zt", *FORMATS} - {"dcp"}  # a folder of several files, read on disk


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m.zt", "zstd.zt", "planes.zt", "m.safetensors", "m.gguf"])
def test_each_byte_is_verified_once(server: RangeServer, models: Path, name: str) -> None:
    with ztensor.open(f"{server.url}/{name}") as reader:
        assert reader.verify().outcome != "damaged"
    assert server.record.sent <= 1.05 * (models / name).stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m.zt", "m.safetensors", "m.gguf", "set.zt.index.json"])
def test_slices_of_many_tensors_together(server: RangeServer, models: Path, name: str) -> None:
    expected = znumpy.load_file(models / "m.zt")
    layers = {one: 100 + n for n, one in enumerate(sorted(expected)) if one.startswith("layer")}
    assert len(layers) == requests.LAYERS
    wanted: dict[str, Any] = layers | {one: ... for one in expected if one.startswith("norm")}
    with ztensor.open(f"{server.url}/{name}") as reader:
        reader.metadata(list(expected))  # a set's files are opened when they are first asked for
        for some in (layers, wanted):
            server.record.clear()
            found = reader.read_slices(some)
            assert all((found[one] == expected[one][key]).all() for one, key in some.items())
            assert len(server.record) <= (6 if name.startswith("set") else 3)


# --- Sets, and what reaches for other places --------------------------------------------------


@pytest.mark.slow
def test_a_set_behind_its_index(server: RangeServer, models: Path) -> None:
    url = f"{server.url}/set.zt.index.json"
    expected = znumpy.load_file(models / "m.zt")
    with ztensor.open(url) as reader:
        assert isinstance(reader, ztensor.io.ShardedReader)
        assert set(reader) == set(expected)
        assert (reader["norm.03"] == expected["norm.03"]).all()
        with pickle.loads(pickle.dumps(reader)) as again:
            assert (again["norm.03"] == expected["norm.03"]).all()
        assert reader.verify().ok
    found = znumpy.load_file(url)
    assert all((found[name] == expected[name]).all() for name in expected)
    files = sorted(path.name for path in models.glob("set-*.zt"))
    with ztensor.open([f"{server.url}/{name}?sig=s3cret" for name in files]) as reader:
        assert set(reader) == set(expected)
        assert isinstance(reader, ztensor.io.ShardedReader)
        assert "s3cret" not in repr(reader) + str(reader.files)


ESCAPES = ["../m.zt", "/m.zt", "http://elsewhere/m.zt", "s3://b/m.zt", "a/../../m.zt", "..\\m.zt"]
ESCAPES += ["//elsewhere/m.zt", ".hidden.zt", "file:///m.zt", ""]


@pytest.mark.parametrize("name", ESCAPES)
def test_an_index_that_leads_elsewhere(tmp_path: Path, name: str) -> None:
    index = {"weight_map": {"w": name}}
    (tmp_path / "x.zt.index.json").write_text(json.dumps(index))
    with RangeServer(tmp_path) as server, refused(FormatError, Reason.SHARD_INDEX):
        ztensor.open(f"{server.url}/x.zt.index.json")
    assert all(one.path == "/x.zt.index.json" for one in server.record.seen)


def test_a_set_that_was_saved_anew(tmp_path: Path) -> None:
    tensors = {"a": np.zeros(1000), "b": np.ones(1000)}
    znumpy.save_file(tensors, tmp_path / "m.zt", max_shard_size=8000)
    with RangeServer(tmp_path) as server, ztensor.open(f"{server.url}/m.zt.index.json") as reader:
        assert (reader["a"] == 0).all()
        znumpy.save_file(
            {"a": tensors["b"], "b": tensors["a"]}, tmp_path / "m.zt", max_shard_size=8000
        )
        with pytest.raises(SourceError) as caught:
            reader["b"]
    assert caught.value.reason is Reason.SOURCE_CHANGED


def test_a_shard_that_is_missing_or_signed(tmp_path: Path) -> None:
    (tmp_path / "x.zt.index.json").write_text(json.dumps({"weight_map": {"w": "not-there.zt"}}))
    with RangeServer(tmp_path) as server:
        url = f"{server.url}/x.zt.index.json"
        with ztensor.open(url) as reader, pytest.raises(SourceNotFoundError, match="not-there"):
            reader["w"]
        with pytest.raises(UsageError, match="signed"):
            ztensor.open(f"{url}?sig=s3cret")


def test_a_token_is_not_sent_to_another_host(models: Path) -> None:
    from tests.remote.fault_proxy import Fault, FaultProxy

    with RangeServer(models) as there, FaultProxy(there.url) as here:
        # Another host: `localhost` is not `127.0.0.1`.
        here.faults = [Fault("redirected", count=None, to=f"http://localhost:{there.port}")]
        storage = {"client_options": {"default_headers": {"authorization": "Bearer s3cret"}}}
        with ztensor.open(f"{here.url}/m.zt", storage=storage) as reader:
            assert len(reader) == 2 * requests.LAYERS + 1
        assert all("authorization" in one.headers for one in here.record.seen)
        assert not any("authorization" in one.headers for one in there.record.seen)


# --- Data of ONNX in files beside the model ----------------------------------------------------


def onnx_beside(location: str) -> bytes:
    made: bytes = make_onnx.model(
        make_onnx.tensor(
            "a",
            1,
            [200, 500],
            make_onnx.external(location=location, offset="8", length="400000"),
        )
    )
    return made


@pytest.mark.slow
def test_data_beside_a_model_of_onnx(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    data = np.arange(100_000, dtype="<f4").reshape(200, 500)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/w.bin").write_bytes(b"12345678" + data.tobytes() + b"rest")
    (tmp_path / "m.onnx").write_bytes(onnx_beside("sub/w.bin"))
    for name in ("m.onnx", "sub/w.bin"):
        s3.put(bucket, f"x/{name}", (tmp_path / name).read_bytes())
    with RangeServer(tmp_path) as server:
        stored = ztensor.Remote(f"s3://{bucket}/x/m.onnx", s3.storage())
        for place in (f"{server.url}/m.onnx", stored):
            with ztensor.open(place) as reader:
                assert (reader["a"] == data).all()
                assert (reader.get_slice("a")[7:9] == data[7:9]).all()
                assert not reader.verify().problems
            assert (znumpy.load_file(place)["a"] == data).all()
            ztensor.convert(place, tmp_path / "new.zt", overwrite=True)
            assert (znumpy.load_file(tmp_path / "new.zt")["a"] == data).all()
        assert len([one for one in server.record.seen if "w.bin" in one.path]) <= 20
        (tmp_path / "sub/w.bin").unlink()
        with ztensor.open(f"{server.url}/m.onnx") as reader, pytest.raises(SourceNotFoundError):
            reader["a"]
        with ztensor.open(f"{server.url}/m.onnx?sig=s3cret") as reader:
            with pytest.raises(UsageError, match="signed") as caught:
                reader["a"]
            assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ESCAPES)
def test_data_of_onnx_that_leads_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx_beside(name))
    with RangeServer(tmp_path) as server, pytest.raises(FormatError):
        znumpy.load_file(f"{server.url}/m.onnx")
    assert all(one.path == "/m.onnx" for one in server.record.seen)


def test_a_storage_of_an_old_pt_with_another_length(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {"a": torch.ones(100_000), "b": torch.arange(300_000.0)}
    torch.save(state, tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    data = bytearray((tmp_path / "m.pt").read_bytes())
    place = data.index((300_000).to_bytes(8, "little"))
    data[place] += 1
    (tmp_path / "m.pt").write_bytes(data)
    with ztensor.open(tmp_path / "m.pt") as reader, pytest.raises(FormatError) as here:
        reader["b"]
    with RangeServer(tmp_path) as server:
        with ztensor.open(f"{server.url}/m.pt") as reader:
            assert (reader["a"] == 1).all()
            with pytest.raises(FormatError) as caught:
                reader["b"]
            assert caught.value.reason is here.value.reason is Reason.SIZE_MISMATCH
            assert [one.object_name for one in reader.verify().problems] == ["b"]
        with pytest.raises(FormatError):
            znumpy.load_file(f"{server.url}/m.pt")
