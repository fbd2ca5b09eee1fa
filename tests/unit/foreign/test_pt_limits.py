"""How much of a PyTorch file is taken, at the edge of each limit."""

from __future__ import annotations

import struct
import zipfile

import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_pt import (
    HOOKS,
    SIX,
    archive,
    call,
    group,
    legacy,
    mapping,
    named,
    number,
    numbers,
    pickled,
    storage,
    tensor,
    text,
)
from ztensor.errors import FormatError, LimitError, Reason, ZTensorError
from ztensor.foreign.pt.projecting import project
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.source.memory import MemorySource

DEPTH = 8
MOST_LEVELS = DEPTH - 4  # a manifest has as many levels around an attribute


def nested(levels: int, kind: str, body: bytes) -> bytes:
    for _ in range(levels):
        body = mapping(a=body) if kind == "dict" else b"](" + body + b"e"
    return body


@pytest.mark.parametrize("kind", ["dict", "list"])
@pytest.mark.parametrize("body", [number(7), tensor()], ids=["number", "tensor"])
def test_dicts_and_lists_nest_as_deep_as_the_limit(kind: str, body: bytes) -> None:
    limits = Limits(depth=DEPTH)
    name = ".".join(["a" if kind == "dict" else "0"] * (MOST_LEVELS + 1))
    reader = ztensor.open(archive(nested(MOST_LEVELS + 1, kind, body)), limits=limits)
    assert [*reader, *reader.attributes] in ([name], ["a"], ["value"])
    with pytest.raises(LimitError) as caught:
        ztensor.open(archive(nested(MOST_LEVELS + 2, kind, body)), limits=limits)
    assert caught.value.reason is Reason.LIMIT_DEPTH


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


@pytest.mark.parametrize(("count", "value"), [(4, [2, 3, 4, 5]), (5, Reason.OUT_OF_BOUNDS)])
def test_a_part_of_a_storage_ends_where_it_does_at_most(count: int, value: object) -> None:
    part = storage()[:-2] + b"(" + text("9") + number(2) + number(count) + b"ttQ"
    assert outcome(tensor((count,), (1,), of=part)) == value


U = "torch._utils."
PLACE = number(0), numbers((2, 3)), numbers((3, 1))


@pytest.mark.parametrize("more", range(-1, 3))
def test_a_call_within_a_call_has_as_many_arguments_as_a_call(more: int) -> None:
    values = (storage(), *PLACE, b"\x88", HOOKS, b"N", b"N")[: 6 + more]
    body = call(
        "torch._tensor._rebuild_from_type_v2",
        named(f"{U}_rebuild_tensor_v2"),
        named("torch.Tensor"),
        group(*values),
        b"N",
    )
    found = outcome(body)
    assert found == ([[0, 1, 2], [3, 4, 5]] if more in (0, 1) else Reason.FIELD_TYPE)


F4 = call("numpy.dtype", text("f4"), b"\x89", b"\x88")
BARE = call("numpy.core.multiarray._reconstruct", named("numpy.ndarray"), b"(K\0t", b"C\1b")
ARRAY = BARE + group(number(1), numbers((6,)), F4, b"\x89", b"C\x18" + SIX) + b"b"


@pytest.mark.parametrize(
    ("array", "dtype", "value"),
    [
        (ARRAY, "torch.float32", [0, 1, 2, 3, 4, 5]),
        (ARRAY, "torch.int32", Reason.FIELD_VALUE),
        (BARE, "torch.float32", Reason.FIELD_TYPE),
    ],
    ids=["same", "other", "no elements"],
)
def test_a_tensor_of_a_device_has_the_type_of_its_array(
    array: bytes, dtype: str, value: object
) -> None:
    made = call(f"{U}_rebuild_device_tensor_from_numpy", array, named(dtype), b"N")
    assert outcome(made) == value


def quantized(size: tuple[int, ...], stride: tuple[int, ...], how: bytes) -> bytes:
    integers = storage(kind="torch.QInt8Storage")
    place = number(0), numbers(size), numbers(stride)
    return call(f"{U}_rebuild_qtensor", integers, *place, how, b"\x89", HOOKS)


