"""The words of 2.x for types, encodings and layouts, and what 2.x asks of a layout beyond 1.x.

| layout of 2.x | here |
| --- | --- |
| `dense` | the same, of exactly one part |
| `zt.sparse_csr/1`, `zt.sparse_coo/1` | `sparse_csr`, `sparse_coo`, each position once |
| `gguf.<type>/1` | `gguf.<type>`; sizes of blocks are facts of the type, not attributes |
| `zt.quant_group/1`, `zt.mx/1` | layouts of their own, in `quantization/` |
| `pyztensor.<word>/1` | `<word>`: what only 1.x has, such as `quantized_group`, in our namespace |
| any other | as written, unknown; a word without a version is none of 1.x, and told apart |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ztensor.errors import Problem, Reason, describe
from ztensor.spec.model.dtype import LOGICAL_TYPES, STORAGE_TYPES
from ztensor.spec.model.manifest import Component

DTYPES = frozenset(STORAGE_TYPES) - {"bool"}
# The registered logical types and the storage each is defined on.
TYPES = {"bool": "u8", **{name: logical.dtype for name, logical in LOGICAL_TYPES.items()}}
# ggml types of the registry: elements of a block, and its bytes (profile gguf).
GGUF_BLOCKS: Mapping[str, tuple[int, int]] = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24),
    "q8_0": (32, 34), "q8_1": (32, 36), "q2_k": (256, 84), "q3_k": (256, 110),
    "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210), "q8_k": (256, 292),
    "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74),
    "iq2_s": (256, 82), "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_nl": (32, 18),
    "iq4_xs": (256, 136), "mxfp4": (32, 17),
}  # fmt: skip
_BLOCK_SIZES = ("elems_per_block", "block_bytes")
# Sparse layouts, and their parts that are indices.
SPARSE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "zt.sparse_csr/1": ("sparse_csr", ("indices", "indptr")),
    "zt.sparse_coo/1": ("sparse_coo", ("coords",)),
}
_THEIRS: Mapping[str, str] = {
    **{own: layout for layout, (own, _) in SPARSE.items()},
    **{f"gguf.{name}": f"gguf.{name}/1" for name in GGUF_BLOCKS},
}
_GGUF: Mapping[Any, tuple[int, int]] = {
    f"gguf.{name}/1": sizes for name, sizes in GGUF_BLOCKS.items()
}
# Layouts whose parts are exactly these.
_PARTS: Mapping[str, set[str]] = {
    "dense": {"data"},
    **{layout: {"values", *indices} for layout, (_, indices) in SPARSE.items()},
    **{layout: {"data"} for layout in _GGUF},
}
# Layouts of 1.x that 2.x has no word for are written under our own name.
_OURS, _OURS_VERSION = "pyztensor.", "/1"
WORD_OF_2 = "2.x "  # before a word without a version, which would mean another in 1.x


def block_sizes(layout: object) -> dict[str, int]:
    """Return the attributes that say how large the blocks of a layout are; none of most."""
    return dict(zip(_BLOCK_SIZES, _GGUF.get(layout, ()), strict=False))


def check_layout(
    layout: str,
    shape: tuple[int, ...],
    components: Mapping[str, Component],
    attributes: Mapping[str, object] | None,
) -> Iterator[Problem]:
    """Yield what is wrong with an object that layouts of ours do not look at."""

    def wrong(reason: Reason, message: str, *path: str) -> Problem:
        return Problem(reason, f"expected {message}", path, f"the layout {layout}")

    parts = _PARTS.get(layout)
    if parts is not None and components.keys() != parts:
        reason = Reason.FIELD_VALUE if parts <= components.keys() else Reason.COMPONENT_MISSING
        found = ", ".join(map(describe, list(components)[:8]))
        yield wrong(reason, f"the parts {', '.join(sorted(parts))}, found {found}", "parts")
        return
    if layout == "dense":
        return
    _, indices = SPARSE.get(layout, ("", ()))
    words = {role: components[role].type or components[role].dtype for role in indices}
    for role, word in words.items():
        if word not in ("u32", "u64"):
            message = f"plain u32 or u64, found {describe(word)}"
            yield wrong(Reason.INDEX_DTYPE, message, "parts", role, "dtype")
    if {*words.values()} == {"u32", "u64"}:
        message = "indices and indptr of one dtype, found u32 and u64"
        yield wrong(Reason.INDEX_DTYPE, message, "parts")
    if layout == "zt.sparse_coo/1" and not shape:
        yield wrong(Reason.LAYOUT_RANK, "a dimension, found none", "shape")
    for field, size in block_sizes(layout).items():
        number = (attributes or {}).get(field)
        if type(number) is not int or number != size:
            message = f"{size}, found {'nothing' if number is None else describe(number)}"
            yield wrong(Reason.FIELD_VALUE, message, "attributes", field)


def ours(
    layout: str, attributes: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object] | None]:
    """Return the layout of ours that one of 2.x is, and the attributes that are left."""
    if layout in SPARSE:
        return SPARSE[layout][0], attributes
    if layout in _GGUF:
        left = {key: value for key, value in (attributes or {}).items() if key not in _BLOCK_SIZES}
        return layout.removesuffix("/1"), left or None
    if layout.startswith(_OURS) and layout.endswith(_OURS_VERSION):
        word = layout[len(_OURS) : -len(_OURS_VERSION)]
        is_ours = "/" not in word and word != "dense" and word not in _THEIRS
        return (word if is_ours else layout), attributes
    if "/" not in layout and layout != "dense":
        return WORD_OF_2 + layout, attributes
    return layout, attributes


def theirs(
    layout: str, attributes: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object] | None]:
    """Return the layout of 2.x that one of ours is written as, and its attributes there."""
    word = _THEIRS.get(layout, layout)
    if layout.startswith(WORD_OF_2):
        return layout.removeprefix(WORD_OF_2), attributes
    if word in _GGUF:
        return word, {**(attributes or {}), **block_sizes(word)}
    if "/" not in word and word != "dense":
        return f"{_OURS}{word}{_OURS_VERSION}", attributes
    return word, attributes
