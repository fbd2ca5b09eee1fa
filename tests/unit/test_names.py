"""Every name that a page, a test of types or a string of the source says is there."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ztensor
from ztensor.aliases import FUNCTIONS, ReaderAliases, WriterAliases
from ztensor.hints import HINTS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
TYPES = sorted(ROOT.glob("tests/typing/*.py"))


# Attributes of HDF5 files, and groups of entry points.
NO_MODULES = {
    f"ztensor.{name}"
    for name in (
        "encodings", "format", "formats", "frameworks", "layouts", "logical_types", "openers",
        "shape", "sources", "type", "verbs",
    )
}  # fmt: skip


def resolved(text: str) -> Any:
    """Return the object of `ztensor.x.y`, `ztensor.x:y` or `ztensor.x.y.Class`.

    Raises:
        AttributeError: the name does not exist.
        MissingDependencyError: the library that a module is for is not installed.
    """
    steps = re.split("[.:]", text)
    found: Any = importlib.import_module(steps[0])
    for at, step in enumerate(steps[1:], 2):
        if isinstance(found, ModuleType) and hasattr(found, "__path__"):
            names = {one.name for one in pkgutil.iter_modules(found.__path__)}
            if step in names and not (at == len(steps) and step in getattr(found, "__all__", ())):
                found = importlib.import_module(".".join(steps[:at]))
                continue
        found = getattr(found, step)
    return found


def require(text: str) -> None:
    try:
        resolved(text)
    except ztensor.MissingDependencyError as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "jax"):
            raise
        pytest.skip(str(error))


# --- Strings of the source ----------------------------------------------------------------------

NAME = re.compile(r"ztensor(\.[a-z_0-9]+)+((:|\.)\w+)*")


def strings() -> Iterator[tuple[str, str]]:
    for root in ("src", "benchmarks", "docs", "examples", "fuzz"):
        for path in sorted((ROOT / root).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and NAME.fullmatch(text) and text not in NO_MODULES:
                    yield text, str(path.relative_to(ROOT))


STRINGS = dict(strings())


@pytest.mark.parametrize("text", sorted(STRINGS))
def test_a_string_that_names_a_module_of_ours_is_right(text: str) -> None:
    require(text)


def test_strings_are_found() -> None:
    assert "ztensor.spec.model.dtype" in STRINGS
    assert len(STRINGS) > 100
    for wrong in ("ztensor.edit.nothing", "ztensor.nothing", "ztensor.edit:Nothing"):
        with pytest.raises(AttributeError):
            resolved(wrong)


def test_no_name_of_a_module_is_put_together() -> None:
    """A name in pieces is one that no test can follow."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                assert not isinstance(node.args[0], (ast.JoinedStr, ast.BinOp)), (path, node.lineno)


# --- Documented names ---------------------------------------------------------------------------

CHAIN = re.compile(r"(?<![\w./-])ztensor(?:\.[A-Za-z_]\w*)+(?![\w/-])")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Files in commands and examples, and names that a page calls removed.
NOT_NAMES = {"ztensor.zt", "ztensor.TORCH_AVAILABLE", *NO_MODULES}


def imported(source: str) -> Iterator[str]:
    """Yield the names that a program imports from the library."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a sketch with `...` in its calls
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ztensor":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("ztensor."))


def documented() -> Iterator[tuple[str, str]]:
    for page in [*PAGES, *TYPES]:
        text = page.read_text("utf-8")
        programs = [text] if page.suffix == ".py" else []
        programs += [program for word, program in FENCE.findall(text) if word == "python"]
        names = [name for program in programs for name in imported(program)]
        prose = FENCE.sub(lambda block: block[2] if block[1] == "python" else "", text)
        if "import ztensor.v2 as ztensor" in text:  # programs for the package of 2.x
            prose = ""
        names += [name.removesuffix(".py") for name in CHAIN.findall(prose)]
        yield from ((name, page.name) for name in names)


DOCUMENTED = dict(documented())


@pytest.mark.parametrize("name", sorted(DOCUMENTED.keys() - NOT_NAMES))
def test_a_documented_name_is_there(name: str) -> None:
    require(name)


CLASSES = {
    name: thing
    for module in (ztensor, ztensor.io, ztensor.training, ztensor.insight, ztensor.converting)
    for name in module.__all__
    if inspect.isclass(thing := getattr(module, name))
}


def members() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text("utf-8")
        for kind, member in re.findall(r"`(?:ztensor\.)?([A-Z]\w+)\.([a-z]\w*)", text):
            if kind in CLASSES:
                yield f"{kind}.{member}", page.name


@pytest.mark.parametrize("name", sorted(dict(members())))
def test_a_documented_method_is_there(name: str) -> None:
    kind, member = name.split(".")
    assert hasattr(CLASSES[kind], member) or member in (inspect.getdoc(CLASSES[kind]) or "")


# --- Names of 1.2, and those that are elsewhere -------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_1_2_is_another_name(name: str) -> None:
    assert getattr(ztensor, name) is resolved(f"{FUNCTIONS[name]}.{name}")
    assert name not in ztensor.__all__


def test_the_page_on_compatibility_has_every_alias() -> None:
    page = (ROOT / "docs" / "concepts" / "versions.md").read_text("utf-8")
    methods = [
        f"{kind.__name__.removesuffix('Aliases')}.{name}"
        for kind in (ReaderAliases, WriterAliases)
        for name in vars(kind)
        if not name.startswith("_")
    ]
    for name in [*(f"ztensor.{one}" for one in FUNCTIONS), *methods]:
        assert f"`{name}`" in page


@pytest.mark.parametrize("name", HINTS["ztensor"])
def test_what_a_hint_names_is_there(name: str) -> None:
    """Where it is said that modules have the very name, they have it."""
    text = HINTS["ztensor"][name]
    for place in CHAIN.findall(text):
        require(f"{place}.{name}" if "have one" in text or "has one" in text else place)
