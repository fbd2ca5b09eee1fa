"""A registry imports values on first use, and all places of our tables exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.refusals import refused
from ztensor.errors import Reason, UnsupportedError
from ztensor.ext import EMITTERS, ENCODINGS, LAYOUTS, Registry
from ztensor.spec.container import SCHEMAS

LAZY = """
import sys
from {package} import {table} as table
assert {name!r} in table and "nothing" not in table
assert not [name for name in sys.modules if name.startswith("{module}")]
assert table[{name!r}].name == {name!r}
assert "{module}" in sys.modules
"""


@pytest.mark.wing
@pytest.mark.parametrize("table", [SCHEMAS, EMITTERS, ENCODINGS, LAYOUTS])
def test_each_line_of_a_table_names_something(table: Registry[object, object]) -> None:
    assert len(table) == len(list(table)) > 0
    assert all(not isinstance(value, str) for value in table.values())
    for name, value in table.items():
        if isinstance(name, str):
            assert getattr(value, "name", name) == name


@pytest.mark.wing
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


@pytest.mark.wing
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
    absent: Registry[str, object] = Registry({"here": "math:pi", "gone": "no_such_package.x:y"})
    assert [name for name, _ in absent.usable()] == ["here"]
    absent["one"] = 1
    del absent["here"], absent["one"], absent["gone"]
    assert not absent


# --- Plugins: entry points of other distributions -------------------------------------------------

# Each test has its own group: entry points are read once for each group.
ENTRIES = """
[ztensor.tests.{group}]
pi = plug_{group}:MORE
half = plug_{group}:HALF
text = plug_{group}:TEXT
gone = plug_{group}:GONE
torn = plug_{group}_torn:X
ends = plug_{group}_ends:X
other = plug_{group}:OTHER
os:path = plug_{group}:HALF
"""
NAMED = "class Named(float):\n    name = 'another'\n"


def plugins(folder: Path, group: str) -> Registry[str, float]:
    """Install a distribution with plugins into a folder, and return a registry of its group."""
    info = folder / "some_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES.format(group=group))
    values = "MORE = 4.0\nHALF = 0.5\nTEXT = 'x'\nOTHER = Named(1)\n"
    (folder / f"plug_{group}.py").write_text(NAMED + values)
    (folder / f"plug_{group}_torn.py").write_text("1 / 0\n")
    (folder / f"plug_{group}_ends.py").write_text("raise SystemExit(3)\n")
    (folder / f"plug_{group}_trap.py").write_text("X = 1.0\n")
    return Registry({"pi": "math:pi"}, group=f"ztensor.tests.{group}", kind=float)


def test_a_plugin_is_found_by_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    table = plugins(tmp_path, "found")
    assert table.installed() == ["half", "text", "gone", "torn", "ends", "other", "os:path"]
    assert list(table) == ["pi"]
    assert "plug_found" not in sys.modules
    assert 3.1 < table["pi"] < 3.2  # a line of ours goes first, and loads no plugin
    assert "plug_found" not in sys.modules
    assert table["half"] == 0.5
    assert table["os:path"] == 0.5  # a name is compared, and no part of it is read
    assert "half" in table
    assert list(table) == ["pi", "half", "os:path"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("torn", "ZeroDivisionError: division by zero"),
        ("ends", "SystemExit: 3"),
        ("gone", "AttributeError: .*GONE"),
        ("text", "TypeError: it gives 'x', not a float"),
        ("other", "ValueError: it calls itself 'another'"),
    ],
)
def test_a_broken_plugin_is_named_with_its_distribution_and_the_cause(
    name: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    table = plugins(tmp_path, f"broken_{name}")
    for _ in range(2):
        message = f"plugin '{name}' of ztensor.tests.*distribution 'some-plugins'.*: {cause}"
        with refused(UnsupportedError, Reason.BROKEN_PLUGIN, match=message):
            table[name]
        assert name not in table
        assert table.get(name) is None


HOSTILE = [
    "plug_{}_trap",
    "plug_{}_trap:X",
    "plug_{}_trap.X",
    "os:system",
    "../plug_{}_trap",
    "half\0",
    "half ",
    " half",
    "HALF",
    "hal",
    "half:HALF",
    "half\nx = plug_{}_trap:X",
    "[ztensor.tests.{}]",
    "__class__",
    "",
    "\ud800",
    "half" * 1_000_000,
]


def test_a_hostile_name_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    table = plugins(tmp_path, "hostile")
    table.installed()
    before = set(sys.modules)
    for name in HOSTILE:
        hostile = name.format("hostile")
        assert hostile not in table
        assert table.get(hostile) is None
        with pytest.raises(KeyError):
            table[hostile]
    assert set(sys.modules) == before


def test_metadata_of_no_form_hides_plugins_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    table = plugins(tmp_path, "torn_metadata")
    (tmp_path / "some_plugins-1.0.dist-info" / "entry_points.txt").write_text("[a]\nno value\n")
    assert "half" not in table
    assert table.installed() == []
    assert 3.1 < table["pi"] < 3.2
    assert "cannot be listed" in caplog.text


# Listing plugins opens files of this name.
SILENT = """
import pathlib
import sys

asked = []
sys.addaudithook(
    lambda event, args: event == "open" and str(args[0]).endswith("entry_points.txt")
    and asked.append(args[0])
)
import ztensor

for path in map(pathlib.Path, sys.argv[1:]):
    with ztensor.open(path) as reader:
        for name in list(reader)[:20]:
            for read in reader.read, reader.__getitem__, lambda name: reader.get_slice(name)[:1]:
                try:
                    read(name)
                except ztensor.ZTensorError:
                    pass
        reader.verify()
    try:
        ztensor.convert(path, "out.zt", dtype="float16")
    except ztensor.ZTensorError:
        pass
    assert not asked, path
"""
CORPUS = Path(__file__).parents[1] / "corpus"


@pytest.mark.slow
def test_files_of_every_format_are_read_and_converted_without_metadata(tmp_path: Path) -> None:
    files = sorted((CORPUS / "foreign" / "accept").rglob("*.*"))
    paths = [path for path in files if path.suffix not in ("", ".json", ".distcp")]
    paths.append(CORPUS / "foreign" / "accept" / "dcp" / "stock")
    assert len({path.suffix for path in paths}) >= 8
    command = [sys.executable, "-W", "ignore", "-c", SILENT, *map(str, paths)]
    subprocess.run(command, check=True, cwd=tmp_path)
