"""Print the size and the order of the source tree beside committed figures: part of `make lint`.

It fails where a figure is above the one in `tools/house.json`: a change that needs that writes the
file anew, with `--write`, and so says so. It needs Python alone.

Files are counted in the package that they will belong to (`MEMBERS`), so that a move alone changes
no figure.

| figure | counts |
| --- | --- |
| lines, code | all lines; those that are neither blank, comment nor docstring |
| page | lines of .js, .css and .html |
| core, sans_io | code of the core, which is `spec` and `io`; of `spec` alone |
| core_to_wing | imports from the core into a wing, type-only ones too |
| wing_to_core | names of the core that wings import, other than public ones |
| wing_to_wing | names that a wing imports from inside another one |
| ext | public names of the extension interface |
| files, over_500 | files; those above 500 lines |
| over_60 | functions above 60 lines, without their docstring |
| private | uses of `value._name`, where the module defines no such name |
| type_checking | imports of ours under `TYPE_CHECKING` |
| local_imports | imports of ours inside functions |
| string_modules | strings that name a module of ours |
| test_lines | lines of tests |
| patches | uses of `monkeypatch` and `mock.patch` in tests |
| test_internals | imports in tests of names of ours that are not public (`ztensor.testing` is) |
| open_modules | modules of ours loaded to open a file and read one tensor (with `--python`) |
| open_ms, ls_ms | time of that process, and of `ztensor ls`, above `import numpy` (likewise) |
"""

from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = Path(__file__).with_name("house.json")

SPEC, IO, FACES = "spec", "io", "faces"
CORE = (SPEC, IO)
WINGS = (
    "quantization", "formats", "remote", "distributed", "training", "convert", "insight", "cli",
    "v2", "testing", "conformance", "delta", "planes", "signing", "aio",
)  # fmt: skip
# Package of the target tree: the files and folders of today that belong there. The longest path
# that fits decides; files without one are of the core's `io`.
MEMBERS = {
    SPEC: "spec",
    "distributed": "divided",
    "training": "lightning accelerate trainer keras",
    "convert": "converting",
    "insight": "fleet",
    "cli": "installation __main__",
    FACES: "edit torch jax flax scipy dask transformers diffusers peft model_folder iterating "
    "handle vllm xarray",
}
HOME = {
    **{wing: wing for wing in WINGS},
    **{path: package for package, paths in MEMBERS.items() for path in paths.split()},
}
PUBLIC = re.compile(
    r"ztensor(\.(ext|errors|limits|typing|options|numpy|torch|jax|flax|scipy|dask|transformers"
    r"|diffusers|peft|edit|divided|distributed|fleet|lightning|accelerate|trainer|keras|vllm|xarray|v2|testing(\.\w+)?"
    r"|conformance|delta|signing|aio))?"
)
MODULE_NAME = re.compile(r"ztensor\.[a-z_0-9.]+(:\w+|\.[A-Z]\w+)?")
PATCH = re.compile(r"monkeypatch\.\w+\(|mock\.patch")
OF_NAMED_TUPLES = {"_replace", "_fields", "_asdict", "_make", "_field_defaults"}
OF_TORCH = {"_indices", "_values"}  # the documented names for a sparse tensor with equal positions
FIGURES = (
    "lines", "code", "page", "core", "sans_io", "core_to_wing", "wing_to_core", "wing_to_wing",
    "ext", "files", "over_500", "over_60", "private", "type_checking", "local_imports",
    "string_modules", "test_lines", "patches", "test_internals",
)  # fmt: skip
ROUNDS = 11

Figures = collections.Counter[str]


class Import(NamedTuple):
    """An import of ours: where it is, the module, and the name taken from it, "" for all of it."""

    node: ast.AST
    module: str
    name: str

    @property
    def target(self) -> str:
        """Return the module and the name as one dotted path."""
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def is_public(self) -> bool:
        """Return whether users may import it, too."""
        return bool(PUBLIC.fullmatch(self.target) or PUBLIC.fullmatch(self.module))


@dataclasses.dataclass(frozen=True)
class Module:
    """A file of the package.

    Attributes:
        name: dotted, without `.__init__`.
        home: the package of the target tree it belongs to.
        text: its source.
        tree: the same, parsed.
        is_package: whether it is an `__init__.py`.
    """

    name: str
    home: str
    text: str
    tree: ast.Module
    is_package: bool

    @classmethod
    def at(cls, path: Path, root: Path) -> Module:
        """Read the file of a package that begins at `root`."""
        relative = path.relative_to(root).with_suffix("")
        name = ".".join(("ztensor", *relative.parts)).removesuffix(".__init__")
        text = path.read_text("utf-8")
        return cls(name, home_of(relative), text, ast.parse(text), path.name == "__init__.py")


