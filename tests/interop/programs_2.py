"""Programs written for the Python API of release 2.1.2, and what each gives.

A program takes the module `zt`, works in an empty folder and returns plain values. All run on
`ztensor.v2` in the default suite (`test_programs.py`), and on the released wheel in `make interop`.
Where ours deliberately gives something else, the program says what the wheel gives and which row of
`docs/guides/migrating-2.md` explains it. Nothing of the library is imported here.

    python -m tests.interop.programs_2      run all on the installed wheel
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.interop.programs import SAME, Programs, Raises, outcome, plain

PROGRAMS = Programs()
add, program = PROGRAMS.add, PROGRAMS.program


# --- Their files -----------------------------------------------------------------------------

W = np.arange(6, dtype=np.float32).reshape(2, 3)
U32 = np.uint32


def raw(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def made(zt: Any, path: str = "m.zt") -> str:
    """Write a file of every kind of object."""
    with zt.Writer(path, canonical=False, align=4096) as writer:
        writer.add("w", raw(W), [2, 3], "f32")
        zeros = np.zeros(3000, np.int32)
        writer.add("packed", raw(zeros), [3000], "i32", None, "zt.zstd-seekable/1")
        writer.add("on", b"\1\0\1", [3], "u8", logical="bool")
        writer.add("half", bytes(range(8)), [4], "bf16")
        writer.add("f8", bytes(range(4)), [4], "u8", logical="f8_e4m3fn")
        writer.add("f4", b"\x21\x03", [3], "u8", logical="f4_e2m1")
        writer.add("complex", raw(np.ones(4, np.float32)), [2], "f32", logical="complex64")
        writer.add("odd", b"12", [2], "u8", logical="x.odd")
        writer.add("scalar", raw(np.float64(1.5)), [], "f64")
        writer.add("empty", b"", [0, 3], "f32")
        writer.add_object("csr", [2, 3], csr_parts(), layout="zt.sparse_csr/1")
        writer.add_object(
            "own",
            [4, 4],
            {"b": {"dtype": "f32", "data": raw(W[0])}, "a": {"dtype": "u8", "data": b"123"}},
            layout="my.own/1",
            attributes={"x": 1, "y": [1, 2.5, None, True, "s"]},
        )
        writer.set_attributes({"step": 3, "tags": ["a", None], "nested": {"k": {"z": 0.5}}})
    return path


def csr_parts() -> dict[str, dict[str, Any]]:
    return {
        "values": {"dtype": "f32", "data": raw(np.array([2, 3], np.float32))},
        "indices": {"dtype": "u32", "data": raw(np.array([1, 0], U32))},
        "indptr": {"dtype": "u32", "data": raw(np.array([0, 1, 2], U32))},
    }


def one(path: str, zt: Any) -> str:
    with zt.Writer(path) as writer:
        writer.add("w", raw(W), [2, 3], "f32")
    return path


def damaged(zt: Any) -> str:
    with open(one("d.zt", zt), "r+b") as file:
        file.seek(65536)
        file.write(b"\xff")
    return "d.zt"


def _fact(zt: Any, *, name: str, word: str) -> Any:
    return getattr(zt.open(made(zt))[name], word)


def _called(zt: Any, *, name: str, word: str) -> Any:
    return _fact(zt, name=name, word=word)()


def _array(zt: Any, *, name: str) -> Any:
    return np.from_dlpack(zt.open(made(zt))[name])


def _object(zt: Any, *, parts: Any, layout: str) -> None:
    zt.Writer("x.zt").add_object("x", [1, 1], parts, layout)


NAMES = ["complex", "csr", "empty", "f4", "f8", "half", "odd", "on", "own", "packed", "scalar", "w"]


# --- Sources --------------------------------------------------------------------------------


@program([NAMES, 12, NAMES, NAMES, True, False])
def a_source_is_a_mapping(zt: Any) -> Any:
    from collections.abc import Mapping

    with zt.open(made(zt)) as source:
        names = [name for name, _ in source.items()]
        assert isinstance(source, Mapping)
        values = [tensor.name for tensor in source.values()]
        return [list(source), len(source), names, values, "w" in source, "v" in source]


@program([None, 3, "w"])
def get(zt: Any) -> Any:
    with zt.open(made(zt)) as source:
        return [source.get("v"), source.get("v", 3), source.get("w").name]


@program(Raises("KeyError"))
def a_name_that_is_not_there(zt: Any) -> Any:
    zt.open(made(zt))["v"]


@program(Raises("TypeError"))
def a_name_that_is_none(zt: Any) -> Any:
    zt.open(made(zt))[3]


@program([["m.zt"], "root", {"step": 3, "tags": ["a", None], "nested": {"k": {"z": 0.5}}}])
def facts_of_a_source(zt: Any) -> Any:
    source = zt.open(made(zt))
    return [source.files, source.provenance, source.attributes]


@program([None, '<Source "o.zt", 1 tensors>', '<Source "o.zt" closed>'])
def a_source_without_attributes(zt: Any) -> Any:
    source = zt.open(one("o.zt", zt))
    shown = repr(source)
    source.close()
    source.close()
    return [zt.open("o.zt").attributes, shown, repr(source)]


for _call in ("len(s)", "s['w']", "s.keys()", "s.verify()", "s.files", "s.attributes", "list(s)"):

    def _closed(zt: Any, call: str = _call) -> Any:
        source = zt.open(one("o.zt", zt))
        source.close()
        return eval(call, {"s": source})  # noqa: S307

    add(f"closed: {_call}", _closed, Raises("ValueError"))


@program([["w", "x"], ["o.zt", "x.zt"], "projection"])
def several_files(zt: Any) -> Any:
    with zt.Writer("x.zt") as writer:
        writer.add("x", b"1", [1], "u8")
    source = zt.open([one("o.zt", zt), "x.zt"])
    return [source.keys(), source.files, source.provenance]


@program([0, 1])
def lists_of_none_and_of_one(zt: Any) -> Any:
    return [len(zt.open([])), len(zt.open([one("o.zt", zt)]))]


add(
    "a name in two files",
    lambda zt: zt.open([one("a.zt", zt), one("b.zt", zt)]),
    Raises("ValueError"),
)
add("no such file", lambda zt: zt.open("none.zt"), Raises("OSError"))
add("a folder", lambda zt: zt.detect("."), Raises("OSError"))
add("no path", lambda zt: zt.open(3), Raises("TypeError"))
add("bytes are no path", lambda zt: zt.open(b"m.zt"), Raises("TypeError"))


@program(Raises("ValueError"))
def a_file_of_no_format(zt: Any) -> Any:
    with open("x.txt", "w") as file:
        file.write("hello " * 50)
    zt.open("x.txt")


@program(Raises("ValueError"))
def a_file_that_is_cut(zt: Any) -> Any:
    path = made(zt)
    os.truncate(path, os.path.getsize(path) - 1)
    zt.open(path)


@program(["zt", "npz"])
def detect(zt: Any) -> Any:
    np.savez("m.npz", w=W)
    return [zt.detect(made(zt)), zt.detect("m.npz")]


@program(["projection", ["w"], [2, 3], "f32", "dense", True])
def another_format(zt: Any) -> Any:
    np.savez("m.npz", w=W)
    source = zt.open("m.npz")
    tensor = source["w"]
    same = tensor.tobytes() == W.tobytes()
    return [source.provenance, source.keys(), tensor.shape, tensor.dtype, tensor.layout, same]


# --- Tensors --------------------------------------------------------------------------------


FACTS = {
    "w": ["w", "data", ["data"], [2, 3], "f32", None, "dense", 24],
    "packed": ["packed", "data", ["data"], [3000], "i32", None, "dense", 12000],
    "on": ["on", "data", ["data"], [3], "u8", "bool", "dense", 3],
    "half": ["half", "data", ["data"], [4], "bf16", None, "dense", 8],
    "f8": ["f8", "data", ["data"], [4], "u8", "f8_e4m3fn", "dense", 4],
    "f4": ["f4", "data", ["data"], [3], "u8", "f4_e2m1", "dense", 2],
    "complex": ["complex", "data", ["data"], [2], "f32", "complex64", "dense", 16],
    "odd": ["odd", "data", ["data"], [2], "u8", "x.odd", "dense", 2],
    "scalar": ["scalar", "data", ["data"], [], "f64", None, "dense", 8],
    "empty": ["empty", "data", ["data"], [0, 3], "f32", None, "dense", 0],
}


@program(FACTS)
def facts_of_tensors(zt: Any) -> Any:
    source = zt.open(made(zt))
    dense = {
        name: [t.name, t.part, t.parts, t.shape, t.dtype, t.logical, t.layout, t.nbytes]
        for name, t in source.items()
        if t.layout == "dense"
    }
    return {name: dense[name] for name in FACTS}


@program(
    [
        [None, ["indices", "indptr", "values"], [2, 3], "zt.sparse_csr/1"],
        ["csr", "values", "f32", None, 8, [2, 3], ["indices", "indptr", "values"]],
        ["a", "b"],
        "313233",
        '<Tensor "csr" [2,3] parts: indices, indptr, values>',
        '<Tensor "csr" u32[2,3] indptr>',
    ]
)
def parts_are_tensors(zt: Any) -> Any:
    source = zt.open(made(zt))
    csr = source["csr"]
    values = csr["values"]
    facts = [values.name, values.part, values.dtype, values.logical, values.nbytes]
    return [
        [csr.part, csr.parts, csr.shape, csr.layout],
        [*facts, values.shape, values.parts],
        source["own"].parts,
        source["own"]["a"].tobytes(),
        repr(csr),
        repr(csr["indptr"]),
    ]


for _word in ("dtype", "logical", "nbytes", "caps", "location"):
    add(
        f"{_word} of several parts",
        functools.partial(_fact, name="csr", word=_word),
        Raises("KeyError"),
    )
for _word in ("tobytes", "prefetch", "evict", "__dlpack__"):
    add(
        f"{_word}() of several parts",
        functools.partial(_called, name="csr", word=_word),
        Raises("KeyError"),
    )
add("a part that is not there", lambda zt: zt.open(made(zt))["csr"]["data"], Raises("KeyError"))


@program([W.tobytes(), bytes(12000), b"\1\0\1", bytes(range(4)), b"\x21\x03", b"12", b""])
def tobytes(zt: Any) -> Any:
    source = zt.open(made(zt))
    return [source[name].tobytes() for name in ("w", "packed", "on", "f8", "f4", "odd", "empty")]


@program(["float32 (2, 3)", "int32 (3000,)", "bool (3,)", "float32 (0, 3)", False])
def arrays_by_dlpack(zt: Any) -> Any:
    source = zt.open(made(zt))
    found = [np.from_dlpack(source[name]) for name in ("w", "packed", "on", "empty")]
    assert (found[0] == W).all()
    assert found[2].tolist() == [True, False, True]
    return [*(f"{array.dtype} {array.shape}" for array in found), found[0].flags.writeable]


@program([[], 1.5], on_wheel=[[1], [1.5]], heading="Scalars")
def a_scalar_by_dlpack(zt: Any) -> Any:
    array = np.from_dlpack(zt.open(made(zt))["scalar"])
    return [list(array.shape), array.tolist()]


@program([[2], [1, 0]], on_wheel=[[2, 3], SAME], heading="Parts by DLPack")
def a_part_by_dlpack(zt: Any) -> Any:
    array = np.from_dlpack(zt.open(made(zt))["csr"]["indices"])
    return [list(array.shape), array.tolist() if array.shape == (2,) else SAME]


@program(W.tolist())
def arrays_outlive_their_source(zt: Any) -> Any:
    with zt.open(made(zt)) as source:
        array = np.from_dlpack(source["w"])
    return array.tolist()


for _word in ("f8", "f4", "complex", "odd"):
    add(
        f"no word in DLPack: {_word}",
        functools.partial(_array, name=_word),
        Raises("TypeError"),
    )
add(
    "DLPack on another device",
    lambda zt: zt.open(made(zt))["w"].__dlpack__(dl_device=(2, 0)),
    Raises("BufferError"),
)
add(
    "DLPack with a stream",
    lambda zt: zt.open(made(zt))["w"].__dlpack__(stream=3),
    Raises("ValueError"),
)
add("where DLPack is", lambda zt: zt.open(made(zt))["w"].__dlpack_device__(), [1, 0])


@program(["uint8", W.tobytes()])
def bytes_as_an_array(zt: Any) -> Any:
    array = np.asarray(zt.open(made(zt))["w"])
    return [array.dtype.name, array.tobytes()]


@program([[True, True, True, True], [True, True, False, True], 4096])
def caps_of_raw_tensors(zt: Any) -> Any:
    path = one("o.zt", zt)
    caps, of_index = zt.open(path)["w"].caps, zt.index(path)["w"].caps
    assert caps.alignment == 65536
    assert repr(caps) == "<Caps map=true locate=true evict=true verify=true alignment=65536>"
    return [
        [caps.map, caps.locate, caps.evict, caps.verify],
        [of_index.verify, of_index.locate, of_index.map, of_index.alignment == 65536],
        zt.page_size(),
    ]


@program([False, False, False, True, 1])
def caps_of_packed_tensors(zt: Any) -> Any:
    caps = zt.open(made(zt))["packed"].caps
    return [caps.map, caps.locate, caps.evict, caps.verify, caps.alignment]


@program(["o.zt", 65536, 24, W.tobytes(), '<Location "o.zt" +65536 (24 bytes)>'])
def location(zt: Any) -> Any:
    place = zt.open(one("o.zt", zt))["w"].location
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        data = file.read(place.nbytes)
    return [place.path, place.offset, place.nbytes, data, repr(place)]


add("no place", lambda zt: zt.open(made(zt))["packed"].location, Raises("ValueError"))
add("no pages", lambda zt: zt.open(made(zt))["packed"].evict(), Raises("ValueError"))
add(
    "no view",
    lambda zt: memoryview(zt.open(made(zt))["packed"]),
    Raises(("TypeError", "BufferError")[sys.version_info >= (3, 12)]),
    on_wheel=Raises("BufferError"),
    heading="Buffers",
)


@program([None, None, None])
def hints(zt: Any) -> Any:
    source = zt.open(made(zt))
    return [source["w"].prefetch(), source["w"].evict(), source["packed"].prefetch()]


# --- Verifying ------------------------------------------------------------------------------


@program([True, True, True, True, [15, 0], 15, 0, "Verification(checked=15, undigested=0)"])
def verify(zt: Any) -> Any:
    path = made(zt)
    source = zt.open(path)
    tensors = [source["w"], source["packed"], source["csr"], source["csr"]["values"]]
    found = zt.verify(path, deep=True)
    checked, undigested = source.verify()
    assert (checked, undigested) == (found[0], found[1])
    facts = [list(found), found.checked, found.undigested, repr(found)]
    return [*(tensor.verify() for tensor in tensors), *facts]


add("verify: damage", lambda zt: zt.verify(damaged(zt)), Raises("ValueError"))
add("verify a source: damage", lambda zt: zt.open(damaged(zt)).verify(), Raises("ValueError"))
add("verify a tensor: damage", lambda zt: zt.open(damaged(zt))["w"].verify(), Raises("ValueError"))
add(
    "read a tensor: damage",
    lambda zt: zt.open(damaged(zt))["w"].tobytes()[:1],
    Raises("ValueError"),
    on_wheel=b"\xff",
    heading="Damage",
)


# --- Writing --------------------------------------------------------------------------------


@program([131326, True])
def canonical_files_have_the_same_bytes(zt: Any) -> Any:
    for path in ("a.zt", "b.zt"):
        with zt.Writer(path) as writer:
            writer.add("a", raw(W), [2, 3], "f32")
            writer.add("b", raw(W), [3, 2], "f32")
            writer.set_attributes({"k": [1, {"z": 2, "aa": None}]})
    with open("a.zt", "rb") as a, open("b.zt", "rb") as b:
        return [os.path.getsize("a.zt"), a.read() == b.read()]


@program(["d1e4f14af1545252"])
def the_bytes_of_a_canonical_file(zt: Any) -> Any:
    import hashlib

    with zt.Writer("c.zt") as writer:
        writer.add("a", raw(W), [2, 3], "f32")
        writer.add("on", b"\1\0", [2], "u8", "bool")
        writer.add_object("x", [2, 3], csr_parts(), "zt.sparse_csr/1")
        writer.set_attributes({"step": 12, "lr": 0.5})
    with open("c.zt", "rb") as file:
        return [hashlib.sha256(file.read()).hexdigest()[:16]]


def _wrong(*arguments: Any, canonical: bool = False, **options: Any) -> Callable[[Any], Any]:
    def run(zt: Any) -> Any:
        writer = zt.Writer("x.zt", canonical=canonical)
        writer.add("k", b"1", [1], "u8")
        writer.add(*arguments, **options)

    return run


for _name, _run in {
    "a name twice": _wrong("k", b"1", [1], "u8"),
    "an empty name": _wrong("", b"1", [1], "u8"),
    "too few bytes": _wrong("w", b"1", [2], "u8"),
    "too many bytes": _wrong("w", b"123", [2], "u8"),
    "an unknown dtype": _wrong("w", b"1", [1], "f63"),
    "a type on other elements": _wrong("w", b"1234", [1], "f32", "bool"),
    "an unknown encoding": _wrong("w", b"1", [1], "u8", encoding="none"),
    "an encoding of a canonical file": _wrong(
        "w", b"1", [1], "u8", encoding="zt.zstd-seekable/1", canonical=True
    ),
    "a name out of order": _wrong("a", b"1", [1], "u8", canonical=True),
}.items():
    add(_name, _run, Raises("ValueError"))
add("data that is none", _wrong("w", [1, 2], [2], "u8"), Raises("TypeError"))
add(
    "data that has gaps",
    _wrong("w", np.arange(6, dtype=np.uint8)[::2], [3], "u8"),
    Raises("ValueError"),
)


@program("float32", on_wheel=Raises("BufferError"), heading="Typed arrays")
def a_typed_array(zt: Any) -> Any:
    with zt.Writer("x.zt") as writer:
        writer.add("w", W, [2, 3], "f32")
    return np.from_dlpack(zt.open("x.zt")["w"]).dtype.name


for _name, _parts, _layout in (
    ("an object without parts", {}, "my.own/1"),
    ("a part without data", {"a": {"dtype": "u8"}}, "my.own/1"),
    ("a dense object without data", {"a": {"dtype": "u8", "data": b"1"}}, "dense"),
    (
        "a sparse object without indices",
        {"values": {"dtype": "u8", "data": b"1"}},
        "zt.sparse_csr/1",
    ),
):
    add(
        _name,
        functools.partial(_object, parts=_parts, layout=_layout),
        Raises("ValueError"),
    )


@program([["data", 0], ["data", 4], [None, 24], W.tolist()])
def stream(zt: Any) -> Any:
    found = []
    with zt.Writer("s.zt", canonical=False) as writer:
        parts = {"data": {"dtype": "f32", "nbytes": 24}}
        with writer.stream("w", [2, 3], parts) as sink:
            found.append([sink.part, sink.written])
            sink.write(W.tobytes()[:4])
            found.append([sink.part, sink.written])
            sink.write(raw(W)[4:])
            found.append([sink.part, sink.written])
        writer.add("x", b"1", [1], "u8")
    source = zt.open("s.zt")
    assert source.verify().checked == 2
    return [*found, np.from_dlpack(source["w"]).tolist()]


@program(["a", "b", None, "3132", "33343536"])
def stream_of_several_parts(zt: Any) -> Any:
    found = []
    with zt.Writer("s.zt", canonical=False) as writer:
        parts = {"b": {"dtype": "f32", "nbytes": 4}, "a": {"dtype": "u8", "nbytes": 2}}
        with writer.stream("w", [9], parts, "my.own/1", {"k": 1}) as sink:
            found.append(sink.part)
            sink.write(b"12")
            found.append(sink.part)
            sink.write(b"3456")
            found.append(sink.part)
    tensor = zt.open("s.zt")["w"]
    return [*found, tensor["a"].tobytes(), tensor["b"].tobytes()]


@program(Raises("ValueError"))
def a_stream_that_lacks_bytes(zt: Any) -> Any:
    writer = zt.Writer("s.zt", canonical=False)
    sink = writer.stream("w", [4], {"data": {"dtype": "u8", "nbytes": 4}})
    sink.write(b"12")
    sink.close()


@program(Raises("ValueError"))
def a_stream_of_too_many_bytes(zt: Any) -> Any:
    writer = zt.Writer("s.zt", canonical=False)
    writer.stream("w", [4], {"data": {"dtype": "u8", "nbytes": 4}}).write(b"12345")


@program(Raises("ValueError"))
def adding_while_a_stream_is_open(zt: Any) -> Any:
    writer = zt.Writer("s.zt", canonical=False)
    sink = writer.stream("w", [4], {"data": {"dtype": "u8", "nbytes": 4}})
    writer.add("x", b"1", [1], "u8")
    sink.close()


@program(Raises("ValueError"))
def finishing_twice(zt: Any) -> Any:
    writer = zt.Writer("x.zt")
    writer.finish()
    writer.finish()


@program([False, []])
def abandon(zt: Any) -> Any:
    writer = zt.Writer("x.zt")
    writer.add("w", b"1", [1], "u8")
    writer.abandon()
    writer.abandon()
    return [os.path.exists("x.zt"), os.listdir()]


@program([False, "x"])
def an_exception_leaves_no_file(zt: Any) -> Any:
    try:
        with zt.Writer("x.zt") as writer:
            writer.add("w", b"1", [1], "u8")
            raise RuntimeError("x")  # noqa: TRY301
    except RuntimeError as error:
        return [os.path.exists("x.zt"), str(error)]


@program([["w", "x"], {"k": 1}, True])
def ingest(zt: Any) -> Any:
    with zt.Writer("a.zt", canonical=False) as writer:
        writer.add("w", raw(W), [2, 3], "f32", None, "zt.zstd-seekable/1")
        writer.add("x", b"1", [1], "u8")
        writer.set_attributes({"k": 1})
    with zt.Writer("b.zt") as writer:
        writer.ingest(zt.open("a.zt"))
    source = zt.open("b.zt")
    return [source.keys(), source.attributes, source["w"].caps.map]


add("keys of attributes", lambda zt: zt.Writer("x.zt").set_attributes({3: 1}), Raises("TypeError"))
add("no such folder", lambda zt: zt.Writer("none/x.zt"), Raises("OSError"))
add("alignment of 100", lambda zt: zt.Writer("x.zt", False, 100), Raises("ValueError"))
add("a canonical alignment", lambda zt: zt.Writer("x.zt", align=4096), Raises("ValueError"))


@program([["w", "x", "y"], W.tobytes(), "3132", {"k": 2}, [3, 0]])
def append(zt: Any) -> Any:
    with zt.Writer("a.zt", canonical=False, align=4096) as writer:
        writer.add("w", raw(W), [2, 3], "f32")
        writer.set_attributes({"k": 1})
    with zt.Writer("a.zt", canonical=False, append=True) as writer:
        writer.add("x", b"12", [2], "u8")
        with writer.stream("y", [2], {"data": {"dtype": "u8", "nbytes": 2}}) as sink:
            sink.write(b"34")
        writer.set_attributes({"k": 2})
    source = zt.open("a.zt")
    verified = list(source.verify())
    return [
        source.keys(),
        source["w"].tobytes(),
        source["x"].tobytes(),
        source.attributes,
        verified,
    ]


@program(Raises("ValueError"))
def appending_a_name_that_is_there(zt: Any) -> Any:
    one("a.zt", zt)
    with zt.Writer("a.zt", canonical=False, append=True) as writer:
        writer.add("w", b"12", [2], "u8")


@program([["w"], True])
def giving_up_an_append(zt: Any) -> Any:
    path = one("a.zt", zt)
    size = os.path.getsize(path)
    writer = zt.Writer(path, canonical=False, append=True)
    writer.add("x", b"12", [2], "u8")
    writer.abandon()
    return [zt.open(path).keys(), os.path.getsize(path) == size]


add("appending canonically", lambda zt: zt.Writer("x.zt", append=True), Raises("ValueError"))


@program([True, ["w"], 65536, "zt"])
def convert(zt: Any) -> Any:
    np.savez("m.npz", w=W)
    size = zt.convert("m.npz", "m.zt")
    source = zt.open("m.zt")
    place = source["w"].location
    is_whole = size == os.path.getsize("m.zt") and source["w"].tobytes() == W.tobytes()
    return [is_whole, source.keys(), place.offset, zt.detect("m.zt")]


@program([4096, 1])
def convert_aligned(zt: Any) -> Any:
    np.savez("m.npz", w=W)
    zt.convert("m.npz", "m.zt", align=4096)
    return [zt.open("m.zt")["w"].location.offset, zt.verify("m.zt").checked]


add("convert what is not there", lambda zt: zt.convert("none", "m.zt"), Raises("OSError"))


def main() -> None:
    """Run all on the wheel; exit with 1 if a result is not the expected one."""
    zt = importlib.import_module("ztensor")
    wrong = 0
    home = os.getcwd()
    for each in PROGRAMS.values():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            found = outcome(each, zt)
            os.chdir(home)
        if not each.is_right_on_wheel(found):
            wrong += 1
            expected = plain(each.gives if each.on_wheel is SAME else each.on_wheel)
            print(f"{each.name}: expected {expected!r}, found {found}")
    different = sum(each.on_wheel is not SAME for each in PROGRAMS.values())
    print(f"{len(PROGRAMS)} programs of the 2.x API, {different} of them different on ours")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
