"""Cases of single files: saves, the writers, edits, rewriting, and files of other formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import ztensor
import ztensor.numpy
from tests.golden.table import (
    ELEMENTS,
    ROWS,
    SMALL,
    VERSIONS,
    WITH_LAYOUTS,
    case,
    each,
    elements,
    floats,
    of_version,
    quantized,
    sparse,
)
from ztensor import Tensor, edit, v2

# --- Saves ------------------------------------------------------------------------------------


@each("save/elements", VERSIONS)
def save_elements(folder: Path, version: str) -> None:
    ztensor.numpy.save_file(elements(version), folder / "a.zt", **of_version(version))


@each("save/shapes", VERSIONS)
def save_shapes(folder: Path, version: str) -> None:
    tensors = {
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.float32),
        "five axes": floats(1, 2, 1, 3, 1),
        "fortran": np.asfortranarray(floats(2, 3)),
        "big endian": floats(3).astype(">f4"),
        "reversed": floats(4)[::-1],
        "\u00e9/..": np.array([1], "u1"),
    }
    ztensor.numpy.save_file(tensors, folder / "a.zt", **of_version(version))


@each("save/none", VERSIONS)
def save_none(folder: Path, version: str) -> None:
    ztensor.numpy.save_file({}, folder / "a.zt", **of_version(version))


@each("save/tied", VERSIONS)
def save_tied(folder: Path, version: str) -> None:
    weight = floats(3)
    tensors = {"a": weight, "b": weight, "c": weight.copy(), "d": weight[1:]}
    for deduplicate in ("memory", "content", False):
        target = folder / f"{deduplicate}.zt"
        ztensor.numpy.save_file(tensors, target, **of_version(version, deduplicate=deduplicate))


@each("save/digests", VERSIONS)
def save_digests(folder: Path, version: str) -> None:
    for name in ("crc32c", "sha256", "xxh3", None):
        if (name == "xxh3") == (version == "2.1") or name in ("sha256", None):
            ztensor.numpy.save_file(
                SMALL, folder / f"{name}.zt", **of_version(version, checksum=name)
            )


@each("save/attributes", WITH_LAYOUTS)
def save_attributes(folder: Path, version: str) -> None:
    values: dict[str, Any] = {
        "text": "\u00fc", "true": True, "int": -(2**40), "float": 0.1, "none": None,
        "list": [1, "two", [3.0]], "map": {"b": 1, "a": {"deep": []}}, "": "",
    }  # fmt: skip
    if version != "1.1.0":
        values["bytes"] = b"\0\xff"
    if version == "2.1":
        del values[""]
    of_file = {"text": "\u00fc", "": ""} if version == "1.1.0" else values
    tensors = {"a": Tensor(floats(2), attributes=values), "b": floats(1)}
    ztensor.numpy.save_file(tensors, folder / "a.zt", of_file, **of_version(version))


@each("save/sparse", WITH_LAYOUTS)
def save_sparse(folder: Path, version: str) -> None:
    ztensor.numpy.save_file(sparse(), folder / "a.zt", **of_version(version))


@each("save/quantized", WITH_LAYOUTS)
def save_quantized(folder: Path, version: str) -> None:
    for name, tensor in quantized().items():
        if version == "1.2.0" or name in ("gptq", "int8", "bits4"):
            target = folder / f"{name.replace(' ', '-')}.zt"
            ztensor.numpy.save_file({"w": tensor}, target, **of_version(version))


@each("save/planes", ("1.2.0", "2.1"))
def save_planes(folder: Path, version: str) -> None:
    """Planes that are raw or one byte: those in frames depend on the release of zstd."""
    ones = (np.arange(4096, dtype=np.uint32) * 2654435761 & 0x807FFFFF | 0x3F800000).view("f4")
    tensors: dict[str, Any] = {
        "ones": ones.reshape(2, 2048),
        "rows": Tensor(np.full((7, 3000), 3, ml_dtypes.bfloat16), attributes={"unit": "m"}),
        "complex": np.full((2, 100), 1 + 1j, np.complex64),
        "counts": np.full((2, 100), 1 << 40),
    }
    options = of_version(version, compression="planes", chunk_rows=2)
    ztensor.numpy.save_file(tensors, folder / "a.zt", **options)


@each("save/types of few bits", ("1.2.0", "2.1"))
def save_types_of_few_bits(folder: Path, version: str) -> None:
    """Five elements of each: they end inside a byte. NumPy's int4 and its like are of ml_dtypes."""
    floats = ["float8_e4m3", "float8_e3m4", "float6_e2m3fn", "float6_e3m2fn"]
    names = [*floats, "int4", "uint4", "int2", "uint2"]
    codes = np.array([0, 1, 2, 3, 1], np.uint8)
    tensors = {name: codes.view(getattr(ml_dtypes, name)) for name in names}
    ztensor.numpy.save_file(tensors, folder / "a.zt", **of_version(version))


