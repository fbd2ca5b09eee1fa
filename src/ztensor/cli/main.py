"""The command `ztensor`, and the one list of its verbs.

A verb's module is loaded when the verb is called. The help of the whole command, and a shell that
completes it, need only the list.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from ztensor.cli.exits import ExitCode
from ztensor.installation import mixture

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer._click import Command, Context, HelpFormatter, Parameter

# Each sentence is also the first of the verb's docstring; a test compares them.
VERBS = {
    "Look into files of any format": {
        "ls": "List the objects of files: names, shapes, types, sizes.",
        "info": "Show a file as a whole: version, sizes, attributes.",
        "show": "Show one object: its parts, attributes and first values.",
        "stats": "Say what values are like, and find NaN and infinity.",
        "plot": "Draw histograms in the terminal, or as SVG or PNG.",
        "diff": "Compare two files, whatever their formats.",
        "verify": "Check every byte of files, and list all that is wrong.",
        "hash": "Print an id of what files hold, however it is stored.",
        "demo": "Save, map, slice and damage a checkpoint, with times.",
    },
    "Write new files": {
        "convert": "Write a file of any format as .zt, or in another format.",
        "export": "Write a file in another format, and list what is lost.",
        "merge": "Write the objects of several files into one .zt.",
        "split": "Write a file as shards of a size, and an index.",
    },
    "Change .zt files, safely": {
        "append": "Add objects of other files, of any format.",
        "replace": "Put another array under a name.",
        "rm": "Remove objects.",
        "mv": "Rename objects.",
        "set": "Set and remove attributes, of a file or of an object.",
        "compact": "Free the bytes of what was removed or replaced.",
        "repair": "Find what a torn file still holds, and save it.",
        "migrate": "Rewrite a file in another version of the format.",
        "compress": "Rewrite a file with all data as zstd.",
        "decompress": "Rewrite a file with all data raw, ready to be mapped.",
    },
    "Teach the shell": {
        "completions": "Print a script that completes verbs, options and names.",
    },
}

_HELP = """\
Look into any model file, check it, compare it, convert it; change .zt files.

Files may be .zt, .safetensors, .pt, .pth, .bin, .gguf, .npz, .npy, .onnx, .h5, .hdf5 and .keras,
or a model in several of them. They are told apart by what is in them, not by name, and nothing in
them is ever run. An object is one named tensor.

\b
Examples:
  $ ztensor ls tiny.safetensors
    the tensors in a file, with shapes, types and sizes
  $ ztensor convert tiny.safetensors tiny.zt
    the same in another format; the first file stays as it is
  $ ztensor diff tiny.safetensors tiny.zt
    nothing was lost on the way

`ztensor VERB --help` says all of a verb, with examples.
"""

EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:<3}  {code.meaning}" for code in ExitCode
)
_NAME_WIDTH = max(len(name) for verbs in VERBS.values() for name in verbs)


class _Verb(TyperCommand):
    """A verb that was called."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        return [_without_pydantic(parameter) for parameter in super().get_params(ctx)]


class _Named(TyperCommand):
    """A verb of which only name and summary are known until it is called."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: Any
    ) -> Context:
        assert self.name is not None  # noqa: S101  # no input: it is a key of the list
        return command_of(self.name).make_context(info_name, args, parent, **extra)


class _Verbs(TyperGroup):
    """The verbs of the list, shown in its groups."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for verbs in VERBS.values():
            for name, summary in verbs.items():
                self.add_command(_Named(name, help=summary, short_help=summary))

    def get_params(self, ctx: Context) -> list[Parameter]:
        return [_without_pydantic(parameter) for parameter in super().get_params(ctx)]

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        for title, verbs in VERBS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(_NAME_WIDTH), summary) for name, summary in verbs.items()]
                )


@functools.cache
def command_of(name: str) -> Command:
    """Load a verb.

    Args:
        name: one of `VERBS`.
    """
    module = importlib.import_module(f"ztensor.cli.{name}")
    # Where the name is one of Python's own, the function's has an underscore behind it.
    function = getattr(module, f"{name}_", None) or getattr(module, name)
    # Lines that are indented stay as they are; \b says so to typer.
    text = re.sub(r"(?m)^(?=\S.*\n +\S)", "\b\n", inspect.getdoc(function) or "")
    one = typer.Typer(rich_markup_mode=None, add_completion=False)
    one.command(name, cls=_Verb, help=text, epilog=EXIT_CODES)(function)
    return typer.main.get_command(one)


def _without_pydantic(parameter: Parameter) -> Parameter:
    """Let a parameter take texts and paths as they are.

    From 0.29 on typer turns each value into its type with pydantic, which takes longer to load than
    all else the command needs. What is not known at a glance, wrong values among it, stays
    typer's matter.
    """
    slow = parameter.process_value
    if not isinstance(slow, functools.partial):
        kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        vars(parameter)["process_value"] = functools.partial(_process, parameter, kind, slow)
    return parameter


def _process(
    parameter: Parameter,
    kind: Any,
    slow: Callable[[Context, Any], Any],
    ctx: Context,
    value: Any,
) -> Any:
    if value is None or value == () or value is parameter.default:
        if parameter.required:
            return slow(ctx, value)
    elif kind in (str, Path) and isinstance(value, str):
        value = kind(value)
    elif kind in (list[str], list[Path]) and isinstance(value, (list, tuple)):
        value = [get_args(kind)[0](text) for text in value]
    elif get_origin(kind) is not Literal or value not in get_args(kind):
        return slow(ctx, value)
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


app = typer.Typer(
    name="ztensor",
    cls=_Verbs,
    help=_HELP,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # plain help: rich takes longer to load than the help to print
    pretty_exceptions_enable=False,  # they print local variables, a stranger's names among them
)


def _print_version(value: bool) -> None:  # noqa: FBT001  # typer calls it so
    if value:
        import ztensor
        from ztensor.cli.verb import running

        with running(json=False, quiet=False) as terminal:
            terminal.line(f"ztensor {ztensor.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; `SystemExit` carries the exit code."""
    mixed = mixture()
    if mixed is not None:  # said on each call: the next change to the installation breaks it
        print(mixed.message, file=sys.stderr)
        if mixed.is_broken:
            raise SystemExit(ExitCode.FAILED)
    app()


if __name__ == "__main__":
    main()