BY_TENSOR = group(named("torch.per_tensor_affine"), b"G" + struct.pack(">d", 0.5), number(1))


@pytest.mark.parametrize(
    ("size", "stride", "layout"),
    [
        ((6, 1), (1, 1), "quantized_group"),
        ((1, 6), (1, 1), "quantized_group"),
        ((7, 1), (0, 1), "torch.quantized"),
        ((0, 1), (1, 1), "torch.quantized"),
        ((), (), "torch.quantized"),
    ],
)
def test_no_more_scales_are_made_than_a_storage_has_elements(
    size: tuple[int, ...], stride: tuple[int, ...], layout: str
) -> None:
    reader = ztensor.open(archive(quantized(size, stride, BY_TENSOR)))
    assert reader.metadata("tensor").format == layout
    parts = reader.read("tensor").components
    packed = parts["packed_weight" if layout == "quantized_group" else "data"]
    assert packed.tobytes() == np.ndarray(size, "u1", SIX, 0, stride).tobytes()


@pytest.mark.parametrize(("axis", "is_there"), [(0, True), (1, True), (2, False), (3, False)])
def test_only_an_axis_that_is_there_has_scales(axis: int, is_there: bool) -> None:
    size = (1, 1)[axis : axis + 1]
    scales = tensor(size, size), tensor(size, size)
    how = group(named("torch.per_channel_affine"), *scales, number(axis))
    data = quantized((1, 1), (1, 1), how)
    if is_there:
        assert list(ztensor.open(archive(data))) == ["tensor"]
    else:
        assert outcome(data) is Reason.FIELD_TYPE


def test_members_are_as_long_as_the_limit_at_most() -> None:
    body = text("x" * 5000)
    length = len(pickled(body))
    assert ztensor.open(archive(body), limits=Limits(manifest_bytes=length)).attributes
    with pytest.raises(LimitError) as caught:
        ztensor.open(archive(body), limits=Limits(manifest_bytes=length - 1))
    assert caught.value.reason is Reason.LIMIT_MANIFEST
    reader = ztensor.open(archive(tensor(), others={"version": b"3" * 64}))
    assert reader.version == "3" * 64
    with pytest.raises(LimitError):
        ztensor.open(archive(tensor(), others={"version": b"3" * 65}))


@pytest.mark.parametrize("length", [1, 5, 40, 150])
def test_pickles_that_are_cut_are_damage_and_no_limit(length: int) -> None:
    data = legacy(mapping(note=text("x" * 100_000)), {})
    with pytest.raises(FormatError) as caught:
        ztensor.open(data[:-length])
    assert caught.value.reason is Reason.TRUNCATED


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
        with pytest.raises(LimitError) as caught:
            ztensor.open(data, limits=limits)
        assert caught.value.reason is Reason.LIMIT_COST


def test_each_storage_of_an_old_file_is_charged_once() -> None:
    spent = []
    for count in (1, 1000):
        ids = b"".join(storage(str(one % count), count=0) + b"0" for one in range(1000))
        source = MemorySource(legacy(ids + number(7), {str(one): (0, b"") for one in range(count)}))
        budget = Budget(DEFAULT_LIMITS, 0)
        project(source, budget)
        spent.append(Budget(DEFAULT_LIMITS, 0).bytes_left - budget.bytes_left)
    assert spent[1] - spent[0] > 300 * 999


class Far(MemorySource):
    """A source whose reads are dear."""

    prefers_long_reads = True


@pytest.mark.parametrize("kind", [MemorySource, Far])
def test_the_count_before_a_storage_is_that_of_the_pickle(kind: type[MemorySource]) -> None:
    """Over a network it is looked at where a tensor is asked for, not before."""
    body = mapping(a=tensor(), b=tensor(of=storage("1")))
    source = kind(legacy(body, {"0": (6, SIX), "1": (7, SIX)}))
    with pytest.raises(FormatError) as caught:
        project(source, Budget(DEFAULT_LIMITS, source.size)).manifest.objects["b"]
    assert caught.value.reason is Reason.SIZE_MISMATCH
    if kind is Far:
        objects = project(source, Budget(DEFAULT_LIMITS, source.size)).manifest.objects
        assert objects["a"].components["data"].length == len(SIX)
