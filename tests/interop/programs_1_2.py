"""Programs written for the Python API of release 1.2.3, and what each gives.

A program takes the module `zt`, works in an empty folder and returns plain values. All run on ours
in the default suite (`test_programs.py`), and on the released wheel in `make interop`. Where ours
deliberately differs, the program has the wheel's result and the heading of
`docs/guides/migrating.md` that explains it. Nothing of the library is imported here. Names, places
and defaults of arguments are in `test_api_1_2.py`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pathlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.interop.programs import Programs, Raises, plain

PROGRAMS = Programs()
add, program = PROGRAMS.add, PROGRAMS.program


# --- Their files -----------------------------------------------------------------------------

W = np.arange(6, dtype=np.float32).reshape(2, 3)
W_PLAIN = plain(W)
INDICES = np.array([0, 2], np.uint64)
INDPTR = np.array([0, 1, 2], np.uint64)


def csr(zt: Any) -> Any:
    parts = {"values": np.ones(2, np.float32), "indices": INDICES, "indptr": INDPTR}
    return zt.Tensor(
        parts, shape=[2, 3], dtype="float32", format="sparse_csr", attributes={"k": [1, "x"]}
    )


def custom(zt: Any) -> Any:
    parts = {"a": np.array([1, 2], np.int8), "b": np.ones(2, np.float32)}
    return zt.Tensor(parts, shape=(4, 4), format="mine")


def made(zt: Any, path: str = "m.zt") -> str:
    """Write a file of every kind of object."""
    with zt.Writer(path) as writer:
        writer.write_numpy("w", W)
        writer.write_numpy("packed", W * 2, compress=True, checksum="crc32c")
        writer.write_numpy("hashed", W * 3, checksum="sha256")
        writer.write("csr", csr(zt))
        writer.write("mine", custom(zt))
    return path


def reader(zt: Any) -> Any:
    return zt.Reader(made(zt))


def squeezed(zt: Any, path: str = "z.zt") -> str:
    """Write a file of one object that zstd makes smaller; others this library keeps raw."""
    with zt.Writer(path) as writer:
        writer.write_numpy(
            "packed", np.zeros((16, 16), np.float32), compress=True, checksum="crc32c"
        )
    return path


def damaged(zt: Any, name: str, role: str = "data", make: Any = made) -> Any:
    """Return a reader of a file in which one byte of one object is another."""
    path = make(zt)
    place = zt.Reader(path).metadata(name).components[role]["offset"] + 9
    data = bytearray(pathlib.Path(path).read_bytes())
    data[place] ^= 1
    pathlib.Path("d.zt").write_bytes(data)
    return zt.Reader("d.zt")


def dense(zt: Any, **options: Any) -> Any:
    return zt.Tensor({"data": W}, **options)


# --- Opening and listing --------------------------------------------------------------------

NAMES = ["csr", "hashed", "mine", "packed", "w"]

add("open", lambda zt: isinstance(zt.open(made(zt)), zt.Reader), True)
add("keys is a list", lambda zt: (type(reader(zt).keys()).__name__, reader(zt).keys()),
    ["list", NAMES])  # fmt: skip
add("iterate", lambda zt: list(reader(zt)), NAMES)
add("membership", lambda zt: ("w" in reader(zt), "x" in reader(zt)), [True, False])
add("format", lambda zt: reader(zt).format, "zt")


@program([True, W_PLAIN])
def a_reader_is_a_context(zt: Any) -> Any:
    with zt.Reader(made(zt)) as opened:
        return isinstance(opened, zt.Reader), opened["w"]


# --- Metadata -------------------------------------------------------------------------------


@program(["w", "float32", None, "dense", True, [2, 3], 2, 3])
def metadata_of_one(zt: Any) -> Any:
    found = reader(zt).metadata("w")
    assert isinstance(found, zt.TensorMetadata)
    rows, columns = found.shape
    return (
        found.name, found.dtype, found.type, found.format, found.shape == [2, 3],
        list(found.shape), rows, columns,
    )  # fmt: skip


@program(["list", ["w", "csr"]])
def metadata_of_several(zt: Any) -> Any:
    found = reader(zt).metadata(["w", "csr"])
    return type(found).__name__, [one.name for one in found]


@program(["float32", "sparse_csr", [2, 3], {"k": [1, "x"]}, ["indices", "indptr", "values"]])
def metadata_of_sparse(zt: Any) -> Any:
    found = reader(zt).metadata("csr")
    return found.dtype, found.format, found.shape, found.attributes, sorted(found.components)


@program(["int8", "mine", {"a": "int8", "b": "float32"}])
def metadata_of_a_layout_of_ones_own(zt: Any) -> Any:
    found = reader(zt).metadata("mine")
    return found.dtype, found.format, {k: v["dtype"] for k, v in found.components.items()}


@program(["float32", None, 64, 24, "raw", "raw", 7, True, False, "float32", True])
def a_component_is_a_mapping(zt: Any) -> Any:
    part = reader(zt).metadata("w").components["data"]
    fields = [part[field] for field in ("dtype", "type", "offset", "length", "encoding")]
    return (
        *fields, part.get("encoding"), part.get("no such", 7), "offset" in part,
        "no such" in part, dict(part.items())["dtype"], 64 in part.values(),
    )  # fmt: skip


@program(["dtype", "encoding", "length", "offset", "type"])
def the_fields_of_a_component(zt: Any) -> Any:
    part = reader(zt).metadata("w").components["data"]
    return sorted(part.keys() - {"digest", "uncompressed_length"})


@program(["zstd", True])
def a_compressed_component(zt: Any) -> Any:
    part = zt.Reader(squeezed(zt)).metadata("packed").components["data"]
    return part["encoding"], part["length"] > 0


@program(["n", "float32", [2], "dense", "f8_e5m2", {"data": {}}, {"k": 1}])
def metadata_can_be_made(zt: Any) -> Any:
    found = zt.TensorMetadata(
        "n", "float32", [2], "dense", type="f8_e5m2", components={"data": {}}, attributes={"k": 1}
    )
    return (
        found.name, found.dtype, found.shape, found.format, found.type, found.components,
        found.attributes,
    )  # fmt: skip


# --- Reading --------------------------------------------------------------------------------

add("read by name", lambda zt: reader(zt)["w"], W_PLAIN)
add("read_numpy", lambda zt: reader(zt).read_numpy("w"), W_PLAIN)
add("read_tensors", lambda zt: reader(zt).read_tensors(["w"]), {"w": W_PLAIN})
add("read_tensors of none", lambda zt: reader(zt).read_tensors([]), {})
add("read of several", lambda zt: sorted(reader(zt).read(["csr", "w"], copy=True)), ["csr", "w"])


@program([W_PLAIN, plain(W * 2), plain(W * 3)])
def several_arrays(zt: Any) -> Any:
    found = reader(zt).read_numpy(["w", "packed", "hashed"])
    return found["w"], found["packed"], found["hashed"]


@program(["dense", "float32", None, True, W_PLAIN, W_PLAIN])
def read_a_dense_tensor(zt: Any) -> Any:
    found = reader(zt).read("w")
    assert isinstance(found, zt.Tensor)
    return (
        found.format, found.dtype, found.type, found.shape == [2, 3], found.numpy(),
        found.components["data"],
    )  # fmt: skip


@program(["sparse_csr", "float32", True, {"k": [1, "x"]},
          [plain(INDICES), plain(INDPTR), plain(np.ones(2, np.float32))]])  # fmt: skip
def read_a_sparse_tensor(zt: Any) -> Any:
    found = reader(zt).read("csr")
    parts = [found.components[role] for role in sorted(found.components)]
    return found.format, found.dtype, found.shape == [2, 3], found.attributes, parts


@program(["mine", "int8", True, plain(np.array([1, 2], np.int8))])
def read_a_layout_of_ones_own(zt: Any) -> Any:
    found = reader(zt).read("mine")
    return found.format, found.dtype, found.shape == [4, 4], found.components["a"]


@program([9.0, 0.0, W_PLAIN])
def a_view_is_writable_and_never_reaches_the_file(zt: Any) -> Any:
    view = reader(zt)["w"]
    view[0, 0] = 9
    again = zt.Reader("m.zt")["w"]
    return view[0, 0].item(), again[0, 0].item(), again


@program(W_PLAIN)
def a_view_outlives_its_reader(zt: Any) -> Any:
    opened = reader(zt)
    view = opened["w"]
    del opened
    gc.collect()
    return view


@program([None, W_PLAIN, plain(W * 2), W_PLAIN])
def read_into_arrays(zt: Any) -> Any:
    opened = reader(zt)
    one, two, three = (np.empty((2, 3), np.float32) for _ in range(3))
    nothing = opened.read_into("w", one)
    opened.read_into({"packed": two})
    opened.read_into(name="w", dst=three)
    return nothing, one, two, three


# --- Tensors --------------------------------------------------------------------------------

add("a tensor's facts", lambda zt: (dense(zt).shape == [2, 3], dense(zt).dtype,
    dense(zt).format, dense(zt).type), [True, "float32", "dense", None])  # fmt: skip
add("a tensor's numpy is its array", lambda zt: dense(zt).numpy() is W, True)
add("a tensor's attributes", lambda zt: dense(zt, attributes={"a": 1}).attributes, {"a": 1})
add("a tensor's dtype as an object", lambda zt: dense(zt, dtype=W.dtype).dtype, "float32")
add("a logical type", lambda zt: zt.Tensor({"data": np.zeros(4, np.uint8)},
    type="f8_e4m3fn").type, "f8_e4m3fn")  # fmt: skip
add("a layout of one's own", lambda zt: (custom(zt).dtype, custom(zt).format), ["int8", "mine"])

# --- Writing --------------------------------------------------------------------------------


@program([True, W_PLAIN])
def finish_returns_the_size(zt: Any) -> Any:
    writer = zt.Writer(path="m.zt")
    writer.add("w", W)
    return writer.finish() == os.path.getsize("m.zt"), zt.Reader("m.zt")["w"]


@program([W_PLAIN] * 6)
def every_way_to_write_an_array(zt: Any) -> Any:
    with zt.Writer("m.zt") as writer:
        writer.add("a", W, True, "crc32c")
        writer.add(name="b", data=W, compress=5, checksum="none")
        writer.write_numpy("c", W, compress=0, checksum="sha256")
        writer.write_numpy(name="d", data=W, compress=False)
        writer.write("e", dense(zt), compress=None, checksum="crc32c")
        writer.write(name="f", data=dense(zt))
        writer.finish()
    return [zt.Reader("m.zt")[name] for name in "abcdef"]


@program({"a": [1, {"b": [2.5]}], "f": 1.5, "n": None, "t": True})
def attributes_of_an_object(zt: Any) -> Any:
    given = {"a": [1, {"b": [2.5]}], "n": None, "f": 1.5, "t": True}
    with zt.Writer("m.zt") as writer:
        writer.write("w", dense(zt, attributes=given))
    found = zt.Reader("m.zt").read("w").attributes
    return {key: found[key] for key in sorted(found)}


@program([True, True, True])
def append(zt: Any) -> Any:
    made(zt)
    writer = zt.Writer.append("m.zt")
    writer.add("more", W)
    size = writer.finish()
    with zt.Writer.append(path="m.zt") as again:
        again.add("last", W)
    keys = zt.Reader("m.zt").keys()
    return isinstance(writer, zt.Writer), size > 0, {*NAMES, "more", "last"} == set(keys)


@program([True, True])
def what_a_writer_shows(zt: Any) -> Any:
    writer = zt.Writer("m.zt")
    before = repr(writer)
    writer.finish()
    return "open" in before, "finished" in repr(writer)


# --- Changing files -------------------------------------------------------------------------


@program([plain(W + 1), plain(W + 2), W_PLAIN])
def replace(zt: Any) -> Any:
    with zt.Writer("m.zt") as writer:
        for name in "abc":
            writer.add(name, W)
    zt.replace_tensor("m.zt", "a", W + 1)
    zt.replace_tensor(path="m.zt", name="b", data=W + 2)
    return [zt.Reader("m.zt")[name] for name in "abc"]


@program([["packed", "w"], ["w"], NAMES])
def remove(zt: Any) -> Any:
    made(zt)
    zt.remove_tensors("m.zt", "one.zt", ["csr", "hashed", "mine"])
    zt.remove_tensors(input="one.zt", output="two.zt", names=["packed"])
    zt.remove_tensors("m.zt", "copy.zt", [])
    return [zt.Reader(path).keys() for path in ("one.zt", "two.zt", "copy.zt")]


# --- ztensor.numpy --------------------------------------------------------------------------


def functions(zt: Any, framework: str = "numpy") -> Any:
    return importlib.import_module(f"{zt.__name__}.{framework}")


@program([W_PLAIN, ["a", "b"], W_PLAIN])
def numpy_files(zt: Any) -> Any:
    z = functions(zt)
    z.save_file({"a": W, "b": W}, "m.zt")
    loaded = z.load_file("m.zt")
    z.save_file({"a": W}, pathlib.Path("m.zt"), {"format": "np"})
    return loaded["a"], sorted(loaded), z.load_file(pathlib.Path("m.zt"))["a"]


@program([{"a": W_PLAIN}, True, {}])
def numpy_bytes(zt: Any) -> Any:
    z = functions(zt)
    data = z.save({"a": W})
    loaded = z.load(data=data)
    return loaded, isinstance(data, bytes) and loaded["a"].flags.writeable, z.load(z.save({}))


# --- torch ----------------------------------------------------------------------------------

TORCH_W = ["torch.float32", [2, 3], W.tolist()]


@program([TORCH_W] * 5, needs="torch")
def torch_read(zt: Any) -> Any:
    opened = reader(zt)
    return (
        opened.read_torch("w"), opened.read_torch(name="w", copy=True, device="cpu"),
        opened.read_torch(["w"])["w"], opened.read("w").torch(), dense(zt).torch(device="cpu"),
    )  # fmt: skip


@program([TORCH_W, ["torch.bfloat16", [2], [1.0, 2.0]], TORCH_W], needs="torch")
def torch_write(zt: Any) -> Any:
    torch = importlib.import_module("torch")
    with zt.Writer("m.zt") as writer:
        writer.write_torch("a", torch.tensor(W), compress=True, checksum="crc32c")
        writer.write_torch(name="b", data=torch.tensor([1, 2], dtype=torch.bfloat16))
    into = torch.empty(2, 3)
    opened = zt.Reader("m.zt")
    opened.read_into("a", into)
    return opened.read_torch("a"), opened.read_torch("b"), into


@program([TORCH_W] * 3, needs="torch")
def torch_files(zt: Any) -> Any:
    torch, z = importlib.import_module("torch"), functions(zt, "torch")
    z.save_file({"a": torch.tensor(W)}, "m.zt")
    loaded = z.load_file("m.zt")["a"], z.load_file(filename="m.zt", device="cpu", copy=True)["a"]
    return *loaded, z.load(z.save({"a": torch.tensor(W)}))["a"]


@program([[], [], True, [], []], needs="torch")
def torch_models(zt: Any) -> Any:
    torch, z = importlib.import_module("torch"), functions(zt, "torch")
    torch.manual_seed(1)
    one, two = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    z.save_model(one, "m.zt", metadata=None, force_contiguous=True)
    missing, unexpected = z.load_model(two, "m.zt", strict=True, device="cpu")
    by_position = z.load_model(two, "m.zt", True, "cpu", False)
    return list(missing), list(unexpected), torch.equal(one.weight, two.weight), *by_position


@program(Raises("RuntimeError"), needs="torch")
def torch_models_that_do_not_fit(zt: Any) -> Any:
    torch, z = importlib.import_module("torch"), functions(zt, "torch")
    z.save_file({"other": torch.zeros(1)}, "m.zt")
    z.load_model(torch.nn.Linear(3, 2), "m.zt")


# --- Misuse and damage: callers catch the same errors ----------------------------------------


def append_twice(zt: Any) -> None:
    with zt.Writer("m.zt") as writer:
        writer.add("w", W)
        writer.add("w", W)


def after_finish(zt: Any) -> Any:
    writer = zt.Writer("m.zt")
    writer.finish()
    return writer


def written(zt: Any, *values: Any, **options: Any) -> None:
    with zt.Writer("m.zt") as writer:
        writer.write_numpy(*values, **options)


def of_bytes(zt: Any, data: bytes) -> Any:
    pathlib.Path("m.zt").write_bytes(data)
    return zt.Reader("m.zt")


def cut(zt: Any) -> Any:
    return of_bytes(zt, pathlib.Path(made(zt, "whole.zt")).read_bytes()[:-5])


def read_only() -> Any:
    array = np.empty((2, 3), np.float32)
    array.flags.writeable = False
    return array


MISUSE: list[tuple[str, Callable[[Any], Any], str]] = [
    ("no such file", lambda zt: zt.Reader("none.zt"), "OSError"),
    ("open no such file", lambda zt: zt.open("none.zt"), "OSError"),
    ("open a folder", lambda zt: zt.Reader("."), "OSError"),
    ("open a number", lambda zt: zt.Reader(3), "TypeError"),
    ("open None", lambda zt: zt.Reader(None), "TypeError"),
    ("open garbage", lambda zt: of_bytes(zt, b"garbage" * 99), "RuntimeError"),
    ("open a cut file", cut, "RuntimeError"),
    ("write into no folder", lambda zt: zt.Writer("none/m.zt"), "OSError"),
    ("write over a folder", lambda zt: zt.Writer("."), "OSError"),
    ("write to a number", lambda zt: zt.Writer(3), "TypeError"),
    ("append to no file", lambda zt: zt.Writer.append("none.zt"), "OSError"),
    ("append to garbage", lambda zt: (of_bytes, pathlib.Path("g.zt").write_bytes(b"garbage" * 99),
     zt.Writer.append("g.zt")), "RuntimeError"),
    ("no such name", lambda zt: reader(zt)["x"], "KeyError"),
    ("a name that is no text", lambda zt: reader(zt)[0], "TypeError"),
    ("metadata of no such name", lambda zt: reader(zt).metadata("x"), "KeyError"),
    ("metadata of a list with no such name", lambda zt: reader(zt).metadata(["w", "x"]),
     "KeyError"),
    ("metadata of a number", lambda zt: reader(zt).metadata(3), "TypeError"),
    ("read no such name", lambda zt: reader(zt).read("x"), "KeyError"),
    ("read a number", lambda zt: reader(zt).read(3), "TypeError"),
    ("read_numpy of no such name", lambda zt: reader(zt).read_numpy("x"), "KeyError"),
    ("read_numpy of a number", lambda zt: reader(zt).read_numpy(3), "TypeError"),
    ("read_numpy of sparse", lambda zt: reader(zt).read_numpy("csr"), "TypeError"),
    ("read_numpy of one's own layout", lambda zt: reader(zt).read_numpy("mine"), "TypeError"),
    ("read_tensors of no such name", lambda zt: reader(zt).read_tensors(["x"]), "KeyError"),
    ("read_tensors of sparse", lambda zt: reader(zt).read_tensors(["csr"]), "TypeError"),
    ("read_into without an array", lambda zt: reader(zt).read_into("w"), "TypeError"),
    ("read_into a number", lambda zt: reader(zt).read_into(3, np.empty((2, 3), np.float32)),
     "TypeError"),
    ("read_into integers", lambda zt: reader(zt).read_into("w", np.empty((2, 3), np.int32)),
     "TypeError"),
    ("read_into another shape", lambda zt: reader(zt).read_into("w", np.empty((3, 2), "f4")),
     "ValueError"),
    ("read_into what is read-only", lambda zt: reader(zt).read_into("w", read_only()),
     "ValueError"),
    ("read_into of sparse", lambda zt: reader(zt).read_into("csr", np.empty((2, 3), "f4")),
     "TypeError"),
    ("read_into of no such name", lambda zt: reader(zt).read_into("x", np.empty((2, 3), "f4")),
     "KeyError"),
    ("damage in what is compressed", lambda zt: damaged(zt, "packed", make=squeezed)["packed"],
     "RuntimeError"),
    ("numpy of a sparse tensor", lambda zt: csr(zt).numpy(), "RuntimeError"),
    ("numpy of no data", lambda zt: zt.Tensor({}, shape=[1], dtype="int8").numpy(),
     "RuntimeError"),
    ("a tensor of nothing", lambda zt: zt.Tensor({}), "ValueError"),
    ("a sparse tensor without its shape", lambda zt: zt.Tensor({"values": W},
     format="sparse_csr"), "ValueError"),
    ("a name written twice", append_twice, "RuntimeError"),
    ("a name that is a number", lambda zt: written(zt, 3, W), "TypeError"),
    ("a name that is bytes", lambda zt: written(zt, b"w", W), "TypeError"),
    ("a name that is no UTF-8", lambda zt: written(zt, "\ud800", W), "ValueError"),
    ("an array of text", lambda zt: written(zt, "w", np.array(["a"])), "ValueError"),
    ("an array of objects", lambda zt: written(zt, "w", np.array([None])), "ValueError"),
    ("an array of dates", lambda zt: written(zt, "w", np.array([0], "M8[s]")), "ValueError"),
    ("None for an array", lambda zt: written(zt, "w", None), "ValueError"),
    ("an unknown checksum", lambda zt: written(zt, "w", W, checksum="md5"), "ValueError"),
    ("an attribute of any kind", lambda zt: zt.Writer("m.zt").write("w", dense(zt,
     attributes={"k": object()})), "TypeError"),
    ("an attribute's name that is no text", lambda zt: zt.Writer("m.zt").write("w", dense(zt,
     attributes={1: 2})), "TypeError"),
    ("add after finish", lambda zt: after_finish(zt).add("w", W), "RuntimeError"),
    ("finish twice", lambda zt: after_finish(zt).finish(), "RuntimeError"),
    ("replace what is not there", lambda zt: zt.replace_tensor(made(zt), "x", W), "KeyError"),
    ("replace in no file", lambda zt: zt.replace_tensor("none.zt", "w", W), "OSError"),
    ("remove what is not there", lambda zt: zt.remove_tensors(made(zt), "o.zt", ["x"]),
     "KeyError"),
    ("remove from no file", lambda zt: zt.remove_tensors("none.zt", "o.zt", ["w"]), "OSError"),
    ("save a list", lambda zt: functions(zt).save_file([W], "m.zt"), "ValueError"),
    ("save None", lambda zt: functions(zt).save_file({"w": None}, "m.zt"), "ValueError"),
    ("save text", lambda zt: functions(zt).save_file({"w": np.array(["a"])}, "m.zt"),
     "ValueError"),
    ("save under a number", lambda zt: functions(zt).save_file({1: W}, "m.zt"), "TypeError"),
    ("save into no folder", lambda zt: functions(zt).save_file({"w": W}, "none/m.zt"), "OSError"),
    ("load no file", lambda zt: functions(zt).load_file("none.zt"), "OSError"),
    ("load text", lambda zt: functions(zt).load("m.zt"), "TypeError"),
    ("a level that is no number", lambda zt: written(zt, "w", W, compress=1.5), "TypeError"),
]  # fmt: skip

for _name, _run, _caught_by in MISUSE:
    add(_name, _run, Raises(_caught_by))

TORCH_MISUSE: list[tuple[str, Callable[[Any], Any], str]] = [
    ("torch: no such name", lambda zt: reader(zt).read_torch("x"), "KeyError"),
    ("torch: a number", lambda zt: reader(zt).read_torch(3), "TypeError"),
    ("torch: save a list", lambda zt: functions(zt, "torch").save_file([W], "m.zt"), "ValueError"),
    ("torch: save None", lambda zt: functions(zt, "torch").save_file({"w": None}, "m.zt"),
     "ValueError"),
    ("torch: save into no folder", lambda zt: functions(zt, "torch").save_file({}, "none/m.zt"),
     "OSError"),
    ("torch: load no file", lambda zt: functions(zt, "torch").load_file("none.zt"), "OSError"),
    ("torch: load text", lambda zt: functions(zt, "torch").load("m.zt"), "TypeError"),
    ("torch: a tensor of one's own layout", lambda zt: custom(zt).torch(), "RuntimeError"),
    ("torch: one's own layout", lambda zt: reader(zt).read_torch("mine"), "TypeError"),
]  # fmt: skip

for _name, _run, _caught_by in TORCH_MISUSE:
    add(_name, _run, Raises(_caught_by), needs="torch")


# --- Deliberate differences -----------------------------------------------------------------


def shape_of_a_scalar(zt: Any) -> Any:
    written(zt, "w", np.array(1.5))
    return list(zt.Reader("m.zt")["w"].shape)


def fp8(zt: Any) -> Any:
    with zt.Writer("m.zt") as writer:
        writer.write("w", zt.Tensor({"data": np.array([56], np.uint8)}, type="f8_e4m3fn"))
    return zt.Reader("m.zt")["w"].dtype.name


def complex_numbers(zt: Any) -> Any:
    written(zt, "w", np.array([1 + 2j], np.complex64))
    return zt.Reader("m.zt")["w"].dtype.name


def in_order(zt: Any) -> Any:
    functions(zt).save_file({"b": W, "a": W * 2}, "m.zt")
    return list(functions(zt).load_file("m.zt"))


def after_the_block(zt: Any) -> Any:
    with reader(zt) as opened:
        pass
    return opened["w"]


def broken_off(zt: Any) -> Any:
    arrays = {"w": W}
    with contextlib.suppress(KeyError), zt.Writer("m.zt") as writer:
        writer.add("w", arrays["w"])
        writer.add("x", arrays["x"])
    return os.path.exists("m.zt")


def while_it_is_written(zt: Any) -> Any:
    writer = zt.Writer("m.zt")
    writer.add("w", W)
    return os.path.exists("m.zt")


def without_its_indices(zt: Any) -> None:
    with zt.Writer("m.zt") as writer:
        writer.write("w", zt.Tensor({"values": W}, shape=[2, 3], format="sparse_csr"))


def of_another_shape(zt: Any) -> None:
    with zt.Writer("m.zt") as writer:
        writer.write("w", dense(zt, shape=[9, 9]))


def converted(zt: Any) -> Any:
    into = np.empty((2, 3))
    reader(zt).read_into("w", into)
    return into.sum().item()


def replaced(zt: Any, name: str, data: Any) -> Any:
    zt.replace_tensor(made(zt), name, data)
    return list(zt.Reader("m.zt")[name].shape)


def removed_from_itself(zt: Any) -> Any:
    zt.remove_tensors(made(zt), "m.zt", ["w"])
    return len(zt.Reader("m.zt"))


def named_otherwise(zt: Any) -> Any:
    os.rename(made(zt), "m.bin")
    return len(zt.Reader("m.bin"))


def file_attributes(zt: Any) -> Any:
    functions(zt).save_file({"w": W}, "m.zt", {"license": "MIT"})
    return getattr(zt.Reader("m.zt"), "attributes", {})


def set_a_field(zt: Any) -> Any:
    found = reader(zt).metadata("w")
    found.name = "x"
    return found.name


def set_a_component(zt: Any) -> Any:
    tensor = dense(zt)
    tensor.components["data"] = W * 2
    return tensor.numpy()


def safetensors_file(zt: Any) -> Any:
    head = b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'
    path = pathlib.Path("m.safetensors")
    path.write_bytes(struct.pack("<Q", len(head)) + head + W.tobytes())
    return zt.Reader(str(path))["w"]


def shared_tensors(zt: Any) -> Any:
    torch, z = importlib.import_module("torch"), functions(zt, "torch")
    tensor = torch.tensor(W)
    z.save_file({"a": tensor, "b": tensor}, "m.zt")
    return sorted(z.load_file("m.zt"))


def sparse_torch(zt: Any) -> Any:
    torch, z = importlib.import_module("torch"), functions(zt, "torch")
    z.save_file({"a": torch.tensor(W).to_sparse()}, "m.zt")
    return z.load_file("m.zt")["a"].to_dense()


# heading, name, program, ours, the wheel's
DIFFERENT: list[tuple[str, str, Callable[[Any], Any], Any, Any]] = [
    ("Scalars", "a 0-d array", shape_of_a_scalar, [], [1]),
    ("fp8", "fp8", fp8, "float8_e4m3fn", "uint8"),
    ("Complex numbers", "complex", complex_numbers, "complex64", Raises("ValueError")),
    ("No attributes", "metadata without attributes",
     lambda zt: reader(zt).metadata("w").attributes, {}, None),
    ("No attributes", "a tensor without attributes", lambda zt: dense(zt).attributes, {}, None),
    ("Damage", "damage in what has a digest",
     lambda zt: damaged(zt, "hashed").read_numpy("hashed", copy=True)[0, 0].item(),
     Raises("RuntimeError"), 0.0),
    ("Damage", "damage in what was written without asking for a digest",
     lambda zt: damaged(zt, "w").read_numpy("w", copy=True)[0, 0].item(),
     Raises("RuntimeError"), 0.0),
    ("Empty files", "open an empty file", lambda zt: of_bytes(zt, b""),
     Raises("RuntimeError"), Raises("OSError")),
    ("Empty files", "load a few bytes", lambda zt: functions(zt).load(b"few"),
     Raises("RuntimeError"), Raises("OSError")),
    ("Closing", "read after the block", after_the_block, Raises("RuntimeError"), W_PLAIN),
    ("Unfinished files", "broken off", broken_off, False, True),
    ("Unfinished files", "while it is written", while_it_is_written, False, True),
    ("Order", "load_file's order", in_order, ["a", "b"], ["b", "a"]),
    ("Order", "read_numpy's order", lambda zt: list(reader(zt).read_numpy(["packed", "w"])),
     ["packed", "w"], ["w", "packed"]),
    ("Broken tensors", "a sparse tensor without indices", without_its_indices,
     Raises("ValueError"), None),
    ("Broken tensors", "data of another shape", of_another_shape, Raises("ValueError"), None),
    ("Broken tensors", "a dtype that is not true", lambda zt: dense(zt, dtype="int8").dtype,
     Raises("ValueError"), "int8"),
    ("`read_into`", "read_into converts", converted, Raises("TypeError"), 15.0),
    ("`read_into`", "read_into repeats",
     lambda zt: reader(zt).read_into("w", np.empty((5, 2, 3), "f4")), Raises("ValueError"), None),
    ("Levels", "a level above 22", lambda zt: written(zt, "w", W, compress=99),
     Raises("ValueError"), None),
    ("`replace_tensor`", "replace by another shape",
     lambda zt: replaced(zt, "w", np.zeros(9)), [9], Raises("RuntimeError")),
    ("`replace_tensor`", "replace what is compressed", lambda zt: replaced(zt, "packed", W),
     [2, 3], Raises("RuntimeError")),
    ("`remove_tensors`", "remove into the file itself", removed_from_itself, 4,
     Raises("OSError")),
    ("File names", "a file of another extension", named_otherwise, 5, Raises("RuntimeError")),
    ("Metadata of a file", "save_file's metadata", file_attributes, {"license": "MIT"}, {}),
    ("Read-only", "set a field of metadata", set_a_field, Raises("AttributeError"), "x"),
    ("Read-only", "set a component", set_a_component, Raises("TypeError"), plain(W * 2)),
    ("Components", "a component as JSON",
     lambda zt: len(json.dumps(reader(zt).metadata("w").components)) > 9, Raises("TypeError"),
     True),
    ("Copies", "who owns a copy", lambda zt: reader(zt).read_numpy("w", copy=True).flags.owndata,
     False, True),
    ("More is taken", "a sparse object by name",
     lambda zt: reader(zt)["csr"].format, "sparse_csr", Raises("TypeError")),
    ("More is taken", "a tuple of names", lambda zt: sorted(reader(zt).read_numpy(("w", "packed"))),
     ["packed", "w"], Raises("TypeError")),
    ("More is taken", "a number among the names", lambda zt: 1 in reader(zt), False,
     Raises("TypeError")),
    ("More is taken", "a Path to read", lambda zt: len(zt.Reader(pathlib.Path(made(zt)))), 5,
     Raises("TypeError")),
    ("More is taken", "a Path to write", lambda zt: zt.Writer(pathlib.Path("m.zt")).finish() > 0,
     True, Raises("TypeError")),
    ("More is taken", "an array for a tensor", lambda zt: zt.Tensor(W).numpy(), W_PLAIN,
     Raises("TypeError")),
    ("More is taken", "write an array", lambda zt: zt.Writer("m.zt").write("w", W), None,
     Raises("AttributeError")),
    ("More is taken", "an array of the other byte order",
     lambda zt: written(zt, "w", W.astype(">f4")), None, Raises("ValueError")),
    ("More is taken", "save lists", lambda zt: functions(zt).load(functions(zt).save(
     {"a": [1.5]})), {"a": ["float64", [1], [1.5]]}, Raises("ValueError")),
    ("Return values", "remove returns", lambda zt: type(zt.remove_tensors(made(zt), "o.zt",
     ["w"])).__name__, "int", "NoneType"),
    ("Return values", "replace returns", lambda zt: type(zt.replace_tensor(made(zt), "w",
     W)).__name__, "int", "NoneType"),
    ("Return values", "save_file returns", lambda zt: functions(zt).save_file({"a": W}, "m.zt"),
     {}, None),
]  # fmt: skip

for _heading, _name, _run, _ours, _wheels in DIFFERENT:
    add(_name, _run, _ours, on_wheel=_wheels, heading=_heading)

add("a safetensors file", safetensors_file, W_PLAIN)
add("torch: tensors that share memory", shared_tensors, ["a", "b"], on_wheel=Raises("ValueError"),
    heading="Shared and sparse torch tensors", needs="torch")  # fmt: skip
add("torch: a sparse tensor", sparse_torch, TORCH_W, on_wheel=Raises("ValueError"),
    heading="Shared and sparse torch tensors", needs="torch")  # fmt: skip
