from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.tracing import traced
from ztensor import stats
from ztensor.numpy import save, save_file

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = [
    *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "float4_e2m1fn",
]
SHARES = (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0)


def dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def sample(name: str, count: int) -> Array:
    values: Array = np.random.default_rng(7).normal(size=count) * 40
    kind = dtype(name)
    if kind.kind in "iu":
        values = np.clip(np.abs(values) if kind.kind == "u" else values, -100, 100)
    if kind.kind == "c":
        values = values * (1 + 2j)
    return values.astype(kind)


def as_floats(array: Array) -> Array:
    """Return the values, or magnitudes of complex numbers, as float64."""
    wide = np.abs(array) if array.dtype.kind == "c" else array
    return wide.astype(np.float64)


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("count", [999, 70_001], ids=["kept", "counted"])
@pytest.mark.parametrize("name", DTYPES)
def test_every_type_agrees_with_numpy(name: str, count: int, compression: bool) -> None:
    array = sample(name, count)
    found = stats(save({"w": array}, compression=compression), quantiles=SHARES, bins=20)["w"]
    values = as_floats(array)
    finite = values[np.isfinite(values)]
    assert (found.count, found.dtype) == (count, name)
    assert found.zeros == np.count_nonzero(values == 0)
    assert (found.nans, found.infs) == (np.isnan(values).sum(), np.isinf(values).sum())
    assert (found.min, found.max) == (finite.min(), finite.max())
    assert found.mean == pytest.approx(finite.mean(), rel=1e-12, abs=1e-12)
    assert found.std == pytest.approx(finite.std(), rel=1e-9)
    bound = max(found.quantile_error, 1e-12)
    exact = np.quantile(finite, SHARES)
    assert list(found.quantiles.values()) == pytest.approx(exact.tolist(), rel=bound, abs=1e-12)
    assert found.histogram is not None
    assert sum(found.histogram.counts) == finite.size
    counts, edges = np.histogram(finite, 20)
    if len(found.histogram.counts) == 20 and not found.quantile_error:
        assert found.histogram.edges == pytest.approx(edges.tolist())
        moved = np.abs(np.subtract(found.histogram.counts, counts)).sum()
        on_edges = np.isin(finite, edges).sum()  # rounding decides their bin
        assert moved <= 2 * on_edges


@pytest.mark.parametrize(
    ("name", "count", "error"),
    [
        ("bfloat16", 70_000, 0.0),
        ("float32", 65_536, 0.0),
        ("float32", 65_537, 2**-9),
        ("float64", 65_537, 2**-8),
        ("int32", 65_537, 0.0),  # small integers are bins of their own
    ],
)
def test_quantiles_say_how_exact_they_are(name: str, count: int, error: float) -> None:
    found = stats(save({"w": sample(name, count)}))["w"]
    assert found.quantile_error == error


def test_quantiles_keep_their_bound_over_many_magnitudes() -> None:
    values = np.exp(np.random.default_rng(1).normal(size=200_000) * 12).astype(np.float32)
    values[::3] *= -1
    found = stats(save({"w": values}), quantiles=SHARES)["w"]
    exact = np.quantile(values.astype(np.float64), SHARES)
    assert list(found.quantiles.values()) == pytest.approx(exact.tolist(), rel=2**-9)


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("count", [6, 80_000])
def test_nans_and_infinities_are_counted_and_left_out(name: str, count: int) -> None:
    array = np.full(count, 2.0, np.float32)
    array[:4] = np.nan, np.inf, np.nan, np.inf
    found = stats(save({"w": array.astype(dtype(name))}))["w"]
    assert (found.nans, found.infs, found.finite) == (2, 2, count - 4)
    assert (found.min, found.max, found.mean, found.std) == (2, 2, 2, 0)
    assert set(found.quantiles.values()) == {2.0}
    assert found.histogram == ztensor.insight.Histogram((2.0, 2.0), (count - 4,))


@pytest.mark.parametrize(
    "array", [np.zeros((0, 3)), np.full(5, np.nan), np.zeros(0, np.int8)], ids=["f", "nan", "i"]
)
def test_nothing_finite_gives_nothing(array: Array) -> None:
    found = stats(save({"w": array}))["w"]
    assert (found.count, found.nans) == (array.size, np.isnan(array).sum())
    assert (found.min, found.max, found.mean, found.std) == (None,) * 4
    assert (found.histogram, dict(found.quantiles)) == (None, {})


def test_numbers_at_the_ends_of_their_ranges() -> None:
    offset = 1e9 + np.random.default_rng(0).normal(size=300_000)
    found = stats(
        save(
            {
                "u": np.array([2**64 - 1, 0], np.uint64),
                "i": np.array([-(2**63), 5]),
                "f": np.array([1e308, -1e308, 1.5e308, 1.5e308]),
                "offset": offset,
                "vast": ztensor.Tensor.coo([1.0], [[5], [7]], (2**40, 2**35)),
                "f8": np.full((4, 4), 448).astype(ml_dtypes.float8_e4m3fn),
                "i8": np.full((4, 4), 127, np.int8),
            }
        )
    )
    assert (found["u"].max, found["i"].min) == (2**64 - 1, -(2**63))
    assert found["f"].mean == pytest.approx(7.5e307)
    assert found["offset"].std == pytest.approx(offset.std(), rel=1e-9)
    vast = found["vast"]
    assert (vast.count, vast.max, vast.quantiles[0.5]) == (2**75, 1.0, 0.0)
    assert (found["f8"].at_limit, found["i8"].at_limit) == (16, 0)


