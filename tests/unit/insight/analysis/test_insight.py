from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.insight.analysis.document import heat_of, tiles_of
from ztensor.numpy import save_file

W = np.linspace(-1, 1, 96 * 64, dtype=np.float32).reshape(96, 64)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tensors: dict[str, Any] = {f"h.{i}.w": W * (i + 1) for i in range(12)}
    tensors |= {
        "b": W[0],
        "half": W.astype(ml_dtypes.bfloat16),
        "ids": np.arange(6, dtype=np.int64) + (1 << 60),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(np.nan),
        "sparse": ztensor.Tensor.csr(np.ones(2, np.float32), [1, 3], [0, 1, 1, 2], (3, 4)),
        "int4": ztensor.Tensor.quantize(W, bits=4, group_size=32),
    }
    path = tmp_path / "model.zt"
    save_file(tensors, path, {"note": "\u202egnp", "n": 3})
    return path


def strict(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def test_the_document(model: Path) -> None:
    document = strict(ztensor.examine(model).as_json())
    assert document["schema"] == "ztensor-insight/1"
    (one,) = document["models"]
    columns = one["tensors"]
    assert one["name"] == "model.zt"
    assert one["object_count"] == 19
    assert columns["name"][:4] == ["b", "empty", "h.0.w", "h.1.w"]
    assert columns["name"][12] == "h.10.w"
    lengths = {len(column) for name, column in columns.items() if not name.endswith("s")}
    assert lengths == {19}
    assert one["layers"]["roles"] == ["h.*.w"]
    assert one["layers"]["indices"] == list(range(12))
    grid = one["layers"]["log2_rms"][0]
    assert grid[0] == pytest.approx(-np.log2(6.5), abs=1e-6)
    detail = one["detail"][str(columns["name"].index("half"))]
    assert detail["heat"]["shape"] == [32, 64]
    assert sum(detail["histogram"]["counts"]) == W.size
    assert one["detail"][str(columns["name"].index("ids"))]["max"] == str((1 << 60) + 5)
    assert one["attributes"][0] == ["n", "3"]
    assert "\\u202e" in one["attributes"][1][1]
    assert one["detail"][str(columns["name"].index("scalar"))]["nans"] == 1


@pytest.mark.parametrize("count", [1, 2])
def test_names_choose_and_progress_grows_to_the_end(model: Path, count: int) -> None:
    seen: list[tuple[int, int]] = []
    other = model if count == 2 else None
    insight = ztensor.examine(
        model, other, names=["h.1.w", "b"], threads=1, progress=lambda *one: seen.append(one)
    )
    assert insight.models[0].shown == ("b", "h.1.w")
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert all(done <= total for done, total in seen)
    with pytest.raises(ztensor.ObjectNotFoundError):
        ztensor.examine(model, other, names=["nope"])


def test_two_models(model: Path, tmp_path: Path) -> None:
    tensors: dict[str, Any] = {f"h.{i}.w": W * (i + 1) for i in range(12)}
    tensors["h.3.w"] = tensors["h.3.w"] + np.float32(0.5)
    tensors["renamed"] = W.astype(ml_dtypes.bfloat16)
    tensors["new"] = W[3]
    save_file(tensors, tmp_path / "other.zt")
    insight = ztensor.examine(model, tmp_path / "other.zt")
    document = strict(insight.as_json())
    diff, (a, b) = document["diff"], document["models"]
    kinds = {}
    for i, k, kind in zip(diff["a"], diff["b"], diff["kind"], strict=True):
        name = (a["tensors"]["name"][i] if i is not None else None,
                b["tensors"]["name"][k] if k is not None else None)  # fmt: skip
        kinds[name] = kind
    assert kinds["half", "renamed"] == "renamed"
    assert kinds[None, "new"] == "added"
    assert kinds["b", None] == "removed"
    assert kinds["h.3.w", "h.3.w"] == "changed"
    assert kinds["h.4.w", "h.4.w"] == "equal"
    at = diff["kind"].index("changed")
    expected = 0.5 * np.sqrt(W.size) / np.linalg.norm(W.astype(np.float64) * 4)
    assert diff["relative"][at] == pytest.approx(expected, rel=1e-5)
    assert diff["snr_db"][at] == pytest.approx(-20 * np.log10(expected), rel=1e-4)
    assert all(len(column) == len(diff["a"]) for column in diff.values())


def test_a_map_keeps_zero_and_orders_of_magnitude() -> None:
    tiles = np.array([0, 1, 10, 100, 1e-9, np.inf][:5], np.float32)
    again = tiles_of(heat_of(tiles, (1, 5)))
    assert again[0] == 0
    assert again[3] == pytest.approx(100)
    assert again[1] == pytest.approx(1, rel=0.4)
    assert again[2] == pytest.approx(10, rel=0.4)
    assert 0 < again[4] <= 0.011
    assert heat_of(np.zeros(4), (2, 2))["data"] == "AAA="
    even = tiles_of(heat_of(np.array([1.0, 1.1, 0.9, 1.0]), (2, 2)))
    assert even == pytest.approx([1, 1.1, 0.9, 1], rel=0.09)


def sampled_model(path: Path) -> tuple[Path, Any]:
    rng = np.random.default_rng(0)
    large = rng.normal(0, 0.5, (4096, 512)).astype(np.float32)
    large[::2, 7] = 0
    tensors = {"large": large, "small": W, "flat": np.zeros((2, 1 << 20), np.float32)}
    save_file(tensors, path)
    return path, large


@pytest.mark.slow
def test_a_sample_is_said_and_the_same_each_time(tmp_path: Path) -> None:
    path, large = sampled_model(tmp_path / "m.zt")
    insight = ztensor.examine(path, sample=0.05)
    assert insight == ztensor.examine(path, sample=0.05)
    assert insight.sample == 0.05
    document = strict(insight.as_json())
    assert document["sampled"] == {"share": 0.05}
    flat, found, small = insight.models[0].stats
    assert found.sampled == pytest.approx(0.05, rel=0.1)
    assert found.count == pytest.approx(large.size * 0.05, rel=0.1)
    assert found.rms == pytest.approx(float(np.sqrt((large**2).mean())), rel=0.05)
    assert found.shape == large.shape
    assert small.sampled is flat.sampled is None  # few elements, few rows
    assert {"nan", "damaged", "dead-channel", "same-content"} <= set(insight.not_looked_at)
    assert "layer" not in insight.not_looked_at
    assert [one.tensor for one in insight.findings] == ["flat"]  # of which all was looked at
    for change, rules in ((np.nan, ["nan"]), (0, [])):
        save_file({"large": np.full_like(large, change)}, path)
        sampled = ztensor.examine(path, sample=0.01)
        assert [one.rule for one in sampled.findings] == rules
        assert "all-zero" in sampled.not_looked_at


def test_no_sample_of_small_tensors_of_two_models_or_of_nonsense(model: Path) -> None:
    insight = ztensor.examine(model, sample=0.5)
    assert insight.sample is None
    assert insight.as_json()["sampled"] is False
    assert "nan" not in insight.not_looked_at
    for wrong in (0, 1, -0.1, 2, float("nan"), True, "0.1"):
        with pytest.raises(ztensor.errors.ArgumentValueError):
            ztensor.examine(model, sample=wrong)  # type: ignore[arg-type]
    with pytest.raises(ztensor.errors.ArgumentValueError, match="two models"):
        ztensor.examine(model, model, sample=0.5)
