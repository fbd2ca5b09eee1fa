"""`convert` with `quantize=`: chosen objects, errors of values, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentValueError, NotRepresentableError
from ztensor.numpy import save_file

RNG = np.random.default_rng(0)
MODEL: dict[str, Any] = {
    "embed.weight": RNG.normal(size=(50, 70)).astype(np.float32),
    "layer.weight": RNG.normal(size=(3, 4, 200)).astype(ml_dtypes.bfloat16),
    "layer.bias": RNG.normal(size=70).astype(np.float32),
    "layer.codes": RNG.integers(0, 9, (4, 4)),
    "layer.empty": np.zeros((0, 4), np.float32),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    ztensor.convert(saved(MODEL, tmp_path / "model.zt"), path)
    return path


def saved(tensors: dict[str, Any], path: Path) -> Path:
    save_file(tensors, path)
    return path


@pytest.mark.parametrize(("word", "group"), [("int4", 128), ("int8 g32", 32), ("int3-g64", 64)])
def test_matrices_of_floats_are_within_half_a_step(word: str, group: int, model: Path) -> None:
    target = model.with_suffix(".new.zt")
    report = ztensor.convert(model, target, quantize=word, check=True)
    changes = {change.object_name: change for change in report.changed}
    assert changes.keys() == {"embed.weight", "layer.weight"}
    assert not report.lost
    with ztensor.open(target) as reader:
        for name, array in MODEL.items():
            value: Any = reader[name]
            if name not in changes:
                assert value.tobytes() == array.tobytes()
                continue
            assert value.attributes["group_size"] == group
            apart = np.abs(value.dequantize() - array.astype(np.float32))
            assert apart.max() == pytest.approx(changes[name].largest_error, rel=1e-6)
            assert changes[name].now == f"int{value.attributes['bits']} g{group}"
            rows = apart.reshape(len(array), -1)
            steps = value.components["scales"].astype(np.float32).reshape(len(rows), -1)
            halves = np.repeat(steps, group, axis=1)[:, : rows.shape[1]] / 2
            assert (rows <= halves * 1.01).all()
        assert reader.verify().ok


def test_names_choose_the_quantized_objects(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "new.zt"
    report = ztensor.convert(model, target, quantize="int4", include="layer.*")
    assert [change.object_name for change in report.changed] == ["layer.weight"]
    with ztensor.open(target) as reader:
        assert set(reader) == set(MODEL)
        assert reader["embed.weight"].tobytes() == MODEL["embed.weight"].tobytes()


def test_other_floats_may_get_a_type_and_shards_are_made(model: Path, tmp_path: Path) -> None:
    report = ztensor.convert(
        model,
        tmp_path / "new.zt",
        quantize="int8",
        exclude="embed*",
        dtype="float16",
        max_shard_size=4000,
        version="1.1.0",
        check=True,
    )
    assert {change.object_name: change.now for change in report.changed} == {
        "embed.weight": "float16",
        "layer.weight": "int8 g128",
        "layer.bias": "float16",
        "layer.empty": "float16",
    }
    with ztensor.open(report.path) as reader:
        assert reader["embed.weight"].dtype == np.float16
        assert reader.metadata("layer.weight").format == "quantized_group"


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    weight = MODEL["embed.weight"]
    path = saved({"embed": weight, "head": weight}, tmp_path / "tied.zt")
    report = ztensor.convert(path, tmp_path / "new.zt", quantize="int4", check=True)
    first, second = report.changed
    assert (first.object_name, second.object_name) == ("embed", "head")
    assert first.largest_error == second.largest_error > 0
    with ztensor.open(tmp_path / "new.zt") as reader:
        embed, head = (reader.metadata(name).components for name in ("embed", "head"))
        assert {role: one.offset for role, one in embed.items()} == {
            role: one.offset for role, one in head.items()
        }


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("new.zt", {"quantize": "int9"}),
        ("new.zt", {"quantize": 4}),
        ("new.zt", {"quantize": "int4 g0"}),
        ("new.zt", {"quantize": "int4", "dequantize": True}),
        ("new.safetensors", {"quantize": "int4"}),
    ],
    ids=str,
)
def test_wrong_arguments(target: str, options: dict[str, Any], model: Path) -> None:
    with pytest.raises(ArgumentValueError):
        ztensor.convert(model, model.with_name(target), **options)
    assert not model.with_name(target).exists()


def test_nan_is_refused_with_the_objects_name(tmp_path: Path) -> None:
    path = saved({"w": np.array([[1.0, np.nan]])}, tmp_path / "a.zt")
    with pytest.raises(NotRepresentableError) as caught:
        ztensor.convert(path, tmp_path / "b.zt", quantize="int4")
    assert caught.value.object_name == "w"
    assert caught.value.file == str(path)
    assert not (tmp_path / "b.zt").exists()
