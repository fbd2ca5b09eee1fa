"""Save and load dicts of PyTorch tensors and whole models, as `safetensors.torch` does.

The functions have the same names and arguments, and more. Shared and non-contiguous tensors are
accepted: tied weights are stored once, under all their names.

`StorageWriter` and `StorageReader` are for `torch.distributed.checkpoint`, for checkpoints of many
processes; they are in `ztensor.distributed.torch`, which is imported on first use.

`values.py` converts one tensor to its stored form and back, `tying.py` finds tensors of a dict that
share memory, `loading.py` loads the objects of files, `modules.py` puts a state into a module,
`filling.py` fills tensors that are there, also of several processes: `boxes.py` has the elements of
each, `exchanging.py` what one process reads for another. `devices.py` loads onto other devices than
the CPU, `quantized.py` dequantizes there. `adapter.py` is the adapter of the table of frameworks,
and `trees.py` has nested states.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Literal

from ztensor import Reader, Remote
from ztensor import open as open_files
from ztensor.errors import (
    MissingDependencyError,
    ZTensorError,
    describe,
)
from ztensor.ext import OpenFolder, is_remote, load_files, path_text
from ztensor.numpy import save as save_arrays
from ztensor.numpy import save_file as save_array_file
from ztensor.options import (
    LoadOptions,
    ModelOptions,
    SaveOptions,
    WriteOptions,
    for_load_files,
    opening,
    require_bytes,
    require_options,
)

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("ztensor.torch needs PyTorch", install="torch") from error

from ztensor.ext import Registry
from ztensor.torch.devices import device_of
from ztensor.torch.loading import load_onto
from ztensor.torch.modules import fill_module, require_module
from ztensor.torch.quantized import dequantize
from ztensor.torch.tying import tied
from ztensor.torch.values import PLAIN, from_torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from ztensor.distributed.torch import StorageReader, StorageWriter
    from ztensor.torch.filling import Cut, FillReport, Joined, load_into
    from ztensor.torch.trees import load_tree, save_tree
    from ztensor.training.torch_randomness import random_state, set_random_state
    from ztensor.typing import Bytes, Openable, Path, Target, TorchDevice
else:  # checkpoints and training states take as long to import as all else
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.distributed.torch": "StorageReader StorageWriter",
            "ztensor.torch.filling": "Cut FillReport Joined load_into",
            "ztensor.torch.trees": "load_tree save_tree",
            "ztensor.training.torch_randomness": "random_state set_random_state",
        },
    )

__all__ = [
    "Cut",
    "FillReport",
    "Joined",
    "StorageReader",
    "StorageWriter",
    "dequantize",
    "load",
    "load_file",
    "load_into",
    "load_model",
    "load_pretrained",
    "load_tree",
    "random_state",
    "save",
    "save_file",
    "save_model",
    "save_pretrained",
    "save_tree",
    "set_random_state",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


# --- Dicts ----------------------------------------------------------------------------------


def save_file(
    tensors: Mapping[str, object],
    filename: Target,
    metadata: Mapping[str, object] | None = None,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    **options: Unpack[SaveOptions],
) -> dict[str, str]:
    """Save a dict of tensors as one file; an old file is replaced atomically.

    Elements are stored in row-major order, whatever the strides are; CSR and COO tensors as
    `sparse_csr` and `sparse_coo`. Tensors of other devices are copied to the CPU one at a time.

    Args:
        tensors: names to torch tensors or parameters; else what `ztensor.numpy.save_file` takes.
        filename: the file; also a file object open for writing bytes. Its suffix selects
            the format, as for `ztensor.numpy.save_file`.
        metadata: key-value pairs of the file, its attributes.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level;
            for `"planes"` see `ztensor.typing.ModelOptions`.
        options: see `ztensor.typing.SaveOptions`.

    Returns:
        Aliases: names that share stored bytes with another name, and that name.

    Raises:
        NotRepresentableError: a tensor has no elements of its own (meta, lazy and wrapper
            tensors), or its element type or layout cannot be stored; the message says what to do
            instead. No file appears.
        ArgumentTypeError: `tensors` is not a mapping, or a value is not a tensor.
        SourceError: the file could not be written. The old file is still there.
    """
    require_options("save_file", options, SaveOptions)
    stored = _as_stored(tensors, options.get("deduplicate"))
    return save_array_file(stored, filename, metadata, compression, **options)


def save(
    tensors: Mapping[str, object],
    metadata: Mapping[str, object] | None = None,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    *,
    deduplicate: Literal["memory", "content", False] = "memory",
    **options: Unpack[WriteOptions],
) -> bytes:
    """Return the bytes `save_file` would write; see there."""
    require_options("save", options, WriteOptions)
    return save_arrays(
        _as_stored(tensors, deduplicate), metadata, compression, deduplicate=deduplicate, **options
    )


def load_file(
    filename: Openable,
    device: TorchDevice = "cpu",
    copy: bool = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    **options: Unpack[LoadOptions],
) -> dict[str, torch.Tensor | Any]:
    """Load all tensors of a file, or of a sharded model.

    Args:
        filename: the file; or an index, a folder or a list of paths, as `ztensor.open` takes them.
        device: where the tensors go: a name, a number or a `torch.device`. On `"meta"` they have
            shape and type, and nothing is read.
        copy: False gives views of the file if the data is raw and the device is the CPU, unchecked:
            nothing is read until it is used, writing to a tensor never changes the file, and the
            file must not be changed in place meanwhile. True gives each tensor its own memory and
            checks its digest; False does the same if torch cannot have a view, as of bytes at an
            address that is not a multiple of the element size.
        options: see `ztensor.typing.LoadOptions`.

    Returns:
        Names to tensors; objects of quantized or unknown layouts are `ztensor.Tensor`.
        `save_file` takes the same dict.

    Raises:
        ObjectNotFoundError: no name matches `only`.
        FormatError: the file is damaged or not a zTensor file.
        UnsupportedError: a type or encoding is unknown here or to torch, or the device does not
            exist.
        ArgumentValueError: torch knows no device of that name.
        LimitError: a safety cap is exceeded, or the device's memory.
        SourceError: it cannot be read; also a `FileNotFoundError` or `PermissionError`.
    """
    require_options("load_file", options, LoadOptions)
    place = device_of(device)
    with open_files(filename, **opening(options)) as reader:
        floats = functools.partial(dequantize, device=place)
        how = for_load_files(options, reader.objects, floats)
        return load_files(reader.objects, load_onto, device=place, copy=copy, **how)


def load(
    data: Bytes,
    *,
    device: TorchDevice = "cpu",
    verify: bool | None = None,
    threads: int | None = None,
) -> dict[str, torch.Tensor | Any]:
    """Load all tensors from bytes into memory of their own; see `load_file`.

    Args:
        data: a bytes-like object.
        device: where the tensors go.
        verify: None checks digests, as does True; False does not.
        threads: how many copy or decompress.
    """
    place = device_of(device)
    require_bytes(data)
    with Reader(data, verify=verify) as reader:
        return load_files(reader.objects, load_onto, device=place, copy=True, threads=threads)


# --- Models ---------------------------------------------------------------------------------


def save_model(
    model: torch.nn.Module,
    filename: Target,
    metadata: Mapping[str, object] | None = None,
    force_contiguous: bool = True,  # noqa: FBT001, FBT002  # positional in safetensors
    **options: Unpack[ModelOptions],
) -> dict[str, str]:
    """Save the state of a model; see `save_file`.

    Args:
        model: a `torch.nn.Module`.
        filename: the file.
        metadata: key-value pairs of the file.
        force_contiguous: taken for compatibility: elements are always stored in row-major order.
        options: see `ztensor.typing.ModelOptions`.

    Returns:
        Aliases: names of tied weights, and the name that has their bytes.

    Raises:
        ArgumentTypeError: `model` is not a module, or its state holds other values than tensors.
        NotRepresentableError: a tensor of the model cannot be stored. No file appears.
        SourceError: the file could not be written.
    """
    del force_contiguous
    require_options("save_model", options, ModelOptions)
    return save_file(require_module(model).state_dict(), filename, metadata, **options)


def load_model(
    model: torch.nn.Module,
    filename: Openable,
    strict: bool = True,  # noqa: FBT001, FBT002  # positional in safetensors
    device: TorchDevice = "cpu",
    copy: bool = False,  # noqa: FBT001, FBT002  # positional in the 1.2 API
    *,
    assign: bool = False,
    **options: Unpack[LoadOptions],
) -> tuple[list[str], list[str]]:
    """Load a file into a model.

    Args:
        model: a `torch.nn.Module`.
        filename: the file.
        strict: True raises if names of the model are missing from the file, or the other way
            around, and if a tensor of the model is on the meta device after the load: a buffer
            that is not persistent is in no file, and has to be made anew on a device.
        device: where tensors are loaded to before they are copied into the model.
        copy: as in `load_file`.
        assign: False copies into the model's parameters, and checks the digests, whatever `copy`
            says; True puts the loaded tensors in their place, as a model on the meta device needs,
            unchecked if they are views. Tied tensors stay tied.
        options: see `ztensor.typing.LoadOptions`.

    Returns:
        Names of the model that are not in the file, and names of the file that are not in the
        model. A name that is tied to one in the file is not missing. Buffers that are not
        persistent are among the missing where they are on the meta device.

    Raises:
        UsageError: names differ or a tensor is still on the meta device, and `strict` is True; or
            shapes differ, or tensors of the file would be copied into tensors on the meta device,
            which have no elements. Also a `RuntimeError`. The model may have been changed in part.
        ArgumentTypeError: `model` is not a module.
        FormatError: the file is damaged or not a zTensor file.
        UnsupportedError: a type or encoding is unknown here, or the device does not exist.
        SourceError: the file cannot be read.
    """
    require_options("load_model", options, LoadOptions)
    require_module(model)
    if options.get("verify") is None and not assign:
        options["verify"] = True  # elements copied into the model's own memory are checked
    state = load_file(filename, device, copy, **options)
    is_path = isinstance(filename, (str, os.PathLike))
    file = path_text(filename) if is_path else describe(filename, 200)
    return fill_module(model, state, file, strict=strict, assign=assign)


def save_pretrained(
    model: torch.nn.Module | Mapping[str, object],
    folder: Path,
    *,
    metadata: Mapping[str, object] | None = None,
    **options: Unpack[ModelOptions],
) -> dict[str, str]:
    """Save a model into a folder: `model.zt`, or shards of it and `model.zt.index.json`.

    Args:
        model: a `torch.nn.Module`, or its state as a dict.
        folder: made where it is missing; other files in it stay. Also a URL of a store.
        metadata: key-value pairs of each file; `{"format": "pt"}` by default.
        options: see `ztensor.typing.ModelOptions`; `max_shard_size` is "5GB" by default.

    Returns:
        Aliases: names of tied weights, and the name that has their bytes.

    Raises:
        ArgumentTypeError: `model` is neither, or its state holds other values than tensors.
        NotRepresentableError: a tensor of the model cannot be stored.
        SourceError: the folder cannot be made, or a file not be written.
    """
    require_options("save_pretrained", options, ModelOptions)
    state = model.state_dict() if isinstance(model, torch.nn.Module) else model
    place = path_text(folder, local=True)
    file: Path = os.path.join(place, "model.zt")
    if is_remote(place):
        url = Remote(folder)
        file = Remote(f"{url.url.rstrip('/')}/", url.storage).beside("model.zt")
    else:
        OpenFolder.make(place)
    if metadata is None:
        metadata = {"format": "pt"}
    options.setdefault("max_shard_size", "5GB")
    return save_file(state, file, metadata, **options)


def load_pretrained(
    model: torch.nn.Module,
    folder: Path,
    *,
    strict: bool = True,
    device: TorchDevice = "cpu",
    copy: bool = False,
    assign: bool = False,
    **options: Unpack[LoadOptions],
) -> tuple[list[str], list[str]]:
    """Load a folder of `save_pretrained` into a model; see `load_model`.

    Args:
        model: a `torch.nn.Module`.
        folder: it holds `model.zt`, or shards and their index.
        strict: as in `load_model`.
        device: as in `load_model`.
        copy: as in `load_model`.
        assign: as in `load_model`.
        options: see `ztensor.typing.LoadOptions`.
    """
    require_options("load_pretrained", options, LoadOptions)
    return load_model(model, folder, strict, device, copy, assign=assign, **options)


# --- Parts ----------------------------------------------------------------------------------


def _as_stored(tensors: Any, deduplicate: object) -> Any:
    """Return a dict with arrays in the place of tensors on the CPU.

    The writer fetches tensors of other devices when it reaches them. A tensor with several names is
    fetched here, once.
    """
    if not hasattr(tensors, "items"):
        return tensors  # the function that saves a dict reports the mistake
    result: dict[str, Any] = {}
    elsewhere: dict[str, Any] = {}
    for name, value in tensors.items():
        if type(value) in PLAIN and not value.is_cpu and _can_wait(value, deduplicate):
            result[name] = elsewhere[name] = value
        else:  # the writer takes other values, or refuses them
            result[name] = _stored(name, value) if isinstance(value, torch.Tensor) else value
    for names in tied(elsewhere):
        result.update(dict.fromkeys(names, _stored(names[0], result[names[0]])))
    return result


def _can_wait(tensor: Any, deduplicate: object) -> bool:
    return not tensor.is_meta and tensor.layout is torch.strided and deduplicate != "content"


def _stored(name: str, tensor: Any) -> Any:
    try:
        return from_torch(tensor)
    except ZTensorError as error:
        error.locate(object_name=str(name))
        raise