# --- The package --------------------------------------------------------------------------------


def home_of(relative: Path) -> str:
    """Return the package of the target tree for a path without suffix."""
    parts = relative.as_posix().removesuffix("/__init__").split("/")
    for length in range(len(parts), 0, -1):
        package = HOME.get("/".join(parts[:length]))
        if package:
            return package
    return IO


def measure_tree(package: Path) -> tuple[Figures, Figures]:
    """Return all figures of a source tree, and code lines by package of the target tree."""
    figures: Figures = collections.Counter(dict.fromkeys(FIGURES, 0))
    by_home: Figures = collections.Counter()
    modules = [Module.at(path, package) for path in sorted(package.rglob("*.py"))]
    for module in modules:
        lines, code = module.text.count("\n"), code_lines(module)
        by_home[module.home] += code
        figures.update(
            files=1,
            lines=lines,
            code=code,
            core=code if module.home in CORE else 0,
            sans_io=code if module.home == SPEC else 0,
            over_500=lines > 500,
            **measure_module(module),
        )
    figures.update(measure_imports(modules))
    for pattern in ("*.js", "*.css", "*.html"):
        figures["page"] += sum(_line_count(path) for path in package.rglob(pattern))
    figures.update(measure_tests(package.parents[1] / "tests"))
    return figures, by_home


def _line_count(path: Path) -> int:
    return path.read_text("utf-8").count("\n")


def _docstring(node: ast.AST) -> ast.stmt | None:
    """Return the statement that is a node's docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if not isinstance(node, kinds) or not node.body:
        return None
    first = node.body[0]
    is_text = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return first if is_text else None


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def code_lines(module: Module) -> int:
    """Return the number of lines with code."""
    skipped = {
        tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
        tokenize.COMMENT,
    }  # fmt: skip
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in skipped:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(module.tree):
        if docstring := _docstring(node):
            code.difference_update(_lines_of(docstring))
    return len(code)


def measure_module(module: Module) -> dict[str, int]:
    """Return the figures that one file has by itself."""
    own = _own_names(module.tree)
    found = {"over_60": 0, "private": 0, "string_modules": 0, "ext": 0}
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = _docstring(node)
            length = len(_lines_of(node)) - (len(_lines_of(docstring)) if docstring else 0)
            found["over_60"] += length > 60
        elif isinstance(node, ast.Attribute):
            found["private"] += _is_private_use(node, own, module.home)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found["string_modules"] += MODULE_NAME.fullmatch(node.value) is not None
    if module.name == "ztensor.ext":
        found["ext"] = len(_exported(module.tree))
    return found


def _own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines: functions, classes, variables, own attributes."""
    found = OF_NAMED_TUPLES | OF_TORCH
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store) and _is_self(node.value):
                found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _is_private_use(node: ast.Attribute, own: set[str], package: str) -> bool:
    """Return whether a private attribute of something else is used.

    Not counted in `distributed` and `training`, which use the private names of other libraries.
    """
    if not node.attr.startswith("_") or node.attr.startswith("__") or node.attr in own:
        return False
    value = node.value
    is_super = isinstance(value, ast.Call) and ast.unparse(value.func) == "super"
    return not _is_self(value) and not is_super and package not in ("distributed", "training")


def _exported(tree: ast.Module) -> list[ast.expr]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else []
    return []


# --- Imports ------------------------------------------------------------------------------------


