"""Hostile roots of divided checkpoints: one error of ours each, in bounded time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.attacks.peaks import peak_of
from tests.unit.distributed.saving import save
from ztensor.distributed import columns as column_table
from ztensor.distributed import root as roots
from ztensor.distributed.chunks import table as tables
from ztensor.ext import FileSink

W = np.arange(40, dtype="f4").reshape(8, 5)

Root = dict[str, Any]
Columns = dict[str, Any]


def _changed(folder: Path, change: Callable[[Root, Columns], None]) -> None:
    """Write the root of a folder anew, with its attributes and columns changed."""
    table = roots.read_root(folder).table
    columns = column_table.columns_of(table)
    root: Root = {
        "version": 1,
        "writer": "",
        "kinds": [[kind.dtype, kind.type or "", kind.format] for kind in table.kinds],
        "encodings": list(table.encodings),
        "algorithm": table.algorithm,
        "files": {
            "names": [file.name for file in table.files],
            "sizes": [file.size for file in table.files],
            "digests": [file.digest for file in table.files],
        },
    }
    change(root, columns)
    path = folder / "checkpoint.zt"
    with ztensor.Writer(path, compression=True, attributes={"divided": root}) as writer:
        for name, column in columns.items():
            writer.write(name, column)


def _set(name: str, row: int, value: int, dtype: Any = np.int64) -> Callable[..., None]:
    def change(root: Root, columns: Columns) -> None:
        columns[name] = columns[name].astype(dtype)
        columns[name][row] = value

    return change


def _column(name: str, make: Callable[[Any], Any]) -> Callable[..., None]:
    def change(root: Root, columns: Columns) -> None:
        columns[name] = make(columns[name])

    return change


def _field(key: str, value: Any) -> Callable[..., None]:
    return lambda root, columns: root.__setitem__(key, value)


def _file(key: str, value: Any) -> Callable[..., None]:
    return lambda root, columns: root["files"][key].__setitem__(0, value)


def _nested(root: Root, columns: Columns) -> None:
    # A tree of 20,000 nested lists, as columns.
    deep: Any = []
    for _ in range(20_000):
        deep = [deep]
    columns["values"] = np.frombuffer(roots.encode_values({"x": deep}).shape, np.uint8)


ROOTS: dict[str, Callable[..., None]] = {
    "overlapping": _set("chunks/offsets", 2, 1),
    "out of bounds": _set("chunks/offsets", 2, 1000),
    "negative": _set("chunks/offsets", 2, -1),
    "beyond 63 bits": _set("chunks/offsets", 2, 1 << 63, np.uint64),
    "not covered": _set("chunks/sizes", 0, 1),
    "outside its file": _set("chunks/at", 0, 1 << 40),
    "too long": _set("chunks/length", 0, 1 << 61),
    "unknown file": _set("chunks/file", 0, 77),
    "unknown tensor": _set("chunks/tensor", 2, 77),
    "tensors out of order": _set("chunks/tensor", 0, 1),
    "other shape": _set("tensors/shape", 0, 1 << 61),
    "deep rank": _set("tensors/rank", 0, 255),
    "unknown kind": _set("tensors/kind", 0, 9),
    "floats": _column("chunks/at", lambda c: c.astype("f8")),
    "texts": _column("chunks/at", lambda c: np.zeros(len(c), bool)),
    "two axes": _column("chunks/at", lambda c: c.reshape(-1, 1)),
    "short": _column("chunks/at", lambda c: c[:-1]),
    "long": _column("chunks/sizes", lambda c: np.concatenate((c, c))),
    "no digests": _column("chunks/digest", lambda c: c[:-3]),
    "bad names": _column("tensors/names", lambda c: np.full_like(c, 255)),
    "equal names": lambda root, columns: columns.update(
        {"tensors/names": np.frombuffer(b"aa", np.uint8),
         "tensors/name_lengths": np.array([1, 1])}
    ),
    "long names": _set("tensors/name_lengths", 0, 1 << 61),
    "values are noise": lambda root, columns: columns.update(values=np.arange(200, dtype="u1")),
    **{
        f"named {name!r:.20}": _file("names", name)
        for name in (
            *("../a.zt", "/etc/passwd", "a/b.zt", "s3://b/x", "file:///x", "http://h/x.zt", ""),
            *(".", "..", ".x.zt", "C:\\x.zt", "a\\b.zt", "checkpoint.zt", "x\0.zt", "x" * 300),
            *(7, None),
        )
    },
    "named twice": lambda root, columns: root["files"].update(
        names=[root["files"]["names"][0]] * len(root["files"]["names"])
    ),
    "file without size": _file("sizes", "5"),
    "huge file": _file("sizes", 1 << 61),
    "negative file": _file("sizes", -1),
    "digest of a file": _file("digests", 3),
    "no files": _field("files", []),
    "no kinds": _field("kinds", {"a": 1}),
    "kinds": _field("kinds", [["f32"]]),
    "no version": _field("version", "1"),
    "newer": _field("version", 2),
    "algorithm": _field("algorithm", "md5"),
    "encodings": _field("encodings", []),
}  # fmt: skip


def _used(folder: Path) -> None:
    """Open a folder; what opening does not show, the first use of it does."""
    with ztensor.open(folder) as reader:
        reader.unrepresented  # noqa: B018
        reader.attributes  # noqa: B018
        reader["w"]


@pytest.mark.slow
def test_values_nested_deeply_are_read_and_cost_little(tmp_path: Path) -> None:
    save(tmp_path, {"w": W, "v": W[:4]}, processes=2)
    _changed(tmp_path, _nested)
    peak, deep = peak_of(lambda: roots.read_root(tmp_path).values["x"])
    assert isinstance(deep, list)
    depth = 0
    while deep:
        (deep,), depth = deep, depth + 1
    assert depth == 20_000
    assert peak < 64 << 20


@pytest.mark.parametrize("name", ROOTS)
def test_a_hostile_root_is_one_error(tmp_path: Path, name: str) -> None:
    save(tmp_path, {"w": W, "v": W[:4]}, processes=2)
    _changed(tmp_path, ROOTS[name])
    begin = time.process_time()
    peak, error = peak_of(lambda: _used(tmp_path))
    assert isinstance(error, ztensor.ZTensorError)
    assert error.reason is not ztensor.Reason.UNFORESEEN, error
    assert (error.reason is ztensor.Reason.UNKNOWN_VERSION) is (name == "newer")
    assert peak < 64 << 20
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("shape", [(10**12,), (10**9,)])
def test_a_claim_of_many_chunks_costs_nothing(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """The manifest says so; the stored bytes are a few."""
    save(tmp_path, {"w": W}, processes=2)
    path = tmp_path / "checkpoint.zt"
    from ztensor.io.contents import open_file

    file = open_file(path, mmap=False)
    objects = dict(file.manifest.objects)
    for name in objects:
        if name.startswith("chunks/"):
            data = objects[name].components["data"]
            more = data._replace(decoded_length=shape[0])
            objects[name] = objects[name]._replace(shape=shape, components={"data": more})
    peak, error = peak_of(lambda: roots.parse_root(file.changed(objects=objects)))
    assert isinstance(error, ztensor.ZTensorError)
    file.close()
    assert peak < 64 << 20


@pytest.mark.slow
def test_boxes_of_many_axes_and_none_that_are_regular_take_linear_time(tmp_path: Path) -> None:
    count = 50_000
    random = np.random.default_rng(0)
    offsets = random.integers(0, 1000, (count, 6))
    table = tables.ChunkTable(
        names=["w"],
        kinds=[tables.Kind("u8")],
        kind=np.zeros(1, np.int64),
        shapes=[(1001,) * 6],
        files=[tables.TableFile("00000-00000000.zt", 1 << 40)],
        encodings=["raw"],
        tensor=np.zeros(count, np.int64),
        file=np.zeros(count, np.int64),
        number=None,
        encoding=None,
        offsets=offsets.reshape(-1),
        sizes=np.ones(count * 6, np.int64),
        at=np.arange(count),
        length=np.ones(count, np.int64),
    )
    roots.write_root(FileSink(str(tmp_path / "checkpoint.zt")), table, roots.encode_values({}), "")
    begin = time.process_time()
    with pytest.raises(ztensor.FormatError, match="cover"):
        roots.read_root(tmp_path)
    assert time.process_time() - begin < 20


def test_values_that_mean_nothing_are_found_by_verify(tmp_path: Path) -> None:
    save(tmp_path, {"w": W, "v": W[:4]}, processes=2)
    _changed(tmp_path, ROOTS["values are noise"])
    with ztensor.open(tmp_path) as reader:
        assert reader.verify().outcome == "damaged"
        assert reader.verify(["w"]).problems == ()
