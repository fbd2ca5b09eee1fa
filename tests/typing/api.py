"""Public calls as users write them; type-checked with the rest, never run.

`assert_type` states what a type checker must infer. A call that stops type-checking here breaks
the code of somebody who checks theirs.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import ztensor
from ztensor import Reader, Tensor, TensorMetadata, TensorSlice, Writer
from ztensor.io import VerifyReport
from ztensor.numpy import load, load_file, save, save_file

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array | Any]  # a sparse or quantized object is a `Tensor`


def saving(path: Path, arrays: dict[str, Array], mixed: Mapping[str, Array | Tensor]) -> None:
    save_file(arrays, path)
    save_file(arrays, "m.zt", {"format": "np"})
    save_file(
        mixed,
        path,
        metadata={"n": 1},
        compression=True,
        checksum="sha256",
        version="1.1.0",
        durable="auto",
        progress=lambda done, total: None,
    )
    save_file(arrays, path, compression=9, chunk_rows=64, checksum=None, durable=False)
    save_file(tensors=arrays, filename="m.zt", metadata=None, compression=True)  # as in 1.2
    save_file(arrays, "m.zt", None, True)
    save(arrays, None, True)
    assert_type(save(arrays), bytes)
    assert_type(save(mixed, {"k": "v"}, compression=True), bytes)


def converting(path: Path) -> None:
    report = ztensor.convert(path, "m.zt", include="layers.*", exclude=["a", "b"], strict=True)
    assert_type(report, ztensor.converting.ConversionReport)
    assert_type(report.lost, tuple[ztensor.converting.Loss, ...])
    assert_type(report.lost[0].object_name, str | None)
    half = ztensor.convert(path, "m.zt", dtype="float16", dequantize=True)
    assert_type(half.changed[0].largest_error, float)
    ztensor.convert([path], "m.bin", to="npz", progress=lambda done, total: None)
    with ztensor.open(path) as reader:
        ztensor.convert(reader, "m.zt", version="1.1.0", compression=9, chunk_rows=8, check=True)
    assert_type(ztensor.migrate(path, version="1.2.0"), ztensor.converting.ConversionReport)
    assert_type(ztensor.content_hash(path, attributes=True), str)
    assert_type(ztensor.insight.tensor_hashes(path, ["w"], threads=2), dict[str, str])


def sets(path: Path, arrays: dict[str, Array]) -> None:
    save_file(arrays, path, max_shard_size="5GB")
    save_file(arrays, path, max_shard_size=1 << 30, progress=lambda done, total: None)
    assert_type(load_file([path, "b.zt"], progress=lambda done, total: None), Arrays)
    assert_type(ztensor.open(path).reader_of("a").name, str)
    several = ztensor.io.ShardedReader([path])
    assert_type(several.files, list[str])
    assert_type(several.shard("a.zt").verify(), VerifyReport)
    with ztensor.safe_open(path, framework="np", device="cpu") as f:
        assert_type(f, ztensor.safe_open[Array | Any])
        assert_type(f.keys(), list[str])
        assert_type(f.offset_keys(), list[str])
        assert_type(f.metadata(), dict[str, str] | None)
        assert_type(f.get_tensors(), Arrays)
        assert_type(f.get_slice("a").get_shape(), list[int])
        assert_type(f.get_slice("a").get_dtype(), str)


def loading(path: Path, data: bytes) -> None:
    assert_type(load_file(path), Arrays)
    assert_type(load_file("m.zt", copy=True, verify=True), Arrays)
    assert_type(load_file(filename="m.zt"), Arrays)
    assert_type(load_file("m.zt", True), Arrays)
    assert_type(load(data), Arrays)
    assert_type(load(bytearray(data), copy=False), Arrays)


def opening(path: Path, data: bytes, file: io.BufferedReader) -> None:
    for source in (path, str(path), data, memoryview(data), file):
        assert_type(ztensor.open(source), Reader)
    limits = ztensor.Limits(decoded_bytes=1 << 30, rank=8)
    ztensor.open(path, verify=True, mmap=False, limits=limits)
    assert_type(ztensor.open(path=path), Reader)
    assert_type(Reader(path=str(path)), Reader)


def reading(reader: Reader, target: Array) -> None:
    assert_type(reader.keys(), list[str])
    assert_type(len(reader), int)
    assert_type([name for name in reader], list[str])  # noqa: C416  # iterating is the point
    assert_type("w" in reader, bool)
    assert_type(reader.version, str)
    assert_type(reader.attributes, dict[str, Any])
    assert_type(reader.nbytes, int)

    assert_type(reader.metadata("w"), TensorMetadata)
    assert_type(reader.metadata("w").shape, tuple[int, ...])
    assert_type(reader.metadata("w").dtype, str | None)
    assert_type(reader.metadata("w").components["data"].offset, int)
    assert_type(reader.metadata("w").components["data"].digest, str | None)
    part_of: Mapping[str, Any] = reader.metadata("w").components["data"]
    assert_type(part_of["encoding"], Any)
    TensorMetadata("w", "float32", (2, 3), "dense", type=None, components={}, attributes={})
    assert_type(reader.read("w"), Tensor)
    assert_type(reader.read(["w", "b"]), dict[str, Tensor])
    assert_type(reader.read_numpy("w", copy=True), Array)
    assert_type(reader.read_numpy(["w", "b"]), dict[str, Array])
    assert_type(reader.read_tensors(["w", "b"], copy=True), dict[str, Array])
    reader.read_into("w", target)
    reader.read_into({"w": target, "b": target})

    assert_type(reader.get_slice("w"), TensorSlice)
    part = reader.get_slice("w")
    part[0], part[1:3, ..., None], part[:, ::2]
    assert_type(part.shape, tuple[int, ...])
    assert_type(len(part), int)

    where = reader.location("w")
    assert_type(where.path, str | None)
    assert_type(where.offset + where.length, int)

    assert_type(reader.verify(), VerifyReport)
    report = reader.verify(["w"], threads=2, progress=lambda done, total: None)
    assert_type(report.ok, bool)
    assert_type(report.problems, tuple[ztensor.errors.Problem, ...])
    assert_type(report.problems[0].reason, ztensor.Reason)
    reader.close()


def as_a_context(path: Path) -> None:
    with ztensor.open(path) as reader:
        assert_type(reader, Reader)
        reader["w"]
    with Writer(path) as writer:
        assert_type(writer, Writer)


def writing(path: Path, array: Array, tensor: Tensor) -> None:
    writer = Writer(
        path,
        version="1.2.0",
        compression=3,
        checksum="crc32c",
        attributes={"license": "Apache-2.0"},
        durable=True,
    )
    writer.write("w", array)
    writer.write("s", tensor, attributes={"k": [1, 2]}, compress=True, checksum="sha256")
    writer.write("n", [[1.0, 2.0]])
    writer.add("a", array, False)
    writer.write_numpy("p", array, checksum=False)
    with writer.stream("big", (10, 20), "float32") as sink:
        sink.write(array)
    writer.stream("more", [3], np.int8, attributes={"k": 1}).close()
    assert_type(writer.finish(), int)
    writer.abort()
    Writer(io.BytesIO(), compression=False)
    Writer(path=str(path)).add(name="w", data=array, compress=3, checksum="crc32c")
    assert_type(ztensor.replace_tensor(path="m.zt", name="w", data=array), int)  # as in 1.2
    assert_type(ztensor.remove_tensors(input="m.zt", output="o.zt", names=["w"]), int)
    assert_type(ztensor.edit.replace_tensor(path="m.zt", name="w", data=array), int)
    assert_type(ztensor.edit.remove_tensors(input="m.zt", output="o.zt", names=["w"]), int)


def tensors(array: Array) -> None:
    assert_type(Tensor(array), Tensor)
    Tensor({"data": array}, shape=(2, 3), dtype="bf16")
    Tensor({"a": array}, shape=[2], format="mine", type="x", attributes={"k": 1})
    assert_type(Tensor.csr([1.0], [0], [0, 1], (1, 3)), Tensor)
    assert_type(Tensor.coo([1.0], [[0], [1]], (1, 3)), Tensor)
    assert_type(Tensor.quantize(array, bits=4, group_size=32), Tensor)
    tensor = Tensor(array)
    assert_type(tensor.numpy(), Array)
    assert_type(tensor.to_dense(), Array)
    assert_type(tensor.dequantize(), Array)
    assert_type(tensor.shape, tuple[int, ...])
    assert_type(tensor.format, str)
    assert_type(tensor.dtype, str | None)
    assert_type(tensor.components, Mapping[str, Array])
    np.asarray(tensor)


def errors(path: Path) -> None:
    try:
        ztensor.open(path)["w"]
    except ztensor.DigestMismatchError as error:
        assert_type(error.algorithm, str)
        assert_type(error.actual, str)
    except ztensor.errors.ManifestError as error:
        assert_type(error.problems, tuple[ztensor.errors.Problem, ...])
    except (FileNotFoundError, PermissionError):
        pass
    except ztensor.ZTensorError as error:
        assert_type(error.reason, ztensor.Reason | None)
        assert_type(error.file, str | None)
        assert_type(error.object_name, str | None)


def in_stores() -> None:
    place = ztensor.Remote("s3://bucket/k.zt", {"endpoint": "http://localhost"})
    ztensor.open(place).close()
    ztensor.convert(place, ztensor.Remote("s3://bucket/other.zt"))
    save_file({}, place)


def own_types() -> None:
    ztensor.register_logical_type(ztensor.LogicalType("mine", "u8", "uint8"))


def looking(path: Path, reader: Reader) -> None:
    assert_type(ztensor.stats(path), ztensor.insight.StatsReport)
    found = ztensor.stats(reader, ["a"], quantiles=(0.5,), bins=10, scale="log", threads=2)
    assert_type(found["a"].mean, float | None)
    assert_type(found["a"].histogram, ztensor.insight.Histogram | None)
    assert_type(ztensor.plot(path, title="m").svg(), str)
    ztensor.plot(reader, "a", log_counts=True).save(path)
    report = ztensor.diff(path, reader, atol=1e-3, rtol=1e-2, rename={"^model[.]": ""})
    assert_type(report.ok, bool)
    assert_type(report.differing, tuple[ztensor.insight.TensorDiff, ...])
    assert_type(report.tensors[0].values, ztensor.insight.ValueDiff | None)
