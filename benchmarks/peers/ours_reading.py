"""This checkout, reading the file that another library wrote."""

from __future__ import annotations

import contextlib
import importlib

from benchmarks.peers import ours

from ztensor.io.formats import FORMATS

START = ours.START

save = ours.save  # only for the use of everything once, before anything is measured
keys, one, mapped, owned = ours.keys, ours.one, ours.mapped, ours.owned

# What is imported when such a file is met first; `start` has the time for it.
for _module in (
    "h5py",
    "ztensor.spec.container.kinds",
    *(one.module for one in FORMATS.values()),
):
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)
