"""The table of frameworks: one added from outside, and when modules are loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.ext import FRAMEWORKS, Framework
from ztensor.numpy import load_file, save_file

# A foreign framework: its arrays, and its adapter.
THEIRS = """
class Grid:
    def __init__(self, numbers, place="here"):
        self.numbers, self.place = numbers, place
class Word: ...
class Kind:
    def __init__(self, name):
        self.name = name
"""
ADAPTER = """
import numpy as np
from grids import Grid, Kind
def is_value(value):
    return isinstance(value, Grid)
def stored(value):
    return np.asarray(value.numbers)
def value_of(tensor, *, device="here"):
    return Grid(tensor.numpy().tolist(), device)
def element_type(dtype):
    return np.dtype(dtype.name) if isinstance(dtype, Kind) else None
"""


@pytest.fixture
def grids(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Add the framework `grids` by the one line its users write."""
    for name, text in {"grids": THEIRS, "grids_adapter": ADAPTER}.items():
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(text, vars(module))  # noqa: S102  # the foreign modules
    FRAMEWORKS["grids"] = Framework(("grids",), "grids_adapter", ("grids",))
    yield sys.modules["grids"]
    del FRAMEWORKS["grids"]


def test_values_of_a_framework_added_from_outside_are_saved(grids: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    save_file({"a": grids.Grid([[1.0, 2.0]]), "b": np.arange(3)}, path)
    assert load_file(path)["a"].tolist() == [[1.0, 2.0]]
    with ztensor.Writer(path) as writer:
        writer.write("a", grids.Grid([1, 2]))
        writer.write("parts", ztensor.Tensor({"data": grids.Grid([3])}))
        with writer.stream("rows", (2, 2), grids.Kind("float32")) as sink:
            sink.write(grids.Grid(np.array([[1, 2]], np.float32)))
            sink.write(np.array([[3, 4]], np.float32))
    loaded = load_file(path)
    assert {name: value.tolist() for name, value in loaded.items()} == {
        "a": [1, 2],
        "parts": [3],
        "rows": [[1.0, 2.0], [3.0, 4.0]],
    }


def test_values_of_a_framework_added_from_outside_are_given_back(
    grids: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.zt"
    save_file({"a": grids.Grid([1.5, 2.5])}, path)
    with ztensor.open(path) as reader:
        value = FRAMEWORKS["grids"].loaded().value_of(reader.read("a"), device="there")
    assert isinstance(value, grids.Grid)
    assert (value.numbers, value.place) == ([1.5, 2.5], "there")
    with ztensor.safe_open(path, framework="grids", device="there") as handle:
        assert handle.get_tensor("a").place == "there"
        assert handle.get_tensors()["a"].numbers == [1.5, 2.5]
        assert handle.get_slice("a")[1:].numbers == [2.5]


def test_values_of_a_framework_added_from_outside_are_filled(grids: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    save_file({"a": np.array([1.5, 2.5])}, path)
    target = grids.Grid(np.zeros(2))
    with ztensor.open(path) as reader:
        with pytest.raises(ztensor.errors.ArgumentTypeError):
            reader.read_into("a", target)

        def fill(file: Any, name: str, target: Any) -> None:
            target.numbers[:] = file.array(name, copy=False)

        FRAMEWORKS["grids"].loaded().fill = fill
        reader.read_into("a", target)
    assert target.numbers.tolist() == [1.5, 2.5]


def test_values_of_no_framework_are_refused(grids: Any, tmp_path: Path) -> None:
    with pytest.raises(ztensor.errors.ArgumentTypeError):
        save_file({"a": grids.Word()}, tmp_path / "m.zt")
    with ztensor.Writer(tmp_path / "m.zt") as writer:
        with pytest.raises(ztensor.errors.ArgumentValueError):
            writer.stream("a", (1,), grids.Word())
        derived = type("Own", (grids.Grid,), {})
        writer.write("b", derived([1.0]))  # a class derived from theirs is theirs
    assert load_file(tmp_path / "m.zt")["b"].tolist() == [1.0]


@pytest.mark.slow
def test_no_framework_is_loaded_for_what_is_none_of_its_values() -> None:
    program = """
import sys
import numpy as np
import ztensor, ztensor.numpy as zn
csr = ztensor.Tensor.csr([1.0], [0], [0, 1], (1, 3))
zn.load(zn.save({"a": np.zeros(3), "b": [1.0], "c": csr}))
print(*sorted({"torch", "jax", "scipy", "ztensor.torch", "ztensor.jax"} & set(sys.modules)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == ""


PLACES = [
    (line.packages[0], place)
    for line in FRAMEWORKS.values()
    for place in (line.adapter, line.trees)
    if place
]


@pytest.mark.slow
@pytest.mark.parametrize(("package", "place"), PLACES)
def test_each_module_of_the_table_may_be_the_first_that_is_imported(
    package: str, place: str
) -> None:
    pytest.importorskip(package)
    subprocess.run([sys.executable, "-W", "ignore", "-c", f"import {place}"], check=True)


PLUGIN = """
from ztensor.ext import Framework
GRIDS = Framework(("plugged_grids",), "plugged_grids_adapter", ("plugged_grids", "grid"))
"""
USE = """
import sys
import numpy as np
import ztensor
from ztensor.numpy import load_file, save_file
asked = []
sys.addaudithook(
    lambda event, args: event == "open" and str(args[0]).endswith("entry_points.txt")
    and asked.append(args[0])
)
save_file({"w": np.ones(3)}, "n.zt")
assert not asked
from plugged_grids import Grid
save_file({"a": Grid([[1.0, 2.0]])}, "m.zt")
assert load_file("m.zt")["a"].tolist() == [[1.0, 2.0]]
with ztensor.safe_open("m.zt", "plugged_grids") as file:
    assert file.get_tensor("a").numbers == [[1.0, 2.0]]
assert ztensor.safe_open("m.zt", "grid").framework == "plugged_grids"
assert asked
"""


def test_a_framework_of_another_distribution_is_found_by_its_classes(tmp_path: Path) -> None:
    info = tmp_path / "some_grids-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-grids\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ztensor.frameworks]\nplugged_grids = plugged_grids_line:GRIDS\n"
    )
    (tmp_path / "plugged_grids.py").write_text(THEIRS)
    (tmp_path / "plugged_grids_adapter.py").write_text(ADAPTER.replace("grids", "plugged_grids"))
    (tmp_path / "plugged_grids_line.py").write_text(PLUGIN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-c", USE], check=True, cwd=tmp_path, env=environment)
