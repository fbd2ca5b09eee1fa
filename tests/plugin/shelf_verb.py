"""The verb `ztensor count`."""

import ztensor
from ztensor.cli.options import FILE

OPTIONS = (FILE,)


def count(terminal, options):
    """Count the objects of a file."""
    with ztensor.open(options.file) as reader:
        terminal.line(f"{len(reader)} objects")
        terminal.result({"count": len(reader)})
