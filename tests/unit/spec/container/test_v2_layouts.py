"""Layouts of ours and of 2.x: each word has one meaning on either side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ztensor.errors import NotRepresentableError, Reason
from ztensor.spec.container.v2.emit import Emitter21 as Emitter
from ztensor.spec.container.v2.words import GGUF_BLOCKS, check_layout, ours, theirs
from ztensor.spec.model.manifest import Component, TensorObject

SIZES = {"elems_per_block": 32, "block_bytes": 18}
BOTH: list[tuple[str, Mapping[str, object] | None, str, Mapping[str, object] | None]] = [
    ("dense", None, "dense", None),
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
]


@pytest.mark.parametrize(("own", "attributes", "word", "given"), BOTH)
def test_a_layout_is_written_as_the_word_it_is_read_from(
    own: str,
    attributes: Mapping[str, object] | None,
    word: str,
    given: Mapping[str, object] | None,
) -> None:
    assert theirs(own, attributes) == (word, given)
    assert ours(word, given) == (own, attributes)


@pytest.mark.parametrize("word", ["pyztensor.dense/1", "pyztensor.sparse_csr/1", "pyztensor.a/b/1"])
def test_a_word_of_our_namespace_that_we_do_not_write_stays_as_it_is(word: str) -> None:
    assert ours(word, {"a": 1}) == (word, {"a": 1})
    assert theirs(word, None) == (word, None)


@pytest.mark.parametrize(
    ("layout", "attributes"),
    [
        ("pyztensor.other/1", None),  # it would be read as `other`
        ("zt.sparse_csr/1", None),
        ("zt.sparse_coo/1", None),
        ("gguf.q4_0", SIZES),  # what is a fact of the type
        ("2.x dense", None),
        ("2.x a/1", None),
    ],
)
def test_what_would_be_read_as_another_is_not_written(
    layout: str, attributes: Mapping[str, object] | None
) -> None:
    part = Component("u8", 0, 2)
    with pytest.raises(NotRepresentableError):
        Emitter().require_object(TensorObject((2,), layout, {"data": part}, attributes))


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
        ("zt.sparse_csr/1", (2, 2), {**CSR, **parts("indptr", indptr="i32")}, None,
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
def test_what_a_layout_asks_for(
    layout: str,
    shape: tuple[int, ...],
    components: dict[str, Component],
    attributes: Mapping[str, object] | None,
    reasons: list[Reason],
) -> None:
    found = check_layout(layout, shape, components, attributes)
    assert [problem.reason for problem in found] == reasons


@pytest.mark.parametrize("name", GGUF_BLOCKS)
def test_the_sizes_of_each_type_of_blocks(name: str) -> None:
    elements, nbytes = GGUF_BLOCKS[name]
    sizes = {"elems_per_block": elements, "block_bytes": nbytes}
    assert theirs(f"gguf.{name}", None) == (f"gguf.{name}/1", sizes)
    assert not [*check_layout(f"gguf.{name}/1", (elements,), parts("data"), sizes)]


@pytest.mark.parametrize(
    ("attributes", "found"),
    [(None, "nothing"), ({**SIZES, "block_bytes": 17}, "17"), ({"block_bytes": None}, "nothing")],
)
def test_which_size_of_a_block_was_found_is_said(
    attributes: Mapping[str, object] | None, found: str
) -> None:
    *_, problem = check_layout("gguf.q4_0/1", (32,), parts("data"), attributes)
    assert problem.message == f"expected 18, found {found}"
    assert problem.path == ("attributes", "block_bytes")
