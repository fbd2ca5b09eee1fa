"""Copy leaves of a tree that share bytes of a file, unless the tree shares them.

The shape of a tree says which leaves share memory. A file may also store equal tensors once, as its
canonical form does. If two states of an optimizer were loaded as one memory, it would update both.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def separate(leaves: dict[str, Any]) -> set[str]:
    """Copy each leaf whose memory begins inside another leaf; the first of them is not copied.

    Returns:
        The names of the copied leaves.

    Args:
        leaves: arrays and `ztensor.Tensor`s by name, changed in place.
    """
    copied = begun_inside(_spans(leaves))
    for name in copied:
        leaves[name] = copy.deepcopy(leaves[name])
    return copied


def begun_inside(spans: Iterable[tuple[str, int, int]]) -> set[str]:
    """Return the names of spans that begin inside another span; the first of them is left out.

    Args:
        spans: name, address and number of bytes of each; not empty.
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
