"""The arithmetic of group quantization: small integers packed in words, and back to floats.

Read `scheme.py` (every convention, and the sizes that follow from it), then

- `namespace.py` (what is asked of an array library), `unpacking.py` (words to integers) and
  `dequantizing.py` (integers to floats), written once for NumPy and PyTorch;
- `quantizing.py` (floats to groups) and `recipes.py` (floats to what named formats store);
- `checkpoints.py` (tensors of GPTQ, AWQ and other checkpoints to objects) and `floats.py` (objects
  of a file to floats, a piece at a time);
- the layouts: `groups.py` (`quantized_group`), `group_profiles.py` (those of 2.x) and
  `gguf_blocks.py` (those of ggml, by `gguf_decoding.py` and `gguf_grids.py`).

`docs/guides/quantized.md` is the page about the conventions.
"""
