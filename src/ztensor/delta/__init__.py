"""Deltas: files with the difference of two states of a model, element by element.

Read `states.py` (tensors and ids of a state), `comparing.py` and `making.py` (two states to a
file), `changes.py` (what every dialect is read into), `file.py` (the delta as a zTensor file),
`stream.py` (its bytes, with `segment.py` and `classes.py`), `opening.py` (of any dialect; files of
other programs are in `dialects/`) and `chain.py` (deltas in order). Then the uses of a chain:
`applying.py` and `live.py` (with `applied.py` and `targets.py`), `patching.py`, `folding.py`,
`verifying.py` and `recorder.py`. `errors.py` and `report.py` have their errors and reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.ext import Registry

if TYPE_CHECKING:
    from ztensor.delta.applying import apply
    from ztensor.delta.chain import Chain, Link, log
    from ztensor.delta.changes import Change, Delta, Part
    from ztensor.delta.errors import DeltaError, DeltaReason
    from ztensor.delta.folding import fold
    from ztensor.delta.live import apply_to
    from ztensor.delta.making import make
    from ztensor.delta.opening import open
    from ztensor.delta.patching import Patch, patches
    from ztensor.delta.recorder import Recorder
    from ztensor.delta.report import ApplyReport, DeltaReport
    from ztensor.delta.verifying import DeltaVerifyReport, verify
else:
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.delta.applying": "apply",
            "ztensor.delta.chain": "Chain Link log",
            "ztensor.delta.changes": "Change Delta Part",
            "ztensor.delta.errors": "DeltaError DeltaReason",
            "ztensor.delta.folding": "fold",
            "ztensor.delta.live": "apply_to",
            "ztensor.delta.making": "make",
            "ztensor.delta.opening": "open",
            "ztensor.delta.patching": "Patch patches",
            "ztensor.delta.recorder": "Recorder",
            "ztensor.delta.report": "ApplyReport DeltaReport",
            "ztensor.delta.verifying": "DeltaVerifyReport verify",
        },
    )

__all__ = [
    "ApplyReport",
    "Chain",
    "Change",
    "Delta",
    "DeltaError",
    "DeltaReason",
    "DeltaReport",
    "DeltaVerifyReport",
    "Link",
    "Part",
    "Patch",
    "Recorder",
    "apply",
    "apply_to",
    "fold",
    "log",
    "make",
    "open",
    "patches",
    "verify",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
