"""What 2.x asks of sparse entries beyond 1.x: no position twice, the columns of each row rising."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import LayoutError, Reason
from ztensor.spec.model.dtype import element_count

if TYPE_CHECKING:
    from ztensor.spec.layout.base import Array, View

_BLOCK = 1 << 20
_INT64_MAX = (1 << 63) - 1


def require_entries_once(layout: str, view: View) -> None:
    """Raise unless each position of a sparse object is there once, and in order in `sparse_csr`.

    Memory: of `sparse_coo`, 16 bytes for each entry; 24 where the shape has more positions than an
    int64 can count.

    Args:
        layout: `sparse_csr` or `sparse_coo`.
        view: an object whose indices are checked as 1.x asks.

    Raises:
        LayoutError: a position comes twice, or the columns of a row do not rise.
    """
    if layout == "sparse_csr":
        _require_rising(view.arrays["indices"].reshape(-1), view.arrays["indptr"].reshape(-1))
    else:
        _require_distinct(view.shape, view.arrays["coords"].reshape(len(view.shape), -1))


def _require_rising(indices: Array, pointers: Array) -> None:
    for start in range(0, indices.size, _BLOCK):
        block = indices[start : start + _BLOCK + 1]
        falls = np.flatnonzero(block[1:] <= block[:-1]) + (start + 1)
        if not falls.size:
            continue
        # Where a row begins the columns begin anew.
        places = np.searchsorted(pointers, falls.astype(pointers.dtype))
        wrong = falls[pointers[np.minimum(places, pointers.size - 1)] != falls]
        if wrong.size:
            at = int(wrong[0])
            raise LayoutError(
                "the columns of a row do not rise",
                reason=Reason.INDEX_ORDER,
                component="indices",
                expected=f"more than {indices[at - 1]} at position {at}",
                found=str(indices[at]),
                section="the layout zt.sparse_csr/1",
            )


def _require_distinct(shape: tuple[int, ...], coords: Array) -> None:
    count = coords.shape[1]
    if count < 2:
        return
    if element_count(shape) <= _INT64_MAX:
        flat = np.zeros(count, np.int64)
        for axis, dimension in zip(coords, shape, strict=True):
            flat *= dimension
            flat += axis.astype(np.int64)
        flat.sort()
        twice = bool((flat[1:] == flat[:-1]).any())
    else:
        order = np.lexsort(coords[::-1])
        same = np.ones(count - 1, np.bool_)
        for axis in coords:
            ordered = axis[order]
            same &= ordered[1:] == ordered[:-1]
        twice = bool(same.any())
    if twice:
        raise LayoutError(
            "a position comes twice",
            reason=Reason.INDEX_ORDER,
            component="coords",
            expected="each position once",
            found="one a second time",
            section="the layout zt.sparse_coo/1",
        )
