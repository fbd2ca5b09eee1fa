"""Recognize files of steps: only these are removed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ztensor import Remote
from ztensor import open as open_files
from ztensor.distributed.opened import root_of
from ztensor.distributed.root import STEP
from ztensor.errors import FormatError, ZTensorError
from ztensor.ext import FileObjects, open_file
from ztensor.training.checkpoints.step import parsed_metrics, step_data, why_not_a_step

if TYPE_CHECKING:
    from typing import BinaryIO


def is_step_file(given: BinaryIO | Remote, step: int) -> bool:
    """Return whether a file is a certain step, or may be a damaged step.

    Args:
        given: the file, open, or its URL.
        step: the number of the step.

    Raises:
        SourceError: it cannot be read.
        UnsupportedError: a newer release wrote it.
    """
    try:
        with open_files(given, mmap=False) as reader:
            step_data(reader, step)
    except FormatError as error:
        return why_not_a_step(error) is None and FileObjects.may_be_ours(given)
    return True


def is_step_root(given: BinaryIO | Remote, step: int, named: list[str]) -> bool:
    """Return whether a file is the root of a step, or may be a damaged root.

    Args:
        given: as for `is_step_file`.
        step: the number of the step; a root may lack it.
        named: the names of the root's files are appended.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        file: Any = open_file(given, mmap=False)
    except FormatError:
        return FileObjects.may_be_ours(given)
    with contextlib.closing(file):
        try:
            root = root_of(file)
            if root is None:
                return False
            named += [one.name for one in root.files]
            attribute = root.values.get(STEP)
            if isinstance(attribute, dict):
                parsed_metrics(attribute, step, file.name)
        except ZTensorError as error:
            return why_not_a_step(error) is None  # a root with damaged values
        return True