def imports(tree: ast.Module, name: str, *, is_package: bool) -> Iterator[Import]:
    """Yield every import of ours in a module, relative ones and `import a.b as c` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = name.split(".") if is_package else name.split(".")[:-1]
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            if base == "ztensor" or base.startswith("ztensor."):
                yield from (Import(node, base, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("ztensor."):
                    yield Import(node, alias.name, "")


def measure_imports(modules: list[Module]) -> dict[str, int]:
    """Return the figures of imports between the packages of the target tree."""
    homes = {module.name: module.home for module in modules}
    found = {"type_checking": 0, "local_imports": 0, "core_to_wing": 0}
    into_core: set[tuple[str, str]] = set()
    across: set[tuple[str, str, str]] = set()
    for module in modules:
        if module.name == "ztensor":
            continue  # it forwards every public name
        lazy, hints = _inside(module.tree)
        for one in imports(module.tree, module.name, is_package=module.is_package):
            found["type_checking"] += id(one.node) in hints
            found["local_imports"] += id(one.node) in lazy
            there = homes.get(one.target) or homes.get(one.module, IO)
            if there == module.home or one.is_public:
                continue
            if module.home in CORE:
                found["core_to_wing"] += there not in CORE
            elif there in CORE:
                into_core.add((one.module, one.name))
            elif FACES not in (module.home, there):
                across.add((module.home, one.module, one.name))
    return {**found, "wing_to_core": len(into_core), "wing_to_wing": len(across)}


def _inside(tree: ast.Module) -> tuple[set[int], set[int]]:
    """Return the ids of nodes inside functions, and of those under `if TYPE_CHECKING`."""
    lazy: set[int] = set()
    hints: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lazy.update(map(id, ast.walk(node)))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            hints.update(map(id, ast.walk(node)))
    return lazy, hints


def measure_tests(folder: Path) -> dict[str, int]:
    """Return the figures of a folder of tests."""
    found = {"test_lines": 0, "patches": 0, "test_internals": 0}
    for path in folder.rglob("*.py"):
        text = path.read_text("utf-8")
        found["test_lines"] += text.count("\n")
        found["patches"] += len(PATCH.findall(text))
        ours = imports(ast.parse(text), "tests.x", is_package=False)
        found["test_internals"] += sum(not one.is_public for one in ours)
    return found


# --- A process ----------------------------------------------------------------------------------

SAVING = """
import numpy as np
from ztensor.numpy import save_file
tensors = {f"layers.{i}.weight": np.zeros((8, 8), np.float32) for i in range(147)}
save_file(tensors, "x.zt")
"""
OPENING = """
import sys, ztensor
with ztensor.open("x.zt") as f:
    f["layers.3.weight"].sum()
print(sum(name.split(".")[0] == "ztensor" for name in sys.modules))
"""


def measure_process(python: str) -> dict[str, int]:
    """Return the figures of new processes of an interpreter that has the package."""
    commands = {
        "numpy": [python, "-c", "import numpy"],
        "open_ms": [python, "-c", OPENING],
        "ls_ms": [python, "-m", "ztensor", "ls", "x.zt"],
    }
    seconds = collections.defaultdict[str, list[float]](list)
    with tempfile.TemporaryDirectory() as folder:

        def run(command: list[str]) -> str:
            done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
            return done.stdout

        run([python, "-c", SAVING])
        loaded = int(run(commands["open_ms"]))
        for _ in range(ROUNDS):
            for name, command in commands.items():
                begun = time.perf_counter()
                run(command)
                seconds[name].append(time.perf_counter() - begun)
    above = {name: statistics.median(times) for name, times in seconds.items()}
    numpy = above.pop("numpy")
    milliseconds = {name: round(1000 * (median - numpy)) for name, median in above.items()}
    return {"open_modules": loaded, **milliseconds}


# --- The command --------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; return 1 if one rose above the committed figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path, nargs="?", default=ROOT / "src" / "ztensor")
    parser.add_argument("--committed", type=Path, default=COMMITTED, help="the file of figures")
    parser.add_argument("--write", action="store_true", help="write that file anew")
    parser.add_argument("--packages", action="store_true", help="print code lines by package, too")
    parser.add_argument("--python", help="an interpreter that has the package, for its processes")
    given = parser.parse_args(arguments)
    figures, by_home = measure_tree(given.package)
    if given.write:
        text = json.dumps({name: figures[name] for name in FIGURES}, indent=2)
        given.committed.write_text(text + "\n", "utf-8")
    committed: dict[str, int] = json.loads(given.committed.read_text("utf-8"))
    if unknown := committed.keys() - figures.keys():
        parser.error(f"{given.committed} has unknown figures: {', '.join(sorted(unknown))}")
    if given.python:
        figures.update(measure_process(given.python))
    print(f"{'':15}     now  committed")
    for name, value in figures.items():
        known = committed.get(name)
        note = "" if known is None or known == value else f"{value - known:+,}"
        print(f"{name:15} {value:7,}    {'' if known is None else f'{known:7,}'}  {note}".rstrip())
    if given.packages:
        for name, lines in by_home.most_common():
            print(f"  {name:14} {lines:6,}")
    risen = [name for name, known in committed.items() if figures[name] > known]
    fallen = [name for name, known in committed.items() if figures[name] < known]
    if risen or fallen:
        print(f"to commit these figures: python {Path(__file__).relative_to(ROOT)} --write")
    if risen:
        print(f"risen: {', '.join(risen)}")
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main())
