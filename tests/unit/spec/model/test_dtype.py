from __future__ import annotations

import pytest

from tests.refusals import refused
from ztensor import LogicalType, register_logical_type
from ztensor.errors import ArgumentValueError, Reason
from ztensor.ext import LOGICAL_TYPES


@pytest.mark.usefixtures("registry")
def test_a_type_can_be_registered_once() -> None:
    mine = LogicalType("my_int16", "i16", "int16")
    register_logical_type(mine)
    assert LOGICAL_TYPES["my_int16"] is mine
    with pytest.raises(ArgumentValueError):
        register_logical_type(mine)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    "logical",
    [
        LogicalType("complex64", "f32", "complex64"),
        LogicalType("f32", "f32", "float32"),
        LogicalType("mine", "float32", "float32"),
        LogicalType("mine", "f128", "float32"),
    ],
    ids=["taken", "a storage type's name", "long name of the storage type", "no storage type"],
)
def test_an_invalid_logical_type_is_not_registered(logical: LogicalType) -> None:
    before = dict(LOGICAL_TYPES)
    with refused(ArgumentValueError, Reason.ARGUMENT):
        register_logical_type(logical)
    assert before == LOGICAL_TYPES
