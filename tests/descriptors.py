"""Which files a process has open. Those of other tests close at any moment: new ones count."""

from __future__ import annotations

import collections
import contextlib
import gc
import os
from pathlib import Path

import pytest

_LIST = Path("/proc/self/fd")


def open_files() -> collections.Counter[str]:
    """Return what is open, pipes and removed files too, and how often."""
    if not _LIST.is_dir():
        pytest.skip("this system does not list the descriptors of a process")
    gc.collect()
    found: collections.Counter[str] = collections.Counter()
    for number in os.listdir(_LIST):
        with contextlib.suppress(OSError):  # the list was open itself
            found[os.readlink(_LIST / number)] += 1
    return found
