"""A table from classes to the functions that make their sheets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.insight.notebook import files, results, runs, values
from ztensor.insight.notebook.sheet import FileText, Sheet, html_of

if TYPE_CHECKING:
    from collections.abc import Callable

# By names, so that no module is loaded. Subclasses are included.
MAKERS: dict[str, Callable[[Any], Sheet]] = {
    "ztensor.io.reading.reader.ObjectReader": files.of_reader,
    "ztensor.io.opening.ShardedReader": files.of_set,
    "ztensor.distributed.opened.DividedCheckpoint": files.of_divided,
    "ztensor.handle.safe_open": files.of_handle,
    "ztensor.handle.HandleSlice": files.of_handle_slice,
    "ztensor.io.reading.slices.TensorSlice": files.of_slice,
    "ztensor.io.metadata.TensorMetadata": files.of_metadata,
    "ztensor.io.tensor.value.Tensor": values.of_tensor,
    "ztensor.training.states.LazyTree": values.of_tree,
    "ztensor.training.tree.record.Record": values.of_record,
    "ztensor.io.reading.verify.VerifyReport": results.of_verify,
    "ztensor.insight.analysis.statistics.StatsReport": results.of_stats,
    "ztensor.insight.analysis.statistics.TensorStats": results.of_tensor_stats,
    "ztensor.insight.analysis.comparing.DiffReport": results.of_diff,
    "ztensor.insight.analysis.pairs.TensorDiff": results.of_tensor_diff,
    "ztensor.insight.analysis.document.Insight": results.of_insight,
    "ztensor.converting.report.ConversionReport": results.of_conversion,
    "ztensor.training.checkpoints.step.Checkpoint": runs.of_checkpoint,
    "ztensor.training.checkpoints.history.Restored": runs.of_restored,
    "ztensor.training.checkpoints.manager.CheckpointManager": runs.of_manager,
}


def shown(thing: object) -> str:
    """Return the HTML of an object of a class in the table; never raises."""
    kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(thing).__mro__]
    try:
        return html_of(next(MAKERS[kind] for kind in kinds if kind in MAKERS)(thing))
    except Exception as error:  # noqa: BLE001  # a notebook would show a traceback
        name = type(thing).__name__
        return html_of(Sheet(f"ztensor.{name}", facts=[("cannot be shown", FileText(str(error)))]))