@each("save/blocks", WITH_LAYOUTS)
def save_blocks(folder: Path, version: str) -> None:
    tensors: dict[str, Any] = {
        "gguf": Tensor(
            {"data": np.arange(34, dtype=np.uint8)}, shape=(32,), format="gguf.q8_0",
        ),
        "later": Tensor({"x": np.array([1], "i1")}, shape=(5,), format="of_tomorrow"),
    }  # fmt: skip
    ztensor.numpy.save_file(tensors, folder / "a.zt", **of_version(version))


@each("save/zstd", VERSIONS)
def save_zstd(folder: Path, version: str) -> None:
    for rows in (None, 8):
        options = of_version(version, compression=True, chunk_rows=rows)
        ztensor.numpy.save_file({"rows": ROWS["rows"]}, folder / f"{rows}.zt", **options)


@case("save/alignment 2.1")
def save_alignment(folder: Path) -> None:
    for alignment in (None, 4096, 16384):
        ztensor.numpy.save_file(
            SMALL, folder / f"{alignment}.zt", version="2.1", alignment=alignment
        )


@case("save/canonical 2.1")
def save_canonical(folder: Path) -> None:
    tensors = {**SMALL, "tied": SMALL["a.bias"], **sparse()}
    attributes = {"b": 1, "a": {"z": 1, "y": 2}}
    ztensor.numpy.save_file(tensors, folder / "a.zt", attributes, version="2.1", canonical=True)


@each("save/shards", VERSIONS)
def save_shards(folder: Path, version: str) -> None:
    metadata = None if version == "0.1.0" else {"framework": "none"}
    options = of_version(version, max_shard_size=30)
    ztensor.numpy.save_file(SMALL, folder / "model.zt", metadata, **options)


# --- Writer -------------------------------------------------------------------------------------


@each("writer/calls", VERSIONS)
def writer_calls(folder: Path, version: str) -> None:
    ztensor.numpy.save_file({"other": floats(5)}, folder / "other.zt", **of_version(version))
    with (
        ztensor.open(folder / "other.zt") as other,
        ztensor.Writer(folder / "a.zt", **of_version(version)) as writer,
    ):
        writer.write("z", floats(2, 2), attributes={"first": True})
        writer.add("sum", floats(2), checksum="sha256")
        with writer.stream("streamed", (4, 2), "float32") as sink:
            sink.write(floats(1, 2))
            sink.write(floats(3, 2))
        writer.share("again", "z")
        writer.copy("copied", other, "other")
    (folder / "other.zt").unlink()


@case("writer/calls of 2.1.2")
def writer_of_2(folder: Path) -> None:
    data = floats(4).astype("<f4").tobytes()
    with v2.Writer(folder / "a.zt", canonical=False, align=4096) as writer:
        writer.add("a", data, [2, 2], "f32")
        writer.add("flags", b"\1\0", [2], "u8", "bool")
        parts = {
            "values": {"data": data[:8], "dtype": "f32"},
            "indices": {"data": np.array([1, 0], "<u4").tobytes(), "dtype": "u32"},
            "indptr": {"data": np.array([0, 1, 2], "<u4").tobytes(), "dtype": "u32"},
        }
        writer.add_object("csr", [2, 2], parts, layout="zt.sparse_csr/1")
        stream = {"data": {"nbytes": len(data), "dtype": "f32"}}
        with writer.stream("streamed", [4], stream, attributes={"n": 1}) as sink:
            sink.write(data[:6])
            sink.write(data[6:])
            sink.close()
        writer.set_attributes({"by": "hand"})


