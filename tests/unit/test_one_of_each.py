"""A new kind is one file and one line: one of each, added from outside the package.

Each test adds one entry to one table, as the line in CONTRIBUTING.md does, and uses it from end to
end; nothing else is told of it. `tests/plugin` installs four of them as somebody else's package.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.plugin.shelf_encoding import TURNED
from tests.plugin.shelf_format import LINES
from tests.unit.cli import conftest as command
from ztensor import LogicalType
from ztensor.cli.main import VERBS, Verb
from ztensor.cli.parsing import load
from ztensor.errors import UsageError
from ztensor.ext import (
    ALGORITHMS,
    BY_LONG_NAME,
    ENCODINGS,
    FORMATS,
    LAYOUTS,
    LOGICAL_TYPES,
    SCHEMES,
    STORAGE_TYPES,
    Layout,
    TensorObject,
    View,
)
from ztensor.numpy import load_file, save_file
from ztensor.quantization.quantizing import quantize
from ztensor.quantization.recipes import RECIPES
from ztensor.spec.digest import Algorithm
from ztensor.spec.layout import elements
from ztensor.spec.model.dtype import StorageType
from ztensor.typing import Array

run = command.run  # the fixture
W = np.arange(600, dtype=np.float32).reshape(20, 30)


@pytest.fixture(autouse=True)
def loaded() -> None:
    """Have the help of verbs, made of the tables when they are loaded, without what is added."""
    for verbs in VERBS.values():
        for name in verbs:
            load(name)


Add = Callable[[MutableMapping[str, Any], str, object], None]


@pytest.fixture
def add() -> Iterator[Add]:
    """Give a function that adds to a table, as a program does; removed after the test."""
    with contextlib.ExitStack() as stack:

        def added(table: MutableMapping[str, Any], name: str, value: object) -> None:
            table[name] = value
            stack.callback(table.__delitem__, name)

        yield added


def ls(run: command.Run, path: Path) -> dict[str, Any]:
    """Return what the command lists of the only object."""
    (found,) = run("ls", path, "--json").json["files"][0]["objects"]
    return dict(found)


# --- An encoding, read and written ----------------------------------------------------------


@pytest.mark.parametrize("count", [1, 100])  # 100: read as columns where all is of known kinds
def test_an_encoding(add: Add, tmp_path: Path, run: command.Run, count: int) -> None:
    add(ENCODINGS, TURNED.name, TURNED)
    path, tensors = tmp_path / "w.zt", {f"w{number:03}": W + number for number in range(count)}
    save_file(tensors, path, compression=TURNED.name)
    assert W.tobytes() not in path.read_bytes()
    found = load_file(path)
    assert all(np.array_equal(found[name], value) for name, value in tensors.items())
    with ztensor.open(path) as reader:
        assert np.array_equal(reader.get_slice("w000")[3:5, 1], W[3:5, 1])
        assert reader.metadata("w000").components["data"].encoding == TURNED.name
    assert run("verify", path).code == 0
    assert run("convert", path, tmp_path / "raw.zt", "--compression", "raw").code == 0
    back = ("convert", tmp_path / "raw.zt", path, "--compression", TURNED.name, "--force")
    assert run(*back).code == 0
    assert np.array_equal(load_file(path)["w000"], W)


# --- A layout -------------------------------------------------------------------------------


class Diagonal(Layout):
    """A square matrix of which only the diagonal is not zero."""

    name = "diagonal"
    main_role = "values"
    read_order = ("values",)

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        storage = tensor_object.components[role].storage
        return None if storage is None else tensor_object.shape[0] * storage.width

    def require_valid(self, view: View) -> None:
        """Accept any."""

    def to_dense(self, view: View) -> Array:
        return np.diag(view.arrays["values"])


def test_a_layout(add: Add, tmp_path: Path, run: command.Run) -> None:
    add(LAYOUTS, "diagonal", Diagonal())
    path = tmp_path / "d.zt"
    save_file({"d": ztensor.Tensor({"values": W[1]}, shape=(30, 30), format="diagonal")}, path)
    with ztensor.open(path) as reader:
        assert np.array_equal(reader.read("d").to_dense(), np.diag(W[1]))
        with pytest.raises(UsageError):  # it says nothing about rows
            reader.get_slice("d")
    assert run("verify", path).code == 0
    found = ls(run, path)
    assert (found["format"], found["shape"]) == ("diagonal", [30, 30])


# --- A storage type and a logical type ------------------------------------------------------

F8 = np.dtype(ml_dtypes.float8_e4m3b11fnuz)  # of ml_dtypes, and no type of any version


def _round_trip(path: Path, run: command.Run, expected: dict[str, Any]) -> None:
    values = W.astype(F8)
    save_file({"w": values}, path)
    found = load_file(path)["w"]
    assert found.dtype == F8
    assert found.tobytes() == values.tobytes()
    with ztensor.open(path) as reader:
        assert reader.get_slice("w")[2:4].tobytes() == values[2:4].tobytes()
    assert run("verify", path).code == 0
    assert expected.items() <= ls(run, path).items()


def test_a_storage_type(
    monkeypatch: pytest.MonkeyPatch, add: Add, tmp_path: Path, run: command.Run
) -> None:
    monkeypatch.setattr(elements, "_SPELLED", {})
    storage = StorageType("f8", "float8_e4m3b11fnuz", 1, "f")
    add(STORAGE_TYPES, "f8", storage)
    add(BY_LONG_NAME, "float8_e4m3b11fnuz", storage)
    _round_trip(tmp_path / "w.zt", run, {"dtype": "float8_e4m3b11fnuz"})


def test_a_logical_type(
    monkeypatch: pytest.MonkeyPatch, add: Add, tmp_path: Path, run: command.Run
) -> None:
    monkeypatch.setattr(elements, "_SPELLED", {})
    add(LOGICAL_TYPES, "f8_e4m3b11fnuz", LogicalType("f8_e4m3b11fnuz", "u8", "float8_e4m3b11fnuz"))
    _round_trip(tmp_path / "w.zt", run, {"type": "f8_e4m3b11fnuz"})


# --- A foreign format, read and written -----------------------------------------------------


def test_a_foreign_format(add: Add, tmp_path: Path, run: command.Run) -> None:
    add(FORMATS, "lines", LINES)
    path = tmp_path / "w.lines"
    save_file({"array": W[1]}, path)
    assert np.array_equal(load_file(path)["array"], W[1])
    with ztensor.open(path) as reader:
        assert reader.format == "lines"
        assert np.array_equal(reader.get_slice("array")[3:5], W[1, 3:5])
    assert run("verify", path).code == 0
    assert ls(run, path)["shape"] == [30]
    assert run("convert", path, tmp_path / "back.zt").code == 0
    assert run("convert", tmp_path / "back.zt", tmp_path / "back.lines", "--force").code == 0
    assert (tmp_path / "back.lines").read_bytes() == path.read_bytes()
    ended = run("convert", path, tmp_path / "w.other")
    assert ".lines" in ended.err  # among the suffixes that say what is written
    path.write_bytes(b"no such thing, in no format")
    assert "lines" in run("ls", path).err


# --- A recipe of quantization ---------------------------------------------------------------


def test_a_recipe(add: Add, tmp_path: Path, run: command.Run) -> None:
    def int2(array: Any, **options: Any) -> Any:
        return quantize(array, bits=2, group_size=4, **options)

    add(RECIPES, "int2", int2)
    weights = np.repeat(np.arange(4, dtype=np.float32), 64).reshape(4, 64).T.copy()
    tensor = ztensor.Tensor.quantize(weights, "int2")
    path = tmp_path / "q.zt"
    save_file({"q": tensor}, path)
    with ztensor.open(path) as reader:
        found = reader.read("q")
        assert np.allclose(found.dequantize(), weights, rtol=1e-2)
        part: Any = reader.get_slice("q")[16:32]
        assert np.allclose(part.dequantize(), weights[16:32], rtol=1e-2)
    assert run("verify", path).code == 0
    assert ls(run, path)["format"] == "quantized_group"
    with pytest.raises(ztensor.ZTensorError, match="int2"):  # among those there are
        ztensor.Tensor.quantize(weights, "int3")


# --- A digest -------------------------------------------------------------------------------


class Total:
    """The sum of all bytes: no digest for anybody else."""

    def __init__(self) -> None:
        self.value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self.value += sum(bytes(data))

    def hexdigest(self) -> str:
        return f"{self.value & 0xFFFFFFFF:08x}"


@pytest.mark.parametrize("count", [1, 100])
def test_a_digest(add: Add, tmp_path: Path, run: command.Run, count: int) -> None:
    add(ALGORITHMS, "total", Algorithm("total", 8, Total))
    path = tmp_path / "w.zt"
    save_file({f"w{number:03}": W for number in range(count)}, path, checksum="total")
    with ztensor.open(path) as reader:
        digest = reader.metadata("w000").components["data"].digest
        assert digest is not None
        assert digest.startswith("total:")
        assert np.array_equal(reader.get_slice("w000")[3:5], W[3:5])
    assert np.array_equal(load_file(path)["w000"], W)
    assert run("verify", path).code == 0
    flip(path, path.read_bytes().index(W.tobytes()))
    assert run("verify", path).code == 1
    other = tmp_path / "other.zt"
    save_file({"w": W}, other, checksum=None)
    assert run("append", path, other, "--checksum", "total").code == 0
    assert "'total'" in run("append", path, other, "--checksum", "md5").err


# --- A place that files are read from -------------------------------------------------------


def test_a_place(
    monkeypatch: pytest.MonkeyPatch, add: Add, tmp_path: Path, run: command.Run
) -> None:
    monkeypatch.setenv("SHELF", str(tmp_path))
    add(SCHEMES, "shelf", "tests.plugin.shelf_source:SHELF")
    save_file({"w": W}, tmp_path / "w.zt")
    with ztensor.open("shelf://w.zt") as reader:
        assert np.array_equal(reader.get_slice("w")[3:5], W[3:5])
    assert np.array_equal(load_file("shelf://w.zt")["w"], W)
    assert run("verify", "shelf://w.zt").code == 0
    assert run("convert", "shelf://w.zt", tmp_path / "w.npz").code == 0
    assert np.array_equal(load_file(tmp_path / "w.npz")["w"], W)


# --- A verb of the command ------------------------------------------------------------------


def test_a_verb(add: Add, tmp_path: Path, run: command.Run) -> None:
    verb = Verb("Count the objects of a file.", "tests.plugin.shelf_verb:count")
    add(VERBS["Write new files"], "count", verb)
    save_file({"a": W, "b": W}, tmp_path / "w.zt")
    ended = run("count", tmp_path / "w.zt")
    assert (ended.code, ended.out) == (0, "2 objects\n")
    assert "Count the objects of a file." in run("--help").out


# --- The page says so -----------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
DIFFS = re.findall(
    r"```diff\n--- (\S+)\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
)


@pytest.mark.parametrize(("place", "diff"), DIFFS, ids=[place for place, _ in DIFFS])
def test_the_lines_of_the_page_fit_the_code(place: str, diff: str) -> None:
    """Each change applies."""
    text = (ROOT / place).read_text("utf-8")
    for change in diff.split("@@\n"):
        lines = change.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        assert text.count(before) == 1, before
        text = text.replace(before, "".join(line[1:] for line in lines if line[0] != "-"))
    ast.parse(text)


def test_the_page_has_each_table() -> None:
    assert {place.removeprefix("src/ztensor/") for place, _ in DIFFS} == {
        "spec/encoding/__init__.py",
        "spec/layout/__init__.py",
        "spec/model/dtype.py",
        "formats/table.py",
        "io/formats.py",
        "quantization/recipes.py",
        "spec/digest.py",
        "io/frameworks.py",
        "io/source/stores.py",
        "cli/main.py",
    }
