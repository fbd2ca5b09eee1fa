"""`ztensor browse`: a model in the terminal, over ssh, too."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import STDIN, open_file
from ztensor.errors import MissingDependencyError, UsageError


def browse(
    terminal: Terminal,
    file: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A file of any known format, an index or folder."),
    ],
) -> None:
    """Look around in a model, in the terminal: names, numbers, histograms.

    The names are a list or, after t, a tree. / searches: a name has to have all words in it. The
    chosen tensor is read in the background, which stops when another one is chosen: its numbers
    and a histogram are shown. f reads all tensors and lists what is odd, as `ztensor report`
    does. Nothing is read before it is looked at, so that models of any size open at once.

    It needs a terminal and `pip install 'pyztensor[browse]'`. NO_COLOR=1 leaves colours out.

    Keys:
      up, down, PgUp, PgDn, Home, End
                      move; j, k, g and G, too
      / Esc           search; back to the names
      t               list or tree
      Enter, left, right
                      open or close a branch of the tree
      f               findings of the whole model
      Tab             to the other side, to scroll it
      q               quit

    Safety:
      It changes no file. A file that changes meanwhile is said to have.

    Exit code:
      0 when it is left; 2 where there is no terminal.

    Examples:
      $ ztensor browse model.zt
        until q is pressed
    """
    if file == STDIN:
        raise UsageError("browse takes the keyboard, so the model cannot be standard input")
    with open_file(file) as reader:
        if terminal.wants_json or not all(
            stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)
        ):
            raise UsageError("browse needs a terminal; ztensor ls prints the names")
        try:
            from ztensor.browsing.app import Browser
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "textual":
                raise
            raise MissingDependencyError(
                "browsing needs Textual: pip install 'pyztensor[browse]'"
            ) from error
        Browser(reader).run()
