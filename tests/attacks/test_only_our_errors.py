"""Every public function, method and verb, with wrong arguments and with hostile files.

Whatever comes out is a result or an error of the family; an `InternalError` is none, as it says
that nobody foresaw what happened. The names are found by introspection: one without a case fails.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import importlib
import inspect
import io
import itertools
import json
import math
import os
import random
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.extent import IS_FULL
from ztensor.errors import InternalError, Reason, ZTensorError
from ztensor.testing.builder_2 import one_object

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
scipy_sparse = pytest.importorskip("scipy.sparse")
pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings("ignore")  # what libraries say of odd values

F32 = np.arange(24, dtype=np.float32).reshape(4, 6)


# --- Files --------------------------------------------------------------------------------------


def tensors() -> dict[str, Any]:
    """Return one object of each layout."""
    codes = np.zeros((8, 8), np.int8)
    return {
        "w": F32,
        "i": np.arange(6, dtype=np.int64),
        "scalar": np.array(1.5),
        "empty": np.zeros((0, 4), np.float32),
        "csr": ztensor.Tensor.from_scipy(scipy_sparse.csr_array(np.eye(4, dtype=np.float32))),
        "coo": ztensor.Tensor.from_scipy(scipy_sparse.coo_array(np.eye(4, dtype=np.float32))),
        "quantized": ztensor.Tensor.from_int8(codes, np.ones(8, np.float32)),
    }


def made_zt(path: Path, version: str, *, compression: bool) -> None:
    given = tensors()
    if version == "0.1.0":
        given = {name: given[name] for name in ("w", "i", "scalar", "empty")}
    attributes = None if version == "0.1.0" else {"a": "b"}
    ztensor.numpy.save_file(given, path, attributes, compression, version=version)


def made_plain(path: Path) -> None:
    ztensor.numpy.save_file({"w": F32, "v": F32[0]}, path)


def made_v2(path: Path) -> None:
    path.write_bytes(one_object())


def made_safetensors(path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"w": F32, "i": np.arange(6)}, path, {"a": "b"})


def made_gguf(path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("x", 3)
    writer.add_tensor("w", F32)
    writer.add_tensor("q", np.zeros((2, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def made_pt(path: Path) -> None:
    torch.save({"w": torch.from_numpy(F32), "n": {"i": torch.arange(6)}, "step": 3}, path)


def made_old_pt(path: Path) -> None:
    torch.save({"w": torch.from_numpy(F32)}, path, _use_new_zipfile_serialization=False)


def made_h5(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["w"] = F32
        file.create_dataset("c", data=F32, chunks=(2, 3), compression="gzip", shuffle=True)
        file["text"] = "words"
        file.attrs["a"] = 3


def made_keras(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"] = F32
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.0.0"}')
        archive.writestr("config.json", '{"class_name": "Sequential"}')
        archive.writestr("model.weights.h5", weights.getvalue())


def made_onnx(path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    one = onnx.numpy_helper.from_array(F32, "w")
    two = onnx.helper.make_tensor("v", onnx.TensorProto.INT64, [3], [1, 2, 3])
    graph = onnx.helper.make_graph([], "g", [], [], initializer=[one, two])
    onnx.save(onnx.helper.make_model(graph), path)


MAKERS: dict[str, Callable[[Path], None]] = {
    "v12.zt": functools.partial(made_zt, version="1.2.0", compression=False),
    "plain.zt": made_plain,
    "v12z.zt": functools.partial(made_zt, version="1.2.0", compression=True),
    "v11.zt": functools.partial(made_zt, version="1.1.0", compression=False),
    "v01.zt": functools.partial(made_zt, version="0.1.0", compression=True),
    "v2.zt": made_v2,
    "a.safetensors": made_safetensors,
    "a.npy": lambda path: np.save(path, F32),
    "a.npz": lambda path: np.savez(path, w=F32, i=np.arange(3)),
    "z.npz": lambda path: np.savez_compressed(path, w=F32, i=np.arange(3)),
    "a.gguf": made_gguf,
    "a.pt": made_pt,
    "old.pt": made_old_pt,
    "a.h5": made_h5,
    "a.keras": made_keras,
    "a.onnx": made_onnx,
}
# The suffix of another format, whose own checks then meet the bytes.
WRONG = {
    ".zt": ".npz", ".safetensors": ".pt", ".npy": ".gguf", ".npz": ".keras", ".gguf": ".zt",
    ".pt": ".npz", ".h5": ".safetensors", ".keras": ".h5", ".onnx": ".npy",
}  # fmt: skip


class Files:
    """Samples of every format, and places to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counter = itertools.count()
        self.bytes: dict[str, bytes] = {}
        made = folder / "made"
        made.mkdir()
        for name, make in MAKERS.items():
            make(made / name)
            self.bytes[name] = (made / name).read_bytes()
        self.sample = made / "plain.zt"
        self.model = torch.nn.Linear(6, 4)

    def out(self, suffix: str = ".zt") -> Path:
        """Return a path where nothing is."""
        return self.folder / f"{next(self.counter)}{suffix}"

    def zt(self, name: str = "v12.zt") -> Path:
        """Return the path of a new copy of a sample."""
        path = self.out(Path(name).suffix)
        path.write_bytes(self.bytes[name])
        return path

    def reader(self) -> ztensor.Reader:
        return ztensor.open(self.bytes["v12.zt"])

    @functools.cached_property
    def shards(self) -> Path:
        """A folder with a set of shards; nobody changes it."""
        folder = self.new_folder()
        ztensor.split(self.zt(), folder, max_shard_size=128)
        return folder

    def new_folder(self) -> Path:
        folder = self.out("")
        folder.mkdir()
        return folder

    def sharded(self) -> ztensor.ShardedReader:
        reader = ztensor.open(self.shards)
        assert isinstance(reader, ztensor.ShardedReader)
        return reader

    def writer(self) -> ztensor.Writer:
        writer = ztensor.Writer(self.out())
        writer.write("old", F32)
        return writer

    def editor(self) -> ztensor.Editor:
        return ztensor.Editor(self.zt())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("only_our_errors"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let odd relative paths name nothing of worth."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", "2")


# --- Judging ------------------------------------------------------------------------------------


def escape_of(call: Callable[[], Any], *, is_right: bool = False) -> str | None:
    """Return what is wrong with how a call ends, or None; a right call is not refused."""
    try:
        used(call())
    except InternalError as error:
        return f"{error} <- {error.__cause__!r}"
    except ZTensorError as error:
        if not str(error).translate({9: None, 10: None}).isprintable():  # torch's are of many lines
            return f"unfit to print: {str(error)[:300]!a}"
        return f"refused: {error}" if is_right else None
    except Exception as error:  # noqa: BLE001  # the search is for any
        return f"{type(error).__name__}: {error}"[:300]
    return None


def used(result: Any) -> None:
    """Take what a call gave, as far as taking it is a call, too."""
    if isinstance(result, Iterator):
        collections.deque(itertools.islice(result, 100), maxlen=0)
    repr(result)
    close = getattr(result, "abort", None) or getattr(result, "close", None)
    if isinstance(result, (ztensor.Reader, ztensor.Writer, ztensor.safe_open)) and close:
        close()


# --- Every public name --------------------------------------------------------------------------


class Case(NamedTuple):
    """A right call: what is called, and with what. `Files` makes both anew for every attempt."""

    function: Callable[..., Any]
    arguments: dict[str, Any]


Make = Callable[[Files], Case]


def case(function: Any, **arguments: Any) -> Case:
    return Case(function, arguments)


OPTIONS: dict[str, Any] = {"compress": None, "checksum": None}
EDITING: dict[str, Any] = {
    "atomic": False, "compression": False, "checksum": "crc32c", "durable": "auto", "lock": True,
    "timeout": 0.0,
}  # fmt: skip


def linear(files: Files) -> Path:
    path = files.out()
    ztensor_torch().save_model(files.model, path)
    return path


TREE: dict[str, Any] = {"w": F32, "n": [1, 2.0, ("x", None)], "d": {1: {2, 3}}}
OF_TREE: dict[str, Any] = {
    "copy": True, "only": None, "into": None, "types": (), "verify": None, "threads": None,
    "progress": None, "limits": None,
}  # fmt: skip


def tree(files: Files) -> Path:
    path = files.out()
    ztensor.save_tree(TREE, path)
    return path


def lazy(files: Files) -> Any:
    return ztensor.open_tree(tree(files))


def record() -> Any:
    return ztensor.Record("some.Class", {"x": 1})


def saved_tree(save: Any, files: Files) -> Case:
    return case(
        save, tree=TREE, filename=files.out(), metadata={"k": "v"}, compression=False,
        checksum="crc32c", version="1.2.0", **SHARED,
    )  # fmt: skip


def ours_in(files: Files) -> Path:
    folder = files.out("")
    folder.mkdir()
    ztensor.numpy.save_file({"w": F32}, folder / "model.zt")
    return folder


def pretrained(files: Files) -> Path:
    folder = files.out("")
    ztensor_torch().save_pretrained(files.model, folder)
    return folder


def ztensor_torch() -> Any:
    return importlib.import_module("ztensor.torch")


def ztensor_jax() -> Any:
    return importlib.import_module("ztensor.jax")


def opened(files: Files, framework: str = "np") -> ztensor.safe_open:
    return ztensor.safe_open(files.zt(), framework)


SAVED = {
    "tensors": {"w": F32}, "metadata": None, "compression": False, "checksum": "crc32c",
    "version": "1.2.0", "deduplicate": "memory", "chunk_rows": None,
}  # fmt: skip
LOADED = {"verify": None, "threads": None}
SHARED = {"durable": "auto", "max_shard_size": None, "progress": None}