@case("writer/profiles of 2.1.2")
def writer_of_2_writes_profiles(folder: Path) -> None:
    codes, scales = bytes(range(16)), floats(4).astype("<f4").tobytes()
    packing = {"word": "u8", "order": "lsb_first", "per_word": 2}
    with v2.Writer(folder / "a.zt", canonical=False, align=4096) as writer:
        writer.add_object(
            "group",
            [4, 8],
            {"data": {"data": codes, "dtype": "u8"}, "scales": {"data": scales, "dtype": "f32"}},
            layout="zt.quant_group/1",
            attributes={
                "bits": 4, "group_size": 8, "axis": 1, "packing": packing,
                "scale_form": "f32_factors", "zero_point": {"form": "implied", "value": 8},
            },
        )  # fmt: skip
        parts = {
            "data": {"data": codes, "dtype": "u8", "logical": "f4_e2m1"},
            "scales": {"data": b"\x7f", "dtype": "u8", "logical": "f8_e8m0"},
        }
        writer.add_object(
            "mx", [1, 32], parts, layout="zt.mx/1",
            attributes={"block_size": 32, "scale_form": "e8m0_exponent"},
        )  # fmt: skip


@case("writer/append of 2.1.2")
def writer_of_2_appends(folder: Path) -> None:
    data = floats(2).astype("<f4").tobytes()
    with v2.Writer(folder / "a.zt", canonical=False, align=4096) as writer:
        writer.add("a", data, [2], "f32")
    with v2.Writer(folder / "a.zt", canonical=False, append=True) as writer:
        writer.add("b", data, [2], "f32")


@case("writer/publish of 2.1.2")
def writer_of_2_publishes(folder: Path) -> None:
    with v2.Writer(folder / "a.zt", publish=True) as writer:
        writer.add("a", floats(2).astype("<f4").tobytes(), [2], "f32")


# --- Editor -------------------------------------------------------------------------------------


def _append(editor: ztensor.Editor) -> None:
    editor.write("new", floats(3), attributes={"late": True})


def _several(editor: ztensor.Editor) -> None:
    editor.write("new", floats(3))
    editor.remove("a.bias")
    editor.rename({"step": "global_step"})
    editor.replace("b.weight", floats(2))
    editor.set_attributes({"epoch": "2"})


EDITS: dict[str, Callable[[ztensor.Editor], Any]] = {
    "append": _append,
    "replace": lambda editor: editor.replace("b.weight", floats(4, 2)),
    "remove": lambda editor: editor.remove(["step", "a.bias"]),
    "rename": lambda editor: editor.rename({"a.bias": "step", "step": "a.bias"}),
    "attributes": lambda editor: editor.set_attributes({"epoch": "2"}),
    "attributes replaced": lambda editor: editor.set_attributes({"epoch": "2"}, replace=True),
    "attributes of an object": lambda editor: editor.set_attributes({"unit": "m"}, name="step"),
    "several": _several,
    "nothing": lambda editor: None,
}


def _edited(folder: Path, version: str, change: str, **options: Any) -> None:
    ztensor.numpy.save_file(SMALL, folder / "a.zt", {"by": "hand"}, **of_version(version))
    with ztensor.Editor(folder / "a.zt", **options) as editor:
        EDITS[change](editor)


for _version in WITH_LAYOUTS:
    for _change in EDITS:
        case(f"edit/{_change} {_version}", _version, _change)(_edited)


@each("edit/atomic", WITH_LAYOUTS)
def edit_atomic(folder: Path, version: str) -> None:
    _edited(folder, version, "several", atomic=True)


@each("edit/three commits", WITH_LAYOUTS)
def edit_three(folder: Path, version: str) -> None:
    _edited(folder, version, "append")
    for change in ("rename", "remove"):
        with ztensor.Editor(folder / "a.zt") as editor:
            EDITS[change](editor)


@each("edit/zstd", WITH_LAYOUTS)
def edit_zstd(folder: Path, version: str) -> None:
    ztensor.numpy.save_file(SMALL, folder / "a.zt", **of_version(version))
    with ztensor.Editor(folder / "a.zt", compression=True, chunk_rows=25) as editor:
        editor.write("rows", ROWS["rows"])


@each("rewrite/compact", WITH_LAYOUTS)
def compact(folder: Path, version: str) -> None:
    _edited(folder, version, "several")
    edit.compact(folder / "a.zt")


@each("rewrite/merge", WITH_LAYOUTS)
def merge(folder: Path, version: str) -> None:
    ztensor.numpy.save_file(SMALL, folder / "a.zt", {"of": "a"}, **of_version("1.2.0"))
    ztensor.numpy.save_file({"c": floats(2), **SMALL}, folder / "b.zt", **of_version("2.1"))
    inputs = [folder / "a.zt", folder / "b.zt"]
    edit.merge(inputs, folder / "c.zt", on_conflict="last", **of_version(version))
    for path in inputs:
        path.unlink()


