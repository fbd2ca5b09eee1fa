"""Which layout of ours a layout of 2.x is, and what 2.x asks of it beyond ours.

| 2.x | here |
| --- | --- |
| `dense` | the same, of exactly one part |
| `zt.sparse_csr/1`, `zt.sparse_coo/1` | `sparse_csr`, `sparse_coo`, each position once |
| `gguf.<type>/1` | `gguf.<type>`; sizes of blocks are facts of the type, not attributes |
| `zt.quant_group/1`, `zt.mx/1` | layouts of their own, in `spec/layout/` |
| `pyztensor.<word>/1` | `<word>`: what only 1.x has, such as `quantized_group`, in our namespace |
| any other | as written, unknown; a word without a version is none of 1.x, and told apart |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import NotRepresentableError, Problem, Reason, describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.spec.model.manifest import Component

# ggml types of the registry: elements of a block, and its bytes (profile gguf).
GGUF_BLOCKS: Mapping[str, tuple[int, int]] = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24),
    "q8_0": (32, 34), "q8_1": (32, 36), "q2_k": (256, 84), "q3_k": (256, 110),
    "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210), "q8_k": (256, 292),
    "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74),
    "iq2_s": (256, 82), "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_nl": (32, 18),
    "iq4_xs": (256, 136), "mxfp4": (32, 17),
}  # fmt: skip
# Layouts whose parts are exactly these.
_PARTS: Mapping[str, frozenset[str]] = {
    "dense": frozenset({"data"}),
    "zt.sparse_csr/1": frozenset({"values", "indices", "indptr"}),
    "zt.sparse_coo/1": frozenset({"values", "coords"}),
    **{f"gguf.{name}/1": frozenset({"data"}) for name in GGUF_BLOCKS},
}
# Layouts of 1.x that 2.x has no word for are written under our own name.
_OURS, _OURS_VERSION = "pyztensor.", "/1"
_WORD_OF_2 = "2.x "  # before a word without a version, which would mean another in 1.x
SPARSE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "zt.sparse_csr/1": ("sparse_csr", ("indices", "indptr")),
    "zt.sparse_coo/1": ("sparse_coo", ("coords",)),
}


def check_layout(
    layout: str,
    shape: tuple[int, ...],
    components: Mapping[str, Component],
    attributes: Mapping[str, object] | None,
) -> list[Problem]:
    """Return what is wrong with an object that layouts of ours do not look at."""
    problems = []
    parts = _PARTS.get(layout)
    if parts is not None and components.keys() != parts:
        missing = sorted(parts - components.keys())
        found = ", ".join(describe(role) for role in list(components)[:8])
        reason = Reason.COMPONENT_MISSING if missing else Reason.FIELD_VALUE
        message = f"expected the parts {', '.join(sorted(parts))}, found {found}"
        problems.append(Problem(reason, message, ("parts",), f"the layout {layout}"))
    elif layout in SPARSE:
        problems += _check_indices(layout, shape, components)
    elif layout.startswith("gguf.") and parts is not None:
        name = layout[len("gguf.") : -len("/1")]
        sizes = zip(("elems_per_block", "block_bytes"), GGUF_BLOCKS[name], strict=True)
        for field, size in sizes:
            found_size = (attributes or {}).get(field)
            if type(found_size) is not int or found_size != size:
                found = "nothing" if found_size is None else describe(found_size)
                message = f"expected {size} for {name}, found {found}"
                path = ("attributes", field)
                problems.append(Problem(Reason.FIELD_VALUE, message, path, f"the layout {layout}"))
    return problems


def _check_indices(
    layout: str, shape: tuple[int, ...], components: Mapping[str, Component]
) -> list[Problem]:
    problems = []
    section = f"the layout {layout}"
    words = set()
    for role in SPARSE[layout][1]:
        component = components[role]
        word = component.type or component.dtype
        words.add(word)
        if word not in ("u32", "u64"):
            message = f"expected plain u32 or u64, found {describe(word)}"
            problems.append(Problem(Reason.INDEX_DTYPE, message, ("parts", role, "dtype"), section))
    if len(words) > 1 and not problems:
        message = "expected indices and indptr of one dtype, found " + " and ".join(sorted(words))
        problems.append(Problem(Reason.INDEX_DTYPE, message, ("parts",), section))
    if layout == "zt.sparse_coo/1" and not shape:
        problems.append(
            Problem(Reason.LAYOUT_RANK, "expected a dimension, found none", ("shape",), section)
        )
    return problems


def ours(
    layout: str, attributes: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object] | None]:
    """Return the layout of ours that one of 2.x is, and the attributes that are left."""
    if layout in SPARSE:
        return SPARSE[layout][0], attributes
    if layout.startswith("gguf.") and layout in _PARTS:
        left = {
            key: value
            for key, value in (attributes or {}).items()
            if key not in ("elems_per_block", "block_bytes")
        }
        return layout.removesuffix("/1"), left or None
    if layout.startswith(_OURS) and layout.endswith(_OURS_VERSION):
        word = layout[len(_OURS) : -len(_OURS_VERSION)]
        is_ours = "/" not in word and word != "dense" and _THEIRS.get(word) is None
        return (word if is_ours else layout), attributes
    if "/" not in layout and layout != "dense":
        return _WORD_OF_2 + layout, attributes
    return layout, attributes


_THEIRS: Mapping[str, str] = {
    **{own: layout for layout, (own, _) in SPARSE.items()},
    **{f"gguf.{name}": f"gguf.{name}/1" for name in GGUF_BLOCKS},
}


def theirs(
    layout: str, attributes: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object] | None]:
    """Return the layout of 2.x that one of ours is written as, and its attributes there.

    Raises:
        NotRepresentableError: the word, or an attribute, would be read as another.
    """
    word = _THEIRS.get(layout, layout)
    given = attributes
    if layout.startswith(_WORD_OF_2):
        word = layout.removeprefix(_WORD_OF_2)
    elif "/" not in word and word != "dense":
        word = f"{_OURS}{word}{_OURS_VERSION}"
    elif word.startswith("gguf.") and word in _PARTS:
        elements, nbytes = GGUF_BLOCKS[layout.removeprefix("gguf.").removesuffix("/1")]
        given = {**(attributes or {}), "elems_per_block": elements, "block_bytes": nbytes}
    if ours(word, given) != (layout, attributes or (None if given is not attributes else given)):
        raise NotRepresentableError(
            "the layout, or an attribute of it, means something else in 2.x",
            found=f"{describe(layout)}, written as {describe(word)}",
            section="2.1 section 5.1",
        )
    return word, given
