"""`ztensor browse`: a model in the terminal, over ssh, too."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ztensor.cli.ls import ls
from ztensor.cli.options import Choice
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import STDIN, open_file
from ztensor.errors import MissingDependencyError


def browse(
    terminal: Terminal,
    file: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A file of any known format, an index or folder."),
    ],
) -> None:
    """Look around in a model in the terminal.

    The names are a list or, after t, a tree. / searches: a name has to have all words in it. The
    chosen tensor is read in the background, which stops when another one is chosen: its numbers
    and a histogram are shown. f reads all tensors and lists what is odd, as `ztensor report`
    does. Nothing is read before it is looked at, so that models of any size open at once. A file
    that changes or disappears meanwhile is said to have.

    It needs `pip install 'pyztensor[browse]'`. NO_COLOR=1 leaves colours out.

    Output:
      On a terminal a screen of names, with one tensor beside them. Keys: arrows,
      PgUp, PgDn, Home, End (or j, k, g, G) move; / searches, Esc goes back to
      the names; t shows a list or a tree, Enter opens a branch; f lists
      findings; Tab goes to the other side, to scroll it; q quits. Elsewhere,
      and for standard input, the list of names, as `ztensor ls` prints it.

    JSON:
      As of `ztensor ls`.

    Safety:
      It never changes a file.

    Exit code:
      0 when it is left.

    Examples:
      $ ztensor browse model.zt
        on a terminal until q is pressed; through a pipe, the names
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    has_screen = all(stream is not None and stream.isatty() for stream in streams)
    if file == STDIN or terminal.wants_json or not has_screen:
        ls(terminal, [file], choice=Choice())
        return
    with open_file(file) as reader:
        try:
            from ztensor.browsing.app import Browser
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "textual":
                raise
            raise MissingDependencyError(
                "browsing needs Textual: pip install 'pyztensor[browse]'"
            ) from error
        Browser(reader).run()
