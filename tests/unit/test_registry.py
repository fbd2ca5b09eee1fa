"""A registry imports what a name stands for when it is used, and each place in ours exists."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ztensor.registry import Registry
from ztensor.spec.container import EMITTERS, SCHEMAS
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.layout import LAYOUTS

LAZY = """
import sys
from {package} import {table} as table
assert {name!r} in table and "nothing" not in table
assert not [name for name in sys.modules if name.startswith("{module}")]
assert table[{name!r}].name == {name!r}
assert "{module}" in sys.modules
"""


@pytest.mark.parametrize("table", [SCHEMAS, EMITTERS, ENCODINGS, LAYOUTS])
def test_each_line_of_a_table_names_something(table: Registry[object, object]) -> None:
    assert len(table) == len(list(table)) > 0
    assert all(not isinstance(value, str) for value in table.values())


@pytest.mark.parametrize("table", [ENCODINGS, LAYOUTS])
def test_things_are_called_as_their_line(table: Registry[str, object]) -> None:
    assert [getattr(value, "name", None) for value in table.values()] == list(table)


@pytest.mark.parametrize(
    ("package", "table", "name", "module"),
    [
        ("ztensor.spec.encoding", "ENCODINGS", "zstd", "ztensor.spec.encoding.zstd.codec"),
        ("ztensor.spec.layout", "LAYOUTS", "sparse_csr", "ztensor.spec.layout.sparse_csr"),
        ("ztensor.spec.layout", "LAYOUTS", "zt.mx/1", "ztensor.quantization.group_profiles"),
    ],
)
def test_a_name_that_nobody_uses_loads_nothing(
    package: str, table: str, name: str, module: str
) -> None:
    text = LAZY.format(package=package, table=table, name=name, module=module)
    subprocess.run([sys.executable, "-c", text], check=True)


def test_a_family_is_loaded_for_its_names_alone() -> None:
    table: Registry[str, object] = Registry(
        {"pi": "math:pi"}, families={"gguf.": "ztensor.quantization.gguf_blocks:GGUF_LAYOUTS"}
    )
    assert "gguf" not in table
    assert "gguf.q4_0" in table
    assert "gguf.no_such" not in table
    assert next(iter(table)) == "pi"


def test_a_line_that_names_nothing_says_which() -> None:
    table: Registry[str, object] = Registry({"a": "math:no_such", "b": "no_such_module:x"})
    with pytest.raises(AttributeError, match="no_such"):
        table["a"]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        table["b"]
    with pytest.raises(KeyError):
        table["c"]


def test_names_are_added_and_taken_away() -> None:
    table: Registry[str, object] = Registry({})
    table["one"] = 1
    assert dict(table) == {"one": 1}
    del table["one"]
    assert not table
