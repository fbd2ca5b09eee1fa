"""The command `ztensor`, and the one list of its verbs.

A verb's module is loaded when the verb is called. The help of the whole command, and a shell that
completes it, need only the list.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from ztensor.cli.exits import ExitCode
from ztensor.errors import without_secrets
from ztensor.installation import mixture
from ztensor.model.formats import read_suffixes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typer._click import Command, Context, HelpFormatter, Parameter


class Verb(NamedTuple):
    """A verb of the command.

    Attributes:
        summary: a sentence, which is also the first of its docstring; a test compares them.
        place: its module and function, such as `package.module:function`; by default the function
            of its name in the module `ztensor.cli.NAME`.
    """

    summary: str
    place: str = ""


# A new verb is a function and a line here.
VERBS: dict[str, dict[str, Verb]] = {
    "Look into files of any format": {
        "ls": Verb("List the objects of files: names, shapes, types, sizes."),
        "info": Verb("Show a file as a whole: version, sizes, attributes."),
        "show": Verb("Show one object: its parts, attributes and first values."),
        "verify": Verb("Check every byte of files, and list all that is wrong."),
        "stats": Verb("Show statistics of the values, and find NaN and infinity."),
        "plot": Verb("Draw histograms in the terminal, or as SVG or PNG."),
        "diff": Verb("Compare two files, whatever their formats."),
        "report": Verb("Write one page that shows a model, or two beside each other."),
        "view": Verb("Look at a model in the browser, computed as it is looked at."),
        "hash": Verb("Print an id of the contents, independent of the storage."),
        "ckpt": Verb("List, check or remove the steps of a training run."),
    },
    "Write new files": {
        "convert": Verb("Write a file of any format as .zt, or in another format."),
        "export": Verb("Write a file in another format, and list what is lost."),
        "merge": Verb("Write the objects of several files into one .zt."),
        "split": Verb("Write a file as shards of limited size, and an index."),
    },
    "Change .zt files, safely": {
        "append": Verb("Add objects of other files, of any format."),
        "replace": Verb("Put another array under a name."),
        "rm": Verb("Remove objects."),
        "mv": Verb("Rename objects."),
        "set": Verb("Set and remove attributes, of a file or of an object."),
        "compact": Verb("Free the bytes of what was removed or replaced."),
        "repair": Verb("Find what a torn file still holds, and save it."),
        "migrate": Verb("Rewrite a file in another version of the format."),
        "compress": Verb("Rewrite a file with all data as zstd.", "ztensor.cli.migrate:compress"),
        "decompress": Verb(
            "Rewrite a file with all data raw, ready to be mapped.",
            "ztensor.cli.migrate:decompress",
        ),
    },
    "Try another reader": {
        "conformance": Verb("Try a reader of .zt files on a corpus of right and wrong ones."),
    },
    "Teach the shell": {
        "completions": Verb("Print a script that completes verbs, options and names."),
    },
}

# What other commands call a verb.
_MEANT = {
    **dict.fromkeys(("cat", "head", "print"), "show"),
    **dict.fromkeys(("delete", "remove"), "rm"),
    "check": "verify",
    "inspect": "info",
    "list": "ls",
    "rename": "mv",
}

# What to type instead of verbs that are gone.
_GONE = {
    "bench": "`python -m timeit -s 'from ztensor.numpy import load_file' 'load_file(\"FILE\")'`",
    "browse": "`ztensor view MODEL`, or `ztensor ls MODEL` for its names",
    "demo": "`make demo` in the sources, or `python examples/demo.py`",
}

_SUFFIXES = read_suffixes()
_HELP = f"""\
Look into any model file, check it, compare it, convert it; change .zt files.

Files may be {", ".join(_SUFFIXES[:-1])} and {_SUFFIXES[-1]},
or a model in several such files. The contents decide the format, not the name, and nothing in a
file is ever executed. An object is one named tensor.

\b
Examples:
  $ ztensor ls tiny.safetensors
    the tensors in a file, with shapes, types and sizes
  $ ztensor convert tiny.safetensors tiny.zt
    the same tensors in another format; the first file does not change
  $ ztensor diff tiny.safetensors tiny.zt
    compare the two: nothing was lost

