"""Folders: the only model is opened; the error for several names each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ztensor
from ztensor.errors import (
    ArgumentValueError,
    FormatError,
    NotZTensorError,
    SourceNotRegularError,
    ZTensorError,
)
from ztensor.numpy import load_file, save_file
from ztensor.typing import ShardedReader

if TYPE_CHECKING:
    Fill = Callable[[Path], object]

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def pickled(*names: str, value: float = 1) -> Fill:
    """Return a function that fills a folder with files of torch.save, each with "w"."""

    def fill(folder: Path) -> None:
        torch = pytest.importorskip("torch")
        for name in names:
            key = f"w{name}" if "-of-" in name else "w"
            torch.save({key: torch.full((3,), value)}, folder / name)

    return fill


def arrays(*names: str, value: float = 2) -> Fill:
    def fill(folder: Path) -> None:
        for name in names:
            place = folder / name
            place.parent.mkdir(exist_ok=True)
            save_file({"w": np.full(3, value, np.float32)}, place)

    return fill


def index(name: str, *files: str) -> Fill:
    def fill(folder: Path) -> None:
        weight_map = {f"w{file}": file for file in files}
        text = json.dumps({"metadata": {"total_size": 24}, "weight_map": weight_map})
        (folder / name).write_text(text)

    return fill


def text(*names: str) -> Fill:
    return lambda folder: [(folder / name).write_text("{}") for name in names]


BINS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
HUB = text("config.json", "tokenizer.json", "README.md")

# Files of a folder, and the first value of its model.
MEANT: dict[str, tuple[list[Fill], float]] = {
    "only pytorch_model.bin": ([HUB, pickled("pytorch_model.bin")], 1),
    "pytorch_model.bin and the trainer's": (
        [pickled("pytorch_model.bin"), pickled("training_args.bin", "optimizer.pt", value=9)], 1
    ),
    "shards of .bin": ([HUB, pickled(*BINS), index("pytorch_model.bin.index.json", *BINS)], 1),
    "shards of .bin, no index": ([pickled(*BINS)], 1),
    "an index of .bin, of a variant": (
        [pickled(*BINS), index("pytorch_model.bin.index.fp16.json", *BINS)], 1
    ),
    "safetensors beside .bin": ([pickled("pytorch_model.bin"), arrays("model.safetensors")], 2),
    "safetensors beside shards of .bin": (
        [pickled(*BINS), index("pytorch_model.bin.index.json", *BINS), arrays("model.safetensors")],
        2,
    ),
    "safetensors beside its index": (
        [arrays("model.safetensors"), index("model.safetensors.index.json", "gone.safetensors")], 2
    ),
    ".bin beside Keras": ([pickled("pytorch_model.bin"), arrays("tf_model.h5")], 1),
    "one npz": ([HUB, arrays("weights.npz")], 2),
    "one file with no suffix": (
        [HUB, lambda folder: save_file({"w": np.full(3, 2, np.float32)}, folder / "weights")], 2
    ),
    "one gguf": ([HUB, arrays("model-q8.gguf")], 2),
    "one pt beside a file of no format": ([pickled("model.pt"), text("tokenizer.bin")], 1),
    "a part of a pipeline": ([HUB, arrays("diffusion_pytorch_model.safetensors")], 2),
}  # fmt: skip


@pytest.mark.wing
@pytest.mark.parametrize(("fills", "value"), MEANT.values(), ids=MEANT)
def test_a_folder_with_one_model_is_that_model(
    tmp_path: Path, fills: list[Fill], value: float
) -> None:
    for fill in fills:
        fill(tmp_path)
    with ztensor.open(tmp_path) as reader:
        assert isinstance(reader, ShardedReader)
        name = next(iter(reader))
        assert reader[name][0] == value
        assert reader.verify().problems == ()
    assert load_file(tmp_path)[name][0] == value
    ztensor.convert(tmp_path, tmp_path / "new.zt")


# Files of a folder, and the names in the error.
SEVERAL: dict[str, tuple[list[Fill], list[str], type[ZTensorError]]] = {
    "two npz": ([arrays("a.npz", "b.npz")], ["a.npz", "b.npz"], ArgumentValueError),
    "two gguf": ([arrays("q4.gguf", "q8.gguf")], ["q4.gguf", "q8.gguf"], ArgumentValueError),
    "two zt of the same names": ([arrays("a.zt", "b.zt")], ["a.zt", "b.zt"], FormatError),
    "two safetensors of the same names": (
        [arrays("a.safetensors", "b.safetensors")], ["a.safetensors", "b.safetensors"], FormatError
    ),
    "two indexes": (
        [index("a.safetensors.index.json", "a"), index("b.safetensors.index.json", "b")],
        ["a.safetensors.index.json", "b.safetensors.index.json"],
        ArgumentValueError,
    ),
    "a pipeline": (
        [
            text("model_index.json"),
            arrays("unet/diffusion_pytorch_model.safetensors", "vae/model.safetensors"),
        ],
        ["unet", "vae"],
        ArgumentValueError,
    ),
    "a pipeline beside a file": (
        [text("model_index.json"), arrays("vae/model.safetensors", "v1-5.safetensors")],
        ["vae", "v1-5.safetensors"],
        ArgumentValueError,
    ),
    "models in folders": (
        [arrays("step-1/model.safetensors", "step-2/model.zt")],
        ["step-1", "step-2"],
        SourceNotRegularError,
    ),
}  # fmt: skip


@pytest.mark.wing
@pytest.mark.parametrize(("fills", "named", "error"), SEVERAL.values(), ids=SEVERAL)
def test_of_several_models_the_error_names_each(
    tmp_path: Path, fills: list[Fill], named: list[str], error: type[ZTensorError]
) -> None:
    for fill in fills:
        fill(tmp_path)
    with pytest.raises(error) as caught:
        ztensor.open(tmp_path)
    assert caught.value.hint is not None
    for name in named:
        assert ascii(str(tmp_path / name)) in caught.value.hint
        if (tmp_path / name).suffix not in ("", ".json"):
            load_file(tmp_path / name)


@pytest.mark.wing
def test_the_file_that_tells_of_a_pipeline_is_no_index(tmp_path: Path) -> None:
    arrays("vae/model.safetensors")(tmp_path)
    text("model_index.json")(tmp_path)
    with pytest.raises(NotZTensorError):
        ztensor.open(tmp_path / "model_index.json")


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    HUB(tmp_path)
    with pytest.raises(SourceNotRegularError) as caught:
        ztensor.open(tmp_path)
    assert caught.value.hint is None


@pytest.mark.wing
@pytest.mark.parametrize("is_divided", [False, True])
def test_the_steps_of_a_run_are_no_model(tmp_path: Path, is_divided: bool) -> None:
    steps = {9: "step-00000009", 10: "step-00000010", 10**8: "step-100000000"}
    for name in steps.values():
        if is_divided:
            (tmp_path / name).mkdir()
            save_file({"w": ARRAY}, tmp_path / name / "checkpoint.zt")
        else:
            save_file({"w": ARRAY}, tmp_path / f"{name}.zt")
    for source in (tmp_path, ztensor.Remote(tmp_path.as_uri() + "/")):
        with pytest.raises(ArgumentValueError, match="steps of a training run") as caught:
            ztensor.open(source)
        assert "step-100000000" in str(caught.value.hint)
        assert "CheckpointManager" in str(caught.value.in_python)


def test_the_only_step_of_a_run_is_opened(tmp_path: Path) -> None:
    save_file({"w": ARRAY}, tmp_path / "step-00000009.zt")
    assert list(ztensor.open(tmp_path)) == ["w"]


@pytest.mark.parametrize(
    ("count", "more"), [(2, ""), (8, ""), (9, " and 1 more"), (11, " and 3 more")]
)
@pytest.mark.wing
def test_of_many_files_that_could_be_meant_eight_are_named(
    tmp_path: Path, count: int, more: str
) -> None:
    for number in range(count):
        save_file({"w": ARRAY}, tmp_path / f"{number:02}.npz")
    with pytest.raises(ArgumentValueError) as caught:
        ztensor.open(tmp_path)
    hint = str(caught.value.hint)
    assert hint.count(".npz") == min(count, 8)
    assert hint.endswith(f"{min(count, 8) - 1:02}.npz'{more}")
