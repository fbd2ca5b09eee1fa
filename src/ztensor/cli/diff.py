"""`ztensor diff`: the differences of two files."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli.changing import pair_of
from ztensor.cli.choosing import chosen_or_all
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import CHOICE, Option, number
from ztensor.cli.spelling import as_json, count_text, element_text, shape_text, value_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import open_file
from ztensor.insight.analysis.pairs import MISSING

if TYPE_CHECKING:
    from argparse import Namespace


_TOLERANCE: dict[str, Any] = {"metavar": "X", "type": number(0, kind=float), "default": 0.0}
OPTIONS = (
    Option("a", metavar="A", help="A file of any known format, or a set; - is standard input."),
    Option("b", metavar="B", help="The file to compare with it, of any known format."),
    *CHOICE,
    Option("--atol", help="Absolute tolerance; by default 0.", **_TOLERANCE),
    Option("--rtol", help="Relative tolerance; by default 0.", **_TOLERANCE),
    Option("--nan-differs", is_flag=True, help="Treat NaN as different from NaN."),
    Option(
        "--values-only",
        is_flag=True,
        help="Ignore differences of types, layouts and attributes.",
    ),
    Option(
        "--digests",
        is_switch=True,
        help="Trust equal digests instead of reading the values (the default).",
    ),
    Option(
        "--rename",
        action="append",
        metavar="PATTERN=REPL",
        help="Rename A's objects before comparing, as re.sub does; may be repeated.",
    ),
    Option("--all", is_flag=True, help="List equal objects, too."),
)

_COLUMNS = (
    Column("name"),
    Column("differs in"),
    Column("max abs", numeric=True, optional=True),
    Column("max rel", numeric=True, optional=True),
    Column("cosine", numeric=True, optional=True),
    Column("changed", numeric=True, optional=True),
    Column("first at", optional=True),
)
_ATTRIBUTE_CHARACTERS = 60


def diff(terminal: Terminal, options: Namespace) -> None:
    r"""Compare two files, whatever their formats.

    Names, shapes, types, layouts, attributes and values are compared. If both files have digests of
    the same algorithm for data of the same type and the digests are equal, the values are equal and
    are not read. Otherwise both are read and compared, as bytes and, from the first difference on,
    as numbers. Values differ if |a - b| > atol + rtol * max(|a|, |b|). Objects of different layouts
    are compared as dense arrays. A sparse object of more than 16 million elements can only be
    compared with an object that has its values at the same places. For two training states, saved
    by `ztensor.save_tree`, the values that are not tensors are compared, too.

    Output:
      One line for each object that differs: what differs, the largest |a - b|,
      the largest |a - b| / max(|a|, |b|), the cosine similarity, the share of
      values that are not equal, and the index of the first one. Then the
      attributes of the files that differ, the values of two training states that
      differ, each by its keys joined by dots, and a summary.

    JSON:
      a, b            the arguments
      ok              whether nothing differs, or only within the tolerance
      attributes      maps each different key to the values that the files have
      values          of two saved trees: maps each path with a different value to
                      the values, a tensor by its name
      objects         a list of name and other_name (in the second file);
                      differences (of `only in a`, `only in b`, `shape`, `type`,
                      `layout`, `attributes`, `values`); a and b (shape, dtype,
                      type, format, attributes, or null); compared (`digest`,
                      `bytes`, `numbers` or null); values (count, changed, beyond
                      the tolerance, max_abs, max_rel, cosine, first, relative,
                      which is ||b - a|| / ||a||, and snr_db; null unless compared
                      as numbers); note (why not compared, or null)

    Safety:
      It never changes a file.

    Exit code:
      0 if nothing differs beyond the tolerance, 1 if something does.

    Examples:
      $ ztensor diff tiny.safetensors tiny.npz --values-only
        the same tensors in two formats, one of which has no attributes
      $ ztensor diff model.zt changed.zt --exclude '*.fp8'
        everything that differs; exits with 1
      $ ztensor diff model.zt changed.zt --include 'e*' --values-only --rtol 0.01
        one object, of any type, with a tolerance of one percent
      $ ztensor diff model.zt renamed.zt --rename '^layers\.=h.'
        names that begin differently in the second file
    """
    with open_file(options.a) as first, open_file(options.b) as second:
        names = chosen_or_all((first, second), options)
        with terminal.progress(os.path.basename(options.a)) as progress:
            report = ztensor.diff(
                first,
                second,
                names,
                atol=options.atol,
                rtol=options.rtol,
                nan_differs=options.nan_differs,
                values_only=options.values_only,
                digests=options.digests,
                rename=dict(pair_of(text, "PATTERN=REPL") for text in options.rename),
                progress=progress,
            )
    if not report.ok:
        terminal.fail(ExitCode.FAILED)
    _show(terminal, report, everything=options.all)
    terminal.result(
        {
            "a": options.a,
            "b": options.b,
            "ok": report.ok,
            "attributes": {key: _pair(*pair) for key, pair in report.attributes.items()},
            "values": {path: _pair(*pair) for path, pair in report.values.items()},
            "objects": [_as_json(difference) for difference in report.tensors],
        }
    )


def _show(terminal: Terminal, report: ztensor.insight.DiffReport, *, everything: bool) -> None:
    if not terminal.wants_text:
        return
    shown = [
        difference
        for difference in report.tensors
        if everything or difference.differences or difference.is_within
    ]
    if shown:
        alike = terminal.table(_COLUMNS, [_row(found) for found in shown])
        facts = [f"{title} {cell}" for title, cell in alike if cell != "-"]
        if facts:
            terminal.line(", ".join(facts))
    for found in shown:
        if found.note is not None:
            terminal.line(f"'{found.name}': {found.note}")
    for key, pair in report.attributes.items():
        terminal.line(f"attribute '{key}': {_change(pair, terminal)}")
    for path, pair in report.values.items():
        terminal.line(f"{path or 'the tree'}: {_change(pair, terminal)}")
    terminal.line(_summary(report))


def _summary(report: ztensor.insight.DiffReport) -> str:
    differing = report.differing
    only = [
        sum(f"only in {side}" in difference.differences for difference in differing)
        for side in "ab"
    ]
    within = sum(
        difference.is_within and not difference.differences for difference in report.tensors
    )
    equal = len(report.tensors) - len(differing) - within
    unread = sum(
        tensor_diff.compared == "digest" and not tensor_diff.differences
        for tensor_diff in report.tensors
    )
    facts = [f"{equal:,} equal" + (f" ({unread:,} by digest, unread)" if unread else "")]
    if within:
        facts.append(f"{within:,} within the tolerance")
    if len(differing) > sum(only):
        facts.append(f"{len(differing) - sum(only):,} different")
    facts += [f"{n:,} only in {side}" for n, side in zip(only, "ab", strict=True) if n]
    text = f"{count_text(len(report.tensors), 'object')}: {', '.join(facts)}"
    return f"{text}; {count_text(len(report.values), 'value')} differ" if report.values else text


def _row(difference: ztensor.insight.TensorDiff) -> list[str]:
    words = [_difference(difference, word) for word in difference.differences]
    if not words:
        words = ["within tolerance" if difference.is_within else "equal"]
    name = difference.name
    if difference.other_name != name:
        name += f" -> {difference.other_name}"
    row = [name, ", ".join(words)]
    values = difference.values
    if values is None:
        return [*row, *["-"] * 5]
    return [
        *row,
        f"{values.max_abs:.3g}",
        f"{values.max_rel:.3g}",
        "-" if values.cosine is None else f"{values.cosine:.6f}",
        _share(values.changed, values.count),
        "-" if values.first is None else f"[{','.join(map(str, values.first))}]",
    ]


def _share(changed: int, count: int) -> str:
    """Return the share of changed values; 0 % and 100 % only if exact."""
    if not count:
        return "-"
    text = f"{changed / count:.2%}"
    if text == "0.00%" and changed:
        return "<0.01%"
    return ">99.99%" if text == "100.00%" and changed < count else text


def _difference(difference: ztensor.insight.TensorDiff, word: str) -> str:
    before, after = difference.before, difference.after
    if before is None or after is None:
        return word
    if word == "shape":
        return f"shape {shape_text(before.shape)} -> {shape_text(after.shape)}"
    if word == "type":
        return f"type {element_text(before)} -> {element_text(after)}"
    if word == "layout":
        return f"layout {before.format} -> {after.format}"
    return word


def _change(pair: tuple[Any, Any], terminal: Terminal) -> str:
    limit = _ATTRIBUTE_CHARACTERS if terminal.interactive else sys.maxsize
    return " -> ".join("none" if _is_missing(value) else value_text(value, limit) for value in pair)


def _is_missing(value: Any) -> bool:
    return value is MISSING


def _pair(before: Any, after: Any) -> dict[str, Any]:
    """Return both values of an attribute; one that is missing has no key."""
    pair = {"a": before, "b": after}
    return {side: as_json(value) for side, value in pair.items() if not _is_missing(value)}


def _as_json(difference: ztensor.insight.TensorDiff) -> dict[str, Any]:
    values = difference.values
    return {
        "name": difference.name,
        "other_name": difference.other_name,
        "differences": list(difference.differences),
        "a": _object(difference.before),
        "b": _object(difference.after),
        "compared": difference.compared,
        "values": None
        if values is None
        else {
            field.name: as_json(getattr(values, field.name)) for field in dataclasses.fields(values)
        }
        | {"snr_db": values.snr_db},
        "note": difference.note,
    }


def _object(metadata: ztensor.TensorMetadata | None) -> dict[str, Any] | None:
    if metadata is None:
        return None
    return {
        "shape": list(metadata.shape),
        "dtype": metadata.dtype,
        "type": metadata.type,
        "format": metadata.format,
        "attributes": as_json(metadata.attributes),
    }
