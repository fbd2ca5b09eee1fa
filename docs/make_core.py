"""Write `docs/project/core.md`: the files of the core in reading order, a sentence for each.

    make suite SUITE=pages

The order is that in which the docstring of each package's `__init__` names its files; the sentence
is the first of a file's own docstring. A file that is named nowhere is an error.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import house  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).with_name("project") / "core.md"
SOURCE = ROOT / "src" / "ztensor"
# The modules at the top and the packages, each after what it needs.
ORDER = [
    "showing", "errors", "arguments", "guard", "limits", "registry", "locks", "buffers", "accepted",
    "typing", "options", "hints", "interactive", "spec", "threads", "io", "aliases", "numpy", "ext",
    "__init__",
]  # fmt: skip
NAMED = re.compile(r"`((?:\w+/)*\w+(?:\.py|/))`")
BEGINNING = """\
# The core in an afternoon

The core is `spec/`, what bytes mean, and `io/`, files of them, with a few modules at the top. These
are all of its files, in an order in which each needs next to nothing that comes later. They have
{lines:,} lines, {code:,} of them code. The ways of calls through them are in
[Architecture](architecture.md).
"""


def docstring(path: Path) -> str:
    """Return the docstring of a file."""
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def in_order(path: Path) -> Iterator[Path]:
    """Yield a file; or the files of a package as its docstring names them.

    Raises:
        ValueError: it does not name all of them.
    """
    if not path.is_dir():
        yield path
        return
    start = path / "__init__.py"
    yield start
    left = {
        one
        for one in path.iterdir()
        if (one.suffix == ".py" and one != start) or (one / "__init__.py").exists()
    }
    for one in (path / name for name in NAMED.findall(docstring(start))):
        if one in left:
            left.remove(one)
            yield from in_order(one)
    if left:
        missing = ", ".join(sorted(one.name for one in left))
        raise ValueError(f"the docstring of {start.relative_to(SOURCE)} does not name {missing}")


def chapters() -> Iterator[tuple[str, list[Path]]]:
    """Yield the title of each part of the page, and its files.

    Raises:
        ValueError: a file of the core is in none.
    """
    found: dict[str, list[Path]] = {}
    for name in ORDER:
        path = SOURCE / name
        for file in in_order(path if path.is_dir() else path.with_suffix(".py")):
            parent = file.parent.relative_to(SOURCE).as_posix()
            title = f"{parent}/" if parent != "." else "At the top"
            found.setdefault(title, []).append(file)
    core = {
        path
        for path in SOURCE.rglob("*.py")
        if house.home_of(path.relative_to(SOURCE).with_suffix("")) in house.CORE
    }
    if missing := core - {path for files in found.values() for path in files}:
        raise ValueError(f"of the core, and in no part: {sorted(map(str, missing))}")
    yield from found.items()


def page() -> str:
    """Return the page."""
    parts = list(chapters())
    modules = [house.Module.at(path, SOURCE) for _, files in parts for path in files]
    lines = [
        BEGINNING.format(
            lines=sum(module.text.count("\n") for module in modules),
            code=sum(map(house.code_lines, modules)),
        )
    ]
    for title, files in parts:
        lines += [f"## {title}" if title == "At the top" else f"## `{title}`", ""]
        lines += ["| file | what is in it |", "| --- | --- |"]
        for path in files:
            sentence = docstring(path).partition("\n")[0].replace("|", "\\|")
            lines.append(f"| `{path.name}` | {sentence} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"Written: {PAGE}")
