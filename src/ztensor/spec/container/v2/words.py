"""The words of 2.x for types, encodings and layouts, and its own rules for layouts.

| layout of 2.x (2.1 sections 5.1 and 5.2) | layout in the model |
| --- | --- |
| `dense` | `dense`, of exactly one part |
| `zt.sparse_csr/1`, `zt.sparse_coo/1` | `sparse_csr`, `sparse_coo`, positions distinct |
| `gguf.<type>/1` | `gguf.<type>`; the attributes of the block size are implied by the type |
| `zt.quant_group/1`, `zt.mx/1` | the same words; the layouts are in `quantization/` |
| `pyztensor.<word>/1` | `<word>`: a layout that only 1.x has, such as `quantized_group` |
| any other `namespace.name/version` | the same word; of ours `pyztensor.delta/1` |
| any other without a version | `2.x <word>`, unknown: in 1.x the word may mean another layout |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ztensor.errors import Problem, Reason, describe
from ztensor.spec.model.dtype import LOGICAL_TYPES, STORAGE_TYPES
from ztensor.spec.model.manifest import Component

DTYPES = frozenset(STORAGE_TYPES) - {"bool"}
# ggml types: elements and bytes of a block (profile gguf).
GGUF_BLOCKS: Mapping[str, tuple[int, int]] = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24),
    "q8_0": (32, 34), "q8_1": (32, 36), "q2_k": (256, 84), "q3_k": (256, 110),
    "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210), "q8_k": (256, 292),
    "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74),
    "iq2_s": (256, 82), "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_nl": (32, 18),
    "iq4_xs": (256, 136), "mxfp4": (32, 17),
}  # fmt: skip
_BLOCK_SIZES = ("elems_per_block", "block_bytes")
# Sparse layouts: the layout in the model, and the parts that are indices.
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
# Layouts with a closed set of parts.
_PARTS: Mapping[str, set[str]] = {
    "dense": {"data"},
    **{layout: {"values", *indices} for layout, (_, indices) in SPARSE.items()},
    **{layout: {"data"} for layout in _GGUF},
}
# The namespace of layouts of 1.x that 2.x has no word for.
_OURS, _OURS_VERSION = "pyztensor.", "/1"
_IN_BOTH = frozenset({"pyztensor.delta/1"})  # layouts that have this word in 1.x, too
WORD_OF_2 = "2.x "  # prefix in the model of words of 2.x that mean something else in 1.x


def block_sizes(layout: object) -> dict[str, int]:
    """Return the attributes of the block size of a `gguf` layout of 2.x; {} for others."""
    return dict(zip(_BLOCK_SIZES, _GGUF.get(layout, ()), strict=False))


def storage_of(logical: str | None) -> str | None:
    """Return the storage type that a logical type is defined on (2.1 section 4); None if unknown.

    The registry is open: types may be registered at any time.
    """
    known = LOGICAL_TYPES.get(logical) if logical is not None else None
    return "u8" if logical == "bool" else known and known.dtype


def check_layout(
    layout: str,
    shape: tuple[int, ...],
    components: Mapping[str, Component],
    attributes: Mapping[str, object] | None,
) -> Iterator[Problem]:
    """Yield the problems of an object with the rules that only 2.x has (2.1 sections 5.1, 5.2)."""

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
            message = f"u32 or u64, found {describe(word)}"
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


def model_layout(
    layout: str, attributes: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object] | None]:
    """Return the model's layout and attributes for a layout of 2.x."""
    if layout in SPARSE:
        return SPARSE[layout][0], attributes
    if layout in _GGUF:
        left = {key: value for key, value in (attributes or {}).items() if key not in _BLOCK_SIZES}
        return layout.removesuffix("/1"), left or None
    if layout in _IN_BOTH:
        return layout, attributes
    if layout.startswith(_OURS) and layout.endswith(_OURS_VERSION):
        word = layout[len(_OURS) : -len(_OURS_VERSION)]
        is_ours = "/" not in word and word != "dense" and word not in _THEIRS
        return (word if is_ours else layout), attributes
    if "/" not in layout and layout != "dense":
        return WORD_OF_2 + layout, attributes
    return layout, attributes


def written_layout(
    layout: str, attributes: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object] | None]:
    """Return layout and attributes of 2.x for a layout of the model: undoes `model_layout`."""
    word = _THEIRS.get(layout, layout)
    if layout.startswith(WORD_OF_2):
        return layout.removeprefix(WORD_OF_2), attributes
    if word in _GGUF:
        return word, {**(attributes or {}), **block_sizes(word)}
    if "/" not in word and word != "dense":
        return f"{_OURS}{word}{_OURS_VERSION}", attributes
    return word, attributes
