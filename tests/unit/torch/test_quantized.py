"""`ztensor.torch.dequantize`; the arithmetic is tested in `quantization/test_groups.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ztensor import Tensor
from ztensor.errors import ArgumentValueError, LayoutError, LimitError, UsageError

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
ztorch: Any = pytest.importorskip("ztensor.torch", exc_type=ImportError)

WEIGHTS = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)
RECIPES = [None, "gptq", "awq", "int8", "nf4", "mxfp4", "nvfp4"]


def blocks() -> Tensor:
    data = np.random.default_rng(1).integers(0, 60, 3 * 34, np.uint8)
    return Tensor({"data": data}, shape=(3, 32), format="gguf.q8_0")


TENSORS = {str(recipe): Tensor.quantize(WEIGHTS, recipe) for recipe in RECIPES}
TENSORS |= {
    "blocks of GGUF": blocks(),
    "no rows": Tensor.quantize(np.ones((0, 64), np.float32), "mxfp4"),
    "no columns": Tensor.quantize(np.ones((4, 0), np.float32), "mxfp4"),
    "three axes": Tensor.quantize(np.ones((2, 3, 32), np.float32), "mxfp4"),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", TENSORS)
def test_torch_computes_the_same_as_numpy(name: str, dtype: str) -> None:
    tensor = TENSORS[name]
    for array in tensor.components.values():
        array.flags.writeable = False  # components are never written to
    found = ztorch.dequantize(tensor, getattr(torch, dtype))
    assert (found.dtype, tuple(found.shape)) == (getattr(torch, dtype), tensor.shape)
    expected = tensor.dequantize(dtype).astype(np.float64)
    np.testing.assert_array_equal(found.double().numpy(), expected)


@pytest.mark.parametrize("recipe", RECIPES)
def test_torch_tensors_are_quantized(recipe: str | None) -> None:
    whole = Tensor.quantize(WEIGHTS, recipe)
    tensor = Tensor.quantize(torch.from_numpy(WEIGHTS), recipe)
    assert tensor.attributes == whole.attributes
    for role, array in whole.components.items():
        assert tensor.components[role].tobytes() == array.tobytes()


GOOD = Tensor.quantize(WEIGHTS)
MISTAKES: dict[str, tuple[Tensor, dict[str, Any], type[Exception]]] = {
    "not quantized": (Tensor(WEIGHTS), {}, UsageError),
    "integers": (GOOD, {"dtype": torch.int32}, ArgumentValueError),
    "complex numbers": (GOOD, {"dtype": torch.complex64}, ArgumentValueError),
    "fp8": (GOOD, {"dtype": torch.float8_e4m3fn}, ArgumentValueError),
    "unknown device": (GOOD, {"device": "moon"}, ArgumentValueError),
    "another shape": (
        Tensor(
            GOOD.components, shape=(128, 257), format=GOOD.format, attributes=GOOD.attributes
        ),
        {},
        LayoutError,
    ),
    "too large": (
        Tensor(
            {role: array[:0] for role, array in GOOD.components.items()},
            shape=(0, 2**64), format=GOOD.format, attributes=GOOD.attributes,
        ),
        {},
        LimitError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused(name: str) -> None:
    tensor, options, kind = MISTAKES[name]
    with pytest.raises(kind):
        ztorch.dequantize(tensor, **options)


def test_the_message_names_the_alternative() -> None:
    with pytest.raises(UsageError, match=r"ztensor\.torch\.dequantize"):
        GOOD.torch()