@each("rewrite/split", WITH_LAYOUTS)
def split(folder: Path, version: str) -> None:
    ztensor.numpy.save_file(SMALL, folder / "a.zt", **of_version(version))
    edit.split(folder / "a.zt", folder / "b", max_shard_size=30, root=version == "2.1")
    (folder / "a.zt").unlink()


@each("rewrite/repair", WITH_LAYOUTS)
def repair(folder: Path, version: str) -> None:
    _edited(folder, version, "append")
    with (folder / "a.zt").open("ab") as file:
        file.write(b"a torn append")
    edit.repair(folder / "a.zt", write=folder / "b.zt")
    (folder / "a.zt").unlink()


@each("rewrite/migrate", VERSIONS)
def migrate(folder: Path, version: str) -> None:
    source = "2.1" if version == "1.2.0" else "1.2.0"
    tensors = SMALL if version == "0.1.0" else {**SMALL, **sparse()}
    ztensor.numpy.save_file(tensors, folder / "a.zt", **of_version(source))
    ztensor.migrate(folder / "a.zt", **of_version(version))


@case("rewrite/compact to canonical 2.1")
def compact_to_canonical(folder: Path) -> None:
    _edited(folder, "2.1", "several")
    edit.compact(folder / "a.zt", canonical=True)


@case("rewrite/pages of 2.1")
def convert_2(folder: Path) -> None:
    ztensor.numpy.save_file(SMALL, folder / "a.zt")
    v2.convert(folder / "a.zt", folder / "b.zt", align=4096)
    (folder / "a.zt").unlink()


# --- Other formats ------------------------------------------------------------------------------


@case("export/safetensors")
def export_safetensors(folder: Path) -> None:
    names = (*ELEMENTS["0.1.0"], "float8_e4m3fn", "float8_e5m2")
    tensors = {name: value for name, value in elements("1.2.0").items() if name in names}
    tensors |= {"scalar": np.array(1.5), "empty": np.zeros((0, 2), "f4")}
    ztensor.numpy.save_file(tensors, folder / "a.safetensors", {"format": "pt"})
    ztensor.numpy.save_file(SMALL, folder / "model.safetensors", max_shard_size=30)


@case("export/npz")
def export_npz(folder: Path) -> None:
    names = [name for name in ELEMENTS["0.1.0"] if name != "bfloat16"]
    tensors = {name: value for name, value in elements("1.2.0").items() if name in (*names, "c8")}
    tensors |= {"scalar": np.array(1.5), "empty": np.zeros((0, 2), "f4"), "a/b": floats(2, 3)}
    ztensor.numpy.save_file(tensors, folder / "a.npz")


@case("export/npy")
def export_npy(folder: Path) -> None:
    ztensor.numpy.save_file({"array": floats(2, 3)}, folder / "a.npy")


@case("export/gguf")
def export_gguf(folder: Path) -> None:
    tensors = {
        "w": floats(2, 32),
        "half": floats(4).astype("f2"),
        "bf16": floats(4).astype(ml_dtypes.bfloat16),
        "i8": np.array([1, -1], "i1"),
        "q8": Tensor({"data": np.arange(34, dtype=np.uint8)}, shape=(32,), format="gguf.q8_0"),
    }
    ztensor.numpy.save_file(tensors, folder / "a.gguf", {"general.architecture": "llama"})


@case("export/hdf5")
def export_hdf5(folder: Path) -> None:
    tensors: dict[str, Any] = {name: elements("1.2.0")[name] for name in ("f4", "i8", "u1", "bool")}
    tensors |= {"group/w": Tensor(floats(2, 3), attributes={"unit": "m"}), "scalar": np.array(1.5)}
    ztensor.numpy.save_file(tensors, folder / "a.h5", {"by": "hand"})


@case("export/converted")
def export_converted(folder: Path) -> None:
    ztensor.numpy.save_file(SMALL, folder / "a.zt", {"by": "hand"})
    for suffix in ("safetensors", "npz", "gguf"):
        ztensor.convert(folder / "a.zt", folder / f"b.{suffix}")
        ztensor.convert(folder / f"b.{suffix}", folder / f"of-{suffix}.zt")
    (folder / "a.zt").unlink()
