"""Files, folders and objects of stores are removed in one module: this reads all others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ztensor

PACKAGE = Path(ztensor.__file__).parent
DOOR = PACKAGE / "io" / "source" / "removal.py"
STORES = "remote/places.py"  # called by the door for an object of a store
# Names that remove files whatever they are called on, and those that do as names of these modules.
ALWAYS = {"unlink", "rmdir", "rmtree", "removedirs", "delete_async"}
OF_MODULES = {
    "remove": ("os", "nt", "posix", "store", "store_of"),
    "delete": ("obstore", "library", "store"),
}


def removals(text: str) -> Iterator[str]:
    """Yield the removals of files in a module's text, and references to such functions."""
    tree = ast.parse(text)
    modules = {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname
    }
    for node in ast.walk(tree):
        found = None
        if isinstance(node, ast.Attribute):
            holder = node.value.func if isinstance(node.value, ast.Call) else node.value
            last = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
            last = modules.get(last, last)
            if node.attr in ALWAYS or last in OF_MODULES.get(node.attr, ()):
                found = node.attr
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            wrong = names & ALWAYS or {
                name for name in names if node.module in OF_MODULES.get(name, ())
            }
            found = ", ".join(sorted(wrong))
        elif isinstance(node, ast.Constant) and node.value in ALWAYS:  # for getattr
            found = str(node.value)
        if found:
            yield f"line {getattr(node, 'lineno', 0)}: {found}"


@pytest.mark.parametrize(
    ("text", "is_removal"),
    [
        ("import os as system\nsystem.remove(path)", True),
        ("from os import remove as forget", True),
        ("Path(path).unlink(missing_ok=True)", True),
        ("getattr(os, 'unlink')(path)", True),
        ("store_of(remote.url).remove(remote)", True),
        ("names.remove(name)", False),
        ("delete(paths)", False),
    ],
)
def test_a_planted_removal_is_seen(text: str, is_removal: bool) -> None:
    assert bool(list(removals(text))) is is_removal


def test_files_are_removed_in_one_module_only() -> None:
    assert list(removals(DOOR.read_text("utf-8")))
    found = {
        path.relative_to(PACKAGE).as_posix(): list(removals(path.read_text("utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != DOOR
    }
    assert all(line.endswith(": delete") for line in found.pop(STORES, []))
    assert {path: lines for path, lines in found.items() if lines} == {}