FUNCTIONS: dict[str, Make] = {
    "open": lambda f: case(
        ztensor.open, path=f.zt(), verify=None, mmap=True, limits=None, recover=False, cache=None
    ),
    "compact": lambda f: case(
        ztensor.compact, path=f.zt(), durable="auto", lock=True, timeout=0.0, dry_run=False,
        progress=None,
    ),
    "canonical_problems": lambda f: case(ztensor.canonical_problems, source=f.zt("v2.zt")),
    "content_digest": lambda f: case(
        ztensor.content_digest, source=f.zt("v2.zt"), algorithm="xxh3"
    ),
    "content_hash": lambda f: case(
        ztensor.content_hash, source=f.zt(), attributes=False, threads=None, progress=None
    ),
    "convert": lambda f: case(
        ztensor.convert, source=f.zt("a.npz"), path=f.out(), to=None, version="1.2.0",
        compression=None, chunk_rows=None, checksum="crc32c", include=None, exclude=(),
        strict=False, check=True,
        durable="auto", dry_run=False, threads=None, progress=None, dtype="float16",
        dequantize=True,
    ),
    "convert_folder": lambda f: case(
        ztensor.convert_folder, source=ours_in(f), target=f.out(""), to="safetensors",
        compression=None, pickled=False, overwrite=False, strict=False, durable=False,
        dry_run=False, threads=None, progress=None,
    ),
    "diff": lambda f: case(
        ztensor.diff, a=f.zt(), b=f.zt(), names=None, atol=0.0, rtol=0.0, nan_differs=False,
        values_only=False, digests=True, rename=None, threads=None, progress=None,
    ),
    "examine": lambda f: case(
        ztensor.examine, source=f.zt(), other=f.zt("v12z.zt"), names=None, sample=None,
        threads=None, progress=None,
    ),
    "merge": lambda f: case(
        ztensor.merge, inputs=[f.zt(), f.zt("v12z.zt")], output=f.out(), on_conflict="first",
        keep=None, version="1.2.0", attributes=None, durable="auto", dry_run=False, progress=None,
    ),
    "migrate": lambda f: case(
        ztensor.migrate, path=f.zt("v11.zt"), output=None, version="1.2.0", compression=None,
        chunk_rows=None, checksum="crc32c", strict=True, durable="auto", lock=True, timeout=0.0,
        dry_run=False, threads=None, progress=None,
    ),
    "plot": lambda f: case(
        ztensor.plot, source=f.zt(), names=["w"], bins=8, scale="linear", log_counts=False,
        title=None, threads=None, progress=None,
    ),
    "register_logical_type": lambda f: case(
        ztensor.register_logical_type, logical=ztensor.LogicalType("f32", "f32", "float32")
    ),
    "remote": lambda f: case(
        ztensor.remote, url="s3://bucket/k.zt", storage={"region": "r"}, cache=f.out()
    ),
    "remove_tensors": lambda f: case(
        ztensor.remove_tensors, input=f.zt(), output=f.out(), names=["w"], compression=False,
        durable="auto",
    ),
    "rename_tensors": lambda f: case(
        ztensor.rename_tensors, path=f.zt(), names={"w": "v"}, **EDITING
    ),
    "repair": lambda f: case(
        ztensor.repair, path=f.zt(), write=f.out(), in_place=False, drop_tail=False, accept=None,
        durable="auto", lock=True, timeout=0.0, dry_run=False, progress=None,
    ),
    "replace_tensor": lambda f: case(
        ztensor.replace_tensor, path=f.zt(), name="w", data=F32, **EDITING
    ),
    "report": lambda f: case(
        ztensor.report, source=f.zt(), output=f.out(".html"), other=None, names=None, sample=None,
        threads=None, progress=None,
    ),
    "view": lambda f: case(
        ztensor.view, source=f.zt(), other=None, names=None, height=640, threads=None,
        progress=None,
    ),
    "set_attributes": lambda f: case(
        ztensor.set_attributes, path=f.zt(), attributes={"k": 1}, name="w", replace=False, **EDITING
    ),
    "split": lambda f: case(
        ztensor.split, path=f.zt(), folder=f.new_folder(), max_shard_size=128, keep=None,
        durable="auto", dry_run=False, progress=None,
    ),
    "stats": lambda f: case(
        ztensor.stats, source=f.zt(), names=["w"], quantiles=(0.5,), bins=8, scale="linear",
        channels=(4, 8), on_damage=print, threads=None, progress=None,
    ),
    "tensor_hashes": lambda f: case(
        ztensor.tensor_hashes, source=f.zt(), names=["w"], attributes=False, threads=None,
        progress=None,
    ),
    "numpy.load": lambda f: case(ztensor.numpy.load, data=f.bytes["v12.zt"], copy=True, **LOADED),
    "numpy.load_file": lambda f: case(
        ztensor.numpy.load_file, filename=f.zt(), copy=False, progress=None, **LOADED
    ),
    "numpy.save": lambda _: case(ztensor.numpy.save, **SAVED),
    "numpy.save_file": lambda f: case(
        ztensor.numpy.save_file, filename=f.out(), **SAVED, **SHARED
    ),
    "torch.dequantize": lambda f: case(
        ztensor_torch().dequantize, tensor=tensors()["quantized"], dtype=torch.float32, device="cpu"
    ),
    "torch.load": lambda f: case(
        ztensor_torch().load, data=f.bytes["v12.zt"], device="cpu", **LOADED
    ),
    "torch.load_file": lambda f: case(
        ztensor_torch().load_file, filename=f.zt("v11.zt"), device="cpu", copy=False, progress=None,
        **LOADED,
    ),
    "torch.load_model": lambda f: case(
        ztensor_torch().load_model, model=f.model, filename=linear(f), strict=True, device="cpu",
        copy=False, assign=False, **LOADED,
    ),
    "torch.load_pretrained": lambda f: case(
        ztensor_torch().load_pretrained, model=f.model, folder=pretrained(f), strict=True,
        device="cpu",
    ),
    "torch.save": lambda _: case(
        ztensor_torch().save, **{**SAVED, "tensors": {"w": torch.ones(3)}}
    ),
    "torch.save_file": lambda f: case(
        ztensor_torch().save_file, filename=f.out(), **{**SAVED, "tensors": {"w": torch.ones(3)}},
        **SHARED,
    ),
    "torch.save_model": lambda f: case(
        ztensor_torch().save_model, model=f.model, filename=f.out(), metadata=None,
        force_contiguous=True, compression=False,
    ),
    "torch.save_pretrained": lambda f: case(
        ztensor_torch().save_pretrained, model=f.model, folder=f.out(""), max_shard_size="5GB",
        metadata=None, compression=False,
    ),
    "jax.load": lambda f: case(
        ztensor_jax().load, data=f.bytes["a.npy"], device=None, sharding=None, copy=True, **LOADED
    ),
    "jax.load_abstract": lambda f: case(
        ztensor_jax().load_abstract, filename=f.zt("a.npz"), sharding=None
    ),
    "jax.load_file": lambda f: case(
        ztensor_jax().load_file, filename=f.zt("a.npy"), device=None, sharding=None,
        copy=False, **LOADED,
    ),
    "iterate": lambda f: case(
        lambda **given: list(ztensor.iterate(**given)), source=f.zt(), framework="numpy",
        device="cpu", only="w", ahead="1MB", threads=1, verify=None, limits=None, storage=None,
        cache=None,
    ),
    "load_tree": lambda f: case(ztensor.load_tree, filename=tree(f), **OF_TREE),
    "open_tree": lambda f: case(
        ztensor.open_tree, filename=tree(f), mmap=True, verify=None, limits=None
    ),
    "save_tree": lambda f: saved_tree(ztensor.save_tree, f),
    "torch.load_tree": lambda f: case(
        ztensor_torch().load_tree, filename=tree(f), device="cpu", **OF_TREE
    ),
    "torch.random_state": lambda _: case(ztensor_torch().random_state),
    "torch.set_random_state": lambda _: case(
        ztensor_torch().set_random_state, state=ztensor_torch().random_state()
    ),
    "torch.save_tree": lambda f: saved_tree(ztensor_torch().save_tree, f),
    "jax.load_tree": lambda f: case(ztensor_jax().load_tree, filename=tree(f), **OF_TREE),
    "jax.save_tree": lambda f: saved_tree(ztensor_jax().save_tree, f),
    "jax.save": lambda _: case(ztensor_jax().save, **SAVED),
    "jax.leaf_names": lambda _: case(ztensor_jax().leaf_names, tree={"a": {"b": F32}, "c": 1}),
    "jax.save_sharded": lambda f: case(
        ztensor_jax().save_sharded, tree={"a": {"b": F32}, "c": 1}, folder=f.new_folder(),
        compression=False, checksum=True, threads=None, durable="auto", max_shard_size=None,
        overwrite=True, values=None, storage=None, process_index=None, exchange=None,
    ),
    "jax.save_file": lambda f: case(ztensor_jax().save_file, filename=f.out(), **SAVED, **SHARED),
}  # fmt: skip


def of_reader(make: Callable[[Files], Any]) -> dict[str, Make]:
    """Return cases for what readers of one file and of several have."""

    def on(method: str, **arguments: Any) -> Make:
        return lambda f: case(getattr(make(f), method), **arguments)

    return {
        "__init__": lambda f: case(
            type(make(f)),
            **{"source": f.shards} if make is Files.sharded else {"path": f.zt()},
            verify=None, mmap=True, limits=None, recover=False,
        ),
        "__enter__": on("__enter__"),
        "__exit__": lambda f: case(lambda kind: make(f).__exit__(kind), kind=None),
        "__getitem__": lambda f: case(lambda name: make(f)[name], name="w"),
        "__contains__": lambda f: case(lambda name: name in make(f), name="w"),
        "__iter__": on("__iter__"),
        "__len__": on("__len__"),
        "__dask_tokenize__": on("__dask_tokenize__"),
        "__reduce__": on("__reduce__"),
        "__repr__": on("__repr__"),
        "attributes": lambda f: case(lambda: make(f).attributes),
        "format": lambda f: case(lambda: make(f).format),
        "name": lambda f: case(lambda: make(f).name),
        "nbytes": lambda f: case(lambda: make(f).nbytes),
        "version": lambda f: case(lambda: make(f).version),
        "close": on("close"),
        "decoded_chunks": on("decoded_chunks", name="w", role="data"),
        "get": lambda f: case(lambda key, default: make(f).get(key, default), key="w", default=1),
        "get_slice": on("get_slice", name="w"),
        "items": lambda f: case(lambda: dict(make(f).items())),
        "keys": on("keys"),
        "location": on("location", name="w", component="data"),
        "metadata": on("metadata", name="w"),
        "prefetch": on("prefetch", names=["w"]),
        "evict": on("evict", names=["w"]),
        "read": on("read", name="csr", copy=True),
        "read_into": lambda f: case(make(f).read_into, name="w", dst=np.zeros_like(F32)),
        "read_jax": on("read_jax", name="w", device=None, sharding=None),
        "read_numpy": on("read_numpy", name="w", copy=True),
        "read_slices": on("read_slices", wanted={"w": slice(0, 1)}),
        "read_tensors": on("read_tensors", names=["w"], copy=True),
        "read_torch": on("read_torch", name="w", device="cpu", copy=True),
        "reader_of": on("reader_of", name="w"),
        "unrepresented": lambda f: case(lambda: make(f).unrepresented),
        "values": lambda f: case(lambda: list(make(f).values())),
        "verify": on("verify", names=None, threads=None, progress=None),
    }  # fmt: skip


