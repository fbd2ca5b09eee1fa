"""Write `docs/specification/versions.md`: what each version can say, asked of its emitter.

    make suite SUITE=pages

Nothing of the table is written by hand but its words. Whether a version can say something is asked
of what writes it (`container.EMITTERS`): it refuses an object before a byte is written, or does
not. How a file is changed is seen by changing one.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import ztensor
from ztensor.errors import ZTensorError
from ztensor.ext import cbor
from ztensor.spec.container import EMITTERS, SCHEMAS
from ztensor.spec.container.framing import Container
from ztensor.spec.container.v2.words import written_layout
from ztensor.spec.digest import writable
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.model.dtype import LOGICAL_TYPES, STORAGE_TYPES
from ztensor.spec.model.manifest import Component, Manifest, Shard, TensorObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE = Path(__file__).with_name("specification") / "versions.md"
YES, NO = "yes", "-"
VERSIONS = list(EMITTERS)
_HEADINGS = {"1.1.0": "1.1", "1.2.0": "1.2", "0.1.0": "0.1", "2.1": "2.0, 2.1"}

Row = tuple[str, list[str]]


def says(version: str, ask: Callable[[Any], object]) -> bool:
    """Return whether what writes a version takes something."""
    try:
        ask(EMITTERS[version]())
    except ZTensorError:
        return False
    return True


def row(name: str, ask: Callable[[Any], object]) -> Row:
    """Return a line of the table: which versions can say it."""
    return name, [YES if says(version, ask) else NO for version in VERSIONS]


def dense(dtype: str, logical: str | None = None, **more: Any) -> TensorObject:
    """Return a dense object of one element pair, as it would be written."""
    storage, found = STORAGE_TYPES.get(dtype), LOGICAL_TYPES.get(logical or "")
    width = storage.width if storage is not None else 1
    if found is not None:
        width = width * found.storage_per_element
    length = 2 * width // (found.elements_per_storage if found is not None else 1)
    component = Component(dtype, 4096, length, logical)
    return TensorObject((2,), "dense", {"data": component}, **more)


def asked(tensor_object: TensorObject) -> Callable[[Any], object]:
    """Return the question whether a version can say an object."""
    return lambda emitter: emitter.require_object(tensor_object)


def types() -> Iterable[Row]:
    """Return the lines about elements."""
    for word in STORAGE_TYPES:
        yield row(f"`{word}`", asked(dense(word)))
    for word, logical in LOGICAL_TYPES.items():
        yield row(f"`{word}`", asked(dense(logical.dtype, word)))
    yield row("a logical type that nobody knows", asked(dense("u8", "x.odd")))


def u64(count: int) -> Component:
    """Return a part of indices."""
    return Component("u64", 4096, 8 * count)


def layouts() -> Iterable[Row]:
    """Return the lines about layouts: the object that each is told of."""
    f32 = Component("f32", 4096, 8)
    code, scale = Component("u8", 4096, 32), Component("u8", 4096, 1, "f8_e8m0")
    half = Component("f16", 4096, 2)
    quantized = {"bits": 4, "group_size": 32, "axis": 1, "sym": True, "packing": "int4"}
    objects = {
        "dense": dense("f32"),
        "sparse_csr": TensorObject(
            (2, 3), "sparse_csr", {"values": f32, "indices": u64(2), "indptr": u64(3)}
        ),
        "sparse_coo": TensorObject((2, 3), "sparse_coo", {"values": f32, "coords": u64(4)}),
        "quantized_group": TensorObject(
            (1, 32), "quantized_group", {"packed_weight": code, "scales": half}, quantized
        ),
        "gguf.q8_0": TensorObject((32,), "gguf.q8_0", {"data": Component("u8", 4096, 34)}),
        "zt.mx/1": TensorObject(
            (1, 32),
            "zt.mx/1",
            {"data": Component("i8", 4096, 32), "scales": scale},
            {"block_size": 32, "scale_form": "e8m0_exponent"},
        ),
    }
    for word, found in objects.items():
        if word not in LAYOUTS:
            raise ValueError(f"no layout {word}")
        name = written_layout(word, found.attributes)[0]
        shown = f"`{word}`" if name == word else f"`{word}`; in 2.x `{name}`"
        yield row(shown, asked(found))
    unknown = TensorObject((9,), "acme.blocks/1", {"a": f32, "b": u64(1)})
    yield row("a layout that nobody knows", asked(unknown))


def storing() -> Iterable[Row]:
    """Return the lines about how bytes are stored, and where."""
    forms = [EMITTERS[version]().form for version in VERSIONS]
    for word in ("raw", "zstd"):
        names = [form.encodings.get(word, word) for form in forms]
        yield f"encoding {word}", [f"`{name}`" for name in names]
    word = "pyztensor.planes/1"
    shown = ["-" if word in form.encodings else f"`{word}`" for form in forms]
    yield "[planes](planes.md), a layout in 1.2 and an encoding in 2.x", shown
    yield (
        "digests that are written, the default first",
        [", ".join(f"`{name}`" for name in form.checksums or writable()) for form in forms],
    )
    yield (
        "what a digest covers",
        ["decoded bytes" if form.is_exact else "stored bytes" for form in forms],
    )
    yield (
        "blobs begin at multiples of",
        [
            f"{form.alignment}"
            if len(form.alignments) == 1
            else f"{min(form.alignments)} to {max(form.alignments)}, by default {form.alignment}"
            for form in forms
        ],
    )
    yield "types of indices", [", ".join(f"`{word}`" for word in form.indices) for form in forms]
    yield (
        "order of sparse entries",
        ["rising, none twice" if form.is_exact else "any, repeats add up" for form in forms],
    )
    yield row("a canonical form: same tensors, same bytes", canonical)


def canonical(emitter: Any) -> None:
    """Begin a canonical file of a version."""
    ztensor.Writer(io.BytesIO(), version=emitter.version, canonical=True).abort()


def sharded(emitter: Any) -> None:
    """Emit a manifest that names another file, and see it named."""
    shard = Shard("part", 4096, "xxh3:0123456789abcdef", 8192)
    component = Component("u8", 12288, 2, digest="xxh3:0123456789abcdef", shard=shard)
    found = TensorObject((2,), "dense", {"data": component})
    emitter.require_object(found)
    manifest = Manifest(emitter.version, {"w": found}, shards={"part": shard})
    if b"part" not in emitter.emit(manifest, 65536):
        raise ztensor.NotRepresentableError("the other file is not named")


def files() -> Iterable[Row]:
    """Return the lines about names, attributes and several files."""
    f32 = Component("f32", 4096, 8)
    yield row("attributes of the file", lambda emitter: emitter.require_attributes({"k": "a"}))
    yield row("attributes of an object", asked(dense("f32", attributes={"k": "a"})))
    for name, value in {
        "bytes": b"1",
        "integers beyond 64 bits": 1 << 70,
        "maps with keys that are not text": {1: 2},
        "CBOR tags": cbor.Tag(1000, 1),
    }.items():
        yield row(
            f"attribute values: {name}",
            lambda emitter, value=value: emitter.require_attributes({"k": value}),
        )
    yield row(
        "attribute keys of more than 1024 bytes",
        lambda emitter: emitter.require_attributes({"k" * 1025: 1}),
    )
    yield row(
        "objects of several components",
        asked(TensorObject((9,), "acme.blocks/1", {"a": f32, "b": f32})),
    )
    yield row("65 dimensions", asked(TensorObject((2, *[1] * 64), "dense", {"data": f32})))
    yield row("several files, named inside one of them", sharded)


def changing() -> Iterable[Row]:
    """Return the line about changing a finished file: one of each version is changed."""
    yield "changed in place", [_changed(version) for version in VERSIONS]


def _changed(version: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.zt"
        with ztensor.Writer(path, version=version, durable=False) as writer:
            writer.write("w", np.arange(6.0))
        with ztensor.Editor(path, durable=False, dry_run=True) as editor:
            editor.remove("w")
            return YES if editor.rewritten_from is None else "becomes 1.2.0"


def reading() -> Iterable[Row]:
    """Return the lines about what is read and written."""
    containers = {"0.1.0": Container.V0_1, "1.1.0": Container.V1, "1.2.0": Container.V1}
    containers["2.1"] = Container.V2
    yield "read", [YES if containers[version] in SCHEMAS else NO for version in VERSIONS]
    yield "written", [YES if version in EMITTERS else NO for version in VERSIONS]
    yield "written by default", [YES if version == EMITTERS.latest else NO for version in VERSIONS]


SECTIONS: dict[str, Callable[[], Iterable[Row]]] = {
    "Reading and writing": reading,
    "Element types": types,
    "Layouts": layouts,
    "How bytes are stored": storing,
    "Names, attributes, files": files,
    "Changing a finished file": changing,
}

_INTRODUCTION = """\
# What each version can say

There are five containers: 0.1, that of releases 1.0.0 and 1.0.1, 1.1, 1.2 and 2.x. This page is
made by `docs/make_versions.py`, which asks the code that writes each version; a test compares the
two. A cell is `yes` where the version has it, and `-` where a save is refused before a byte is
written. `ztensor convert OLD NEW --version VERSION` leaves such objects out and lists each;
`--strict` and `--in-place` refuse.

The container of releases 1.0.0 and 1.0.1 has no column, as it is only read. It has the element
types of 0.1, one for each object; `sparse_csr` and `sparse_coo`; attributes; raw and zstd. 2.0 and
2.1 are the same bytes: files of both are read as 2, and written as 2.1.
"""


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    headings = [_HEADINGS.get(version, version) for version in VERSIONS]
    for title, rows in SECTIONS.items():
        lines = [["", *headings], ["---"] * (1 + len(headings))]
        lines += [[name, *cells] for name, cells in rows()]
        table = "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)
        parts.append(f"## {title}\n\n{table}")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8", newline="\n")
