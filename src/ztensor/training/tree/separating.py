"""Leaves of a tree that lie over one another's bytes in a file, each in memory of its own.

What a tree shares its shape says. A file may store equal tensors once beside that, as one in its
canonical form does: where two states of an optimizer came back as one memory, it would update both.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def separate(leaves: dict[str, Any]) -> set[str]:
    """Copy each leaf whose memory begins within that of another; the first keeps its own.

    Returns:
        The names of those that were copied.

    Args:
        leaves: names to arrays and `ztensor.Tensor`s, changed in place.
    """
    copied = begun_inside(_spans(leaves))
    for name in copied:
        leaves[name] = copy.deepcopy(leaves[name])
    return copied


def begun_inside(spans: Iterable[tuple[str, int, int]]) -> set[str]:
    """Return the names of what begins within the memory of something else; the first does not.

    Args:
        spans: name, address and bytes of each, none of them empty.
    """
    names, starts, lengths = list[str](), list[int](), list[int]()
    for name, start, nbytes in spans:
        names.append(name)
        starts.append(start)
        lengths.append(nbytes)
    if len(names) < 2:
        return set()
    begin = np.array(starts, np.uint64)
    end = begin + np.array(lengths, np.uint64)
    order = np.lexsort((np.arange(len(begin)), begin))
    reach = np.maximum.accumulate(end[order])
    inside = order[1:][begin[order][1:] < reach[:-1]]
    return {names[place] for place in inside.tolist()}


def _spans(leaves: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    for name, leaf in leaves.items():
        arrays = (leaf,) if type(leaf) is np.ndarray else leaf.components.values()
        for array in arrays:
            if array.nbytes:
                yield name, array.__array_interface__["data"][0], array.nbytes
