"""For each format a file with one of everything that the format can say, and one of only weights.

The former has a given loss report; the loss report of the latter is empty.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import importlib
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import ml_dtypes
import numpy as np

CORPUS = Path(__file__).parents[1] / "corpus" / "foreign" / "accept"
A = np.arange(6, dtype=np.float32).reshape(2, 3)


@dataclasses.dataclass(frozen=True)
class Case:
    """The files of one format.

    Attributes:
        name: the case's name, and the suffix of its files.
        libraries: the libraries that write the files.
        everything: writes a file with one of everything.
        left: the loss report of that file: kind and place to count.
        plain: writes a file of only weights.
        names: some of the objects in the file with everything.
    """

    name: str
    libraries: tuple[str, ...]
    everything: Callable[[Path], None]
    left: Mapping[tuple[str, str], int]
    plain: Callable[[Path], None]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def library(name: str) -> Any:
    """Return a library, untyped."""
    return importlib.import_module(name)


def corpus(name: str) -> Callable[[Path], None]:
    """Return a function that copies a file of only weights from the corpus."""

    def copy(path: Path) -> None:
        shutil.copy(CORPUS / name, path)

    return copy


# --- ONNX -----------------------------------------------------------------------------------


def _onnx_everything(path: Path) -> None:
    onnx = library("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto

    def tensor(name: str, value: float = 1.0) -> Any:
        return onnx.numpy_helper.from_array(A * value, name)

    def graph(name: str, *nodes: Any, weights: tuple[Any, ...] = (), **more: Any) -> Any:
        return helper.make_graph([*nodes], name, [], [], [*weights], **more)

    inner = graph("inner", helper.make_node("Relu", ["w"], ["r"]), weights=(tensor("w", 5),))
    then = graph(
        "then",
        helper.make_node("Constant", [], ["c"], value=tensor("", 2)),
        helper.make_node("Loop", [], ["l"], name="loop", body=inner),
        weights=(tensor("w", 3),),
    )
    other = graph("else", weights=(tensor("w", 4),))
    info = helper.make_tensor_value_info
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("sparse", kinds.FLOAT, [1], [1.0]),
        helper.make_tensor("", kinds.INT64, [1], [2]),
        [4],
    )
    noted = tensor("noted")
    noted.doc_string = "of a tensor"
    noted.metadata_props.add(key="k", value="v")
    main = helper.make_graph(
        [
            # Its path is the name of an initializer, which keeps it.
            helper.make_node("If", ["x"], ["y"], "if_node", then_branch=then, else_branch=other),
            helper.make_node("Trees", ["x"], ["z"], values_as_tensor=tensor("", 6)),
            helper.make_node(
                "Many", ["x"], ["m"], graphs=[other], tensors=[tensor(""), tensor("")]
            ),
            helper.make_node("Long", ["x"], ["n"], doc_string="d" * 5000, weight=tensor("", 7)),
        ],
        "main",
        [info("x", kinds.FLOAT, [1])],
        [info("y", kinds.FLOAT, [1])],
        [noted, tensor("if_node.then_branch.w"), helper.make_tensor("text", 8, [1], [b"a"])],
        doc_string="of the graph",
        value_info=[info("z", kinds.FLOAT, None)],
        sparse_initializer=[sparse],
    )
    main.quantization_annotation.add(tensor_name="noted")
    main.metadata_props.add(key="k", value="v")
    function = helper.make_function(
        "my.domain",
        "Linear",
        ["x"],
        ["y"],
        [helper.make_node("Constant", [], ["bias"], value=tensor("", 8))],
        [helper.make_opsetid("", 20)],
    )
    model = helper.make_model(main, functions=[function], doc_string="of the model")
    training = model.training_info.add()
    training.initialization.CopyFrom(graph("start", weights=(tensor("zero"),)))
    training.algorithm.CopyFrom(graph("step", weights=(tensor("rate"),)))
    model.configuration.add(name="one", num_devices=1)
    path.write_bytes(model.SerializeToString())


_BODY = "if_node.then_branch"
ONNX = Case(
    "onnx",
    ("onnx",),
    _onnx_everything,
    {
        ("graph node", ""): 4,
        ("graph node", _BODY): 2,
        ("graph node", f"{_BODY}.loop.body"): 1,
        ("graph input", ""): 1,
        ("graph output", ""): 1,
        ("type of a value", ""): 1,
        ("doc string of a graph", ""): 1,
        ("quantization annotation", ""): 1,
        ("metadata of a graph", ""): 1,
        ("doc string of a tensor", ""): 1,
        ("metadata of a tensor", ""): 1,
        ("function", "functions.my.domain.Linear"): 1,
        ("training info", ""): 1,
        ("device configuration", ""): 1,
        ("unread STRING", "text"): 1,
    },
    corpus("onnx/typed.onnx"),
    (
        "if_node.then_branch.w",
        "if_node.then_branch.w#2",
        "if_node.then_branch.c",
        "if_node.then_branch.loop.body.w",
        "if_node.else_branch.w",
        "z.values_as_tensor",
        "m.graphs.0.w",
        "m.tensors.0",
        "m.tensors.1",
        "n.weight",
        "functions.my.domain.Linear.bias",
        "training.0.initialization.zero",
        "training.0.algorithm.rate",
        "sparse",
        "noted",
    ),
)

# --- torch.save -----------------------------------------------------------------------------


def _pt_state(torch: Any) -> dict[Any, Any]:
    return {
        "model": {"weight": torch.tensor(A), "tied": torch.tensor(A)},
        "optimizer": {
            "state": {0: {"step": torch.tensor(1.0)}, 1: {"step": torch.tensor(2.0)}},
            "param_groups": [{"betas": (0.9, 0.999), "params": [0, 1]}],
        },
        "both": (torch.zeros(1), 5),
        "kinds": {
            "set": {1, 2},
            "frozen": frozenset({3}),
            "deque": collections.deque([1]),
            "counts": collections.Counter("aab"),
            "more": collections.defaultdict(dict),
            "name": argparse.Namespace(a=1),
            "complex": 1j,
            "range": range(3),
            "slice": slice(1, 2),
            "path": PurePosixPath("a/b"),
            "bytes": bytearray(b"abc"),
            "device": torch.device("cpu"),
            "dtype": torch.float16,
            "numpy": np.dtype("f4"),
            "scalar": np.float32(1.5),
            "large": 1 << 70,
        },
        "meta": torch.empty(3, device="meta"),
        "text": np.array(["a", "bc"]),
        "objects": np.array([None]),
        "records": np.zeros(1, "i4,f4"),
        "times": np.zeros(1, "M8[s]"),
        "bfloat16": np.zeros(1, ml_dtypes.bfloat16),
    }


def _pt_everything(path: Path) -> None:
    torch = library("torch")
    torch.save(_pt_state(torch), path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"a comment"
        folder = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{folder}/code/module.py", "def forward(): ...")
        archive.writestr(f"{folder}/data/99", b"12345678")
        archive.writestr(f"{folder}/extra/note", "hello")
        with_comment = zipfile.ZipInfo(f"{folder}/extra/empty")
        with_comment.comment = b"about it"
        archive.writestr(with_comment, b"")


def _legacy_everything(path: Path) -> None:
    torch = library("torch")
    torch.save(_pt_state(torch), path, _use_new_zipfile_serialization=False)
    with path.open("ab") as file:
        file.write(b"more")


_PICKLED = {
    ("dict key that is no text", "optimizer.state"): 2,
    ("tuple", "optimizer.param_groups.0.betas"): 1,
    ("tuple", "both"): 1,
    ("set", ""): 2,
    ("deque", ""): 1,
    ("Counter", ""): 1,
    ("defaultdict", ""): 1,
    ("namespace", ""): 1,
    ("complex number", ""): 1,
    ("range", ""): 1,
    ("slice", ""): 1,
    ("path", ""): 1,
    ("bytearray", ""): 1,
    ("torch.device", ""): 1,
    ("class or constant", "torch.float16"): 1,
    ("numpy.dtype", ""): 1,
    ("NumPy scalar", ""): 1,
    ("integer of more than 64 bits", ""): 1,
    ("unread f32", "meta"): 1,
    ("unread numpy.U2", "text"): 1,
    ("unread numpy.O8", "objects"): 1,
    ("unread numpy.V8", "records"): 1,
    ("unread numpy.M8", "times"): 1,
    ("unread numpy.ml_dtypes.bfloat16", "bfloat16"): 1,
}
PT = Case(
    "pt",
    ("torch",),
    _pt_everything,
    _PICKLED
    | {
        ("code", "everything/code/module.py"): 1,
        ("storage without a tensor", "everything/data/99"): 1,
        ("member of the archive", "everything/extra/note"): 1,
        ("comment of a member", "everything/extra/empty"): 1,
        ("comment of the archive", ""): 1,
    },
    corpus("pt/views.pt"),
    ("model.weight", "both.0", "optimizer.state.0.step"),
)
LEGACY = Case(
    "pth",
    ("torch",),
    _legacy_everything,
    _PICKLED | {("bytes behind the last storage", ""): 1},
    corpus("pt/legacy.pt"),
    ("model.weight",),
)

# --- NumPy ----------------------------------------------------------------------------------


def _npz_everything(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(
            file,
            a=A,
            text=np.array(["a", "bc"]),
            raw=np.array([b"abc"]),
            when=np.array(["2024-01-01"], "M8[D]"),
            span=np.array([1], "m8[s]"),
            record=np.zeros(2, [("x", "i4"), ("y", "f8")]),
            objects=np.array([{}, 1], object),
            wide=np.zeros(3, np.longdouble),
            bfloat16=np.zeros(2, ml_dtypes.bfloat16),
            fp8=np.zeros(2, ml_dtypes.float8_e4m3fn),
        )
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("note.txt", "hello")
        archive.comment = b"a comment"


_WIDE = f"unread long double of {np.dtype(np.longdouble).itemsize} bytes"
NPZ = Case(
    "npz",
    (),
    _npz_everything,
    {
        ("unread <U2", "text"): 1,
        ("unread |S3", "raw"): 1,
        ("unread <M8[D]", "when"): 1,
        ("unread <m8[s]", "span"): 1,
        ("unread records", "record"): 1,
        ("unread <V2", "bfloat16"): 1,
        ("unread <V1", "fp8"): 1,
        ("unread objects (a pickle, which is never read)", "objects"): 1,
        ("member that is no array", "note.txt"): 1,
        ("comment of the archive", ""): 1,
    }
    | ({(_WIDE, "wide"): 1} if np.dtype(np.longdouble).itemsize > 8 else {}),
    lambda path: np.savez_compressed(path, a=A, b=A > 1),
    ("a",),
)
NPY = Case(
    "npy",
    (),
    lambda path: np.save(path, np.array(["a", "bc"])),
    {("unread <U2", "array"): 1},
    corpus("npz/complex.npy"),
)


# --- HDF5 -----------------------------------------------------------------------------------


def _h5_everything(path: Path) -> None:
    h5py = library("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        file["a"] = A
        file["colour"] = np.array([0, 1], "i1")
        del file["colour"]
        colours = h5py.enum_dtype({"RED": 0, "BLUE": 1}, "i1")
        file.create_dataset("colour", data=np.array([0, 1], "i1"), dtype=colours)
        file["truth"] = np.array([True, False])
        file["record"] = np.zeros(2, [("x", "i4"), ("y", "f8")])
        file["opaque"] = np.zeros(2, "V5")
        file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
        file.create_dataset("texts", data=["a", "bc"])
        file.create_dataset("refs", (1,), h5py.ref_dtype)
        file["null"] = h5py.Empty("f4")
        file.create_dataset("external", (2,), "f4", external=[("other.bin", 0, 8)])
        layout = h5py.VirtualLayout((2,), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "x", (2,))
        file.create_virtual_dataset("virtual", layout)
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((2,)))
        file["type"] = np.dtype("f4")
        file["group/inner"] = A
        file["group/self"] = file["group"]
        file["soft"] = h5py.SoftLink("/group")
        file["nowhere"] = h5py.SoftLink("/not/there")
        file["fine"] = h5py.SoftLink("/a")
        file["away"] = h5py.ExternalLink("other.h5", "/x")
        file["a"].attrs["of"] = np.zeros(1, [("x", "i4")])
        file["a"].attrs.create("colour", 1, dtype=colours)
        file["group"].attrs["to"] = file["a"].ref
        file["scale"] = np.arange(2)
        file["scale"].make_scale("rows")
        file["a"].dims[0].attach_scale(file["scale"])
        file.attrs["kept"] = "text"
    with path.open("ab") as data:
        data.write(b"more")


def _h5_plain(path: Path) -> None:
    h5py = library("h5py")
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = A
        file["layers/dense"].attrs["name"] = "dense"
        file.create_group("layers/dropout/vars")
        file.create_dataset("chunked", data=A, chunks=(1, 3), compression="gzip")


HDF5 = Case(
    "h5",
    ("h5py",),
    _h5_everything,
    {
        ("attribute", "a/DIMENSION_LIST"): 1,
        ("attribute", "a/of"): 1,
        ("attribute", "group/to"): 1,
        ("attribute", "scale/REFERENCE_LIST"): 1,
        ("bytes behind the end", ""): 1,
        ("names of an enum", "a/colour"): 1,
        ("names of an enum", "colour"): 2,
        ("soft link", "nowhere"): 1,
        ("soft link", "soft"): 1,
        ("stored type, or further link to a group", "group/self"): 1,
        ("stored type, or further link to a group", "type"): 1,
        ("unread HDF5 compound", "record"): 1,
        ("unread HDF5 link to another file", "away"): 1,
        ("unread HDF5 list of any length", "lists"): 1,
        ("unread HDF5 null dataspace", "null"): 1,
        ("unread HDF5 opaque of 5 bytes", "opaque"): 1,
        ("unread HDF5 reference", "refs"): 1,
        ("unread HDF5 string", "texts"): 1,
        ("unread HDF5 data in another file", "external"): 1,
        ("unread HDF5 virtual dataset", "virtual"): 1,
        ("unread HDF5 time", "time"): 1,
        ("user block", ""): 1,
    },
    _h5_plain,
    ("a", "fine", "truth", "group/inner"),
)


def _keras(path: Path, members: Mapping[str, str]) -> None:
    weights = path.with_suffix(".weights.h5")
    _h5_plain(weights)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("metadata.json", "{}")
        archive.write(weights, "model.weights.h5")
        for name, text in members.items():
            archive.writestr(name, text)


def _keras_everything(path: Path) -> None:
    _keras(path, {"assets/words.txt": "a b c", "other.json": "{}"})


KERAS = Case(
    "keras",
    ("h5py",),
    _keras_everything,
    {
        ("member of the archive", "assets/words.txt"): 1,
        ("member of the archive", "other.json"): 1,
    },
    lambda path: _keras(path, {}),
    ("layers/dense/vars/0",),
)


# --- GGUF, safetensors ----------------------------------------------------------------------


def _gguf_everything(path: Path) -> None:
    path.write_bytes((CORPUS / "gguf/plain.gguf").read_bytes() + b"x" * 100)


def safetensors_everything(path: Path) -> None:
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], "note": 1, "more": [2]}
    six = {"dtype": "Q6_LATER", "shape": [4], "data_offsets": [24, 27]}
    head = json.dumps({"a": entry, "six": six}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + A.tobytes() + b"abc")


GGUF = Case(
    "gguf",
    (),
    _gguf_everything,
    {("bytes of no tensor", ""): 1},
    corpus("gguf/plain.gguf"),
    ("plain.f4",),
)
SAFETENSORS = Case(
    "safetensors",
    (),
    safetensors_everything,
    {("unknown field", "a"): 2, ("unread Q6_LATER", "six"): 1},
    corpus("safetensors/small.safetensors"),
    ("a",),
)

CASES = [ONNX, PT, LEGACY, NPZ, NPY, HDF5, KERAS, GGUF, SAFETENSORS]
