from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import typer.main

import ztensor
from ztensor import demo
from ztensor.cli.main import app
from ztensor.demo import CheckpointShape, build_checkpoint, differences, read_model, run
from ztensor.numpy import load_file, save_file

TINY = CheckpointShape(vocabulary=97, context=8, width=16, layers=2)


@pytest.fixture(scope="module")
def tensors() -> dict[str, Any]:
    return build_checkpoint(TINY)


# --- The checkpoint -------------------------------------------------------------------------


def test_the_default_is_gpt2_small() -> None:
    shape = CheckpointShape()
    assert shape.parameters == 124_439_808
    shapes = shape.tensors()
    assert len(shapes) == 148
    assert shapes["wte.weight"] == (50257, 768)
    assert shapes["h.11.attn.c_attn.weight"] == (768, 2304)
    assert shapes["h.0.mlp.c_fc.weight"] == (768, 3072)


def test_tensors_are_bfloat16_with_a_sparse_an_fp8_and_a_quantized_one(
    tensors: dict[str, Any],
) -> None:
    beside = {name for name in tensors if name.endswith(("sparse", "fp8", "int4"))}
    assert set(tensors) - beside == set(TINY.tensors())
    for name, shape in TINY.tensors().items():
        assert tensors[name].shape == shape
        assert tensors[name].dtype == ml_dtypes.bfloat16
    sparse = tensors["h.0.mlp.c_fc.weight.sparse"]
    assert sparse.format == "sparse_csr"
    dense = tensors["h.0.mlp.c_fc.weight"]
    kept = sparse.to_dense() != 0
    assert 0.05 < kept.mean() < 0.15
    assert np.array_equal(sparse.to_dense()[kept], dense[kept])
    assert tensors["h.0.attn.c_proj.weight.fp8"].dtype == ml_dtypes.float8_e4m3fn
    int4 = tensors["h.0.mlp.c_proj.weight.int4"]
    assert int4.attributes["bits"] == 4
    weight = tensors["h.0.mlp.c_proj.weight"].astype(np.float32)
    assert np.abs(int4.dequantize() - weight).max() < 0.02


# --- The demonstration ----------------------------------------------------------------------


def test_all_is_well(tensors: dict[str, Any], tmp_path: Path) -> None:
    steps: list[demo.Step] = []
    outcome = run(tensors, attributes={"a": 1}, folder=tmp_path, report=steps.append)
    assert outcome.ok
    assert outcome.steps == steps
    assert outcome.tensors == len(tensors)
    assert outcome.raw_nbytes > outcome.compressed_nbytes > 0
    assert outcome.verify_message is not None
    assert "crc32c" in outcome.verify_message
    assert outcome.damaged_object == "wte.weight"
    assert outcome.read_message is not None
    assert "crc32c" in outcome.read_message
    assert all(step.seconds >= 0 for step in steps)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


@pytest.mark.parametrize(
    "tensors",
    [
        {"scalar": np.array(1.5)},
        {"empty": np.zeros((0, 3))},
        {"sparse": ztensor.Tensor.coo([1.0], [[0], [1]], (2, 2))},
        {"nan": np.array([np.nan, -0.0])},
        {"big-endian": np.arange(6, dtype=">i4").reshape(2, 3)},
        {"strided": np.arange(24).reshape(4, 6)[::2, ::-1], "order": np.ones((3, 4)).T},
        {"bool": np.array([True, False]), "\x1b[31m": np.arange(3)},
    ],
    ids=lambda tensors: next(iter(tensors)),
)
def test_any_tensors_will_do(tensors: dict[str, Any], tmp_path: Path) -> None:
    outcome = run(tensors, folder=tmp_path)
    assert outcome.failures == []
    assert (outcome.read_message is None) == ("empty" in tensors)


def _altered(change: Callable[[dict[str, Any]], object]) -> Callable[..., dict[str, Any]]:
    def load(path: Path, *, copy: bool = False) -> dict[str, Any]:
        loaded = load_file(path, copy=True)
        change(loaded)
        return loaded

    return load


