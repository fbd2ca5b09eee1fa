"""`ztensor show`: an object, the places of its components, and a summary of its values."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ztensor.cli.info import show_attributes
from ztensor.cli.options import FILE, Option
from ztensor.cli.spelling import (
    as_json,
    count_text,
    json_text,
    object_facts,
    shape_text,
    size_text,
)
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import error_as_json, open_file
from ztensor.errors import UsageError, ZTensorError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from ztensor import Reader

OPTIONS = (
    FILE,
    Option("name", nargs="?", metavar="NAME", is_name=True, help="The object to show."),
    Option(
        "--values",
        is_switch=True,
        help="Read the values (the default).",
    ),
)

_COLUMNS = (
    Column("component"),
    Column("type"),
    Column("encoding"),
    Column("offset", numeric=True),
    Column("length", numeric=True),
    Column("digest"),
)
_FIRST = 8
_VALUE_CHARACTERS = 200


def show(terminal: Terminal, options: Namespace) -> None:
    """Show one object: its parts, attributes and first values.

    Values are read and decoded in blocks, so an object may be larger than memory. In a training
    state, saved by `ztensor.save_tree`, NAME may also be the path of a value, its keys joined by
    dots; of a list or dict all items are shown.

    Output:
      Name, shape, type, format and size; the place of each component;
      attributes; the first values; smallest, largest and mean of the finite
      values; the number of NaN and infinite values. For a sparse object these are
      its stored values, for a quantized object its dequantized values.

    JSON:
      file, name, shape, dtype, type, elements, format
                      as `ls` has them
      nbytes          decoded
      stored_nbytes   in the file
      attributes      of the object
      components      by role: dtype, type, offset, length, encoding, digest,
                      uncompressed_length
      values          null with --no-values, and for unknown layouts and types;
                      else of (`elements`, `stored values` or `dequantized
                      values`), count, first (up to eight; a complex number is
                      a pair), min, max, mean, nan_count, inf_count, true_count;
                      null if it does not apply
      error           why the values could not be read
      tree            of a training state, with file and name only: maps paths to
                      values, and to the names of tensors

    Safety:
      It never changes a file. `ztensor verify` checks all digests.

    Exit code:
      0 if everything could be read, 2 if no object has that name.

    Examples:
      $ ztensor show model.zt layers.0.weight.fp8
        an object of floats of 8 bits
      $ ztensor show tiny.safetensors layers.0.weight --no-values
        only its place in the file
    """
    file, name = options.file, options.name
    if name is None:
        raise UsageError(
            "show needs the name of an object; `ztensor ls` lists the names of a file, and "
            "`ztensor info` shows it as a whole",
            file=file,
        )
    facts: dict[str, Any] = {"file": file}
    with open_file(file) as reader:
        if name not in reader and (found := _of_tree(reader, name)):
            _show_tree(terminal, found)
            terminal.result({"file": file, "name": name, "tree": found})
            return
        facts.update(describe(reader, name))
        _show_description(terminal, facts)
        if options.values:
            from ztensor.insight.analysis.summary import summarize

            try:
                with terminal.progress(name) as progress:
                    values = summarize(reader.reader_of(name), name, _FIRST, progress)
                facts["values"] = as_json(values)
                _show_values(terminal, facts["values"])
            except ZTensorError as error:
                terminal.error(error)
                facts["error"] = error_as_json(error)
    terminal.result(facts)


def _of_tree(reader: Reader, path: str) -> dict[str, Any]:
    """Return the values at or under a path of a training state, by path."""
    from ztensor.training.stored_tree import stored_tree

    tree = stored_tree(reader)
    if tree is None:
        return {}
    try:
        values = tree.values()
    except ZTensorError:  # the error for the missing name follows
        return {}
    return {
        value_path: as_json(value)
        for value_path, value in values.every.items()
        if (value_path == path or value_path.startswith(f"{path}."))
        and value_path not in values.containers
    }


def _show_tree(terminal: Terminal, values: Mapping[str, Any]) -> None:
    if terminal.wants_text:
        limit = _VALUE_CHARACTERS if terminal.interactive else sys.maxsize
        terminal.facts([(path, json_text(value, limit)) for path, value in values.items()])


def describe(reader: Reader, name: str) -> dict[str, Any]:
    """Return the entries of `show --json` that need no values.

    Raises:
        ObjectNotFoundError: no object has that name.
    """
    metadata = reader.metadata(name)
    return {
        **object_facts(metadata),
        "nbytes": as_json(metadata.nbytes),
        "stored_nbytes": metadata.stored_nbytes,
        "components": {
            role: {field: as_json(component[field]) for field in component}
            for role, component in metadata.components.items()
        },
        "attributes": as_json(metadata.attributes),
        "values": None,
    }


def _show_description(terminal: Terminal, facts: Mapping[str, Any]) -> None:
    if not terminal.wants_text:
        return
    stored, decoded = facts["stored_nbytes"], facts["nbytes"]
    size = f"{size_text(stored)} stored"
    if isinstance(decoded, int) and decoded != stored:
        size += f", {size_text(decoded)} decoded"
    kind, elements = facts["dtype"] or "unknown", facts["elements"]
    terminal.facts(
        [
            ("name", facts["name"]),
            ("shape", shape_text(facts["shape"])),
            ("type", elements if elements == kind else f"{elements}, stored as {kind}"),
            ("format", facts["format"]),
            ("size", size),
        ]
    )
    if facts["components"]:
        terminal.line()
        terminal.table(
            _COLUMNS,
            [
                (
                    role,
                    part["type"] or part["dtype"],
                    part["encoding"],
                    f"{part['offset']:,}",
                    f"{part['length']:,}",
                    part["digest"] or "none",
                )
                for role, part in facts["components"].items()
            ],
        )
    show_attributes(terminal, facts["attributes"])


def _show_values(terminal: Terminal, values: Mapping[str, Any] | None) -> None:
    if not terminal.wants_text:
        return
    terminal.line()
    if values is None:
        terminal.line("values are not shown: this release does not know how to compute them")
        return
    rows = [("values", count_text(values["count"], values["of"].removesuffix("s")))]
    if values["first"]:
        more = ", ..." if values["count"] > len(values["first"]) else ""
        rows.append(("first", ", ".join(map(_number, values["first"])) + more))
    rows.extend(
        (label, _number(values[key]))
        for label, key in (("min", "min"), ("max", "max"), ("mean", "mean"), ("true", "true_count"))
        if values[key] is not None
    )
    if values["nan_count"] is not None:
        rows.append(("NaN", f"{values['nan_count']:,}, infinite {values['inf_count']:,}"))
    terminal.facts(rows)


def _number(value: Any) -> str:
    match value:
        case {"$float": str(word)}:
            return word
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
        case [real, imaginary]:
            sign = "" if _number(imaginary).startswith("-") else "+"
            return f"{_number(real)}{sign}{_number(imaginary)}j"
        case int():
            return f"{value:,}"
    return str(value)
