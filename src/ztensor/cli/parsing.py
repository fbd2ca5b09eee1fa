"""The command line of a verb, parsed by argparse with our own help and errors."""

from __future__ import annotations

import argparse
import importlib
import inspect
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ztensor.cli.exits import ExitCode
from ztensor.cli.options import OUTPUT, Option
from ztensor.errors import UsageError, describe, near_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_CODES = "Exit codes:\n" + "\n".join(f"  {code.value:<3}  {code.meaning}" for code in ExitCode)
_WIDEST = 100


def filled(text: str) -> str:
    """Wrap paragraphs to the width of the terminal; indented lines stay as they are."""
    import textwrap  # needed for help only

    width = min(shutil.get_terminal_size().columns, _WIDEST)
    parts = text.strip().split("\n\n")
    return "\n\n".join(part if "\n  " in part else textwrap.fill(part, width) for part in parts)


class Command(NamedTuple):
    """A verb, loaded.

    Attributes:
        name: the word on the command line.
        function: takes a `Terminal` and the options.
        options: its options, then the options of all verbs.
    """

    name: str
    function: Callable[..., None]
    options: tuple[Option, ...]

    @property
    def help(self) -> str:
        """Return its help: paragraphs and sections."""
        return inspect.getdoc(self.function) or ""

    @property
    def usage(self) -> str:
        """Return the usage line."""
        arguments = [option.usage for option in self.options if option.is_argument]
        return " ".join(["ztensor", self.name, "[OPTIONS]", *arguments])

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add its options to a parser."""
        for option in self.options:
            option.add_to(parser)

    def explain(self) -> str:
        """Return the printed help."""
        parser = _Parser(
            usage=self.usage,
            description=filled(self.help),
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_to(parser)
        return parser.format_help()

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the values of its options.

        Raises:
            UsageError: an argument is missing or unexpected.
        """
        advice = f"; `ztensor {self.name} --help` shows all"
        parser = _Parser(usage=self.usage, allow_abbrev=False)
        self.add_to(parser)
        try:
            values, extra = parser.parse_known_intermixed_args(words)
        except UsageError as error:
            error.message += advice
            raise
        if extra:
            word = extra[0]
            if not word.startswith("-"):
                raise UsageError(f"unexpected argument {describe(word)}{advice}")
            spellings = [text for option in self.options for text in option.words]
            near, _ = near_names(word.partition("=")[0], spellings)
            hint = f"; did you mean {near[0]}?" if near else advice
            raise UsageError(f"unknown option {describe(word)}{hint}")
        if values.json and values.quiet:
            raise UsageError("--json and --quiet exclude each other")
        return values


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def load(name: str, place: str = "") -> Command:
    """Load a verb.

    Args:
        name: the word on the command line.
        place: `Verb.place`.
    """
    module_name, _, own = place.partition(":")
    module: Any = importlib.import_module(module_name or f"ztensor.cli.{name}")
    # A function whose name would hide a builtin ends with an underscore.
    function = getattr(module, own or f"{name}_", None) or getattr(module, name)
    return Command(name, function, (*getattr(module, "OPTIONS", ()), *OUTPUT))
