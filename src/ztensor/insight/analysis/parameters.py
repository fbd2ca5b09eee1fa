"""The number of parameters of a model; tied objects count once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ztensor import TensorMetadata
from ztensor.ext import BY_LONG_NAME, LAYOUTS, ObjectReader

if TYPE_CHECKING:
    from collections.abc import Iterable


def parameter_count(reader: ObjectReader, objects: Iterable[TensorMetadata]) -> int:
    """Return the number of elements of objects; objects of one type over the same bytes count once.

    Quantized objects count their dequantized elements, sparse ones the stored elements, unknown
    layouts zero.
    """
    seen: set[tuple[object, ...]] = set()
    total = 0
    for metadata in objects:
        layout = LAYOUTS.get(metadata.format)
        main = None if layout is None else metadata.components.get(layout.main_role)
        if layout is None or main is None:
            continue
        count = math.prod(metadata.shape)
        file = reader.objects.part(metadata.name)
        if main.length and file.is_common(main.encoding):  # other encodings may have no offset
            place = file, main.offset, main.length
            same = *place, main.dtype, main.type, metadata.format, count
            if same in seen:
                continue
            seen.add(same)
        if layout.index_roles:
            nbytes = main.length if main.encoding == "raw" else main.uncompressed_length
            storage = BY_LONG_NAME.get(main.dtype or "")
            if nbytes is not None and storage is not None:
                count = min(count, nbytes // storage.width)
        total += count
    return total


def is_float_name(dtype: str) -> bool:
    """Return whether a type, by its long name, is a real or complex float."""
    return "float" in dtype or "complex" in dtype
