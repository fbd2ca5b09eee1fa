"""Files of other formats, projected onto our `Manifest`: one file a format.

`base.py` says what such a file gives. Behind it everything works on these files as on our own:
mapping, slices, verify, every framework, every verb. `FORMATS` is the table; a file's bytes decide,
never its name. A format's library is not needed to read it, but for HDF5 and ONNX, and nothing in
a file is ever executed. A module that can also write its format has `export`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ztensor.foreign.base import Format, Projection, Recipe
from ztensor.source.base import read_bytes

if TYPE_CHECKING:
    from ztensor.limits import Limits
    from ztensor.source.base import Source

# What the formats are recognised by lies in a file's first bytes.
_HEAD_BYTES = 4096

# In this order, the surest signs first.
FORMATS: list[Recipe] = []


def project(source: Source, limits: Limits) -> Projection | None:
    """Return what a file of another format holds, or None where it is of no format known here.

    Raises:
        FormatError: the file is damaged.
        UnsupportedError: it holds what this release cannot read.
        MissingDependencyError: the library for the format is not installed.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    head = bytes(read_bytes(source, 0, min(_HEAD_BYTES, source.size)))
    for recipe in FORMATS:
        if recipe.recognises(head, source):
            module: Format = importlib.import_module(recipe.module)
            return module.project(source, limits)
    return None


__all__ = ["FORMATS", "Format", "Projection", "Recipe", "project"]