def of_writer(make: Callable[[Files], Any]) -> dict[str, Make]:
    """Return cases for what writers of new files and editors of old ones have."""

    def on(method: str, **arguments: Any) -> Make:
        return lambda f: case(getattr(make(f), method), **arguments)

    return {
        "__enter__": on("__enter__"),
        "__exit__": lambda f: case(
            lambda kind, error, trace: make(f).__exit__(kind, error, trace),
            kind=None, error=None, trace=None,
        ),
        "__repr__": on("__repr__"),
        "abort": on("abort"),
        "add": on("add", name="n", data=F32, **OPTIONS),
        "append": lambda f: case(ztensor.Writer.append, path=f.zt(), **EDITING),
        "copy": lambda f: case(
            make(f).copy, name="n", reader=f.reader(), from_name="csr", compress=None, progress=None
        ),
        "finish": on("finish"),
        "share": lambda f: case(
            make(f).share, name="n", of="w" if make is Files.editor else "old"
        ),
        "shared": lambda f: case(lambda: make(f).shared),
        "stream": on("stream", name="n", shape=(2, 3), dtype="float32", attributes=None, **OPTIONS),
        "write": on("write", name="n", data=F32, attributes={"a": 1}, **OPTIONS),
        "write_numpy": on("write_numpy", name="n", data=F32, **OPTIONS),
        "write_torch": lambda f: case(
            make(f).write_torch, name="n", data=torch.ones(3), attributes=None, **OPTIONS
        ),
    }  # fmt: skip


def of_slice(name: str) -> dict[str, Make]:
    """Return cases for a lazy object."""

    def lazy(files: Files) -> ztensor.TensorSlice:
        return files.reader().get_slice(name)

    def on(method: str, **arguments: Any) -> Make:
        return lambda f: case(getattr(lazy(f), method), **arguments)

    return {
        "__array__": on("__array__", dtype=None, copy=None),
        "__buffer__": on("__buffer__", flags=0),
        "__dlpack__": on(
            "__dlpack__", stream=None, max_version=None, dl_device=None, copy=None
        ),
        "__dlpack_device__": on("__dlpack_device__"),
        "__getitem__": lambda f: case(lambda key: lazy(f)[key], key=slice(1, 3)),
        "__init__": lambda f: case(lambda: lazy(f)),
        "__iter__": on("__iter__"),
        "__len__": on("__len__"),
        "__dask_tokenize__": on("__dask_tokenize__"),
        "__reduce__": on("__reduce__"),
        "__repr__": on("__repr__"),
        "get_dtype": on("get_dtype"),
        "get_shape": on("get_shape"),
        "nbytes": lambda f: case(lambda: lazy(f).nbytes),
        "ndim": lambda f: case(lambda: lazy(f).ndim),
        "size": lambda f: case(lambda: lazy(f).size),
    }  # fmt: skip


def of_tensor(name: str) -> dict[str, Make]:
    """Return cases for a tensor that one has."""

    def on(method: str, **arguments: Any) -> Make:
        return lambda f: case(getattr(ztensor.Tensor, method), self=tensor(), **arguments)

    def tensor() -> ztensor.Tensor:
        held = tensors()[name]
        return held if isinstance(held, ztensor.Tensor) else ztensor.Tensor(held)

    return {
        "__array__": lambda f: case(tensor().__array__, dtype=None, copy=None),
        "__array_interface__": lambda f: case(lambda: getattr(tensor(), "__array_interface__", 0)),
        "__buffer__": lambda f: case(tensor().__buffer__, flags=0),
        "__dlpack__": lambda f: case(
            tensor().__dlpack__, stream=None, max_version=None, dl_device=None, copy=None
        ),
        "__dlpack_device__": lambda f: case(tensor().__dlpack_device__),
        "__reduce__": lambda f: case(tensor().__reduce__),
        "__repr__": lambda f: case(tensor().__repr__),
        "dequantize": lambda f: case(tensor().dequantize, dtype="float32", threads=None),
        "dtype": lambda f: case(lambda: tensor().dtype),
        "integers": lambda f: case(tensor().integers),
        "jax": lambda f: case(tensor().jax, device=None),
        "main_component": lambda f: case(lambda: tensor().main_component),
        "nbytes": lambda f: case(lambda: tensor().nbytes),
        "numpy": lambda f: case(tensor().numpy),
        "require_valid": lambda f: case(tensor().require_valid),
        "to_dense": lambda f: case(tensor().to_dense),
        "to_scipy": lambda f: case(tensor().to_scipy),
        "torch": lambda f: case(tensor().torch, device="cpu"),
        "type": lambda f: case(lambda: tensor().type),
    }  # fmt: skip


def under(prefix: str, cases: dict[str, Make]) -> dict[str, Make]:
    return {f"{prefix}.{name}": make for name, make in cases.items()}


QUANTIZED: dict[str, Make] = {
    "Tensor.__init__": lambda f: case(
        ztensor.Tensor, components={"data": F32.ravel()}, shape=(4, 6), dtype=None, format="dense",
        type=None, attributes=None,
    ),
    "Tensor.coo": lambda f: case(
        ztensor.Tensor.coo, values=np.ones(2, np.float32), coords=np.zeros((2, 2), np.int64),
        shape=(4, 4), attributes=None,
    ),
    "Tensor.csr": lambda f: case(
        ztensor.Tensor.csr, values=np.ones(2, np.float32), indices=np.arange(2),
        indptr=np.array([0, 1, 2]), shape=(2, 2), attributes=None,
    ),
    "Tensor.from_awq": lambda f: case(
        ztensor.Tensor.from_awq, qweight=np.zeros((8, 2), np.int32),
        qzeros=np.zeros((1, 2), np.int32), scales=np.ones((1, 16), np.float16), bits=4,
        group_size=8, attributes=None,
    ),
    "Tensor.from_gptq": lambda f: case(
        ztensor.Tensor.from_gptq, qweight=np.zeros((2, 16), np.int32),
        qzeros=np.zeros((1, 2), np.int32), scales=np.ones((1, 16), np.float16),
        g_idx=np.zeros(16, np.int32), bits=4, group_size=16, checkpoint_format="gptq",
        attributes=None,
    ),
    "Tensor.from_int8": lambda f: case(
        ztensor.Tensor.from_int8, weight=np.zeros((8, 8), np.int8), absmax=np.ones(8, np.float32),
        attributes=None,
    ),
    "Tensor.from_mxfp4": lambda f: case(
        ztensor.Tensor.from_mxfp4, blocks=np.zeros((2, 1, 16), np.uint8),
        scales=np.full((2, 1), 127, np.uint8), shape=(2, 32), attributes=None,
    ),
    "Tensor.from_nf4": lambda f: case(
        ztensor.Tensor.from_nf4, weight=np.zeros((64, 1), np.uint8), absmax=np.ones(2, np.float32),
        shape=(2, 64), block_size=64, codebook=None, attributes=None,
    ),
    "Tensor.from_nvfp4": lambda f: case(
        ztensor.Tensor.from_nvfp4, weight=np.zeros((2, 8), np.uint8),
        scales=np.ones((2, 1), "float8_e4m3fn"), global_scale=np.float32(1), shape=(2, 16),
        attributes=None,
    ),
    "Tensor.from_scipy": lambda f: case(
        ztensor.Tensor.from_scipy, matrix=scipy_sparse.csr_array(np.eye(3)), attributes=None
    ),
    "Tensor.from_torch": lambda f: case(
        ztensor.Tensor.from_torch, tensor=torch.ones(3).to_sparse(), attributes=None
    ),
    "Tensor.quantize": lambda f: case(
        ztensor.Tensor.quantize, array=np.ones((4, 64), np.float32), recipe="int8", attributes=None
    ),
}  # fmt: skip


def of_handle(framework: str) -> dict[str, Make]:
    def on(method: str, **arguments: Any) -> Make:
        return lambda f: case(getattr(opened(f, framework), method), **arguments)

    return {
        "__init__": lambda f: case(
            ztensor.safe_open, filename=f.zt(), framework=framework, device="cpu", backend="mmap",
            verify=None,
        ),
        "__enter__": on("__enter__"),
        "__exit__": lambda f: case(lambda kind: opened(f).__exit__(kind), kind=None),
        "__repr__": on("__repr__"),
        "__dask_tokenize__": on("__dask_tokenize__"),
        "close": on("close"),
        "get_slice": on("get_slice", name="w"),
        "get_tensor": on("get_tensor", name="w"),
        "get_tensors": on("get_tensors"),
        "keys": on("keys"),
        "metadata": on("metadata"),
        "offset_keys": on("offset_keys"),
    }  # fmt: skip


