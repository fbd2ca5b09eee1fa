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
from ztensor.spec.model.dtype import STORAGE_TYPES
from ztensor.spec.model.manifest import Component

DTYPES = frozenset(STORAGE_TYPES) - {"bool"}
# The registered logical types and the storage each is defined on.
TYPES: Mapping[str, str] = {
    **dict.fromkeys(("bool", "f8_e4m3fn", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz"), "u8"),
    **dict.fromkeys(("f8_e8m0", "f4_e2m1"), "u8"),
    "complex64": "f32",
    "complex128": "f64",
}
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
_WORD_OF_2 = "2.x "  # before a word without a version, which would mean another in 1.x


def types_of(dtype: str, logical: str | None) -> tuple[str, str | None]:
    """Return storage and logical type as the model has them."""
    return ("bool", None) if logical == "bool" else (dtype, logical)


def words_of(component: Component) -> tuple[str, str | None]:
    """Return storage and logical type as 2.x has them: the reverse of `types_of`."""
    return ("u8", "bool") if component.dtype == "bool" else (component.dtype, component.type)


def encoding_of(word: str | None) -> str:
    """Return the encoding as the model has it: words of 1.x mean nothing in 2.x."""
    if word is None:
        return "raw"
    return _WORD_OF_2 + word if word in ("raw", "zstd") else word


def word_of(encoding: str) -> str | None:
    """Return the encoding as 2.x has it, None for raw: the reverse of `encoding_of`."""
    return None if encoding == "raw" else encoding.removeprefix(_WORD_OF_2)


def check_layout(
    layout: str,
    shape: tuple[int, ...],
    components: Mapping[str, Component],
    attributes: Mapping[str, object] | None,
) -> list[Problem]:
    """Return what is wrong with an object that layouts of ours do not look at."""
    section = f"the layout {layout}"
    parts = _PARTS.get(layout)
    if parts is not None and components.keys() != parts:
        reason = Reason.FIELD_VALUE if parts <= components.keys() else Reason.COMPONENT_MISSING
        found = ", ".join(map(describe, list(components)[:8]))
        message = f"expected the parts {', '.join(sorted(parts))}, found {found}"
        return [Problem(reason, message, ("parts",), section)]
    if layout in SPARSE:
        problems = [*_check_indices(SPARSE[layout][1], components)]
        if layout == "zt.sparse_coo/1" and not shape:
            message = "expected a dimension, found none"
            problems.append(Problem(Reason.LAYOUT_RANK, message, ("shape",)))
    else:
        problems = [*_check_blocks(layout, attributes or {})]
    return [problem._replace(section=section) for problem in problems]


def _check_indices(
    roles: tuple[str, ...], components: Mapping[str, Component]
) -> Iterator[Problem]:
    words = {role: components[role].type or components[role].dtype for role in roles}
    wrong = {role: word for role, word in words.items() if word not in ("u32", "u64")}
    for role, word in wrong.items():
        message = f"expected plain u32 or u64, found {describe(word)}"
        yield Problem(Reason.INDEX_DTYPE, message, ("parts", role, "dtype"))
    if not wrong and len({*words.values()}) > 1:
        found = " and ".join(sorted(words.values()))
        message = f"expected indices and indptr of one dtype, found {found}"
        yield Problem(Reason.INDEX_DTYPE, message, ("parts",))


def block_sizes(layout: object) -> dict[str, int]:
    """Return the attributes that say how large the blocks of a layout are; none of most."""
    return dict(zip(_BLOCK_SIZES, _GGUF.get(layout, ()), strict=False))


def _check_blocks(layout: str, attributes: Mapping[str, object]) -> Iterator[Problem]:
    for field, size in block_sizes(layout).items():
        found = attributes.get(field)
        if type(found) is not int or found != size:
            name = layout.removeprefix("gguf.").removesuffix("/1")
            text = "nothing" if found is None else describe(found)
            message = f"expected {size} for {name}, found {text}"
            yield Problem(Reason.FIELD_VALUE, message, ("attributes", field))


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
        return _WORD_OF_2 + layout, attributes
    return layout, attributes


def theirs(
    layout: str, attributes: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object] | None]:
    """Return the layout of 2.x that one of ours is written as, and its attributes there."""
    word = _THEIRS.get(layout, layout)
    if layout.startswith(_WORD_OF_2):
        return layout.removeprefix(_WORD_OF_2), attributes
    if word in _GGUF:
        return word, {**(attributes or {}), **block_sizes(word)}
    if "/" not in word and word != "dense":
        return f"{_OURS}{word}{_OURS_VERSION}", attributes
    return word, attributes
