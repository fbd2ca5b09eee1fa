"""Small plain arrays, one after the other: rows of columns, as a whole dict of them is written.

Making the objects of the manifest takes longer than writing such an array; a row is four values.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ztensor.errors import NotRepresentableError
from ztensor.layout.elements import is_stored_as_is
from ztensor.writing.blob import SMALL_BYTES, put_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np
    from typing_extensions import Buffer

    from ztensor.layout.base import Array
    from ztensor.writing.output import Output


def new_like(output: Output, array: Array, most: int) -> int:
    """Add what rows of an array's shape and type are like; return its place in `likes`.

    Args:
        output: a new file.
        array: the first of its kind.
        most: bytes of the longest array that is a row.

    Returns:
        -1 where such arrays are no rows; whatever may be wrong with them is said by `write`.
    """
    is_encoded = output.compression is not None or output.canonical is not None
    if is_encoded or not 0 < array.nbytes <= most:
        return -1
    try:
        if not is_stored_as_is(array.dtype):
            return -1
        if output.form.is_exact and array.dtype.kind == "b":  # each of them is looked at
            return -1
        plan = output.plan_array(array)
    except NotRepresentableError:
        return -1
    algorithm = output.algorithm
    digest = None if algorithm is None else algorithm.spell("0" * algorithm.digits)
    component = dataclasses.replace(plan.components["data"], length=array.nbytes, digest=digest)
    output.rows.likes.append(dataclasses.replace(plan, components={"data": component}))
    return len(output.rows.likes) - 1


class SmallRows:
    """Writes small plain arrays to a new file, each as a row.

    Args:
        output: the file. Nobody else adds rows to it.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._digest: Callable[[Buffer], str] | None = None
        self._likes: dict[tuple[tuple[int, ...], np.dtype[Any]], int] = {}

    def write(self, name: str, array: Array) -> bool:
        """Write an array of NumPy's own class; return False, and do nothing, where it is no row.

        Raises:
            ZTensorError: as `Output.write`.
        """
        output, look = self._output, (array.shape, array.dtype)
        like = self._likes.get(look)
        if like is None:
            like = self._likes[look] = new_like(output, array, SMALL_BYTES)
            if output.algorithm is not None:
                self._digest = output.algorithm.whole()
        if like < 0:
            return False
        output.require_ready(name)
        rows = output.rows
        try:
            offset, data = put_small(output.sink, array, output.form)
            rows.digests.append(None if self._digest is None else self._digest(data))
            rows.offsets.append(offset)
            rows.kinds.append(like)
            rows.names.append(name)
        except BaseException:  # a row that is only begun would shift those behind it
            output.abort()
            raise
        return True
