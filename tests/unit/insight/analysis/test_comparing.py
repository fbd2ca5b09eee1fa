from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor import diff
from ztensor.numpy import save, save_file

Array = np.ndarray[Any, np.dtype[Any]]


def compare(a: Any, b: Any, **options: Any) -> ztensor.insight.TensorDiff:
    return diff(save({"w": a}), save({"w": b}), **options).tensors[0]


def values(a: Any, b: Any, **options: Any) -> ztensor.insight.ValueDiff:
    found = compare(a, b, **options).values
    assert found is not None
    return found


def test_equal_files_are_not_read() -> None:
    data = save({"a": np.ones(1000), "b": np.arange(5)})
    damaged = bytearray(data)
    with ztensor.open(data) as reader:
        damaged[reader.location("a").offset] ^= 1
    report = diff(data, bytes(damaged))
    assert report.ok
    assert [found.compared for found in report.tensors] == ["digest", "digest"]
    with pytest.raises(ztensor.DigestMismatchError):
        diff(data, bytes(damaged), digests=False)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {"checksum": None}),
        ({}, {"checksum": "sha256"}),
        ({}, {"compression": True}),
        ({"version": "0.1.0"}, {"version": "1.1.0"}),
        ({"checksum": None}, {"checksum": None}),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "array",
    [np.arange(300_000) // 9, np.array([True, False]), np.array([np.nan, 1.0]), np.zeros((0, 4))],
    ids=["large", "bool", "nan", "empty"],
)
def test_equal_bytes_are_not_compared_as_numbers(
    array: Array, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    report = diff(save({"w": array}, **ours), save({"w": array}, **theirs))
    assert report.ok
    is_stored_alike = theirs == {"compression": True} and array.size < 9  # it did not shrink
    assert report.tensors[0].compared == ("digest" if is_stored_alike else "bytes")


@pytest.mark.parametrize(
    "name", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "complex64", "int16"]
)
def test_measures_agree_with_numpy(name: str) -> None:
    rng = np.random.default_rng(3)
    kind = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    one: Array = rng.normal(size=(2, 40_000)) * 20
    two: Array = rng.normal(size=(2, 40_000)) * 20
    if kind.kind == "c":
        one, two = one + 1j, two - 2j
    one, two = one.astype(kind), two.astype(kind)
    found = values(one, two)
    wide = np.complex128 if kind.kind == "c" else np.float64
    x, y = one.astype(wide).reshape(-1), two.astype(wide).reshape(-1)
    apart, size = np.abs(x - y), np.maximum(np.abs(x), np.abs(y))
    moved = x != y
    assert found.changed == moved.sum()
    assert found.max_abs == pytest.approx(apart.max())
    assert found.max_rel == pytest.approx((apart[moved] / size[moved]).max())
    expected = np.vdot(x, y).real / np.linalg.norm(x) / np.linalg.norm(y)
    assert found.cosine == pytest.approx(expected)
    assert found.first == tuple(np.argwhere(moved.reshape(2, -1))[0].tolist())


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (np.array([2**60], np.int64), np.array([2**60 + 1], np.int64)),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64)),
        (np.array([-128], np.int8), np.array([-127], np.int8)),
        (np.array([-128], np.int8), np.array([127], np.int8)),
        (np.array([0], np.int8), np.array([1], np.int8)),
        (np.array([True]), np.array([False])),
    ],
    ids=["i64", "u64", "i8", "widest i8", "zero", "bool"],
)
def test_integers_are_exact(one: Array, two: Array) -> None:
    found = values(one, two)
    assert (found.changed, found.max_abs) == (1, abs(int(one[0]) - int(two[0])))
    assert (found.cosine is None) == (not (one[0] and two[0]))  # zeros have no direction


