"""Read every module of ztensor so that any one comparison in it can be turned: `<` into `<=`.

`install()` does so for what this process imports from then on, and for the processes it starts. A
comparison is named by its module and its number there: `reading/slices.py:12`. None is turned until
`turn()` names one. `hits()` gives those that were come by since it was asked last.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

SOURCE = Path(__file__).resolve().parents[1] / "src" / "ztensor"
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
# What the children of a process that turns a comparison are told by.
VARIABLE = "ZTENSOR_TURNED"
_QUESTION = "__ztensor_is_turned__"


class Mutant(NamedTuple):
    """One comparison of a module, to be turned.

    Attributes:
        module: the module's path below `src/ztensor`.
        number: which comparison of the module it is.
        line: number of the line where it begins.
        written: the comparison as it is written, its two sides with it.
        turned: the same, turned.
    """

    module: str
    number: int
    line: int
    written: str
    turned: str

    @property
    def name(self) -> str:
        """What `turn` calls it."""
        return f"{self.module}:{self.number}"


class _Turning(ast.NodeTransformer):
    """Puts a question before every comparison: whether it is turned."""

    def __init__(self, module: str) -> None:
        self.found: list[Mutant] = []
        self._module = module

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        result: ast.expr = node
        numbered = []
        sides = [node.left, *node.comparators]
        for place, operator in enumerate(node.ops):
            operators: list[ast.cmpop] = [operator]
            turned = [OPPOSITES[type(operator)]()]
            pair = sides[place], [sides[place + 1]]
            written = ast.unparse(ast.Compare(pair[0], operators, pair[1]))
            other = ast.unparse(ast.Compare(pair[0], list[ast.cmpop](turned), pair[1]))
            number = len(self.found)
            self.found.append(Mutant(self._module, number, node.lineno, written, other))
            numbered.append((number, place))
        self.generic_visit(node)
        for number, place in numbered:
            changed = copy.deepcopy(node)
            changed.ops[place] = OPPOSITES[type(node.ops[place])]()
            asked = ast.Call(
                ast.Name(_QUESTION, ast.Load()), [ast.Constant(f"{self._module}:{number}")], []
            )
            result = ast.IfExp(asked, changed, result)
        return ast.copy_location(result, node)


def mutants_of(module: str) -> list[Mutant]:
    """Return every comparison of a module, in the order of their numbers."""
    turning = _Turning(module)
    turning.visit(ast.parse((SOURCE / module).read_text("utf-8")))
    return turning.found


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles modules with the questions in them, and keeps no bytecode of that."""

    def get_code(self, fullname: str) -> CodeType:
        module = Path(self.path)
        tree = ast.parse(module.read_bytes())
        tree = _Turning(module.relative_to(SOURCE).as_posix()).visit(tree)
        code: CodeType = compile(ast.fix_missing_locations(tree), module, "exec", 0, True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of ztensor where they always lie, and gives them to `_Loader`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != SOURCE.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path or [str(SOURCE.parent)], target)
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            spec.loader = _Loader(name, spec.origin)
        return spec


class _Asked:
    """Answers every comparison whether it is turned, and notes that it was come by.

    Attributes:
        turned: name of the one that is turned.
        names: those that were come by.
    """

    def __init__(self) -> None:
        self.turned = os.environ.get(VARIABLE, "")
        self.names: set[str] = set()

    def __call__(self, name: str) -> bool:
        self.names.add(name)
        return name == self.turned


_asked = _Asked()


def install() -> None:
    """Read ztensor with the questions in it from here on; it must not have been imported yet."""
    setattr(builtins, _QUESTION, _asked)
    sys.meta_path.insert(0, _Finder())


def turn(name: str) -> None:
    """Turn one comparison, here and in the processes that are started from here on."""
    _asked.turned = os.environ[VARIABLE] = name


def hits() -> set[str]:
    """Return the names of the comparisons that this process came by since the last call."""
    found = _asked.names
    _asked.names = set()
    return found
