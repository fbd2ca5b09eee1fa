"""Group quantization: small integers packed in words, and back to floats.

| module | content |
| --- | --- |
| `scheme.py` | every convention as an attribute, and the shapes of components |
| `namespace.py` | operations that an array library must offer |
| `unpacking.py`, `dequantizing.py` | words to integers to floats, for NumPy and PyTorch |
| `quantizing.py`, `recipes.py` | floats to groups, and to named formats |
| `checkpoints.py` | tensors of GPTQ, AWQ and other checkpoints to objects |
| `floats.py` | objects of a file to floats, in blocks of bounded size |
| `groups.py` | the layout `quantized_group` |
| `group_profiles.py` | the layouts of 2.x |
| `gguf_blocks.py` | the layouts of ggml, with `gguf_decoding.py` and `gguf_grids.py` |

`docs/guides/quantized.md` is the page about the conventions.
"""
