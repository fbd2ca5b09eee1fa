"""A divided step as one state: all of it in one process, whoever wrote it, in whatever parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor import open as open_files
from ztensor.distributed.opened import root_of
from ztensor.training.checkpoints.step import NO_ROOT, not_a_step, told_by_root
from ztensor.training.states import read_tree
from ztensor.training.tree.adapters import AS_SAVED
from ztensor.training.tree.fitting import fit

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_divided(
    path: Any,
    step: int,
    into: Any,
    how: Mapping[str, Any],
) -> tuple[dict[str, float], Any]:
    """Return the metrics and the whole state of a divided step, in memory of its own.

    Args:
        path: the folder of the step, or its URL.
        step: what its name says.
        into: as for `ztensor.CheckpointManager.restore`.
        how: likewise, and what else `read_tree` takes.

    Raises:
        ZTensorError: what `restore` raises.
    """
    with open_files(path) as reader:
        root = root_of(reader.objects.parts()[0])
        if root is None:
            raise not_a_step(NO_ROOT, None, reader.name)
        metrics = told_by_root(root.values, step, reader.name)
        tree = read_tree(reader, AS_SAVED, copy=True, **how)
        if root.writer == "jax" and into is not None:
            from ztensor.distributed.jax import laid_over

            return metrics, laid_over(into, tree)
        return metrics, tree if into is None else fit(into, tree)
