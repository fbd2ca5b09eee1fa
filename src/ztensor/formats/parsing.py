"""Which format a file is of, and what it holds; which module writes a format."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING

from ztensor.errors import ZTensorError
from ztensor.ext import STORAGE_TYPES, Tally, foreign_bytes, read_bytes
from ztensor.formats.base import Projection
from ztensor.formats.table import FORMATS, Look
from ztensor.io.source.directory import FolderSource
from ztensor.limits import Budget
from ztensor.spec.model.account import UNREAD

if TYPE_CHECKING:
    from ztensor.ext import Source, Unrepresented
    from ztensor.formats.base import Exporting, Projecting
    from ztensor.limits import Limits


def recognised(source: Source) -> str | None:
    """Return the format a file's bytes are of, or None where it is none of the table.

    Raises:
        SourceError: it cannot be read.
    """
    if isinstance(source, FolderSource):
        return "dcp"
    look = Look(source.size, lambda start, length: bytes(read_bytes(source, start, length)))
    with foreign_bytes("the file", source.name):
        return next((name for name, format in FORMATS.items() if format.is_recognised(look)), None)


def project(source: Source, limits: Limits) -> Projection | None:
    """Return what a file of another format holds, or None where it is of no format known here.

    Raises:
        FormatError: the file is damaged.
        UnsupportedError: it holds what this release cannot read.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    name = recognised(source)
    if name is None:
        return None
    module: Projecting = importlib.import_module(FORMATS[name].module)
    try:
        with foreign_bytes("the file", source.name):
            found = module.project(source, Budget(limits, source.size))
    except ZTensorError as error:
        error.forget_sections()
        if source.name.endswith(".distcp") and name != "dcp":
            error.hint = "it is one of the files of a checkpoint: name the folder it is in"
        raise
    return dataclasses.replace(found, format=name, account=lambda: _whole_account(found))


def exporter(name: str) -> Exporting:
    """Return what writes a format that is not ours; a name of the table."""
    module: Exporting = importlib.import_module(FORMATS[name].module)
    return module


def _whole_account(found: Projection) -> list[Unrepresented]:
    """Return what a file says beyond what is given of it, what is listed only among it."""
    tally = Tally()
    tally.extend(found.account())
    for name, tensor_object in found.manifest.objects.items():
        for component in tensor_object.components.values():
            encoding = found.encodings.get(component.encoding)
            is_absent = encoding is None or encoding.is_absent
            if is_absent or component.dtype not in STORAGE_TYPES:
                tally.add(f"{UNREAD} {component.dtype}", name, nbytes=component.length or None)
    return tally()
