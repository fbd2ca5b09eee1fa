"""Hypothesis strategies for everything a zTensor file can hold.

`dicts(version)` is the whole: what `save_file` takes for that version. The others are its parts.
Values are any bits their type has, NaNs with payloads and subnormal numbers included; compare them
by bytes. Whatever is drawn can be represented in the version it was drawn for.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from ztensor import Tensor
from ztensor.ext import (
    BY_LONG_NAME,
    LOGICAL_TYPES,
    STORAGE_TYPES,
    Component,
    Manifest,
    TensorObject,
    element_count,
    numpy_dtype,
)
from ztensor.testing.damage import EDGES, KINDS, Damage
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Sequence


STORAGE_NAMES = tuple(BY_LONG_NAME)
LOGICAL_NAMES = tuple(logical.long_name for logical in LOGICAL_TYPES.values())

# The element types of each version.
TYPES_OF: dict[str, tuple[str, ...]] = {
    "0.1.0": STORAGE_NAMES,
    "1.1.0": (*STORAGE_NAMES, "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"),
    "1.2.0": (*STORAGE_NAMES, *LOGICAL_NAMES),
}
LAYOUTS_OF: dict[str, tuple[str, ...]] = {
    "0.1.0": ("dense",),
    "1.1.0": ("dense", "sparse_csr", "sparse_coo", "quantized_group", "unknown"),
    "1.2.0": ("dense", "sparse_csr", "sparse_coo", "quantized_group", "unknown"),
}
LATEST = "1.2.0"

# Types of less than a byte, with the mask of their bits in memory.
_PACKED = {
    logical.long_name: (1 << logical.bits) - 1
    for logical in LOGICAL_TYPES.values()
    if logical.elements_per_storage > 1
}


# --- Names and attributes -------------------------------------------------------------------


def texts(max_size: int = 12) -> st.SearchStrategy[str]:
    """Return any text UTF-8 can say: empty, with NULs, with control and combining characters."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)


def names() -> st.SearchStrategy[str]:
    """Return names of objects: mostly as in models, some like paths, some odd."""
    part = st.text(string.ascii_lowercase + string.digits + "_", min_size=1, max_size=8)
    usual = st.lists(part, min_size=1, max_size=3).map(".".join)
    odd = st.sampled_from(["", "\0", "a\0b", "../x", "/abs", "e\u0301", "\u00e9", " ", "data"])
    return st.one_of(usual, odd, texts())


def scalars() -> st.SearchStrategy[Any]:
    """Return single CBOR values that compare equal after a round trip."""
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 64), (1 << 64) - 1),
        st.floats(allow_nan=False),
        texts(),
        st.binary(max_size=12),
    )


def attributes(
    version: str = LATEST, *, of_file: bool = False
) -> st.SearchStrategy[dict[str, Any]]:
    """Return key-value pairs.

    Args:
        version: in 0.1.0 attributes of objects are next to the format's fields, and files have
            none; in 1.1.0 those for files are text.
        of_file: for the file, not for an object.
    """
    if of_file and version == "0.1.0":
        return st.just({})
    if of_file and version == "1.1.0":
        return st.dictionaries(texts(), texts(), max_size=3)
    values = st.recursive(
        scalars(),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(texts(), inner, max_size=3)
        ),
        max_leaves=6,
    )
    keys = texts()
    if version == "0.1.0":
        keys = keys.map(lambda key: f"x-{key}")
    return st.dictionaries(keys, values, max_size=3)


# --- Arrays ---------------------------------------------------------------------------------


def shapes(max_rank: int = 4, max_count: int = 200) -> st.SearchStrategy[tuple[int, ...]]:
    """Return shapes of at most `max_count` elements: scalars and empty ones among them."""
    sizes = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 7, 8, 16])
    drawn = st.lists(sizes, max_size=max_rank).map(tuple)
    return drawn.filter(lambda shape: element_count(shape) <= max_count)


def element_types(version: str = LATEST) -> st.SearchStrategy[str]:
    """Return long names of the element types a version has."""
    return st.sampled_from(TYPES_OF[version])


