"""Quantized tensors to floats on torch's devices, by the arithmetic NumPy uses too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ztensor import Tensor
from ztensor.errors import ArgumentTypeError, LimitError, describe
from ztensor.ext import View, numpy_dtype
from ztensor.quantization.dequantizing import dequantize_view
from ztensor.quantization.group_profiles import QUANT_GROUP
from ztensor.torch.devices import device_of, to_device
from ztensor.torch.values import array_to_torch, empty, first_line
from ztensor.typing import Array, TorchDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def dequantize(
    tensor: Tensor, dtype: torch.dtype | str = torch.float32, *, device: TorchDevice = "cpu"
) -> torch.Tensor:
    """Dequantize a `quantized_group` or `gguf` tensor to a torch tensor on a device.

    The packed weights go to the device, and become floats there; blocks of `gguf` become floats
    on the CPU, and those go to the device.

    Args:
        tensor: a tensor of one of these layouts.
        dtype: `torch.float32`, `float16`, `bfloat16` or `float64`. The arithmetic is in float32;
            for float64 results of `quantized_group` it is in float64.
        device: a name such as `"cuda"`, a number, or a `torch.device`.

    Returns:
        A new tensor of its shape. Besides it the device needs memory for the components and for
        one tile: a few MiB on the CPU, about 1 GiB elsewhere for tensors that large.

    Raises:
        UsageError: the tensor is not quantized.
        ArgumentValueError: another `dtype`, or torch knows no device of that name.
        LayoutError: attributes or sizes do not make a quantization.
        UnsupportedError: this release does not know the scheme or the type of blocks, or the
            device does not exist.
        LimitError: the device cannot hold the result.
    """
    if not isinstance(tensor, Tensor):
        raise ArgumentTypeError(f"tensor must be a ztensor.Tensor, not {describe(tensor, 40)}")
    place, dtype_name = device_of(device), str(dtype).removeprefix("torch.")
    try:
        view = View(tensor.shape, tensor.components, tensor.attributes)
        if tensor.format == QUANT_GROUP.name:
            view = QUANT_GROUP.as_groups(view)
        elif tensor.format != "quantized_group":
            return to_device(array_to_torch(tensor.dequantize(dtype_name)), place)
        floats = dequantize_view(view, dtype=dtype_name, xp=TorchNamespace(place))
        return floats.reshape(tuple(tensor.shape))
    except torch.cuda.OutOfMemoryError as error:
        raise LimitError(
            f"the device {describe(str(place))} cannot hold the tensor: {first_line(error)}"
        ) from error


class TorchNamespace:
    """PyTorch on a device; torch itself spreads operations over the cores.

    Args:
        device: a `torch.device`.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        # In a cache on the CPU; elsewhere a call should be worth its launch.
        self.tile = 1 << (19 if device.type == "cpu" else 26)

    def asarray(self, array: Array) -> Any:
        """Return an array on the device."""
        return to_device(array_to_torch(array), self._device)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new tensor on the device."""
        return empty(numpy_dtype(dtype), shape, self._device)

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new tensor; torch caches freed memory."""
        return self.empty(shape, dtype)

    def view(self, array: Any, dtype: str) -> Any:
        """Return the same memory as elements of another type."""
        return array.view(getattr(torch, dtype))

    def mask(self, array: Any, mask: int, out: Any) -> None:
        """Write `array & mask` to `out`."""
        torch.bitwise_and(array, mask, out=out)

    def shift_right(self, array: Any, bits: int, out: Any) -> None:
        """Write `array >> bits` to `out`."""
        torch.bitwise_right_shift(array, bits, out=out)

    def shift_left(self, array: Any, bits: int, out: Any) -> None:
        """Write `array << bits` to `out`."""
        torch.bitwise_left_shift(array, bits, out=out)

    def lookup(self, table: Any, codes: Any, out: Any) -> None:
        """Write `table[codes]` to `out`."""
        values = torch.index_select(table, 0, codes.reshape(-1).to(torch.int64))
        out[...] = values.reshape(out.shape)

    def each(
        self,
        work: Callable[[slice, slice], None],
        tiles: Sequence[tuple[slice, slice]],
    ) -> None:
        """Do work on every tile, one after the other."""
        for along, across in tiles:
            work(along, across)