`ztensor VERB --help` describes a verb, with examples.
"""

# Numbers as most are given; all other spellings are typer's matter.
_NUMBERS: dict[Any, re.Pattern[str]] = {
    int: re.compile("[0-9]{1,15}"),
    float: re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?"),
}

EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:<3}  {code.meaning}" for code in ExitCode
)


class _Verb(TyperCommand):
    """A verb that was called."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Take texts as they are, and leave the rest to typer.

        From 0.29 on typer turns each value into its type with pydantic, which takes longer to load
        than all else the command needs.
        """
        try:
            return self._taken(ctx, args)
        except typer.BadParameter as error:
            for given in args:  # the message repeats what cannot be
                error.message = error.message.replace(given, without_secrets(given))
            error.message = error.message.removeprefix("Value error, ")  # pydantic's
            raise

    def _taken(self, ctx: Context, args: list[str]) -> list[str]:
        found, left, _ = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in sorted(self.get_params(ctx), key=lambda one: not one.is_eager):
            if not _is_taken(parameter, ctx, found):
                _, left = parameter.handle_parse_result(ctx, found, left)
        if left and not ctx.resilient_parsing:
            from ztensor.model.showing import visible

            shown = " ".join(visible(without_secrets(one)) for one in left)
            ctx.fail(f"Got unexpected extra argument(s) ({shown})")
        ctx.args = left
        return left


def _is_taken(parameter: Parameter, ctx: Context, found: Mapping[str, Any]) -> bool:
    """Take a value that is known at a glance to be right; wrong ones are typer's matter."""
    value, source = parameter.consume_value(ctx, found)
    described: Any = getattr(parameter, "type_descriptor", None)  # of newer releases of typer
    kind = getattr(described, "annotation", None)
    if value is None or value == () or value is parameter.default:
        is_right = not parameter.required
    elif kind == list[str]:
        is_right, value = not isinstance(value, str), list(value)
    elif get_origin(kind) is Literal:
        is_right = value in get_args(kind)
    elif kind in _NUMBERS:
        is_right = isinstance(value, str) and _NUMBERS[kind].fullmatch(value) is not None
        value = described.annotation(value) if is_right else value
        is_right = is_right and _is_within(value, described.parameter_info)
    else:
        is_right = kind is str and isinstance(value, str)
    if not is_right or parameter.name is None:
        return False
    ctx.set_parameter_source(parameter.name, source)
    if parameter.callback is not None:
        value = parameter.callback(ctx, parameter, value)
    if parameter.expose_value:
        ctx.params[parameter.name] = value
    return True


def _is_within(value: float, bounds: Any) -> bool:
    low, high = getattr(bounds, "min", None), getattr(bounds, "max", None)
    return (low is None or value >= low) and (high is None or value <= high)


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
            for name, verb in verbs.items():
                self.add_command(_Named(name, help=verb.summary, short_help=verb.summary))

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return flags, typer's own among them; a bool it leaves as it is (see `_Verb`)."""
        flags = super().get_params(ctx)
        for flag in flags:
            flag.default = bool(flag.default)
        return flags

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the verb; where there is none, say which one is meant."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            if args[0] in _GONE:
                ctx.fail(f"{args[0]!r} is no verb any more; type {_GONE[args[0]]}")
            if args[0] in _MEANT:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {_MEANT[args[0]]!r}?")
            if os.path.lexists(args[0]):
                ctx.fail("A file comes after a command, as in `ztensor ls FILE`.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        width = max(len(name) for verbs in VERBS.values() for name in verbs)
        for title, verbs in VERBS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), verb.summary) for name, verb in verbs.items()]
                )


@functools.cache
def command_of(name: str) -> Command:
    """Load a verb.

    Args:
        name: one of `VERBS`.
    """
    from ztensor.cli.verb import as_command

    place = next(verbs[name].place for verbs in VERBS.values() if name in verbs)
    module_name, _, own = place.partition(":")
    module = importlib.import_module(module_name or f"ztensor.cli.{name}")
    # Where the name is one of Python's own, the function's has an underscore behind it.
    function = getattr(module, own or f"{name}_", None) or getattr(module, name)
    # Lines that are indented stay as they are; \b says so to typer.
    text = re.sub(r"(?m)^(?=\S.*\n +\S)", "\b\n", inspect.getdoc(function) or "")
    one = typer.Typer(rich_markup_mode=None, add_completion=False)
    one.command(name, cls=_Verb, help=text, epilog=EXIT_CODES)(as_command(function))
    return typer.main.get_command(one)


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


def _open_missing_streams() -> None:
    """Open the standard streams that the process was started without.

    Input and output then fail where they are used, like those on a full disk. Messages are dropped.
    No file that a verb opens gets their numbers.
    """
    for name, flags, mode in (
        ("stdin", os.O_WRONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, flags)
            setattr(sys, name, open(nowhere, mode, encoding="utf-8"))  # noqa: SIM115


def main() -> None:
    """Run the command; `SystemExit` carries the exit code."""
    _open_missing_streams()
    mixed = mixture()
    if mixed is not None:  # said on each call: the next change to the installation breaks it
        print(mixed.message, file=sys.stderr)
        if mixed.is_broken:
            raise SystemExit(ExitCode.FAILED)
    try:
        app()
    except OSError as error:  # of help: a verb handles its own
        from ztensor.cli.verb import code_without_output

        raise SystemExit(code_without_output(error)) from None


if __name__ == "__main__":
    main()
