"""Everything public that takes a source takes a URL of a folder, and how its store is opened."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy as znumpy
import ztensor.typing

if TYPE_CHECKING:
    from tests.remote.conftest import Variables
    from tests.remote.s3_server import S3Server
    from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.slow

pytest.importorskip("obstore", reason="obstore reads URLs")
TENSORS = {
    "weight": np.arange(1200.0, dtype=np.float32).reshape(400, 3),
    "bias": np.ones(400, "f4"),
}
MODULES = ("", ".numpy", ".torch", ".jax", ".flax")


def as_s3fs(storage: dict[str, str]) -> dict[str, Any]:
    """Return options of S3 as s3fs takes them."""
    place = {"endpoint_url": storage["endpoint"], "region_name": storage["region"]}
    keys = {"key": storage["access_key_id"], "secret": storage["secret_access_key"]}
    return {**keys, "token": storage.get("session_token"), "client_kwargs": place}


def takers(annotation: str) -> dict[str, Callable[..., Any]]:
    """Return all public callables that have a parameter of an annotation."""
    found: dict[str, Callable[..., Any]] = {}
    for module_name in MODULES:
        library = {".flax": "jax"}.get(module_name, module_name.lstrip("."))
        if library:
            pytest.importorskip(library)
        module = importlib.import_module(f"ztensor{module_name}")
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                try:
                    parameters = inspect.signature(value).parameters.values()
                except ValueError:
                    continue
                if any(str(one.annotation) == annotation for one in parameters):
                    found[f"{module_name.lstrip('.')} {name}".strip()] = value
    return found


def test_all_that_open_a_source_take_its_storage_and_a_cache() -> None:
    found = takers("Openable")
    assert len(found) > 10
    for name, function in found.items():
        names = set(inspect.signature(function).parameters)
        for one in inspect.signature(function).parameters.values():
            for kind in re.findall(r"^Unpack\[(\w+)\]$", str(one.annotation)):
                names |= getattr(ztensor.typing, kind).__annotations__.keys()
        assert {"storage", "storage_options", "cache"} <= names, name


@pytest.fixture
def folder(s3: S3Server, bucket: str, tmp_path: Path) -> str:
    """A model in two shards and their index, and a tree beside it, in a bucket."""
    (tmp_path / "local").mkdir()
    znumpy.save_file(TENSORS, tmp_path / "local" / "model.zt", max_shard_size=4000, version="2.1")
    ztensor.save_tree({"w": TENSORS["weight"]}, tmp_path / "tree.zt")
    for path in (tmp_path / "local").iterdir():
        s3.put(bucket, f"m/{path.name}", path.read_bytes())
    s3.put(bucket, "t/tree.zt", (tmp_path / "tree.zt").read_bytes())
    return f"s3://{bucket}"


def _first(values: Any) -> Any:
    return np.asarray(values["weight"])[1].tolist()


def _in(reader: Any) -> Any:
    with reader:
        return np.asarray(reader["weight"])[1].tolist()


def _handle(make: Any) -> Callable[..., Any]:
    def use(url: str, **how: Any) -> Any:
        with make(url, "np", **how) as handle:
            return handle.get_tensor("weight")[1].tolist()

    return use


def _tree(load: Any) -> Callable[..., Any]:
    return lambda url, **how: np.asarray(load(url.replace("/m/", "/t/"), **how)["w"])[1].tolist()


def _model(load: Any) -> Callable[..., Any]:
    def use(url: str, **how: Any) -> Any:
        import torch

        model = torch.nn.Linear(3, 400)
        load(model, url, **how)
        return model.weight[1].tolist()

    return use


# How a function is called with a folder's URL, by its name.
WAYS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "Reader": lambda kind: lambda url, **how: _in(kind(f"{url}{SHARD}", **how)),
    "ShardedReader": lambda kind: lambda url, **how: _in(kind(url, **how)),
    "open": lambda function: lambda url, **how: _in(function(url, **how)),
    "safe_open": _handle,
    "iterate": lambda function: lambda url, **how: _first(dict(function(url, **how))),
    "load_tree": _tree,
    "open_tree": _tree,
    "load_model": _model,
    "load_file": lambda load: lambda url, **how: _first(load(url, **how)),
    "load_abstract": lambda load: (
        lambda url, **how: [3.0, 4.0, 5.0] if load(url, **how)["weight"].shape == (400, 3) else None
    ),
}
SHARD = "model-00002-of-00002.zt"


def test_all_of_them_with_a_folder(folder: str, s3: S3Server, tmp_path: Path) -> None:
    for name, function in takers("Openable").items():
        use = WAYS[name.rpartition(" ")[2]](function)
        for cache in (tmp_path / "kept", ""):
            found = use(f"{folder}/m/", storage=s3.storage(), cache=cache)
            assert found == [3.0, 4.0, 5.0], name
        assert use(f"{folder}/m/", storage_options=as_s3fs(s3.storage())) == found, name
    assert any((tmp_path / "kept").iterdir())


READ = (
    "ls",
    "info",
    "verify",
    "hash",
    "stats",
    "show",
    "diff",
    "plot",
    "report",
    "view",
)
WRITTEN = ("convert", "merge", "split")
CHANGING = ("append", "replace", "rm", "mv", "set", "compact", "repair")


def arguments(verb: str, url: str, folder: Path) -> list[str]:
    """Return the arguments of a verb; most take a file alone."""
    more = {
        "show": ["weight"], "diff": [str(folder / "m.zt")],
        "view": ["--no-browser", "--seconds", "0.01"],
        "report": ["-o", "r.html"], "plot": ["-o", "p.svg"], "convert": ["c.zt"],
        "merge": ["-o", "merged.zt"], "split": ["--into", "shards", "--max-shard-size", "4KB"],
        "append": [str(folder / "m.zt")], "replace": ["weight", str(folder / "m.zt")],
        "rm": ["bias"], "mv": ["bias", "b"], "set": ["step=1"],
        "sign": ["--key", "private.pem"],
    }  # fmt: skip
    if verb == "delta":
        return ["make", url, str(folder / "m.zt"), "-o", "delta.zt"]
    return ["ls", url] if verb == "ckpt" else [url, *more.get(verb, [])]


def test_every_verb_with_a_folder(
    folder: str,
    s3: S3Server,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    variables: Variables,
) -> None:
    from ztensor.cli.main import VERBS

    options = ",".join(f"{key}={value}" for key, value in s3.storage().items())
    variables({"ZTENSOR_STORAGE": options})
    monkeypatch.chdir(tmp_path)
    url = f"{folder}/m/"
    znumpy.save_file(TENSORS, tmp_path / "m.zt")

    for verb in READ + WRITTEN:
        ended = run(verb, *arguments(verb, url, tmp_path))
        assert ended.code == 0, (verb, ended)
    assert (znumpy.load_file(tmp_path / "c.zt")["weight"] == TENSORS["weight"]).all()
    for verb in CHANGING:
        ended = run(verb, *arguments(verb, url, tmp_path))
        assert ended.code != 0, verb
        assert "Traceback" not in ended.err
        assert "bug" not in ended.err
    # Those that are not here take one file, or none; with a folder they are refused, too.
    named = {verb for verbs in VERBS.values() for verb in verbs}
    others = {"ckpt", "conformance", "completions", "delta", "sign"}
    assert named == {*READ, *WRITTEN, *CHANGING} | others


def test_what_takes_readers_takes_a_url_with_its_storage(
    folder: str, s3: S3Server, tmp_path: Path
) -> None:
    place = ztensor.Remote(f"{folder}/m/", s3.storage(), cache=tmp_path / "kept")
    local = tmp_path / "local"
    more: dict[str, list[Any]] = {"diff": [local], "plot": ["weight"]}
    more["torch load_into"] = [{}]
    more |= {key: [TENSORS] for key in ("jax load_sharded", "flax load_sharded")}
    for name, function in takers("Readable").items():
        if name == "report":
            function(place, tmp_path / "report.html")
            assert (tmp_path / "report.html").stat().st_size
            continue
        if name == "convert":
            ztensor.convert(place, tmp_path / "c.zt")
            assert ztensor.diff(tmp_path / "c.zt", place).ok
            continue
        assert str(function(place, *more.get(name, []))).replace(str(local), "") == str(
            function(local, *more.get(name, []))
        ).replace(str(local), ""), name


def test_arrays_of_other_libraries_and_coroutines_read_urls(
    folder: str, s3: S3Server, tmp_path: Path
) -> None:
    backend = pytest.importorskip("ztensor.xarray", exc_type=ImportError)
    lazy = pytest.importorskip("ztensor.dask", exc_type=ImportError)
    url, options = f"{folder}/m/", as_s3fs(s3.storage())
    with backend.Backend().open_dataset(url, storage_options=options) as dataset:
        assert dataset["weight"][1].values.tolist() == [3.0, 4.0, 5.0]
        assert dataset.encoding["source"].startswith("s3://")
    weight = lazy.from_file(url, "weight", storage_options=options)
    assert weight[1].compute(scheduler="synchronous").tolist() == [3.0, 4.0, 5.0]

    async def row() -> Any:
        async with await ztensor.aio.open(url, storage_options=options) as file:
            return await file.read_slice("weight", 1)

    assert asyncio.run(row()).tolist() == [3.0, 4.0, 5.0]