def _flip_a_bit(loaded: dict[str, Any]) -> None:
    loaded["wpe.weight"].view(np.uint16)[3, 3] ^= 1


def test_no_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ztensor.ArgumentValueError):
        run({}, folder=tmp_path)


def test_too_little_space_is_said_before_anything_is_written(
    tensors: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(ztensor.SourceError, match="free space"):
        run(tensors, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_place_to_work_is_an_error(tensors: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ztensor.SourceError, match="temporary folder"):
        run(tensors, folder=tmp_path / "missing")


def test_what_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ztensor.NotRepresentableError):
        run({"text": np.array(["a"])}, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- A model of the user's ------------------------------------------------------------------


def test_read_zt(tensors: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.zt"
    save_file(tensors, path, {"format": "pt"})
    read, attributes = read_model(path)
    assert differences(tensors, read) == []
    assert attributes == {"format": "pt"}


def test_read_npz(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b/c": np.array(3)}
    path = tmp_path / "model.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]  # names are the caller's
    read, attributes = read_model(path)
    assert differences(arrays, read) == []
    assert attributes == {}


def test_read_safetensors(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy", reason="optional: safetensors")
    arrays = {"a": np.arange(6.0).reshape(2, 3), "s": np.array(3), "f": np.array([True, False])}
    path = tmp_path / "model.safetensors"
    numpy.save_file(arrays, path)
    assert differences(arrays, read_model(path)[0]) == []


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.npz", b"PK\x03\x04 and no more", ztensor.FormatError),
        ("a.zt", b"something else", ztensor.NotZTensorError),
        ("a.txt", b"", ztensor.FormatError),
    ],
)
def test_other_files_are_errors(
    tmp_path: Path, name: str, content: bytes, error: type[Exception]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(error):
        read_model(path)


def test_objects_in_npz_are_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "objects.npz"
    np.savez(path, evil=np.array([{}], dtype=object))
    with pytest.raises(ztensor.UnsupportedError):
        read_model(path)


def test_a_missing_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        read_model(tmp_path / "missing.zt")
    assert isinstance(caught.value, ztensor.SourceError)


# --- The verb -------------------------------------------------------------------------------


def ended(*arguments: object) -> object:
    with pytest.raises(SystemExit) as caught:
        typer.main.get_command(app).main([str(argument) for argument in arguments])
    return caught.value.code


def test_the_table(
    tensors: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.zt"
    save_file(tensors, path)
    assert ended("demo", path, "--folder", tmp_path) == 0
    out = capsys.readouterr().out
    assert re.search(r"^operation +bytes +seconds +GB/s$", out, re.MULTILINE)
    for operation in ("save raw, crc32c", "save compressed, zstd", "verify raw"):
        assert re.search(rf"^{operation} +[\d.]+ kB +\d+\.\d{{4}} +\d+\.\d\d$", out, re.MULTILINE)
    assert re.search(r"^time to first tensor +[\d.]+ ms$", out, re.MULTILINE)
    assert "do not match their crc32c digest" in out
    assert out.splitlines()[-1].startswith(f"ok: {len(tensors)} tensors")
    assert max(map(len, out.splitlines()[:-8])) <= 80


def test_json(tensors: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.zt"
    save_file(tensors, path)
    assert ended("demo", path, "--folder", tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    assert found["failures"] == []
    assert {"operation", "seconds", "nbytes", "moved"} == set(found["steps"][0])


def test_a_difference_is_told_and_is_the_exit_code(
    tensors: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "model.zt"
    save_file(tensors, path)
    monkeypatch.setattr(demo, "load_file", _altered(_flip_a_bit))
    assert ended("demo", path, "--folder", tmp_path) == 1
    out = capsys.readouterr().out
    assert out.count("DIFFERS: ") == 3
    assert "ok:" not in out
    assert ended("demo", path, "--folder", tmp_path, "--quiet") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("DIFFERS: ") == 3


def test_without_a_model_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "CheckpointShape", lambda: TINY)
    assert ended("demo", "--folder", tmp_path) == 0
    assert "GPT-2" in capsys.readouterr().out