def of_handle_slice(framework: str) -> dict[str, Make]:
    def lazy(files: Files) -> Any:
        return opened(files, framework).get_slice("w")

    return {
        "__init__": lambda f: case(lambda: lazy(f)),
        "__getitem__": lambda f: case(lambda key: lazy(f)[key], key=slice(1, 2)),
        "__repr__": lambda f: case(lambda: repr(lazy(f))),
        "__dask_tokenize__": lambda f: case(lazy(f).__dask_tokenize__),
        "get_dtype": lambda f: case(lazy(f).get_dtype),
        "get_shape": lambda f: case(lazy(f).get_shape),
    }


def manager(files: Files) -> ztensor.CheckpointManager:
    found = ztensor.CheckpointManager(files.new_folder(), background=False, durable=False)
    found.save(1, TREE, {"loss": 1.0})
    return found


def divided_step(folder: Any, values: Any) -> None:
    os.makedirs(folder, exist_ok=True)
    with ztensor.divided.PartWriter(folder) as part:
        part.add("w", F32)
        ztensor.divided.commit(folder, [part.finish()], values)


def streaming(files: Files) -> ztensor.ObjectSink:
    return files.writer().stream("n", (4, 6), "float32")


def picture(files: Files) -> ztensor.Picture:
    return ztensor.plot(files.reader(), ["w"], bins=4)


PROBLEM = ztensor.Problem(Reason.FIELD_TYPE, "wrong")
LOGICAL = ztensor.LogicalType("f32", "f32", "float32")

METHODS: dict[str, Make] = {
    **under("CheckpointManager", {
        "__init__": lambda f: case(
            ztensor.CheckpointManager, where=f.new_folder(), keep=3, keep_best=("loss", 1, "min"),
            keep_every=10, every=1, background=True, durable=True, increments=False,
            overwrite_newer=False, on_signal=None, compression=False, checksum=True,
            version="1.2.0", storage=None,
        ),
        "__enter__": lambda f: case(manager(f).__enter__),
        "__exit__": lambda f: case(lambda kind: manager(f).__exit__(kind), kind=None),
        "__repr__": lambda f: case(manager(f).__repr__),
        "best": lambda f: case(manager(f).best, metric="loss", mode="min"),
        "checkpoints": lambda f: case(manager(f).checkpoints),
        "close": lambda f: case(manager(f).close),
        "delete": lambda f: case(manager(f).delete, step=1),
        "interrupted": lambda f: case(lambda: manager(f).interrupted),
        "latest": lambda f: case(manager(f).latest),
        "is_remote": lambda f: case(lambda: manager(f).is_remote),
        "name": lambda f: case(lambda: manager(f).name),
        "newest": lambda f: case(manager(f).newest, count=20),
        "path": lambda f: case(manager(f).path, step=1),
        "pin": lambda f: case(manager(f).pin, step=1, pinned=True),
        "prune": lambda f: case(manager(f).prune, damaged=True, dry_run=False),
        "restore": lambda f: case(
            manager(f).restore, step=None, into=None, only="w", types=(), threads=None
        ),
        "save": lambda f: case(
            manager(f).save, step=2, tree=TREE, metrics={"loss": 1.0}, force=False
        ),
        "save_divided": lambda f: case(
            manager(f).save_divided, step=2, write=divided_step, metrics={"loss": 1.0}, process=0,
            force=False,
        ),
        "should_save": lambda f: case(manager(f).should_save, step=2),
        "steps": lambda f: case(manager(f).steps),
        "verify": lambda f: case(manager(f).verify, step=None),
        "wait": lambda f: case(manager(f).wait),
    }),
    **under("LazyTree", {
        "__init__": lambda f: case(ztensor.LazyTree, reader=ztensor.open(tree(f))),
        "__getitem__": lambda f: case(lambda path: lazy(f)[path], path="w"),
        "__iter__": lambda f: case(lazy(f).__iter__),
        "__len__": lambda f: case(lazy(f).__len__),
        "__enter__": lambda f: case(lazy(f).__enter__),
        "__exit__": lambda f: case(lambda kind: lazy(f).__exit__(kind), kind=None),
        "__repr__": lambda f: case(lazy(f).__repr__),
        "close": lambda f: case(lazy(f).close),
        "is_closed": lambda f: case(lambda: lazy(f).is_closed),
        "metadata": lambda f: case(lazy(f).metadata, path="w"),
        "name": lambda f: case(lambda: lazy(f).name),
        "tree": lambda f: case(lazy(f).tree, copy=True, only="w", types=(), threads=None),
    }),
    **under("ModelView", {
        "__init__": lambda f: case(ztensor.ModelView, insight=ztensor.examine(f.zt()), height=640),
        "__repr__": lambda f: case(ztensor.view(f.zt()).__repr__),
    }),
    **under("Record", {
        "__init__": lambda _: case(
            ztensor.Record, class_name="some.Class", fields={"x": 1}, sort="namedtuple"
        ),
        "__getitem__": lambda _: case(lambda name: record()[name], name="x"),
        "__iter__": lambda _: case(record().__iter__),
        "__len__": lambda _: case(record().__len__),
        "__repr__": lambda _: case(record().__repr__),
    }),
    **under("Reader", of_reader(Files.reader)),
    **under("ShardedReader", of_reader(Files.sharded)),
    "ShardedReader.files": lambda f: case(lambda: f.sharded().files),
    "ShardedReader.index_metadata": lambda f: case(lambda: f.sharded().index_metadata),
    "ShardedReader.shard": lambda f: case(
        f.sharded().shard, file=f.sharded().files[0]
    ),
    **under("Writer", of_writer(Files.writer)),
    "Writer.__init__": lambda f: case(
        ztensor.Writer, path=f.out(), version="1.2.0", compression=False, checksum="crc32c",
        attributes=None, durable="auto", threads=None, chunk_rows=None,
    ),
    **under("Editor", of_writer(Files.editor)),
    "Editor.__init__": lambda f: case(ztensor.Editor, path=f.zt(), **EDITING),
    "Editor.attributes": lambda f: case(lambda: f.editor().attributes),
    "Editor.keys": lambda f: case(f.editor().keys),
    "Editor.metadata": lambda f: case(f.editor().metadata, name="w"),
    "Editor.remove": lambda f: case(f.editor().remove, names=["w"]),
    "Editor.rename": lambda f: case(f.editor().rename, names={"w": "v"}),
    "Editor.replace": lambda f: case(f.editor().replace, name="w", data=F32, compress=None),
    "Editor.replace_stream": lambda f: case(
        f.editor().replace_stream, name="w", shape=(2, 2), dtype="float32", compress=None
    ),
    "Editor.set_attributes": lambda f: case(
        f.editor().set_attributes, attributes={"k": 1}, name=None, replace=False
    ),
    "ObjectSink.__enter__": lambda f: case(streaming(f).__enter__),
    "ObjectSink.__exit__": lambda f: case(
        lambda kind, error, trace: streaming(f).__exit__(kind, error, trace),
        kind=None, error=None, trace=None,
    ),
    "ObjectSink.__init__": lambda f: case(lambda: streaming(f)),
    "ObjectSink.close": lambda f: case(streaming(f).close),
    "ObjectSink.write": lambda f: case(streaming(f).write, piece=F32),
    **under("Tensor", of_tensor("w")),
    **under("Tensor:csr", of_tensor("csr")),
    **under("Tensor:coo", of_tensor("coo")),
    **under("Tensor:quantized", of_tensor("quantized")),
    **QUANTIZED,
    **under("TensorSlice", of_slice("w")),
    **under("TensorSlice:csr", of_slice("csr")),
    **under("TensorSlice:coo", of_slice("coo")),
    **under("TensorSlice:quantized", of_slice("quantized")),
    **under("safe_open", of_handle("np")),
    **under("safe_open:torch", of_handle("pt")),
    **under("safe_open:jax", of_handle("jax")),
    **under("HandleSlice", of_handle_slice("np")),
    **under("HandleSlice:torch", of_handle_slice("pt")),
    "Picture.save": lambda f: case(picture(f).save, path=f.out(".svg")),
    "Insight.as_json": lambda f: case(ztensor.examine(f.zt()).as_json),
    "Picture.svg": lambda f: case(picture(f).svg),
    "Picture.png": lambda f: case(picture(f).png),
    "Picture._repr_svg_": lambda f: case(picture(f)._repr_svg_),
    "TensorStats.total": lambda f: case(
        ztensor.TensorStats.total, several=list(ztensor.stats(f.reader(), ["w"]).values()), name="t"
    ),
    "StatsReport.__repr__": lambda f: case(lambda: repr(ztensor.stats(f.reader(), ["w"]))),
    "TensorStats.finite": lambda f: case(lambda: ztensor.TensorStats("n").finite),
    "ComponentMetadata.__getitem__": lambda f: case(
        lambda field: f.reader().metadata("w").components["data"][field], field="dtype"
    ),
    "ComponentMetadata.__iter__": lambda f: case(
        lambda: iter(f.reader().metadata("w").components["data"])
    ),
    "ComponentMetadata.__len__": lambda f: case(
        lambda: len(f.reader().metadata("w").components["data"])
    ),
    "Problem.about": lambda f: case(PROBLEM.about, object_name="w", component="data"),
    "Problem.under": lambda f: case(lambda step: [PROBLEM.under(step)], step="a"),
    "Problem.__str__": lambda f: case(PROBLEM.__str__),
    "LogicalType.storage_count": lambda f: case(LOGICAL.storage_count, count=3),
}  # fmt: skip

# Right calls that this or that layout has no answer to, or that are made once only.
# Libraries that are not installed beside this suite: `tests/ecosystem` attacks these calls. Those
# for Lightning, Accelerate, Trainer and Keras are in `test_trainers.py`, with stand-ins.
HUBS = ("transformers", "diffusers", "peft")
HUB_CALLS = ("from_pretrained", "save_pretrained")


def hub(home: str, name: str, files: Files) -> Case:
    call = getattr(importlib.import_module(f"ztensor.{home}"), name)
    if name == "save_pretrained":
        return case(call, model=files.model, folder=files.out(""))
    kind = {"model": files.model} if home == "peft" else {"cls": dict}
    return case(call, folder=pretrained(files), verify=None, subfolder="", storage=None, **kind)


