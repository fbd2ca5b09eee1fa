"""How long a component decodes to, as far as the manifest and the layout tell it."""

from __future__ import annotations

from typing import Any

import pytest

from ztensor.spec.layout import known_length, roles_in_order
from ztensor.spec.model.manifest import Component, TensorObject


def zipped(dtype: str, decoded_length: int | None = None) -> Component:
    return Component(dtype, 64, 9, encoding="zstd", decoded_length=decoded_length)


def of(layout: str, shape: tuple[int, ...], parts: dict[str, Any]) -> TensorObject:
    return TensorObject(shape, layout, parts)


SPARSE = {"indices": zipped("u64"), "indptr": zipped("u64"), "values": zipped("f32")}


@pytest.mark.wing
@pytest.mark.parametrize(
    ("tensor_object", "expected"),
    [
        (of("dense", (3, 5), {"data": zipped("f32")}), {"data": 60}),
        (of("dense", (3, 5), {"data": zipped("f32", 8)}), {"data": 8}),
        (of("dense", (3, 5), {"data": Component("f32", 64, 60)}), {"data": 60}),
        (of("later", (3, 5), {"data": zipped("f32")}), {"data": None}),
        (of("later", (3, 5), {"data": zipped("f32", 8)}), {"data": 8}),
        (of("sparse_csr", (3, 5), SPARSE), {"indices": None, "indptr": 32, "values": None}),
    ],
    ids=lambda value: value.format if isinstance(value, TensorObject) else "",
)
def test_what_is_known_of_each_role(
    tensor_object: TensorObject, expected: dict[str, int | None]
) -> None:
    assert {role: known_length(tensor_object, role) for role in expected} == expected


def test_what_tells_of_others_is_read_first() -> None:
    parts = {"more": zipped("u8"), **SPARSE}
    assert roles_in_order(of("sparse_csr", (3, 5), parts)) == [
        "indptr", "indices", "values", "more",
    ]  # fmt: skip
    assert roles_in_order(of("later", (3, 5), parts)) == list(parts)
