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
from ztensor import Reader, Tensor, TensorMetadata, TensorSlice, VerifyReport, Writer
from ztensor.numpy import load, load_file, save, save_file

Array = np.ndarray[Any, np.dtype[Any]]


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
    save_file(arrays, path, compression=9, checksum=None, durable=False)
    assert_type(save(arrays), bytes)
    assert_type(save(mixed, {"k": "v"}, compression=True), bytes)


def loading(path: Path, data: bytes) -> None:
    assert_type(load_file(path), dict[str, Any])
    assert_type(load_file("m.zt", copy=True, verify=True), dict[str, Any])
    assert_type(load(data), dict[str, Any])
    assert_type(load(bytearray(data), copy=False), dict[str, Any])


def opening(path: Path, data: bytes, file: io.BufferedReader) -> None:
    for source in (path, str(path), data, memoryview(data), file):
        assert_type(ztensor.open(source), Reader)
    limits = ztensor.Limits(decoded_bytes=1 << 30, rank=8)
    ztensor.open(path, verify=True, mmap=False, limits=limits)


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
    assert_type(reader.read("w"), Tensor)
    assert_type(reader.read(["w", "b"]), dict[str, Tensor])
    assert_type(reader.read_numpy("w", copy=True), Array)
    assert_type(reader.read_numpy(["w", "b"]), dict[str, Array])
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
    assert_type(report.problems, tuple[ztensor.Problem, ...])
    assert_type(report.problems[0].reason, ztensor.Reason)
    reader.close()


def as_a_context(path: Path) -> None:
    with ztensor.open(path) as reader:
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
    except ztensor.ManifestError as error:
        assert_type(error.problems, tuple[Any, ...])
    except (FileNotFoundError, PermissionError):
        pass
    except ztensor.ZTensorError as error:
        assert_type(error.reason, ztensor.Reason | None)
        assert_type(error.file, str | None)
        assert_type(error.object_name, str | None)


def own_types() -> None:
    ztensor.register_logical_type(ztensor.LogicalType("mine", "u8", "uint8"))
