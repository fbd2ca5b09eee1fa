"""The verb `ztensor count`."""

from argparse import Namespace

import ztensor
from ztensor.cli.options import FILE
from ztensor.cli.terminal import Terminal

OPTIONS = (FILE,)


def count(terminal: Terminal, options: Namespace) -> None:
    """Count the objects of a file."""
    with ztensor.open(options.file) as reader:
        terminal.line(f"{len(reader)} objects")
        terminal.result({"count": len(reader)})
