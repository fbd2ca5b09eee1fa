"""Lazy slices against NumPy: any index, any element type, any storage of the bytes.

The sizes that decide which reads are merged are drawn too, so that small data takes every path.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import ztensor
from ztensor import Tensor
from ztensor.errors import ArgumentValueError, FormatError, LimitError, UnsupportedError, UsageError
from ztensor.ext import Blocks, spell
from ztensor.io.reading import selection
from ztensor.numpy import save
from ztensor.testing import strategies
from ztensor.testing.builder import Draft, draft, zstd_frame
from ztensor.testing.damage import Damage, damaged
from ztensor.typing import Array


def blank(version: str) -> Draft:
    made = draft(version)
    made.objects.clear()
    made.blobs.clear()
    return made


def framed(tensor: Tensor, size: int) -> bytes:
    """Return a file of an object `w`, every component in frames of at most `size` bytes."""
    parts: dict[str, Any] = {}
    for role, array in tensor.components.items():
        dtype, type_ = spell(array.dtype)
        data = Blocks.whole(array).tobytes()
        frames = [zstd_frame(data[i : i + size]) for i in range(0, len(data), size)]
        fields = {"dtype": dtype, "encoding": "zstd", "uncompressed_length": len(data)}
        fields.update({} if type_ is None else {"type": type_})
        parts[role] = (fields, b"".join(frames) or zstd_frame(b""))
    made = blank("1.2.0")
    fields = {"attributes": dict(tensor.attributes)} if tensor.attributes else {}
    made.add("w", list(tensor.shape), parts, format=tensor.format, **fields)
    return made.to_bytes()


def big_endian(array: Array) -> bytes:
    """Return a file of 0.1 with big-endian elements."""
    made = blank("0.1.0")
    swapped = array.astype(array.dtype.newbyteorder(">")).tobytes()
    part = {"data": ({"dtype": "f32"}, swapped)}
    made.add("w", list(array.shape), part, data_endianness="big")
    made.objects["w"]["dtype"] = array.dtype.name
    return made.to_bytes()


def unmapped(data: bytes) -> ztensor.Reader:
    return ztensor.open(io.BytesIO(data))


def readers(tensor: Tensor, size: int) -> Iterator[ztensor.Reader]:
    """Yield readers of one object `w`, for each way to store it."""
    raw, packed = save({"w": tensor}), save({"w": tensor}, compression=1)
    for data in (raw, packed, framed(tensor, size)):
        yield ztensor.open(data)
        yield unmapped(data)
    array = tensor.components.get("data")
    if array is not None and array.dtype.name in ("int16", "int64", "float32", "bool"):
        yield ztensor.open(big_endian(array))
        yield unmapped(big_endian(array))


@contextlib.contextmanager
def sizes(gap: int, piece: int, run: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "GAP_BYTES", gap)
        patch.setattr(selection, "PIECE_BYTES", piece)
        patch.setattr("ztensor.spec.encoding.base.RUN_BYTES", run)
        yield


SIZES = st.tuples(
    st.sampled_from([1, 8, 40, 1 << 16]),
    st.sampled_from([1, 16, 100, 1 << 23]),
    st.sampled_from([1, 10, 1 << 16]),
)
FRAMES = st.integers(1, 255)


# --- Dense --------------------------------------------------------------------------------------


@st.composite
def keys(draw: st.DrawFn, shape: Sequence[int]) -> Any:
    """Return indices of all kinds mixed; arrays that do not fit together are among them."""
    count = draw(st.integers(1, 4))
    items: list[Any] = []
    for length in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["slice", "slice", "int", "array", "mask"]))
        if kind == "int" and length:
            items.append(draw(st.integers(-length, length - 1)))
        elif kind == "array" and length:
            some = draw(st.lists(st.integers(-length, length - 1), min_size=count, max_size=count))
            items.append(some if draw(st.booleans()) else np.array(some))
        elif kind == "mask":
            items.append(draw(npst.arrays(bool, length)))
        else:
            items.append(draw(st.slices(length)))
    for extra in draw(st.lists(st.sampled_from([None, ..., True]), max_size=2)):
        items.insert(draw(st.integers(0, len(items))), extra)
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


@st.composite
def indexed(draw: st.DrawFn) -> tuple[Array, Any]:
    array = draw(strategies.arrays(any_memory=False))
    shape = array.shape
    kinds = [keys(shape), npst.basic_indices(shape, allow_newaxis=True)]
    if shape and 0 not in shape:
        kinds.append(npst.integer_array_indices(shape))
        kinds.append(npst.arrays(bool, shape))
    return array, draw(st.one_of(kinds))


@given(indexed(), SIZES, FRAMES)
@settings(deadline=None)
def test_any_index_gives_the_result_of_numpy(
    case: tuple[Array, Any], chosen: tuple[int, int, int], frame: int
) -> None:
    array, key = case
    try:
        expected = array[key]
    except IndexError:
        expected = None
    event("refused" if expected is None else "given")
    with sizes(*chosen):
        for reader in readers(Tensor(array), frame):
            part = reader.get_slice("w")
            for _ in range(2):  # the second time from the cache
                if expected is None:
                    with pytest.raises(UsageError):
                        part[key]
                    continue
                found = part[key]
                assert type(found) is type(expected)
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
                assert found.tobytes() == expected.tobytes()


# --- Rows of other layouts ----------------------------------------------------------------------


@st.composite
def rows(draw: st.DrawFn, length: int) -> Any:
    if length and draw(st.booleans()):
        index = st.integers(-length, length - 1)
        return draw(st.one_of(index, st.lists(index, max_size=6), npst.arrays(bool, length)))
    return draw(st.slices(length))


def rows_of(array: Array, key: Any) -> Array:
    found: Array = array[[key]] if isinstance(key, int) else array[key]
    return found


@pytest.mark.slow
@given(
    st.data(),
    st.one_of(strategies.csr_tensors(), strategies.coo_tensors()),
    SIZES,
    FRAMES,
)
@settings(deadline=None)
def test_rows_of_sparse_objects(
    data: st.DataObject, tensor: Tensor, chosen: tuple[int, int, int], frame: int
) -> None:
    key = data.draw(rows(tensor.shape[0])) if tensor.shape else ...
    expected = tensor.to_dense()
    expected = rows_of(expected, key) if tensor.shape else expected
    tensor = Tensor(
        dict(tensor.components), shape=tensor.shape, format=tensor.format, type=tensor.type
    )
    with sizes(*chosen):
        for reader in readers(tensor, frame):
            part = reader.get_slice("w")
            for _ in range(2):
                found: Any = part[key]
                found.require_valid()
                assert (found.format, found.type) == (tensor.format, tensor.type)
                dense = found.to_dense()
                assert (dense.shape, dense.dtype) == (expected.shape, expected.dtype)
                assert dense.tobytes() == expected.tobytes()


@pytest.mark.slow
@given(st.data(), strategies.quantized_tensors(), SIZES, FRAMES)
@settings(deadline=None)
def test_rows_of_quantized_objects(
    data: st.DataObject, tensor: Tensor, chosen: tuple[int, int, int], frame: int
) -> None:
    length = tensor.shape[0]
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    expected = tensor.dequantize()[start:stop]
    with sizes(*chosen):
        for reader in readers(tensor, frame):
            part = reader.get_slice("w")
            try:
                found: Any = part[start:stop]
            except ArgumentValueError:
                event("unaligned")
                assert start != stop
                assert (start, stop) != (0, length)
                continue
            event("aligned")
            assert found.shape == expected.shape
            assert found.dequantize().tobytes() == expected.tobytes()


# --- Damage -------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.data(), strategies.tensors(), strategies.damages(), FRAMES)
@settings(deadline=None)
def test_damage_gives_our_errors_only(
    data: st.DataObject, tensor: Tensor, damages: list[Damage], frame: int
) -> None:
    good = data.draw(st.sampled_from([framed(tensor, frame), save({"w": tensor})]))
    limits = ztensor.Limits(decoded_bytes=1 << 20)
    with contextlib.suppress(FormatError, UnsupportedError, LimitError):
        reader = ztensor.open(damaged(good, damages), verify=False, limits=limits)
        for name in reader:
            for key in (0, slice(1, None), slice(None, None, -2), [0], ...):
                # If the damage is in a length or a scheme, the index does not fit.
                with contextlib.suppress(FormatError, UnsupportedError, LimitError, UsageError):
                    reader.get_slice(name)[key]