REFUSED = {
    "register_logical_type", "ObjectSink.__exit__", "ObjectSink.close", "Tensor.dequantize",
    "Tensor.integers", "Tensor.to_scipy", "Tensor:csr.__array__", "Tensor:csr.__buffer__",
    "Tensor:csr.__dlpack__", "Tensor:csr.dequantize", "Tensor:csr.integers", "Tensor:csr.numpy",
    "Tensor:coo.__array__", "Tensor:coo.__buffer__", "Tensor:coo.__dlpack__",
    "Tensor:coo.dequantize", "Tensor:coo.integers", "Tensor:coo.numpy",
    "Tensor:quantized.__array__", "Tensor:quantized.__buffer__", "Tensor:quantized.__dlpack__",
    "Tensor:quantized.jax", "Tensor:quantized.numpy", "Tensor:quantized.to_scipy",
    "Tensor:quantized.torch", "TensorSlice.__dlpack__", "safe_open:torch.get_tensors",
    "safe_open:jax.get_tensors", *(f"{home}.{name}" for home in HUBS for name in HUB_CALLS),
}  # fmt: skip


def v2() -> Any:
    return importlib.import_module("ztensor.v2")


def of_v2_source(f: Files) -> dict[str, Case]:
    source = v2().open(f.zt("v2.zt"))
    return {
        "__contains__": case(lambda name: name in source, name="w"),
        "__enter__": case(source.__enter__),
        "__exit__": case(source.__exit__),
        "__getitem__": case(lambda name: source[name], name="w"),
        "__init__": case(lambda: v2().open(f.zt())),
        "__iter__": case(source.__iter__),
        "__len__": case(source.__len__),
        "__repr__": case(source.__repr__),
        "attributes": case(lambda: source.attributes),
        "checked": case(source.checked, names=["w"], deep=False),
        "close": case(source.close),
        "files": case(lambda: source.files),
        "format": case(lambda: source.format),
        "get": case(source.get, name="w", default=None),
        "has_own_pages": case(lambda: source["w"].caps),
        "items": case(source.items),
        "keys": case(source.keys),
        "provenance": case(lambda: source.provenance),
        "reader": case(lambda: source.reader),
        "shown": case(lambda: source["w"].location),
        "values": case(source.values),
        "verify": case(source.verify, deep=False),
    }


def of_v2_tensor(f: Files) -> dict[str, Case]:
    tensor = v2().open(f.zt("v2.zt"))["w"]
    words = (
        "caps",
        "dtype",
        "layout",
        "location",
        "logical",
        "name",
        "nbytes",
        "part",
        "parts",
        "shape",
    )
    calls = ("__dlpack_device__", "__repr__", "evict", "prefetch", "tobytes", "verify")
    return {
        "__array__": case(tensor.__array__, dtype=None, copy=None),
        "__buffer__": case(tensor.__buffer__, flags=0),
        "__dlpack__": case(
            tensor.__dlpack__, stream=None, max_version=(1, 0), dl_device=None, copy=None
        ),
        "__getitem__": case(lambda part: tensor[part], part="data"),
        "__init__": case(lambda: v2().open(f.zt("v2.zt"))["w"]),
        **{word: case(functools.partial(getattr, tensor, word)) for word in words},
        **{word: case(getattr(tensor, word)) for word in calls},
    }


def of_v2_writer(f: Files) -> dict[str, Case]:
    writer = v2().Writer(f.out(), canonical=False)
    part = {"dtype": "u8", "data": b"12"}
    return {
        "__enter__": case(writer.__enter__),
        "__exit__": case(writer.__exit__, kind=None, error=None, trace=None),
        "__init__": case(
            v2().Writer, path=f.out(), canonical=False, align=4096, publish=False, append=False
        ),
        "abandon": case(writer.abandon),
        "add": case(
            writer.add, name="w", data=b"\1\0", shape=[2], dtype="u8", logical="bool",
            encoding=None,
        ),
        "add_object": case(
            writer.add_object, name="w", shape=[2], parts={"data": part}, layout="dense",
            attributes={"k": 1},
        ),
        "end_stream": case(writer.end_stream),
        "finish": case(writer.finish),
        "ingest": case(writer.ingest, source=v2().open(f.zt("v2.zt"))),
        "set_attributes": case(writer.set_attributes, attributes={"k": 1}),
        "stream": case(
            writer.stream, name="w", shape=[2], parts={"data": {"dtype": "u8", "nbytes": 2}},
            layout="dense", attributes=None,
        ),
    }  # fmt: skip


def of_v2_sink(f: Files) -> dict[str, Case]:
    writer = v2().Writer(f.out(), canonical=False)
    sink = writer.stream("w", [2], {"data": {"dtype": "u8", "nbytes": 2}})
    whole = writer.__class__(f.out(), canonical=False).stream(
        "w", [0], {"data": {"dtype": "u8", "nbytes": 0}}
    )
    return {
        "__enter__": case(sink.__enter__),
        "__exit__": case(sink.__exit__, kind=ValueError, error=None, trace=None),
        "__init__": case(lambda: sink),
        "close": case(whole.close),
        "part": case(lambda: sink.part),
        "write": case(sink.write, chunk=b"12"),
        "written": case(lambda: sink.written),
    }


def of_each(prefix: str, cases: Callable[[Files], dict[str, Case]], names: str) -> dict[str, Make]:
    def make(files: Files, name: str) -> Case:
        return cases(files)[name]

    return under(prefix, {name: functools.partial(make, name=name) for name in names.split()})


def small_corpus(f: Files) -> Path:
    folder = f.new_folder()
    (folder / "a.zt").write_bytes(f.bytes["v2.zt"])
    entry = {"path": "a.zt", "spec_version": "2", "expect": "accept"}
    (folder / "corpus.json").write_text(json.dumps({"files": [entry]}))
    return folder


def in_files(function: str) -> Make:
    """Return a case of a function of `ztensor.fleet`, whose results are gone through."""
    space = importlib.import_module("ztensor.fleet")
    more: dict[str, dict[str, Any]] = {
        "verify_files": {"deep": False},
        "stats_files": {"quantiles": (0.5,), "bins": 4, "scale": "linear"},
        "hash_files": {"attributes": False},
    }

    def through(**arguments: Any) -> list[Any]:
        return list(itertools.islice(getattr(space, function)(**arguments), 20))

    return lambda f: case(
        through, sources=[f.zt(), f.zt("a.npz")], executor=None, workers=None, on_error="collect",
        include=None, exclude=None, storage=None, progress=None, **more[function],
    )  # fmt: skip


def into_folder(f: Files) -> Case:
    space = importlib.import_module("ztensor.fleet")

    def through(**arguments: Any) -> list[Any]:
        return list(itertools.islice(space.convert_files(**arguments), 20))

    return case(
        through, sources=[f.zt()], folder=f.new_folder(), to="zt", overwrite=False, executor=None,
        workers=None, on_error="collect", storage=None, progress=None, compression=None,
    )  # fmt: skip


def divided() -> Any:
    return importlib.import_module("ztensor.divided")


def part_of(f: Files) -> Any:
    part = divided().PartWriter(f.new_folder())
    part.add("first", F32)
    return part


def divided_record(folder: Path) -> Any:
    with divided().PartWriter(folder) as part:
        part.add("w", F32)
        return part.finish()


def divided_folder(f: Files) -> Path:
    folder = f.new_folder()
    divided().commit(folder, [divided_record(folder)], {"step": 1})
    return folder


def commit_of(f: Files) -> Case:
    folder = f.new_folder()
    return case(
        divided().commit, folder=folder, records=[divided_record(folder)], values={"step": 1},
        overwrite=True, durable="auto", storage=None, writer="w",
    )  # fmt: skip


def of_part(f: Files) -> dict[str, Case]:
    part = part_of(f)
    return {
        "__init__": case(
            divided().PartWriter, folder=f.new_folder(), process=0, compression=False,
            checksum=True, threads=None, durable="auto", storage=None, max_shard_size=None,
        ),
        "__enter__": case(part.__enter__),
        "__exit__": case(
            part.__exit__, kind=None, error=None, trace=None,
        ),
        "__repr__": case(part.__repr__),
        "abort": case(part.abort),
        "add": case(part.add, name="w", value=F32, shape=(8, 6), offsets=(4, 0)),
        "share": case(
            part.share, name="v", of="first", at=(0, 0), shape=(8, 6), offsets=(4, 0)
        ),
        "finish": case(part.finish),
    }  # fmt: skip


def of_checkpoint(f: Files) -> dict[str, Case]:
    found = divided().open_divided(divided_folder(f))
    return {
        "__init__": case(lambda: divided().DividedCheckpoint(found.objects)),
        "__enter__": case(found.__enter__),
        "__exit__": case(
            found.__exit__, kind=None, error=None, trace=None,
        ),
        "__repr__": case(found.__repr__),
        "close": case(found.close),
        "read_box": case(
            found.read_box, name="w", offsets=(1, 2), sizes=(2, 3),
            destination=np.zeros((2, 3), np.float32),
        ),
    }  # fmt: skip


def checkpoint_writer(f: Files) -> Any:
    return ztensor_torch().StorageWriter(f.new_folder())


def checkpoint_reader(f: Files) -> Any:
    writer = checkpoint_writer(f)
    dcp().save({"w": torch.ones(3), "n": 1}, storage_writer=writer, no_dist=True)
    reader = ztensor_torch().StorageReader(writer.checkpoint_id)
    reader.read_metadata()
    return reader


def dcp() -> Any:
    return importlib.import_module("torch.distributed.checkpoint")


def save_plan(f: Files) -> tuple[Any, Any]:
    planner = dcp().DefaultSavePlanner()
    planner.set_up_planner({"w": torch.ones(3), "n": 1}, is_coordinator=True)
    return planner.create_local_plan(), planner


