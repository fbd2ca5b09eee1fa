"""`ztensor set`: the key-value pairs of a file or of one object."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli.changing import changing, pair_of
from ztensor.cli.options import CHANGED_FILE, EDITING, Option
from ztensor.cli.terminal import Terminal
from ztensor.errors import ArgumentValueError, UsageError, describe

if TYPE_CHECKING:
    from argparse import Namespace

OPTIONS = (
    CHANGED_FILE,
    Option("pairs", nargs="*", metavar="KEY=VALUE", help="Attributes to set."),
    Option(
        "--object",
        metavar="NAME",
        is_name=True,
        help="Attributes of this object, instead of the file's.",
    ),
    Option("--remove", action="append", metavar="KEY", help="Remove this key; may be repeated."),
    Option("--json-values", is_flag=True, help="Values are JSON, not text."),
    Option(
        "--type",
        metavar="TYPE",
        help="Of .gguf: the type of the values, such as u32, f32, bool, str or [str].",
    ),
    *EDITING,
)


def set_(terminal: Terminal, options: Namespace) -> None:
    """Set and remove attributes, of a file or of an object.

    Values are text, or with --json-values JSON: numbers, lists, maps. KEY ends at the first "=".
    Only a new manifest is written; a .safetensors or .gguf file is replaced by a new one. A key of
    .gguf keeps its type, and text for a number is parsed; --type gives a new key another type than
    text.

    Output:
      The number of changed attributes; with --dry-run the changes, one to a line.

    JSON:
      As of `ztensor append`.

    Safety:
      It never touches an attribute that is not named.

    Exit code:
      0 if all was done, 2 if a key to remove does not exist.

    Examples:
      $ ztensor set model.zt note='a new text' author=me --remove format --dry-run
        the planned changes of the file's own attributes
      $ ztensor set model.zt 'shape_of_input=[1, 64]' --json-values
        a list, not a text
      $ ztensor set model.zt unit=volt --object step
        an attribute of one object
      $ ztensor set tiny.safetensors format=pt
        a key of `__metadata__`
    """
    new: dict[str, Any] = {}
    for text in options.pairs:
        key, value = pair_of(text, "KEY=VALUE")
        _take(new, key, _value_of(key, value) if options.json_values else value)
    for key in options.remove:
        _take(new, key, None)
    if not new:
        raise ArgumentValueError("nothing to set", expected="KEY=VALUE, or --remove KEY")
    name = options.object
    with changing(terminal, options) as changes:
        editor = changes.editor
        old = editor.attributes if name is None else editor.metadata(name).attributes
        missing = next((key for key in options.remove if key not in old), None)
        if missing is not None:
            raise ArgumentValueError("no such key", file=options.file, found=describe(missing))
        if options.type is None:
            editor.set_attributes(new, name=name)
        elif isinstance(editor, ztensor.edit.FormatEditor):
            editor.set_attributes(new, name=name, types=dict.fromkeys(new, options.type))
        else:
            raise UsageError("--type is for .gguf files", file=options.file)
        after = editor.attributes if name is None else editor.metadata(name).attributes
        for key, value in new.items():
            facts = {"object": name, "key": key, "before": old.get(key)}
            if value is None:
                changes.add("unset", **facts)
            else:
                changes.add("set", **facts, after=after[key])


def _take(new: dict[str, Any], key: str, value: Any) -> None:
    if key in new:
        raise ArgumentValueError("a key is given twice", found=describe(key))
    new[key] = value


def _value_of(key: str, text: str) -> Any:
    import json

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no number of JSON")

    def finite(word: str) -> float:
        number = float(word)
        return number if math.isfinite(number) else refuse(word)

    try:
        value = json.loads(text, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise ArgumentValueError(
            f"the value of {describe(key)} is not JSON: {error}", found=describe(text)
        ) from error
    if value is None:
        raise ArgumentValueError(
            "null is not a value; --remove removes a key", found=describe(f"{key}={text}")
        )
    return value
