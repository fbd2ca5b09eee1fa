"""A short summary of an object's values: the first ones, extremes and sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import UnsupportedError
from ztensor.ext import LAYOUTS, ObjectReader, element_count
from ztensor.insight.analysis.streaming import component_blocks, is_quantized
from ztensor.insight.analysis.sums import Sums
from ztensor.options import summed
from ztensor.quantization.floats import dequantized
from ztensor.typing import Array, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable


def summarize(
    reader: ObjectReader, name: str, first: int, progress: Progress | None = None
) -> dict[str, Any] | None:
    """Return a summary of an object's values; None if they cannot be computed.

    Elements are decoded in blocks. A sparse object is summarized by its stored values, a quantized
    one by its dequantized values.

    Args:
        reader: an open file.
        name: the object.
        first: the number of first elements to return.
        progress: called with the bytes of elements seen so far and of all.

    Raises:
        ObjectNotFoundError: no object has that name.
        FormatError: the stored bytes cannot be decoded.
        UnsupportedError: an encoding is unknown here.
        LimitError: a safety cap is exceeded.
    """
    file = reader.objects.part(name)
    tensor_object = file.object(name)
    layout = LAYOUTS.get(tensor_object.format)
    if layout is None:
        return None
    if is_quantized(tensor_object.format):
        blocks, nbytes = dequantized(file, name), element_count(tensor_object.shape) * 4
        try:
            facts = _summary(blocks, first, nbytes, progress)
        except UnsupportedError:  # some blocks of GGUF cannot be dequantized
            return None
        return {"of": "dequantized values", **facts}
    component = tensor_object.components[layout.main_role]
    if component.type is not None and component.logical is None:
        return None
    nbytes = component.known_decoded_length or component.length
    facts = _summary(component_blocks(file, name, layout.main_role), first, nbytes, progress)
    return {"of": "elements" if tensor_object.format == "dense" else "stored values", **facts}


def _summary(
    blocks: Iterable[Array], first: int, nbytes: int, progress: Progress | None
) -> dict[str, Any]:
    """Return the first elements and sums of all; None for numbers that the type lacks."""
    sums, kind, report = Sums(), "", summed(progress, nbytes)
    head: list[Any] = []
    for block in blocks:
        is_plain = block.dtype.kind in "biuc"  # Python has no bfloat16
        kind = block.dtype.kind if is_plain else "f"
        some = block[: first - len(head)]
        head += (some if is_plain else some.astype(np.float64)).tolist()
        with np.errstate(all="ignore"):  # overflow and NaN are counted
            sums.take(block)
        report(block.nbytes)
    ordered = {} if kind in "bc" else sums.moments.as_fields()
    if ordered and math.isfinite(sums.total):  # exactly 0 if elements cancel out
        ordered["mean"] = sums.total / sums.moments.count
    is_float, is_bool = kind in ("f", "c"), kind == "b"
    return {
        "count": sums.count,
        "first": head,
        **{word: ordered.get(word) for word in ("min", "max", "mean")},
        "nan_count": sums.nans if is_float else None,
        "inf_count": sums.infs if is_float else None,
        "true_count": sums.count - sums.zeros if is_bool else None,
    }