@st.composite
def arrays(
    draw: st.DrawFn,
    dtype: str | None = None,
    shape: Sequence[int] | None = None,
    *,
    version: str = LATEST,
    any_memory: bool = True,
) -> Array:
    """Return an array of any bits its element type has.

    Args:
        draw: hypothesis gives it.
        dtype: long name of the element type; any the version has by default.
        shape: its shape; any by default.
        version: the element types are those in this version.
        any_memory: also arrays that are not contiguous or are in the other byte order.
    """
    name = draw(element_types(version)) if dtype is None else dtype
    dimensions = draw(shapes()) if shape is None else tuple(shape)
    kind = numpy_dtype(name)
    count = element_count(dimensions)
    nbytes = count * kind.itemsize
    stored = draw(st.binary(min_size=nbytes, max_size=nbytes))
    bits = np.array(bytearray(stored), np.uint8)
    if name == "bool":
        bits &= 1
    elif name in _PACKED:
        bits &= _PACKED[name]
    array: Array = bits.view(kind).reshape(dimensions)
    if not any_memory:
        return array
    memory = draw(st.sampled_from(["plain", "plain", "fortran", "strided", "swapped"]))
    if memory == "fortran":
        return np.asfortranarray(array) if array.ndim else array
    if memory == "strided" and array.ndim:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if memory == "swapped" and kind.kind in "iufc":
        return array.byteswap().view(kind.newbyteorder())
    return array


# --- Tensors --------------------------------------------------------------------------------


@st.composite
def dense_tensors(draw: st.DrawFn, *, version: str = LATEST, dtype: str | None = None) -> Tensor:
    """Return dense tensors with attributes; in 1.x some have further components."""
    array = draw(arrays(dtype, version=version))
    parts = {"data": array}
    if version != "0.1.0" and draw(st.integers(0, 9)) == 0:
        parts["mask"] = draw(arrays("uint8"))
    return Tensor(parts, shape=array.shape, attributes=draw(attributes(version)))


@st.composite
def csr_tensors(draw: st.DrawFn, *, version: str = LATEST, dtype: str | None = None) -> Tensor:
    """Return `sparse_csr` tensors: rows may be empty, columns come in any order and repeatedly."""
    rows, columns = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    most = 4 if columns else 0
    lengths = draw(st.lists(st.integers(0, most), min_size=rows, max_size=rows))
    indptr = np.cumsum([0, *lengths]).astype(np.uint64)
    count = int(indptr[-1])
    column = st.integers(0, max(columns - 1, 0))
    indices = draw(st.lists(column, min_size=count, max_size=count))
    values = draw(arrays(_unpacked(draw, version, dtype), (count,), any_memory=False))
    return Tensor.csr(
        values,
        np.array(indices, np.uint64),
        indptr,
        (rows, columns),
        attributes=draw(attributes(version)),
    )


@st.composite
def coo_tensors(draw: st.DrawFn, *, version: str = LATEST, dtype: str | None = None) -> Tensor:
    """Return `sparse_coo` tensors of any number of dimensions."""
    shape = draw(shapes(max_rank=3))
    count = draw(st.integers(0, 6)) if element_count(shape) else 0
    coords = [
        np.array(
            draw(st.lists(st.integers(0, size - 1), min_size=count, max_size=count)), np.uint64
        )
        if count
        else np.zeros(0, np.uint64)
        for size in shape
    ]
    values = draw(arrays(_unpacked(draw, version, dtype), (count,), any_memory=False))
    return Tensor.coo(values, coords, shape, attributes=draw(attributes(version)))


def _unpacked(draw: st.DrawFn, version: str, dtype: str | None) -> str:
    if dtype is not None:
        return dtype
    return draw(st.sampled_from([name for name in TYPES_OF[version] if name not in _PACKED]))


@st.composite
def quantized_tensors(draw: st.DrawFn, *, version: str = LATEST) -> Tensor:
    """Return `quantized_group` tensors made from random weights."""
    del version  # every 1.x spells them alike
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    weights = draw(
        st.lists(st.floats(-4, 4, width=32), min_size=rows * columns, max_size=rows * columns)
    )
    return Tensor.quantize(
        np.array(weights, np.float32).reshape(rows, columns),
        bits=draw(st.sampled_from([2, 3, 4, 8])),
        group_size=draw(st.sampled_from([-1, 1, 2, 4, 8])),
        symmetric=draw(st.booleans()),
        pack_axis=draw(st.sampled_from([0, 1])),
        group_axis=draw(st.sampled_from([0, 1])),
    )


@st.composite
def unknown_tensors(draw: st.DrawFn, *, version: str = LATEST) -> Tensor:
    """Return tensors of an unknown layout, with any components."""
    roles = draw(st.lists(texts(), min_size=0, max_size=3, unique=True))
    parts = {
        role: draw(arrays(_unpacked(draw, version, None), any_memory=False)).reshape(-1)
        for role in roles
    }
    name = draw(st.sampled_from(["of_tomorrow", "sparse_bsr", "Dense", ""]))
    return Tensor(parts, shape=draw(shapes()), format=name, attributes=draw(attributes(version)))


