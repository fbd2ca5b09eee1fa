"""`ztensor show`: one object, where its parts lie, and what its values are like."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ztensor.cli.info import show_attributes
from ztensor.cli.options import FileArgument
from ztensor.cli.spelling import (
    as_json,
    count_text,
    json_text,
    shape_text,
    size_text,
    value_text,
)
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import error_as_json, open_file
from ztensor.errors import UnsupportedError, UsageError, ZTensorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.layout.base import Array
    from ztensor.opening import Reader

_COLUMNS = (
    Column("component"),
    Column("type"),
    Column("encoding"),
    Column("offset", numeric=True),
    Column("length", numeric=True),
    Column("digest"),
)
_COMPLETED = 200
_FIRST = 8
_VALUE_CHARACTERS = 200


def _complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names for the shell to complete; only such as no shell reads anything into."""
    try:
        with open_file(ctx.params["file"]) as reader:
            names = [name for name in reader if name.startswith(incomplete)]
    except (ZTensorError, KeyError):
        return []
    return [name for name in names if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", name)][
        :_COMPLETED
    ]


def show(
    terminal: Terminal,
    file: FileArgument,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The object to show.",
            autocompletion=_complete_name,
            show_default=False,
        ),
    ] = None,
    *,
    values: Annotated[
        bool, typer.Option(help="Read the values (the default).", show_default=False)
    ] = True,
) -> None:
    """Show one object: its parts, attributes and first values.

    Values are read and decoded in blocks, so an object may be larger than memory. Of a training
    state, which `ztensor.save_tree` saved, NAME may also be the keys of a value joined by dots, or
    of a list or dict: then what is in it is shown.

    Output:
      Name, shape, type, format and size; the place of each component;
      attributes; the first values; smallest, largest and mean of the finite
      values; the number of NaN and infinite values. For a sparse object these are
      its stored values, for a quantized object its dequantized values.

    JSON:
      file, name, shape, dtype, type, format
                      as `ls` has them
      nbytes          decoded
      stored_nbytes   in the file
      attributes      of the object
      components      by role: dtype, type, offset, length, encoding, digest,
                      uncompressed_length
      values          null with --no-values and for unknown layouts; else of
                      (`elements`, `stored values` or `dequantized values`),
                      count, first (up to eight; a complex number is a pair), min,
                      max, mean, nan_count, inf_count, true_count; null if it
                      does not apply
      error           why the values could not be read
      tree            of a training state, with file and name only: maps paths to
                      values, a tensor is told by its name

    Safety:
      It never changes a file. It checks no digests; `ztensor verify` does.

    Exit code:
      0 if everything could be read, 2 if there is no object of that name.

    Examples:
      $ ztensor show model.zt layers.0.weight.fp8
        an object of floats of 8 bits
      $ ztensor show tiny.safetensors layers.0.weight --no-values
        only its place in the file
    """
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
        if values:
            try:
                with terminal.progress(name) as progress:
                    facts["values"] = summarize(reader.reader_of(name), name, progress)
                _show_values(terminal, facts["values"])
            except ZTensorError as error:
                terminal.error(error)
                facts["error"] = error_as_json(error)
    terminal.result(facts)


def _of_tree(reader: Reader, path: str) -> dict[str, Any]:
    """Return the values at or under a path of a training state; empty where there are none."""
    from ztensor.states import tree_values
    from ztensor.tree.decode import LeafAt
    from ztensor.tree.flattening import Container
    from ztensor.tree.stored import split_tree

    if split_tree(reader.attributes)[1] is None:
        return {}
    try:
        values = tree_values(reader, containers=True)
    except ZTensorError:  # then it has none; the error of a missing name says what there is
        return {}
    return {
        one: value_text(value, sys.maxsize) if isinstance(value, LeafAt) else as_json(value)
        for one, value in values.items()
        if (one == path or one.startswith(f"{path}.")) and not isinstance(value, Container)
    }


def _show_tree(terminal: Terminal, values: Mapping[str, Any]) -> None:
    if terminal.wants_text:
        limit = _VALUE_CHARACTERS if terminal.interactive else sys.maxsize
        terminal.facts([(path, json_text(value, limit)) for path, value in values.items()])


def describe(reader: Reader, name: str) -> dict[str, Any]:
    """Return what `show --json` says of an object before its values are read.

    Raises:
        ObjectNotFoundError: no object of that name.
    """
    found = reader.metadata(name)
    return {
        "name": found.name,
        "shape": list(found.shape),
        "dtype": found.dtype,
        "type": found.type,
        "format": found.format,
        "nbytes": as_json(found.nbytes),
        "stored_nbytes": found.stored_nbytes,
        "components": {
            role: {field: as_json(component[field]) for field in component}
            for role, component in found.components.items()
        },
        "attributes": as_json(found.attributes),
        "values": None,
    }


