"""`ztensor completions`: a script for a shell, and the answers to its requests."""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING, Any

from ztensor.cli.options import Option
from ztensor.cli.parsing import load
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import open_file
from ztensor.errors import MissingDependencyError, ZTensorError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

OPTIONS = (
    Option(
        "shell",
        choices=("bash", "zsh", "fish", "powershell"),
        metavar="SHELL",
        help="bash, zsh, fish or powershell.",
    ),
)

_MOST_NAMES = 200


def completions(terminal: Terminal, options: Namespace) -> None:
    """Print a script that completes verbs, options and names.

    Names of objects are completed from the file on the command line. The library argcomplete must
    be installed (`pip install argcomplete`), also when the script runs.

    Output:
      The script.

    JSON:
      shell, script   two texts

    Safety:
      It never changes settings of the shell.

    Exit code:
      0, or 2 for a shell it does not know.

    Examples:
      $ ztensor completions bash > ztensor.bash
        a file that bash reads with `source`
    """
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError as error:
        raise MissingDependencyError(
            "completion needs argcomplete", install="argcomplete"
        ) from error
    script = shellcode(["ztensor"], shell=options.shell)
    for line in script.expandtabs(4).splitlines():
        terminal.line(line)
    terminal.result({"shell": options.shell, "script": script})


def complete(verbs: Iterable[tuple[str, str, str]]) -> None:
    """Answer a shell's request for completions, and end the process.

    Args:
        verbs: name, summary and place of each.
    """
    import argcomplete

    parser = argparse.ArgumentParser(prog="ztensor", allow_abbrev=False)
    parsers = parser.add_subparsers()
    typed = os.environ.get("COMP_LINE", "").split()[1:2]
    for name, summary, place in verbs:
        one = parsers.add_parser(name, help=summary, allow_abbrev=False)
        for option in load(name, place).options if [name] == typed else ():
            action: Any = option.add_to(one)
            if option.is_name:
                action.completer = _names
    argcomplete.autocomplete(parser)


def _names(prefix: str, parsed_args: Namespace, **_others: Any) -> list[str]:
    """Return the names of objects in FILE that need no quoting in a shell."""
    try:
        with open_file(parsed_args.file) as reader:
            names = [name for name in reader if name.startswith(prefix)]
    except ZTensorError:
        return []
    plain = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
    return [name for name in names if plain.fullmatch(name)][:_MOST_NAMES]
