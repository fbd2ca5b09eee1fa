"""`read_slices`: the same as one slice after the other, with the bytes asked for together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.naming import shown
from tests.tracing import traced
from tests.unit.io.reading.counted import far
from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    DigestMismatchError,
    ObjectNotFoundError,
)
from ztensor.numpy import save, save_file

RNG = np.random.default_rng(0)
W = RNG.integers(0, 100, (40, 6, 5)).astype(np.int32)
DENSE: dict[str, Any] = {
    "w": W,
    "bf16": W.astype(ml_dtypes.bfloat16),
    "bool": W > 50,
    "fp4": (W % 4).astype(ml_dtypes.float4_e2m1fn),
    "big": np.arange(400 * 100, dtype=np.float64).reshape(400, 100),
    "none": np.zeros((0, 6, 5), np.float32),
    "scalar": np.float32(7),
}
OTHERS: dict[str, Any] = {
    "csr": Tensor.csr(values=[1.0, 2.0], indices=[0, 2], indptr=[0, 1, 1, 2], shape=(3, 4)),
    "coo": Tensor.coo(coords=[[0, 2], [1, 3]], values=[1.0, 2.0], shape=(3, 4)),
    "quantized": Tensor(
        {
            "packed_weight": RNG.integers(0, 2**31, 20).astype(np.int32),
            "scales": RNG.random(20).astype(np.float16),
            "zeros": RNG.integers(0, 16, 20).astype(np.float16),
        },
        shape=(40, 4),
        format="quantized_group",
        attributes={"bits": 4, "packing": "8_per_i32", "group_size": 8},
    ),
}
KEYS: list[Any] = [
    0,
    -1,
    np.int64(3),
    slice(2, 9),
    slice(None, None, -3),
    ...,
    (),
    None,
    (slice(None), 2),
    (..., -1),
    (3, 2, 1),
    (3, ..., None),
    [3, 1, 1],
    np.array([[5, 2], [0, -1]]),
    ([0, 5], [3, 1]),
    W[:, 0, 0] > 50,
    W > 90,
    True,
    slice(0, 0),
    [],
]


@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("verify", [None, True, False])
def test_parts_are_those_of_the_arrays(
    verify: bool | None, compression: bool, is_far: bool
) -> None:
    data = save(DENSE, compression=compression)
    reader = far(data, verify=verify)[0] if is_far else ztensor.open(data, verify=verify)
    for key in KEYS:
        expected = {}
        for name, value in DENSE.items():
            array = np.asarray(value)
            try:
                expected[name] = array[key]
            except IndexError:
                with pytest.raises(ArgumentValueError) as caught:
                    reader.read_slices({name: key})
                assert caught.value.object_name == name
        found = reader.read_slices([(name, key) for name in expected])
        for (name, part), value in zip(expected.items(), found, strict=True):
            assert (value.dtype, value.shape) == (part.dtype, part.shape), (name, key)
            assert value.tobytes() == part.tobytes(), (name, key)


WRONG: list[Any] = [
    *(40, -41, [39, 40], (0, 0, 0, 0), (slice(None), 6), 1 << 70, [1 << 62], [-41, 3]),
    *("x", 1.5, [0.5], [[1], []], object(), (..., ...), slice("a", "b"), slice(0, 9, 0)),
    *([True], (2, np.ones(5, bool)), (None, np.ones(3, bool)), np.ones((2, 3), bool)),
]


@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("key", WRONG, ids=shown)
def test_wrong_indices_are_errors_of_the_caller(key: Any, is_far: bool) -> None:
    reader = far(save({"w": W}))[0] if is_far else ztensor.open(save({"w": W}))
    for read in (lambda: reader.read_slices({"w": key}), lambda: reader.get_slice("w")[key]):
        with pytest.raises((ArgumentTypeError, ArgumentValueError)) as caught:
            read()
        assert caught.value.object_name == "w"


ROWS: list[tuple[Any, list[int]]] = [
    (2, [2]), (-3, [0]), (np.int8(1), [1]), (slice(1, 3), [1, 2]), (slice(None, None, -2), [2, 0]),
    (slice(2, 2), []), (..., [0, 1, 2]), ((), [0, 1, 2]), ((slice(1, 2), slice(None)), [1]),
    ((slice(1, 2), slice(-9, 9)), [1]), ((..., slice(1, 2), slice(None)), [1]),
    (slice(0, 1 << 70, 1 << 69), [0]), ([2, 2, -3], [2, 2, 0]), ([], []),
    ([True, False, True], [0, 2]),
]  # fmt: skip
NO_ROWS: list[Any] = [
    *((0, 1), (slice(None), slice(1, None)), (..., 1), (None, 1), True, [[0, 1]], 3, (0, 0, 0)),
    *(np.ones((3, 4), bool), ([0, 1], [0, 1])),
]


def test_only_whole_rows_of_sparse_objects_are_selected() -> None:
    reader = ztensor.open(save(OTHERS))
    expected = OTHERS["csr"].to_dense()
    for key, rows in ROWS:
        part: Any = reader.get_slice("csr")[key]
        assert np.array_equal(part.to_dense(), expected[rows]), key
    for key in NO_ROWS:
        with pytest.raises(ArgumentValueError):
            reader.get_slice("csr")[key]


def test_a_sparse_scalar_has_no_rows_but_takes_an_ellipsis() -> None:
    part = ztensor.open(save({"w": Tensor.coo([5.0], [], ())})).get_slice("w")
    found: Any = part[...]
    assert found.to_dense() == 5
    with pytest.raises(ArgumentValueError):
        part[0]


def test_rows_of_an_axis_longer_than_any_array() -> None:
    tensor = Tensor.coo([1.0], [[(1 << 64) - 2], [7]], ((1 << 64) - 1, 1 << 63))
    part = ztensor.open(save({"w": tensor})).get_slice("w")
    key: Any
    for key in (slice(-1, None), -1):
        found: Any = part[key]
        assert (found.shape[0], found.components["values"].tolist()) == (1, [1.0])
    for key in ([0], [-1], np.array([1 << 63], np.uint64)):
        with pytest.raises(ArgumentValueError):
            part[key]


@pytest.mark.wing
@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("compression", [False, True])
def test_rows_of_other_layouts(compression: bool, is_far: bool) -> None:
    data = save(OTHERS, compression=compression)
    reader = far(data)[0] if is_far else ztensor.open(data)
    backwards = slice(None, None, -1), slice(3, None, -2)
    for key in (0, slice(0, 2), [2, 0], [0, 2, 2, 0, 2], *backwards):
        found = reader.read_slices(dict.fromkeys(("csr", "coo"), key))
        rows = [key] if isinstance(key, int) else key
        for name, part in found.items():
            assert np.array_equal(part.to_dense(), OTHERS[name].to_dense()[rows])
    part = reader.read_slices({"quantized": slice(8, 24)})["quantized"]
    assert np.array_equal(part.dequantize(), OTHERS["quantized"].dequantize()[8:24])


def test_pairs_may_name_one_tensor_often() -> None:
    reader, source = far(save({"w": W, "big": DENSE["big"]}))
    pairs: list[tuple[str, Any]] = [
        ("w", 3),
        ("big", (slice(None), 4)),
        ("w", slice(1, 3)),
        ("w", ...),
        ("w", 3),
    ]
    found = reader.read_slices(iter(pairs))
    assert len(source.asked) == 1
    for (name, key), part in zip(pairs, found, strict=True):
        assert np.array_equal(part, DENSE[name][key])
    found[0][...] = 0  # every part has memory of its own
    assert np.array_equal(found[4], W[3])
    assert reader.read_slices({}) == {}
    assert reader.read_slices([]) == []


def test_one_call_for_frames_that_are_listed() -> None:
    tensors = {f"t{n}": RNG.random((500, 700)).astype(np.float32) for n in range(4)}
    keys: list[Any] = [7, slice(90, 110), (slice(None, None, 50), 3), [490, 2, 3]]
    reader, source = far(save(tensors, compression=True, chunk_rows=4))
    found = reader.read_slices(list(zip(tensors, keys, strict=True)))
    for name, key, part in zip(tensors, keys, found, strict=True):
        assert np.array_equal(part, tensors[name][key])
    assert len(source.asked) == 1


def test_memory_that_waits_is_bounded() -> None:
    tensors = {f"t{n}": np.full((500, 4000), n, np.float32) for n in range(12)}  # 92 MiB
    reader, source = far(save(tensors))
    with traced() as memory:
        found = reader.read_slices(dict.fromkeys(tensors, (slice(None), slice(3))))
        _, peak = memory()
    assert all(np.array_equal(part, tensors[name][:, :3]) for name, part in found.items())
    assert len(source.asked) == 2
    assert peak < 80 << 20


@pytest.mark.parametrize("compression", [False, True])
def test_neighbouring_rows_are_read_in_place(compression: bool) -> None:
    value = np.zeros((8 << 20, 4), np.uint8)
    reader, _ = far(save({"w": value}, compression=compression))
    with traced() as memory:
        (part,) = reader.read_slices([("w", slice(1, None))])
        _, peak = memory()
    assert part.shape == (len(value) - 1, 4)
    assert peak < value.nbytes + (8 << 20)


@pytest.mark.parametrize("verify", [None, True, False])
def test_a_whole_is_held_to_its_digest(verify: bool | None) -> None:
    data = bytearray(save({"a": W, "b": W + 1}))
    at = bytes(data).index((W + 1).tobytes())
    data[at + 7] ^= 1
    reader, _ = far(bytes(data), verify=verify)
    if verify is False:
        assert not np.array_equal(reader.read_slices({"a": ..., "b": ...})["b"], W + 1)
        return
    with pytest.raises(DigestMismatchError) as caught:
        reader.read_slices({"a": ..., "b": ...})
    assert (caught.value.object_name, caught.value.component) == ("b", "data")
    if verify is None:
        assert np.array_equal(reader.read_slices({"b": 9})["b"], W[9] + 1)


def test_what_cannot_be_asked_for() -> None:
    data = save({"w": W})
    for reader in (ztensor.open(data), far(data)[0]):
        wrongs: list[Any] = ["w", b"w", 3, None, ["w"], [("w",)], [("w", 1, 2)], [["w", 1]]]
        for wrong in wrongs:
            with pytest.raises(ArgumentTypeError, match="mapping from names to indices"):
                reader.read_slices(wrong)
        with pytest.raises(ObjectNotFoundError, match="'x'"):
            reader.read_slices({"w": 0, "x": 0})
        with pytest.raises(ArgumentTypeError):
            reader.read_slices([(3, 0)])  # type: ignore[list-item]
        with pytest.raises(ArgumentValueError):
            reader.read_slices({"w": 1000})
        reader.close()
        for wanted in ({"w": 0}, {}):
            with pytest.raises(ClosedError):
                reader.read_slices(wanted)


def test_a_local_file_gives_views_and_sets_are_read(tmp_path: Path) -> None:
    tensors = {f"t{n}": np.full((100, 100), n, np.float32) for n in range(6)}
    save_file(tensors, tmp_path / "m.zt")
    save_file(tensors, tmp_path / "set.zt", max_shard_size=90_000)
    with ztensor.open(tmp_path / "m.zt") as reader:
        part = reader.read_slices({"t3": slice(2, 4)})["t3"]
        assert not part.flags.owndata
    with ztensor.open(tmp_path / "set.zt.index.json") as reader:
        found = reader.read_slices(dict.fromkeys(tensors, -1))
        assert all(np.array_equal(found[name], tensors[name][-1]) for name in tensors)
