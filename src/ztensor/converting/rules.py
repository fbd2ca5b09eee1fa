"""The language of recipes: patterns of names, steps and rules, parsed and checked."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ztensor.converting.casting import TARGETS, float_of
from ztensor.errors import ArgumentTypeError, ArgumentValueError, UsageError, ZTensorError, describe
from ztensor.ext import Component

Groups = tuple[tuple[str, ...], ...]

_HOLE = re.compile(r"\*|\{([A-Za-z_][A-Za-z_0-9]*)\}")
_GROUP = re.compile(r"\(([\w\s]*)\)|(\w+)")
_SIDES = re.compile(r"[\w\s()]{1,1000}->[\w\s()]{1,1000}")
_MOST_STEPS = 64
_INVERSE = {
    "stack": "unstack", "unstack": "stack", "concatenate": "split", "split": "concatenate",
    "rearrange": "rearrange",
}  # fmt: skip


class Pattern:
    """A pattern of names: `*` matches any text, `{name}` text without a dot.

    Between two dots is one capture at most, beside other `*`, so matching takes little time.

    Attributes:
        text: the pattern.
        captures: the captures in order: their names, and `*1`, `*2` for the `*`.

    Raises:
        ArgumentTypeError: `text` is not text.
        ArgumentValueError: two captures have one name, or no dot between them.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ArgumentTypeError("a pattern of names must be text", found=describe(text, 40))
        self.text = text
        pieces = _HOLE.split(text)
        self.literals, names = pieces[::2], pieces[1::2]
        stars = iter(range(1, len(names) + 1))
        self.captures = [name or f"*{next(stars)}" for name in names]
        close = any(
            (one or other) and "." not in literal
            for one, other, literal in zip(names, names[1:], self.literals[1:], strict=False)
        )
        if close or len(set(self.captures)) < len(names):
            raise ArgumentValueError(
                "captures of a pattern have names of their own, and dots between them",
                found=describe(text),
            )
        kinds = ["([^.]+)" if name else "(.*)" for name in names] + [""]
        parts = zip(map(re.escape, self.literals), kinds, strict=True)
        text = "".join(map("".join, parts))
        self._expression = re.compile(text, re.DOTALL) if names else None

    def match(self, name: str) -> dict[str, str] | None:
        """Return the texts of the captures; None if the name does not match."""
        if self._expression is None:
            return {} if name == self.text else None
        match = self._expression.fullmatch(name)
        return None if match is None else dict(zip(self.captures, match.groups(), strict=True))

    def fill(self, captures: Mapping[str, str]) -> str:
        """Return the pattern with texts in the place of its captures; a missing `*` is empty.

        Raises:
            ArgumentValueError: a named capture is missing.
        """
        missing = [key for key in self.captures if key not in captures and key[0] != "*"]
        if missing:
            raise ArgumentValueError(
                f"the pattern of this name does not capture {missing[0]}", found=describe(self.text)
            )
        texts = [*(captures.get(key, "") for key in self.captures), ""]
        return "".join(map("".join, zip(self.literals, texts, strict=True)))


class Step(NamedTuple):
    """One step of a rule.

    Attributes:
        word: `stack`, `unstack`, `concatenate`, `split` or `rearrange`.
        value: the axis, or the two sides of `rearrange`.
        over: the capture whose values it joins or makes; None for the listed names.
        sizes: the ratio of the lengths along the axis; None if they are equal or not known.
    """

    word: str
    value: Any
    over: str | None = None
    sizes: tuple[int, ...] | None = None

    def reversed(self) -> Step:
        """Return the inverse."""
        value = self.value[::-1] if self.word == "rearrange" else self.value
        return self._replace(word=_INVERSE[self.word], value=value)


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """A rule of a recipe.

    Attributes:
        number: its place in the recipe, from 1; 0 for names without a rule.
        sources: the patterns of old names.
        targets: the patterns of new names; empty if the names are dropped.
        steps: the steps in order; if there are no steps, each pattern of `sources` is independent.
        cast: the element type of new floats of 16 bits and more; None keeps it.
        is_optional: whether it may match no name.
    """

    number: int
    sources: tuple[Pattern, ...]
    targets: tuple[Pattern, ...]
    steps: tuple[Step, ...] = ()
    cast: str | None = None
    is_optional: bool = False

    @property
    def collected(self) -> str | None:
        """Return the capture of `sources` alone, whose values are joined; None without one."""
        return next(iter(_extra(self.sources, self.targets)), None) if self.targets else None

    @property
    def distributed(self) -> str | None:
        """Return the capture of `targets` alone, whose values are made; None without one."""
        return next(iter(_extra(self.targets, self.sources)), None) if self.targets else None

    def dtype_after(self, component: Component) -> str:
        """Return the new element type; the old one of integers and narrow floats."""
        storage = component.storage
        dtype = component.type or (component.dtype if storage is None else storage.long_name)
        return self.cast if self.cast is not None and float_of(component) else dtype


