"""Write the conformance files of deltas anew: python tests/deltas/make.py

Streams and fields are put together here, from `docs/specification/delta.md`: nothing of
`ztensor.delta` writes them, but for the files in `made/`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import ztensor
from tests.unit.delta.plain_stream import Choices, encode
from ztensor import Tensor, Writer, delta
from ztensor.ext import cbor, spell
from ztensor.insight import tensor_hashes
from ztensor.numpy import save, save_file

FOLDER = Path(__file__).parent
State = dict[str, Any]
Fields = dict[str, Any]
Objects = dict[str, Tensor]

LAYOUT = "pyztensor.delta/1"
FLOATS = ("float32", "float64", "float16", "bfloat16")


def base_state() -> State:
    """Return the state that all deltas start from."""
    weights = np.random.default_rng(5).normal(size=300)
    state: State = {
        name: weights.astype(dtype)
        for name, dtype in (
            ("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("f32", np.float32),
            ("f64", np.float64), ("fp8", ml_dtypes.float8_e4m3fn), ("i32", np.int32),
        )
    }  # fmt: skip
    state["bool"] = weights > 0
    state["long"] = np.zeros(70_001, np.uint8)
    state["scalar"] = np.array(3.5, np.float32)
    state["empty"] = np.zeros((0, 4), np.float32)
    state["tied"] = state["also tied"] = np.arange(100, dtype=np.int64)
    state["sparse"] = Tensor(
        {"values": np.ones(4, np.float32), "indices": np.arange(4), "indptr": np.array([0, 2, 4])},
        shape=(2, 5),
        format="sparse_csr",
    )
    return state


BASE = base_state()


def patched(name: str, places: Any, change: int = 1) -> Any:
    """Return a tensor of the base with a number added to the bits of some elements."""
    array = BASE[name].copy()
    bits = array.view(f"u{array.itemsize}") if array.dtype != bool else array.view(np.uint8)
    if array.dtype == bool:
        bits[places] ^= 1
    else:
        bits[places] += np.array(change).astype(bits.dtype)
    return array


# --- Streams, each with other choices of a writer -------------------------------------------------

SMALL = [i for i, x in enumerate(BASE["f32"]) if abs(x) < 0.25]
# Case to the tensor that changes, its new elements, and the choices.
STREAMS: dict[str, tuple[str, Any, Choices]] = {
    "gaps of one byte": ("i32", patched("i32", [3, 255, 299]), Choices()),
    "gaps of two bytes": ("long", patched("long", [0, 300, 70_000 - 65_000]), Choices()),
    "gaps of four bytes": ("long", patched("long", [70_000]), Choices()),
    "wide gaps": ("i32", patched("i32", [0, 1]), Choices(gap_width=4)),
    "a bitmap": ("i32", patched("i32", slice(0, 300, 2)), Choices(form=2)),
    "a bitmap of whole bytes": (
        "i32", patched("i32", [7, 8, 295]), Choices(form=2, elements=296),
    ),
    "all members": ("i32", patched("i32", slice(None)), Choices(form=3)),
    "planes of zeros": ("f64", patched("f64", [5]), Choices(planes=8)),
    "raw streams": ("bf16", patched("bf16", slice(0, 300, 3)), Choices(stream=0)),
    "frames": ("bf16", patched("bf16", slice(0, 300, 3)), Choices(stream=1)),
    "two classes": ("f32", patched("f32", SMALL), Choices(limits=(124, 255))),
    "eight classes": (
        "f32", patched("f32", SMALL), Choices(limits=(118, 119, 120, 121, 122, 123, 124, 255)),
    ),
    "classes of bf16": ("bf16", patched("bf16", SMALL), Choices(limits=(122, 124, 255))),
    "classes of f16": ("f16", patched("f16", SMALL), Choices(limits=(90, 255))),
    "classes of f64": ("f64", patched("f64", SMALL), Choices(limits=(127, 255))),
    "classes of fp8": ("fp8", patched("fp8", SMALL), Choices(limits=(40, 255))),
    "a class without members": ("f32", patched("f32", SMALL), Choices(limits=(1, 124, 255))),
    "a segment for each element": ("i32", patched("i32", [0, 299]), Choices(elements=1)),
    "segments of seven": ("i32", patched("i32", [6, 7, 13, 299]), Choices(elements=7)),
    "segments without changes": ("i32", patched("i32", [150]), Choices(elements=100)),
    "classes in segments": (
        "f32", patched("f32", SMALL), Choices(elements=64, limits=(124, 255)),
    ),
    "the largest segment": ("i32", patched("i32", [299]), Choices(elements=1 << 22)),
    "negative differences": ("i32", patched("i32", [1, 2], -1), Choices()),
    "wrapping differences": ("long", patched("long", [9, 10], 128), Choices()),
    "new bits": ("f32", patched("f32", [0, 100]), Choices(is_new=True)),
    "new bits of zero": ("i32", np.where(BASE["i32"] != 0, 0, 1), Choices(is_new=True)),
    "bools": ("bool", patched("bool", [0, 299]), Choices()),
    "a scalar": ("scalar", np.array(-0.0, np.float32), Choices(is_new=True)),
}  # fmt: skip


def stream(name: str, new: Any, choices: Choices) -> bytes:
    """Return the stream of a tensor, by the second implementation."""
    old, new = (np.asarray(x).reshape(-1).view(f"u{x.itemsize}") for x in (BASE[name], new))
    is_float = BASE[name].dtype.name in FLOATS
    kind = "fp8" if name == "fp8" else "float" if is_float else "integer"
    return encode(old.tolist(), new.tolist(), BASE[name].itemsize, kind, choices)


def ids_of(state: State) -> tuple[dict[str, bytes], str]:
    """Return the ids of tensors and of a state, by sha256."""
    tensors = {name: bytes.fromhex(digits) for name, digits in tensor_hashes(save(state)).items()}
    content = cbor.encode(["ztensor content 1", tensors])
    return tensors, f"sha256:{hashlib.sha256(content).hexdigest()}"


TENSORS, BASE_ID = ids_of(BASE)


def written(path: Path, fields: Fields, table: Any, objects: Objects) -> None:
    """Write a file with fields and objects as they are."""
    changes = table if isinstance(table, bytes) else cbor.encode(table)
    fields = {"changes": changes, **fields}
    with Writer(path, attributes={"pyztensor.delta": fields}) as writer:
        for name, tensor in objects.items():
            writer.write(name, tensor)


def draft(name: str, new: Any, choices: Choices) -> tuple[Fields, Fields, Objects]:
    """Return the fields, the table and the objects of a delta of one tensor."""
    array, blob = np.asarray(new).astype(BASE[name].dtype), stream(name, new, choices)
    tensors, result = ids_of({**BASE, name: array})
    bits = (np.asarray(x).reshape(-1).view(f"u{x.itemsize}") for x in (array, BASE[name]))
    changed = int(np.count_nonzero(np.not_equal(*bits)))
    storage, logical = spell(array.dtype)
    part = {
        "dtype": storage, "length": array.nbytes, "coding": "sparse", "changed": changed,
        **({} if logical is None else {"type": logical}),
    }  # fmt: skip
    entry = {
        "kind": "changed", "layout": "dense", "shape": list(array.shape),
        "old": TENSORS[name], "new": tensors[name], "parts": {"data": part},
    }  # fmt: skip
    elements = sum(int(np.prod(x.shape)) for x in BASE.values())
    fields = {
        "version": 1, "ids": "sha256", "base": BASE_ID, "result": result,
        "tensors": 1, "changed": changed, "elements": elements,
    }  # fmt: skip
    return fields, {name: entry}, {name: difference(blob)}


def difference(blob: Any, layout: str = LAYOUT) -> Tensor:
    """Return the object of a difference."""
    data = blob if isinstance(blob, np.ndarray) else np.frombuffer(blob, np.uint8)
    return Tensor({"data": data}, shape=(data.size,), format=layout)


# --- Files that the library makes: every kind of change and profile -------------------------------


def next_state() -> State:
    """Return a state that differs from the base in every way."""
    state = {name: tensor for name, tensor in BASE.items() if name not in ("f16", "empty")}
    state["f32"], state["i32"] = patched("f32", SMALL), patched("i32", [0, 299], 7)
    state["bf16"] = patched("bf16", slice(None), 200)
    state["fp8"] = BASE["fp8"].reshape(30, 10)
    state["bool"] = BASE["bool"].astype(np.uint8)
    state["tied"] = state["also tied"] = patched("tied", [50])
    sparse = BASE["sparse"].components
    values = sparse["values"] * np.float32(2)
    parts = {**sparse, "values": values}
    state["sparse"] = Tensor(parts, shape=(2, 5), format="sparse_csr")
    state["added"] = np.arange(5)
    return state


MADE: dict[str, dict[str, Any]] = {
    "fast": {},
    "small": {"effort": "small"},
    "new values": {"values": "new"},
    "xxh3-128": {"ids": "xxh3-128", "label": "step 7"},
    "in 2.1": {"version": "2.1"},
    "no change": {"include": "no such tensor"},
    "one tensor": {"include": "f32"},
    "without digests": {"checksum": False},
}


# --- Files to refuse ------------------------------------------------------------------------------

Edit = Callable[[Fields, Fields, Objects], Any]


def entry(**values: Any) -> Edit:
    """Return an edit of the entry of the table; None removes a key."""
    return lambda fields, table, objects: edit(table["i32"], values)


def part(**values: Any) -> Edit:
    """Return an edit of the part."""
    return lambda fields, table, objects: edit(table["i32"]["parts"]["data"], values)


def field(**values: Any) -> Edit:
    """Return an edit of the fields of the file."""
    return lambda fields, table, objects: edit(fields, values)


def edit(target: Fields, values: Fields) -> None:
    """Set keys; None removes one."""
    target.update(values)
    for key in [key for key, value in values.items() if value is None]:
        del target[key]


def blob(at: int, new: bytes) -> Edit:
    """Return an edit of bytes of the stream."""

    def change(fields: Fields, table: Fields, objects: Objects) -> None:
        data = objects["i32"].components["data"].copy()
        data[at : at + len(new)] = list(new)
        objects["i32"] = difference(data)

    return change


def whole(**values: Any) -> Edit:
    """Return an edit of the object: of its bytes (a function of them), or layout."""

    def change(fields: Fields, table: Fields, objects: Objects) -> None:
        data = objects["i32"].components["data"]
        layout = values.get("layout", LAYOUT)
        objects["i32"] = difference(values.get("data", lambda x: x)(data), layout)

    return change


# By the rule of the specification that is broken. The stream: 8 bytes of head, the length of its
# one segment, K, the limit 255, members and changed (u32), form, width of gaps, planes; streams.
REFUSED: dict[str, tuple[str, Edit]] = {
    "version 2": ("1: version is 1", field(version=2)),
    "a version that is true": ("1: version is 1", field(version=True)),
    "no version": ("1: version is 1", field(version=None)),
    "ids of md5": ("1: ids are sha256 or xxh3-128", field(ids="md5")),
    "ids as an array": ("1: ids is text", field(ids=["sha256"])),
    "a short id": ("1: ids of states have 64 digits", field(base="sha256:00")),
    "a result of another algorithm": ("1: ids begin with ids", field(result=f"md5:{0:032}")),
    "a label that is a number": ("1: label is text", field(label=7)),
    "removed as a list": ("1: removed is a map", field(removed=["f16"])),
    "removed without an id": ("1: removed has ids", field(removed={"f16": b"short"})),
    "a negative count": ("1: tensors is a uint", field(tensors=-1)),
    "a count beyond 63 bits": ("1: numbers are below 2^63", field(tensors=1 << 63)),
    "another count": ("1: tensors is the number of entries", field(tensors=2)),
    "changes as a map": ("1: changes is a byte string", field(changes={})),
    "changes that are not CBOR": ("1: changes is CBOR", field(changes=b"\xa1")),
    "an unknown kind": ("1: kinds are changed, replaced, added", entry(kind="moved")),
    "no old id": ("1: old is absent for added only", entry(old=None)),
    "a short new id": ("1: new has 32 bytes", entry(new=b"short")),
    "another shape": ("1: length is that of shape and type", entry(shape=[299])),
    "a shape of text": ("1: shape is an array of uint", entry(shape=["300"])),
    "an object of another layout": ("1: objects have this layout", whole(layout="other/1")),
    "elements of another type": ("1: components are u8", whole(data=lambda x: x.view(np.int8))),
    "an added difference": ("1: only changed tensors have sparse parts", entry(kind="added")),
    "an unknown type": ("1: dtype is a storage type", part(dtype="f31")),
    "another length": ("1: length is that of shape and type", part(length=1196)),
    "an unknown coding": ("1: codings are sparse and raw", part(coding="planes")),
    "a coding as an array": ("1: coding is text", part(coding=["sparse"])),
    "another number of changes": ("1: changed is the number in the stream", part(changed=2)),
    "a missing object": (
        "1: each name is an object", lambda fields, table, objects: objects.clear(),
    ),
    "a part without a component": (
        "1: parts are those of the object",
        lambda fields, table, objects: table["i32"]["parts"].update(other={}),
    ),
    "a segment of 0 elements": ("2: 1 to 2^22 elements", blob(0, bytes(4))),
    "a segment of too many elements": ("2: 1 to 2^22 elements", blob(0, b"\x01\x00\x40\x00")),
    "another width": ("2: width of the element", blob(4, b"\x08")),
    "unknown values": ("2: values are 0 or 1", blob(5, b"\x02")),
    "a reserved field": ("2: the fourth field is 0", blob(6, b"\x01")),
    "a longer segment": ("2: lengths add up", blob(8, b"\xff")),
    "a byte behind the stream": (
        "2: lengths add up", whole(data=lambda x: np.append(x, np.uint8(0))),
    ),
    "no class": ("2: K is 1 to 8", blob(12, b"\x00")),
    "two classes of integers": ("2.1: integers have one class", blob(12, b"\x02")),
    "a last limit below 255": ("2: the last limit is 255", blob(13, b"\xfe")),
    "fewer members": ("2.2: members add up", blob(14, b"\x2b")),
    "more changes than members": ("3.2: changes beyond the members", blob(18, b"\xff\xff")),
    "no changes": ("2: a segment without changes has length 0", blob(18, bytes(4))),
    "an unknown form": ("2.4: forms are 0 to 3", blob(22, b"\x04")),
    "gaps of three bytes": ("2.4: gaps have 1, 2 or 4 bytes", blob(23, b"\x03")),
    "nine planes": ("2.5: at most as many planes as bytes", blob(24, b"\x09")),
    "an unknown kind of stream": ("2.6: kinds are 0 to 2", blob(25, b"\x03")),
    "a rank past the end": ("3.2: a rank beyond the last member", blob(32, b"\xff")),
    "a difference of zero": ("2.5: the code 0 is malformed", blob(38, b"\x00")),
}  # fmt: skip


def main() -> None:
    """Write all files, and `deltas.json`."""
    for folder in ("made", "streams", "reject"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
        (FOLDER / folder).mkdir()
    save_file(BASE, FOLDER / "base.zt", compression=True)
    after = next_state()
    save_file(after, FOLDER / "next.zt", compression=True)
    files: list[dict[str, Any]] = []
    for name, (tensor, new, choices) in STREAMS.items():
        path = FOLDER / "streams" / f"{name.replace(' ', '-')}.zt"
        written(path, *draft(tensor, new, choices))
        files.append(described(path))
    for name, options in MADE.items():
        path = FOLDER / "made" / f"{name.replace(' ', '-')}.zt"
        delta.make(FOLDER / "base.zt", FOLDER / "next.zt", path, **options)
        files.append(described(path))
    for name, (rule, change) in REFUSED.items():
        path = FOLDER / "reject" / f"{name.replace(' ', '-')}.zt"
        content = copy.deepcopy(draft("i32", patched("i32", [3, 250, 299]), Choices(stream=0)))
        change(*content)
        written(path, *content)
        place = path.relative_to(FOLDER).as_posix()
        files.append({"path": place, "expect": "reject", "rule": rule})
    (FOLDER / "deltas.json").write_text(json.dumps({"files": files}, indent=1) + "\n", "utf-8")


def described(path: Path) -> dict[str, Any]:
    """Return what a delta says, for `deltas.json`; ids as digits."""
    with ztensor.open(path) as reader:
        fields = reader.attributes["pyztensor.delta"]
    table: Any = cbor.decode(fields["changes"])
    return {
        "path": path.relative_to(FOLDER).as_posix(),
        "expect": "accept",
        **{key: fields[key] for key in ("ids", "base", "result", "changed", "elements")},
        "label": fields.get("label"),
        "removed": {name: old.hex() for name, old in fields.get("removed", {}).items()},
        "changes": {
            name: {
                "kind": each["kind"],
                "old": each["old"].hex() if "old" in each else None,
                "new": each["new"].hex(),
                "changed": {role: one["changed"] for role, one in each["parts"].items()},
                "codings": {role: one["coding"] for role, one in each["parts"].items()},
            }
            for name, each in table.items()
        },
    }


if __name__ == "__main__":
    main()
