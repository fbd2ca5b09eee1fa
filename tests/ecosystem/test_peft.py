"""peft: adapters saved and loaded by us against the library's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import ztensor
from tests.ecosystem.libraries import Lazy, flipped, peft, refused_by, torch, transformers

face: Any = Lazy("ztensor.peft")


def base() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**sizes, num_attention_heads=4, pad_token_id=0)
    ).eval()


def adapted(kind: str = "lora") -> Any:
    config = {
        "lora": lambda: peft.LoraConfig(
            r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
        ),
        "dora": lambda: peft.LoraConfig(r=4, target_modules=["q_proj"], use_dora=True),
        "saved": lambda: peft.LoraConfig(
            r=4, target_modules=["q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM"
        ),
        "ia3": lambda: peft.IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]
        ),
    }[kind]()
    model = peft.get_peft_model(base(), config)
    torch.manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(torch.randn_like(value) * 0.1)
    return model.eval()


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(input_ids=torch.arange(12).reshape(2, 6)).logits


@pytest.mark.parametrize("kind", ["lora", "dora", "saved", "ia3"])
def test_an_adapter_saved_and_loaded_by_us(kind: str, tmp_path: Path) -> None:
    model = adapted(kind)
    face.save_pretrained(model, tmp_path / "ours")
    model.save_pretrained(tmp_path / "stock")
    with (
        ztensor.open(tmp_path / "ours" / "adapter_model.zt") as ours,
        ztensor.open(tmp_path / "stock" / "adapter_model.safetensors") as stock,
    ):
        assert set(ours) == set(stock)
    expected = logits(model)
    assert not torch.equal(expected, logits(base()))
    for folder in ("ours", "stock"):
        loaded = face.from_pretrained(base(), tmp_path / folder)
        assert type(loaded) is type(model)
        assert torch.equal(logits(loaded), expected)
        assert not any(value.requires_grad for value in loaded.parameters())


def test_an_adapter_is_trained_further(tmp_path: Path) -> None:
    face.save_pretrained(adapted(), tmp_path)
    loaded = face.from_pretrained(base(), tmp_path, is_trainable=True)
    assert loaded.training or any(value.requires_grad for value in loaded.parameters())
    loaded(input_ids=torch.arange(6)[None]).logits.sum().backward()
    assert any(value.grad is not None for value in loaded.parameters())


def test_quantized_weights_become_floats(tmp_path: Path) -> None:
    face.save_pretrained(adapted(), tmp_path)
    file = tmp_path / "adapter_model.zt"
    ztensor.convert(file, tmp_path / "q.zt", quantize="int8 g4")
    os.replace(tmp_path / "q.zt", file)
    loaded = face.from_pretrained(base(), tmp_path, dequantize=True)
    face.save_pretrained(loaded, tmp_path / "again")
    expected = ztensor.torch.load_file(file, dequantize=True)
    again = ztensor.torch.load_file(tmp_path / "again" / "adapter_model.zt")
    assert expected.keys() == again.keys()
    assert all(value.equal(expected[name]) for name, value in again.items())


def test_two_adapters(tmp_path: Path) -> None:
    model = adapted()
    face.save_pretrained(model, tmp_path)
    loaded = face.from_pretrained(
        face.from_pretrained(base(), tmp_path), tmp_path, adapter_name="second"
    )
    assert set(loaded.peft_config) == {"default", "second"}
    loaded.set_adapter("second")
    assert torch.equal(logits(loaded), logits(model))


def test_a_folder_converted_there_and_back(tmp_path: Path) -> None:
    model = adapted()
    model.save_pretrained(tmp_path / "stock")
    ztensor.convert_folder(tmp_path / "stock", tmp_path / "ours", to="zt")
    ztensor.convert_folder(tmp_path / "ours", tmp_path / "back", to="safetensors")
    expected = logits(model)
    assert torch.equal(logits(face.from_pretrained(base(), tmp_path / "ours")), expected)
    back = peft.PeftModel.from_pretrained(base(), str(tmp_path / "back"))
    assert torch.equal(logits(back), expected)


def refused(folder: Path, *parts: str, **options: Any) -> None:
    refused_by(face, base(), folder, parts=parts, **options)


def test_missing_weights_are_named(tmp_path: Path) -> None:
    face.save_pretrained(adapted(), tmp_path)
    tensors = ztensor.torch.load_file(tmp_path / "adapter_model.zt", copy=True)
    name = next(iter(tensors))
    del tensors[name]
    ztensor.torch.save_file(tensors, tmp_path / "adapter_model.zt")
    refused(tmp_path, "layers.0.self_attn")


@pytest.mark.parametrize("is_trainable", [False, True])
def test_a_flipped_bit_is_named(is_trainable: bool, tmp_path: Path) -> None:
    face.save_pretrained(adapted(), tmp_path)
    file = tmp_path / "adapter_model.zt"
    refused(tmp_path, file.name, flipped(file), is_trainable=is_trainable)


@pytest.mark.parametrize("values", [{}, {"peft_type": "NOTHING"}, {"peft_type": "LORA", "r": "x"}])
def test_a_malformed_config(tmp_path: Path, values: dict[str, Any]) -> None:
    face.save_pretrained(adapted(), tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(values))
    refused(tmp_path)


def test_only_adapters_are_loaded_and_saved(tmp_path: Path) -> None:
    refused(tmp_path, "adapter_config.json")
    with pytest.raises(ztensor.errors.ArgumentTypeError):
        face.from_pretrained({}, tmp_path)
    with pytest.raises(ztensor.errors.ArgumentTypeError):
        face.save_pretrained(base(), tmp_path)
    with pytest.raises(ztensor.errors.UsageError):
        face.save_pretrained(adapted(), tmp_path, adapter_name="second")
