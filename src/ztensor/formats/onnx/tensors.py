"""The fields of a `TensorProto`: type, shape, and the place of its elements."""

from __future__ import annotations

from typing import NamedTuple

from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError, describe
from ztensor.ext import Tally
from ztensor.formats.onnx.protobuf import (
    BYTES,
    ENTRY_COST,
    NUMBER_COST,
    SECTION,
    VARINT,
    Field,
    Message,
    damaged,
    signed,
)


class Type(NamedTuple):
    """A value of `TensorProto.DataType`.

    Attributes:
        name: its name in ONNX.
        dtype: storage type.
        type: logical type, or None.
        field: number of the field with elements that are not in `raw_data`.
        bits: bits of an element if several are packed into a byte and no logical type does that;
            else 0.
    """

    name: str
    dtype: str
    type: str | None
    field: int
    bits: int = 0


FLOAT, INT32, INT64, DOUBLE, UINT64 = 4, 5, 7, 10, 11
RAW_DATA = 9
VARINTS = (INT32, INT64, UINT64)
_EXTERNAL = 1  # TensorProto.DataLocation
TYPES = {
    1: Type("FLOAT", "f32", None, FLOAT),
    2: Type("UINT8", "u8", None, INT32),
    3: Type("INT8", "i8", None, INT32),
    4: Type("UINT16", "u16", None, INT32),
    5: Type("INT16", "i16", None, INT32),
    6: Type("INT32", "i32", None, INT32),
    7: Type("INT64", "i64", None, INT64),
    9: Type("BOOL", "bool", None, INT32),
    10: Type("FLOAT16", "f16", None, INT32),
    11: Type("DOUBLE", "f64", None, DOUBLE),
    12: Type("UINT32", "u32", None, UINT64),
    13: Type("UINT64", "u64", None, UINT64),
    14: Type("COMPLEX64", "f32", "complex64", FLOAT),
    15: Type("COMPLEX128", "f64", "complex128", DOUBLE),
    16: Type("BFLOAT16", "bf16", None, INT32),
    17: Type("FLOAT8E4M3FN", "u8", "f8_e4m3fn", INT32),
    18: Type("FLOAT8E4M3FNUZ", "u8", "f8_e4m3fnuz", INT32),
    19: Type("FLOAT8E5M2", "u8", "f8_e5m2", INT32),
    20: Type("FLOAT8E5M2FNUZ", "u8", "f8_e5m2fnuz", INT32),
    21: Type("UINT4", "u8", None, INT32, 4),
    22: Type("INT4", "i8", None, INT32, 4),
    23: Type("FLOAT4E2M1", "u8", "f4_e2m1", INT32),
    24: Type("FLOAT8E8M0", "u8", "f8_e8m0", INT32),
    25: Type("UINT2", "u8", None, INT32, 2),
    26: Type("INT2", "i8", None, INT32, 2),
}
_STRING = 8


def unfit(tensor: Tensor, expected: str, found: object) -> FormatError:
    """Return the error for data that does not match shape and type."""
    return FormatError(
        "the data of an initializer does not match its shape and type",
        reason=Reason.SIZE_MISMATCH,
        object_name=tensor.name,
        expected=expected,
        found=describe(found),
        section=SECTION,
    )


def twice(owner: str, field: Field) -> FormatError:
    """Return the error for a duplicate of a singular field."""
    return damaged(f"duplicate of {owner}", field.start, Reason.FIELD_VALUE)


def add_dims(message: Message, field: Field, dims: list[int]) -> None:
    """Add the dimensions of a field to those before it.

    Raises:
        FormatError: a dimension is negative.
        LimitError: there are more than `Limits.rank`.
    """
    most = message.budget.limits.rank
    for value in message.numbers(field):
        if signed(value) < 0:
            raise damaged("a dimension is negative", field.start, Reason.FIELD_VALUE)
        if len(dims) == most:
            raise LimitError(
                "a tensor has more dimensions than Limits.rank allows",
                reason=Reason.LIMIT_RANK,
                expected=f"at most {most}",
                found=f"more at offset {field.start}",
            )
        message.budget.charge_bytes(NUMBER_COST)
        dims.append(value)


# Fields of a `TensorProto`: data, singular fields, wire types of fields that are read, and fields
# that are counted only.
_DATA = (FLOAT, INT32, INT64, RAW_DATA, DOUBLE, UINT64)
_ONCE = (2, 8, 14, *_DATA)
_WIRES = {2: VARINT, 8: BYTES, 13: BYTES, 14: VARINT}
_COUNTED = {12: "doc string of a tensor", 16: "metadata of a tensor"}


class Tensor:
    """A parsed `TensorProto`.

    Args:
        message: the file.
        tensor: the field.
        left: the loss report, to which unread fields are added.
        name: the name; None for the name in the field.
    """

    def __init__(
        self, message: Message, tensor: Field, left: Tally, name: str | None = None
    ) -> None:
        own_name, code = "", 0
        self.is_external = False
        self.external: dict[str, str] = {}
        self.data: Field | None = None
        dims: list[int] = []
        once: set[int] = set()
        for field in message.within(tensor, _WIRES):
            number = field.number
            if number in _ONCE:
                # Protobuf allows unpacked and repeated packed data, but no program writes it.
                if number in once:
                    raise twice("a field of an initializer", field)
                once.add(number)
            if number == 1:
                add_dims(message, field, dims)
            elif number == 2:
                code = field.value
            elif number == 3:
                raise UnsupportedError(
                    "an initializer in segments", reason=Reason.UNKNOWN_ENCODING, section=SECTION
                )
            elif number == 8:
                own_name = message.text(field)
            elif number == 13:
                message.budget.charge_bytes(ENTRY_COST)
                key, value = message.texts(field, (1, 2))
                self.external[key] = value
            elif number == 14:
                self.is_external = field.value == _EXTERNAL
            elif number in _DATA and (field.nbytes or field.wire != BYTES):
                if field.wire != BYTES:
                    problem = "the data of an initializer has another wire type"
                    raise damaged(problem, field.start, Reason.FIELD_TYPE)
                if self.data is not None:
                    raise twice("the data of an initializer", field)
                self.data = field
            elif number in _COUNTED:
                left.add(_COUNTED[number], nbytes=field.nbytes)
        self.is_named = name is not None
        self.name = own_name if name is None else name
        self.shape = tuple(dims)
        self.kind = TYPES.get(code)
        self.type_name = "STRING" if code == _STRING else f"ONNX type {code}"
        fields = (RAW_DATA,) if self.kind is None else (RAW_DATA, self.kind.field)
        if self.kind is not None and self.data is not None and self.data.number not in fields:
            problem = f"{self.kind.name} elements are in field {self.data.number}"
            raise damaged(problem, self.data.start, Reason.TYPE_MISMATCH)
