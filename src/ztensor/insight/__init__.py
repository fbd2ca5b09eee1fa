"""Statistics, pictures, differences and findings of models, and their display.

Read `analysis/` (from the tensors of files to one document), then the displays: `page/` (one HTML
file), `serving/` (the same page from a local server) and `notebook/` (tables without a script).
`text.py` formats names and sizes, `saving.py` writes finished files; `ztensor.fleet` processes many
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
