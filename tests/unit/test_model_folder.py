"""The folder of a model: its JSON files and its weights, none of them from elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

import ztensor
from ztensor.errors import FormatError, LimitError, UnsupportedError, ZTensorError
from ztensor.model_folder import ModelFolder, new_folder

TENSORS = {"a": np.arange(6, dtype=np.float32), "b": np.ones((2, 3), np.float16)}


def save(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    ztensor.numpy.save_file(TENSORS, path)


def opened(folder: Path, **options: bool | str) -> str:
    with ModelFolder(folder).open_weights(["model"], **options) as reader:  # type: ignore[arg-type]
        assert set(reader) == set(TENSORS)
        return os.path.basename(reader.name)


def test_ours_go_before_others_and_files_before_shards(tmp_path: Path) -> None:
    ztensor.numpy.save_file(TENSORS, tmp_path / "model.safetensors", max_shard_size=20)
    assert opened(tmp_path) == "model.safetensors.index.json"
    save(tmp_path / "model.safetensors")
    assert opened(tmp_path) == "model.safetensors"
    ztensor.numpy.save_file(TENSORS, tmp_path / "model.zt", max_shard_size=20)
    assert opened(tmp_path) == "model.zt.index.json"
    save(tmp_path / "model.zt")
    assert opened(tmp_path) == "model.zt"


def test_a_variant_is_another_file(tmp_path: Path) -> None:
    save(tmp_path / "model.zt")
    save(tmp_path / "model.fp16.zt")
    assert opened(tmp_path, variant="fp16") == "model.fp16.zt"
    with pytest.raises(ztensor.errors.SourceNotFoundError, match=r"model\.int8\.zt"):
        opened(tmp_path, variant="int8")


def test_quantized_objects_are_floats_where_that_is_asked(tmp_path: Path) -> None:
    weights = {"w": np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)}
    ztensor.numpy.save_file(weights, tmp_path / "floats.zt")
    ztensor.convert(tmp_path / "floats.zt", tmp_path / "model.zt", quantize="int8 g32")
    expected = ztensor.numpy.load_file(tmp_path / "model.zt", dequantize=True)
    for dequantize in (True, False):
        with ModelFolder(tmp_path).open_weights(["model"], dequantize=dequantize) as reader:
            is_dense = reader.metadata("w").format == "dense"
            assert is_dense == dequantize
            if is_dense:
                np.testing.assert_array_equal(reader.read_numpy("w"), expected["w"])


def test_a_folder_in_a_store(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    url = ztensor.Remote("s3://bucket/deep/m", store)
    with new_folder(url) as place:
        ztensor.numpy.save_file(TENSORS, place.file("model.zt"))
        Path(place.path, "config.json").write_text('{"a": 1}')
    assert not os.path.exists(place.path)
    folder = ModelFolder("s3://bucket/deep", subfolder="m", storage=store)
    assert folder.config("config.json") == {"a": 1}
    with folder.open_weights(["other", "model"]) as reader:
        assert set(reader) == set(TENSORS)
    with contextlib.suppress(RuntimeError), new_folder(url) as place:
        Path(place.path, "config.json").write_text('{"a": 2}')
        raise RuntimeError
    assert folder.config("config.json") == {"a": 1}
    with pytest.raises(ztensor.errors.UsageError), new_folder("hf://a/b"):
        pass


def test_a_file_leads_to_its_folder(tmp_path: Path) -> None:
    save(tmp_path / "model.zt")
    with pytest.raises(ztensor.errors.SourceNotFoundError) as caught:
        ModelFolder(tmp_path / "model.zt")
    assert str(tmp_path) in str(caught.value.hint)


def test_a_subfolder_stays_in_the_folder(tmp_path: Path) -> None:
    save(tmp_path / "unet" / "model.zt")
    with ModelFolder(tmp_path, subfolder="unet").open_weights(["model"]) as reader:
        assert set(reader) == set(TENSORS)
    for name in ("../x", "/etc", "a/../../b", ".git"):
        with pytest.raises(FormatError):
            ModelFolder(tmp_path, subfolder=name)
    with pytest.raises(ztensor.errors.SourceNotFoundError):
        ModelFolder(tmp_path, subfolder="nowhere")


def test_the_cache_of_a_hub(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    blobs = tmp_path / "models--a--b" / "blobs"
    save(blobs / "77aa.zt")
    os.rename(blobs / "77aa.zt", blobs / "77aa")
    os.symlink("../../blobs/77aa", snapshot / "model.zt")
    (blobs / "88bb").write_text('{"a": 1}')
    os.symlink("../../blobs/88bb", snapshot / "config.json")
    assert opened(snapshot) == "model.zt"
    assert ModelFolder(snapshot).json("config.json") == {"a": 1}


@pytest.mark.parametrize("name", ["model.zt", "config.json", "model.zt.index.json"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    if name == "model.zt":
        save(tmp_path / "out" / name)
    elif name == "config.json":
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / name).write_text("{}")
    else:
        ztensor.numpy.save_file(TENSORS, folder / "model.zt", max_shard_size=20)
        (tmp_path / "out").mkdir()
        os.rename(folder / name, tmp_path / "out" / name)
    os.symlink(tmp_path / "out" / name, folder / name)
    with pytest.raises(UnsupportedError):
        ModelFolder(folder).json(name) if name == "config.json" else opened(folder)


def test_what_is_called_like_ours_and_is_another(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", **TENSORS)  # type: ignore[arg-type]  # numpy's stubs
    os.rename(tmp_path / "model.npz", tmp_path / "model.zt")
    with pytest.raises(ztensor.errors.NotZTensorError):
        opened(tmp_path)


def test_json(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path)
    assert folder.json("config.json") is None
    (tmp_path / "config.json").write_text('{"a": [1, {"b": null}]}')
    assert folder.json("config.json") == {"a": [1, {"b": None}]}
    (tmp_path / "config.json").write_text(json.dumps({"ä": "ö"}), encoding="utf-8-sig")
    assert folder.json("config.json") == {"ä": "ö"}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"a": 1e}', b"[" * 100_000, b"{}x"]
)
def test_json_that_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(ZTensorError, match=r"config\.json") as caught:
        ModelFolder(tmp_path).json("config.json")
    assert isinstance(caught.value, (FormatError, LimitError))


def test_json_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "config.json", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(LimitError, match=r"config\.json"):
        ModelFolder(tmp_path).json("config.json")


def test_what_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ztensor.errors.SourceNotFoundError):
        ModelFolder(tmp_path / "nowhere")
    with pytest.raises(ztensor.errors.ArgumentTypeError):
        ModelFolder(3)
    with pytest.raises(ztensor.errors.ArgumentValueError):
        ModelFolder(tmp_path, storage={})
