"""Write one dict as 0.1.0, 1.1.0 and 1.2.0, read each back, and see what each version can hold.

python examples/three_versions.py [folder]
"""

import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np

import ztensor
from ztensor.numpy import load_file, save_file

VERSIONS = ("0.1.0", "1.1.0", "1.2.0")

# What every version holds: arrays of the thirteen storage types.
tensors = {
    "embed.weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
    "embed.bias": np.array([0.5, -2, 8], ml_dtypes.bfloat16),
    "step": np.array(1200),
    "mask": np.array([[True, False], [False, True]]),
    "empty": np.zeros((0, 8), np.float16),
}

# What some hold.
extras = {
    "fp8": np.array([1, -448], ml_dtypes.float8_e4m3fn),
    "AMD's fp8": np.array([1, -240], ml_dtypes.float8_e4m3fnuz),
    "complex": np.array([1 + 2j, -1j], np.complex64),
    "sparse": ztensor.Tensor.csr([1.5, 2.5], [2, 0], [0, 1, 2], (2, 3)),
    "4-bit": ztensor.Tensor.quantize(np.eye(8, dtype=np.float32), bits=4, group_size=8),
}


def main(folder: Path) -> None:
    for version in VERSIONS:
        path = folder / f"model-{version}.zt"
        save_file(tensors, path, version=version)
        with ztensor.open(path) as reader:
            report = reader.verify()
            print(f"{path.name}: version {reader.version}, {path.stat().st_size} bytes, ", end="")
            print(f"{len(reader)} tensors, {report.checked} digests right")
            assert reader.version == version
            assert report.ok
        loaded = load_file(path)
        for name, array in tensors.items():
            same = loaded[name].dtype == array.dtype and loaded[name].shape == array.shape
            same = same and loaded[name].tobytes() == array.tobytes()
            print(f"  {name:14} {array.dtype.name:10} {array.shape!s:8} ", end="")
            print("equal" if same else "DIFFERENT")
            assert same
        for name, value in extras.items():
            try:
                save_file({name: value}, folder / "extra.zt", version=version)
            except ztensor.NotRepresentableError as error:
                print(f"  {name:14} not in this version: {error.message}")
            else:
                print(f"  {name:14} holds it")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
