"""Keep a transformers model in .zt shards, and load it again in three ways.

Needs transformers and torch; the model is a tiny random one, so nothing is downloaded.
"""

import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import ztensor
from ztensor.torch import load_file, load_pretrained, save_pretrained

config = LlamaConfig(
    vocab_size=500,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
torch.manual_seed(0)
model = LlamaForCausalLM(config).eval()
tokens = torch.arange(12).reshape(2, 6)
with torch.no_grad():
    expected = model(tokens).logits

# Weights as .zt shards beside the configuration. Tied weights are stored once, in one shard.
config.save_pretrained("llama")
shared = save_pretrained(model, "llama", max_shard_size="200KB")
print("files:", *sorted(os.listdir("llama")))
print("tied:", shared)

# A model of the same shape takes the weights over.
torch.manual_seed(1)
other = LlamaForCausalLM(LlamaConfig.from_pretrained("llama")).eval()
missing, unexpected = load_pretrained(other, "llama")
with torch.no_grad():
    same = torch.equal(other(tokens).logits, expected)
print("missing:", missing, "unexpected:", unexpected, "logits:", "equal" if same else "DIFFERENT")

# transformers itself takes a dict: weights are then views of the files, read where touched.
mapped = LlamaForCausalLM.from_pretrained(
    None, config=LlamaConfig.from_pretrained("llama"), state_dict=load_file("llama")
).eval()
with torch.no_grad():
    same = torch.equal(mapped(tokens).logits, expected)
print("from a state dict:", "equal" if same else "DIFFERENT")

# One rank of two reads its rows of one weight, out of the one shard that has it.
with ztensor.safe_open("llama", framework="pt") as f:
    part = f.get_slice("model.layers.3.mlp.up_proj.weight")
    rows, columns = part.get_shape()
    half = part[rows // 2 :]
whole = model.state_dict()["model.layers.3.mlp.up_proj.weight"]
print("half a weight:", tuple(half.shape), torch.equal(half, whole[rows // 2 :]) or "DIFFERENT")