@pytest.mark.parametrize(
    ("one", "two", "options", "beyond"),
    [
        (1.0, 1.1, {"atol": 0.11}, 0),
        (1.0, 1.1, {"atol": 0.09}, 1),
        (100.0, 101.0, {"rtol": 0.01}, 0),
        (101.0, 100.0, {"rtol": 0.01}, 0),  # the same both ways round
        (100.0, 101.0, {"rtol": 0.009}, 1),
        (0.0, 1e-9, {"rtol": 1.0}, 0),
        (np.inf, np.inf, {}, 0),
        (np.inf, -np.inf, {"rtol": 1.0}, 1),
        (np.inf, 1.0, {"rtol": 1.0, "atol": 1e9}, 1),
        (np.nan, np.nan, {}, 0),
        (np.nan, np.nan, {"nan_differs": True}, 1),
        (np.nan, 1.0, {"atol": np.inf}, 1),
        (0.0, -0.0, {}, 0),
    ],
)
def test_the_tolerance(one: float, two: float, options: dict[str, Any], beyond: int) -> None:
    found = compare(np.array([one, 5.0]), np.array([two, 5.0]), **options)
    assert ("values" in found.differences) == bool(beyond)
    assert (found.values.beyond if found.values else 0) == beyond
    assert found.is_within == bool(found.values and found.values.changed and not beyond)


def test_infinite_and_missing_numbers_do_not_hide_others() -> None:
    found = values(np.array([np.nan, np.inf, 3.0, 4.0]), np.array([1.0, 2.0, 3.5, 4.0]))
    assert (found.changed, found.max_abs, found.first) == (3, math.inf, (0,))
    assert found.max_rel == pytest.approx(0.5 / 3.5)
    assert found.cosine == pytest.approx((10.5 + 16) / 5 / math.hypot(3.5, 4))


def test_differences_of_manifests() -> None:
    tensor = ztensor.Tensor
    one = {
        "same": np.ones(2),
        "shape": np.ones(2),
        "type": np.ones(2, np.float32),
        "attributes": tensor(np.ones(2), attributes={"k": 1}),
        "layout": tensor.csr([1.0], [1], [0, 1], (1, 2)),
        "gone": np.ones(1),
    }
    two = {
        "same": np.ones(2),
        "shape": np.ones((1, 2)),
        "type": np.ones(2, np.float16),
        "attributes": tensor(np.ones(2), attributes={"k": True}),
        "layout": np.array([[0.0, 1.0]]),
        "new": np.ones(1),
    }
    report = diff(save(one), save(two))
    found = {tensor.name: tensor.differences for tensor in report.tensors}
    assert found == {
        "same": (),
        "shape": ("shape",),
        "type": ("type",),
        "attributes": ("attributes",),
        "layout": ("layout",),
        "gone": ("only in a",),
        "new": ("only in b",),
    }
    assert not report.ok
    only = diff(save(one), save(two), values_only=True).differing
    assert {tensor.name for tensor in only} == {"shape", "gone", "new"}


def test_attributes_of_the_files() -> None:
    nan = float("nan")
    one = save({"w": np.ones(1)}, {"a": 1, "b": nan, "c": [1, {"x": nan}], "d": "old"})
    two = save({"w": np.ones(1)}, {"b": nan, "c": [1, {"x": nan}], "d": "new", "e": 2})
    report = diff(one, two)
    shown = {key: tuple(map(str, pair)) for key, pair in report.attributes.items()}
    assert shown == {"a": ("1", "MISSING"), "d": ("old", "new"), "e": ("MISSING", "2")}
    assert not report.ok
    assert diff(one, two, values_only=True).ok
    assert diff(one, two, "w").ok


SPARSE = ztensor.Tensor.csr([1.0, 2.0], [0, 2], [0, 1, 2], (2, 3))


@pytest.mark.parametrize(
    ("other", "differences"),
    [
        (SPARSE.to_dense(), ()),
        (ztensor.Tensor.coo([2.0, 1.0], [[1, 0], [2, 0]], (2, 3)), ()),
        (ztensor.Tensor.csr([1.0, 0.0, 2.0], [0, 1, 2], [0, 2, 3], (2, 3)), ()),
        (ztensor.Tensor.csr([1.0, 2.0], [0, 1], [0, 1, 2], (2, 3)), ("values",)),
        (np.zeros((2, 3)), ("values",)),
    ],
    ids=["dense", "coo", "stored zero", "moved", "zeros"],
)
def test_sparse_objects_are_compared_as_dense_ones(
    other: Any, differences: tuple[str, ...]
) -> None:
    assert compare(SPARSE, other, values_only=True).differences == differences


