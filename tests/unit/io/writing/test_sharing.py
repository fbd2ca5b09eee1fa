"""Objects over the same stored bytes, each with its own meaning, on every way to a new file."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.extent import sample
from ztensor.ext import ALGORITHMS
from ztensor.testing.builder import item, sealed, zstd_frame
from ztensor.testing.builder_2 import PAGE, File2, seekable

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

INDEX_ROLES = ("coords", "indices", "indptr")


class Object(NamedTuple):
    """An object: its layout, its shape, and the array in each role."""

    layout: str
    shape: tuple[int, ...]
    parts: dict[str, Array]


def dense(values: Any, dtype: Any, shape: tuple[int, ...] = (4,)) -> Object:
    return Object("dense", shape, {"data": np.array(values).astype(dtype)})


def bits(values: Any, stored: Any, dtype: Any, shape: tuple[int, ...] = (4,)) -> Object:
    return Object("dense", shape, {"data": np.array(values, stored).view(dtype)})


def csr(index: str, values: Any = (1, 2, 3, 4), dtype: Any = "f4") -> Object:
    ends, columns = np.array([0, 2, 4], index), np.array([0, 1, 2, 3], index)
    parts = {"values": np.array(values, dtype), "indices": columns, "indptr": ends}
    return Object("sparse_csr", (2, 4), parts)


def coo(index: str) -> Object:
    parts = {"values": np.array([5, 6], "f4"), "coords": np.array([0, 1, 2, 3], index)}
    return Object("sparse_coo", (2, 4), parts)


def no_csr(index: str) -> Object:
    parts = {"values": np.array([], "f4"), "indices": np.array([], index)}
    return Object("sparse_csr", (2, 4), {**parts, "indptr": np.zeros(3, index)})


F8 = ml_dtypes.float8_e4m3fn
PAIRS: dict[str, tuple[str, Object, Object]] = {
    "u32-index-and-u32": ("2", csr("u4"), dense(range(4), "u4")),
    "u32-index-and-f32": ("2", csr("u4"), bits(range(4), "u4", "f4")),
    "u32-index-and-value": ("2", csr("u4"), csr("u4", range(4), "u4")),
    "u32-index-and-u64-index": (
        "2",
        csr("u4"),
        Object(
            "sparse_coo",
            (1 << 34,),
            {"values": np.ones(2, "f4"), "coords": np.arange(4, dtype="u4").view("u8")},
        ),
    ),
    "indices-of-two-layouts": ("2", csr("u4"), coo("u4")),
    "no-u32-index-and-nothing": ("2", no_csr("u4"), dense([], "u4", (0, 3))),
    "u64-index-and-u64": ("12", csr("u8"), dense(range(4), "u8")),
    "no-u64-index-and-nothing": ("12", no_csr("u8"), dense([], "u8", (0, 3))),
    "nothing-of-two-types": ("012", dense([], "f8", (0,)), dense([], "i2", (3, 0))),
    "u8-and-bool": ("012", dense([0, 1, 1, 0], "u1"), dense([0, 1, 1, 0], "?")),
    "u8-and-f8": ("12", dense([0, 1, 56, 64], "u1"), bits([0, 1, 56, 64], "u1", F8)),
    "u16-and-bf16": ("012", dense(range(4), "u2"), bits(range(4), "u2", ml_dtypes.bfloat16)),
    "f32-and-complex64": ("12", dense(range(4), "f4"), bits(range(4), "f4", "c8", (2,))),
    "two-shapes": ("012", dense(range(4), "f4"), dense(range(4), "f4", (2, 2))),
    "two-orders": ("0", dense(range(4), "<i4"), bits(range(4), "<i4", ">i4")),
}  # fmt: skip
WORDS = {
    "float8_e4m3fn": ("u8", "f8_e4m3fn"),
    "bfloat16": ("bf16", None),
    "complex64": ("f32", "complex64"),
    "bool": ("bool", None),
}


def words(dtype: np.dtype[Any], version: str) -> tuple[str, str | None]:
    if version == "2" and dtype == np.bool_:
        return "u8", "bool"
    kind = {"f": "f", "i": "i", "u": "u"}.get(dtype.kind, "")
    return WORDS.get(dtype.name) or (f"{kind}{8 * dtype.itemsize}", None)


def shared(version: str, objects: dict[str, Object], *, packed: bool) -> bytes:
    """Return a file in which equal bytes are stored once; nothing of the library writes it."""
    file = File2(PAGE if version == "2" else 64)
    if version != "2":
        file.data = bytearray(b"ZTEN0001" if version == "0" else b"ZTEN1000")
    places: dict[bytes, list[int]] = {}
    entries: dict[str, Any] = {}
    for name, one in objects.items():
        parts = {}
        for role, array in one.parts.items():
            decoded = stored = array.tobytes()
            if packed:
                stored = zstd_frame(decoded)
                stored = seekable([stored], [len(decoded)]) if version == "2" else stored
            if stored not in places:
                places[stored] = file.blob(stored)
            offset, length = places[stored]
            dtype, logical = words(array.dtype, version)
            part: dict[str, Any] = {"dtype": dtype}
            if logical is not None:
                part["type"] = logical
            if version == "2":
                part |= {"blob": [offset, length], "digest": ALGORITHMS["xxh3"].of([decoded])}
                if packed:
                    part |= {"encoding": "zt.zstd-seekable/1", "decoded_length": len(decoded)}
            else:
                part |= {"offset": offset, "length": length}
                part["digest"] = ALGORITHMS["crc32c"].of([stored])
                if packed:
                    part |= {"encoding": "zstd", "uncompressed_length": len(decoded)}
            parts[role] = part
        layout = one.layout
        if version == "2":
            layout = layout if layout == "dense" else f"zt.{layout}/1"
            entries[name] = {"shape": list(one.shape), "layout": layout, "parts": parts}
        else:
            entries[name] = {"shape": list(one.shape), "format": layout, "components": parts}
    if version == "2":
        return file.seal({"objects": entries})
    if version == "1":
        root = item({"version": "1.2.0", "objects": entries})
        return sealed(bytes(file.data), root, footer=b"ZTEN1000")
    old = [entry_0(name, objects[name], one) for name, one in entries.items()]
    return sealed(bytes(file.data), item(old))


def entry_0(name: str, one: Object, fields: dict[str, Any]) -> dict[str, Any]:
    part, dtype = fields["components"]["data"], one.parts["data"].dtype
    entry = {"name": name, "shape": fields["shape"], "dtype": dtype.name, "layout": "dense"}
    entry |= {"offset": part["offset"], "size": part["length"], "checksum": part["digest"]}
    if dtype.byteorder == ">":
        entry["data_endianness"] = "big"
    return entry | {"encoding": part.get("encoding", "raw")}


# --- The ways to a new file -------------------------------------------------------------------


def convert(path: Path, folder: Path, *, name: str = "new.zt", **options: Any) -> Path:
    report = ztensor.convert(path, folder / name, check=True, **options)
    assert report.is_lossless or not name.endswith(".zt")
    return folder / name


def merge(path: Path, folder: Path, **options: Any) -> Path:
    ztensor.merge([path], folder / "new.zt", **options)
    return folder / "new.zt"


def migrate(path: Path, folder: Path, *, version: str) -> Path:
    del folder
    ztensor.migrate(path, version=version)
    return path


def copy(path: Path, folder: Path, *, version: str, compress: bool | None = None) -> Path:
    target = folder / "new.zt"
    with ztensor.open(path) as reader, ztensor.Writer(target, version=version) as writer:
        for name in reader:
            writer.copy(name, reader, compress=compress)
    return target


def compacted(path: Path, folder: Path) -> Path:
    del folder
    ztensor.compact(path)
    return path


def split(path: Path, folder: Path, *, root: bool = False) -> Path:
    return folder / ztensor.split(path, folder / "set", max_shard_size=1, root=root)[-1]


def appended(path: Path, folder: Path) -> Path:
    """Return a file to which the objects were added, beside another object."""
    target = folder / "new.zt"
    ztensor.numpy.save_file({"first": np.arange(3)}, target)
    with ztensor.open(path) as reader, ztensor.Editor(target) as editor:
        for name in reader:
            editor.copy(name, reader)
        editor.remove("first")
    return target


def replaced(path: Path, folder: Path) -> Path:
    """Return the file after an object was put in the place of the first, and put back."""
    del folder
    with ztensor.open(path) as reader:
        first = next(iter(reader))
        old = reader.read(first)
        kept = ztensor.Tensor(
            {role: np.array(part) for role, part in old.components.items()},
            shape=old.shape,
            format=old.format,
        )
    with ztensor.Editor(path) as editor:
        editor.replace(first, np.zeros(5, "f8"))
    with ztensor.Editor(path) as editor:
        editor.replace(first, kept)
    return path


WAYS: dict[str, Callable[[Path, Path], Path]] = {
    "convert-1.2": partial(convert, version="1.2.0"),
    "convert-1.1": partial(convert, version="1.1.0"),
    "convert-2.1": partial(convert, version="2.1"),
    "convert-1.2-raw": partial(convert, version="1.2.0", compression=False),
    "convert-1.2-zstd": partial(convert, version="1.2.0", compression=True),
    "convert-2.1-zstd": partial(convert, version="2.1", compression=True),
    "convert-canonical": partial(convert, version="2.1", canonical=True, compression=False),
    "convert-npz": partial(convert, name="new.npz"),
    "convert-safetensors": partial(convert, name="new.safetensors"),
    "convert-hdf5": partial(convert, name="new.h5"),
    "merge-1.2": partial(merge, version="1.2.0"),
    "merge-1.1": partial(merge, version="1.1.0"),
    "merge-2.1": partial(merge, version="2.1"),
    "merge-canonical": partial(merge, version="2.1", canonical=True),
    "migrate-1.2": partial(migrate, version="1.2.0"),
    "migrate-2.1": partial(migrate, version="2.1"),
    "copy-1.2": partial(copy, version="1.2.0"),
    "copy-1.2-raw": partial(copy, version="1.2.0", compress=False),
    "copy-1.2-zstd": partial(copy, version="1.2.0", compress=True),
    "copy-2.1": partial(copy, version="2.1"),
    "copy-2.1-zstd": partial(copy, version="2.1", compress=True),
    "compact": compacted,
    "split": split,
    "split-root": partial(split, root=True),
    "append": appended,
    "replace": replaced,
}
CASES = [
    (pair, version, way)
    for pair, (versions, *_) in PAIRS.items()
    for version in versions
    for way in WAYS
]


def family(case: tuple[str, str, str]) -> tuple[str, str]:
    pair, _, way = case
    return pair, way.partition("-")[0]


CHOSEN = sample(CASES, 1, family)


@pytest.mark.wing
@pytest.mark.parametrize(("pair", "version", "way"), CHOSEN)
def test_each_object_keeps_its_values_and_types(
    pair: str, version: str, way: str, tmp_path: Path
) -> None:
    if way == "convert-hdf5":
        pytest.importorskip("h5py")
    _, one, other = PAIRS[pair]
    ways_to_store = (False,) if pair == "two-orders" else (False, True)  # 0.1 swaps raw bytes alone
    orders = itertools.product(ways_to_store, ((one, other), (other, one)))
    for number, (packed, (first, second)) in enumerate(orders):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "old.zt"
        # Two more, so that later objects meet both in the memory of the copier.
        objects = {"a": first, "b": second, "c": first, "d": second}
        path.write_bytes(shared(version, objects, packed=packed))
        with ztensor.open(path) as reader:
            require_values(reader, objects)
        with ztensor.open(WAYS[way](path, folder)) as reader:
            require_values(reader, objects)
            report = reader.verify(deep=True)
            assert not report.problems
            if reader.format == "zt":
                assert set(reader) == set(objects)
                assert report.outcome == "ok"


def require_values(reader: Any, objects: dict[str, Object]) -> None:
    """Compare the objects of a reader with the expected ones, and check the index types."""
    for name in reader:
        if name not in objects:  # a part of a sparse object, in a format without such
            continue
        expected, found = objects[name], reader.read(name)
        if reader.format != "zt" and expected.layout != "dense":
            continue
        assert (found.format, found.shape) == (expected.layout, expected.shape)
        indices = {found.components[role].dtype for role in INDEX_ROLES if role in found.components}
        if indices:
            assert indices == {np.dtype("u8")} or (reader.version == "2" and len(indices) == 1)
        for role, array in expected.parts.items():
            part = found.components[role].reshape(-1)
            if role in INDEX_ROLES:
                assert part.tolist() == array.tolist()
                continue
            if reader.format != "npz" or not is_of_ml_dtypes(array.dtype):  # NumPy has none
                assert part.dtype == array.dtype.newbyteorder("=")
            assert part.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()


def is_of_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    return dtype.name in ("float8_e4m3fn", "bfloat16")


@pytest.mark.wing
@pytest.mark.parametrize(
    ("pair", "version"),
    [(pair, version) for pair, (versions, *_) in PAIRS.items() for version in versions],
)
def test_what_is_said_of_an_object_does_not_turn_on_the_others(
    pair: str, version: str, tmp_path: Path
) -> None:
    _, one, other = PAIRS[pair]
    for packed, (first, second) in itertools.product(
        (False,) if pair == "two-orders" else (False, True), ((one, other), (other, one))
    ):
        objects = {"a": first, "b": second}
        together = tmp_path / "together.zt"
        together.write_bytes(shared(version, objects, packed=packed))
        hashes = ztensor.insight.tensor_hashes(together)
        for name, found in objects.items():
            alone = shared(version, {name: found}, packed=packed)
            assert ztensor.insight.tensor_hashes(alone) == {name: hashes[name]}
            for threads in (1, 3):
                assert ztensor.diff(alone, together, name, threads=threads).ok
                assert ztensor.diff(alone, together, name, digests=False, threads=threads).ok
        swapped = shared(version, {"a": second, "b": first}, packed=packed)
        is_equal = hashes["a"] == hashes["b"]
        report = ztensor.diff(together, swapped)
        assert report.ok is is_equal
        with ztensor.open(together) as reader:
            assert reader.verify(deep=True, threads=3).outcome == "ok"
