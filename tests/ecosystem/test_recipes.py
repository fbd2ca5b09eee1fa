"""transformers: the recipes of the examples against models of the library, and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ztensor
from tests.ecosystem.libraries import Lazy, torch, transformers

ours: Any = Lazy("ztensor.torch")
RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
SIZES = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
EXPERTS = {"moe_intermediate_size": 24, "num_experts": 12, "num_experts_per_tok": 2}


def llama() -> Any:
    config = transformers.LlamaConfig(**SIZES, **HEADS)
    return transformers.LlamaForCausalLM(config)


def qwen_2_moe() -> Any:
    config = transformers.Qwen2MoeConfig(
        **SIZES, **HEADS, **EXPERTS, shared_expert_intermediate_size=40
    )
    return transformers.Qwen2MoeForCausalLM(config)


def qwen_3_moe() -> Any:
    config = transformers.Qwen3MoeConfig(**SIZES, **HEADS, **EXPERTS, head_dim=8)
    return transformers.Qwen3MoeForCausalLM(config)


def gpt2() -> Any:
    sizes = {"vocab_size": 96, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


MODELS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "llama": (llama, ["llama_fused", "llama_megatron", "llama_meta"]),
    "qwen2-moe": (qwen_2_moe, ["qwen_moe"]),
    "qwen3-moe": (qwen_3_moe, ["qwen_moe"]),
    "gpt2": (gpt2, ["gpt2"]),
}
CASES = [(kind, recipe) for kind, (_, recipes) in MODELS.items() for recipe in recipes]


def made(kind: str) -> Any:
    torch.manual_seed(0)
    model = MODELS[kind][0]().eval().to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms begin with equal elements
            parameter.add_(torch.randn_like(parameter) / 8)
    return model


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(input_ids=torch.arange(12).reshape(2, 6)).logits


@pytest.mark.parametrize("shards", ["5GB", "20KB"])
@pytest.mark.parametrize(("kind", "recipe"), CASES)
def test_there_and_back_is_the_same_file(
    kind: str, recipe: str, shards: str, tmp_path: Path
) -> None:
    model, path = made(kind), RECIPES / f"{recipe}.toml"
    model.save_pretrained(tmp_path / "old", max_shard_size=shards)
    model.save_pretrained(tmp_path / "whole")
    ztensor.convert(tmp_path / "old", tmp_path / "new.zt", recipe=path, check=True)
    back = tmp_path / "old" / "model.safetensors"
    for shard in (tmp_path / "old").glob("*.safetensors*"):
        shard.unlink()
    ztensor.convert(tmp_path / "new.zt", back, recipe=path, reverse=True)
    assert back.read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()
    one, other = (type(model).from_pretrained(tmp_path / name) for name in ("whole", "old"))
    assert torch.equal(logits(one), logits(other))


@pytest.mark.parametrize("kind", ["qwen2-moe", "qwen3-moe"])
def test_stacked_experts_are_the_state_of_the_module(kind: str, tmp_path: Path) -> None:
    model = made(kind)
    model.save_pretrained(tmp_path)
    ztensor.convert(tmp_path, tmp_path / "new.zt", recipe=RECIPES / "qwen_moe.toml")
    state, expected = ours.load_file(tmp_path / "new.zt"), model.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in state)
    other = MODELS[kind][0]().eval().to(torch.bfloat16)
    other.load_state_dict(state)
    assert torch.equal(logits(other), logits(model))


def separate(width: int) -> Any:
    """Return a module of q, k and v as three linear layers, in the place of `c_attn`."""

    class Separate(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name in ("q_proj", "k_proj", "v_proj"):
                setattr(self, name, torch.nn.Linear(width, width))

        def forward(self, x: Any) -> Any:
            return torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], -1)

    return Separate()


def test_gpt2_with_linear_layers_has_the_same_logits(tmp_path: Path) -> None:
    model = made("gpt2").to(torch.float32)
    model.save_pretrained(tmp_path)
    ztensor.convert(tmp_path, tmp_path / "new.zt", recipe=RECIPES / "gpt2.toml")
    other = gpt2().eval()
    for block in other.transformer.h:
        block.attn.c_attn = separate(32)
        block.attn.c_proj = torch.nn.Linear(32, 32)
        block.mlp.c_fc, block.mlp.c_proj = torch.nn.Linear(32, 128), torch.nn.Linear(128, 32)
    state = ours.load_file(tmp_path / "new.zt")
    renamed = {
        re.sub(r"attn\.([qkv]_proj)", r"attn.c_attn.\1", name): state[name] for name in state
    }
    report = other.load_state_dict(renamed, strict=False)
    assert report.missing_keys == ["lm_head.weight"]  # tied
    assert not report.unexpected_keys
    torch.testing.assert_close(logits(other), logits(model))


def test_fused_llama_computes_the_same(tmp_path: Path) -> None:
    """The rows of fused matrices give the outputs of the separate layers."""
    model = made("llama").to(torch.float32)
    model.save_pretrained(tmp_path)
    x = torch.randn(5, 32)
    layer = model.model.layers[1]
    attention = layer.self_attn
    with torch.no_grad():
        q, k, v = (one(x) for one in (attention.q_proj, attention.k_proj, attention.v_proj))
        gate_up = torch.cat([layer.mlp.gate_proj(x), layer.mlp.up_proj(x)], -1)
    turned = [one.unflatten(-1, (heads, 2, -1)).mT.flatten(1) for one, heads in ((q, 4), (k, 2))]
    grouped = torch.cat([one.unflatten(-1, (2, -1)) for one in (q, k, v)], -1).flatten(1)
    expected = {
        "llama_fused": {
            "model.layers.1.self_attn.qkv_proj.weight": torch.cat([q, k, v], -1),
            "model.layers.1.mlp.gate_up_proj.weight": gate_up,
        },
        "llama_megatron": {
            "decoder.layers.1.self_attention.linear_qkv.weight": grouped,
            "decoder.layers.1.mlp.linear_fc1.weight": gate_up,
        },
        "llama_meta": {
            "layers.1.attention.wq.weight": turned[0],
            "layers.1.attention.wk.weight": turned[1],
        },
    }
    for recipe, outputs in expected.items():
        new = tmp_path / "new" / f"{recipe}.zt"
        new.parent.mkdir(exist_ok=True)
        ztensor.convert(tmp_path, new, recipe=RECIPES / f"{recipe}.toml")
        state = ours.load_file(new)
        for name, output in outputs.items():
            torch.testing.assert_close(x @ state[name].T, output)
