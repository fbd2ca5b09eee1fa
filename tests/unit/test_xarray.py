"""Files as datasets of xarray: lazy, of every layout, and back."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.counting import CountedFile
from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    FormatError,
    NotRepresentableError,
    Reason,
    SourceNotFoundError,
)
from ztensor.numpy import save, save_file

xarray: Any = pytest.importorskip("xarray", reason="pip install xarray")
backend: Any = pytest.importorskip("ztensor.xarray", exc_type=ImportError)

ROWS = np.arange(60 * 40, dtype=np.float32).reshape(60, 40)
CUBE = ROWS.reshape(6, 10, 40)
DENSE: dict[str, Any] = {
    "cube": CUBE,
    "half": ROWS[0].astype(ml_dtypes.bfloat16),
    "eight": ROWS[0].astype(ml_dtypes.float8_e4m3fn),
    "flag": ROWS[0] > 3,
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 4)),
    "a/b": ROWS[:3],
}
DIMENSIONS = "_ARRAY_DIMENSIONS"


def opened(source: Any, **options: Any) -> Any:
    return xarray.open_dataset(source, engine=backend.Backend, **options)


def named(values: Any, dims: object) -> Tensor:
    return Tensor(values, attributes={DIMENSIONS: dims})


@pytest.mark.parametrize("compression", [False, True, "planes"])
def test_dense_objects_are_variables(tmp_path: Path, compression: bool | str) -> None:
    save_file(DENSE, tmp_path / "a.zt", metadata={"title": "t"}, compression=compression)
    with opened(tmp_path / "a.zt") as dataset:
        assert list(dataset.data_vars) == sorted(DENSE)
        assert dataset.attrs == {"title": "t"}
        assert dataset["cube"].dims == ("cube_dim_0", "cube_dim_1", "cube_dim_2")
        for name, expected in DENSE.items():
            assert dataset[name].dtype == expected.dtype
            np.testing.assert_array_equal(dataset[name].values, expected)


INDICES: list[Any] = [
    (-1,),
    (slice(5, 1, -2), 3),
    (2, slice(None), [1, -1, 5]),
    (2, [7, 4], -3),
    ([0], 3, 3),
    ([3, 0], [1, 1, 2], slice(0, 40, 7)),
    ([5, 0], [9, 2], [39, 0]),
]


@pytest.mark.parametrize("key", INDICES, ids=str)
def test_indices_are_those_of_xarray(tmp_path: Path, key: tuple[Any, ...]) -> None:
    save_file({"w": CUBE}, tmp_path / "a.zt")
    in_memory = xarray.DataArray(CUBE, dims=["w_dim_0", "w_dim_1", "w_dim_2"])
    with opened(tmp_path / "a.zt", cache=False) as dataset:
        np.testing.assert_array_equal(dataset["w"][key].values, in_memory[key].values)
        points = {
            f"w_dim_{axis}": xarray.DataArray(each, dims="point")
            if isinstance(each, list)
            else each
            for axis, each in enumerate(key)
        }
        if len({len(each) for each in key if isinstance(each, list)}) <= 1:
            expected = in_memory.isel(points)
            np.testing.assert_array_equal(dataset["w"].isel(points).values, expected.values)


def test_opening_and_rows_read_no_more_than_they_need() -> None:
    file = CountedFile(save({"w": np.zeros((1000, 1000)), "v": np.ones((1000, 1000))}))
    dataset = opened(file)
    dataset["w"][5].values  # noqa: B018
    assert file.nbytes < 200_000
    assert float(dataset["v"][-1, -1]) == 1


@pytest.mark.parametrize("compression", [False, True])
def test_a_flipped_bit_is_found(tmp_path: Path, compression: bool) -> None:
    stored = bytearray(save({"w": ROWS}, compression=compression))
    with ztensor.open(bytes(stored)) as reader:
        stored[reader.location("w").offset + 200] ^= 1
    (tmp_path / "a.zt").write_bytes(stored)
    with opened(tmp_path / "a.zt") as dataset, pytest.raises(FormatError):
        dataset.load()
    with opened(tmp_path / "a.zt", verify=True) as dataset, pytest.raises(FormatError):
        dataset["w"][-1].values  # noqa: B018


def test_names_of_axes_come_from_the_attribute(tmp_path: Path) -> None:
    tensors = {
        "loss": named(ROWS, ["step", "rank"]),
        "step": named(np.arange(60) * 10, ["step"]),
        "mean": named(ROWS.mean(axis=1), ["step"]),
    }
    save_file(tensors, tmp_path / "a.zt")
    with opened(tmp_path / "a.zt") as dataset:
        assert dict(dataset.sizes) == {"step": 60, "rank": 40}
        assert DIMENSIONS not in dataset["loss"].attrs
        np.testing.assert_array_equal(dataset["loss"].sel(step=20).values, ROWS[2])


@pytest.mark.parametrize(
    "tensors",
    [
        {"w": named(ROWS, ["x"])},
        {"w": named(ROWS, "xy")},
        {"w": named(ROWS, [{"a": 1}, 2])},
        {"w": named(ROWS, ["x", "y"]), "v": named(ROWS.T, ["x", "y"])},
        {"w": named(ROWS, ["s", "y"]), "s": np.array(1.0)},
        {"w": Tensor(ROWS, attributes={"coordinates": 5})},
        {"w": Tensor(ROWS, attributes={"_FillValue": {"a": 1}})},
        {"w": Tensor(ROWS, attributes={"scale_factor": ["a"]})},
        {"w": Tensor(ROWS, attributes={"add_offset": {"a": 1}})},
        {"w": Tensor(ROWS, attributes={"units": "days since never"})},
    ],
)
def test_attributes_that_do_not_fit_are_errors(tmp_path: Path, tensors: dict[str, Any]) -> None:
    save_file(tensors, tmp_path / "a.zt")
    with pytest.raises(FormatError) as caught:
        opened(tmp_path / "a.zt")
    assert caught.value.reason is Reason.FIELD_VALUE
    with opened(tmp_path / "a.zt", drop_variables="w", decode_cf=False) as dataset:
        assert "w" not in dataset


@pytest.mark.parametrize("off", [False, {"w": False}])
def test_attributes_that_are_not_decoded_may_have_any_value(tmp_path: Path, off: object) -> None:
    attributes = {"scale_factor": "x", "add_offset": None}
    save_file({"w": Tensor(ROWS, attributes=attributes)}, tmp_path / "a.zt")
    with opened(tmp_path / "a.zt", mask_and_scale=off) as dataset:
        np.testing.assert_array_equal(dataset["w"].values, ROWS)


def test_other_layouts_are_left_out_or_dequantized(tmp_path: Path) -> None:
    quantized = Tensor.quantize(ROWS, bits=4, group_size=8)
    sparse = Tensor.csr([1.0], [0], [0, 1], (1, 3))
    save_file({"q": quantized, "s": sparse, "w": ROWS}, tmp_path / "a.zt")
    with pytest.warns(UserWarning, match="2 objects") as warned:
        assert list(opened(tmp_path / "a.zt")) == ["w"]
    assert len(warned) == 1
    assert warned[0].filename == __file__
    opened(tmp_path / "a.zt", drop_variables=["q", "s"]).close()
    with opened(tmp_path / "a.zt", drop_variables="s", dequantize=True) as dataset:
        assert dataset["q"].dtype == np.float32
        np.testing.assert_array_equal(dataset["q"][3:5, 2].values, quantized.dequantize()[3:5, 2])


@pytest.mark.wing
@pytest.mark.parametrize("name", ["a.npz", "a.zt", "a.h5"])
def test_other_formats_and_sources(tmp_path: Path, name: str) -> None:
    if name == "a.h5":
        pytest.importorskip("h5py")
    save_file({"w": ROWS}, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    for source in (tmp_path / name, str(tmp_path / name), data, (tmp_path / name).open("rb")):
        with opened(source) as dataset:
            np.testing.assert_array_equal(dataset["w"].values, ROWS)
        getattr(source, "close", bool)()


def test_dask_pickles_and_awaits(tmp_path: Path) -> None:
    pytest.importorskip("dask.array")
    save_file({"w": ROWS}, tmp_path / "a.zt")
    with opened(tmp_path / "a.zt", chunks={"w_dim_0": 7}) as dataset:
        assert len(dataset["w"].chunks[0]) == 9
        assert float(dataset["w"].max().compute(scheduler="threads")) == ROWS.max()
        again = pickle.loads(pickle.dumps(dataset))
        np.testing.assert_array_equal(again["w"].compute().values, ROWS)

    if hasattr(xarray.Dataset, "load_async"):
        with opened(tmp_path / "a.zt") as dataset:
            loaded = asyncio.run(dataset.load_async())
        np.testing.assert_array_equal(loaded["w"].values, ROWS)


def test_wrong_arguments_and_closing(tmp_path: Path) -> None:
    save_file({"w": ROWS}, tmp_path / "a.zt")
    with pytest.raises(SourceNotFoundError):
        opened(tmp_path / "none.zt")
    with pytest.raises(ArgumentTypeError):
        opened(tmp_path / "a.zt", group="/")
    with pytest.raises(ArgumentTypeError):
        opened(3)
    dataset = opened(tmp_path / "a.zt")
    dataset.close()
    with pytest.raises(ClosedError):
        dataset["w"].values  # noqa: B018


def test_a_dataset_comes_back(tmp_path: Path) -> None:
    days = np.array(["2020-01-01", "2020-01-02", "2020-02-01"], "datetime64[ns]")
    dataset = xarray.Dataset(
        {
            "t": (("time", "x"), np.arange(12.0).reshape(3, 4), {"units": "K"}),
            "flag": ("x", np.array([True, False, True, True])),
            "one": ((), np.int64(3)),
        },
        coords={"time": days, "x": [10, 20, 30, 40], "label": ("x", np.arange(4.0))},
        attrs={"title": "t", "levels": np.arange(3)},
    )
    backend.save_dataset(dataset, tmp_path / "a.zt", True, version="2.1", checksum="sha256")
    with opened(tmp_path / "a.zt") as again:
        xarray.testing.assert_equal(again, dataset)
        assert again["t"].attrs == {"units": "K"}
        assert again.attrs == {"title": "t", "levels": [0, 1, 2]}
    before = (tmp_path / "a.zt").read_bytes()
    for wrong in (dataset.assign(n=("z", ["a", "b"])), dataset.assign_attrs(f=len)):
        with pytest.raises(NotRepresentableError):
            backend.save_dataset(wrong, tmp_path / "a.zt")
        assert (tmp_path / "a.zt").read_bytes() == before
    with pytest.raises(ArgumentTypeError):
        backend.save_dataset(dataset["t"], tmp_path / "a.zt")


@pytest.mark.slow  # another process: xarray reads entry points once
def test_xarray_guesses_names_of_ours(tmp_path: Path) -> None:
    save_file({"w": ROWS}, tmp_path / "a.zt")
    info = tmp_path / "ours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    line = 'ztensor = "ztensor.xarray:Backend"'
    assert f'[project.entry-points."xarray.backends"]\n{line}\n' in text
    (info / "entry_points.txt").write_text(f"[xarray.backends]\n{line.replace(chr(34), '')}\n")
    script = (
        "import xarray; print(float(xarray.open_dataset('a.zt')['w'][1, 0]),"
        " float(xarray.open_dataset('a.zt', engine='ztensor')['w'][1, 0]))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    printed = subprocess.check_output([sys.executable, "-c", script], cwd=tmp_path, env=env)
    assert printed.split() == [b"40.0", b"40.0"]


def test_guesses() -> None:
    guess = backend.Backend().guess_can_open
    remote = "s3://b/a.zt", "https://h/a.zt?k=v", ztensor.Remote("s3://b/a.zt")
    for source in ("a.zt", Path("a.zt"), *remote):
        assert guess(source)
    for other in ("a.nc", "a.safetensors", b"a.zt", 3, None, "a.zt.index.json"):
        assert not guess(other)
