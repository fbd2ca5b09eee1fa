"""Checkpoints of several processes, written by one, for tests of this folder."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from ztensor.distributed import PartWriter, commit
from ztensor.typing import Storage


def cut(array: np.ndarray[Any, Any], axis: int, count: int) -> list[tuple[Any, tuple[int, ...]]]:
    """Return an array in so many chunks along an axis, and where each begins."""
    ends = np.linspace(0, array.shape[axis], count + 1).astype(int)
    chunks = []
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        place = [slice(None)] * array.ndim
        place[axis] = slice(start, end)
        offsets = [0] * array.ndim
        offsets[axis] = start
        chunks.append((array[tuple(place)], tuple(offsets)))
    return chunks


def save(
    folder: Any,
    tensors: dict[str, Any],
    *,
    processes: int = 3,
    axis: int = 0,
    values: dict[str, object] | None = None,
    storage: Storage | None = None,
    **options: Any,
) -> None:
    """Save tensors, each cut along an axis among the processes; process 0 saves the others."""
    records = []
    save_id = secrets.token_hex(8)
    for process in range(processes):
        with PartWriter(
            folder,
            process=process,
            processes=processes,
            save_id=save_id,
            storage=storage,
            **options,
        ) as part:
            for name, value in tensors.items():
                if isinstance(value, np.ndarray) and value.ndim > axis:
                    chunk, offsets = cut(value, axis, processes)[process]
                    part.add(name, chunk, shape=value.shape, offsets=offsets)
                elif process == 0:
                    part.add(name, value)
            records.append(part.finish())
    commit(folder, records, values, storage=storage)