def written(f: Files) -> Any:
    writer = checkpoint_writer(f)
    return writer.write_data(*save_plan(f)).value()


def load_data(f: Files) -> Any:
    reader, planner = checkpoint_reader(f), dcp().DefaultLoadPlanner()
    planner.set_up_planner({"w": torch.zeros(3), "n": 0}, reader.read_metadata(), True)
    return reader.read_data(planner.create_local_plan(), planner).value()


def finished(f: Files) -> Any:
    writer, (plan, planner) = checkpoint_writer(f), save_plan(f)
    _, metadata = planner.create_global_plan([plan])
    return writer.finish(metadata, [writer.write_data(plan, planner).value()])


def planned(thing: Any, name: str) -> Any:
    """Return a property, or what a method makes of a plan of torch."""
    if name == "checkpoint_id":
        return thing.checkpoint_id
    plan = dcp().planner.LoadPlan([])
    return getattr(thing, name)([plan] if name == "prepare_global_plan" else plan)


def of_storage(kind: str, make: Callable[[Files], Any]) -> dict[str, Make]:
    """Return cases for what both classes have."""

    def on(name: str, **arguments: Any) -> Make:
        return lambda f: case(getattr(make(f), name), **arguments)

    def with_plan(name: str) -> Make:
        return lambda f: case(lambda: planned(make(f), name))

    return {
        f"{kind}.reset": on("reset", checkpoint_id="folder"),
        f"{kind}.validate_checkpoint_id": on("validate_checkpoint_id", checkpoint_id="folder"),
        **{
            f"{kind}.{name}": with_plan(name)
            for name in ("checkpoint_id", "prepare_local_plan", "prepare_global_plan")
        },
    }


# What torch calls with plans and planners of its own is tried with those.
CHECKPOINTS: dict[str, Make] = {
    "StorageWriter.__init__": lambda f: case(
        ztensor_torch().StorageWriter, path=f.new_folder(), compression=False, checksum=True,
        threads=None, overwrite=True, max_shard_size=None, durable="auto", since=None, values=None,
        storage=None,
    ),
    "StorageReader.__init__": lambda f: case(
        ztensor_torch().StorageReader, path=f.new_folder(), verify=None, threads=None, types=(),
        storage=None, limits=None,
    ),
    "StorageWriter.storage_meta": lambda f: case(checkpoint_writer(f).storage_meta),
    "StorageWriter.set_up_storage_writer": lambda f: case(
        lambda: checkpoint_writer(f).set_up_storage_writer(True, rank=0)
    ),
    "StorageWriter.write_data": lambda f: case(lambda: written(f)),
    "StorageWriter.finish": lambda f: case(lambda: finished(f)),
    "StorageReader.read_metadata": lambda f: case(
        lambda: dict(checkpoint_reader(f).read_metadata().state_dict_metadata)
    ),
    "StorageReader.set_up_storage_reader": lambda f: case(
        lambda: checkpoint_reader(f).set_up_storage_reader(None, True)
    ),
    "StorageReader.read_data": lambda f: case(lambda: load_data(f)),
    **of_storage("StorageWriter", checkpoint_writer),
    **of_storage("StorageReader", checkpoint_reader),
}  # fmt: skip


OTHERS: dict[str, Make] = {
    **under("torch", CHECKPOINTS),
    "fleet.FileHash.__repr__": lambda f: case(
        lambda: repr(list(importlib.import_module("ztensor.fleet").hash_files(f.zt())))
    ),
    **{f"fleet.{name}": in_files(name) for name in ("verify_files", "stats_files", "hash_files")},
    "fleet.convert_files": into_folder,
    "dask.from_file": lambda f: case(
        importlib.import_module("ztensor.dask").from_file, source=f.zt(), name="w", chunks="auto",
        verify=None, storage=None,
    ),
    **{
        f"{home}.{name}": functools.partial(hub, home, name) for home in HUBS for name in HUB_CALLS
    },
    "divided.commit": commit_of,
    "divided.compact": lambda f: case(
        divided().compact, folder=divided_folder(f), storage=None, older_than=24.0, dry_run=False
    ),
    "divided.open_divided": lambda f: case(
        divided().open_divided, folder=divided_folder(f), verify=None, mmap=True, limits=None,
        storage=None,
    ),
    "divided.read_root": lambda f: case(
        divided().read_root, folder=divided_folder(f), limits=None, storage=None
    ),
    "divided.repair": lambda f: case(
        divided().repair, folder=divided_folder(f), durable="auto", dry_run=False, storage=None
    ),
    **of_each("divided.PartWriter", of_part, (
        "__enter__ __exit__ __init__ __repr__ abort add finish share"
    )),
    **of_each("divided.DividedCheckpoint", of_checkpoint, (
        "__enter__ __exit__ __init__ __repr__ close read_box"
    )),
    "conformance.run_corpus": lambda f: case(
        importlib.import_module("ztensor.conformance").run_corpus, folder=small_corpus(f),
        reader=None, seconds=30.0, memory=None, jobs=1, progress=None,
    ),
    "v2.convert": lambda f: case(v2().convert, src=f.zt("a.npz"), dst=f.out(), align=4096),
    "v2.detect": lambda f: case(v2().detect, path=f.zt()),
    "v2.index": lambda f: case(v2().index, paths=f.zt()),
    "v2.open": lambda f: case(v2().open, paths=f.zt()),
    "v2.page_size": lambda f: case(v2().page_size),
    "v2.verify": lambda f: case(v2().verify, path=f.zt("v2.zt"), deep=False),
    **of_each("v2.Source", of_v2_source, (
        "__contains__ __enter__ __exit__ __getitem__ __init__ __iter__ __len__ __repr__ "
        "attributes checked close files format get has_own_pages items keys provenance "
        "reader shown values verify"
    )),
    **of_each("v2.Tensor", of_v2_tensor, (
        "__array__ __buffer__ __dlpack__ __dlpack_device__ __getitem__ __init__ __repr__ "
        "caps dtype evict layout location logical name nbytes part parts prefetch shape "
        "tobytes verify"
    )),
    **of_each("v2.Writer", of_v2_writer, (
        "__enter__ __exit__ __init__ abandon add add_object end_stream finish ingest "
        "set_attributes stream"
    )),
    **of_each("v2.Sink", of_v2_sink, (
        "__enter__ __exit__ __init__ close part write written"
    )),
}  # fmt: skip
CASES = {**FUNCTIONS, **METHODS, **OTHERS}


class Odd:
    """Nothing that any parameter takes, but as a function that may be called."""

    def __init__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        return "\x1b[31modd\n"


def odd_values() -> list[Any]:
    """Return values of many kinds, of which each parameter takes a few at most."""
    endless: list[Any] = []
    endless.append(endless)
    return [
        None, True, -1, 0, 1 << 70, 1.5, math.nan, math.inf, 1j, "", "no such", "nul\0", "\ud800",
        "x" * 5000, b"bytes", bytearray(b"\x00" * 8), Odd(), Odd, (), [], [None], [[1], [2, 3]],
        ["w", "w"], [-1, 2], endless, {}, {1: 2}, {"w": None}, {"w": {"w": Odd()}}, {"w": "w"},
        {b"w": F32}, {"old"}, range(3), iter(["w"]), slice(None, None, 0), ..., Path("no such"),
        Path("."), io.BytesIO(b"short"), io.StringIO("text"), np.float64("nan"), np.int64(3),
        np.array(["text"]), np.array([Odd()]), np.zeros((2, 0)), np.zeros(3, "datetime64[s]"),
        np.zeros(2, [("a", "i4")]), np.array([9, -9]), F32.view(np.uint8), torch.ones(2),
        scipy_sparse.csr_array(np.eye(2)), np.dtype("O"), "O", "float4_e2m1fn", "cuda:99", "meta",
    ]  # fmt: skip


ODD_COUNT = len(odd_values())
# Each parameter gets one in so many of them, drawn for it; all of them in the full form.
STRIDE = 1 if IS_FULL else 24
ODD_STRIDE = 2 * STRIDE if STRIDE > 1 else 1


@pytest.mark.parametrize("name", CASES)
def test_wrong_arguments(files: Files, name: str) -> None:
    """Values of every kind for every parameter of every public function and method."""
    make = CASES[name]
    escapes = {}
    right = make(files)
    is_right = name not in REFUSED and not name.startswith("TensorSlice:")
    wrong = escape_of(lambda: right.function(**right.arguments), is_right=is_right)
    if wrong is not None:
        escapes["right"] = wrong
    for place, parameter in enumerate(right.arguments):
        first = random.Random(f"{name} {place}").randrange(ODD_STRIDE)
        for index in range(first, ODD_COUNT, ODD_STRIDE):
            value = odd_values()[index]
            tried = make(files)
            arguments = {**tried.arguments, parameter: value}
            shown = f"{parameter}={value!a:.60}"
            wrong = escape_of(lambda: tried.function(**arguments))  # noqa: B023
            if wrong is not None:
                escapes[shown] = wrong
    assert not escapes, "\n".join(f"{shown}: {wrong}" for shown, wrong in escapes.items())


PLAIN = (Exception, str, tuple)


def public_names() -> Iterator[str]:
    """Yield every public function, and every public method and property of a public class."""
    spaces = {
        "": ztensor,
        "numpy.": ztensor.numpy,
        "torch.": ztensor_torch(),
        "jax.": ztensor_jax(),
        "v2.": v2(),
        "divided.": divided(),
        "conformance.": importlib.import_module("ztensor.conformance"),
        "fleet.": importlib.import_module("ztensor.fleet"),
        "dask.": importlib.import_module("ztensor.dask"),
        **{f"{home}.": importlib.import_module(f"ztensor.{home}") for home in HUBS},
    }
    kinds: dict[str, type] = {"HandleSlice": importlib.import_module("ztensor.handle").HandleSlice}
    for prefix, space in spaces.items():
        for name in space.__all__:
            value = getattr(space, name)
            if inspect.isfunction(value):
                yield prefix + name
            # The errors of an executor are those of `concurrent.futures`.
            elif inspect.isclass(value) and not issubclass(value, (*PLAIN, Executor)):
                kinds[prefix + name] = value
    for name, kind in kinds.items():
        for base in kind.__mro__:
            for member, value in vars(base).items():
                full = f"{name}.{member}"
                if base.__module__.startswith("ztensor") and is_call(member, value):
                    yield from (
                        [full] if full in CASES or not only_looks(kind, member, value) else []
                    )


