"""Objects onto other devices: read into pinned memory, and sent while the next bytes are read.

Files are read, not mapped, since mapped pages would be copied before they are sent. Bytes are read
into one of two staging buffers and checked against their digest there, while the other buffer is
sent.
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
    """Return an existing device as `torch.device`.

    Raises:
        ArgumentTypeError: it is not a name, number or device.
        ArgumentValueError: torch knows no such device.
        UnsupportedError: this machine, or this build of torch, has no such device.
    """
    try:
        place = torch.device(device)
    except TypeError as error:
        raise ArgumentTypeError(
            "a device is a name such as 'cpu' or 'cuda:0', a number, or a torch.device",
            found=describe(device, 40),
        ) from error
    except (RuntimeError, ValueError, OverflowError) as error:
        raise ArgumentValueError(
            f"torch has no device {describe(device, 40)}: {first_line(error)}"
        ) from error
    if place.type in ("cpu", "meta"):
        return place
    try:
        torch.empty(0, device=place)
    except TORCH_ERRORS as error:
        raise UnsupportedError(
            f"the device {describe(str(place))} is not available: {first_line(error)}; "
            "device='cpu' loads anywhere"
        ) from error
    return place


def to_device(tensor: Any, device: Any) -> Any:
    """Return a torch tensor on an existing device; the tensor itself if it is there.

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
    """Return an object as a tensor on the meta device: shape and type, without reading data.

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
                # An unknown logical type may pack its elements: only reading them shows the count.
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


def read_onto(
    file: FileObjects,
    names: Iterable[str],
    device: Any,
    workers: int,
    *,
    staging_nbytes: int = _STAGING_BYTES,
) -> dict[str, Any]:
    """Return objects as tensors on a device, each checked against its digest.

    Objects that share their bytes share memory there. Objects of layouts that torch lacks are
    `ztensor.Tensor`.

    Args:
        file: an open file.
        names: names of its objects.
        device: an existing device, neither the CPU nor meta.
        workers: threads that read.
        staging_nbytes: size of a staging buffer; each thread has two.

    Raises:
        FormatError: stored bytes are damaged.
        UnsupportedError: a type, encoding or layout is unknown here.
        LimitError: a safety cap is exceeded, or the device's memory.
    """
    result: dict[str, Any] = {}
    items: list[_Item] = []
    loaded: dict[tuple[Any, ...], Any] = {}
    # Modes are per thread: another thread could not fill a tensor made in inference mode here.
    with torch.inference_mode(mode=False):
        for name in names:
            tensor_object = file.object(name)
            with file.located(name):
                if tensor_object.format in SPARSE:
                    result[name] = to_device(to_torch(file.tensor(name, copy=True)), device)
                elif tensor_object.format != "dense":
                    result[name] = file.tensor(name, copy=False)
                else:
                    file.require_dense(name)
                    component = tensor_object.components["data"]
                    # Equal for equal elements that are checked against equal digests.
                    key = component._replace(extra=None), tensor_object.shape
                    if key in loaded:
                        result[name] = loaded[key].detach()
                        continue
                    target = empty(result_dtype(component), tensor_object.shape, device)
                    result[name] = loaded[key] = target
                    items.append((name, tensor_object, target))
        _send(file, items, device, workers, staging_nbytes)
    return result


def _send(
    file: FileObjects, items: list[_Item], device: Any, workers: int, staging_nbytes: int
) -> None:
    jobs = list(_jobs(items, staging_nbytes))
    pairs = [_StagingPair(device, staging_nbytes) for _ in range(min(workers, len(jobs)))]
    free: SimpleQueue[_StagingPair] = SimpleQueue()
    for pair in pairs:
        free.put(pair)

    def run(job: list[_Item]) -> None:
        pair = free.get()
        try:
            for item in job:
                _load(file, item, pair)
        finally:
            free.put(pair)

    pool = Pool(max(len(pairs), 1))
    try:
        if len(pairs) == 1:
            for job in jobs:
                run(job)
        else:
            for future in [pool.submit(run, job) for job in jobs]:
                future.result()
    finally:
        pool.close()
        for pair in pairs:
            pair.finish()


def _jobs(items: list[_Item], staging_nbytes: int) -> Iterator[list[_Item]]:
    """Yield runs of neighbours that fill a staging buffer together."""
    job: list[_Item] = []
    nbytes = 0
    for item in sorted(items, key=lambda item: item[1].components["data"].offset):
        job.append(item)
        nbytes += item[1].components["data"].length
        if nbytes >= staging_nbytes:
            yield job
            job, nbytes = [], 0
    if job:
        yield job


def _load(file: FileObjects, item: _Item, staging: _StagingPair) -> None:
    name, tensor_object, target = item
    component = tensor_object.components["data"]
    flat = target.reshape(-1).view(torch.uint8)
    with file.located(name, "data"):
        stored = file.stored(component)
        if not stored.is_in_place(flat.numel(), packed=True):
            array = file.array(name, copy=True)
            source = array_to_torch(array).reshape(-1).view(torch.uint8)
            for start, chunk in staging.chunks(flat):
                chunk[:] = source[start : start + chunk.nbytes].numpy().data
            return
        stored.fill_pieces(staging.chunks(flat))


class _StagingPair:
    """Two staging buffers of one thread: one is filled while the other is sent to a device.

    Args:
        device: the target. For CUDA (torch's name for ROCm, too) memory is pinned and sent
            concurrently; for other devices each chunk is sent before the next is read.
        nbytes: size of a buffer.
    """

    def __init__(self, device: Any, nbytes: int) -> None:
        self._stream, self._nbytes = None, nbytes
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            # Newly allocated memory may still be in use by work that the caller has queued.
            self._stream.wait_stream(torch.cuda.current_stream(device))
        self._buffers = [
            torch.empty(
                nbytes, dtype=torch.uint8, device="cpu", pin_memory=self._stream is not None
            )
            for _ in range(2)
        ]
        self._sent: list[Any] = [None, None]
        self._turn = 0
        self._used = 0

    def chunks(self, target: Any) -> Iterator[tuple[int, memoryview]]:
        """Yield offsets in `target` and staging memory, which is sent once it was filled.

        Args:
            target: (nbytes,) uint8 on the device.
        """
        for start in range(0, target.numel(), self._nbytes):
            count = min(target.numel() - start, self._nbytes)
            if self._used + count > self._nbytes:
                self._switch()
            chunk = self._buffers[self._turn][self._used : self._used + count]
            yield start, chunk.numpy().data
            with contextlib.nullcontext() if self._stream is None else self._on_stream():
                target[start : start + count].copy_(chunk, non_blocking=self._stream is not None)
            self._used += -(-count // _ALIGNMENT) * _ALIGNMENT

    def _on_stream(self) -> Any:
        return torch.cuda.stream(self._stream)

    def _switch(self) -> None:
        """Continue with the other buffer, once its transfer has finished."""
        if self._stream is not None:
            self._sent[self._turn] = self._stream.record_event()
        self._turn, self._used = 1 - self._turn, 0
        if self._sent[self._turn] is not None:
            self._sent[self._turn].synchronize()

    def finish(self) -> None:
        """Wait for all transfers."""
        if self._stream is not None:
            self._stream.synchronize()


# --- Filling a tensor of the caller ----------------------------------------------------------


def fill(file: FileObjects, name: str, target: Any) -> None:
    """Fill a torch tensor of the caller, on any device, with a dense object.

    Raises:
        ArgumentValueError: the tensor has another shape or element type, or no memory to fill.
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
        _send(file, [(name, tensor_object, target)], target.device, 1, _STAGING_BYTES)
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
