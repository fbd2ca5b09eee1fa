"""Leaves of a tree that lie over one another's bytes in a file, each in memory of its own.

What a tree shares its shape says. A file may store equal tensors once beside that, as one in its
canonical form does: where two states of an optimizer came back as one memory, it would update both.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


def separate(leaves: dict[str, Any]) -> set[str]:
    """Copy each leaf whose memory begins within that of another; the first keeps its own.

    Returns:
        The names of those that were copied.

    Args:
        leaves: names to arrays and `ztensor.Tensor`s, changed in place.
    """
    names = []
    spans = []
    for name, start, nbytes in _spans(leaves):
        names.append(name)
        spans.append((start, start + nbytes))
    if len(spans) < 2:
        return set()
    starts, ends = np.array(spans, np.uint64).T
    order = np.lexsort((np.arange(len(starts)), starts))
    reach = np.maximum.accumulate(ends[order])
    inside = order[1:][starts[order][1:] < reach[:-1]]
    copied = {names[place] for place in inside.tolist()}
    for name in copied:
        leaves[name] = copy.deepcopy(leaves[name])
    return copied


def _spans(leaves: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    for name, leaf in leaves.items():
        arrays = (leaf,) if type(leaf) is np.ndarray else leaf.components.values()
        for array in arrays:
            if array.nbytes:
                yield name, array.__array_interface__["data"][0], array.nbytes
