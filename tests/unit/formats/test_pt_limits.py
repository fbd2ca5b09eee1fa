"""How much of a PyTorch file is taken, at the edge of each limit."""

from __future__ import annotations

import zipfile

import pytest

import ztensor
from tests.corpus.foreign.make_pt import (
    SIX,
    archive,
    call,
    legacy,
    mapping,
    number,
    numbers,
    storage,
    tensor,
    text,
)
from tests.refusals import refused
from ztensor.errors import FormatError, LimitError, Reason, ZTensorError
from ztensor.limits import Limits


def outcome(body: bytes, **storages: bytes) -> object:
    """Return the value of a pickle, or why it is refused."""
    try:
        reader = ztensor.open(archive(body, storages or None))
    except ZTensorError as error:
        return error.reason
    return reader["tensor"].tolist() if len(reader) else reader.attributes["value"]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (number(-(1 << 63)), -(1 << 63)),
        (number(-(1 << 63) - 1), "-0x8000000000000001"),
        (number((1 << 64) - 1), (1 << 64) - 1),
        (number(1 << 64), "0x10000000000000000"),
        (call("torch.device", text("cuda"), number(-(1 << 63))), f"cuda:{-(1 << 63)}"),
        (call("torch.device", text("cuda"), number(-(1 << 63) - 1)), Reason.FIELD_VALUE),
        (call("torch.device", text("cuda"), number((1 << 63) - 1)), f"cuda:{(1 << 63) - 1}"),
        (call("torch.device", text("cuda"), number(1 << 63)), Reason.FIELD_VALUE),
        (call("torch.Size", numbers((0, (1 << 63) - 1))), [0, (1 << 63) - 1]),
        (call("torch.Size", numbers((1 << 63,))), Reason.FIELD_VALUE),
        (call("torch.Size", numbers((-1,))), Reason.FIELD_VALUE),
        (call("torch.Size", numbers((1,) * 64)), [1] * 64),
        (call("torch.Size", numbers((1,) * 65)), Reason.FIELD_TYPE),
    ],
)
def test_numbers_are_taken_up_to_64_bits_and_shapes_up_to_64_axes(
    body: bytes, value: object
) -> None:
    assert outcome(body) == value


@pytest.mark.parametrize("length", [1, 5, 40, 150])
def test_pickles_that_are_cut_are_damage_and_no_limit(length: int) -> None:
    data = legacy(mapping(note=text("x" * 100_000)), {})
    with refused(FormatError, Reason.TRUNCATED):
        ztensor.open(data[:-length])


def test_deflated_bytes_are_inflated_few_times_for_nothing() -> None:
    """Four tensors may look at all of a storage; from there on more of them are dear."""
    whole = tensor((1 << 20,), (1,), of=storage(count=1 << 20))
    limits = Limits(cost_floor=1 << 18)
    for count, is_taken in ((4, True), (20, False)):
        body = mapping(**{f"t{number}": whole for number in range(count)})
        data = archive(body, {"0": bytes(4 << 20)}, method=zipfile.ZIP_DEFLATED)
        if is_taken:
            assert len(ztensor.open(data, limits=limits)) == count
            continue
        with refused(LimitError, Reason.LIMIT_COST):
            ztensor.open(data, limits=limits)


def test_elements_far_apart_in_a_deflated_storage_are_refused() -> None:
    far = tensor((2,), (1 << 23,), of=storage(count=(1 << 23) + 1))
    data = archive(mapping(t=far), {"0": bytes((4 << 23) + 4)}, method=zipfile.ZIP_DEFLATED)
    with ztensor.open(data) as reader, refused(LimitError, Reason.LIMIT_DECODED):
        reader["t"]


def test_the_count_before_a_storage_is_that_of_the_pickle() -> None:
    """It is looked at where a tensor is asked for: over a network, each costs a request."""
    body = mapping(a=tensor(), b=tensor(of=storage("1")))
    reader = ztensor.open(legacy(body, {"0": (6, SIX), "1": (7, SIX)}))
    assert reader.metadata("a").components["data"].length == len(SIX)
    with refused(FormatError, Reason.SIZE_MISMATCH):
        reader.metadata("b")
