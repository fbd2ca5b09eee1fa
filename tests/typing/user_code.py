"""What users get, and whether they get on with it, where no framework is imported.

Both type checkers read this as a stranger's code, also where torch and JAX are not installed:
what comes from them is then Any, and nothing here is an error.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import ztensor
import ztensor.v2 as two
from ztensor import Reader, Tensor, TensorMetadata, TensorSlice, Writer
from ztensor.conformance import Answer, Ended, run_corpus
from ztensor.edit import Editor
from ztensor.io import VerifyReport
from ztensor.numpy import load, load_file, save, save_file

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array | Any]


def wants_arrays(arrays: dict[str, Array]) -> None: ...


def dicts(path: Path, data: bytes) -> None:
    assert_type(ztensor.numpy.load_file(path), Arrays)
    ztensor.torch.load_file(path)["w"].to("cuda")
    ztensor.flax.load_file(path)["w"].block_until_ready()
    assert_type(load_file(path), Arrays)
    assert_type(load(data), Arrays)
    assert_type(load_file(path)["w"], Array | Any)
    wants_arrays(load_file(path))
    arrays: dict[str, Array] = load(data)
    load_file(path)["w"].astype(np.float32).mean()
    save_file(arrays, path)
    save_file({"w": [1.0, 2.0], "s": Tensor(np.zeros(3))}, io.BytesIO())
    assert_type(save_file(load_file(path), "b.zt"), dict[str, str])
    assert_type(save(arrays), bytes)
    mixed = {"w": arrays["w"], "s": Tensor(np.zeros(3))}  # mypy: of objects
    save_file(mixed, path)
    for value in load_file(path).values():
        if isinstance(value, Tensor):  # sparse, quantized
            assert_type(value, Tensor)
            assert_type(value.dequantize("float16"), Array)


def contexts(path: Path) -> None:
    with ztensor.open(path) as reader:
        assert_type(reader, Reader)
    with Reader(path) as reader:
        assert_type(reader, Reader)

    def find(shard: ztensor.typing.ShardIdentity) -> str | bytes | None:
        return None if shard.size > 1 << 40 else f"{shard.name}-{shard.digest}"

    assert_type(ztensor.open(path, resolver=find), ztensor.Reader)
    ztensor.open(path, resolver=ztensor.io.ShardFolder("folder")).close()
    with ztensor.io.ShardedReader([path]) as several:
        assert_type(several, ztensor.io.ShardedReader)
        assert_type(several.files, list[str])
    with Writer(path) as writer:
        assert_type(writer, Writer)
        with writer.stream("w", (2, 3), "float32") as sink:
            assert_type(sink, ztensor.io.ObjectSink)
    with Editor(path) as editor:
        assert_type(editor, Editor)
        assert_type(editor.keys(), list[str])
    with Writer.append(path, durable=True) as appending:
        assert_type(appending, Editor)
    with ztensor.safe_open(path, framework="np") as f:
        assert_type(f, ztensor.safe_open[Array | Any])
        assert_type(f.get_tensor("w"), Array | Any)
        assert_type(f.get_slice("w")[0:2], Array | Any)
        assert_type(f.get_tensors(), Arrays)
    with ztensor.safe_open(path, framework=str(path)) as g:
        assert_type(g.get_tensor("w"), Any)


def in_a_function_of_mine(handle: ztensor.safe_open, name: str) -> list[int]:
    return handle.get_slice(name).get_shape()


def sources(path: Path, file: io.BufferedReader) -> None:
    for source in (path, str(path), b"", bytearray(), memoryview(b""), file, io.BytesIO()):
        assert_type(ztensor.open(source), Reader)
    ztensor.open([path, str(path)])
    Writer(io.BytesIO())
    Writer(path.open("wb"))


def reading(reader: Reader) -> None:
    assert_type(reader["w"], Array | Any)
    assert_type(reader.get("w"), Array | Any | None)
    assert_type(dict(reader), Arrays)
    assert_type(reader.keys(), list[str])
    assert_type(reader.read("w"), Tensor)
    assert_type(reader.read(["w"]), dict[str, Tensor])
    assert_type(reader.read_numpy("w"), Array)
    assert_type(reader.read_numpy(iter(["w"]), copy=True), dict[str, Array])
    assert_type(reader.metadata("w"), TensorMetadata)
    assert_type(reader.metadata(["w"]), list[TensorMetadata])
    assert_type(reader.reader_of("w"), Reader)
    assert_type(reader.location("w"), ztensor.io.Location)
    assert_type(reader.verify(), VerifyReport)
    assert_type(reader.attributes, dict[str, Any])
    array = reader.read_numpy("w")
    reader.read_into("w", array)
    reader.read_into({"w": array})
    target: dict[str, Array] = {"w": array}
    reader.read_into(target)


def slices(part: TensorSlice, chosen: Array) -> None:
    assert_type(part[0:10], Array | Any)
    assert_type(part[0], Any)  # a number, or an array
    assert_type(part[0, 1], Any)
    part[0], part[..., 0], part[:, ::2], part[None, [1, 2]], part[chosen > 0], part[np.int64(3)]
    part[2:, 0].astype(np.float32)
    assert_type(part.shape, tuple[int, ...])
    assert_type(part.dtype, np.dtype[Any])
    assert_type(iter(part), Iterator[Any])
    wants_arrays({"w": np.asarray(part)})


def frameworks(reader: Reader, tensor: Tensor) -> None:
    """No framework is imported here; the results can be used whether it is installed or not."""
    reader.read_torch("w").to("cuda")
    reader.read_torch(["w", "b"], device="cuda:1")["w"].half().numpy()
    tensor.torch(device=0).sum()
    reader.read_jax("w").block_until_ready()
    reader.read_jax(["w"], device="cpu")["w"].mean()
    tensor.jax().sum()
    with ztensor.safe_open("m.zt", framework="pt", device="cuda:0") as f:
        f.get_tensor("w").to("cpu")
        f.get_slice("w")[0:2].float()
    with ztensor.safe_open("m.zt", framework="flax") as g:
        g.get_tensor("w").sum()


def tensors(tensor: Tensor, array: Array) -> None:
    assert_type(tensor.numpy(), Array)
    assert_type(tensor.to_dense(), Array)
    assert_type(tensor.dequantize(), Array)
    assert_type(tensor.integers(), Array)
    assert_type(tensor.components, Mapping[str, Array])
    assert_type(Tensor.csr([1.0], [0], [0, 1], (1, 3)), Tensor)
    assert_type(Tensor.quantize(array, "nf4"), Tensor)
    tensor.to_scipy().sum()


def whole_files(path: Path, reader: Reader) -> None:
    assert_type(ztensor.stats(path), ztensor.insight.StatsReport)
    assert_type(ztensor.stats(reader)["w"], ztensor.insight.TensorStats)
    assert_type(ztensor.diff(path, reader), ztensor.insight.DiffReport)
    assert_type(ztensor.plot(path), ztensor.insight.Picture)
    assert_type(ztensor.convert(path, "m.npz"), ztensor.converting.ConversionReport)
    assert_type(ztensor.migrate(path), ztensor.converting.ConversionReport)
    assert_type(ztensor.content_hash(path), str)
    assert_type(ztensor.insight.content_digest(path, "sha256"), str)
    assert_type(ztensor.insight.canonical_problems(path), list[str])
    assert_type(ztensor.insight.tensor_hashes(reader), dict[str, str])
    assert_type(ztensor.merge([path, "b.zt"], "m.zt"), int)
    assert_type(ztensor.compact(path), int)
    assert_type(ztensor.repair(path), ztensor.edit.RepairReport)
    assert_type(ztensor.split(path, max_shard_size="1GB")[0], str)
    assert_type(ztensor.edit.replace_tensor(path, "w", np.zeros(3), atomic=True), int)
    assert_type(ztensor.edit.remove_tensors(path, names=["w"], durable=False), int)
    assert_type(ztensor.edit.rename_tensors(path, {"a": "b"}), int)
    assert_type(ztensor.edit.set_attributes(path, {"k": 1}, name="w", timeout=1.0), int)


def of_the_2_x_releases(path: str) -> None:
    with two.open(path) as source:
        tensor = source["w"]
        assert_type(tensor.shape, list[int])
        assert_type(tensor.logical, str | None)
        assert_type(tensor.location.offset, int)
        assert_type(tensor["data"].tobytes(), bytes)
        assert_type(source.attributes, dict[str, Any] | None)
        checked, undigested = source.verify(deep=True)
        assert_type(checked + undigested, int)
    with two.Writer(path, canonical=False) as writer:
        writer.add("w", b"1", [1], "u8")
        with writer.stream("v", [2], {"data": {"dtype": "u8", "nbytes": 2}}) as sink:
            sink.write(b"12")
            assert_type(sink.part, str | None)
    assert_type(two.convert(path, path, align=4096), int)


def conformance(path: Path) -> None:
    report = run_corpus(path, ["reader", "--strict"], jobs=2)
    assert_type(report.ok, bool)
    assert_type(report.counts, dict[str, int])
    assert_type(report.failures[0].why, str)
    run_corpus(path, lambda _: Answer(Ended.REFUSED))
