"""What users of JAX get."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import jax
import jax.numpy as jnp

import ztensor
import ztensor.flax as zf
import ztensor.jax as zj
from ztensor import Reader, Tensor, TensorMetadata

# Any: sparse objects are BCOO and BCSR, quantized ones `ztensor.Tensor`.
Arrays = dict[str, jax.Array | Any]


def wants_arrays(arrays: dict[str, jax.Array]) -> None: ...


def dicts(path: Path, data: bytes, sharding: jax.sharding.Sharding) -> None:
    assert_type(zj.load_file(path), Arrays)
    assert_type(zf.load_file(path), Arrays)
    assert_type(zj.load(data), Arrays)
    wants_arrays(zj.load_file(path))
    zj.load_file([path], device=jax.devices()[0])["w"].block_until_ready()
    zj.load_file(path, sharding=sharding)
    zj.load_file(path, sharding={"w": sharding})
    zj.load_file(path, sharding=lambda name, struct: sharding if struct.shape else None)
    assert_type(zj.save_file({"w": jnp.ones(3)}, path), dict[str, str])
    assert_type(zj.save(zj.load_file(path)), bytes)
    assert_type(zj.load_abstract(path), dict[str, jax.ShapeDtypeStruct | TensorMetadata])


def readers(path: Path, reader: Reader, tensor: Tensor) -> None:
    assert_type(reader.read_jax("w"), jax.Array | Any)
    assert_type(reader.read_jax(["w"], device="cpu"), Arrays)
    assert_type(tensor.jax(), jax.Array | Any)
    with ztensor.safe_open(path, framework="flax") as f:
        assert_type(f.get_tensor("w"), jax.Array | Any)
        assert_type(f.get_slice("w")[0], jax.Array | Any)
