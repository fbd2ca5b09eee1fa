"""The table of frameworks: one added from outside, and what the table loads when."""

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

# A framework of somebody else: its arrays, and the file that adapts it.
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
        exec(text, vars(module))  # noqa: S102  # the files somebody else has
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


def test_a_class_derived_from_theirs_is_theirs(grids: Any) -> None:
    class Own(grids.Grid):  # type: ignore[misc]  # a class that is made here
        pass

    assert FRAMEWORKS.adapter_of(Own([1])) is sys.modules["grids_adapter"]


def test_what_is_no_value_of_theirs_is_refused_as_ever(grids: Any, tmp_path: Path) -> None:
    assert FRAMEWORKS.adapter_of(grids.Word()) is None
    with pytest.raises(ztensor.errors.ArgumentTypeError):
        save_file({"a": grids.Word()}, tmp_path / "m.zt")


def test_an_element_type_of_nobody_is_refused(grids: Any, tmp_path: Path) -> None:
    with (
        ztensor.Writer(tmp_path / "m.zt") as writer,
        pytest.raises(ztensor.errors.ArgumentValueError),
    ):
        writer.stream("a", (1,), grids.Word())


@pytest.mark.parametrize("value", [1, 1.0, "x", b"x", None, [1], {"a": 1}, np.float32(1), object()])
def test_plain_values_are_nobodys(value: object) -> None:
    assert FRAMEWORKS.adapter_of(value) is None


@pytest.mark.wing
def test_sparse_matrices_of_scipy_are_values_too(tmp_path: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_array(np.eye(3, dtype=np.float32))
    save_file({"m": matrix, "n": sparse.coo_array(matrix)}, tmp_path / "m.zt")
    loaded: dict[str, Any] = load_file(tmp_path / "m.zt")
    assert (loaded["m"].to_scipy() != matrix).nnz == 0
    assert loaded["n"].format == "sparse_coo"


@pytest.mark.slow
def test_values_of_jax_are_saved_by_their_adapter(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    from jax.experimental import sparse

    values = {
        "dense": jax.numpy.arange(3.0),
        "sparse": sparse.BCOO.fromdense(jax.numpy.eye(2)),
    }
    save_file(values, tmp_path / "m.zt")
    loaded: dict[str, Any] = load_file(tmp_path / "m.zt")
    assert loaded["dense"].tolist() == [0.0, 1.0, 2.0]
    assert loaded["sparse"].to_dense().tolist() == [[1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(ztensor.NotRepresentableError) as caught:
        save_file({"key": jax.random.key(0)}, tmp_path / "n.zt")
    assert caught.value.object_name == "key"


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
