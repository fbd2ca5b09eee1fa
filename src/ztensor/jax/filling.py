"""`load_sharded`: load a tree of arrays, in each process its own shards.

The leaves of a tree of the same structure have the shape, element type and sharding of each array.
All of them are compared with the source before data is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ztensor import Tensor, TensorMetadata
from ztensor import open as open_files
from ztensor.distributed.jax import is_leaf, named_leaves
from ztensor.distributed.opened import DividedObjects
from ztensor.errors import ArgumentValueError, describe
from ztensor.ext import ObjectReader
from ztensor.jax.shards import abstract, fitting, sharded
from ztensor.jax.values import placed, require_held
from ztensor.options import OpenOptions, require_options
from ztensor.typing import Readable

Tree = TypeVar("Tree")

_SPARSE = {"BCOO": "sparse_coo", "BCSR": "sparse_csr"}


def load_sharded(
    source: Readable,
    like: Tree,
    *,
    names: Callable[[str], str] | None = None,
    strict: bool = True,
    cast: bool = False,
    threads: int | None = None,
    **options: Unpack[OpenOptions],
) -> Tree:
    """Load a tree of arrays with the shardings of another tree, each process only its own shards.

    It is the inverse of `save_sharded`, and reads any other file, too, if its objects have the
    names of the leaves; see `leaf_names`. Nothing is read if names, shapes, types or shardings do
    not fit. Processes do not wait for one another.

    Args:
        source: anything `ztensor.open` takes, or an open reader.
        like: a tree of `jax.Array`s or `jax.ShapeDtypeStruct`s with shardings, such as
            `jax.eval_shape` returns; the arrays may be deleted. An array that is not committed to
            its device, or a `ShapeDtypeStruct` without a sharding, is loaded to JAX's default
            device. Arrays of NumPy are loaded as such, sparse matrices and `ztensor.Tensor`s as a
            whole. Other leaves are plain values, as a distributed checkpoint has them. A number may
            be an array without axes in the source, and the other way round.
        names: a function from the name of a leaf to the name in the source.
        strict: False ignores objects that the tree lacks, and keeps the leaves that the source
            lacks as they are; a `ShapeDtypeStruct` has no elements to keep, and is an error.
        cast: True converts the elements to the types of the leaves: to floats, integers to wider
            ones. Otherwise a different type is an error.
        threads: how many read or decompress the shards of an array.
        options: see `ztensor.typing.OpenOptions`.

    Returns:
        A tree of the same structure: each array has shape, element type and sharding of its leaf,
        and memory of its own. Digests are checked where an object, or a chunk of a distributed
        checkpoint, is read completely; with `verify=True` everywhere.

    Raises:
        ArgumentValueError: the source lacks leaves of the tree, or has more objects; two leaves
            have one name; a layout, element type or shape differs, or a sharding does not fit it.
        NotRepresentableError: JAX cannot hold an element type.
        FormatError: the source is damaged.
        SourceError: it cannot be read.
    """
    require_options("load_sharded", options, OpenOptions)
    reader = source if isinstance(source, ObjectReader) else open_files(source, **options)
    with contextlib.nullcontext() if reader is source else reader:
        leaves = dict(named_leaves(like))
        wanted = _wanted(reader, leaves, names or str, strict=strict)
        for name, own in wanted.items():
            _require_fit(reader, own, name, leaves[name], cast=cast)
        leaves |= _loaded(reader, wanted, leaves, threads)
    structure = jax.tree_util.tree_structure(like, is_leaf=is_leaf)
    tree: Tree = jax.tree_util.tree_unflatten(structure, leaves.values())
    return tree


def _wanted(
    reader: ObjectReader, leaves: dict[str, Any], rename: Callable[[str], str], *, strict: bool
) -> dict[str, str]:
    """Put plain values in the place of leaves; return the objects of the other leaves.

    Raises:
        ArgumentValueError: the names differ.
    """
    file = reader.objects.parts()[0]
    values: Mapping[str, Any] = {}
    left, missing, wanted = dict.fromkeys(reader), [], {}
    if isinstance(file, DividedObjects):
        values = file.root.values
        left = {name: None for name in reader if name not in file.value_arrays}
    for name, leaf in leaves.items():
        own = rename(name)
        if hasattr(leaf, "dtype") and own in reader:
            wanted[name] = own
        elif (value := _plain(leaf, values.get(own))) is not None:
            leaves[name] = value
        elif type(leaf) in (bool, int, float) and own in left and not reader.metadata(own).shape:
            leaves[name] = reader.read_numpy(own).item()
        elif strict or isinstance(leaf, jax.ShapeDtypeStruct):
            missing.append(own)
        left.pop(own, None)
    if missing or (left and strict):
        error = ArgumentValueError(
            "the source has other names than the tree",
            file=reader.name,
            expected=describe(missing, 400) if missing else "no more",
            found=describe([*left], 400) if left else None,
        )
        error.hint = "names= renames the leaves, strict=False loads those that are there"
        raise error
    return wanted


def _plain(leaf: Any, value: Any) -> Any:
    """Return a plain value for a leaf, None if it has none: a number for an array without axes."""
    if not hasattr(leaf, "dtype"):
        return value
    kind = {int: jnp.number, float: jnp.inexact, bool: jnp.bool_}.get(type(value))
    if leaf.shape != () or kind is None or not jnp.issubdtype(leaf.dtype, kind):
        return None
    array, sharding = np.asarray(value, leaf.dtype), _sharding_of(leaf)
    if sharding is None:
        return array[()] if isinstance(leaf, (np.ndarray, np.generic)) else jnp.asarray(array)
    return jax.make_array_from_callback((), sharding, lambda _: array)


def _require_fit(reader: ObjectReader, own: str, name: str, leaf: Any, *, cast: bool) -> None:
    """Compare an object with the leaf `name`.

    Raises:
        ArgumentValueError: layout, element type or shape differ, or the sharding does not fit.
        NotRepresentableError: JAX lacks the element type.
    """
    expected, found = _described(leaf), _described(abstract(reader, own))
    is_cut = found["type"] != expected["type"] and _is_cut(found["type"], expected["type"])
    is_other_type = expected["type"] != found["type"] and not is_cut
    if cast and found["layout"] == "dense" and not is_cut:
        found["type"] = expected["type"]
    if expected != found:
        error = ArgumentValueError(
            f"the source does not fit the leaf {describe(name)}",
            file=reader.name,
            object_name=own,
            expected=" ".join(expected.values()),
            found=" ".join(found.values()),
        )
        error.hint = "cast=True converts the elements" if is_other_type else None
        raise error
    if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)):
        require_held(leaf.dtype, own, reader.name)
    sharding = _sharding_of(leaf)
    if sharding is not None:
        with fitting(sharding, leaf.shape, own, reader.name):
            sharding.shard_shape(leaf.shape)
            sharding.addressable_devices_indices_map(leaf.shape)


def _is_cut(found: str, wanted: str) -> bool:
    """Return whether a cast may change values by more than rounding them."""
    if not wanted.startswith(("int", "uint", "bool")):
        return "complex" in found and "complex" not in wanted
    is_integer = found.startswith(("int", "uint", "bool"))
    return not (is_integer and np.can_cast(jnp.dtype(found), jnp.dtype(wanted)))


def _described(value: Any) -> dict[str, str]:
    """Return layout, element type and shape of a leaf, or of an object as `abstract` gives it."""
    has_layout = isinstance(value, (Tensor, TensorMetadata))
    layout = value.format if has_layout else _SPARSE.get(type(value).__name__, "dense")
    dtype = getattr(value.dtype, "name", value.dtype)
    return {"layout": layout, "type": str(dtype), "shape": str(list(value.shape))}


def _sharding_of(leaf: Any) -> Any:
    """Return the sharding of a leaf; None for JAX's default device, and for leaves not of JAX."""
    return getattr(leaf, "sharding", None) if getattr(leaf, "committed", True) else None


def _loaded(
    reader: ObjectReader, wanted: Mapping[str, str], leaves: Mapping[str, Any], threads: int | None
) -> dict[str, Any]:
    """Return the arrays of leaves by name, from the objects of `wanted`."""
    loaded: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    for name, own in wanted.items():
        leaf, sharding = leaves[name], _sharding_of(leaves[name])
        if sharding is not None:
            how: Any = {"copy": True, "threads": threads, "dtype": leaf.dtype}
            loaded[name] = sharded(reader, own, abstract(reader, own), sharding, **how)
            continue
        value: Any = reader.read(own, copy=True)
        if value.format == "dense" and not isinstance(leaf, Tensor):
            value = value.numpy().astype(leaf.dtype, copy=False)
        if isinstance(leaf, (np.ndarray, np.generic, Tensor)):
            loaded[name] = value[()] if isinstance(leaf, np.generic) else value
        else:
            whole[name] = value
    return loaded | placed(whole, None, reader.name)
