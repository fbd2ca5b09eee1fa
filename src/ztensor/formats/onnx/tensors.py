"""A `TensorProto`: its type, its shape, and where its elements are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import (
    FormatError,
    LimitError,
    Reason,
    UnsupportedError,
    describe,
)
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
    nbytes_of,
    require_wire,
    signed,
)

if TYPE_CHECKING:
    pass


TENSOR_PARTS = {12: "doc string of a tensor", 16: "metadata of a tensor"}


class Type(NamedTuple):
    """A value of `TensorProto.DataType`.

    Attributes:
        name: its name there.
        dtype: storage type.
        type: logical type, or None.
        field: number of the field its elements are in where they are not raw.
        bits: of one element where several are in a byte and no type here packs so, else 0.
    """

    name: str
    dtype: str
    type: str | None
    field: int
    bits: int = 0


FLOAT, INT32, INT64, DOUBLE, UINT64 = 4, 5, 7, 10, 11
RAW_DATA = 9
EXTERNAL = 1  # TensorProto.DataLocation
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
STRING = 8


def number_of(tensor: Tensor, key: str, default: int) -> int:
    """Return a number that a tensor's external data has under a key.

    Raises:
        FormatError: it is no decimal number.
    """
    text = tensor.external.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise unfit(tensor, f"a decimal {key}", describe(text))
    return int(text)


def unfit(tensor: Tensor, expected: str, found: object) -> FormatError:
    """Return the error for data that is not what shape and type need."""
    return FormatError(
        "an initializer has not the data its shape and type need",
        reason=Reason.SIZE_MISMATCH,
        object_name=tensor.name,
        expected=expected,
        found=describe(found),
        section=SECTION,
    )


def twice(what: str, field: Field) -> FormatError:
    """Return the error for what may be there once."""
    return damaged(f"{what} is there twice", field.start, Reason.FIELD_VALUE)


def add_dims(message: Message, field: Field, dims: list[int]) -> None:
    """Add the dimensions of a field to those before it: one, or several packed ones.

    Raises:
        FormatError: one is negative.
        LimitError: they are more than `Limits.rank`.
    """
    place = field.start
    while True:
        if field.wire == VARINT:
            value, place = field.value, field.stop
        else:
            require_wire(field, BYTES, "dims")
            if place == field.stop:
                return
            value, place = message.varint(place, field.stop)
        if signed(value) < 0:
            raise damaged("a dimension is negative", field.start, Reason.FIELD_VALUE)
        if len(dims) == message.budget.limits.rank:
            raise LimitError(
                "a tensor has more dimensions than Limits.rank allows",
                reason=Reason.LIMIT_RANK,
                expected=f"at most {message.budget.limits.rank}",
                found=f"more at offset {field.start}",
            )
        message.budget.charge_bytes(NUMBER_COST)
        dims.append(value)
        if field.wire == VARINT:
            return


class Tensor:
    """A `TensorProto`: what its fields say, and where its elements are.

    Args:
        message: what it is read from.
        tensor: the field.
        name: what it is called where it is called otherwise than it says.
        left: where what is not given of it is counted.
    """

    def __init__(
        self, message: Message, tensor: Field, name: str | None = None, left: Tally | None = None
    ) -> None:
        self.name = ""
        self.location = 0
        self.external: dict[str, str] = {}
        self.data: Field | None = None
        dims: list[int] = []
        code = 0
        once: set[int] = set()
        for field in message.fields(tensor.start, tensor.stop):
            number = field.number
            if number in (2, 8, 14, *_DATA):
                # Numbers one by one, or packed in pieces, are allowed and nobody writes them.
                if number in once:
                    raise twice("a field of an initializer", field)
                once.add(number)
            if number == 1:
                add_dims(message, field, dims)
            elif number == 2:
                require_wire(field, VARINT, "data_type")
                code = field.value
            elif number == 3:
                raise UnsupportedError(
                    "an initializer in segments", reason=Reason.UNKNOWN_ENCODING, section=SECTION
                )
            elif number == 8:
                self.name = message.text(field, "name")
            elif number == 13:
                message.budget.charge_bytes(ENTRY_COST)
                key, value = message.pair(field, "external_data")
                self.external[key] = value
            elif number == 14:
                require_wire(field, VARINT, "data_location")
                self.location = field.value
            elif number in _DATA and (field.stop > field.start or field.wire != BYTES):
                require_wire(field, BYTES, "the data of an initializer")
                if self.data is not None:
                    raise twice("the data of an initializer", field)
                self.data = field
            elif left is not None and number in TENSOR_PARTS:
                left.add(TENSOR_PARTS[number], nbytes=nbytes_of(field))
        self.is_named = name is not None
        self.name = self.name if name is None else name
        self.shape = tuple(dims)
        self.kind = TYPES.get(code)
        self.type_name = "STRING" if code == STRING else f"ONNX type {code}"
        fields = (RAW_DATA,) if self.kind is None else (RAW_DATA, self.kind.field)
        if self.kind is not None and self.data is not None and self.data.number not in fields:
            raise damaged(
                f"{self.kind.name} elements are in field {self.data.number}",
                self.data.start,
                Reason.TYPE_MISMATCH,
            )


_DATA = (FLOAT, INT32, INT64, RAW_DATA, DOUBLE, UINT64)