@contextlib.contextmanager
def within(where: str, file: str | None = None, name: str | None = None) -> Iterator[None]:
    """Begin the messages of errors with a place of the recipe; add its file and an object."""
    try:
        yield
    except ZTensorError as error:
        error.message = where + error.message
        error.locate(file=file, object_name=name)
        raise


def wrong(message: str, expected: object, found: object) -> ArgumentValueError:
    """Return the error for a recipe that is wrong, or does not fit."""
    texts = [one if isinstance(one, str) else describe(one) for one in (expected, found)]
    return ArgumentValueError(message, expected=texts[0], found=texts[1])


def fields_of(table: Any, kinds: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a table of the recipe, whose fields have these names and types.

    Raises:
        ArgumentTypeError: it is not a table, or a field has another type.
        ArgumentValueError: a field is unknown.
    """
    if not isinstance(table, Mapping):
        raise ArgumentTypeError("a recipe, a rule and a step are tables", found=describe(table, 40))
    for key, value in table.items():
        if key not in kinds:
            expected = f"one of {', '.join(kinds)}"
            raise ArgumentValueError("unknown field", expected=expected, found=describe(key))
        is_text = isinstance(value, str) and kinds[key] is Sequence
        is_bool = isinstance(value, bool) and kinds[key] is not bool
        if is_text or is_bool or not isinstance(value, kinds[key]):
            raise ArgumentTypeError(f"wrong type of {key}", found=describe(value, 40))
    return table


def integers(field: str, values: Any, least: int = 1) -> tuple[int, ...]:
    """Return a list of integers, checked."""
    if any(type(value) is not int or value < least for value in values):
        raise wrong(f"wrong {field}", f"integers of at least {least}", list(values))
    return tuple(values)


def _extra(patterns: Sequence[Pattern], others: Sequence[Pattern]) -> list[str]:
    return [key for key in patterns[0].captures if key not in others[0].captures]


def rule_of(number: int, table: Any, lengths: Mapping[str, int]) -> Rule:
    """Return a rule.

    Raises:
        UsageError: a field is unknown or wrong, or the fields do not go together.
    """
    with within(f"rule {number}: "):
        names = dict.fromkeys(("from", "to", "keep", "drop"), (str, list, tuple))
        fields = fields_of(table, {**names, "steps": Sequence, "cast": str, "optional": bool})
        verbs = [key for key in ("from", "keep", "drop") if key in fields]
        known = {"from": {"to", "steps", "cast"}, "keep": {"cast"}, "drop": set[str]()}
        if len(verbs) != 1 or fields.keys() - {*verbs, "optional"} - known[verbs[0]]:
            expected = "from (with to, steps, cast), keep (with cast), or drop"
            raise wrong("wrong fields", expected, sorted(fields))
        sources = targets = _patterns(verbs[0], fields[verbs[0]])
        if verbs == ["from"]:
            targets = _patterns("to", fields.get("to", fields["from"]))
        if fields.get("cast", TARGETS[0]) not in TARGETS:
            raise wrong("wrong cast", ", ".join(TARGETS), fields["cast"])
        steps = list[Step]()
        for at, step in enumerate(fields.get("steps", ())):
            if at == _MOST_STEPS:
                raise wrong("too many steps", f"at most {_MOST_STEPS}", len(fields["steps"]))
            with within(f"steps[{at}]: "):
                steps.append(_step(step, lengths))
        rule = Rule(
            number, sources, () if verbs == ["drop"] else targets, tuple(steps),
            fields.get("cast"), fields.get("optional", False),
        )  # fmt: skip
        _require_connected(rule)
        return rule


def _patterns(field: str, texts: Any) -> tuple[Pattern, ...]:
    with within(f"{field}: "):
        patterns = tuple(map(Pattern, [texts] if isinstance(texts, str) else texts))
        for pattern in patterns:
            if "*2" in pattern.captures or set("{}") & set("".join(pattern.literals)):
                raise wrong("wrong pattern", "one * at most, and captures as {name}", pattern.text)
        if not patterns:
            raise wrong("wrong list", "a pattern or several", texts)
        seen = set[str]()
        for pattern in patterns:
            if pattern.text in seen:
                raise wrong("a name is in the list twice", "each once", describe(pattern.text))
            seen.add(pattern.text)
        return patterns


def _step(table: Any, lengths: Mapping[str, int]) -> Step:
    kinds = dict.fromkeys(("stack", "unstack", "concatenate", "split"), int)
    others = {"rearrange": str, "transpose": Sequence, "over": str, "sizes": Sequence}
    fields = fields_of(table, {**kinds, **others})
    words = [word for word in fields if word not in ("over", "sizes")]
    if len(words) != 1 or (len(fields) > 1 and words[0] not in kinds):
        expected = "one word, and over and sizes beside those that join or divide"
        raise wrong("wrong step", expected, sorted(fields))
    (word,) = words
    sizes = None
    if fields.get("sizes"):
        for one in fields["sizes"]:
            if isinstance(one, str) and one not in lengths:
                expected = f"a name of the table [sizes], which has {describe(list(lengths))}"
                raise wrong("unknown name in sizes", expected, describe(one))
        named = [lengths[one] if isinstance(one, str) else one for one in fields["sizes"]]
        sizes = integers("sizes", named, 0)
        if not any(sizes):
            raise wrong("wrong sizes", "one above 0", list(sizes))
    if word in kinds:
        if sizes is not None and word in ("stack", "unstack"):
            raise wrong("wrong sizes", "concatenate or split", word)
        return Step(word, fields[word], fields.get("over"), sizes)
    if word == "rearrange":
        return Step(word, _sides(fields[word]))
    count = len(fields[word])
    axes = [axis + count * (axis < 0) for axis in integers(word, fields[word], -count)]
    if sorted(axes) != list(range(len(axes))):
        raise wrong(f"wrong {word}", "each axis once", list(fields[word]))
    left = tuple((str(axis),) for axis in range(len(axes)))
    return Step("rearrange", (left, tuple(left[axis] for axis in axes)))


def _sides(text: str) -> tuple[Groups, Groups]:
    """Return the groups of axes on both sides of `rearrange`."""
    sides = []
    for side in text.split("->") if _SIDES.fullmatch(text) else ():
        pairs = _GROUP.findall(side)
        sides.append(tuple((one,) if one else tuple(group.split()) for group, one in pairs))
    names = [sorted(axis for group in side for axis in group) for side in sides]
    if not sides or names[0] != names[1] or len(set(names[0])) < len(names[0]):
        raise wrong("wrong rearrange", "each name once on both sides, as (h d) n -> h d n", text)
    return sides[0], sides[1]


def _require_connected(rule: Rule) -> None:
    """Raise unless the captures and steps of a rule lead from its sources to its targets.

    Raises:
        ArgumentValueError: they do not.
    """
    if not rule.targets:
        return
    sides = [rule.sources, rule.targets]
    if not rule.steps and len(rule.sources) != len(rule.targets):
        raise wrong("wrong to", f"{len(rule.sources)} names, or steps", len(rule.targets))
    for first, *others in sides if rule.steps else zip(*sides, strict=True):
        for other in others:
            if set(other.captures) != set(first.captures):
                raise wrong("wrong pattern", f"the captures of {first.text!r}", other.text)
    joins = [step for step in rule.steps if step.word in ("stack", "concatenate")]
    cuts = [step for step in rule.steps if step.word in ("unstack", "split")]
    for extra, steps in ((_extra(*sides), joins), (_extra(*sides[::-1]), cuts)):
        overs = [step.over for step in steps if step.over is not None]
        if extra != overs or len(extra) > 1 or "*1" in extra:
            expected = "the same ones in `from` and `to`, but for one that a step is over"
            raise wrong("wrong captures", expected, extra or overs)
    for step in rule.steps:
        count = len(rule.targets if step in cuts else rule.sources)
        if step.sizes and step.over is None and len(step.sizes) != count:
            raise wrong("wrong sizes", f"{count}, one for each name", list(step.sizes))
        if step.word == "split" and step.over and not step.sizes:
            raise wrong("wrong split", "sizes, as a capture has no number of names", step.over)


def reversed_rule(rule: Rule) -> Rule:
    """Return the inverse of a rule.

    Raises:
        UsageError: it drops or casts.
    """
    with within(f"rule {rule.number}: " if rule.number else "unmatched: "):
        if not rule.targets or rule.cast is not None:
            word = "cast" if rule.targets else "drop"
            raise UsageError(f"{word} has no inverse, so the recipe cannot be reversed")
        other = dataclasses.replace(
            rule, sources=rule.targets, targets=rule.sources,
            steps=tuple(step.reversed() for step in reversed(rule.steps)),
        )  # fmt: skip
        _require_connected(other)
        return other