def only_looks(kind: type, name: str, member: Any) -> bool:
    """Return whether a member of a report does no more than look at its fields."""
    is_look = isinstance(member, property) or name in ("__repr__", "__str__")
    return dataclasses.is_dataclass(kind) and is_look


def is_call(name: str, member: Any) -> bool:
    """Return whether a member of a class is a call that somebody wrote, no generated one."""
    function = getattr(member, "__func__", getattr(member, "fget", member))
    return (
        inspect.isfunction(function)
        and inspect.unwrap(function).__code__.co_filename != "<string>"
        and (not name.startswith("_") or name.endswith("__"))
        and name not in ("__getattr__", "__getstate__", "__setstate__", "__new__", "__getnewargs__")
    )


def test_every_public_name_has_a_case() -> None:
    """A call that nobody attacked."""
    assert set(public_names()) - set(CASES) == set()


def test_every_public_name_has_the_edge() -> None:
    """A call around which nothing makes foreign errors ours."""
    handle = importlib.import_module("ztensor.handle")
    without = set()
    for name in public_names():
        outer, _, inner = name.rpartition(".")
        if outer in (
            "numpy",
            "torch",
            "jax",
            "v2",
            "conformance",
            "fleet",
            "dask",
            "divided",
            *HUBS,
        ):
            call = getattr(importlib.import_module(f"ztensor.{outer}"), inner)
        elif outer.startswith("torch."):
            kind = getattr(ztensor_torch(), outer.removeprefix("torch."))
            call = inspect.getattr_static(kind, inner)
        elif outer.startswith("v2."):
            call = inspect.getattr_static(getattr(v2(), outer.removeprefix("v2.")), inner)
        elif outer.startswith("divided."):
            kind = getattr(divided(), outer.removeprefix("divided."))
            call = inspect.getattr_static(kind, inner)
        elif outer:
            call = inspect.getattr_static(getattr(ztensor, outer, handle.HandleSlice), inner)
        else:
            call = getattr(ztensor, name)
        if not hasattr(getattr(call, "__func__", getattr(call, "fget", call)), "is_public"):
            without.add(name)
    raise_nothing = {name for name in without if name.endswith((".__contains__", ".__del__"))}
    assert without - raise_nothing == {"Tensor.__array_interface__"}


# --- Hostile files ------------------------------------------------------------------------------


