"""The maps of the tree are true: what they name is there, and what is there is named."""

from __future__ import annotations

import ast
import graphlib
import importlib.util
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ztensor"
ROOMS = sorted(path.parent for path in SOURCE.rglob("*/__init__.py"))
PAGES = [ROOT / "docs" / "project" / "architecture.md", ROOT / "CONTRIBUTING.md"]
NAMED = re.compile(r"`([\w./*-]+\.(?:py|md|toml|json))`")
# Names of files that are no part of the tree: examples of what a user or a contributor has.
ELSEWHERES = frozenset(["x.json"])


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(room / "__init__.py" for room in ROOMS), SOURCE / "__init__.py"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_file_a_map_names_is_there(page: Path) -> None:
    text = page.read_text("utf-8")
    if page.suffix == ".py":
        text = text.split('"""')[1] if '"""' in text else ""
    for name in NAMED.findall(text):
        if name in ELSEWHERES or "*" in name:
            continue
        places = (page.parent / name, ROOT / name, SOURCE / name)
        # The map of a room speaks of the room; a page of the whole tree.
        folders = [page.parent] if page.suffix == ".py" else [SOURCE, ROOT / "tests", ROOT / "docs"]
        anywhere = "/" not in name and any(any(folder.rglob(name)) for folder in folders)
        assert anywhere or any(place.exists() for place in places), f"{page.name} names {name}"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(SOURCE)))
def test_every_room_is_on_the_map(room: Path) -> None:
    text = (ROOT / "docs" / "project" / "architecture.md").read_text("utf-8")
    names = (f"{room.relative_to(SOURCE).as_posix()}/", f"`{room.name}/")
    assert any(name in text for name in names), f"architecture.md does not name {room.name}/"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(SOURCE)))
def test_the_map_of_a_room_names_all_of_it(room: Path) -> None:
    if room == SOURCE / "cli":  # a file for each verb, and `main.py` lists these
        return
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    named = {name.rstrip("/").rpartition("/")[2] for name in re.findall(r"`([\w./]+)`", text)}
    there = {path.name for path in room.glob("*.py")} | {
        path.parent.name for path in room.glob("*/__init__.py")
    }
    assert there - named <= {"__init__.py", "__main__.py"}


def test_the_page_of_the_core_has_each_of_its_files() -> None:
    page = (ROOT / "docs" / "project" / "core.md").read_text("utf-8")
    made = runpy.run_path(str(ROOT / "docs" / "make_core.py"))["page"]()
    counts = re.compile(r"[\d,]+\s+lines, [\d,]+")  # from `make suite SUITE=pages`
    assert counts.sub("-", page) == counts.sub("-", made), "make suite SUITE=pages"


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, names: frozenset[str]) -> set[str]:
    """Return which modules one imports: at its top, within a function, or for annotations."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update(
                whole if (whole := f"{node.module}.{alias.name}") in names else node.module
                for alias in node.names
            )
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found & names - {_name(path)}


# They only forward names, each loaded when it is used.
FORWARDING = frozenset(["ztensor", "ztensor.ext"])
# Objects check themselves by a module that reads them. Nothing is added to this list.
CHECKS_OF_THEMSELVES = [
    ("ztensor.io.reading.file", "ztensor.io.reading.verify"),
    ("ztensor.io.shards.objects", "ztensor.io.shards.verifying"),
    ("ztensor.distributed.opened", "ztensor.distributed.verifying"),
]


def test_no_imports_run_in_a_circle() -> None:
    """Imports for annotations count, too."""
    paths = list(SOURCE.rglob("*.py"))
    names = frozenset(map(_name, paths)) - FORWARDING
    graph = {_name(path): _imported(path, names) for path in paths if _name(path) in names}
    assert sum(map(len, graph.values())) > len(names)
    for name, check in CHECKS_OF_THEMSELVES:
        graph[name].remove(check)  # raises KeyError if it is not needed any more
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which says where


# --- Who may import whom --------------------------------------------------------------------------

# What is at the top is the core's, unless it is a line of this: a framework or a package of a wing.
WINGS = frozenset([
    "accelerate", "aio", "cli", "conformance", "converting", "dask", "delta", "diffusers",
    "distributed", "divided", "edit", "fleet", "flax", "formats", "insight", "jax", "keras",
    "lightning", "model_folder", "peft", "planes", "quantization", "remote", "scipy", "signing",
    "torch", "trainer", "training", "transformers", "v2", "vllm", "xarray",
])  # fmt: skip
# The public door and its list of public names, and the interface and the command's entry.
DOORS = frozenset(["__init__.py", "__main__.py", "ext.py"])


def _home(name: str) -> str:
    parts = name.split(".")
    return parts[1] if parts[0] == "ztensor" and len(parts) > 1 else ""


def _every_import(path: Path) -> set[str]:
    """Return what a file imports, for types, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "ztensor":
                found.update(f"ztensor.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def _core() -> list[Path]:
    paths = [path for path in SOURCE.rglob("*.py") if _home(_name(path)) not in WINGS]
    return [path for path in paths if path.parent != SOURCE or path.name not in DOORS]


def test_the_core_imports_no_wing_not_even_for_types() -> None:
    paths = [path for path in _core() if "testing" not in path.parts]
    assert len(paths) > 100
    found = {
        f"{_name(path)} imports {name}"
        for path in paths
        for name in _every_import(path)
        if _home(name) in WINGS
    }
    assert found == set()


# What wings still take of the core past its public names and `ztensor.ext`. Nothing is added.
PAST_THE_DOOR = {
    "ztensor.io.edit.find",
    "ztensor.threads.background.exit_with",
}


def test_wings_see_public_names_and_the_interface_alone() -> None:
    """Imports for types count. What is public is what tools/house.py says."""
    house = runpy.run_path(str(ROOT / "tools" / "house.py"))
    modules = [house["Module"].at(path, SOURCE) for path in SOURCE.rglob("*.py")]
    homes = {module.name: module.home for module in modules}
    found = {
        one.target
        for module in modules
        if module.home not in house["CORE"] and module.name != "ztensor"
        for one in house["imports"](module.tree, module.name, is_package=module.is_package)
        if not one.is_public
        and (homes.get(one.target) or homes.get(one.module, "io")) in house["CORE"]
    }
    assert found == PAST_THE_DOOR


@pytest.mark.parametrize("folder", ["fuzz", "benchmarks", "docs", "examples"])
def test_what_programs_beside_the_package_take_of_it_is_there(folder: str) -> None:
    """No checker of types reads them, and some are run by hand."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
                "ztensor"
            ):
                continue
            try:
                module = importlib.import_module(str(node.module))
            except ImportError:
                if importlib.util.find_spec(str(node.module)) is not None:
                    continue  # its library is not installed
                raise
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                assert hasattr(module, alias.name) or importlib.util.find_spec(whole), path
