"""The load format of vLLM, with a stand-in that has the parts of vLLM's interface it uses."""

from __future__ import annotations

import abc
import importlib.util
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor

torch = pytest.importorskip("torch")


class BaseModelLoader(abc.ABC):
    """As `vllm.model_executor.model_loader.base_loader.BaseModelLoader` of vLLM 0.33.0."""

    def __init__(self, load_config: Any) -> None:
        self.load_config = load_config

    @abc.abstractmethod
    def download_model(self, model_config: Any) -> None: ...

    @abc.abstractmethod
    def load_weights(self, model: Any, model_config: Any) -> None: ...


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A model that fills its parameters by name, as those of vLLM do."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(4, 64))

    def load_weights(self, weights: Iterator[tuple[str, Any]]) -> set[str]:
        own = dict(self.named_parameters())
        loaded = set()
        with torch.no_grad():
            for name, value in weights:
                own[name].copy_(value)
                loaded.add(name)
        return loaded


@pytest.fixture
def loaders(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Give the loaders that were registered, by load format."""
    found: dict[str, Any] = {}
    names = ["vllm", "vllm.model_executor", "vllm.model_executor.model_loader"]
    modules = {name: types.ModuleType(name) for name in [*names, f"{names[-1]}.base_loader"]}

    def register(load_format: str) -> Any:
        def take(loader: Any) -> Any:
            assert issubclass(loader, BaseModelLoader)
            found[load_format] = loader
            return loader

        return take

    vars(modules[names[-1]])["register_model_loader"] = register
    vars(modules[f"{names[-1]}.base_loader"])["BaseModelLoader"] = BaseModelLoader
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    importlib.import_module("ztensor.vllm").register()
    yield found
    del sys.modules["ztensor.vllm"]
    vars(ztensor).pop("vllm", None)


def loaded(loaders: dict[str, Any], model: object, source: Path, **extra: Any) -> None:
    config = types.SimpleNamespace(model_loader_extra_config=extra)
    loader = loaders["ztensor"](config)
    model_config = types.SimpleNamespace(
        model=str(source), dtype=torch.float32, quantization=None, revision=None
    )
    loader.download_model(model_config)
    loader.load_weights(model, model_config)


WEIGHTS = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)


@pytest.mark.parametrize("name", ["model.zt", "model.safetensors", "folder"])
def test_a_model_gets_its_weights(name: str, loaders: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
        (path / "config.json").write_text("{}")
    ztensor.numpy.save_file({"w": WEIGHTS}, path / "model.zt" if name == "folder" else path)
    model = Model()
    loaded(loaders, model, path)
    assert np.array_equal(model.w.detach().numpy(), WEIGHTS)


def test_other_weights_than_the_models_own(loaders: dict[str, Any], tmp_path: Path) -> None:
    ztensor.numpy.save_file({"w": WEIGHTS, "other": WEIGHTS}, tmp_path / "weights.zt")
    model = Model()
    loaded(loaders, model, tmp_path, weights=str(tmp_path / "weights.zt"), only="w")
    assert np.array_equal(model.w.detach().numpy(), WEIGHTS)


def test_quantized_weights_become_floats(loaders: dict[str, Any], tmp_path: Path) -> None:
    with ztensor.Writer(tmp_path / "q.zt") as writer:
        writer.write("w", ztensor.Tensor.quantize(WEIGHTS, bits=8))
    model = Model()
    loaded(loaders, model, tmp_path / "q.zt")
    assert np.allclose(model.w.detach().numpy(), WEIGHTS, atol=0.02)


def test_a_flipped_bit_is_not_served(loaders: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.zt"
    ztensor.numpy.save_file({"w": WEIGHTS}, path)
    data = bytearray(path.read_bytes())
    data[ztensor.open(path).location("w").offset + 7] ^= 1
    path.write_bytes(data)
    with pytest.raises(ztensor.DigestMismatchError):
        loaded(loaders, Model(), path)


def test_a_missing_parameter_is_an_error(loaders: dict[str, Any], tmp_path: Path) -> None:
    ztensor.numpy.save_file({}, tmp_path / "empty.zt")
    with pytest.raises(ztensor.FormatError):
        loaded(loaders, Model(), tmp_path / "empty.zt")


def test_unknown_options_are_errors(loaders: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tmp"):
        loaded(loaders, Model(), tmp_path, tmp=1)


def test_names_of_the_hub_are_urls(loaders: dict[str, Any]) -> None:
    del loaders
    source_of = sys.modules["ztensor.vllm"].source_of
    of = types.SimpleNamespace
    assert source_of(of(model="org/name", revision=None)) == "hf://org/name"
    assert source_of(of(model="org/name", revision="v2")) == "hf://org/name@v2"
    assert source_of(of(model="s3://bucket/model/")) == "s3://bucket/model/"


def test_without_vllm_the_error_says_what_to_install() -> None:
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    with pytest.raises(ztensor.MissingDependencyError, match="pip install vllm"):
        importlib.import_module("ztensor.vllm")


# In a process of its own: vLLM keeps state, and warns. `argv`: a folder, and the expected outcome.
ENGINE = """
import os, sys
import torch, transformers, vllm
import ztensor.vllm

folder, expected = sys.argv[1:]
os.chdir(folder)
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    tie_word_embeddings=False, initializer_range=0.6,
)
model = transformers.LlamaForCausalLM(config).eval()
config.save_pretrained("model")
ztensor.torch.save_file(model.state_dict(), "model/model.zt")
if expected == "error":
    data = bytearray(open("model/model.zt", "rb").read())
    data[len(data) // 2] ^= 1
    open("model/model.zt", "wb").write(data)
ztensor.vllm.register()
try:
    engine = vllm.LLM(
        "model", load_format="ztensor", skip_tokenizer_init=True, dtype="float32",
        enforce_eager=True, max_model_len=64, max_num_seqs=1,
    )
except ztensor.DigestMismatchError:
    print("served:", "error")
else:
    prompt = [1, 5, 9, 20]
    how = vllm.SamplingParams(temperature=0, max_tokens=8, detokenize=False)
    tokens = engine.generate({"prompt_token_ids": prompt}, how)[0].outputs[0].token_ids
    wanted = model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)
    print("served:", "tokens" if wanted[0, 4:].tolist() == list(tokens) else "others")
"""


@pytest.mark.slow  # an engine starts, about half a minute
@pytest.mark.timeout(600)
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize("expected", ["tokens", "error"])
def test_an_engine_of_vllm(expected: str, tmp_path: Path) -> None:
    own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ENGINE, str(tmp_path), expected],
        env={**os.environ, **own, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert f"served: {expected}\n" in done.stdout, done.stdout + done.stderr
