"""Layouts of the model and of 2.x: each word has one meaning on either side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ztensor.errors import Reason
from ztensor.ext import Component
from ztensor.spec.container.v2 import words

SIZES = {"elems_per_block": 32, "block_bytes": 18}
# Layout and attributes of the model, and the same in 2.x.
BOTH: list[tuple[str, Mapping[str, object] | None, str, Mapping[str, object] | None]] = [
    ("dense", {"a": 1}, "dense", {"a": 1}),
    ("sparse_csr", {"a": 1}, "zt.sparse_csr/1", {"a": 1}),
    ("sparse_coo", None, "zt.sparse_coo/1", None),
    ("quantized_group", {"bits": 4}, "pyztensor.quantized_group/1", {"bits": 4}),
    ("scipy.sparse_csc", None, "pyztensor.scipy.sparse_csc/1", None),
    ("zt.quant_group/1", {"bits": 4}, "zt.quant_group/1", {"bits": 4}),
    ("someone.else/2", None, "someone.else/2", None),
    ("2.x plain", {"a": 1}, "plain", {"a": 1}),
    ("gguf.q4_0", None, "gguf.q4_0/1", SIZES),
    ("gguf.q4_0", {"a": 1}, "gguf.q4_0/1", {"a": 1, **SIZES}),
    # Words of our namespace that are never written stay as they are.
    *((word, {"a": 1}, word, {"a": 1}) for word in ("pyztensor.dense/1", "pyztensor.a/b/1")),
]


@pytest.mark.parametrize(("layout", "attributes", "word", "written"), BOTH)
def test_a_layout_is_read_from_the_word_it_is_written_as(
    layout: str,
    attributes: Mapping[str, object] | None,
    word: str,
    written: Mapping[str, object] | None,
) -> None:
    assert words.written_layout(layout, attributes) == (word, written)
    assert words.model_layout(word, written) == (layout, attributes)


def parts(*roles: str, **dtypes: Any) -> dict[str, Component]:
    return {role: Component(dtypes.get(role, "u8"), 64, 18) for role in roles}


INDICES = {"values": "f32", "indices": "u32", "indptr": "u32", "coords": "u64"}
CSR, COO = parts("values", "indices", "indptr", **INDICES), parts("values", "coords", **INDICES)


@pytest.mark.parametrize(
    ("layout", "shape", "components", "attributes", "reasons"),
    [
        ("dense", (2,), parts("data"), None, []),
        ("dense", (2,), parts("other"), None, [Reason.COMPONENT_MISSING]),
        ("dense", (2,), parts("data", "more"), None, [Reason.FIELD_VALUE]),
        ("any/1", (2,), parts("more"), None, []),
        ("zt.sparse_csr/1", (2, 2), CSR, None, []),
        ("zt.sparse_csr/1", (2, 2), {**CSR, **parts("indptr", indptr="u64")}, None,
         [Reason.INDEX_DTYPE]),
        ("zt.sparse_csr/1", (2, 2), {**CSR, **parts("indptr", "indices")}, None,
         [Reason.INDEX_DTYPE] * 2),
        ("zt.sparse_coo/1", (2,), COO, None, []),
        ("zt.sparse_coo/1", (), COO, None, [Reason.LAYOUT_RANK]),
        ("gguf.q4_0/1", (32,), parts("data"), SIZES, []),
        ("gguf.q4_0/1", (32,), parts("data"), None, [Reason.FIELD_VALUE] * 2),
        ("gguf.q4_0/1", (32,), parts("data"), {**SIZES, "block_bytes": 17}, [Reason.FIELD_VALUE]),
        ("gguf.q4_0/1", (32,), parts("data"), {**SIZES, "block_bytes": 18.0}, [Reason.FIELD_VALUE]),
        ("gguf.later/1", (32,), parts("data"), None, []),
    ],
)  # fmt: skip
def test_rules_of_a_layout(
    layout: str,
    shape: tuple[int, ...],
    components: dict[str, Component],
    attributes: Mapping[str, object] | None,
    reasons: list[Reason],
) -> None:
    problems = [*words.check_layout(layout, shape, components, attributes)]
    assert [problem.reason for problem in problems] == reasons
    if attributes is not None and reasons:
        assert problems[-1].path == ("attributes", "block_bytes")


@pytest.mark.parametrize("name", words.GGUF_BLOCKS)
def test_block_sizes_of_each_ggml_type(name: str) -> None:
    elements, nbytes = words.GGUF_BLOCKS[name]
    sizes = {"elems_per_block": elements, "block_bytes": nbytes}
    assert words.written_layout(f"gguf.{name}", None) == (f"gguf.{name}/1", sizes)
    assert not [*words.check_layout(f"gguf.{name}/1", (elements,), parts("data"), sizes)]