def test_a_sparse_object_counts_the_zeros_it_does_not_store() -> None:
    tensor = ztensor.Tensor.csr(np.array([4.0, -2.0]), [1, 3], [0, 1, 2], (2, 4))
    found = stats(save({"w": tensor}), quantiles=(0.0, 0.5, 1.0))["w"]
    dense = tensor.to_dense()
    assert (found.count, found.zeros, found.min, found.max) == (8, 6, -2, 4)
    assert found.mean == dense.mean()
    assert found.std == pytest.approx(dense.std())
    assert list(found.quantiles.values()) == [-2, 0, 4]


@pytest.mark.parametrize("rows", [64, 4096], ids=["whole", "in rows"])
def test_a_quantized_object_is_dequantized(rows: int) -> None:
    weight = np.random.default_rng(0).normal(size=(rows, 512)).astype(np.float32)
    tensor = ztensor.Tensor.quantize(weight, bits=4, group_size=64)
    found = stats(save({"w": tensor}))["w"]
    values = tensor.dequantize().astype(np.float64)
    assert (found.of, found.dtype, found.count) == ("dequantized values", "float32", rows * 512)
    assert found.mean == pytest.approx(values.mean(), rel=1e-9, abs=1e-12)
    assert (found.min, found.max) == (values.min(), values.max())
    data = bytearray(save({"w": tensor}))
    with ztensor.open(bytes(data)) as reader:
        data[reader.metadata("w").components["packed_weight"].offset + 100] ^= 1
    with pytest.raises(ztensor.DigestMismatchError):
        stats(bytes(data))


def test_an_unknown_layout_has_a_note(tmp_path: Path) -> None:
    path = tmp_path / "odd.zt"
    with ztensor.Writer(path) as writer:
        writer.write("w", ztensor.Tensor({"x": np.zeros(3)}, shape=(3,), format="strange"))
        writer.write("v", ztensor.Tensor(np.ones(3)))
    found = stats(path)
    assert found["w"].note == "the layout 'strange' is unknown"
    assert (found["w"].count, found["v"].count) == (0, 3)


def test_the_total_is_that_of_all_values() -> None:
    one, two = np.arange(10.0), np.array([5.0, np.nan, 100.0])
    total = ztensor.insight.TensorStats.total(
        stats(save({"a": one, "b": two, "c": np.zeros(0)})).values()
    )
    values = np.concatenate((one, two[[0, 2]]))
    assert (total.count, total.zeros, total.nans, total.min, total.max) == (13, 1, 1, 0, 100)
    assert total.mean == pytest.approx(values.mean())
    assert total.std == pytest.approx(values.std())


def test_logarithmic_bins_are_of_magnitudes() -> None:
    values = np.array([0.0, 1.0, -1.0, 10.0, 100.0, -1000.0])
    histogram = stats(save({"w": values}), bins=3, scale="log")["w"].histogram
    assert histogram is not None
    assert histogram.edges == pytest.approx((1, 10, 100, 1000))
    assert histogram.counts == (2, 1, 2)


def test_names_readers_and_sets(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    save_file({"a": np.ones(3), "b": np.zeros(2), "c": np.ones(1)}, path)
    assert list(stats(path, ["c", "a"])) == ["c", "a"]
    assert list(stats(path, "b")) == ["b"]
    with ztensor.open(path) as reader:
        assert stats(reader, threads=3) == stats(path, threads=1)
        assert reader["a"].sum() == 3  # it is still open
    ztensor.split(path, max_shard_size=20)
    assert stats(str(path) + ".index.json") == stats(path)


@pytest.mark.parametrize(
    "options",
    [{"quantiles": [1.5]}, {"quantiles": ["x"]}, {"bins": -1}, {"bins": True}, {"scale": "cubic"}],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(ztensor.errors.ArgumentValueError):
        stats(save({"w": np.ones(3)}), **options)


def test_errors_of_the_file() -> None:
    data = bytearray(save({"w": np.ones(1000)}))
    with pytest.raises(ztensor.ObjectNotFoundError, match="'v'"):
        stats(bytes(data), "v")
    data[100] ^= 1
    with pytest.raises(ztensor.DigestMismatchError, match="'w'"):
        stats(bytes(data))


def test_progress_ends_at_its_total() -> None:
    seen: list[tuple[int, int]] = []
    arrays = {"a": np.zeros(9), "b": np.ones(70_000, np.float32)}
    stats(save(arrays), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (72 + 280_000, 72 + 280_000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_object(tmp_path: Path) -> None:
    path = tmp_path / "large.zt"
    save_file({"w": np.zeros(24 << 20, np.float32)}, path)
    stats(save({"w": np.ones(100_000, np.float32)}))  # libraries and caches
    with traced() as memory:
        stats(path)
        peak = memory()[1]
    assert peak < 60e6 < 96e6


def test_the_middle_is_of_the_values_between_two_hundredths() -> None:
    values = np.append(np.random.default_rng(0).normal(size=10_000), [-500.0, 800.0])
    found = stats(save({"w": values, "plain": values[:-2]}), bins=20)
    assert found["plain"].middle is None
    middle = found["w"].middle
    assert middle is not None
    low, high = np.quantile(values, (0.01, 0.99))
    assert middle.edges == pytest.approx(np.linspace(low, high, 21), rel=1e-3)
    counts, _ = np.histogram(values, np.array(middle.edges))
    assert abs(np.array(middle.counts) - counts).max() <= 3
    assert stats(save({"w": values}), scale="log")["w"].middle is None
