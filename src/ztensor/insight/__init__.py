"""What is in a model: numbers, pictures, differences and findings, and how they are shown.

Read `analysis/` (the tensors of files to one document), then how it is shown: `page/` (one HTML
file), `serving/` (the same page from a server on this machine) and `notebook/` (results as tables
without a script). `text.py` shows names and sizes to people; `ztensor.fleet` does the same to many
files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.ext import Registry

if TYPE_CHECKING:
    from ztensor.insight.analysis.canonical import canonical_problems
    from ztensor.insight.analysis.comparing import DiffReport
    from ztensor.insight.analysis.document import Insight
    from ztensor.insight.analysis.findings import Finding
    from ztensor.insight.analysis.identity import content_digest, tensor_hashes
    from ztensor.insight.analysis.pairs import TensorDiff
    from ztensor.insight.analysis.plotting import Picture
    from ztensor.insight.analysis.spreads import Histogram
    from ztensor.insight.analysis.statistics import StatsReport, TensorStats
    from ztensor.insight.analysis.tally import ValueDiff
    from ztensor.insight.page.inline import ModelView
else:
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.insight.analysis.canonical": "canonical_problems",
            "ztensor.insight.analysis.comparing": "DiffReport",
            "ztensor.insight.analysis.pairs": "TensorDiff",
            "ztensor.insight.analysis.findings": "Finding",
            "ztensor.insight.analysis.identity": "content_digest tensor_hashes",
            "ztensor.insight.analysis.document": "Insight",
            "ztensor.insight.analysis.plotting": "Picture",
            "ztensor.insight.analysis.spreads": "Histogram",
            "ztensor.insight.analysis.statistics": "StatsReport TensorStats",
            "ztensor.insight.analysis.tally": "ValueDiff",
            "ztensor.insight.page.inline": "ModelView",
        },
    )

__all__ = [
    "DiffReport",
    "Finding",
    "Histogram",
    "Insight",
    "ModelView",
    "Picture",
    "StatsReport",
    "TensorDiff",
    "TensorStats",
    "ValueDiff",
    "canonical_problems",
    "content_digest",
    "tensor_hashes",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
