"""Objects of files as torch tensors: all objects of a file, or some by name, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ztensor.errors import ArgumentTypeError, ZTensorError, describe
from ztensor.ext import (
    LAYOUTS,
    FileObjects,
    Objects,
    Quantized,
    load_files,
    no_collection,
    thread_count,
)
from ztensor.torch.devices import device_of, read_meta, read_onto
from ztensor.torch.values import SPARSE, array_to_torch, to_torch, view_in_torch
from ztensor.typing import TorchDevice

if TYPE_CHECKING:
    from collections.abc import Iterable


def load_onto(
    file: FileObjects, device: Any, *, copy: bool, threads: int | None = None
) -> dict[str, Any]:
    """Return all objects of a file as torch tensors; of layouts that torch lacks, as a `Tensor`."""
    workers = thread_count(threads)
    if device.type == "meta":
        return {name: read_meta(file, name) for name in file.names}
    if device.type != "cpu":
        return read_onto(file, file.names, device, workers)
    result = load_files(file, copy=copy, threads=threads)
    name = ""
    try:
        with no_collection():
            for name, value in result.items():
                if type(value) is np.ndarray:
                    result[name] = _of_array(file, name, value)
                elif value.format in SPARSE:
                    result[name] = _of_sparse(file, name, value)
    except ZTensorError as error:
        error.locate(file=file.name, object_name=name)
        raise
    return result


def _of_array(file: FileObjects, name: str, array: Any) -> Any:
    """Return an array of a file as a tensor; bytes that are copied are checked."""
    view = view_in_torch(array)
    if view is not None:
        return view
    file.require_copied(name)
    return array_to_torch(array)


def _of_sparse(file: FileObjects, name: str, tensor: Any) -> Any:
    file.require_copied(name)  # torch reads indices, and mostly copies them
    return to_torch(tensor)


_PLACES = (str, torch.device)
_CPU = ("cpu", torch.device("cpu"))


def read_torch(
    objects: Objects, name: str | Iterable[str], *, device: TorchDevice, copy: bool
) -> Any:
    """Return one object as a tensor, or several as a dict; see `ztensor.Reader.read_torch`."""
    if isinstance(name, str) and not copy and isinstance(device, _PLACES) and device in _CPU:
        array = objects.part(name).view(name)
        view = None if array is None else view_in_torch(array)
        if view is not None:
            return view
    place = device_of(device)
    names = [name] if isinstance(name, str) else list(name)
    by_file: dict[FileObjects, list[str]] = {}
    for each in names:
        file = objects.part(each)
        kind = file.object(each).format
        if kind not in ("dense", *SPARSE):
            raise ArgumentTypeError(
                "torch has no such layout; "
                + (
                    "torch.from_numpy(reader.read(name).dequantize()) approximates it"
                    if isinstance(LAYOUTS.get(kind), Quantized)
                    else "read(name) gives its components"
                ),
                file=file.name,
                object_name=each,
                found=f"format {describe(kind)}",
            )
        by_file.setdefault(file, []).append(each)
    tensors: dict[str, Any] = {}
    for file, own in by_file.items():
        if place.type == "cpu":
            for each in own:
                with file.located(each):
                    if file.object(each).format == "dense":
                        tensors[each] = _of_array(file, each, file.array(each, copy=copy))
                    else:
                        tensors[each] = _of_sparse(file, each, file.tensor(each, copy=copy))
        elif place.type == "meta":
            tensors.update({each: read_meta(file, each) for each in own})
        else:
            tensors.update(read_onto(file, own, place, thread_count()))
    return tensors[name] if isinstance(name, str) else {each: tensors[each] for each in names}
