"""ONNX models whose fields make far more than they are long."""

from __future__ import annotations

import numpy as np
import pytest

import ztensor
from tests.attacks.peaks import peak_of, require_listed_in_budget
from tests.attacks.shapes.archives import onnx, protobuf, varint
from tests.extent import amount
from ztensor.errors import LimitError, Reason, ZTensorError
from ztensor.limits import MIB, Limits

FLOOR = amount(1, full=2) * MIB  # less than by default, so that the tests are quick
N = 1 << 16


def named(*parts: bytes) -> bytes:
    return protobuf(5, protobuf(8, b"a") + b"".join(parts))


DEAR = {
    "packed dimensions": named(protobuf(1, b"\1" * N)),
    "dimensions one by one": named(b"\x08\x01" * N),
    "dimensions of nothing": named(protobuf(1, b"") * (N // 2)),
    "external data": named(
        b"\x70\x01", *(protobuf(13, protobuf(1, b"%x" % i)) for i in range(12_000))
    ),
    "initializers": b"".join(
        protobuf(5, b"\x08\x00\x10\x03" + protobuf(8, b"%x" % i)) for i in range(5_000)
    ),
    "strings": named(b"\x10\x08", b"\x32\x00" * (N // 2)),
    "outputs of a node": protobuf(1, protobuf(4, b"Constant") + protobuf(2, b"ab") * N),
    "tensors of a node": protobuf(
        1, protobuf(4, b"Constant") + protobuf(5, protobuf(5, b"") * 20_000) + protobuf(2, b"a")
    ),
    "nodes": protobuf(1, protobuf(4, b"Constant")) * 5_000,
    "sparse initializers": protobuf(15, b"\x18\x01" * N),
    "a wide name": protobuf(2, "🎈".encode() + b"a" * MIB),
}  # fmt: skip


@pytest.mark.parametrize("name", DEAR)
def test_every_field_is_charged_what_it_takes(name: str) -> None:
    """Eight MB of packed numbers took 384 MiB, and a bare MemoryError where there was less."""
    data = onnx(DEAR[name])
    limits = Limits(cost_floor=FLOOR)
    peak, result = peak_of(lambda: list(ztensor.open(data, limits=limits)))
    assert isinstance(result, (list, ZTensorError))
    assert peak <= FLOOR + 4 * len(data)


def test_more_dimensions_than_can_be() -> None:
    """A million dimensions of 1, one byte each."""
    result = require_listed_in_budget(onnx(named(protobuf(1, b"\1" * MIB))))
    assert isinstance(result, LimitError)
    assert result.reason is Reason.LIMIT_RANK


@pytest.mark.parametrize(("kind", "field", "width"), [(7, 7, 8), (13, 11, 8), (6, 5, 4), (3, 5, 1)])
def test_numbers_are_decoded_in_pieces(kind: int, field: int, width: int) -> None:
    """Reading them took six arrays of 8 bytes for each: now what is returned, and a little."""
    count = 2_000_000
    tensor = protobuf(1, varint(count)) + b"\x10" + varint(kind) + protobuf(field, b"\7" * count)
    reader = ztensor.open(onnx(named(tensor)))
    peak, array = peak_of(lambda: reader["a"])
    assert isinstance(array, np.ndarray)
    assert (array == 7).all()
    assert peak < count * width + 24 * MIB


@pytest.mark.parametrize("lead", [0, 1, 5, 9])
def test_numbers_on_the_border_of_two_pieces(lead: int) -> None:
    """A number of ten bytes that begins in one piece and ends in the next is one number."""
    values = [1] * ((1 << 18) - lead) + [-5, 300, 1 << 40, -(1 << 63)] * 9
    packed = b"".join(varint(value % (1 << 64)) for value in values)
    tensor = protobuf(1, varint(len(values))) + b"\x10\x07" + protobuf(7, packed)
    assert ztensor.open(onnx(named(tensor)))["a"].tolist() == values
