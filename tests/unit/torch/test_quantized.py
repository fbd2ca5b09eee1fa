"""`ztensor.torch.dequantize`; the arithmetic is tested in `quantization/test_groups.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ztensor import Tensor
from ztensor.errors import ArgumentValueError, LayoutError, LimitError, UsageError

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
ztorch: Any = pytest.importorskip("ztensor.torch")

WEIGHTS = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)
RECIPES = [None, "gptq", "awq", "int8", "nf4", "mxfp4", "nvfp4"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_torch_gives_what_numpy_gives(recipe: str | None, dtype: str) -> None:
    tensor = Tensor.quantize(WEIGHTS, recipe)
    found = ztorch.dequantize(tensor, getattr(torch, dtype))
    assert (found.dtype, tuple(found.shape)) == (getattr(torch, dtype), (128, 256))
    expected = tensor.dequantize(dtype).astype(np.float64)
    np.testing.assert_array_equal(found.double().numpy(), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_blocks_of_gguf(dtype: str) -> None:
    blocks = np.random.default_rng(1).integers(0, 60, 3 * 34, np.uint8)
    tensor = Tensor({"data": blocks}, shape=(3, 32), format="gguf.q8_0")
    found = ztorch.dequantize(tensor, getattr(torch, dtype))
    assert (found.dtype, tuple(found.shape)) == (getattr(torch, dtype), (3, 32))
    expected = tensor.dequantize(dtype).astype(np.float64)
    np.testing.assert_array_equal(found.double().numpy(), expected)


@pytest.mark.parametrize("recipe", RECIPES)
def test_torch_tensors_are_quantized(recipe: str | None) -> None:
    whole = Tensor.quantize(WEIGHTS, recipe)
    tensor = Tensor.quantize(torch.from_numpy(WEIGHTS), recipe)
    assert tensor.attributes == whole.attributes
    for role, array in whole.components.items():
        assert tensor.components[role].tobytes() == array.tobytes()


def test_read_only_components_are_left_alone() -> None:
    tensor = Tensor.quantize(WEIGHTS, "gptq")
    for array in tensor.components.values():
        array.flags.writeable = False
    np.testing.assert_array_equal(ztorch.dequantize(tensor).numpy(), tensor.dequantize())


@pytest.mark.parametrize("shape", [(0, 64), (4, 0), (2, 3, 32)], ids=str)
def test_any_shape(shape: tuple[int, ...]) -> None:
    tensor = Tensor.quantize(np.ones(shape, np.float32), "mxfp4")
    np.testing.assert_array_equal(ztorch.dequantize(tensor).numpy(), tensor.dequantize())


def test_what_is_not_quantized() -> None:
    with pytest.raises(UsageError):
        ztorch.dequantize(Tensor(WEIGHTS))


@pytest.mark.parametrize("dtype", ["int32", "complex64", "float8_e4m3fn"])
def test_values_are_floats(dtype: str) -> None:
    with pytest.raises(ArgumentValueError):
        ztorch.dequantize(Tensor.quantize(WEIGHTS), getattr(torch, dtype))


def test_unknown_devices() -> None:
    with pytest.raises(ArgumentValueError):
        ztorch.dequantize(Tensor.quantize(WEIGHTS), device="moon")


def test_parts_that_do_not_fit() -> None:
    good = Tensor.quantize(WEIGHTS)
    bad = Tensor(good.components, shape=(128, 257), format=good.format, attributes=good.attributes)
    with pytest.raises(LayoutError):
        ztorch.dequantize(bad)


def test_a_result_no_device_can_hold() -> None:
    good = Tensor.quantize(WEIGHTS)
    nothing = {role: array[:0] for role, array in good.components.items()}
    with pytest.raises(LimitError):
        ztorch.dequantize(
            Tensor(nothing, shape=(0, 2**64), format=good.format, attributes=good.attributes)
        )


def test_the_message_names_the_way_out() -> None:
    with pytest.raises(UsageError):
        Tensor.quantize(WEIGHTS).torch()
