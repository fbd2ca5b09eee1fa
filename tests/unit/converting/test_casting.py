"""`convert` with `dtype=` and `dequantize=`: values, reports and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import ztensor
from tests.corpus.foreign.make_gguf import blocks_of, gguf, info
from tests.flipping import flip
from ztensor import Tensor
from ztensor.errors import (
    ArgumentValueError,
    DigestMismatchError,
    NotRepresentableError,
    UnsupportedError,
)
from ztensor.ext import LAYOUTS
from ztensor.numpy import load_file, save_file

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((130, 256)).astype(np.float32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1.1], np.float32)
TARGETS = ["float32", "float16", "bfloat16"]
TYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
OTHERS: dict[str, Any] = {
    "int": np.arange(7),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j], np.complex64),
    "fp8": WEIGHT.astype(ml_dtypes.float8_e4m3fn),
    "fp4": WEIGHT.astype(ml_dtypes.float4_e2m1fn),
    "e8m0": np.array([1.0, 2.0**99], ml_dtypes.float8_e8m0fnu),
}


def blocks(name: str, rows: int, width: int) -> Tensor:
    layout = f"gguf.{name}"
    data = blocks_of(name, rows * width // LAYOUTS[layout].block_type.elements)  # type: ignore[attr-defined]
    if name == "mxfp4":
        data[:, 0] = 127  # the scale 1
    return Tensor({"data": data.reshape(-1)}, shape=(rows, width), format=layout)


def scattered() -> Tensor:
    """Return a quantized tensor with scattered groups, as GPTQ with `desc_act` makes them."""
    plain = Tensor.quantize(WEIGHT[:128], bits=4, group_size=32)
    order = RNG.permutation(np.arange(128, dtype=np.int32) // 32)
    attributes = {**plain.attributes, "desc_act": True}
    parts = {**plain.components, "g_idx": order}
    return Tensor(parts, shape=plain.shape, format="quantized_group", attributes=attributes)


QUANTIZED: dict[str, Callable[[], Tensor]] = {
    "group": lambda: Tensor.quantize(WEIGHT[:128], bits=4, group_size=32),
    "whole axis": lambda: Tensor.quantize(WEIGHT[:128], bits=8, group_size=-1),
    "scattered": scattered,
    "nf4": lambda: Tensor.quantize(WEIGHT[:128], "nf4"),
    "mxfp4": lambda: Tensor.quantize(WEIGHT[:128], "mxfp4"),
    "nvfp4": lambda: Tensor.quantize(WEIGHT[:128], "nvfp4"),
    "q4_k": lambda: blocks("q4_k", 5, 512),
    "iq1_m": lambda: blocks("iq1_m", 3, 256),
    "mx": lambda: blocks("mxfp4", 4, 64),
}


def as_target(array: Any, target: str) -> Any:
    """Return floats as another type, by way of float32 where they are narrower."""
    with np.errstate(all="ignore"):
        wide = array if array.itemsize >= 4 else array.astype(np.float32)
        return wide.astype(TYPES[target])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.zt"
    with np.errstate(all="ignore"):
        plain = {kind: WEIGHT.astype(dtype) for kind, dtype in TYPES.items()}
        special = {f"{kind} special": SPECIAL.astype(dtype) for kind, dtype in TYPES.items()}
    more = {"scalar": np.float32(1 / 3), "empty": np.zeros((0, 3)), "tied": plain["float32"]}
    sparse = {
        "csr": Tensor.csr(np.array([1 / 3, 2.0]), [0, 2], [0, 1, 2], (2, 3)),
        "coo": Tensor.coo(np.array([1 / 3], np.float32), [[1], [2]], (2, 3)),
    }
    quantized = {name: make() for name, make in QUANTIZED.items()}
    tensors = {**plain, **special, **more, **OTHERS, **sparse, **quantized}
    save_file(tensors, path, {"k": "v"}, compression=True)
    return path


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("target", TARGETS)
def test_floats_become_the_type_and_all_else_stays(
    source: Path, tmp_path: Path, target: str, threads: int
) -> None:
    report = ztensor.convert(
        source, tmp_path / "n.zt", dtype=target, check=True, threads=threads, compression=True
    )
    old: dict[str, Any] = load_file(source)
    new: dict[str, Any] = load_file(tmp_path / "n.zt")
    assert list(new) == list(old)
    changed = {one.object_name: one for one in report.changed}
    for name, value in old.items():
        if isinstance(value, Tensor):
            parts = dict(value.components)
            if "values" in parts:
                parts["values"] = as_target(parts["values"], target)
            for role, part in parts.items():
                assert new[name].components[role].dtype == part.dtype
                assert new[name].components[role].tobytes() == part.tobytes()
            assert new[name].attributes == value.attributes
            continue
        if name not in OTHERS:
            expected = as_target(value, target)
            assert (name in changed) == (value.dtype != expected.dtype)
        else:
            expected = value
        assert new[name].dtype == expected.dtype, name
        assert new[name].shape == expected.shape
        if np.isnan(SPECIAL[:1].astype(TYPES[target])).any() and "special" in name:
            assert np.array_equal(
                new[name].astype(np.float64), expected.astype(np.float64), equal_nan=True
            )
        else:
            assert new[name].tobytes() == expected.tobytes()
    for name, one in changed.items():
        value = getattr(old[name], "components", {"values": old[name]})["values"]
        wide, now = value.astype(np.float64), as_target(value, target).astype(np.float64)
        finite = np.isfinite(wide)
        with np.errstate(invalid="ignore"):
            error = float(np.abs(wide - now).max(where=finite, initial=0))
        assert one.largest_error == pytest.approx(error, rel=1e-6)
        assert (one.was, one.now) == (value.dtype.name, target)
    assert report.is_checked
    assert not report.lost
    assert not report.is_lossless


@pytest.mark.parametrize("target", [None, *TARGETS])
def test_quantized_objects_become_floats(source: Path, tmp_path: Path, target: str | None) -> None:
    report = ztensor.convert(
        source,
        tmp_path / "n.zt",
        dequantize=True,
        dtype=target,
        include=list(QUANTIZED),
        check=True,
    )
    assert {one.object_name for one in report.changed} == set(QUANTIZED)
    with ztensor.open(source) as old, ztensor.open(tmp_path / "n.zt") as new:
        for one in report.changed:
            tensor = old.read(one.object_name)
            floats = tensor.dequantize()
            expected = floats if target is None else as_target(floats, target)
            found = new[one.object_name]
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()
            assert found.shape == tensor.shape
            assert new.metadata(one.object_name).attributes == {}
            assert (one.was, one.now) == (tensor.format, target or "float32")
            assert (one.largest_error == 0) == (
                target in (None, "float32")
            ) or "mx" in one.object_name


def test_other_attributes_of_a_quantized_object_stay(tmp_path: Path) -> None:
    with ztensor.Writer(tmp_path / "a.zt") as writer:
        tensor = Tensor.quantize(WEIGHT[:128], bits=4, group_size=32)
        writer.write("w", tensor, attributes={**tensor.attributes, "note": "mine"})
    ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dequantize=True)
    with ztensor.open(tmp_path / "b.zt") as reader:
        assert reader.metadata("w").attributes == {"note": "mine"}


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "gguf", "h5"])
def test_other_formats_are_written_so_too(tmp_path: Path, suffix: str) -> None:
    tensor = QUANTIZED["group"]()
    save_file({"q": tensor, "w": WEIGHT}, tmp_path / "a.zt")
    report = ztensor.convert(
        tmp_path / "a.zt", tmp_path / f"n.{suffix}", dequantize=True, dtype="float16", check=True
    )
    assert not report.lost
    with ztensor.open(tmp_path / f"n.{suffix}") as reader:
        assert reader["w"].tobytes() == WEIGHT.astype(np.float16).tobytes()
        assert reader["q"].tobytes() == tensor.dequantize().astype(np.float16).tobytes()


def test_files_of_other_formats_are_changed_too(tmp_path: Path) -> None:
    data = blocks_of("iq3_s", 4).tobytes()
    infos = [info("q", (256, 4), 21, 0), info("w", (8,), 0, len(data) + -len(data) % 32)]
    floats = np.linspace(0, 1, 8, dtype=np.float32)
    (tmp_path / "a.gguf").write_bytes(
        gguf((), infos, data + bytes(-len(data) % 32) + floats.tobytes())
    )
    report = ztensor.convert(
        tmp_path / "a.gguf", tmp_path / "b.safetensors", dequantize=True, dtype="bfloat16"
    )
    found = safetensors.numpy.load_file(tmp_path / "b.safetensors")
    with ztensor.open(tmp_path / "a.gguf") as reader:
        expected = reader.read("q").dequantize().astype(ml_dtypes.bfloat16)
    assert found["q"].tobytes() == expected.tobytes()
    assert found["w"].tobytes() == floats.astype(ml_dtypes.bfloat16).tobytes()
    assert set(report.unchecked) == {"q", "w"}


@pytest.mark.parametrize("sharded_to", [None, 60_000])
def test_sets_of_shards(tmp_path: Path, sharded_to: int | None) -> None:
    tensors = {f"w{number}": WEIGHT + number for number in range(4)}
    tensors["q"] = QUANTIZED["group"]()  # type: ignore[assignment]
    save_file(tensors, tmp_path / "m.zt", max_shard_size=200_000)
    report = ztensor.convert(
        tmp_path / "m.zt.index.json",
        tmp_path / "n.zt",
        dtype="bfloat16",
        dequantize=True,
        check=True,
        max_shard_size=sharded_to,
    )
    assert len(report.changed) == 5
    place = tmp_path / "n.zt" if sharded_to is None else report.path
    with ztensor.open(place) as reader:
        for number in range(4):
            expected = (WEIGHT + number).astype(ml_dtypes.bfloat16)
            assert reader[f"w{number}"].tobytes() == expected.tobytes()
        assert reader["q"].dtype == ml_dtypes.bfloat16


def test_objects_over_the_same_bytes_still_share_them(tmp_path: Path) -> None:
    tensor = blocks("q8_0", 100, 512)
    save_file({"a": WEIGHT, "b": WEIGHT}, tmp_path / "a.zt")
    with ztensor.Editor(tmp_path / "a.zt") as editor:
        editor.write("q", tensor)
        editor.share("r", "q")
    ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dtype="float16", dequantize=True)
    with ztensor.open(tmp_path / "b.zt") as reader:
        assert reader.location("a") == reader.location("b")
        assert reader.location("q") == reader.location("r")
        assert reader["q"].tobytes() == tensor.dequantize("float16").tobytes()


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (np.array([1, 65_520], np.float32), "float16"),
        (np.array([-1e5], ml_dtypes.bfloat16), "float16"),
        (np.array([1e39]), "float32"),
        (np.array([1e39]), "bfloat16"),
        (np.array([3.4e38], np.float32), "bfloat16"),
    ],
)
def test_a_finite_number_never_becomes_infinite(array: Any, target: str, tmp_path: Path) -> None:
    save_file({"fits": WEIGHT, "large": array}, tmp_path / "a.zt")
    (tmp_path / "b.zt").write_bytes(b"old")
    for how in ({}, {"dry_run": True}, {"check": True, "threads": 3}):
        with pytest.raises(NotRepresentableError) as caught:
            ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dtype=target, **how)
        assert caught.value.object_name == "large"
        assert "at most" in str(caught.value)
    assert (tmp_path / "b.zt").read_bytes() == b"old"
    report = ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dtype=target, exclude="large")
    assert [one.object_name for one in report.changed] == ["fits"] * (target != "float32")


def test_the_largest_number_that_fits_is_kept(tmp_path: Path) -> None:
    save_file({"w": np.array([65_519], np.float32)}, tmp_path / "a.zt")
    report = ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dtype="float16", check=True)
    assert load_file(tmp_path / "b.zt")["w"].tolist() == [65_504]
    (change,) = report.changed
    assert (change.was, change.now, change.largest_error) == ("float32", "float16", 15.0)


def test_blocks_that_cannot_be_taken_apart_are_refused(tmp_path: Path) -> None:
    save_file({"q": blocks("q1_0", 2, 128), "w": WEIGHT}, tmp_path / "a.zt")
    with pytest.raises(UnsupportedError) as caught:
        ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dequantize=True)
    assert caught.value.object_name == "q"
    assert not (tmp_path / "b.zt").exists()
    ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dequantize=True, exclude="q")


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("name", ["w", "q", "g"])
def test_damage_is_noticed(tmp_path: Path, name: str, compression: bool) -> None:
    tensors = {"w": WEIGHT, "q": QUANTIZED["group"](), "g": QUANTIZED["q4_k"]()}
    path = tmp_path / "a.zt"
    save_file({name: tensors[name]}, path, compression=compression)
    with ztensor.open(path) as reader:
        component = next(iter(reader.metadata(name).components.values()))
        assert component.digest is not None
    flip(path, component.offset + component.length // 2)
    with pytest.raises((DigestMismatchError, ztensor.FormatError)):
        ztensor.convert(path, tmp_path / "b.zt", dequantize=True, dtype="float16")
    assert not (tmp_path / "b.zt").exists()


def test_a_dry_run_says_the_same(source: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"dtype": "float16", "dequantize": True}
    dry = ztensor.convert(source, tmp_path / "n.zt", dry_run=True, **how)
    assert not (tmp_path / "n.zt").exists()
    assert dry == dataclasses.replace(ztensor.convert(source, tmp_path / "n.zt", **how))


def test_nothing_to_change_is_said(tmp_path: Path) -> None:
    save_file({"i": np.arange(3), "h": np.ones(3, np.float16)}, tmp_path / "a.zt")
    report = ztensor.convert(
        tmp_path / "a.zt", tmp_path / "b.zt", dtype="float16", dequantize=True, strict=True
    )
    assert report.changed == ()
    assert report.is_lossless


@pytest.mark.parametrize("dtype", ["float16", "f16", np.float16, np.dtype("<f2")])
def test_the_type_may_be_named_in_any_way(dtype: Any, tmp_path: Path) -> None:
    save_file({"w": WEIGHT}, tmp_path / "a.zt")
    ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dtype=dtype)
    assert load_file(tmp_path / "b.zt")["w"].dtype == np.float16


@pytest.mark.parametrize("dtype", ["float64", "int8", "", 5, object(), np.int8, "f8_e4m3fn"])
def test_other_types_are_refused(dtype: Any, tmp_path: Path) -> None:
    save_file({"w": WEIGHT}, tmp_path / "a.zt")
    with pytest.raises(ArgumentValueError):
        ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", dtype=dtype)
