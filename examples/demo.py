"""Save a checkpoint, map it, slice it, verify it, and find the damage in a broken copy.

python examples/demo.py [model]

Without a model of yours it makes one shaped like GPT-2 small: 124 million bfloat16 parameters, and
a sparse, an fp8 and a quantized matrix beside them. It needs free space of twice the tensors.
Everything that is loaded is compared with the original, bit for bit.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import ztensor
from ztensor.numpy import load_file, save_file

VOCABULARY, CONTEXT, WIDTH, LAYERS = 50257, 1024, 768, 12


def make_checkpoint() -> dict[str, Any]:
    n = WIDTH
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (VOCABULARY, n), "wpe.weight": (CONTEXT, n)}
    for layer in range(LAYERS):
        for name, shape in {
            "attn.c_attn.weight": (n, 3 * n),
            "attn.c_proj.weight": (n, n),
            "ln_1.weight": (n,),
            "ln_2.weight": (n,),
            "mlp.c_fc.weight": (n, 4 * n),
            "mlp.c_proj.weight": (4 * n, n),
        }.items():
            shapes[f"h.{layer}.{name}"] = shape
    random = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        name: (random.standard_normal(shape, np.float32) * 0.02).astype(ml_dtypes.bfloat16)
        for name, shape in shapes.items()
    }
    matrix = tensors["h.0.mlp.c_fc.weight"].astype(np.float32)
    rows, columns = np.nonzero(np.abs(matrix) > 0.033)  # a tenth of it
    pointers = np.searchsorted(rows, np.arange(len(matrix) + 1))
    tensors["sparse"] = ztensor.Tensor.csr(matrix[rows, columns], columns, pointers, matrix.shape)
    tensors["fp8"] = matrix.astype(ml_dtypes.float8_e4m3fn)
    tensors["int4"] = ztensor.Tensor.quantize(matrix, bits=4, group_size=128)
    return tensors


def timed(operation: str, nbytes: int, work: Callable[[], Any]) -> Any:
    begin = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - begin
    print(
        f"{operation:34} {nbytes / 1e6:8.1f} MB {seconds:9.4f} s"
        f" {nbytes / seconds / 1e6:9,.0f} MB/s"
    )
    return result


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, ztensor.Tensor):
        parts = one.components
        return one.shape == other.shape and all(
            is_same(parts[role], other.components[role]) for role in parts
        )
    if one.dtype.kind in "iu":  # the indices of sparse tensors are stored as 64 bits
        return np.array_equal(one, other)
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def require_same(tensors: Mapping[str, Any], loaded: Mapping[str, Any]) -> None:
    assert tensors.keys() == loaded.keys()
    for name, tensor in tensors.items():
        assert is_same(tensor, loaded[name]), f"{name} is DIFFERENT"


def save_and_load(tensors: Mapping[str, Any], folder: Path) -> None:
    nbytes = sum(tensor.nbytes for tensor in tensors.values())
    print(f"{len(tensors)} tensors, {nbytes / 1e6:.1f} MB in memory")
    raw, packed = folder / "raw.zt", folder / "compressed.zt"
    timed("save raw, with digests", nbytes, lambda: save_file(tensors, raw))
    timed("save compressed by zstd", nbytes, lambda: save_file(tensors, packed, compression=True))
    mapped = timed("load mapped, nothing read yet", nbytes, lambda: load_file(raw))
    require_same(tensors, mapped)
    del mapped
    for path in (raw, packed):
        copies = timed(
            f"load copies of {path.name}",
            nbytes,
            lambda: load_file(path, copy=True),  # noqa: B023
        )
        require_same(tensors, copies)
        report = timed(f"verify {path.name}", path.stat().st_size, ztensor.open(path).verify)
        assert report.ok
    packed.unlink()


def read_rows(tensors: Mapping[str, Any], path: Path) -> None:
    dense = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, np.ndarray)}
    name = max(dense, key=lambda name: dense[name].nbytes if dense[name].ndim else -1)
    if not dense[name].ndim:
        return
    middle = len(dense[name]) // 2
    rows = slice(middle, middle + 8)
    with ztensor.open(path, mmap=False) as reader:
        part = timed(
            "read 8 rows of the largest",
            dense[name][rows].nbytes,
            lambda: reader.get_slice(name)[rows],
        )
    assert is_same(dense[name][rows], part)


def flip_a_bit(path: Path) -> None:
    with ztensor.open(path) as reader:
        name = max(reader, key=lambda name: reader.metadata(name).stored_nbytes)
        role = next(iter(reader.metadata(name).components))
        place = reader.location(name, role)
    with path.open("r+b") as file:
        file.seek(place.offset + place.length // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    print(f"one bit of {name!r} is flipped")
    with ztensor.open(path) as reader:
        (problem,) = reader.verify().problems
        assert problem.object_name == name
        print(f"  verify says  {problem.message}")
        try:
            reader.read(name, copy=True)
        except ztensor.DigestMismatchError as error:
            print(f"  reading says {error.message}")
        else:
            raise AssertionError("a damaged tensor was read")


def main() -> None:
    tensors = dict(ztensor.open(sys.argv[1])) if len(sys.argv) > 1 else make_checkpoint()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        save_and_load(tensors, folder)
        read_rows(tensors, folder / "raw.zt")
        flip_a_bit(folder / "raw.zt")
    print("ok: saved raw and compressed, loaded mapped and copied, bit for bit the same")


if __name__ == "__main__":
    main()
