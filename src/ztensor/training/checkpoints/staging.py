"""Copy a state, to be written while the run goes on."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import Tensor
from ztensor.ext import FRAMEWORKS, run_jobs, thread_count
from ztensor.training.tree.encode import Encoded
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# Shorter arrays get new memory: looking for old memory would take as long.
_LEAST_KEPT = 64 << 10
_PIECE = 8 << 20  # bytes that a thread copies at a time


class Staging:
    """Memory for the copy of one state, reused by the next state of the same shapes."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def copied(self, encoded: Encoded) -> Encoded:
        """Return an encoded tree with copies of the leaves, on the CPU.

        Shared tensors are one leaf and are copied once.

        Raises:
            NotRepresentableError: a leaf on another device has no elements to fetch.
        """
        old, self._kept = self._kept, {}
        long: list[tuple[Array, Array]] = []  # target and source of each copy
        leaves = {name: self._copy(name, leaf, old, long) for name, leaf in encoded.leaves.items()}
        workers = thread_count(lengths=(source.nbytes for _, source in long))
        run_jobs((functools.partial(np.copyto, *pair) for pair in _cut(long)), workers)
        return Encoded(encoded.shape, leaves)

    def clear(self) -> None:
        """Free the memory."""
        self._kept = {}

    def _copy(
        self, name: str, leaf: Any, old: dict[str, Array], long: list[tuple[Array, Array]]
    ) -> Any:
        if type(leaf) is np.ndarray:
            return self._array(name, leaf, old, long)
        if not isinstance(leaf, Tensor):
            home = FRAMEWORKS.adapter_of(leaf)
            if home is not None:  # on another device: fetching copies
                leaf = home.stored(leaf)
            return leaf
        return copy.deepcopy(leaf)

    def _array(
        self, name: str, array: Array, old: dict[str, Array], long: list[tuple[Array, Array]]
    ) -> Array:
        if array.nbytes < _LEAST_KEPT:
            return np.array(array, order="C", copy=True)
        kept = old.get(name)
        if kept is None or kept.nbytes != array.nbytes:
            kept = np.empty(array.nbytes, np.uint8)
        self._kept[name] = kept
        result = kept.view(array.dtype).reshape(array.shape)
        long.append((result, array))
        return result


def _cut(long: Iterable[tuple[Array, Array]]) -> Iterator[tuple[Array, Array]]:
    """Cut copies into pieces for several threads, except of arrays that are not contiguous."""
    for target, source in long:
        if not source.flags.c_contiguous:
            yield target, source
            continue
        flat, behind = source.reshape(-1), target.reshape(-1)
        step = max(1, _PIECE // source.itemsize)
        for start in range(0, source.size, step):
            yield behind[start : start + step], flat[start : start + step]
