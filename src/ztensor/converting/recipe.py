"""Recipes: rules that make the objects of a new file from objects of another.

A recipe is parsed completely before a file is looked at (`rules.py`), and applied to all names and
shapes before an element is read. `arranging.py` computes the elements while they are written.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from ztensor import Reader
from ztensor.converting import arranging
from ztensor.converting.arranging import Arranged, ArrangedObjects, Held, Node
from ztensor.converting.casting import cast_target
from ztensor.converting.rules import (
    Pattern,
    Rule,
    Step,
    fields_of,
    integers,
    reversed_rule,
    rule_of,
    within,
    wrong,
)
from ztensor.converting.source import Opened, over
from ztensor.errors import ArgumentValueError, SourceError, UsageError, counted, describe
from ztensor.ext import Component, FileObjects, TensorObject, path_text
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.training.stored_tree import stored_tree
from ztensor.typing import Path, Readable

_MOST_BYTES = 16 << 20  # of a recipe
_MOST_PATTERNS = 4096  # with captures: each is compared with each name
_NODE_COST = 2000  # bytes of memory of a part, or of a new object without its name
_ANY = (Pattern("*"),)
_Cells = dict[tuple[int, str], str]  # number of a pattern, and value of the collected capture


@dataclasses.dataclass(frozen=True, slots=True)
class RecipeRow:
    """An object that a recipe makes, or drops.

    Attributes:
        rule: the number of the rule, from 1; 0 for a name without a rule.
        sources: names of the objects that it is made from.
        source_shapes: their shapes.
        name: its name; None if the source is dropped.
        shape: its shape.
        dtype: its element type; its layout if it is not dense.
    """

    rule: int
    sources: tuple[str, ...]
    source_shapes: tuple[tuple[int, ...], ...]
    name: str | None
    shape: tuple[int, ...]
    dtype: str

    def __repr__(self) -> str:
        """Return the first source, the number of others, and the object."""
        more = f" and {len(self.sources) - 1:,} more" if len(self.sources) > 1 else ""
        made = f"{describe(self.name)} {list(self.shape)} {self.dtype}" if self.name else "dropped"
        return f"<ztensor.converting.RecipeRow: {describe(self.sources[0])}{more} -> {made}>"


class _Made(NamedTuple):
    """An object to write, or a name to drop.

    Attributes:
        row: the description.
        rule: the rule.
        sources: the objects that it is made from, with their files.
        node: its elements; None if it is only renamed.
        number: its place among the objects of one application.
        held: the arrays of the application.
        attributes: its attributes; None if there are none.
        is_unnamed: whether the names of its axes are lost.
    """

    row: RecipeRow
    rule: Rule
    sources: list[tuple[FileObjects, TensorObject]]
    node: Node | None
    number: int
    held: Held
    attributes: dict[str, Any] | None = None
    is_unnamed: bool = False

    def key(self) -> tuple[object, ...]:
        """Return a key of the application, equal for equal bytes: tied objects stay tied."""
        data = ((file, entry.components["data"]) for file, entry in self.sources)
        places = tuple((file, part._replace(digest=None, extra=None)) for file, part in data)
        return self.rule.steps, self.row.source_shapes, places

    def is_summed(self) -> bool:
        """Return whether all sources are compared with digests or other checksums when read."""
        return all(
            file.sum_over(part) is not None or not file.is_unheld(entry, part)
            for file, entry in self.sources
            for part in entry.components.values()
        )


class Recipe:
    """Rules that make the objects of a new file from objects of another; for `ztensor.convert`.

    Args:
        content: the recipe as a TOML file has it: `unmatched`, `sizes`, and a list `rule`.
        name: the name for messages.

    Raises:
        ArgumentTypeError: a field has a wrong type; the message has the rule and the field.
        ArgumentValueError: a field is unknown, or has a wrong value.
    """

    def __init__(self, content: Mapping[str, object], *, name: str = "the recipe") -> None:
        self.name = name
        with within("", name):
            fields = fields_of(content, {"unmatched": str, "sizes": Mapping, "rule": Sequence})
            self._sizes = dict(fields.get("sizes", {}))
            integers("sizes", self._sizes.values())
            unmatched = fields.get("unmatched", "error")
            if unmatched not in ("error", "keep", "drop"):
                raise wrong("wrong unmatched", "error, keep or drop", unmatched)
            numbered = enumerate(fields.get("rule", ()), 1)
            self._rules = [rule_of(*pair, self._sizes) for pair in numbered]
            with_captures = [p for rule in self._rules for p in rule.sources if p.captures]
            if len(with_captures) > _MOST_PATTERNS:
                raise wrong("too many patterns with captures", f"at most {_MOST_PATTERNS}", "more")
            if unmatched != "error":
                rest = _ANY if unmatched == "keep" else ()
                self._rules.append(Rule(0, _ANY, rest, is_optional=True))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the recipe of a TOML file.

        Raises:
            ArgumentValueError: it is not TOML, or not a recipe.
            SourceError: it cannot be read.
        """
        name = path_text(path)
        try:
            with open(name, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise SourceError.from_os(error, "cannot read the recipe", name) from error
        try:
            text = data.decode("utf-8-sig") if len(data) <= _MOST_BYTES else "too long"
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentValueError(f"the recipe is not TOML: {error}", file=name) from error
        return cls(content, name=name)

    @classmethod
    def of(cls, value: Path | Mapping[str, object] | Recipe, *, reverse: bool = False) -> Recipe:
        """Return the recipe of a path, a mapping or a recipe; with `reverse` its inverse."""
        value = cls(value) if isinstance(value, Mapping) else value
        recipe = value if isinstance(value, Recipe) else cls.load(value)
        return recipe.reversed() if reverse else recipe

    def reversed(self) -> Recipe:
        """Return the recipe that makes the old objects from the new ones.

        Raises:
            UsageError: a rule loses something: it drops names, or casts.
        """
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        with within("", self.name):
            other._rules = [reversed_rule(rule) for rule in self._rules]
        return other

    def plan(self, source: Readable) -> list[RecipeRow]:
        """Return the objects that the recipe makes of a source, in the order of the new file.

        No element is read.

        Raises:
            ArgumentValueError: the recipe does not fit the names or shapes of the source.
            NotRepresentableError: an object that is not dense would be cut, joined or moved.
            ZTensorError: the source cannot be opened.
        """
        with Opened(source) as reader, within("", self.name):
            return [made.row for made in self._made(reader)]

    def over(self, reader: Reader) -> tuple[Reader, dict[str, np.dtype[Any]]]:
        """Return a reader of the new objects, and the element types of those that are cast.

        Raises:
            ZTensorError: as `plan`; or the source has a nested state.
        """
        if stored_tree(reader) is not None:
            message = "a recipe cannot change the names of a nested state"
            raise UsageError(message, file=reader.name)
        source, objects, sums = Arranged(reader.name), dict[str, TensorObject](), []
        files = reader.objects.parts()
        renamed: dict[FileObjects, dict[str, TensorObject]] = {file: {} for file in files}
        homes: dict[str, FileObjects | None] = {}
        casts, known = dict[str, np.dtype[Any]](), dict[Any, Component]()
        numbers, last, number, is_summed = dict[Any, int](), None, 0, False
        with within("", self.name):
            every = self._made(reader)
        if not every:  # a set may be without files
            return reader, casts
        for made in every:
            name, (home, entry) = made.row.name, made.sources[0]
            if name is None:
                continue
            if made.rule.cast is not None:
                casts[name] = np.dtype(cast_target(made.rule.cast))
            homes[name] = home if made.node is None else None
            if made.node is None:
                renamed[home][name] = entry
                continue
            if made.held is not last:
                last, is_summed = made.held, made.is_summed()
                number = numbers.setdefault(made.key(), len(numbers))
            key = number, made.number
            if key not in known:
                known[key] = data = source.add(made.node, made.held)
                if data.length and is_summed:
                    sums.append((data.offset, data.length, lambda: None))
            parts = {"data": known[key]}
            objects[name] = TensorObject(made.row.shape, "dense", parts, made.attributes)
        manifest = files[0].manifest._replace(objects=objects)
        new = FileObjects(
            source, manifest, format=files[0].format, sums=sums, limits=files[0].limits
        )
        changed = {file: file.changed(objects=own) for file, own in renamed.items()}
        places = {name: changed[home] if home else new for name, home in homes.items()}
        unnamed = [str(made.row.name) for made in every if made.is_unnamed]
        arranged = ArrangedObjects(reader.objects, [*changed.values(), new], places, unnamed)
        return over(reader, arranged.select(places)), casts

    # --- Names and shapes -------------------------------------------------------------------

    def _made(self, reader: Reader) -> list[_Made]:
        """Return the objects to write and the names to drop, in order of the first source."""
        applications, values = self._applications(reader)
        made: list[_Made] = []
        nbytes = sum(file.source.size for file in reader.objects.parts())
        budget = Budget(DEFAULT_LIMITS, nbytes)  # a tensor without elements may have many parts
        for (rule, index, common), cells in applications.items():
            with within(f"rule {rule.number}: ", name=next(iter(cells.values()))):
                if rule.steps:
                    own = values[rule.number]
                    made += self._computed(reader, rule, dict(common), cells, own, budget)
                else:
                    made += _renamed(reader, rule, index, dict(common), *cells.values())
        owners: dict[str, RecipeRow] = {}
        for row in (one.row for one in made if one.row.name is not None):
            other = owners.setdefault(str(row.name), row)
            if other is not row:
                pair = (f"rule {one.rule}" if one.rule else "unmatched" for one in (other, row))
                message = f"{' and '.join(pair)} make two objects of one name"
                sources = " and ".join(describe(one.sources[0]) for one in (other, row))
                raise wrong(message, f"different names for {sources}", describe(row.name))
        return made

    def _applications(self, reader: Reader) -> tuple[dict[Any, _Cells], dict[int, set[str]]]:
        """Return the names for each application of a rule, and the values each rule collects.

        Applications are by rule, captures, and for a rule without steps the number of the pattern.

        Raises:
            ArgumentValueError: a name matches no rule, or a rule no name.
        """
        applications: dict[Any, _Cells] = {}
        values: dict[int, set[str]] = {}
        unmatched: list[str] = []
        matcher = self._matcher()
        for name in reader:
            match = matcher(name)
            if match is None:
                unmatched.append(name)
                continue
            rule, index, captures = match
            value = captures.pop(rule.collected or "", "")
            if rule.collected and not (value.isascii() and value.isdigit()):
                with within(f"rule {rule.number}: ", name=name):
                    message = f"{{{rule.collected}}} is joined over, and has a value beside numbers"
                    expected = "0, 1, 2, or a rule before it for this name"
                    raise wrong(message, expected, describe(value))
            values.setdefault(rule.number, set()).add(value)
            key = rule, 0 if rule.steps else index, tuple(sorted(captures.items()))
            applications.setdefault(key, {})[index, value] = name
        if unmatched:
            count = counted(len(unmatched), "name")
            raise wrong(
                f"{count} of {describe(reader.name)} match no rule",
                'rules for them, or unmatched = "keep" or "drop"',
                ", ".join(map(describe, unmatched[:5])),
            )
        for rule in self._rules:
            if rule.number not in values and not rule.is_optional:
                message = f"rule {rule.number} matches no name of {describe(reader.name)}"
                raise wrong(message, "one, or optional = true", describe(rule.sources[0].text))
        return applications, values

    def _matcher(self) -> Callable[[str], tuple[Rule, int, dict[str, str]] | None]:
        """Return a function that finds the first rule for a name, its pattern, and the captures."""
        pairs = [(rule, at) for rule in self._rules for at in range(len(rule.sources))]
        patterns = [rule.sources[at] for rule, at in pairs]
        general = [number for number, pattern in enumerate(patterns) if pattern.captures]
        # Of a pattern without captures, which is one name, none of the others is asked.
        exact = {pattern.text: at for at, pattern in reversed([*enumerate(patterns)])}

        def match(name: str) -> tuple[Rule, int, dict[str, str]] | None:
            best = exact.get(name, len(patterns))
            for number in general:
                captures = patterns[number].match(name) if number < best else None
                if captures is not None:
                    return *pairs[number], captures
            return None if best == len(patterns) else (*pairs[best], {})

        return match

    def _computed(
        self,
        reader: Reader,
        rule: Rule,
        captures: dict[str, str],
        cells: _Cells,
        values: set[str],
        budget: Budget,
    ) -> Iterator[_Made]:
        """Yield the objects that one application of a rule makes."""
        columns, names = _in_order(values) if rule.collected else [""], []
        for index, pattern in enumerate(rule.sources):
            for value in columns:
                if (index, value) not in cells:
                    missing = pattern.fill({**captures, rule.collected or "": value})
                    raise wrong("an object is missing beside this one", describe(missing), "none")
                names.append(cells[index, value])
        held: Held = {}
        files = [reader.objects.part(name) for name in names]
        sources = [(file, file.object(name)) for file, name in zip(files, names, strict=True)]
        nodes = [arranging.leaf(*pair, held) for pair in zip(files, names, strict=True)]
        attributes = arranging.attributes_after(rule.steps, [entry for _, entry in sources])
        count = len(columns)
        grid = [nodes[at : at + count] for at in range(0, len(nodes), count)]
        for at, step in enumerate(rule.steps):
            with within(f"steps[{at}]: "):
                grid = self._after(step, grid, len(rule.targets), held, budget)
        is_one = rule.distributed is None
        if len(grid) != len(rule.targets) or (is_one and any(len(row) != 1 for row in grid)):
            message = "the steps leave another number of arrays than `to` has names"
            raise wrong(message, f"{len(rule.targets)}", f"{sum(map(len, grid))}")
        olds, shapes, number = tuple(names), tuple(entry.shape for _, entry in sources), 0
        for pattern, row in zip(rule.targets, grid, strict=True):
            for at, node in enumerate(row):
                name = pattern.fill({**captures, rule.distributed or "": str(at)})
                budget.charge_bytes(_NODE_COST + len(name))
                dtype = rule.dtype_after(node.component)
                made = RecipeRow(rule.number, olds, shapes, name, node.shape, dtype)
                yield _Made(made, rule, sources, node, number, held, *attributes)
                number += 1

    def _after(
        self, step: Step, grid: list[list[Node]], count: int, held: Held, budget: Budget
    ) -> list[list[Node]]:
        """Return the arrays after a step: for each name a list, with an array for each capture."""

        def join(nodes: Sequence[Node]) -> Node:
            if step.word == "stack":
                return arranging.stacked(nodes, step.value, held)
            return arranging.joined(nodes, step.value, step.sizes)

        def divide(node: Node) -> list[Node]:
            if step.word == "unstack":
                parts = arranging.unstacked(node, step.value, held)
            else:
                parts = arranging.divided(node, step.value, step.sizes or (1,) * count)
            budget.charge_bytes(_NODE_COST * len(parts))
            return parts

        if step.word == "rearrange":
            return [
                [arranging.rearranged(one, step.value, self._sizes, held) for one in row]
                for row in grid
            ]
        if step.word in ("stack", "concatenate"):
            if step.over is not None:
                return [[join(row)] for row in grid]
            return [list(map(join, zip(*grid, strict=True)))]
        if step.over is not None:
            return [[part for node in row for part in divide(node)] for row in grid]
        return [list(row) for parts in grid for row in zip(*map(divide, parts), strict=True)]


def _renamed(
    reader: Reader, rule: Rule, index: int, captures: Mapping[str, str], source: str
) -> Iterator[_Made]:
    """Yield an object under its new name, or without name if it is dropped."""
    file = reader.objects.part(source)
    entry, dtype = file.object(source), file.object(source).format
    name = rule.targets[index].fill(captures) if rule.targets else None
    if entry.format == "dense":
        dtype = rule.dtype_after(entry.components["data"])
    row = RecipeRow(rule.number, (source,), (entry.shape,), name, entry.shape, dtype)
    yield _Made(row, rule, [(file, entry)], None, 0, {})


def _in_order(values: set[str]) -> list[str]:
    """Return the numbers of a capture in numeric order, from 0, with a missing one."""
    width = 1
    if any(len(value) > 1 and value[0] == "0" for value in values):
        width = len(min(values, key=len))
        if width != len(longest := max(values, key=len)):
            raise wrong("numbers with leading zeros differ in length", width, describe(longest))
    values = values.union(str(number).zfill(width) for number in range(len(values)))
    return sorted(values, key=lambda value: (len(value), value))
