"""Save and load dicts of JAX arrays, under the names safetensors gave these functions.

Dense objects are `jax.Array`s, sparse ones `BCOO` and `BCSR` of `jax.experimental.sparse`.
Objects of quantized or unknown layouts stay `ztensor.Tensor`s.

JAX narrows 64-bit elements to 32 bits unless `jax_enable_x64` is set. These functions refuse such
objects instead, and the message says how to load them.

`values.py` converts one value to its stored form and back, `shards.py` reads the shards of an
object, `filling.py` loads all leaves of a tree, `exchange.py` sends bytes between processes.
`adapter.py` is the adapter of the table of frameworks, and `trees.py` has nested states.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ztensor import Reader, Tensor, TensorMetadata
from ztensor import open as open_files
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MissingDependencyError,
    ZTensorError,
    describe,
)
from ztensor.ext import FileObjects, ObjectReader, Registry, load_files
from ztensor.numpy import save as save_arrays
from ztensor.numpy import save_file as save_array_file
from ztensor.options import (
    LoadOptions,
    OpenOptions,
    SaveOptions,
    WriteOptions,
    for_load_files,
    opening,
    require_bytes,
    require_options,
)
from ztensor.typing import Bytes, JaxDevice, JaxSharding, Openable, Target

try:
    import jax
except ImportError as error:
    raise MissingDependencyError("ztensor.jax needs JAX", install="jax") from error

from ztensor.jax.shards import abstract, sharded
from ztensor.jax.values import (
    is_copied,
    is_on_cpu,
    is_value,
    named_device,
    no_jax_value,
    placed,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from ztensor.distributed.jax import BackgroundSave, leaf_names, save_sharded
    from ztensor.jax.filling import load_sharded
    from ztensor.jax.trees import load_tree, save_tree
else:  # checkpoints and training states take as long to import as all else
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.distributed.jax": "BackgroundSave leaf_names save_sharded",
            "ztensor.jax.filling": "load_sharded",
            "ztensor.jax.trees": "load_tree save_tree",
        },
    )

__all__ = [
    "BackgroundSave",
    "leaf_names",
    "load",
    "load_abstract",
    "load_file",
    "load_sharded",
    "load_tree",
    "save",
    "save_file",
    "save_sharded",
    "save_tree",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def save_file(
    tensors: Mapping[str, object],
    filename: Target,
    metadata: Mapping[str, object] | None = None,
    *,
    compression: bool | int | str = False,
    **options: Unpack[SaveOptions],
) -> dict[str, str]:
    """Save a dict of JAX arrays as one file; an old file is replaced atomically.

    Arrays in the CPU's memory are written without a copy; arrays of other devices, or sharded over
    devices of this process, are copied to it first.

    Args:
        tensors: names to `jax.Array`s; also NumPy arrays, `ztensor.Tensor`s, `BCOO` and `BCSR`.
            The dict is flat: flatten a tree of dicts first.
        filename: the file; also a file object open for writing bytes.
        metadata: key-value pairs of the file, its attributes; the page Reference lists allowed
            values.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level;
            for `"planes"` see `ztensor.typing.ModelOptions`.
        options: see `ztensor.typing.SaveOptions`.

    Returns:
        Aliases: names that share stored bytes with another name, and that name.

    Raises:
        NotRepresentableError: an array cannot be stored: a PRNG key, 4-bit integers, a batched
            sparse matrix, or an array distributed over other processes. No file appears.
        ArgumentTypeError: `tensors` is not a mapping, or holds trees, traced or deleted arrays.
        SourceError: the file could not be written. The old file is still there.
    """
    require_options("save_file", options, SaveOptions)
    stored = _stored(tensors)
    return save_array_file(stored, filename, metadata, compression, **options)


def save(
    tensors: Mapping[str, object],
    metadata: Mapping[str, object] | None = None,
    *,
    compression: bool | int | str = False,
    deduplicate: Literal["memory", "content", False] = "memory",
    **options: Unpack[WriteOptions],
) -> bytes:
    """Return the bytes `save_file` would write; see there."""
    require_options("save", options, WriteOptions)
    return save_arrays(_stored(tensors), metadata, compression, deduplicate=deduplicate, **options)


def load_file(
    filename: Openable,
    *,
    device: JaxDevice | None = None,
    sharding: JaxSharding | None = None,
    copy: bool = False,
    **options: Unpack[LoadOptions],
) -> dict[str, jax.Array | Any]:
    """Load all objects of a file, or of a model in several files.

    Args:
        filename: the file; or an index, a folder or a list of paths, as `ztensor.open` takes them.
        device: a `jax.Device` or a name such as `"cpu"` or `"cuda:1"`; JAX's default by default.
        sharding: a `Sharding` for every object, a mapping from names to them, or a function of
            a dense object's name and its `jax.ShapeDtypeStruct`. Each device then reads only its
            shard. Without an entry of a mapping, or for None of a function, JAX's default device
            is used; a function is called for dense objects only.
        copy: False lets large arrays on the CPU be views of the mapped file, unchecked: nothing is
            read until it is used, and the file must not be changed in place meanwhile. True gives
            each array its own memory.
        options: see `ztensor.typing.LoadOptions`. By default `verify` checks objects that are
            copied completely, also to a device; it does not check views and shards.

    Returns:
        Names to `jax.Array`s, and to `BCOO`, `BCSR` or `ztensor.Tensor`; `save_file` takes the
        same dict.

    Raises:
        NotRepresentableError: JAX cannot hold an object unchanged: 64-bit elements while
            `jax_enable_x64` is not set, an unknown element type, a sharding of a sparse object.
        ArgumentValueError: the device does not exist, or a sharding does not fit a shape.
        ObjectNotFoundError: `sharding` names a missing object, or no name matches `only`.
        FormatError: the file is damaged or not a zTensor file.
        UnsupportedError: a type or encoding is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read; also a `FileNotFoundError` or `PermissionError`.
    """
    require_options("load_file", options, LoadOptions)
    with open_files(filename, **opening(options)) as reader:
        how = for_load_files(options, reader.objects, operator.methodcaller("dequantize"))
        return _load(reader, device, sharding, copy=copy, **how)


def load(
    data: Bytes,
    *,
    device: JaxDevice | None = None,
    sharding: JaxSharding | None = None,
    copy: bool = True,
    verify: bool | None = None,
    threads: int | None = None,
) -> dict[str, jax.Array | Any]:
    """Load all objects from bytes; see `load_file`.

    Args:
        data: a bytes-like object.
        device: as in `load_file`.
        sharding: as in `load_file`.
        copy: False lets arrays share the memory of `data`, which then must not change.
        verify: None checks digests of objects that are copied completely.
        threads: how many copy or decompress.
    """
    require_bytes(data)
    with Reader(data, verify=verify) as reader:
        return _load(reader, device, sharding, copy=copy, threads=threads)


def load_abstract(
    filename: Openable, *, sharding: JaxSharding | None = None, **options: Unpack[OpenOptions]
) -> dict[str, jax.ShapeDtypeStruct | TensorMetadata]:
    """Return shapes, element types and shardings of the result of `load_file`, without data.

    Only the manifest is read. The result is for functions of abstract values, such as
    `jax.eval_shape` and `jax.jit(f).lower`.

    Args:
        filename: the file, or another source of `ztensor.open`.
        sharding: as in `load_file`; each `ShapeDtypeStruct` has its own.
        options: see `ztensor.typing.OpenOptions`.

    Returns:
        Names to `jax.ShapeDtypeStruct`s; to `ztensor.TensorMetadata` if the object is not dense.

    Raises:
        ObjectNotFoundError: `sharding` names a missing object.
        FormatError: the file is damaged or not a zTensor file.
        UnsupportedError: a type is unknown here.
        SourceError: it cannot be read.
    """
    require_options("load_abstract", options, OpenOptions)
    with open_files(filename, **options) as reader:
        choose = _chooser(reader, sharding)
        result: dict[str, jax.ShapeDtypeStruct | TensorMetadata] = {}
        for name in reader:
            struct = abstract(reader, name)
            if isinstance(struct, jax.ShapeDtypeStruct):
                struct = jax.ShapeDtypeStruct(
                    struct.shape, struct.dtype, sharding=choose(name, struct)
                )
            result[name] = struct
        return result


def _stored(tensors: Any) -> Any:
    if not hasattr(tensors, "items"):
        return tensors  # the function that saves a dict reports the mistake
    return {name: _stored_value(name, value) for name, value in tensors.items()}


def _stored_value(name: Any, value: Any) -> Any:
    if is_value(value):
        try:
            return stored(value)
        except ZTensorError as error:
            raise error.locate(object_name=str(name)) from error.__cause__
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        return value
    if not jax.tree_util.all_leaves([value]):
        raise ArgumentTypeError(
            "tensors must be a flat dict, and this value is a tree; name its leaves with "
            "jax.tree_util.tree_flatten_with_path and keystr, or flax.traverse_util.flatten_dict",
            object_name=str(name),
            expected="an array",
            found=describe(type(value).__qualname__),
        )
    return value


def read(reader: ObjectReader, name: Any, *, device: Any = None, sharding: Any = None) -> Any:
    """Return objects of an open reader as JAX values; see `ztensor.Reader.read_jax`."""
    names = [name] if isinstance(name, str) else list(name)
    choose = None if sharding is None else _chooser(reader, sharding, device)
    values = _read(reader, names, choose, named_device(device), copy=False)
    for each, value in values.items():
        if isinstance(value, Tensor):
            raise no_jax_value(value).locate(file=reader.name, object_name=each)
    return values[name] if isinstance(name, str) else values


def _load(
    reader: ObjectReader, device: Any, sharding: Any, *, copy: bool, **how: Any
) -> dict[str, Any]:
    if sharding is None:
        target = named_device(device)
        copy = copy or not is_on_cpu(target)
        arrays = load_files(reader.objects, copy=copy, **how)
        if not copy:
            _require_copied(reader, arrays)
        return placed(arrays, target, reader.name)
    choose = _chooser(reader, sharding, device)
    if floats := how.get("dequantize"):
        how["dequantize"] = lambda tensor: jax.device_put(floats(tensor))

    def load(file: FileObjects, **options: Any) -> dict[str, Any]:
        return _read(ObjectReader(file), file.names, choose, None, **options)

    return load_files(reader.objects, load, copy=copy, **how)


def _require_copied(reader: ObjectReader, values: Mapping[str, Any]) -> None:
    """Check the digests of views that JAX is going to copy."""
    for name, value in values.items():
        if is_copied(value):
            reader.objects.part(name).require_copied(name)


def _read(
    reader: ObjectReader,
    names: Iterable[str],
    choose: Callable[[str, Any], Any] | None,
    target: Any,
    *,
    copy: bool,
    threads: int | None = None,
) -> dict[str, Any]:
    """Read objects one by one; of objects with a sharding only the local shards."""
    copy = copy or not is_on_cpu(target)
    result: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    for name in names:
        struct = None if choose is None else abstract(reader, name)
        chosen = None if choose is None else choose(name, struct)
        result[name] = None  # keeps the order
        if chosen is not None:
            result[name] = sharded(reader, name, struct, chosen, copy=copy, threads=threads)
        elif reader.metadata(name).format == "dense":
            whole[name] = reader.read_numpy(name, copy=copy)
        else:
            whole[name] = reader.read(name, copy=copy)
    if not copy:
        _require_copied(reader, whole)
    result.update(placed(whole, target, reader.name))
    return result


def _chooser(reader: ObjectReader, sharding: Any, device: Any = None) -> Callable[[str, Any], Any]:
    """Return a function from a name and a struct to a sharding or None, for all three forms."""
    if device is not None and sharding is not None:
        raise ArgumentValueError("device and sharding exclude each other; pass one of them")
    if sharding is None or isinstance(sharding, jax.sharding.Sharding):
        return lambda _name, _struct: sharding
    if isinstance(sharding, Mapping):
        for name in sharding:
            reader.metadata(name)  # raises for a missing name
        return lambda name, _struct: _as_sharding(sharding.get(name), name)
    if callable(sharding):
        is_dense = jax.ShapeDtypeStruct
        return lambda name, struct: (
            _as_sharding(sharding(name, struct), name) if isinstance(struct, is_dense) else None
        )
    raise ArgumentTypeError(
        "sharding must be a jax.sharding.Sharding, a mapping from names to them, or a function",
        found=describe(sharding, 60),
    )


def _as_sharding(chosen: Any, name: str) -> Any:
    """Return the sharding that a caller chose for an object, after a check of its type."""
    if chosen is None or isinstance(chosen, jax.sharding.Sharding):
        return chosen
    raise ArgumentValueError(
        "the sharding does not fit: it is not a jax.sharding.Sharding",
        object_name=name,
        found=describe(chosen, 60),
    )