def test_large_sparse_objects_are_compared_by_what_they_store() -> None:
    def vast(values: list[float], row: int) -> ztensor.Tensor:
        return ztensor.Tensor.coo(values, [[5, row], [7, 7]], (2**40, 2**40))

    found = compare(vast([1.0, 2.0], 6), vast([1.0, 2.5], 6))
    assert found.values is not None
    values = found.values
    assert values == ztensor.insight.ValueDiff(
        2, 1, 1, 0.5, 0.2, values.cosine, None, values.relative
    )
    assert values.relative == pytest.approx(0.05**0.5)
    moved = compare(vast([1.0, 2.0], 6), vast([1.0, 2.0], 8))
    assert moved.differences == ("values",)
    assert moved.note is not None
    assert "too large" in moved.note


def test_quantized_objects_are_dequantized() -> None:
    weight = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    one = ztensor.Tensor.quantize(weight, bits=8, group_size=32)
    two = ztensor.Tensor.quantize(weight, bits=4, group_size=32)
    found = compare(one, two, values_only=True)
    assert found.values is not None
    assert found.values.max_abs == pytest.approx(
        np.abs(one.dequantize() - two.dequantize().astype(np.float64)).max(), rel=1e-6
    )
    assert compare(one, weight, values_only=True, atol=0.1).is_within
    assert compare(one, one).compared == "digest"


def test_an_unknown_layout_is_equal_by_its_bytes_or_not_compared() -> None:
    def odd(value: float) -> ztensor.Tensor:
        return ztensor.Tensor({"x": np.full(3, value)}, shape=(3,), format="strange")

    assert compare(odd(1), odd(1), digests=False).compared == "bytes"
    found = compare(odd(1), odd(2))
    assert found.differences == ("values",)
    assert found.note == "values were not compared: the layout 'strange' is unknown"


def test_names_are_mapped() -> None:
    one = save({"model.a.weight": np.ones(1), "model.b.weight": np.ones(2), "c": np.ones(3)})
    two = save({"a.w": np.ones(1), "b.w": np.zeros(2), "d": np.ones(3)})
    rename = {r"^model\.": "", r"^(.)\.weight$": r"\1.w"}
    report = diff(one, two, rename=rename)
    pairs = {(found.name, found.other_name, found.differences) for found in report.tensors}
    assert pairs == {
        ("model.a.weight", "a.w", ()),
        ("model.b.weight", "b.w", ("values",)),
        ("c", "c", ("only in a",)),
        ("d", "d", ("only in b",)),
    }
    some = diff(one, two, ["b.w", "d"], rename=rename)
    assert [found.name for found in some.tensors] == ["model.b.weight", "d"]


@pytest.mark.parametrize(
    "options",
    [
        {"atol": -1},
        {"rtol": math.nan},
        {"atol": "1"},
        {"rename": {"(": ""}},
        {"rename": {"a": r"\9"}},
        {"rename": {"a|b": "x"}},
        {"threads": 0},
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any]) -> None:
    data = save({"a": np.ones(1), "b": np.ones(1)})
    with pytest.raises(ztensor.errors.ArgumentValueError):
        diff(data, data, **options)
    with pytest.raises(ztensor.ObjectNotFoundError, match="'c'"):
        diff(data, data, "c")


def test_readers_sets_and_progress(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    arrays = {name: np.full(1000, number) for number, name in enumerate("abc")}
    save_file(arrays, path)
    ztensor.split(path, max_shard_size=9000)
    seen: list[tuple[int, int]] = []
    with ztensor.open(str(path) + ".index.json") as parts:
        report = diff(
            parts, path, digests=False, progress=lambda done, total: seen.append((done, total))
        )
        assert parts["a"][0] == 0  # it is still open
    assert isinstance(report, ztensor.insight.DiffReport)
    assert report.ok
    assert seen[-1] == (24_000, 24_000)