def summarize(reader: Reader, name: str, progress: Any = None) -> dict[str, Any] | None:
    """Return what the values of an object are like; None where they cannot be computed.

    Elements are decoded and looked at in blocks. Of a sparse object, and of one whose logical type
    is unknown, the stored values count, of a quantized one the values it stands for.

    Args:
        reader: an open file.
        name: the object.
        progress: called with the bytes of elements seen so far and of all.

    Raises:
        ObjectNotFoundError: no object of that name.
        FormatError: the stored bytes cannot be decoded.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
    """
    from ztensor.analysis.streaming import dequantized_blocks, is_quantized
    from ztensor.layout import LAYOUTS
    from ztensor.model.dtype import element_count
    from ztensor.reading.walking import ComponentWalk

    file = reader.objects.part(name)
    tensor_object = file.object(name)
    layout = LAYOUTS.get(tensor_object.format)
    if layout is None:
        return None
    if is_quantized(tensor_object.format):
        size = element_count(tensor_object.shape) * 4
        summary = Seen(progress=progress, nbytes=size)
        try:
            for block in dequantized_blocks(file, name):
                summary.feed(block)
        except UnsupportedError:  # some blocks of GGUF are only kept
            return None
        return {"of": "dequantized values", **as_json(summary.as_plain())}
    dense = tensor_object.format == "dense"
    component = tensor_object.components[layout.main_role]
    packed = component.logical is not None and component.logical.elements_per_storage > 1
    expected = (
        layout.expected_length(tensor_object, layout.main_role, None)
        if dense
        else component.known_decoded_length
    )
    summary = Seen(
        element_count(tensor_object.shape) if dense and packed else None,
        progress=progress,
        nbytes=expected or component.length,
    )
    with file.located(name, layout.main_role):
        # The walk that verifying takes, without its checks of digests.
        walk = ComponentWalk(file, component, expected, summary, is_opaque=False)
        walk.run(digest_of_decoded=False)
    is_known = dense and (component.type is None or component.logical is not None)
    return {"of": "elements" if is_known else "stored values", **as_json(summary.as_plain())}


class Seen:
    """Takes flat arrays of elements: the first of them, and sums of all.

    Args:
        count: elements to look at; those after them are padding.
        progress: called with the bytes of elements seen so far and those to see.
        nbytes: the bytes to see.
    """

    def __init__(
        self,
        count: int | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        nbytes: int = 0,
    ) -> None:
        from ztensor.analysis.sums import Sums

        self._sums = Sums()
        self._most = sys.maxsize if count is None else count
        self._progress = progress
        self._nbytes = nbytes
        self._seen = 0
        self._kind = ""
        self._first: list[Any] = []

    def feed(self, block: Array) -> None:
        """Take the next elements."""
        import numpy as np

        block = block[: max(self._most - self._sums.count, 0)]
        is_plain = block.dtype.kind in "biuc"  # bfloat16 and such are nothing Python knows
        first = block[: _FIRST - len(self._first)]
        self._first += (first if is_plain else first.astype(np.float64)).tolist()
        self._kind = block.dtype.kind if is_plain else "f"
        step = 1 << 17  # elements between two calls of `progress`
        for start in range(0, block.size, step):
            piece = block[start : start + step]
            with np.errstate(all="ignore"):  # overflow and NaN are what is looked for
                self._sums.take(piece)
            self._seen += piece.nbytes
            if self._progress is not None:
                self._progress(min(self._seen, self._nbytes), self._nbytes)

    def finish(self, counts: Mapping[str, int]) -> None:
        """Do nothing: any elements are good."""

    def as_plain(self) -> dict[str, Any]:
        """Return everything by name; None where it has no meaning for the type."""
        sums, has_elements = self._sums, self._sums.count > 0
        ordered = {} if self._kind in "bc" else sums.moments.as_fields()
        if ordered and math.isfinite(sums.total):  # exactly 0 where elements cancel out
            ordered["mean"] = sums.total / sums.moments.count
        may_be_strange = has_elements and self._kind in "fc"
        return {
            "count": sums.count,
            "first": self._first,
            **{word: ordered.get(word) for word in ("min", "max", "mean")},
            "nan_count": sums.nans if may_be_strange else None,
            "inf_count": sums.infs if may_be_strange else None,
            "true_count": sums.count - sums.zeros if has_elements and self._kind == "b" else None,
        }


def _show_description(terminal: Terminal, facts: Mapping[str, Any]) -> None:
    if not terminal.wants_text:
        return
    stored, decoded = facts["stored_nbytes"], facts["nbytes"]
    size = f"{size_text(stored)} stored"
    if isinstance(decoded, int) and decoded != stored:
        size += f", {size_text(decoded)} decoded"
    kind = facts["dtype"] or "unknown"
    terminal.facts(
        [
            ("name", facts["name"]),
            ("shape", shape_text(facts["shape"])),
            ("type", f"{facts['type']}, stored as {kind}" if facts["type"] else kind),
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