_TENSORS = {
    "dense": dense_tensors,
    "sparse_csr": csr_tensors,
    "sparse_coo": coo_tensors,
    "quantized_group": quantized_tensors,
    "unknown": unknown_tensors,
}


def tensors(version: str = LATEST, layout: str | None = None) -> st.SearchStrategy[Tensor]:
    """Return tensors of a layout, or of any the version has."""
    layouts = LAYOUTS_OF[version] if layout is None else (layout,)
    return st.one_of([_TENSORS[one](version=version) for one in layouts])


def dicts(version: str = LATEST, max_size: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """Return dicts for `save_file`: names to arrays and tensors."""
    values = st.one_of(arrays(version=version), tensors(version))
    return st.dictionaries(names(), values, max_size=max_size)


# --- Manifests ------------------------------------------------------------------------------


@st.composite
def manifests(draw: st.DrawFn, version: str = LATEST) -> tuple[Manifest, int]:
    """Return a manifest as the version's schema parses it, and its offset in the file.

    It satisfies only the checks of a schema: components are aligned and before the manifest, but
    sizes need not fit a layout, and identifiers may be unknown.
    """
    blobs_end = draw(st.sampled_from([64, 100, 4096, (1 << 32) + 7, 1 << 62]))
    objects = {
        name: draw(_objects(version, blobs_end))
        for name in draw(st.lists(names(), unique=True, max_size=4))
    }
    own: dict[str, Any] | None = draw(attributes(version, of_file=True))
    if version == "0.1.0" or (not own and draw(st.booleans())):
        own = None
    return Manifest(version, objects, own), blobs_end


@st.composite
def _objects(draw: st.DrawFn, version: str, blobs_end: int) -> TensorObject:
    shape = tuple(draw(st.lists(st.one_of(st.integers(0, 9), st.sampled_from(EDGES)), max_size=4)))
    own: dict[str, Any] | None = draw(attributes(version))
    own = own or None
    if version == "0.1.0":
        components = {"data": draw(_components(version, blobs_end))}
        return TensorObject(shape, "dense", components, own)
    roles = draw(st.lists(st.one_of(st.just("data"), texts()), unique=True, max_size=3))
    components = {role: draw(_components(version, blobs_end)) for role in roles}
    layout = draw(st.one_of(st.sampled_from(["dense", "sparse_csr", "of_tomorrow"]), texts()))
    return TensorObject(shape, layout, components, own)


@st.composite
def _components(draw: st.DrawFn, version: str, blobs_end: int) -> Component:
    dtype = draw(st.sampled_from(tuple(STORAGE_TYPES)))
    logical = None
    if version != "0.1.0" and draw(st.booleans()):
        names_here = [
            (one.dtype, one.name)
            for one in LOGICAL_TYPES.values()
            if one.long_name in TYPES_OF[version]
        ]
        dtype, logical = draw(st.sampled_from(names_here))
    offset = draw(st.integers(1, blobs_end // 64)) * 64
    length = draw(st.integers(0, blobs_end - offset))
    encoding = draw(st.sampled_from(["raw", "zstd"]))
    decoded = None
    if version == "1.2.0" and encoding == "zstd":
        decoded = draw(st.one_of(st.none(), st.sampled_from(EDGES)))
    digest = draw(
        st.sampled_from(
            [None, "crc32c:0x0A1B2C3D", "sha256:" + "0f" * 32, "xxh3:00112233445566ff", "md5:12"]
        )
    )
    return Component(
        dtype,
        offset,
        length,
        logical,
        encoding,
        digest,
        decoded,
        nonzero_is_true=version == "0.1.0",
        digest_may_cover_decoded=version == "1.1.0",
    )


# --- Damage ---------------------------------------------------------------------------------


def damages(max_size: int = 3) -> st.SearchStrategy[list[Damage]]:
    """Return lists of damages for `ztensor.testing.damage.damaged`."""
    place = st.integers(0, 1 << 14)
    value = st.one_of(st.integers(0, 255), st.sampled_from(EDGES))
    length = st.one_of(st.integers(1, 16), st.integers(1, 4096))
    one = st.builds(Damage, st.sampled_from(tuple(KINDS)), place, length, value)
    return st.lists(one, min_size=1, max_size=max_size)
