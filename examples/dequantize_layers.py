"""Run a 4-bit model layer by layer: only one layer's floats are in memory at a time.

python examples/dequantize_layers.py [folder]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import ztensor
from ztensor import Tensor
from ztensor.numpy import save_file

LAYERS, WIDTH = 8, 256


def make_model(path: Path) -> dict[str, np.ndarray]:
    """Save a stack of linear layers with four bits for each weight, and return the weights."""
    rng = np.random.default_rng(0)
    weights = {
        f"layers.{i}.weight": rng.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5
        for i in range(LAYERS)
    }
    # What `from_gptq`, `from_awq` and the others make of a checkpoint is saved just the same.
    save_file({name: Tensor.quantize(w, "nvfp4") for name, w in weights.items()}, path)
    return weights


def run(path: Path, x: np.ndarray) -> np.ndarray:
    """Send a batch through the layers; each is read and dequantized when its turn comes."""
    with ztensor.open(path) as reader:
        for i in range(LAYERS):
            weight = reader.read(f"layers.{i}.weight").dequantize()
            x = np.tanh(x @ weight.T)
    return x


def main(folder: Path) -> None:
    path = folder / "model-4bit.zt"
    weights = make_model(path)
    floats = sum(w.nbytes for w in weights.values())
    print(f"{path.name}: {path.stat().st_size:,} bytes for {floats:,} bytes of float32")
    assert path.stat().st_size < floats / 6

    x = np.random.default_rng(1).standard_normal((4, WIDTH), np.float32)
    exact = x
    for w in weights.values():
        exact = np.tanh(exact @ w.T)
    found = run(path, x)
    alike = float(np.corrcoef(found.ravel(), exact.ravel())[0, 1])
    print(f"{LAYERS} layers, one at a time: {alike:.3f} correlated with what the floats give")
    assert alike > 0.9

    with ztensor.open(path) as reader:
        rows = reader.get_slice("layers.0.weight")[64:128]
        whole = reader.read("layers.0.weight").dequantize()
        assert isinstance(rows, Tensor)  # to type checkers it may be an array
        same = np.array_equal(rows.dequantize(), whole[64:128])
        print(f"rows 64 to 128 alone: {rows.nbytes:,} bytes, {'equal' if same else 'DIFFERENT'}")
        assert same


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
