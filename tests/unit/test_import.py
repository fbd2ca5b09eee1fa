from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ztensor

HEAVY = [
    "numpy", "ml_dtypes", "torch", "jax", "scipy", "h5py", "onnx", "safetensors", "zstandard",
    "crc32c", "xxhash", "cbor2", "tqdm", "asyncio", "multiprocessing",
]  # fmt: skip

# What opening a file and reading a tensor of it needs nothing of.
NOT_TO_READ = [
    "cli", "conformance", "converting", "distributed", "formats", "insight", "quantization",
    "remote", "testing", "training", "io.edit", "io.tensor", "io.writing", "numpy", "threads",
]  # fmt: skip


def fresh(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_importing_costs_next_to_nothing() -> None:
    program = f"""
import sys
before = set(sys.modules)
import ztensor
print(*sorted(set({HEAVY}) & (set(sys.modules) - before)))
print(*sorted(name for name in sys.modules if name.startswith("ztensor.")))
ztensor.Limits
ztensor.ZTensorError
print(*sorted(set({HEAVY}) & (set(sys.modules) - before)))
"""
    assert fresh(program).splitlines() == ["", "", ""]


@pytest.mark.slow
def test_a_library_is_loaded_when_it_is_first_needed() -> None:
    """Raw arrays need NumPy, and of crc32c its extension: its package reads all metadata."""
    program = f"""
import sys
import ztensor.numpy as z
import numpy as np
data = z.save({{"w": np.zeros(3)}}, checksum=None, version="0.1.0")
assert z.load(data)["w"].shape == (3,)
print(*sorted(set({HEAVY}) & set(sys.modules) - {{"numpy"}}))
assert z.load(z.save({{"w": np.zeros(3)}}))["w"].shape == (3,)
print(*sorted(set({HEAVY} + ["importlib.metadata"]) & set(sys.modules) - {{"numpy"}}))
"""
    assert fresh(program).splitlines() == ["", ""]


@pytest.mark.parametrize("name", sorted(ztensor.__all__))
def test_every_public_name_loads(name: str) -> None:
    value = getattr(ztensor, name)
    assert value is not None
    assert getattr(ztensor, name) is value
    home = getattr(value, "__module__", "ztensor")
    assert home.startswith("ztensor")
    if name != "__version__":
        assert getattr(importlib.import_module(home), name) is value


def test_names_are_listed_once_and_in_order() -> None:
    assert ztensor.__all__ == sorted(set(ztensor.__all__))
    assert set(ztensor.__all__) <= set(dir(ztensor))
    assert "numpy" in dir(ztensor)


def test_a_star_import_gives_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from ztensor import *", namespace)  # noqa: S102  # the only way to try it in a function
    assert set(ztensor.__all__) <= set(namespace)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError):
        ztensor.no_such_name  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.slow
def test_submodules_are_reached_by_attribute() -> None:
    assert fresh("import ztensor; print(ztensor.numpy.save.__module__)").strip() == "ztensor.numpy"
    assert isinstance(ztensor.errors, types.ModuleType)


def test_a_plain_file_loads_only_what_reads_it(tmp_path: Path) -> None:
    """Nor does looking at one model load what compares two."""
    program = f"""
import sys
import numpy as np, ztensor
from ztensor.numpy import save_file
save_file({{"w": np.zeros((4, 4))}}, {str(tmp_path / "m.zt")!r})
ztensor.open({str(tmp_path / "m.zt")!r}).verify()
ztensor.examine({str(tmp_path / "m.zt")!r})
rooms = ("divided", "tree", "states", "analysis.beside", "analysis.comparing", "edit", "converting")
print(*(room for room in rooms if "ztensor." + room in sys.modules))
"""
    assert fresh(program).splitlines() == [""]


def test_opening_a_file_and_reading_one_tensor_loads_little(tmp_path: Path) -> None:
    program = f"""
import sys
import numpy as np, ztensor
from ztensor.numpy import save
data = save({{f"layers.{{i}}.weight": np.zeros((8, 8)) for i in range(147)}})
open({str(tmp_path / "m.zt")!r}, "wb").write(data)
"""
    fresh(program)
    program = f"""
import sys
import ztensor
ztensor.open({str(tmp_path / "m.zt")!r})["layers.3.weight"].sum()
ours = [name for name in sys.modules if name.split(".")[0] == "ztensor"]
print(len(ours))
parts = {{".".join(name.split(".")[1:3]) for name in ours}}
print(*sorted(parts & set({NOT_TO_READ})))
print(*sorted(set({HEAVY}) & set(sys.modules) - {{"numpy"}}))
"""
    count, parts, heavy = fresh(program).splitlines()
    assert int(count) <= 60
    assert parts == ""
    assert heavy == ""


EACH_ALONE = """
import importlib, os, pathlib, sys
for heavy in ("numpy", "scipy.sparse", "torch.distributed.checkpoint", "jax", "obstore"):
    try:
        importlib.import_module(heavy)  # once, for all that need it
    except ImportError:
        pass
import ztensor
from ztensor.errors import MissingDependencyError
home = pathlib.Path(ztensor.__file__).parent
names = sorted(
    ".".join(("ztensor", *path.relative_to(home).with_suffix("").parts)).removesuffix(".__init__")
    for path in home.rglob("*.py")
    if path.name != "__main__.py"
)
for name in names:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except MissingDependencyError:
            pass
        except ImportError as error:
            if error.name is None or error.name.split(".")[0] == "ztensor":
                print(name, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(len(names))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_every_module_can_be_the_first_that_is_imported() -> None:
    """No import runs in a circle through the `__init__` of a package."""
    *circular, count = fresh(EACH_ALONE).splitlines()
    assert not circular
    assert int(count) > 100
