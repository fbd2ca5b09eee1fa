"""Objects onto other devices: read into pinned memory, sent while the next bytes are read.

Nothing is mapped, since pages of a file cannot be sent before they are copied once. Bytes go
straight from the file into one of two staging buffers and are checked against their digest there,
while the other buffer is on its way.
"""

from __future__ import annotations

import contextlib
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    LimitError,
    UnsupportedError,
    describe,
)
from ztensor.ext import FileObjects, ObjectReader, Pool, TensorObject, result_dtype
from ztensor.torch.values import (
    SPARSE,
    TORCH_ERRORS,
    array_to_torch,
    empty,
    first_line,
    from_torch,
    to_torch,
    torch_dtype,
    torch_shape,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# Two of these for each thread, four threads by default: 64 MiB in all.
_STAGING_BYTES = 8 << 20
_ALIGNMENT = 64
_Item = tuple[str, "TensorObject", Any]


def device_of(device: Any) -> Any:
    """Return a device that is there as `torch.device`.

    Raises:
        ArgumentTypeError: it is no name, number or device.
        ArgumentValueError: torch knows no such device.
        UnsupportedError: this machine, or this build of torch, has no such device.
    """
    try:
        found = torch.device(device)
    except TypeError as error:
        raise ArgumentTypeError(
            "a device is a name such as 'cpu' or 'cuda:0', a number, or a torch.device",
            found=describe(device, 40),
        ) from error
    except (RuntimeError, ValueError, OverflowError) as error:
        raise ArgumentValueError(
            f"torch has no device {describe(device, 40)}: {first_line(error)}"
        ) from error
    if found.type in ("cpu", "meta"):
        return found
    try:
        torch.empty(0, device=found)
    except TORCH_ERRORS as error:
        raise UnsupportedError(
            f"the device {describe(str(found))} is not there: {first_line(error)}; "
            "device='cpu' loads anywhere"
        ) from error
    return found


def moved(tensor: Any, device: Any) -> Any:
    """Return a torch tensor on a device that is there; itself where it is there already.

    Raises:
        LimitError: the device cannot hold it.
    """
    try:
        return tensor.to(device)
    except TORCH_ERRORS as error:
        raise LimitError(
            f"torch cannot put the tensor on {describe(str(device))}: {first_line(error)}"
        ) from error


# --- Loading --------------------------------------------------------------------------------


def read_meta(file: FileObjects, name: str) -> Any:
    """Return an object as a tensor on the meta device: shape and type, no data is read.

    Raises:
        UnsupportedError: torch has no such element type, or the file does not say how many
            entries a sparse object has.
        LimitError: torch cannot hold the shape.
    """
    tensor_object = file.object(name)
    with file.located(name):
        if tensor_object.format == "dense":
            file.require_dense(name)
            component = tensor_object.components["data"]
            if component.type is not None and component.logical is None:
                # Its elements may be packed in a way only the reader notices.
                return array_to_torch(file.array(name, copy=True)).to("meta")
            return empty(result_dtype(component), tensor_object.shape, "meta")
        if tensor_object.format not in SPARSE:
            return file.tensor(name, copy=False)
        return _sparse_meta(tensor_object)


def _sparse_meta(tensor_object: TensorObject) -> Any:
    entries = tensor_object.components["values"].known_count()
    if entries is None:
        raise UnsupportedError(
            "the file does not say how many entries the object has; load it onto the CPU"
        )
    shape = tensor_object.shape
    values = empty(result_dtype(tensor_object.components["values"]), (entries,), "meta")
    index = np.dtype(np.int64)
    try:
        if tensor_object.format == "sparse_coo":
            coords = empty(index, (len(shape), entries), "meta")
            return torch.sparse_coo_tensor(coords, values, shape, check_invariants=False)
        return torch.sparse_csr_tensor(
            empty(index, (shape[0] + 1,), "meta"),
            empty(index, (entries,), "meta"),
            values,
            shape,
            check_invariants=False,
        )
    except TORCH_ERRORS as error:
        raise UnsupportedError(
            f"torch has no such sparse tensor on the meta device: {first_line(error)}"
        ) from error


def read_onto(file: FileObjects, names: Iterable[str], device: Any, workers: int) -> dict[str, Any]:
    """Return objects as tensors on a device, each checked against its digest.

    Objects that share their bytes share memory there. Layouts torch does not have come as
    `ztensor.Tensor`.

    Args:
        file: an open file.
        names: objects of it.
        device: a device that is there, neither the CPU nor meta.
        workers: how many threads read.

    Raises:
        FormatError: stored bytes are damaged.
        UnsupportedError: a type, encoding or layout is unknown here.
        LimitError: a safety cap is exceeded, or the device's memory.
    """
    result: dict[str, Any] = {}
    items: list[_Item] = []
    first_of: dict[tuple[Any, ...], Any] = {}
    # Threads have modes of their own: they could not fill what is made in inference mode here.
    with torch.inference_mode(mode=False):
        for name in names:
            tensor_object = file.object(name)
            with file.located(name):
                if tensor_object.format in SPARSE:
                    result[name] = moved(to_torch(file.tensor(name, copy=True)), device)
                elif tensor_object.format != "dense":
                    result[name] = file.tensor(name, copy=False)
                else:
                    file.require_dense(name)
                    component = tensor_object.components["data"]
                    # All that its elements turn on, and the digest they are held to.
                    key = component._replace(extra=None), tensor_object.shape
                    if key in first_of:
                        result[name] = first_of[key].detach()
                        continue
                    target = empty(result_dtype(component), tensor_object.shape, device)
                    result[name] = first_of[key] = target
                    items.append((name, tensor_object, target))
        _send(file, items, device, workers)
    return result


def _send(file: FileObjects, items: list[_Item], device: Any, workers: int) -> None:
    jobs = list(_jobs(items))
    conveyors = [_Conveyor(device) for _ in range(min(workers, len(jobs)))]
    free: SimpleQueue[_Conveyor] = SimpleQueue()
    for conveyor in conveyors:
        free.put(conveyor)

    def run(job: list[_Item]) -> None:
        conveyor = free.get()
        try:
            for item in job:
                _carry(file, item, conveyor)
        finally:
            free.put(conveyor)

    crew = Pool(max(len(conveyors), 1))
    try:
        if len(conveyors) == 1:
            for job in jobs:
                run(job)
        else:
            for future in [crew.submit(run, job) for job in jobs]:
                future.result()
    finally:
        crew.close()
        for conveyor in conveyors:
            conveyor.finish()


def _jobs(items: list[_Item]) -> Iterator[list[_Item]]:
    """Yield runs of neighbours that fill a staging buffer together."""
    job: list[_Item] = []
    nbytes = 0
    for item in sorted(items, key=lambda item: item[1].components["data"].offset):
        job.append(item)
        nbytes += item[1].components["data"].length
        if nbytes >= _STAGING_BYTES:
            yield job
            job, nbytes = [], 0
    if job:
        yield job


def _carry(file: FileObjects, item: _Item, conveyor: _Conveyor) -> None:
    name, tensor_object, target = item
    component = tensor_object.components["data"]
    flat = target.reshape(-1).view(torch.uint8)
    with file.located(name, "data"):
        stored = file.stored(component)
        if not stored.is_in_place(flat.numel(), packed=True):
            array = file.array(name, copy=True)
            source = array_to_torch(array).reshape(-1).view(torch.uint8)
            for start, piece in conveyor.pieces(flat):
                piece[:] = source[start : start + piece.nbytes].numpy().data
            return
        stored.fill_pieces(conveyor.pieces(flat))


class _Conveyor:
    """Two staging buffers on their way to a device: one is filled while the other is sent.

    Args:
        device: where they go. Only for CUDA (and ROCm, which torch calls so) memory is pinned and
            sent beside the reading; for others each piece is sent before the next is read.
    """

    def __init__(self, device: Any) -> None:
        self._stream = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            # Memory just handed out may still be in use by work the caller has queued.
            self._stream.wait_stream(torch.cuda.current_stream(device))
        self._buffers = [
            torch.empty(
                _STAGING_BYTES, dtype=torch.uint8, device="cpu", pin_memory=self._stream is not None
            )
            for _ in range(2)
        ]
        self._sent: list[Any] = [None, None]
        self._turn = 0
        self._used = 0

    def pieces(self, target: Any) -> Iterator[tuple[int, memoryview]]:
        """Yield where in `target` a piece begins, and memory for it, sent when it was filled.

        Args:
            target: (nbytes,) bytes on the device.
        """
        for start in range(0, target.numel(), _STAGING_BYTES):
            count = min(target.numel() - start, _STAGING_BYTES)
            if self._used + count > _STAGING_BYTES:
                self._switch()
            piece = self._buffers[self._turn][self._used : self._used + count]
            yield start, piece.numpy().data
            with contextlib.nullcontext() if self._stream is None else self._on_stream():
                target[start : start + count].copy_(piece, non_blocking=self._stream is not None)
            self._used += -(-count // _ALIGNMENT) * _ALIGNMENT

    def _on_stream(self) -> Any:
        return torch.cuda.stream(self._stream)

    def _switch(self) -> None:
        """Go on with the other buffer, once it has arrived."""
        if self._stream is not None:
            self._sent[self._turn] = self._stream.record_event()
        self._turn, self._used = 1 - self._turn, 0
        if self._sent[self._turn] is not None:
            self._sent[self._turn].synchronize()

    def finish(self) -> None:
        """Wait until everything has arrived."""
        if self._stream is not None:
            self._stream.synchronize()


# --- Filling what is there ------------------------------------------------------------------


def fill(file: FileObjects, name: str, target: Any) -> None:
    """Fill a torch tensor of the caller, on any device, with a dense object.

    Raises:
        ArgumentValueError: it has another shape or element type, or no memory of its own.
        FormatError: the stored bytes are damaged.
        UnsupportedError: torch has no such element type.
    """
    tensor_object = file.object(name)
    dtype = result_dtype(tensor_object.components["data"])
    expected, shape = torch_dtype(dtype), torch_shape(dtype, tensor_object.shape)
    if tuple(target.shape) != shape or target.dtype is not expected:
        raise ArgumentValueError(
            "the tensor does not fit the object",
            expected=f"shape {describe(shape)} of {expected}",
            found=f"shape {describe(tuple(target.shape))} of {target.dtype}",
        )
    if target.layout is not torch.strided or target.is_meta:
        raise ArgumentValueError(
            "the tensor has no memory to fill",
            expected="a dense tensor on a device",
            found=f"{target.layout} on {target.device}",
        )
    target = target.detach()
    is_plain = target.is_contiguous() and not (target.is_conj() or target.is_neg())
    if is_plain and not target.is_cpu:
        _send(file, [(name, tensor_object, target)], target.device, 1)
        return
    if is_plain:
        array = from_torch(target)
        if isinstance(array, np.ndarray) and array.shape == shape:  # packed elements are copied
            ObjectReader(file).read_into(name, array)
            return
    array = file.array(name, copy=True)
    source = array_to_torch(array)
    try:
        target.copy_(source)
    except TORCH_ERRORS as error:
        raise ArgumentValueError(f"torch cannot fill the tensor: {first_line(error)}") from error