def damaged(name: str, data: bytes) -> Iterator[bytes]:
    """Yield variants of a file: cut, with bytes flipped, with lengths that are absurd."""
    for cut in (0, 1, 8, len(data) // 3, len(data) - 20, len(data) - 1):
        yield data[: max(cut, 0)]
    draw = random.Random(name)
    for count in (1, 1, 1, 4, 16, 64):
        changed = bytearray(data)
        # Heads and tails are where formats keep what they are made of.
        near = draw.choice((range(len(data)), range(min(64, len(data))), range(len(data))[-64:]))
        for _ in range(count):
            changed[draw.choice(near)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        yield bytes(changed)
    for offset in (0, 4, 8, 16, len(data) // 2, len(data) - 16):
        yield data[:offset] + b"\xff" * 8 + data[offset + 8 :]
    yield data + data
    yield bytes(len(data))


def with_everything(read: Callable[[Any], Any]) -> Callable[[Files, Path], Any]:
    return lambda _files, path: read(path)


def seen(path: Path) -> None:
    with ztensor.open(path) as reader:
        reader.verify(threads=1)
        for name in reader:
            for look in (reader.metadata, reader.read, reader.read_torch, reader.read_jax):
                with contextlib.suppress(ztensor.FormatError, ztensor.UsageError):
                    look(name)
            with contextlib.suppress(ztensor.FormatError, ztensor.UsageError):
                reader.get_slice(name)[:1]


def handled(framework: str) -> Callable[[Path], None]:
    def look(path: Path) -> None:
        with ztensor.safe_open(path, framework) as handle:
            handle.get_tensors()
            handle.metadata()

    return look


def appended(path: Path) -> None:
    with ztensor.Writer.append(path, durable=False) as editor:
        editor.write("new", F32)


# What may be done with a file by its path; `Files` gives a place for what is written.
OPERATIONS: dict[str, Callable[[Files, Path], Any]] = {
    "open": with_everything(seen),
    "recover": lambda _, path: ztensor.open(path, recover=True).close(),
    "bytes": lambda _, path: ztensor.numpy.load(path.read_bytes()),
    "numpy": with_everything(ztensor.numpy.load_file),
    "torch": lambda _, path: ztensor_torch().load_file(path),
    "torch model": lambda f, path: ztensor_torch().load_model(f.model, path, strict=False),
    "jax": lambda _, path: ztensor_jax().load_file(path),
    "jax abstract": lambda _, path: ztensor_jax().load_abstract(path),
    "handle np": with_everything(handled("np")),
    "handle pt": with_everything(handled("pt")),
    "handle jax": with_everything(handled("jax")),
    "tree": with_everything(ztensor.load_tree),
    "stats": with_everything(ztensor.stats),
    "examine": with_everything(lambda path: ztensor.examine(path).as_json()),
    "examine two": lambda f, path: ztensor.examine(path, f.sample).as_json(),
    "plot": with_everything(ztensor.plot),
    "hash": with_everything(ztensor.content_hash),
    "digest": with_everything(ztensor.content_digest),
    "canonical": with_everything(ztensor.canonical_problems),
    "diff": lambda f, path: ztensor.diff(path, f.sample),
    "convert": lambda f, path: ztensor.convert(path, f.out(), durable=False),
    "cast": lambda f, path: ztensor.convert(
        path, f.out(), durable=False, dtype="float16", dequantize=True
    ),
    "export": lambda f, path: ztensor.convert(path, f.out(".npz"), durable=False),
    "export h5": lambda f, path: ztensor.convert(path, f.out(".h5"), durable=False),
    "migrate": lambda f, path: ztensor.migrate(path, f.out(), durable=False),
    "merge": lambda f, path: ztensor.merge([path, f.sample], f.out(), on_conflict="last"),
    "split": lambda f, path: ztensor.split(path, f.new_folder(), max_shard_size=64, durable=False),
    "divide": lambda f, path: ztensor.split(
        path, f.new_folder(), max_shard_size=1 << 20, durable=False, root=True
    ),
    "append": with_everything(appended),
    "replace": lambda _, path: ztensor.replace_tensor(path, "w", F32, durable=False),
    "remove": lambda _, path: ztensor.remove_tensors(path, names=["w"], durable=False),
    "rename": lambda _, path: ztensor.rename_tensors(path, {"w": "u"}, durable=False),
    "set": lambda _, path: ztensor.set_attributes(path, {"k": 1}, durable=False),
    "compact": lambda _, path: ztensor.compact(path, durable=False),
    "repair": lambda f, path: ztensor.repair(path, write=f.out(), durable=False),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("sample", MAKERS)
def test_hostile_files(files: Files, operation: str, sample: str) -> None:
    """Files of every format that are cut, flipped or grown, under their own and a wrong name."""
    do = OPERATIONS[operation]
    variants = [files.bytes[sample], *damaged(sample, files.bytes[sample])]
    first = random.Random(f"{operation} {sample}").randrange(STRIDE)
    escapes = {}
    for index in range(first, len(variants), STRIDE):
        suffix = Path(sample).suffix
        path = files.out(WRONG[suffix] if index % 2 else suffix)
        path.write_bytes(variants[index])
        wrong = escape_of(lambda: do(files, path))  # noqa: B023
        if wrong is not None:
            escapes[index] = wrong
    assert not escapes, "\n".join(f"variant {index}: {wrong}" for index, wrong in escapes.items())


def test_every_operation_on_a_right_file(files: Files) -> None:
    """What the cases above do is done, where nothing is wrong."""
    for operation, do in OPERATIONS.items():
        if operation == "tree":
            sample = tree(files)
        elif operation == "digest":  # only files of 2.x have one
            sample = files.out()
            ztensor.numpy.save_file({"v": np.arange(3)}, sample, version="2.1")
        else:
            sample = files.zt("v12.zt" if operation in ("bytes", "handle np") else "plain.zt")
        wrong = escape_of(lambda: do(files, sample), is_right=True)  # noqa: B023
        assert wrong is None, f"{operation}: {wrong}"


# --- The command line ---------------------------------------------------------------------------

# Each verb as it is called, with what stands for the file, another file, and places to write to.
VERBS: dict[str, list[str]] = {
    "ls": ["FILE"],
    "info": ["FILE"],
    "show": ["FILE", "w"],
    "stats": ["FILE"],
    "plot": ["FILE"],
    "diff": ["FILE", "OTHER"],
    "report": ["FILE", "-o", "OUT.html"],
    "view": ["FILE", "--no-browser", "--seconds", "0.01"],
    "verify": ["FILE"],
    "hash": ["FILE"],
    "ckpt": ["verify", "FILE"],
    "conformance": ["FILE"],
    "convert": ["FILE", "OUT"],
    "merge": ["OUT", "FILE", "OTHER"],
    "split": ["FILE", "--max-shard-size", "64B"],
    "append": ["FILE", "OTHER"],
    "replace": ["FILE", "w", "OTHER"],
    "rm": ["FILE", "w"],
    "mv": ["FILE", "w", "v"],
    "set": ["FILE", "key=value"],
    "compact": ["FILE"],
    "repair": ["FILE"],
    "completions": ["bash"],
}


def ended(arguments: list[str]) -> str | None:
    """Run the command in this process; return what is wrong with how it ended, or None."""
    from ztensor.cli.exits import ExitCode
    from ztensor.cli.main import main

    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException as error:  # noqa: BLE001  # the search is for any
        return f"{type(error).__name__}: {error}"
    err.flush()
    told = err.buffer.getvalue().decode("utf-8", "replace")
    if code not in set(ExitCode) or "Traceback" in told or "bug in ztensor" in told:
        return f"code {code!r}: {told[-600:]}"
    return None


def call_of(files: Files, verb: str, file: Path) -> list[str]:
    places = {"FILE": str(file), "OTHER": str(files.zt("a.npy")), "OUT": str(files.out())}
    return [verb, *(places.get(word, word.replace("OUT", places["OUT"])) for word in VERBS[verb])]


def test_every_verb_has_a_case() -> None:
    """A verb that nobody attacked."""
    from ztensor.cli.main import VERBS as OF_COMMAND

    assert {verb for group in OF_COMMAND.values() for verb in group} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_with_hostile_files(files: Files, verb: str) -> None:
    """Hostile files of every format, and paths that are none, for every verb of the command."""
    wrongs = {}
    for sample in MAKERS:
        variants = [files.bytes[sample], *damaged(sample, files.bytes[sample])]
        first = random.Random(f"{verb} {sample}").randrange(STRIDE)
        for index in range(first, len(variants), STRIDE):
            path = files.out(Path(sample).suffix)
            path.write_bytes(variants[index])
            wrong = ended(call_of(files, verb, path))
            if wrong is not None:
                wrongs[f"{sample} {index}"] = wrong
    loop = files.out()
    loop.symlink_to(loop)
    nowhere = files.out("") / "no" / "such.zt"
    for path in (nowhere, files.folder, loop, files.zt() / "below.zt", Path("x" * 5000), Path("")):
        wrong = ended(call_of(files, verb, path))
        if wrong is not None:
            wrongs[str(path)[:80]] = wrong
    for words in ([], ["--no-such"], ["\ud800"], ["", "", "", ""], ["x" * 5000] * 9):
        wrong = ended([verb, *words])
        if wrong is not None:
            wrongs[repr(words)[:80]] = wrong
    assert not wrongs, "\n".join(f"{what}: {wrong}" for what, wrong in wrongs.items())


# --- Nothing left: memory, the stack, the disk --------------------------------------------------

STARVED = """
import resource, sys
import numpy as np
import ztensor, ztensor.numpy, ztensor.torch
from ztensor.errors import LimitError

def attempts(path):
    def each(reader):
        for name in reader:
            reader.read(name, copy=True)
    def opened(**how):
        with ztensor.open(path, **how) as reader:
            each(reader)
    yield "read", opened
    yield "unmapped", lambda: opened(mmap=False)
    yield "numpy", lambda: ztensor.numpy.load_file(path, copy=True)
    yield "torch", lambda: ztensor.torch.load_file(path, copy=True)
    yield "bytes", lambda: ztensor.numpy.load(open(path, "rb"))
    yield "verify", lambda: ztensor.open(path).verify(threads=2)
    yield "stats", lambda: ztensor.stats(path, threads=2)
    yield "convert", lambda: ztensor.convert(path, out, compression=1, threads=2, durable=False)
    yield "compact", lambda: ztensor.compact(out, durable=False)

out = sys.argv[2] + ".out.zt"
for path in sys.argv[4:]:  # all that is loaded late is loaded
    for what, do in attempts(path):
        do()
for mebibytes in map(int, sys.argv[1].split()):
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (mebibytes << 20), resource.RLIM_INFINITY))
    for path in sys.argv[3].split(":"):
        for what, do in attempts(path):
            try:
                do()
                print(mebibytes, "done", what, path)
            except LimitError as error:
                print(mebibytes, "refused", what, path, error.reason)
            except BaseException as error:
                wrong = type(error).__name__, error, repr(error.__cause__)
                print(mebibytes, "ESCAPED", what, path, *wrong)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""


def large(files: Files) -> list[Path]:
    """Write files of 16 MB, of several formats."""
    values = np.arange(4 << 20, dtype=np.float32)
    folder = files.new_folder()
    ztensor.numpy.save_file({"w": values}, folder / "raw.zt", durable=False)
    ztensor.numpy.save_file({"w": values}, folder / "zstd.zt", None, 1, durable=False)
    for suffix in ("npz", "gguf"):
        ztensor.convert(folder / "raw.zt", folder / f"a.{suffix}", durable=False, check=False)
    torch.save({"w": torch.from_numpy(values)}, folder / "a.pt")
    return sorted(folder.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS is Linux's")
def test_memory_that_runs_out(files: Files) -> None:
    """Files of 16 MB read, checked and converted by a process that may have little memory more."""
    paths = ":".join(map(str, large(files)))
    small = [str(files.zt(name)) for name in ("v12.zt", "v12z.zt", "a.npz", "a.pt", "a.gguf")]
    program = [sys.executable, "-c", STARVED, "1 8 20", str(files.out()), paths, *small]
    # With more arenas each thread has address space in store, and nothing ever runs out.
    one_arena = os.environ | {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "0"}
    ran = subprocess.run(
        program, capture_output=True, text=True, check=False, timeout=100, env=one_arena
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "ESCAPED" not in ran.stdout, ran.stdout
    for mebibytes in (1, 8, 20):
        assert f"{mebibytes} refused" in ran.stdout, ran.stdout
    assert "Traceback" not in ran.stderr, ran.stderr[-2000:]


@pytest.mark.slow
def test_a_stack_that_runs_out(files: Files) -> None:
    """Calls made where only so many frames are left, for every number of them."""

    def deep(calls: int, do: Callable[[], Any]) -> Any:
        return do() if calls == 0 else deep(calls - 1, do)

    limit = sys.getrecursionlimit()
    ended_as = collections.Counter[str]()
    for operation in ("open", "numpy", "handle np", "stats", "diff", "convert", "append", "repair"):
        OPERATIONS[operation](files, files.zt("plain.zt"))  # all that is loaded late is loaded
        for calls in range(140, 199, 1 if STRIDE == 1 else 3):
            path = files.zt("plain.zt")
            do = functools.partial(OPERATIONS[operation], files, path)
            try:
                sys.setrecursionlimit(len(inspect.stack(0)) + 200)
                deep(calls, do)
                ended_as["done"] += 1
            except ztensor.LimitError as error:
                ended_as[str(error.reason)] += 1
            except RecursionError as error:
                frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
                names = {frame.f_globals["__name__"] for frame in frames}
                ended_as[f"no frame left in {sorted(n for n in names if n[:7] == 'ztensor')}"] += 1
            finally:
                sys.setrecursionlimit(limit)
    allowed = {
        "done",
        "limit_stack",
        "no frame left in []",
        "no frame left in ['ztensor.boundary']",
    }
    assert set(ended_as) <= allowed, ended_as
    assert min(ended_as["done"], ended_as["limit_stack"]) > 10, ended_as


FULL = """
import functools, resource, sys
import numpy as np
import ztensor, ztensor.numpy, ztensor.torch, ztensor.jax, torch

folder, small = sys.argv[1:]
ones = {"w": np.ones(1 << 18, np.float32)}
ztensor.numpy.save_file(ones, folder + "/large.zt")

def streamed():
    with ztensor.Writer(folder + "/stream.zt") as writer:
        with writer.stream("w", (1 << 18,), "float32") as sink:
            sink.write(ones["w"])

writers = {
    "save": lambda: ztensor.numpy.save_file(ones, folder + "/a.zt"),
    "shards": lambda: ztensor.numpy.save_file(
        ones | {"v": ones["w"] + 1}, folder + "/s.zt", max_shard_size=1 << 20
    ),
    "torch": lambda: ztensor.torch.save_file({"w": torch.ones(1 << 18)}, folder + "/b.zt"),
    "jax": lambda: ztensor.jax.save_file(ones, folder + "/c.zt"),
    "stream": streamed,
    "replace": lambda: ztensor.replace_tensor(small, "w", ones["w"]),
    "merge": lambda: ztensor.merge([folder + "/large.zt"], folder + "/d.zt"),
    "compact": lambda: ztensor.compact(folder + "/large.zt"),
    "split": lambda: ztensor.split(folder + "/large.zt", max_shard_size=1 << 20),
    "migrate": lambda: ztensor.migrate(folder + "/large.zt", version="1.1.0"),
    "repair": lambda: ztensor.repair(folder + "/large.zt", write=folder + "/e.zt"),
    "picture": lambda: ztensor.plot(folder + "/large.zt").save(folder + "/p.svg"),
    "report": lambda: ztensor.report(folder + "/large.zt", folder + "/p.html"),
} | {
    f"convert {suffix}": functools.partial(
        ztensor.convert, folder + "/large.zt", folder + "/x." + suffix
    )
    for suffix in ("zt", "npz", "npy", "safetensors", "gguf", "h5", "pt")
}
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
for name, do in writers.items():
    try:
        do()
        print("done", name)
    except ztensor.SourceError as error:
        print("refused", name, error.reason)
    except ztensor.UsageError as error:
        print("usage", name, error)
    except BaseException as error:
        print("ESCAPED", name, type(error).__name__, error, repr(error.__cause__))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_FSIZE is not everywhere")
def test_a_disk_that_runs_out(files: Files) -> None:
    """Every writer in a process whose files may have no more than 2 KiB."""
    folder = files.new_folder()
    program = [sys.executable, "-c", FULL, str(folder), str(files.zt("plain.zt"))]
    ran = subprocess.run(program, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "ESCAPED" not in ran.stdout, ran.stdout
    assert ran.stdout.count("refused") >= 14, ran.stdout
    assert "Traceback" not in ran.stderr, ran.stderr[-2000:]
    for target in ("/dev/full", "/dev/null", str(folder), str(folder / "no" / "such.zt")):
        with pytest.raises((ztensor.SourceError, ztensor.UsageError)):
            ztensor.numpy.save_file({"w": F32}, target)
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(ztensor.SourceError):
        ztensor.numpy.save_file({"w": F32}, full)
